"""Small sets: SQuAD from its official files, by the rules of `dr_lib.collections.squad`, and XQuAD;
SciFact, samples of TREC DL and DBpedia, and the questions of NQ-open.

XQuAD: paragraphs and questions of SQuAD's development set, translated by professionals.
"""

import ast
import json
import re

from dr_book.data.files import Files, Rows, collection
from dr_book.data.text import repaired, rows_of, share
from dr_lib import collections
from dr_lib.collections.plain import one_line

LITERAL = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
DEV_SHARE = 0.15


def scifact(files: Files) -> Rows:
    """Claims and the abstracts that they cite; test = the published dev claims, as in BEIR."""
    tables = {}
    for name in ("corpus_train", "claims_train", "claims_validation"):
        tables[name] = [*rows_of(files.unzipped("data/scifact.zip", f"{name}.csv").decode())]
    corpus = []
    for row in tables["corpus_train"]:  # an abstract is the repr of an array of sentences
        text = one_line(" ".join(map(ast.literal_eval, LITERAL.findall(row["abstract"]))))
        if text:
            own = {"_id": row["doc_id"], "title": one_line(row["title"]), "text": text}
            corpus.append({**own, "doc": row["doc_id"], "position": 0})
    queries: dict[str, dict] = {}
    judged: dict[str, list[tuple]] = {"train": [], "test": [], "dev": []}
    for name in ("claims_train", "claims_validation"):
        for row in tables[name]:
            drawn = "dev" if share(row["id"], "scifact-dev") < DEV_SHARE else "train"
            split = drawn if name == "claims_train" else "test"
            queries[row["id"]] = {"_id": row["id"], "text": one_line(row["claim"])}
            cited = re.findall(r"\d+", row["cited_doc_ids"])
            judged[split] += [(row["id"], id_, 1) for id_ in cited]
    return collection(corpus, queries.values(), judged)


def beir_sample(files: Files, folder: str) -> Rows:
    """A sample with graded judgements; queries without a relevant passage are dropped."""
    corpus = {}
    for row in map(json.loads, files.lines(f"datasets/{folder}/corpus.jsonl")):
        own = {"_id": row["_id"].replace("\t", " "), "title": repaired(row.get("title", ""))}
        if text := repaired(row["text"]):
            corpus.setdefault(row["_id"], {**own, "text": text})
    queries = {}
    for row in map(json.loads, files.lines(f"datasets/{folder}/queries.jsonl")):
        queries[row["_id"]] = {"_id": row["_id"], "text": one_line(row["text"])}
    rows = [line.split("\t") for line in files.lines(f"datasets/{folder}/qrels/test.tsv")[1:]]
    relevant = {query for query, id_, grade in rows if int(grade) > 0 and id_ in corpus}
    judged = [(query, id_, int(grade)) for query, id_, grade in rows if query in relevant]
    return collection(corpus.values(), queries.values(), {"test": judged})


def nq_open(files: Files) -> Rows:
    """Questions with their accepted answers, and no passages."""
    return {"queries.jsonl.gz": nq_questions(files, "nq_open/NQ-open.dev.jsonl", "nqdev")}


def nq_questions(files: Files, name: str, prefix: str) -> list[dict]:
    """The questions of a file of NQ-open; an id is `prefix` and a number."""
    rows = enumerate(map(json.loads, files.lines(name)))
    return [
        {
            "_id": f"{prefix}{number}",
            "text": one_line(row["question"]),
            "answers": [*map(one_line, row["answer"])],
        }
        for number, row in rows
    ]


def squad(files: Files) -> Rows:
    """The official files as a folder in BEIR layout."""
    folder = files.path("dataset/train-v1.1.json").parent
    whole = collections.load(folder, allow_changes=True)
    corpus = ({"_id": row.pop("id"), **row} for row in whole.passages)
    queries = ({"_id": row.pop("id"), **row} for row in whole.queries())
    judged = {
        split: [
            (query, id_, grade)
            for query, grades in whole.qrels(split).items()
            for id_, grade in grades.items()
        ]
        for split in whole.splits
    }
    return collection(corpus, queries, judged)


def xquad(files: Files, language: str) -> Rows:
    """One language, with unchanged texts; the relevant passage of a question is its paragraph,
    `doc` the article, `position` the index in the file.
    """
    articles = json.loads(files.text(f"xquad.{language}.json"))["data"]
    corpus, queries, judged = [], [], []
    for article in articles:
        for paragraph in article["paragraphs"]:
            place = {"doc": article["title"], "position": len(corpus)}
            id_ = f"x{len(corpus)}"
            corpus.append({"_id": id_, "title": "", "text": paragraph["context"]} | place)
            for asked in paragraph["qas"]:
                answers = [answer["text"] for answer in asked["answers"]]
                queries.append({"_id": asked["id"], "text": asked["question"], "answers": answers})
                judged.append((asked["id"], id_, 1))
    return collection(corpus, queries, {"test": judged})
