"""Measures by judgements and by answers side by side, in the order of the judgements."""

import datasets
import numpy as np
import pytest

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation import answer_accuracy, evaluate, evaluate_split
from dr_lib.evaluation.split import check_measures
from dr_lib.retrieval import Ranking


@pytest.fixture
def collection():
    texts = ["The tower stands in Paris.", "Rome is old.", "Paris, Texas", "Nothing."]
    columns = {"id": list("abcd"), "title": [""] * 4, "text": texts, "doc": [""] * 4, "position": [0] * 4}
    asked = {"id": ["q", "r", "s"], "text": ["where", "old", "why"], "answers": [["paris"], ["Rome", "Rom"], []]}
    judged = {"query": ["s", "r", "q"], "passage": ["d", "b", "a"], "grade": [1, 1, 1]}
    tables = [datasets.Dataset.from_dict(one) for one in (columns, asked, judged)]
    return Collection("t", "0" * 64, {}, tables[0], tables[1], {"test": tables[2]})


@pytest.fixture
def ranking():
    rows = np.array([[2, 0, 1], [3, 0, 1], [3, 1, 0]])
    return Ranking(["q", "r", "s"], rows, np.tile([3.0, 2.0, 1.0], (3, 1)))


def test_values_are_those_of_both_kinds_of_measures(collection, ranking):
    names = ["MRR@10", "accuracy@1", "R@2", "accuracy@3"]
    found = evaluate_split(ranking, collection, "test", names)
    assert list(found.values) == names and found.query_ids == ["s", "r", "q"]
    judged = evaluate(ranking, collection.qrels("test"), list("abcd"), ["MRR@10", "R@2"])
    answered = answer_accuracy(ranking, collection.passages, [["paris"], ["Rome", "Rom"], []], (1, 3))
    for name in ("MRR@10", "R@2"):
        np.testing.assert_array_equal(found.per_query(name), judged.per_query(name))
    for name in ("accuracy@1", "accuracy@3"):
        np.testing.assert_array_equal(found.per_query(name), answered.per_query(name)[::-1])
    assert found.per_query("accuracy@1").tolist() == [0, 0, 1]
    assert found.per_query("accuracy@3").tolist() == [0, 1, 1]


def test_answers_alone_can_be_measured(collection, ranking):
    found = evaluate_split(ranking, collection, "test", ["accuracy@2"])
    assert found.per_query("accuracy@2").tolist() == [0, 0, 1]


def test_a_judged_query_that_the_run_lacks_scores_nothing(collection, ranking):
    part = Ranking(["q"], ranking.rows[:1], ranking.scores[:1])
    assert evaluate_split(part, collection, "test", ["accuracy@1"]).per_query("accuracy@1").tolist() == [0, 0, 1]


def test_answers_are_asked_for_where_a_measure_needs_them(collection):
    bare = collection.queries("test").remove_columns("answers").add_column("answers", [[], [], []])
    judged = datasets.Dataset.from_dict({"query": ["q"], "passage": ["a"], "grade": [1]})
    without = Collection("t", "0" * 64, {}, collection.passages, bare, {"test": judged})
    check_measures(["R@20"], without, "test")
    with pytest.raises(InputError, match=r"accuracy@20 needs answers"):
        check_measures(["R@20", "accuracy@20"], without, "test")


@pytest.mark.parametrize("name", ["accuracy@0", "accuracy", "Accuracy@5", "MMR@10"])
def test_an_unknown_measure_is_refused_with_the_list(name, collection):
    with pytest.raises(InputError, match=r"accuracy@k"):
        check_measures([name], collection, "test")
