"""Averages over collections against plain sums, and one call over several small collections."""

import datasets
import numpy as np
import pytest

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores, average, search_all
from dr_lib.retrieval import Bm25


def test_every_collection_has_the_same_weight_and_can_be_left_out():
    rng = np.random.default_rng(0)
    scores = {
        name: Scores([str(i) for i in range(n)], {"nDCG@10": rng.random(n)})
        for name, n in zip("abcd", (3, 90, 7, 1), strict=True)
    }
    means = {name: float(np.mean(one.values["nDCG@10"], dtype=np.float64)) for name, one in scores.items()}
    found = average(scores, "nDCG@10")
    assert found.each == pytest.approx(means)
    assert found.mean == pytest.approx(sum(means.values()) / 4)
    for name in scores:
        others = [value for other, value in means.items() if other != name]
        assert found.without[name] == pytest.approx(sum(others) / 3)
        assert average(scores, "nDCG@10", leave_out=[name]).mean == pytest.approx(sum(others) / 3)


def test_a_single_collection_has_no_average_of_the_others():
    assert average({"a": Scores(["q"], {"R@1": [1.0]})}, "R@1").without == {}


def test_names_and_measures_that_do_not_exist_are_refused():
    scores = {"a": Scores(["q"], {"R@1": [1.0]})}
    for arguments, options in (
        ((scores, "R@1"), {"leave_out": ["b"]}),
        ((scores, "R@1"), {"leave_out": ["a"]}),
        (({}, "R@1"), {}),
        ((scores, "R@2"), {}),
    ):
        with pytest.raises(InputError):
            average(*arguments, **options)


def tiny(name: str, words: list[str]) -> Collection:
    """Each word is a passage and a query to which it is relevant."""
    ids = [f"{name}{i}" for i in range(len(words))]
    passages = {"id": ids, "title": [""] * len(ids), "text": words, "doc": [""] * len(ids), "position": [0] * len(ids)}
    queries = {"id": ids, "text": words, "answers": [["x"] for _ in ids]}
    judged = {"query": ids, "passage": ids, "grade": [1] * len(ids)}
    made = (datasets.Dataset.from_dict(one) for one in (passages, queries, judged))
    parts = [*made]
    return Collection(name, "0" * 64, {}, parts[0], parts[1], {"test": parts[2]})


def test_one_call_searches_all_collections():
    def search(collection, split):
        asked = collection.queries(split)
        index = Bm25.build(collection.passages, progress=False)
        return index.search(asked["text"][:], 5, query_ids=asked["id"][:])

    searched = {"animals": tiny("a", ["fox", "wolf", "bear"]), "rivers": tiny("r", ["rhine", "tyne"])}
    scores = search_all(search, searched, measures=["R@1"])
    assert {name: one.query_ids for name, one in scores.items()} == {
        "animals": ["a0", "a1", "a2"],
        "rivers": ["r0", "r1"],
    }
    assert average(scores, "R@1").mean == 1.0
