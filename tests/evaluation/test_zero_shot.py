"""Averages over collections against plain sums, and one call over several small collections."""

import datasets
import numpy as np
import pytest

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores, average, average_interval, bootstrap_interval, search_all
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


def test_an_average_varies_as_its_collections_do():
    rng = np.random.default_rng(1)
    values = {name: rng.random(n) for name, n in zip("abc", (400, 100, 50), strict=True)}
    found = average_interval(values)
    errors = {name: own.std() / np.sqrt(len(own)) for name, own in values.items()}
    together = np.sqrt(sum(error**2 for error in errors.values())) / 3
    assert found.mean.mean == pytest.approx(np.mean([own.mean() for own in values.values()]))
    assert (found.mean.high - found.mean.low) == pytest.approx(2 * 1.96 * together, rel=0.05)
    rest = np.sqrt(errors["a"] ** 2 + errors["c"] ** 2) / 2
    assert (found.without["b"].high - found.without["b"].low) == pytest.approx(2 * 1.96 * rest, rel=0.05)


def test_collections_of_one_size_do_not_share_their_draws():
    own = np.random.default_rng(2).random(60)
    one, both = average_interval({"a": own}), average_interval({"a": own, "b": own})
    assert one.without == {}
    assert one.mean == bootstrap_interval(own)
    assert (both.mean.high - both.mean.low) == pytest.approx((one.mean.high - one.mean.low) / np.sqrt(2), rel=0.05)


def test_seeds_are_averaged_before_queries_are_drawn():
    seeds = np.array([[0.0, 1.0, 0.5], [1.0, 0.0, 0.5]])
    found = average_interval({"a": seeds})
    assert [found.mean.low, found.mean.high] == pytest.approx([0.5, 0.5])


def test_an_average_of_nothing_is_refused():
    with pytest.raises(InputError, match="at least one"):
        average_interval({})
