"""Errors by cluster, seeds, corrections: against scipy, against simulation, and counted by hand."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from dr_book.measured import FEWEST
from dr_book.statistics import (
    Estimate,
    SeedVariance,
    cluster_mean,
    combined,
    effective_clusters,
    holm,
    influence,
    scatter,
    seed_variance,
    sign_flips,
)
from dr_lib.errors import InputError

ARTICLES = np.random.default_rng(0).integers(50, 400, 48)
"""Sizes of clusters about as uneven as those of SQuAD's test articles."""
MEDQUAD = [1, 1, 5, 9, 10, 15, 19, 24, 33, 36, 55, 65, 89, 110, 112, 188, 231, 275]
"""Test questions of each of MedQuAD's templates."""


def nested(seed: int, articles: int = 30, spread: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Values of queries that share the effect of their article, and the articles."""
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(articles), rng.integers(3, 30, articles))
    return rng.normal(0, spread, articles)[clusters] + rng.normal(0, 1, len(clusters)), clusters


@pytest.mark.parametrize("seed", range(5))
def test_cluster_errors_are_those_of_a_few_lines_of_numpy(seed):
    values, clusters = nested(seed)
    sums = [(values - values.mean())[clusters == name].sum() for name in np.unique(clusters)]
    expected = np.sqrt(len(sums) / (len(sums) - 1) * np.square(sums).sum()) / len(values)
    found = cluster_mean(values, clusters)
    assert (found.value, found.error, found.freedom) == pytest.approx((values.mean(), expected, 29))


@pytest.mark.parametrize("told", [cluster_mean, sign_flips])
def test_of_several_seeds_the_mean_of_each_query_counts(told):
    values, clusters = nested(6, articles=8)
    seeds = values + np.random.default_rng(0).normal(0, 1, (3, len(values)))
    assert told(seeds, clusters) == told(seeds.mean(axis=0), clusters) != told(seeds[0], clusters)


def test_of_queries_that_share_nothing_the_interval_is_students():
    values = np.random.default_rng(0).normal(0.2, 1, 40)
    found, expected = cluster_mean(values), stats.ttest_1samp(values, 0)
    interval = expected.confidence_interval()
    assert found.p() == pytest.approx(expected.pvalue)
    assert (found.interval().low, found.interval().high) == pytest.approx(
        (interval.low, interval.high)
    )


def test_the_interval_is_that_of_scipys_bootstrap_over_clusters():
    """The slow twin: draw articles, all questions of each."""
    values, clusters = nested(1, articles=60)
    groups = [values[clusters == name] for name in np.unique(clusters)]
    sums, sizes = (np.array([f(group) for group in groups]) for f in (np.sum, len))

    def mean(*draws: np.ndarray, axis: int = -1) -> np.ndarray:
        total, number = draws
        return total.sum(axis) / number.sum(axis)

    twin = stats.bootstrap((sums, sizes), mean, paired=True, n_resamples=9_999, rng=0)
    found = cluster_mean(values, clusters)
    assert found.error == pytest.approx(twin.standard_error, rel=0.08)
    ends = twin.confidence_interval
    assert (found.interval().low, found.interval().high) == pytest.approx(
        (ends.low, ends.high), abs=0.3 * found.error
    )


def covered(sizes: np.ndarray, between: float = 0.05, cases: int = 10_000) -> float:
    """Share of intervals of 95 % over nested clusters of these sizes that hold the true mean."""
    rng, clusters, queries = np.random.default_rng(0), len(sizes), sizes.sum()
    sums = sizes * np.sqrt(between) * rng.standard_normal((cases, clusters))
    sums += np.sqrt(sizes) * rng.standard_normal((cases, clusters))
    means = sums.sum(axis=1) / queries
    moves = (sums - means[:, None] * sizes) / queries
    errors = np.sqrt(clusters / (clusters - 1) * np.square(moves).sum(axis=1))
    found = combined([(1.0, means[0], dict(enumerate(moves[0])))])
    assert (found.error, found.freedom) == pytest.approx((errors[0], clusters - 1))
    return float((np.abs(means) < stats.t.ppf(0.975, clusters - 1) * errors).mean())


@pytest.mark.parametrize("seed", range(20))
def test_uneven_clusters_count_as_fewer_and_ten_of_one_size_cover_nine_times_in_ten(seed):
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.normal(3, rng.uniform(0, 1.5), rng.integers(2, 40))).astype(int) + 1
    clusters = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    shares = [sum(clusters == name) / len(clusters) for name in set(clusters.tolist())]
    counted = effective_clusters(clusters.tolist())
    assert counted == pytest.approx(1 / sum(share**2 for share in shares))
    assert 1 <= counted <= len(sizes) + 1e-9
    assert effective_clusters(np.repeat(np.arange(len(sizes)), 7)) == pytest.approx(len(sizes))
    assert counted < FEWEST or covered(sizes) > 0.89


def test_eighteen_clusters_that_count_as_eight_cover_too_rarely():
    """Names of clusters are no measure of what an interval over them is worth."""
    queries = np.repeat(np.arange(len(MEDQUAD)), MEDQUAD)
    assert len(MEDQUAD) > FEWEST > effective_clusters(queries) == pytest.approx(7.86, abs=0.01)
    assert covered(np.array(MEDQUAD)) < 0.92 and covered(np.array([180, *[20] * 9])) < 0.88
    for clusters in (10, 18):
        assert 0.94 < covered(np.full(clusters, 70)) < 0.96


@pytest.mark.parametrize("inflation", [1.25, 1.9])
@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_of_nested_articles_errors_are_as_rare_and_power_as_large_as_promised(inflation, seeds):
    """No difference: rejected in 4 to 6 % of cases. The smallest detectable one: found in four of
    five. The inflations are those that SQuAD's articles show; the seeds' variance is pooled over 33
    configurations.
    """
    queries, articles, pooled, cases = ARTICLES.sum(), len(ARTICLES), 33, 10_000
    between = (inflation**2 - 1) * queries / np.square(ARTICLES).sum()
    of_seeds = 0.5 * inflation / np.sqrt(queries)  # about what the queries give: 0.244 on SQuAD

    def found(shift: float, seed: int) -> tuple[float, float]:
        rng = np.random.default_rng(seed)
        sums = ARTICLES * np.sqrt(between) * rng.standard_normal((cases, articles))
        sums += np.sqrt(ARTICLES) * rng.standard_normal((cases, articles))
        means = sums.sum(axis=1) / queries
        moves = (sums - means[:, None] * ARTICLES) / queries
        values = means + shift + of_seeds * np.sqrt(2 / seeds) * rng.standard_normal(cases)
        seen = of_seeds**2 * rng.chisquare(pooled, cases) / pooled * 2 / seeds
        # all cases at once, and some of them by the module
        known = articles / (articles - 1) * np.square(moves).sum(axis=1)
        errors = np.sqrt(known + seen)
        freedoms = (known + seen) ** 2 / (known**2 / (articles - 1) + seen**2 / pooled)
        for case in range(20):
            parts = [(1.0, values[case], dict(enumerate(moves[case])))]
            ours = combined(parts).with_seeds((seen[case], pooled))
            assert (ours.error, ours.freedom) == pytest.approx((errors[case], freedoms[case]))
            assert ours.p() == pytest.approx(
                2 * stats.t.sf(abs(values[case]) / errors[case], freedoms[case])
            )
        rejected = np.abs(values) > stats.t.ppf(0.975, freedoms) * errors
        needed = (stats.t.ppf(0.975, freedoms) + stats.t.ppf(0.8, freedoms)) * errors
        return rejected.mean(), needed.mean()

    wrong, detectable = found(0.0, 0)
    power, _ = found(detectable, 1)
    assert 0.04 <= wrong <= 0.06 and 0.78 <= power <= 0.82


@pytest.mark.parametrize("seeds", [2, 3])
def test_what_a_training_draws_in_each_article_is_counted_once(seeds):
    """Articles, questions, draws of a training at both, and trainings as a whole, from which two
    equal methods are drawn: the mean squared error of the rule is the true variance, errors are as
    rare as promised, and the sum without `scatter` is too wide.
    """
    rng, articles, pooled, cases = np.random.default_rng(seeds), 40, 16, 1500
    found: list[tuple[float, float, float, float]] = []
    clusters = np.repeat(np.arange(articles), rng.integers(5, 25, articles))
    asked = len(clusters)

    def trained(runs: int) -> np.ndarray:
        """[runs, questions]: how far each training is from its method."""
        draws = 3 * rng.standard_normal((runs, asked))
        draws += 1.5 * rng.standard_normal((runs, articles))[:, clusters]
        return draws + 0.1 * rng.standard_normal((runs, 1))

    for _ in range(cases):
        spread = seed_variance(trained(2 * pooled).mean(axis=1).reshape(pooled, 2))
        own = rng.standard_normal(articles)[clusters] + rng.standard_normal(asked)
        parts, twice = [], 0.0
        for weight, runs in ((1.0, trained(seeds) + own), (-1.0, trained(seeds))):
            moves = [influence(run, clusters) for run in runs]
            parts += [
                (weight / seeds, run.mean(), move) for run, move in zip(runs, moves, strict=True)
            ]
            twice += scatter(moves)
        known, added = combined(parts), 2 * spread.variance / seeds
        once = known.with_seeds((max(added - twice, 0.0), spread.freedom))
        both = known.with_seeds((added, spread.freedom))
        found.append((once.value, once.error, once.p(), both.p()))
    values, errors, p_values, wide = np.array(found).T
    # a little above where two seeds say how much they scatter: what is added is never below 0
    assert 0.9 < np.square(errors).mean() / values.var() < 1.2
    assert 0.035 < (p_values < 0.05).mean() < 0.065
    assert (wide < 0.05).mean() < 0.035


def test_pairing_and_groups_that_share_clusters_are_told_by_one_rule():
    values, clusters = nested(2)
    other = values - 0.1 + np.random.default_rng(3).normal(0, 0.1, len(values))
    one, two = ((own.mean(), influence(own, clusters)) for own in (values, other))
    found, paired = (combined([(1.0, *one), (-1.0, *two)]), cluster_mean(values - other, clusters))
    assert (found.value, found.error) == pytest.approx((paired.value, paired.error))
    near, far = clusters < 15, clusters >= 15
    apart = combined(
        [
            (1.0, values[near].mean(), influence(values[near], clusters[near])),
            (-1.0, values[far].mean(), influence(values[far], clusters[far])),
        ]
    )
    errors = [cluster_mean(values[part], clusters[part]).error for part in (near, far)]
    assert apart.error == pytest.approx(np.hypot(*errors), rel=0.03)


def test_seeds_widen_by_their_variance_and_satterthwaites_freedom():
    found = Estimate(1.0, 0.3, 47).with_seeds((0.04, 10))
    assert found.error == pytest.approx(np.sqrt(0.09 + 0.04))
    assert found.freedom == pytest.approx(0.13**2 / (0.09**2 / 47 + 0.04**2 / 10))
    assert Estimate(1, 0.3, 9).with_seeds((0.04, 9)).p() == pytest.approx(
        stats.ttest_ind_from_stats(
            1, 0.3 * np.sqrt(10), 10, 0, 0.2 * np.sqrt(10), 10, equal_var=False
        ).pvalue
    )


def test_variances_of_seeds_are_pooled_by_their_freedom():
    found = seed_variance([[1.0, 2.0, 3.0], [5.0, 7.0], [4.0]])
    assert (found.variance, found.freedom) == (pytest.approx((2 * 1.0 + 2.0) / 3), 3)
    assert not found.decides_single_runs and seed_variance([[1.0]]).freedom == 0


def test_one_configuration_that_scatters_more_than_the_others_is_noticed():
    rng = np.random.default_rng(0)
    alike = rng.normal(0, 0.2, (33, 2))
    assert seed_variance(alike).p > 0.05 and seed_variance(alike).decides_single_runs
    odd = np.vstack([alike, [[-1.0, 1.0]]])
    assert seed_variance(odd).p < 0.01 and not seed_variance(odd).decides_single_runs


def test_homogeneity_is_rejected_as_often_as_the_level_says():
    rng = np.random.default_rng(1)
    p_values = [seed_variance(rng.normal(0, 1, (12, 2))).p for _ in range(300)]
    assert 0.02 < np.mean(np.array(p_values) < 0.05) < 0.09
    assert SeedVariance(((1, 0.3),)).p == 1.0


def test_the_interval_of_a_spread_is_that_of_chi_square():
    found = SeedVariance(((33, 0.244**2),)).interval()
    assert (found.low, found.high) == pytest.approx((0.197, 0.322), abs=1e-3)


def test_flips_of_whole_clusters_agree_with_all_of_them():
    values, clusters = nested(4, articles=8)
    sums = np.bincount(clusters, values)
    every = [abs(np.dot(signs, sums)) for signs in product([-1, 1], repeat=8)]
    exact = np.mean([far >= abs(sums.sum()) - 1e-9 for far in every])
    assert sign_flips(values, clusters) == pytest.approx(exact)


def test_flips_by_query_find_what_flips_by_article_do_not():
    values, clusters = nested(5, articles=10, spread=1.0)
    values += 1.8 * cluster_mean(values, clusters).error - values.mean()
    assert sign_flips(values) < 0.01 < sign_flips(values, clusters)


def test_holm_agrees_with_its_definition():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p_values = rng.random(rng.integers(1, 12)) ** 2
        order = np.argsort(p_values)
        steps = [p_values[row] * (len(order) - place) for place, row in enumerate(order)]
        assert holm(p_values)[order] == pytest.approx(
            [min(1.0, max(steps[: place + 1])) for place in range(len(steps))]
        )


def test_equivalence_agrees_with_two_t_tests():
    values = np.random.default_rng(0).normal(0.01, 0.1, 80)
    found = cluster_mean(values)
    expected = max(
        stats.ttest_1samp(values, -0.04, alternative="greater").pvalue,
        stats.ttest_1samp(values, 0.04, alternative="less").pvalue,
    )
    assert found.p_within(0.04) == pytest.approx(expected)
    assert cluster_mean(values + 0.1).p_within(0.04) > 0.5


def test_an_interval_ends_where_values_do():
    found = Estimate(0.98, 0.05, 20).interval(within=(0.0, 1.0))
    assert found.high == 1.0 and found.low < 0.98


def test_of_one_cluster_nothing_is_known():
    alone = cluster_mean(np.ones(5), ["a"] * 5)
    assert alone.p() == 1.0 and alone.interval(within=(-1, 1)).low == -1
    assert alone.detectable == cluster_mean(np.ones(1)).detectable == np.inf


def test_a_difference_as_large_as_is_detectable_is_found_four_times_in_five():
    rng, found = np.random.default_rng(0), 0
    shift = cluster_mean(rng.normal(0, 1, 100_000)).detectable * np.sqrt(100_000 / 60)
    for _ in range(1000):
        found += cluster_mean(rng.normal(shift, 1, 60)).p() < 0.05
    assert 0.76 < found / 1000 < 0.84


@pytest.mark.parametrize("broken", [np.inf, np.nan])
def test_values_that_are_no_numbers_are_refused(broken):
    with pytest.raises(InputError):
        cluster_mean(np.array([broken]))
