from types import SimpleNamespace

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.training import Examples, training_examples, training_set


def test_ragged_positives_are_found_again():
    examples = Examples.of([5, 1, 7], positives=[[2], [0, 3, 4], [9, 8]], passages=10)
    rows, first = examples.positives_of(np.array([2, 0]))
    assert (rows.tolist(), first.tolist()) == ([9, 8, 2], [0, 2])
    assert examples.counts(np.array([1, 2])).tolist() == [3, 2]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"query_rows": [], "positives": [], "negatives": None}, "no training query"),
        ({"positives": [[0], []]}, "one without a positive"),
        ({"positives": [[0], list(range(10))], "negatives": None}, "every passage is positive"),
    ],
)
def test_examples_that_cannot_be_trained_on_are_refused(arguments, told):
    given = {
        "query_rows": [4, 9],
        "positives": [[0], [2, 3]],
        "negatives": [[1, 5], [6, -1]],
        **arguments,
    }
    with pytest.raises(InputError, match=told):
        Examples.of(**given, passages=10)


@pytest.mark.parametrize("negatives", [None, [[1, -1], [6, 7]]])
def test_saved_examples_open_as_they_were(tmp_path, negatives):
    examples = Examples.of([4, 9], positives=[[0], [2, 3]], negatives=negatives, passages=10)
    examples.save(tmp_path / "examples")
    again = Examples.open(tmp_path / "examples")
    assert again.passages == 10
    for name in ("query_rows", "positives", "offsets", "negatives"):
        kept, read = getattr(examples, name), getattr(again, name)
        assert (kept.dtype, kept.shape, kept.tolist()) == (read.dtype, read.shape, read.tolist())


def test_passages_that_hold_an_answer_stand_behind_the_judged_positives(tmp_path):
    judged = {"train": [np.array([5, 2]), np.array([], int), np.array([0]), np.array([], int)]}
    collection = SimpleNamespace(
        same_text=None, own_rows=lambda split: None, positives=judged.get, passages=range(9)
    )
    np.save(tmp_path / "negatives.npy", np.array([[3, 4], [1, 8], [6, 1], [2, 3]], np.int32))
    np.save(tmp_path / "positives.npy", np.array([[0, 7], [0, 1], [1, 6]], np.int32))
    found = training_examples(collection, tmp_path)
    # the second has no judged passage; the last one has neither
    assert found.query_rows.tolist() == [0, 1, 2]
    assert (found.positives.tolist(), found.offsets.tolist()) == ([2, 5, 7, 1, 6, 0], [0, 4, 5, 6])
    assert found.first_positives().tolist() == [5, 6, 0]
    assert found.negatives.tolist() == [[3, 4], [1, 8], [6, 1]]
    (tmp_path / "positives.npy").unlink()
    assert training_examples(collection, tmp_path).query_rows.tolist() == [0, 2]


def test_the_stage_draws_its_share_by_the_seed_it_is_given(tmp_path):
    relevant = [np.array([row]) for row in range(40)]
    collection = SimpleNamespace(
        same_text=None,
        positives=lambda split: relevant,
        passages=range(40),
        own_rows=lambda split: None,
    )
    drawn = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        folder = tmp_path / name
        folder.mkdir()
        training_set.body(folder, collection, share=0.5, share_seed=seed)
        drawn[name] = Examples.open(folder / "examples").query_rows.tolist()
    assert drawn["a"] == drawn["b"] != drawn["c"]
