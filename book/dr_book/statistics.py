"""Uncertainty of a mean or a difference: clusters of queries, the variance of seeds, corrections.

Queries are not independent: questions about one document share its difficulty. So the standard
error of a mean is a jackknife's over clusters (Bell and McCaffrey 2002), with degrees of freedom
from the number of equally large clusters that they are equivalent to. Seeds add the variance of a
collection's repeated trainings, or, if these are few, that of the given runs. Clusters and seeds
each have a half-width, and the squares add up. Random draws are used only for sign flips and for
testing whether variances are equal. Page of the book: ideas/statistics.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import scipy  # loads its parts on first use: the distributions take half a second
from pandas.core.groupby import SeriesGroupBy

from dr_lib.errors import InputError

LEVEL, FLIPS, FARTHEST = 0.95, 10_000, 1e100
ALIKE = 0.01
"""p-value below which configurations do not share a variance of seeds; small, since a dozen
collections and stages are tested, each with several measures.
"""
ENOUGH = 10
"""Degrees of freedom from which a pooled variance of seeds is used for all configurations: if one
of two scatters six times as much as the other, 94 % of simulated 95 % intervals cover the truth
with ten, and 90 % with two to four.
"""


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval.

    Attributes:
        mean: in the unit of the values.
        low, high: the ends of the interval.
        decides: False if there are too few seeds or clusters to decide anything by it.
        once: whether a row has one seed, and a second one is what is missing first.
    """

    mean: float
    low: float
    high: float
    decides: bool = True
    once: bool = False

    def side(self, border: float = 0.0) -> int:
        """1 if it is above the border, -1 if below, 0 if it contains it or decides nothing."""
        return (int(self.low > border) - int(self.high < border)) * self.decides


@dataclass(frozen=True)
class Estimate:
    """A mean or a difference, and its sources of uncertainty.

    Attributes:
        value: in the unit of the values.
        parts: (variance, degrees of freedom) of each independent source: the clusters of a
            collection, the seeds. A source with 0 degrees of freedom has an unknown variance, and
            so has the whole.
        once: as in `Interval`.
    """

    value: float
    parts: tuple[tuple[float, float], ...]
    once: bool = False

    @property
    def error(self) -> float:
        """Standard error."""
        return float(np.sqrt(sum(variance for variance, _ in self.parts)))

    @property
    def known(self) -> bool:
        """Whether each source was observed at least twice."""
        return all(freedom > 0 for _, freedom in self.parts)

    def interval(
        self, level: float = LEVEL, within: tuple[float, float] = (-np.inf, np.inf)
    ) -> Interval:
        """The interval at a confidence level, clipped to the possible range."""
        reach = self._reach((1 - level) / 2)
        ends = np.clip([self.value - reach, self.value + reach], *within)
        return Interval(self.value, *map(float, ends), once=self.once)

    def side(self, border: float = 0.0) -> int:
        """On which side of the border its 95 % interval lies, as in `Interval`."""
        return self.interval().side(border)

    def p(self, border: float = 0.0) -> float:
        """Two-sided p-value of the hypothesis that the true value is `border`: 1 minus the level of
        the interval that ends there.
        """
        distance = abs(self.value - border)
        if not self.known:
            return 1.0
        if not (self.error and distance):
            return float(not distance)

        def beyond(log: float) -> float:
            reach = np.clip(self._reach(np.exp(log) / 2), 1e-200, 1e200)
            return float(np.log(reach / distance))

        least, most = -600.0, -1e-12  # of the logarithm of p
        if beyond(least) <= 0 or beyond(most) >= 0:
            return float(np.exp(least if beyond(least) <= 0 else most))
        return float(np.exp(scipy.optimize.brentq(beyond, least, most)))

    def p_within(self, margin: float) -> float:
        """p-value of two one-sided tests (Schuirmann 1987) that the true value lies within `margin`
        of 0: that of the nearer border.
        """
        inside = margin - abs(self.value)
        half = self.p(np.copysign(margin, self.value)) / 2
        return half if inside > 0 else 1 - half

    def detectable(self, level: float = 0.05) -> float:
        """The true difference that a two-sided test at this level detects with power 0.8."""
        return self._reach(level / 2, 0.2)

    def _reach(self, *tails: float) -> float:
        """The distance from the value at which the tail probability begins, added up over `tails`:
        Student's quantiles of each source, combined as the root of their squares (Howe 1974).
        """
        if not self.known:
            return np.inf
        squares = 0.0
        for variance, freedom in self.parts:
            far = abs(sum(scipy.special.stdtrit(freedom, tail) for tail in tails))
            # scipy returns NaN for some tails below 1e-108 with 2 to 3 degrees of freedom
            squares += variance * np.fmin(far, FARTHEST) ** 2
        return float(np.sqrt(squares))


