"""Per-query scores: packing, pairing, refused input."""

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.evaluation import Scores, paired_difference


def scores(values, ids=None, measure="R@1") -> Scores:
    return Scores(ids or [f"q{i}" for i in range(len(values))], {measure: np.array(values)})


def test_saved_scores_load_unchanged_and_are_small(tmp_path):
    rng = np.random.default_rng(0)
    made = Scores([f"query {i} é" for i in range(5000)], {"MRR@10": 1 / rng.integers(1, 11, 5000)})
    made.save(tmp_path / "scores.json")
    loaded = Scores.load(tmp_path / "scores.json")
    assert loaded.query_ids == made.query_ids
    assert (loaded.values["MRR@10"] == made.values["MRR@10"]).all()
    assert (tmp_path / "scores.json").stat().st_size < 8 * 5000


@pytest.mark.parametrize(
    "text", ["{", '{"values": {}}', '{"queries": "AAAA", "values": {}}', '{"queries": 1, "values": {}}']
)
def test_broken_file_is_refused(tmp_path, text):
    (tmp_path / "scores.json").write_text(text)
    with pytest.raises(InputError, match=r"scores\.json"):
        Scores.load(tmp_path / "scores.json")


def test_values_that_do_not_fit_are_refused():
    for ids, values in ((["a"], [1, 2]), (["a", "a"], [1, 2]), (["a", "b"], [1, np.nan])):
        with pytest.raises(InputError):
            Scores(ids, {"R@1": np.array(values)})
    with pytest.raises(InputError, match="Measured were: R@1"):
        scores([1]).mean("MRR@10")


def test_queries_are_matched_by_id():
    difference = paired_difference(scores([1, 0, 0.5], ["a", "b", "c"]), scores([0, 0, 1], ["c", "b", "a"]), "R@1")
    assert difference.tolist() == [[0, 0, 0.5]]


def test_seeds_are_paired_in_order_or_averaged():
    first, second = [scores([1, 0]), scores([0, 0])], [scores([0, 1]), scores([0, 0])]
    assert paired_difference(first, second, "R@1").tolist() == [[1, -1], [0, 0]]
    assert paired_difference(first, second[0], "R@1").tolist() == [[0.5, -1]]


def test_different_queries_cannot_be_compared():
    with pytest.raises(InputError, match="'q1'"):
        paired_difference(scores([1, 0]), scores([1]), "R@1")
    with pytest.raises(InputError, match="no scores"):
        paired_difference([], scores([1]), "R@1")
