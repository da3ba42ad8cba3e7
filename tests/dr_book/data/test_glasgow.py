"""Classic test collections: SMART's fields, slashes and stars."""

from tests.dr_book.data.layouts import HEADER, packed


def test_cranfield_numbers_queries_by_order_and_takes_titles_out_of_texts(converted):
    records = """.I 1
.T
flow over a wing .
.A
smith,j.
.W
flow over a wing .
  air flows , and stays attached .
.I 2
.T
heat
.W
heat passes ( slowly ) .
.I 3
.T
an empty record .
.W
"""
    queries = (
        ".I 004\n.W\nwhat is air flow .\n.I 009\n.W\nwhat is heat\n.I 011\n.W\nnobody judged this\n"
    )
    judgements = "1 1 2\n1 2 -1\n2 2  4\n2 1 5\n2 9 1\n1 1 1\n2 3 1\n"
    archive = packed({"cran/cran.all.1400": records, "cran.qry": queries, "cranqrel": judgements})
    made = converted("cranfield", {"cran/cran.tar.gz": archive})
    assert made["corpus.jsonl.gz"] == [
        passage("cran1", "flow over a wing.", "air flows, and stays attached."),
        passage("cran2", "heat", "passes ( slowly)."),
        passage("cran3", "", "an empty record."),
    ]
    assert made["queries.jsonl.gz"] == [
        {"_id": "cranq1", "text": "what is air flow."},
        {"_id": "cranq2", "text": "what is heat"},
    ]
    assert made["qrels/test.tsv"] == [
        HEADER,
        ("cranq1", "cran1", 1),
        ("cranq2", "cran2", 1),
        ("cranq2", "cran3", 1),
    ]


def passage(id_: str, title: str, text: str) -> dict:
    return {"_id": id_, "title": title, "text": text, "doc": id_, "position": 0}


def test_medline_has_no_titles_and_numbers_of_its_own(converted):
    files = {
        "MED.ALL": ".I 1\n.W\ncrystals in lens .\n.I 2\n.W\nliver cells\n",
        "MED.QRY": ".I 7\n.W\ncrystalline lens ?\n",
        "MED.REL": "7 0 1 1\n7 0 5 1\n",
    }
    made = converted("medline", {"med/med.tar.gz": packed(files)})
    assert [row["text"] for row in made["corpus.jsonl.gz"]] == ["crystals in lens.", "liver cells"]
    assert made["queries.jsonl.gz"] == [{"_id": "medq7", "text": "crystalline lens?"}]
    assert made["qrels/test.tsv"] == [HEADER, ("medq7", "med1", 1)]


def test_cacm_uses_a_title_as_text_where_there_is_no_abstract(converted):
    first = ".I 1\n.T\nPreliminary Report\n.B\nCACM 1958\n"
    second = ".I 2\n.T\nRoots\n.W\nRoots of polynomials\nof degree two.\n.X\n2\t5\t1\n"
    files = {
        "cacm.all": first + second,
        "query.text": ".I 1\n.W\nWhat reports?\n.N\n 1. A Person\n.I 2\n.W\nunjudged\n",
        "qrels.text": "01 0001  0 0\n01 0002  0 0\n",
    }
    made = converted("cacm", {f"data/cacm/{name}": text for name, text in files.items()})
    assert made["corpus.jsonl.gz"] == [
        passage("cacm1", "", "Preliminary Report"),
        passage("cacm2", "Roots", "of polynomials of degree two."),
    ]
    assert made["queries.jsonl.gz"] == [{"_id": "cacmq1", "text": "What reports?"}]
    assert made["qrels/test.tsv"] == [HEADER, ("cacmq1", "cacm1", 1), ("cacmq1", "cacm2", 1)]


def test_npl_is_put_in_lower_case_between_its_slashes(converted):
    files = {
        "doc-text": "1\nCompact Memories\n have\n   /\n2\n\nan electronic key\n   /\n",
        "query-text": "1\nMEASUREMENT OF KEYS\n/\n2\nNOTHING\n/\n",
        "rlv-ass": "1\n   2   1\n   2\n   /\n2\n  77\n   /\n",
    }
    made = converted("npl", {f"npl/{name}": text for name, text in files.items()})
    assert [row["text"] for row in made["corpus.jsonl.gz"]] == [
        "compact memories have",
        "an electronic key",
    ]
    assert made["queries.jsonl.gz"] == [{"_id": "nplq1", "text": "measurement of keys"}]
    assert made["qrels/test.tsv"] == [HEADER, ("nplq1", "npl2", 1), ("nplq1", "npl1", 1)]


def test_lisa_parts_title_and_abstract_at_the_blank_line(converted):
    stars = "*" * 44
    first = f"Document 501\nLIBRARIES IN\nTOWNS.\n     \nTHEY LEND BOOKS.\n\nAND MORE .\n{stars}\n"
    second = f"Document 501\nAGAIN.\n     \nREPEATED.\n{stars}\nDocument 502\nALONE.\n{stars}\n"
    made = converted(
        "lisa",
        {
            "lisa/docs/LISA0.501": first,
            "lisa/docs/LISA1.001": second,
            "lisa/LISA.QUE": "     1\nI AM INTERESTED IN\nTOWNS. #\n     2\nNOT JUDGED #\n",
            "lisa/LISARJ.NUM": "           1           2\n         501         502\n",
        },
    )
    assert made["corpus.jsonl.gz"] == [
        passage("lisa501", "libraries in towns.", "they lend books. and more."),
        passage("lisa502", "", "alone."),
    ]
    assert made["queries.jsonl.gz"] == [{"_id": "lisaq1", "text": "i am interested in towns."}]
    assert made["qrels/test.tsv"] == [HEADER, ("lisaq1", "lisa501", 1), ("lisaq1", "lisa502", 1)]