Influence = Mapping[object, float]
"""Cluster -> its influence on a mean: the mean minus the mean without the cluster."""


def influence(values: np.ndarray, clusters: Sequence | None = None) -> dict[object, float]:
    """The influence of each cluster on the mean of `values` [queries]; None: one query each."""
    groups = _by_cluster(values - values.mean(), clusters)
    return (groups.sum() / np.maximum(len(values) - groups.size(), 1)).to_dict()


def _by_cluster(values: np.ndarray, clusters: Sequence | None) -> SeriesGroupBy:
    """The values of each cluster, in the order of their names."""
    names = np.arange(len(values)) if clusters is None else np.asarray(clusters)
    return pd.Series(values).groupby(names)


def effective_clusters(clusters: Sequence) -> float:
    """The number of equally large clusters that `[queries]` are equivalent to: 1 over the sum of
    squared shares (Kish 1965). Minus one it is the degrees of freedom of a variance over them: with
    ten uneven ones 95 % of simulated 95 % intervals cover the truth; with their plain number, 92 %.

    Example:
        >>> effective_clusters(["a", "b", "c"]), round(effective_clusters(["a", "a", "a", "b"]), 2)
        (3.0, 1.6)
    """
    sizes = np.unique(np.asarray(clusters), return_counts=True)[1]
    return float(sizes.sum() ** 2 / np.square(sizes).sum())


def _averaged(values: np.ndarray) -> np.ndarray:
    """`[queries]` from `[queries]` or `[seeds, queries]` of finite numbers."""
    values = np.atleast_2d(np.asarray(values, np.float64))
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        problem = f"shape {values.shape} is not [queries] or [seeds, queries] of finite numbers"
        raise InputError(problem, where="differences", fix="Give one value for each query.")
    return values.mean(axis=0)


def combined(
    parts: Sequence[tuple[float, float, Influence]], effective: float, drawn: float = 0.0
) -> Estimate:
    """A weighted sum of means whose queries share clusters, with the jackknife's variance.

    Args:
        parts: (weight, mean, influence) of each.
        effective: number of clusters (`effective_clusters`); with one, the variance is unknown.
        drawn: the part of the variance that is due to trainings (`scatter`) and is counted with the
            seeds.
    """
    sums: dict[object, float] = {}
    for weight, _, moves in parts:
        for cluster, move in moves.items():
            sums[cluster] = sums.get(cluster, 0.0) + weight * move
    variance = np.sum(np.square([*sums.values()])) * _small(len(sums))
    value = sum(weight * mean for weight, mean, _ in parts)
    return Estimate(float(value), ((max(float(variance) - drawn, 0.0), effective - 1),))


def scatter(runs: Sequence[Influence]) -> float:
    """The part of the clusters' variance of a mean over runs that is due to the runs' randomness.

    `combined` counts it as variance of the clusters, and the variance of seeds contains it too: if
    that is added, this is subtracted from the clusters' part.

    Args:
        runs: influence of each run of one configuration; 0, since unknown, for a single run.
    """
    if len(runs) < 2:
        return 0.0
    names = dict.fromkeys(cluster for moves in runs for cluster in moves)
    sums = np.array([[moves.get(name, 0.0) for name in names] for moves in runs])
    return float(sums.var(axis=0, ddof=1).sum() / len(runs) * _small(sums.shape[1]))


