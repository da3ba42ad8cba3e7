"""Intervals and tests against scipy and against cases small enough to count."""

import sys
from itertools import product

import numpy as np
import pytest
from scipy import stats

from dr_book.statistics import (
    _resamples,
    bootstrap_interval,
    bootstrap_intervals,
    crossing,
    detectable_among,
    holm,
    paired_difference,
    randomisation_tests,
    seed_moves,
    smallest_detectable_difference,
)
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores

statistics = sys.modules[crossing.__module__]


def one_test(values: np.ndarray, **options) -> float:
    return randomisation_tests([values], **options)[0]


def differences(queries: int = 200, shift: float = 0.1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice([-0.5, 0, 0, 0.2, 1.0], queries) - 0.14 + shift


def test_interval_agrees_with_scipy():
    values = differences()
    ours = bootstrap_interval(values, draws=20_000)
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=20_000, rng=1
    ).confidence_interval
    spread = values.std() / np.sqrt(len(values))
    assert ours.mean == pytest.approx(values.mean())
    assert ours.low == pytest.approx(theirs.low, abs=0.06 * spread)
    assert ours.high == pytest.approx(theirs.high, abs=0.06 * spread)


def test_resamples_row_by_row_are_those_drawn_all_at_once():
    """Recorded intervals rest on these draws, and parts of them follow one another from one
    generator.
    """
    shapes = np.random.default_rng(0)
    for seed in range(200):
        fast, slow, queries = (
            np.random.default_rng(seed),
            np.random.default_rng(seed),
            int(shapes.integers(1, 900)),
        )
        for draws in shapes.integers(1, 40, 3):
            places = slow.integers(0, queries, (draws, queries), dtype=np.int32)
            found = _resamples(fast, int(draws), queries)
            assert found.shape == (draws, queries)
            for row, own in enumerate(places):
                assert (
                    found[row]
                    == np.unique(np.r_[own, np.arange(queries)], return_counts=True)[1] - 1
                ).all()


def test_interval_equals_all_resamples_of_three_queries():
    values = np.array([0.0, 1.0, 5.0])
    means = [np.mean(drawn) for drawn in product(values, repeat=3)]
    ours = bootstrap_interval(values, draws=200_000, level=0.8)
    assert (ours.low, ours.high) == pytest.approx(
        np.quantile(means, [0.1, 0.9], method="inverted_cdf"), abs=1e-9
    )


def test_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = [
        (interval := bootstrap_interval(rng.standard_normal(60) + 1, draws=500, level=0.8)).low
        <= 1
        <= interval.high
        for _ in range(300)
    ]
    assert 0.72 < np.mean(hits) < 0.87


def test_interval_repeats_and_does_not_depend_on_parts(monkeypatch):
    values = differences(101)
    whole = bootstrap_interval(values, draws=1000)
    assert whole == bootstrap_interval(values, draws=1000)
    monkeypatch.setattr(statistics, "AT_ONCE", 1010)
    statistics._summed.clear()
    parts = bootstrap_interval(values, draws=1000)
    assert (parts.low, parts.high) == pytest.approx((whole.low, whole.high), abs=1e-12)


def test_draws_that_are_kept_and_draws_that_are_not_are_the_same(monkeypatch):
    values = [differences(30, seed=s).reshape(3, 10) for s in range(2)]

    def drawn() -> tuple:
        statistics._summed.clear()
        return bootstrap_intervals(values, draws=500), randomisation_tests(values, draws=500)

    # five parts: only what is more than one is kept
    monkeypatch.setattr(statistics, "AT_ONCE", 1010)
    hits = statistics._kept.cache_info().hits
    first, again = drawn(), drawn()
    assert statistics._kept.cache_info().hits == hits + 2  # resamples and signs
    monkeypatch.setattr(statistics, "KEPT", 0)
    assert first == again == drawn()
    assert statistics._kept.cache_info().hits == hits + 2


def test_sums_that_are_kept_are_those_of_resamples_summed_one_by_one(monkeypatch):
    """Columns that come again in another order, beside others, scaled, or after the memory was
    emptied.
    """
    monkeypatch.setattr(statistics, "COLUMNS", 12)
    rng, known = np.random.default_rng(0), []
    for trial in range(300):
        queries, seed = (7, 40)[trial % 2], trial % 3
        new = [rng.choice([-0.5, 0, 0.2, 1.0], queries) for _ in range(rng.integers(1, 4))]
        old = [column for column in known if len(column) == queries and rng.random() < 0.3]
        columns = rng.permutation(np.stack([*new, *old, 2 * new[0], new[0]], axis=1), axis=1)
        known = [*known, *new][-20:]
        counts = _resamples(np.random.default_rng(seed), 60, queries)
        slow = (counts[:, :, None] * columns).sum(axis=1)
        np.testing.assert_allclose(statistics._sums(columns, 60, seed), slow, rtol=0, atol=1e-12)


def test_several_intervals_equal_single_ones():
    several = [differences(30, seed=s) for s in range(5)]
    together = bootstrap_intervals(several, draws=800)
    for own, interval in zip(several, together, strict=True):
        statistics._summed.clear()
        alone = bootstrap_interval(own, draws=800)
        assert (interval.low, interval.high) == pytest.approx((alone.low, alone.high), abs=1e-12)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_of_seeds_alone_the_interval_is_students(seeds):
    """Queries that all agree leave the interval of a mean of so many seeds: s / sqrt(n), with n - 1
    degrees of freedom.
    """
    levels = np.random.default_rng(seeds).standard_normal(seeds)
    ours = bootstrap_interval(np.repeat(levels[:, None], 20, axis=1), draws=100_000, level=0.9)
    error = levels.std(ddof=1) / np.sqrt(seeds)
    theirs = stats.t.interval(0.9, seeds - 1, loc=levels.mean(), scale=error)
    assert (ours.low, ours.high) == pytest.approx(theirs, abs=0.1 * error)


