"""SQuAD from its official files, by the rules of `dr_lib.collections.squad`, and XQuAD.

XQuAD: paragraphs and questions of SQuAD's development set, translated by professionals.
"""

import json

from dr_book.data.files import Files, Made, collection
from dr_lib import collections


def squad(files: Files) -> Made:
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


def xquad(files: Files, language: str) -> Made:
    """One language, its texts as they are; each question's paragraph is its relevant passage,
    `doc` its article, `position` its place in the file.
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
