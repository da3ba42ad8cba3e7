"""XQuAD: paragraphs and questions of SQuAD's development set, translated by professionals."""

import json

from dr_book.data.files import Files, Made, collection


def xquad(files: Files, language: str) -> Made:
    """One language, its texts as they are; each question's paragraph is its relevant passage."""
    articles = json.loads(files.text(f"xquad.{language}.json"))["data"]
    corpus, queries, judged = [], [], []
    for paragraph in (block for article in articles for block in article["paragraphs"]):
        id_ = f"x{len(corpus)}"
        corpus.append({"_id": id_, "title": "", "text": paragraph["context"]})
        for asked in paragraph["qas"]:
            answers = [answer["text"] for answer in asked["answers"]]
            queries.append({"_id": asked["id"], "text": asked["question"], "answers": answers})
            judged.append((asked["id"], id_, 1))
    return collection(corpus, queries, {"test": judged})
