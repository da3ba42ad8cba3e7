"""A collection written as a folder is the same collection when it is loaded again."""

from dr_lib import collections
from dr_lib.collections.source import Judgement, Query
from dr_lib.collections.writing import write_folder


def test_a_written_folder_is_the_same_collection(beir_folder, cache, tmp_path):
    first = collections.load(beir_folder(), cache=cache)
    queries = [Query(row["id"], row["text"], tuple(row["answers"])) for row in first.queries()]
    judged = {
        split: [Judgement(query, *pair) for query, own in first.qrels(split).items() for pair in own.items()]
        for split in first.splits
    }
    write_folder(tmp_path / "copy", first.passages, queries, judged, "- Licence: CC0 1.0\n")
    again = collections.load(tmp_path / "copy", cache=cache)
    assert again.digest == first.digest and again.info["licence"] == "CC0 1.0"
    assert again.passages[:] == first.passages[:] and again.qrels("test") == first.qrels("test")
