"""Intervals and tests against scipy and against cases small enough to count."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from dr_lib.errors import InputError
from dr_lib.evaluation import (
    average_interval,
    bootstrap_interval,
    bootstrap_intervals,
    holm,
    paired_tests,
    randomisation_tests,
    smallest_detectable_difference,
)
from dr_lib.evaluation.statistics import bootstrap_means, crossing


def one_test(values: np.ndarray, **options) -> float:
    return randomisation_tests([values], **options)[0]


def differences(queries: int = 200, shift: float = 0.1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice([-0.5, 0, 0, 0.2, 1.0], queries) - 0.14 + shift


def test_interval_agrees_with_scipy():
    values = differences()
    ours = bootstrap_interval(values, draws=20_000)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=20_000, rng=1).confidence_interval
    spread = values.std() / np.sqrt(len(values))
    assert ours.mean == pytest.approx(values.mean())
    assert ours.low == pytest.approx(theirs.low, abs=0.06 * spread)
    assert ours.high == pytest.approx(theirs.high, abs=0.06 * spread)


def test_interval_equals_all_resamples_of_three_queries():
    values = np.array([0.0, 1.0, 5.0])
    means = [np.mean(drawn) for drawn in product(values, repeat=3)]
    ours = bootstrap_interval(values, draws=200_000, level=0.8)
    assert (ours.low, ours.high) == pytest.approx(np.quantile(means, [0.1, 0.9], method="inverted_cdf"), abs=1e-9)


def test_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = [
        (interval := bootstrap_interval(rng.standard_normal(60) + 1, draws=500, level=0.8)).low <= 1 <= interval.high
        for _ in range(300)
    ]
    assert 0.72 < np.mean(hits) < 0.87


def test_interval_repeats_and_does_not_depend_on_parts(monkeypatch):
    import sys

    values = differences(101)
    whole = bootstrap_interval(values, draws=1000)
    assert whole == bootstrap_interval(values, draws=1000)
    monkeypatch.setattr(sys.modules["dr_lib.evaluation.statistics"], "AT_ONCE", 1010)
    parts = bootstrap_interval(values, draws=1000)
    assert (parts.low, parts.high) == pytest.approx((whole.low, whole.high), abs=1e-12)


def test_draws_that_are_kept_and_draws_that_are_not_are_the_same(monkeypatch):
    import sys

    values = [differences(30, seed=s).reshape(3, 10) for s in range(2)]
    kept = bootstrap_intervals(values, draws=500), randomisation_tests(values, draws=500)
    monkeypatch.setattr(sys.modules["dr_lib.evaluation.statistics"], "KEPT", 0)
    assert (bootstrap_intervals(values, draws=500), randomisation_tests(values, draws=500)) == kept


def test_several_intervals_equal_single_ones():
    several = [differences(90, seed=s).reshape(3, 30) for s in range(4)] + [differences(30)]
    together = bootstrap_intervals(several, draws=800)
    for own, interval in zip(several, together, strict=True):
        alone = bootstrap_interval(own, draws=800)
        assert (interval.low, interval.high) == pytest.approx((alone.low, alone.high), abs=1e-12)


def test_drawing_seeds_widens_the_interval_by_the_seeds_spread():
    seeds = np.array([-1.0, 0.0, 1.0])
    values = np.repeat(seeds[:, None], 50, axis=1)
    two_levels = bootstrap_interval(values, draws=40_000, level=0.9)
    means = [np.mean(drawn) * np.sqrt(3 / 2) for drawn in product(seeds, repeat=3)]
    expected = np.quantile(means, [0.05, 0.95], method="inverted_cdf")
    assert (two_levels.low, two_levels.high) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_resamples_of_seeds_have_the_textbook_standard_error(seeds):
    """Standard error of a mean of so many seeds, s / sqrt(n), whose queries all agree."""
    levels = np.random.default_rng(seeds).standard_normal(seeds)
    found = bootstrap_means([np.repeat(levels[:, None], 20, axis=1)], draws=40_000)[0]
    assert found.std() == pytest.approx(levels.std(ddof=1) / np.sqrt(seeds), rel=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_intervals_over_queries_and_seeds_agree_with_scipy_level_by_level(seed):
    """With one seed, and with seeds that agree, the two-level interval is scipy's over queries."""
    values = differences(150, seed=seed)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=20_000, rng=1).confidence_interval
    spread = values.std() / np.sqrt(len(values))
    for given in (values, np.stack([values] * 3)):
        ours = bootstrap_interval(given, draws=20_000)
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.06 * spread)