def test_the_spread_of_seeds_is_shared_by_the_rows_and_a_row_counts_once():
    rows = [np.array([0.0, 2.0]), np.array([5.0, 5.0]), np.array([1.0])]
    moves = seed_moves([*rows, rows[0]], 200_000)
    # Squares about the means: 2 and 0, on two degrees of freedom; t of 2 over the root of two
    # seeds.
    expected = stats.t(2, scale=np.sqrt((2 + 0) / 2 / 2))
    for move in (moves[0], moves[1], moves[3]):
        assert np.quantile(move, [0.05, 0.5, 0.95]) == pytest.approx(
            expected.ppf([0.05, 0.5, 0.95]), abs=0.04
        )
    assert not moves[2].any() and not any(move.any() for move in seed_moves([rows[2]], 10))


@pytest.mark.parametrize("seeds", [2, 3])
def test_without_a_true_difference_intervals_leave_out_zero_as_seldom_as_they_say(seeds):
    """Trainings differ by half a point, queries by 0.3 points of standard error: at most 5 % of 400
    studies, and chance.
    """
    rng = np.random.default_rng(seeds)
    wrong = 0
    for study in range(400):
        values = rng.normal(0, 0.5, (seeds, 1)) + rng.normal(0, 0.3 * np.sqrt(50), 50)
        interval = bootstrap_interval(values, draws=1000, seed=study)
        wrong += not interval.low <= 0 <= interval.high
    assert wrong / 400 < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize("seed", range(5))
def test_intervals_over_queries_and_seeds_agree_with_scipy_level_by_level(seed):
    """With one seed, and with seeds that agree, the two-level interval is scipy's over queries."""
    values = differences(150, seed=seed)
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=20_000, rng=1
    ).confidence_interval
    spread = values.std() / np.sqrt(len(values))
    for given in (values, np.stack([values] * 3)):
        ours = bootstrap_interval(given, draws=20_000)
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.06 * spread)


def test_crossing_counts_the_resamples_beyond_the_nearer_border():
    drawn = np.repeat([-2.0, -1.0, 0.5, 1.0, 2.0, 3.0, 3.5, 4.0, 5.0], 10_000)
    assert crossing(1.8, drawn) == pytest.approx(2 * 2 / 9, abs=0.005)
    assert crossing(-0.1, drawn) == 1.0
    assert crossing(2.5, drawn, -3, 4.5) == pytest.approx(2 / 9, abs=0.005)
    assert crossing(6.0, drawn, -3) == 2 / (1 + len(drawn))


def test_a_p_value_at_the_level_is_seldom_below_it_by_the_luck_of_the_draw():
    """The exact p-value is 0.05; without a margin half of all draws would call the difference
    significant.
    """
    found = [
        crossing(1.96, np.random.default_rng(seed).normal(1.96, 1, 2000)) for seed in range(200)
    ]
    assert 0 < sum(p < 0.05 for p in found) <= 20


def test_randomisation_agrees_with_scipy():
    values = differences(60, shift=0.13)
    theirs = stats.permutation_test(
        (values, np.zeros(60)),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        rng=1,
    )
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


def test_of_draws_from_a_normal_distribution_its_deviation_tells_what_can_be_detected():
    drawn = stats.norm(0.1, 0.02).ppf((np.arange(10_000) + 0.5) / 10_000)
    assert detectable_among(drawn) == pytest.approx(
        0.02 * (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)), rel=1e-3
    )


def test_where_all_queries_agree_a_difference_among_as_many_others_may_hide():
    assert smallest_detectable_difference(np.full(20, 0.3)) == pytest.approx(1 - 0.05 ** (1 / 20))


def test_rows_of_other_numbers_of_seeds_are_compared_by_their_means():
    values = np.random.default_rng(0).random((5, 4)).astype(np.float32)
    first, *others = (Scores(list("abcd"), {"R@1": row}) for row in values)
    expected = values[:1].astype(np.float64) - values[1:].astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(paired_difference(first, others, "R@1"), expected, rtol=1e-12)
    turned = [Scores(run.query_ids[::-1], {"R@1": run.per_query("R@1")[::-1]}) for run in others]
    np.testing.assert_allclose(paired_difference(first, turned, "R@1"), expected, rtol=1e-12)


def test_seeds_that_differ_hide_small_differences():
    queries = np.random.default_rng(0).standard_normal(400) * 0.1
    together = np.stack([queries, queries])
    apart = together + np.array([[0.05], [-0.05]])
    alone, two, noisy = map(smallest_detectable_difference, (queries, together, apart))
    assert two == pytest.approx(alone)
    student = stats.t.ppf(stats.norm.cdf(1), 1)  # of two seeds, one degree of freedom
    assert noisy == pytest.approx(
        2.8016 * np.sqrt(queries.var(ddof=1) / 400 + 0.1**2 / 2 / 2 * student**2), rel=1e-3
    )


def test_bad_input_is_refused():
    for values in (np.array([]), np.zeros((2, 0)), np.array([1.0, np.nan]), np.zeros((1, 2, 3))):
        with pytest.raises(InputError):
            bootstrap_interval(values)
    with pytest.raises(InputError):
        bootstrap_intervals([np.zeros(3), np.zeros(4)])
    with pytest.raises(InputError, match="one query"):
        smallest_detectable_difference(np.array([1.0]))
