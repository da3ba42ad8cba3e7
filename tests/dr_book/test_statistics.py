"""Errors by cluster, seeds, corrections: against scipy, against simulation, and counted by hand."""

from itertools import product

import numpy as np
import pytest
from scipy import special, stats

from dr_book.measured import FEWEST
from dr_book.statistics import (
    Estimate,
    SeedVariance,
    cluster_mean,
    combined,
    drawn_by,
    effective_clusters,
    holm,
    influence,
    of_seeds,
    seed_variance,
    sign_flips,
    weighted_sum,
)
from dr_lib.errors import InputError

ARTICLES = np.random.default_rng(0).integers(50, 400, 48)
"""Cluster sizes about as uneven as those of SQuAD's test articles."""
MEDQUAD = [1, 1, 5, 9, 10, 15, 19, 24, 33, 36, 55, 65, 89, 110, 112, 188, 231, 275]
"""Numbers of test questions of MedQuAD's templates."""


def nested(seed: int, articles: int = 30, spread: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Values of queries that share the effect of their article, and the articles."""
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(articles), rng.integers(3, 30, articles))
    return rng.normal(0, spread, articles)[clusters] + rng.normal(0, 1, len(clusters)), clusters


@pytest.mark.parametrize("seed", range(5))
def test_cluster_errors_are_those_of_a_jackknife(seed):
    """The slow twin leaves one cluster out at a time; clusters of one size are the textbook's."""
    values, clusters = nested(seed)
    names = np.unique(clusters)
    left = np.array([values[clusters != name].mean() for name in names])
    expected = np.sqrt(29 / 30 * np.square(left - values.mean()).sum())
    shares = np.bincount(clusters) / len(values)
    found = cluster_mean(values, clusters)
    assert (found.value, found.error) == pytest.approx((values.mean(), expected))
    assert found.parts[0][1] == pytest.approx(1 / np.square(shares).sum() - 1)
    moved = influence(values, clusters)
    assert [moved[name] for name in names] == pytest.approx(values.mean() - left)
    means = values[: 30 * 9].reshape(30, 9).mean(axis=1)
    alike = cluster_mean(values[: 30 * 9], np.repeat(np.arange(30), 9))
    assert alike.parts == pytest.approx(np.array([[means.var(ddof=1) / 30, 29]]))


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
    """Share of 95 % intervals over nested clusters of these sizes that contain the true mean."""
    rng, queries = np.random.default_rng(0), sizes.sum()
    sums = sizes * np.sqrt(between) * rng.standard_normal((cases, len(sizes)))
    sums += np.sqrt(sizes) * rng.standard_normal((cases, len(sizes)))
    means, errors, freedom = by_jackknife(sums, sizes)
    moves = (sums[0] - means[0] * sizes) / (queries - sizes)
    found = combined([(1.0, means[0], dict(enumerate(moves)))], freedom + 1)
    assert found.error == pytest.approx(errors[0])
    return float((np.abs(means) < stats.t.ppf(0.975, freedom) * errors).mean())


def by_jackknife(sums: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Means, their errors `[cases]` and the degrees of freedom, of `[cases, clusters]` sums."""
    queries = sizes.sum()
    means = sums.sum(axis=1) / queries
    left = (sums.sum(axis=1, keepdims=True) - sums) / (queries - sizes)
    variances = (1 - 1 / len(sizes)) * np.square(left - means[:, None]).sum(axis=1)
    return means, np.sqrt(variances), queries**2 / np.square(sizes).sum() - 1


UNEVEN = [225, 75, 75, 60, 60, 50, 50, 40, 40, 25]
"""Ten clusters, equivalent to six equal ones."""


@pytest.mark.parametrize("between", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("sizes", [ARTICLES, MEDQUAD, UNEVEN, [70] * 10, [70] * 18])
def test_over_uneven_clusters_intervals_cover_as_often_as_they_say(sizes, between):
    """With the number of names and sums of deviations it was 92 % over ten uneven ones."""
    assert 0.94 < covered(np.array(sizes), between) < 0.962


@pytest.mark.parametrize("seed", range(20))
def test_uneven_clusters_count_as_fewer(seed):
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.normal(3, rng.uniform(0, 1.5), rng.integers(2, 40))).astype(int) + 1
    clusters = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    shares = [sum(clusters == name) / len(clusters) for name in set(clusters.tolist())]
    counted = effective_clusters(clusters.tolist())
    assert counted == pytest.approx(1 / sum(share**2 for share in shares))
    assert 1 <= counted <= len(sizes) + 1e-9
    assert effective_clusters(np.repeat(np.arange(len(sizes)), 7)) == pytest.approx(len(sizes))


def test_what_one_cluster_in_ten_has_is_often_in_none_of_eight():
    """Why few clusters decide nothing, although their intervals cover normal effects."""
    rng, shares = np.random.default_rng(0), []
    assert effective_clusters(np.repeat(np.arange(18), MEDQUAD)) == pytest.approx(7.86, abs=0.01)
    for clusters in (8, FEWEST, 30):
        sizes = np.full(clusters, 100)
        sums = ((rng.random((10_000, clusters)) < 0.1) - 0.1) * sizes
        sums += rng.normal(0, 0.5 * np.sqrt(sizes), sums.shape)
        means, errors, freedom = by_jackknife(sums, sizes)
        shares.append((np.abs(means) < stats.t.ppf(0.975, freedom) * errors).mean())
    assert shares == pytest.approx([0.57, 0.65, 0.91], abs=0.02)


def interval_reach(parts: list[tuple[np.ndarray, np.ndarray]], *tails: float) -> np.ndarray:
    """Half-widths `[cases]`: squares of those of (variance, freedom) add up."""
    return np.sqrt(sum(sum(stats.t.isf(tail, f) for tail in tails) ** 2 * v for v, f in parts))


@pytest.mark.parametrize("inflation", [1.25, 1.9])
@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_of_nested_articles_errors_are_as_rare_and_power_as_large_as_promised(inflation, seeds):
    """No difference: rejected in 4 to 6 % of cases. The smallest detectable one: detected in four
    of five. Inflations are those of SQuAD's articles; the variance of seeds is pooled over 33
    configurations.
    """
    queries, articles, pooled, cases = ARTICLES.sum(), len(ARTICLES), 33, 10_000
    between = (inflation**2 - 1) * queries / np.square(ARTICLES).sum()
    spread = 0.5 * inflation / np.sqrt(queries)  # about the error from queries: 0.244 on SQuAD

    def found(shift: float, seed: int) -> tuple[float, float]:
        rng = np.random.default_rng(seed)
        sums = ARTICLES * np.sqrt(between) * rng.standard_normal((cases, articles))
        sums += np.sqrt(ARTICLES) * rng.standard_normal((cases, articles))
        means, errors, freedom = by_jackknife(sums, ARTICLES)
        values = means + shift + spread * np.sqrt(2 / seeds) * rng.standard_normal(cases)
        seen = spread**2 * rng.chisquare(pooled, cases) / pooled * 2 / seeds
        parts = [(errors**2, freedom), (seen, pooled)]
        # all cases at once, and some of them by the module
        reach, needed = interval_reach(parts, 0.025), interval_reach(parts, 0.025, 0.2)
        for case in range(20):
            of_case = ((errors[case] ** 2, freedom), (seen[case], pooled))
            ours = Estimate(values[case], of_case)
            assert ours.interval().high - values[case] == pytest.approx(reach[case])
            assert ours.detectable() == pytest.approx(needed[case])
            assert ours.interval(1 - ours.p()).low == pytest.approx(min(0, 2 * values[case]))
        return (np.abs(values) > reach).mean(), needed.mean()

    wrong, detectable = found(0.0, 0)
    power, _ = found(detectable, 1)
    assert 0.04 <= wrong <= 0.06 and 0.78 <= power <= 0.82


def trainings(rng: np.random.Generator, spreads: tuple[float, float], seeds: int) -> np.ndarray:
    """`[cases, rows, seeds, articles]`: sums over the questions of 40 uneven articles, of two equal
    methods whose trainings scatter in every question, in each article and as a whole.
    """
    shape = (4000, 2, seeds, len(UNLIKE))
    sums = 3 * np.sqrt(UNLIKE) * rng.standard_normal(shape)
    sums += 1.5 * UNLIKE * rng.standard_normal(shape)
    sums += np.reshape(spreads, (2, 1, 1)) * UNLIKE * rng.standard_normal((*shape[:3], 1))
    own = UNLIKE * rng.standard_normal((shape[0], 1, shape[3]))
    sums[:, 0] += own + np.sqrt(UNLIKE) * rng.standard_normal(own.shape)
    return sums


UNLIKE = np.repeat([5, 10, 15, 20, 25], 8)


@pytest.mark.parametrize("spreads", [(0.0, 0.0), (0.5, 0.5), (0.2, 1.0), (2.0, 2.0), (0.5, 3.0)])
@pytest.mark.parametrize(
    ("seeds", "others", "wrong"),
    [(2, 10, (0.025, 0.065)), (3, 8, (0.025, 0.065)), (2, 0, (0.0, 0.06)), (3, 0, (0.005, 0.07))],
)
def test_errors_are_no_more_frequent_than_promised_however_seeds_scatter(
    spreads, seeds, others, wrong
):
    """Pooled with others of the same average variance, an error is as rare as promised. Two or
    three own seeds determine little, so there it is rarer.
    """
    rng, queries = np.random.default_rng(seeds), UNLIKE.sum()
    sums = trainings(rng, spreads, seeds)
    means = sums.sum(axis=-1) / queries  # [cases, rows, seeds]
    moves = (sums - means[..., None] * UNLIKE) / (queries - UNLIKE)
    gaps = (means[:, 0] - means[:, 1]).mean(axis=1)
    factor = 1 - 1 / len(UNLIKE)
    clustered = factor * np.square((moves[:, 0] - moves[:, 1]).mean(axis=1)).sum(axis=-1)
    drawn = factor * moves.var(axis=2, ddof=1).sum(axis=(1, 2)) / seeds
    each = means.var(axis=2, ddof=1) / seeds  # [cases, rows]
    usual = np.mean(np.square(spreads)) + 1.5**2 * np.square(UNLIKE / queries).sum() + 9 / queries
    freedom = 2 * (seeds - 1) + others
    pooled = each.sum(axis=1) * seeds * (seeds - 1) + usual * rng.chisquare(max(others, 1), 4000)
    added = 2 * pooled / freedom / seeds
    if not others:
        added = each.sum(axis=1)
        freedom = added**2 / np.square(each).sum(axis=1) * (seeds - 1)
    known = np.maximum(clustered - np.minimum(drawn, added), 0)
    counted = effective_clusters(np.repeat(np.arange(40), UNLIKE))
    reach = interval_reach([(known, counted - 1), (added, freedom)], 0.025)
    for case in range(10):  # the same by the module
        runs = [
            [(mean, dict(enumerate(moved))) for mean, moved in zip(*own, strict=True)]
            for own in zip(means[case], moves[case], strict=True)
        ]
        spread = pooled[case] / freedom if others else 0.0
        pool = SeedVariance(((freedom if others else 2, spread),))
        sides = [(1.0, runs[0], pool), (-1.0, runs[1], pool)]
        module, added = weighted_sum([("method", side) for side in sides], counted)
        ours = Estimate(module.value, (*module.parts, *added))
        assert ours.value == pytest.approx(gaps[case])
        assert ours.interval().high - ours.value == pytest.approx(reach[case])
    assert wrong[0] < (np.abs(gaps) > reach).mean() < wrong[1]


@pytest.mark.parametrize("seed", range(4))
def test_seeds_add_what_a_few_lines_of_numpy_say(seed):
    """Pooled, and by Welch's formula for the two rows alone; and their variance within clusters."""
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(12), 6)
    runs = [rng.normal(rng.normal(0, 2, (k, 1)), 1, (k, 72)) for k in (3, 2)]
    means = [own.mean(axis=1) for own in runs]
    sides = [
        (weight, [(run.mean(), influence(run, clusters)) for run in own])
        for weight, own in zip((1.0, -2.0), runs, strict=True)
    ]

    def with_pool(pool: SeedVariance) -> list:
        return [(*side, pool) for side in sides]

    assert of_seeds(with_pool(SeedVariance(((20, 30.0),)))) == pytest.approx((70, 20))
    own = [
        weight**2 * mean.var(ddof=1) / len(mean)
        for (weight, _), mean in zip(sides, means, strict=True)
    ]
    freedom = sum(own) ** 2 / (own[0] ** 2 / 2 + own[1] ** 2 / 1)
    few = with_pool(seed_variance(means))
    assert of_seeds(few) == pytest.approx((sum(own), freedom))
    alike = [(weight / abs(weight), *more) for weight, *more in few]
    assert of_seeds(alike)[1] == pytest.approx(stats.ttest_ind(*means, equal_var=False).df)
    assert of_seeds([(1.0, sides[0][1][:1], few[0][2]), few[1]])[1] == 3  # the others tell
    drawn = 0.0
    for (weight, _), rows in zip(sides, runs, strict=True):
        left = np.array([rows[:, clusters != name].mean(axis=1) for name in range(12)])
        moved = rows.mean(axis=1) - left
        drawn += weight**2 * 11 / 12 * moved.var(axis=1, ddof=1).sum() / len(rows)
    assert drawn_by(few, np.inf) == pytest.approx(drawn) and drawn_by(few, 1e-9) == 1e-9
    assert combined([(1.0, 0.0, {1: 1.0, 2: 1.0})], 2.0, 0.25).parts == ((0.75, 1.0),)
    assert combined([(1.0, 0.0, {1: 1.0, 2: 1.0})], 2.0, 2.0).parts == ((0.0, 1.0),)


def test_pairing_and_groups_that_share_clusters_are_told_by_one_rule():
    values, clusters = nested(2)
    counted = effective_clusters(clusters)
    other = values - 0.1 + np.random.default_rng(3).normal(0, 0.1, len(values))
    one, two = ((own.mean(), influence(own, clusters)) for own in (values, other))
    found = combined([(1.0, *one), (-1.0, *two)], counted)
    paired = cluster_mean(values - other, clusters)
    assert (found.value, found.error) == pytest.approx((paired.value, paired.error))
    near, far = clusters < 15, clusters >= 15
    apart = combined(
        [
            (1.0, values[near].mean(), influence(values[near], clusters[near])),
            (-1.0, values[far].mean(), influence(values[far], clusters[far])),
        ],
        counted,
    )
    errors = [cluster_mean(values[part], clusters[part]).error for part in (near, far)]
    assert apart.error == pytest.approx(np.hypot(*errors), rel=0.04)


def test_half_widths_of_independent_sources_are_at_right_angles():
    found = Estimate(1.0, ((0.09, 47), (0.04, 10)))
    assert found.error == pytest.approx(np.sqrt(0.09 + 0.04))
    reach = np.hypot(0.3 * stats.t.isf(0.025, 47), 0.2 * stats.t.isf(0.025, 10))
    assert found.interval().high == pytest.approx(1 + reach)
    assert Estimate(1.0, ((0.25, 9),)).p() == pytest.approx(2 * stats.t.sf(2, 9))
    assert Estimate(1.0, ((0.25, 9), (0.0, 1))).p() == pytest.approx(2 * stats.t.sf(2, 9))
    assert Estimate(1.0, ((0.25, 9), (0.0, 0))).p() == 1.0
    assert Estimate(0.0, ((0.25, 9),)).p() == Estimate(2.0, ((0.0, 9),)).p(2.0) == 1.0
    assert Estimate(1e9, ((1e-9, 9e9),)).p() < 1e-200 and Estimate(1.0, ((0.0, 9),)).p() == 0.0
    assert (found.side(), found.side(1.0), found.side(2.0)) == (1, 0, -1)


def test_a_tail_that_scipy_does_not_know_leaves_no_p_value_out():
    """Three seeds a row have, by Welch, between 2 and 4 degrees of freedom."""
    freedoms = np.random.default_rng(0).uniform(2, 3, 40_000)
    unknown = freedoms[np.isnan(special.stdtrit(freedoms, np.exp(-600) / 2))]
    for freedom in [*unknown[:20], *freedoms[:20]]:
        expected = 2 * stats.t.sf(4.0, freedom)
        assert Estimate(2.0, ((0.25, freedom),)).p() == pytest.approx(expected)


def test_variances_of_seeds_are_pooled_by_their_freedom():
    found = seed_variance([[1.0, 2.0, 3.0], [5.0, 7.0], [4.0]])
    assert (found.variance, found.freedom) == (pytest.approx((2 * 1.0 + 2.0) / 3), 3)
    assert not found.known and seed_variance([[1.0]]).freedom == 0


def test_one_configuration_that_scatters_more_than_the_others_is_noticed():
    rng = np.random.default_rng(0)
    alike = rng.normal(0, 0.2, (33, 2))
    assert seed_variance(alike).p > 0.05 and seed_variance(alike).known
    odd = np.vstack([alike, [[-1.0, 1.0]]])
    assert seed_variance(odd).p < 0.01 and not seed_variance(odd).known


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
    found = Estimate(0.98, ((0.05**2, 20),)).interval(within=(0.0, 1.0))
    assert found.high == 1.0 and found.low < 0.98


def test_of_one_cluster_nothing_is_known():
    alone = cluster_mean(np.ones(5), ["a"] * 5)
    assert alone.p() == 1.0 and alone.interval(within=(-1, 1)).low == -1
    assert alone.detectable() == cluster_mean(np.ones(1)).detectable() == np.inf


def test_a_difference_as_large_as_is_detectable_is_found_four_times_in_five():
    rng, found = np.random.default_rng(0), 0
    shift = cluster_mean(rng.normal(0, 1, 100_000)).detectable() * np.sqrt(100_000 / 60)
    for _ in range(1000):
        found += cluster_mean(rng.normal(shift, 1, 60)).p() < 0.05
    assert 0.76 < found / 1000 < 0.84


@pytest.mark.parametrize("broken", [np.inf, np.nan])
def test_values_that_are_no_numbers_are_refused(broken):
    with pytest.raises(InputError):
        cluster_mean(np.array([broken]))


def test_seeds_that_agree_to_the_last_digit_add_nothing_and_are_known():
    alike = seed_variance([[1.0, 1.0, 1.0], [2.0, 2.0]])
    sides = [(1.0, [(1.0, {})] * 3, alike), (-1.0, [(2.0, {})] * 2, alike)]
    assert of_seeds(sides) == (0.0, 1.0)
    pools = (SeedVariance(((freedom, variance),)) for freedom, variance in ((12, 1.0), (30, 2.0)))
    once = [(weight, [(1.0, {})], pool) for weight, pool in zip((1.0, -1.0), pools, strict=True)]
    assert of_seeds(once) == (3.0, 12.0)