def test_a_difference_that_one_seed_makes_is_not_established():
    """One of two trainings is far ahead on every query, the other is not: flips alone would call that certain."""
    values = np.stack([np.full(200, 0.1), np.full(200, -0.01)]) + differences(400, seed=1).reshape(2, 200) / 100
    assert randomisation_tests([values])[0] < 0.001 and paired_tests([values])[0] > 0.05
    interval = bootstrap_interval(values)
    assert interval.low < 0 < interval.high


@pytest.mark.parametrize("seed", range(20))
def test_interval_and_test_agree_on_the_side_of_zero(seed):
    values = differences(120, shift=seed / 60, seed=seed).reshape(2, 60)
    interval, (p,) = bootstrap_interval(values), paired_tests([values])
    assert p >= 0.05 or not interval.low <= 0 <= interval.high


def test_crossing_counts_the_resamples_beyond_the_nearer_border():
    drawn = np.array([-2.0, -1.0, 0.5, 1.0, 2.0, 3.0, 3.5, 4.0, 5.0])
    assert crossing(1.8, drawn) == 2 * (1 + 2) / 10
    assert crossing(-0.1, drawn) == 1.0
    assert crossing(2.5, drawn, -3, 4.5) == 2 * (1 + 1) / 10


def test_randomisation_agrees_with_scipy():
    values = differences(60, shift=0.13)
    theirs = stats.permutation_test((values, np.zeros(60)), lambda x, y, axis: np.mean(x - y, axis=axis),
                                    permutation_type="samples", vectorized=True, n_resamples=20_000, rng=1)  # fmt: skip
    assert one_test(values, draws=20_000) == pytest.approx(theirs.pvalue, abs=0.012)


def test_randomisation_equals_the_count_of_all_flips():
    values = np.array([0.3, -0.1, 0.4, 0.1, 0.2, -0.05, 0.0])
    means = [np.dot(values, signs) for signs in product([-1, 1], repeat=7)]
    exact = np.mean(np.abs(means) >= abs(values.sum()) - 1e-12)
    assert one_test(values, draws=100_000) == pytest.approx(exact, abs=0.006)


def test_p_value_is_never_zero_and_one_for_no_difference():
    assert one_test(np.ones(100), draws=99) == 0.01
    assert one_test(np.zeros(100), draws=99) == 1.0
    assert randomisation_tests([np.zeros(9), np.ones(9)], draws=999)[0] == 1.0


def test_p_values_are_uniform_where_nothing_differs():
    rng = np.random.default_rng(0)
    found = randomisation_tests([rng.standard_normal(40) for _ in range(400)], draws=500)
    assert stats.kstest(found, "uniform").pvalue > 0.01


def test_holm_equals_the_steps_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]).tolist() == [1.0, 1.0]
    assert holm([0.02]).tolist() == [0.02]
    assert holm([]).tolist() == []


def test_smallest_detectable_difference_is_found_with_the_power_asked_for():
    rng = np.random.default_rng(0)
    runs = rng.standard_normal((4000, 100)) * 0.3
    smallest = smallest_detectable_difference(runs[0] / runs[0].std(ddof=1) * 0.3)
    assert smallest == pytest.approx(2.8016 * 0.3 / 10, rel=1e-3)
    found = stats.ttest_1samp(runs + smallest, 0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.03)


def test_seeds_that_differ_hide_small_differences():
    queries = np.random.default_rng(0).standard_normal(400) * 0.1
    together = np.stack([queries, queries])
    apart = together + np.array([[0.05], [-0.05]])
    alone, two, noisy = map(smallest_detectable_difference, (queries, together, apart))
    assert two == pytest.approx(alone)
    assert noisy == pytest.approx(2.8016 * np.sqrt(queries.var(ddof=1) / 400 + 0.1**2 / 2 / 2), rel=1e-3)


def test_bad_input_is_refused():
    for values in (np.array([]), np.zeros((2, 0)), np.array([1.0, np.nan]), np.zeros((1, 2, 3))):
        with pytest.raises(InputError):
            bootstrap_interval(values)
    with pytest.raises(InputError):
        bootstrap_intervals([np.zeros(3), np.zeros(4)])
    with pytest.raises(InputError, match="one query"):
        smallest_detectable_difference(np.array([1.0]))


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


def test_seeds_that_agree_average_as_one():
    own = differences(40)
    one, three = (average_interval({"a": given, "b": differences(20, seed=1)}).mean for given in (own, np.stack([own] * 3)))
    assert (three.mean, three.low, three.high) == pytest.approx((one.mean, one.low, one.high), abs=1e-12)


def test_an_average_of_nothing_is_refused():
    with pytest.raises(InputError, match="at least one"):
        average_interval({})