def _small(clusters: int) -> float:
    """The jackknife's factor: means without a cluster scatter a little more."""
    return (clusters - 1) / clusters


def cluster_mean(values: np.ndarray, clusters: Sequence | None = None) -> Estimate:
    """The mean of `[queries]` or `[seeds, queries]` (seeds averaged) with its cluster-robust error.

    Example:
        >>> found = cluster_mean(np.array([0.0, 0.0, 1.0, 1.0]), ["a", "a", "b", "b"])
        >>> found.value, found.parts
        (0.5, ((0.25, 1.0),))
    """
    averaged = _averaged(values)
    names = np.arange(len(averaged)) if clusters is None else clusters
    moves = influence(averaged, clusters)
    return combined([(1.0, float(averaged.mean()), moves)], effective_clusters(names))


def mean_interval(
    values: np.ndarray,
    clusters: Sequence | None = None,
    within: tuple[float, float] = (-np.inf, np.inf),
) -> Interval:
    """The mean of `[queries]` or `[seeds, queries]` with its 95 % interval.

    Example:
        >>> found = mean_interval(np.array([0.0, 1.0, 1.0, 1.0]), within=(0, 1))
        >>> found.mean, found.low, found.high
        (0.75, 0.0, 1.0)
    """
    return cluster_mean(values, clusters).interval(within=within)


@dataclass(frozen=True)
class SeedVariance:
    """The variance of a run's mean between seeds, pooled over configurations.

    Attributes:
        spreads: (degrees of freedom, variance) of each configuration with two or more runs.
    """

    spreads: tuple[tuple[int, float], ...]

    @property
    def freedom(self) -> int:
        """Degrees of freedom: runs minus configurations."""
        return sum(freedom for freedom, _ in self.spreads)

    @property
    def variance(self) -> float:
        """Pooled over the configurations."""
        return sum(freedom * spread for freedom, spread in self.spreads) / max(self.freedom, 1)

    @cached_property
    def p(self) -> float:
        """p-value of the hypothesis that all configurations share it: how often the largest of as
        many variances of normal values is as large relative to the pooled one (Cochran 1941),
        simulated with a fixed seed.
        """
        if len(self.spreads) < 2 or not self.variance:
            return 1.0
        freedoms = np.array([freedom for freedom, _ in self.spreads])
        drawn = np.random.default_rng(0).chisquare(freedoms, (FLIPS, len(freedoms)))
        largest = (drawn / freedoms).max(axis=1) / (drawn.sum(axis=1) / freedoms.sum())
        seen = max(spread for _, spread in self.spreads) / self.variance
        return float((1 + (largest >= seen).sum()) / (1 + FLIPS))

    @property
    def alike(self) -> bool:
        """Whether nothing speaks against one variance for all configurations."""
        return self.p >= ALIKE

    @property
    def known(self) -> bool:
        """Whether it is known well enough to be used for any configuration."""
        return self.freedom >= ENOUGH and self.alike

    def interval(self) -> Interval:
        """The standard deviation and its 95 % interval from chi-square quantiles."""
        ends = scipy.stats.chi2.ppf([0.975, 0.025], self.freedom)
        spreads = np.sqrt([self.variance, *(self.freedom * self.variance / ends)])
        return Interval(*map(float, spreads))


def seed_variance(groups: Sequence[Sequence[float]]) -> SeedVariance:
    """Pool means `[runs]` of several configurations; single runs are ignored.

    Example:
        >>> found = seed_variance([[1.0, 3.0], [5.0], [2.0, 2.0]])
        >>> found.variance, found.freedom
        (1.0, 2)
    """
    several = [group for group in groups if len(group) > 1]
    return SeedVariance(tuple((len(group) - 1, float(np.var(group, ddof=1))) for group in several))


