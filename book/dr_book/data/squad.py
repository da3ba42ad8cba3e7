"""SQuAD from its official files, by the rules of `dr_lib.collections.squad`."""

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
