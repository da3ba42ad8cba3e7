"""Intervals of set measures: against a plain mean's bootstrap, against sklearn, paired, and refused."""

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from dr_lib.errors import InputError
from dr_lib.evaluation import Scores, bootstrap_interval
from dr_lib.evaluation.nlu_intervals import measure_difference, measure_interval


def scores(predicted, actual) -> Scores:
    return Scores([str(row) for row in range(len(actual))], {"predicted": predicted, "actual": actual})


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    actual = rng.integers(0, 2, 300)
    flips = rng.random((2, 300)) < [[0.2], [0.4]]
    return actual, *(np.where(flip, 1 - actual, actual) for flip in flips)


def test_of_a_mean_over_rows_it_is_the_common_interval(rows):
    actual, good, _ = rows
    own = measure_interval([scores(good, actual)], "accuracy", draws=4000)
    plain = bootstrap_interval((good == actual).astype(float))
    assert own.mean == pytest.approx(plain.mean)
    assert [own.low, own.high] == pytest.approx([plain.low, plain.high], abs=0.01)


def test_each_draw_measures_the_whole_set_anew(rows):
    actual, good, _ = rows
    own = measure_interval([scores(good, actual)], "Matthews", draws=500, seed=3)
    rng = np.random.default_rng(3)
    drawn = [rng.integers(0, 300, 300) for _ in range(500)]
    values = [matthews_corrcoef(actual[one], good[one]) for one in drawn]
    assert own.mean == pytest.approx(matthews_corrcoef(actual, good), abs=1e-6)
    assert [own.low, own.high] == pytest.approx(np.quantile(values, [0.025, 0.975]).tolist(), abs=1e-6)


def test_differences_are_paired(rows):
    actual, good, bad = rows
    same = measure_difference([scores(good, actual)], [scores(good, actual)], "Matthews", draws=100)
    assert (same.mean, same.low, same.high) == (0, 0, 0)
    gain = measure_difference([scores(good, actual)], [scores(bad, actual)], "Matthews", draws=300)
    assert gain.low > 0
    assert gain.mean == pytest.approx(matthews_corrcoef(actual, good) - matthews_corrcoef(actual, bad), abs=1e-6)


def test_seeds_are_averaged(rows):
    actual, good, bad = rows
    both = measure_interval([scores(good, actual), scores(bad, actual)], "accuracy", draws=50)
    assert both.mean == pytest.approx(((good == actual).mean() + (bad == actual).mean()) / 2)


def test_other_rows_are_refused(rows):
    actual, good, _ = rows
    with pytest.raises(InputError, match="different rows"):
        measure_difference([scores(good, actual)], [scores(good, 1 - actual)], "F1")
    with pytest.raises(InputError):
        measure_interval([], "F1")