Trained = tuple[float, Sequence[tuple[float, Influence]], SeedVariance | None]
"""Weight of a configuration, (mean, influence) of each of its runs, and the variance of such means
pooled over configurations; None if nothing is trained.
"""


def of_seeds(sides: Sequence[Trained]) -> tuple[float, float]:
    """The variance that seeds add to a weighted sum of means, with its degrees of freedom.

    It is pooled if enough configurations determine it and have equal variances, or if one has a
    single run; else each uses its own runs, with the degrees of freedom of Welch (1947).
    """
    each = [(weight**2 / len(runs), [mean for mean, _ in runs]) for weight, runs, _ in sides]
    pools = [pool for *_, pool in sides]
    if all(pool.known for pool in pools) or any(len(means) < 2 for _, means in each):
        freedom = float(min(pool.freedom for pool in pools))
        added = sum(weight * pool.variance for (weight, _), pool in zip(each, pools, strict=True))
    else:
        shares = [(weight * np.var(means, ddof=1), len(means) - 1) for weight, means in each]
        added = sum(share for share, _ in shares)
        below = sum(share**2 / freedom for share, freedom in shares)
        freedom = float(added**2 / below) if below else float(min(free for _, free in shares))
    return float(added), freedom


def drawn_by(sides: Sequence[Trained], added: float) -> float:
    """The part of the clusters' variance of a weighted sum that is due to trainings (`scatter`), at
    most what seeds add, which by chance may be less.
    """
    drawn = sum(weight**2 * scatter([moves for _, moves in runs]) for weight, runs, _ in sides)
    return min(drawn, added)


def weighted_sum(
    sides: Sequence[tuple[Hashable, Trained]],
    effective: float,
    added: tuple[float, float] | None = None,
) -> tuple[Estimate, list[tuple[float, float]]]:
    """A weighted sum of means on one collection with its variance over clusters; and the variance
    that seeds add.

    Args:
        sides: (kind, side): trainings of one kind share a variance; None: not trained.
        effective: as for `combined`.
        added: the variance that seeds of a kind add, if it is not to be computed by `of_seeds`.
    """
    parts = [(weight / len(runs), *run) for _, (weight, runs, _) in sides for run in runs]
    kinds: dict[Hashable, list[Trained]] = defaultdict(list)
    for kind, side in sides:
        if kind is not None:
            kinds[kind].append(side)
    seeds = [added or of_seeds(trained) for trained in kinds.values()]
    drawn = sum(map(drawn_by, kinds.values(), (variance for variance, _ in seeds)))
    return combined(parts, effective, drawn), seeds


def sign_flips(differences: np.ndarray, clusters: Sequence | None = None) -> float:
    """Two-sided p-value of a mean difference by flips of sign, a whole cluster at a time.

    Under the null hypothesis the two runs may be swapped in any cluster. The observed assignment
    counts as one of the draws, so p is never 0.

    Args:
        differences: `[queries]` or `[seeds, queries]`.
        clusters: of the queries; None: one query each. If there are fewer than 10,000 possible
            flips, all are used, else as many at random.

    Example:
        >>> sign_flips(np.ones(20)) < 0.001, sign_flips(np.ones(20), ["a"] * 20)
        (True, 1.0)
    """
    sums = _by_cluster(_averaged(differences), clusters).sum()
    if len(sums) < 2:
        return 1.0
    flipped = scipy.stats.permutation_test(
        (sums,), np.sum, permutation_type="samples", batch=1000, n_resamples=FLIPS, rng=0
    )
    return float(flipped.pvalue)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's step-down correction of a family of tests.

    Args:
        p_values: one per test.

    Returns:
        Adjusted p-values in the same order; compare each with the level for the whole family.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        array([0.03, 0.06, 0.06])
    """
    p_values = np.asarray(p_values, np.float64)
    order = np.argsort(p_values, kind="stable")
    steps = p_values[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty_like(steps)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
