"""SciFact's tables, samples in BEIR layout, NQ-open; CoLA, MRPC, STS-B and SICK as tables."""

import json

import pytest

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


def place(position: int) -> dict:
    return {"doc": "Super_Bowl_50", "position": position}


@pytest.mark.parametrize("language", ["de", "vi", "zh"])
def test_xquad_keeps_its_texts_as_they_are(language, converted):
    asked = {
        "id": "56be",
        "question": " Wie viele? ",
        "answers": [{"text": "308", "answer_start": 0}],
    }
    blocks = [
        {"context": "\ufeffEin  Absatz.", "qas": [asked]},
        {"context": "Noch einer.", "qas": []},
    ]
    article = {"title": "Super_Bowl_50", "paragraphs": blocks}
    made = converted(f"xquad-{language}", {f"xquad.{language}.json": {"data": [article]}})
    assert made == {
        "corpus.jsonl.gz": [
            {"_id": "x0", "title": "", "text": "\ufeffEin  Absatz.", **place(0)},
            {"_id": "x1", "title": "", "text": "Noch einer.", **place(1)},
        ],
        "queries.jsonl.gz": [{"_id": "56be", "text": " Wie viele? ", "answers": ["308"]}],
        "qrels/test.tsv": [HEADER, ("56be", "x0", 1)],
    }


def test_cola_joins_both_dev_files(converted):
    rows = {
        "in_domain_train": "gj04\t1\t\tThey left.\r\n",
        "in_domain_dev": "a\t0\t*\tLeft  they.\n",
    }
    rows["out_of_domain_dev"] = "b\t1\t\tWe stayed.\n\n"
    folder = "acceptability_corpus/cola_public/raw"
    made = converted("glue-cola", {f"{folder}/{name}.tsv": text for name, text in rows.items()})
    head = ["sentence", "label", "source"]
    assert made == {
        "train.tsv": [head, ["They left.", "1", "gj04"]],
        "dev.tsv": [head, ["Left they.", "0", "a"], ["We stayed.", "1", "b"]],
    }


def test_mrpc_draws_its_dev_rows_by_their_ids(converted):
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    train = head + "".join(f"1\t{n}\t{n + 1}\tOne {n}.\tTwo {n}.\n" for n in range(100, 200))
    test = head + "0\t1\t2\tThis.\tThat.\nbroken\n"
    made = converted(
        "glue-mrpc", {"msr_paraphrase_train.txt": train, "msr_paraphrase_test.txt": test}
    )
    assert made["test.tsv"][1:] == [["This.", "That.", "0", "1", "2"]]
    assert len(made["train.tsv"]) + len(made["dev.tsv"]) == 102
    assert 2 < len(made["dev.tsv"]) < 25
    assert ["One 100.", "Two 100.", "1", "100", "101"] in made["train.tsv"] + made["dev.tsv"]


def test_stsb_takes_score_genre_and_both_sentences(converted):
    start = "main-captions\tMSRvid\t2012test\t0001\t5.000\t"
    row = f"{start}A plane is taking off.\tA plane takes off.\textra\n"
    files = {f"data/sts-{split}.csv": row + "short\trow\n" for split in ("train", "dev", "test")}
    made = converted("glue-stsb", files)
    cells = ["A plane is taking off.", "A plane takes off.", "5.000", "main-captions"]
    assert made["dev.tsv"] == [["sentence1", "sentence2", "score", "genre"], cells]


def test_sick_reads_its_three_files(converted):
    head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    names = {"SICK_train": "1", "SICK_trial": "2", "SICK_test_annotated": "3"}
    files = {
        f"data/sts/sick2014/{name}.txt": f"{head}{n}\tA {n}\tB\t4.5\tNEUTRAL \r\n"
        for name, n in names.items()
    }
    made = converted("sick", files)
    assert made["dev.tsv"][1:] == [["A 2", "B", "4.5", "NEUTRAL"]]
    assert made["test.tsv"][1:] == [["A 3", "B", "4.5", "NEUTRAL"]]
