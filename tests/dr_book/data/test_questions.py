"""SciFact's tables, samples in BEIR layout, and NQ-open."""

import json

from tests.dr_book.data.layouts import HEADER, zipped


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_scifact_rejoins_sentences_and_cites_what_is_there(converted):
    corpus = (
        "doc_id,title,abstract,structured\n"
        "4983,Brain  matter,\"['Alterations of the brain.'"
        " \"\"It's new.\"\"\n 'A \\\\'third\\\\'.']\",False\n"
        "5,Nothing,[],False\n"
    ).replace("\\\\'", "\\'")
    train = "id,claim,cited_doc_ids\n" + "".join(f'{n},"Claim {n}",[4983]\n' for n in range(20))
    dev = (
        'id,claim,cited_doc_ids\n100,"A dev claim.","[4983 4983 5 77]"\n101,"Cites nothing.",[77]\n'
    )
    tables = {"corpus_train": corpus, "claims_train": train, "claims_validation": dev}
    archive = zipped({f"{name}.csv": text for name, text in tables.items()})
    made = converted("scifact", {"data/scifact.zip": archive})
    assert made["corpus.jsonl.gz"] == [
        {
            "_id": "4983",
            "title": "Brain matter",
            "text": "Alterations of the brain. It's new. A 'third'.",
            "doc": "4983",
            "position": 0,
        }
    ]
    assert made["qrels/test.tsv"] == [HEADER, ("100", "4983", 1)]
    assert len(made["qrels/train.tsv"]) + len(made["qrels/dev.tsv"]) == 22
    assert len(made["qrels/dev.tsv"]) < 10
    assert len(made["queries.jsonl.gz"]) == 21


def test_a_beir_sample_is_repaired_and_keeps_its_grades(converted):
    files = {
        "corpus.jsonl": lines(
            {"_id": "a\tb", "title": "", "text": "CafÃ© au  lait"},
            {"_id": "c", "text": "plain"},
            {"_id": "c", "text": "again"},
            {"_id": "d", "text": " "},
        ),
        "queries.jsonl": lines(
            {"_id": "1", "text": "coffee "},
            {"_id": "2", "text": "no answer"},
            {"_id": "3", "text": "x"},
        ),
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\n"
        "1\tc\t3\n1\td\t2\n1\tc\t3\n2\tc\t0\n4\tc\t1\n",
    }
    made = converted(
        "trecdl-mini", {f"datasets/msmarco/{name}": text for name, text in files.items()}
    )
    assert made["corpus.jsonl.gz"] == [
        {"_id": "a b", "title": "", "text": "Café au lait"},
        {"_id": "c", "title": "", "text": "plain"},
    ]
    assert made["queries.jsonl.gz"] == [{"_id": "1", "text": "coffee"}]
    assert made["qrels/test.tsv"] == [HEADER, ("1", "c", 3)]


def test_dbpedia_is_read_from_its_own_folder(converted):
    files = {
        "corpus.jsonl": lines({"_id": "<e>", "title": "E", "text": "An entity."}),
        "queries.jsonl": lines({"_id": "q", "text": "entities"}),
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\t<e>\t1\n",
    }
    made = converted(
        "dbpedia-mini", {f"datasets/dbpedia/{name}": text for name, text in files.items()}
    )
    assert made["corpus.jsonl.gz"] == [{"_id": "<e>", "title": "E", "text": "An entity."}]


def test_marco_lines_are_numbered_with_those_that_go(converted):
    files = {
        "examples/data/marco.tp.1k": "-\tfirst text\nA title\tsecond\nno tab\n\nB\t \nC\tlast\n",
        "examples/data/marco.q": "what is it\n\nwho\n",
    }
    made = converted("marco-sample-1k", files)
    assert made["corpus.jsonl.gz"] == [
        {"_id": "marco0", "title": "", "text": "first text"},
        {"_id": "marco1", "title": "A title", "text": "second"},
        {"_id": "marco5", "title": "C", "text": "last"},
    ]
    assert made["queries.jsonl.gz"] == [
        {"_id": "marcoq0", "text": "what is it"},
        {"_id": "marcoq2", "text": "who"},
    ]
    assert not [name for name in made if name.startswith("qrels")]


def test_nq_open_has_answers_and_no_passages(converted):
    rows = lines(
        {"question": "who  won", "answer": ["A  B", "C"]}, {"question": "when", "answer": ["1"]}
    )
    made = converted("nq-open-questions", {"nq_open/NQ-open.dev.jsonl": rows})
    assert made == {
        "queries.jsonl.gz": [
            {"_id": "nqdev0", "text": "who won", "answers": ["A B", "C"]},
            {"_id": "nqdev1", "text": "when", "answers": ["1"]},
        ]
    }


def test_xquad_keeps_its_texts_as_they_are(converted):
    asked = {
        "id": "56be",
        "question": " Wie viele? ",
        "answers": [{"text": "308", "answer_start": 0}],
    }
    blocks = [
        {"context": "\ufeffEin  Absatz.", "qas": [asked]},
        {"context": "Noch einer.", "qas": []},
    ]
    made = converted("xquad-de", {"xquad.de.json": {"data": [{"paragraphs": blocks}]}})
    assert made == {
        "corpus.jsonl.gz": [
            {"_id": "x0", "title": "", "text": "\ufeffEin  Absatz."},
            {"_id": "x1", "title": "", "text": "Noch einer."},
        ],
        "queries.jsonl.gz": [{"_id": "56be", "text": " Wie viele? ", "answers": ["308"]}],
        "qrels/test.tsv": [HEADER, ("56be", "x0", 1)],
    }
