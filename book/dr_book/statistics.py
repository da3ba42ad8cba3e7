"""How sure a mean or a difference is: clusters of queries, one variance of seeds, and corrections.

Queries are not independent: questions about one document share its difficulty. So the standard
error of a mean is that of sums over clusters (Liang and Zeger 1986; the small-sample factor CR1), a
seed adds the variance that a collection's repeated trainings show, and Satterthwaite's (1946)
degrees of freedom join the two. Nothing is drawn at random but the flips of sign and the variances
that one variance is tested with. Page of the book: ideas/statistics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import scipy  # which loads its parts where they are used: the distributions take half a second

from dr_lib.errors import InputError

LEVEL, FLIPS = 0.95, 10_000
ALIKE = 0.01
"""p-value below which configurations do not share one variance of seeds: a dozen collections and
stages are tested, each with several measures.
"""
ENOUGH = 10
"""Degrees of freedom from which on a pooled variance of seeds speaks for a single run."""


@dataclass(frozen=True)
class Interval:
    """A mean and the interval it lies in with a given level of confidence.

    Attributes:
        mean: in the unit of the values that it was taken from.
        low, high: the ends of the interval.
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A mean or a difference, its standard error, and the degrees of freedom that this rests on."""

    value: float
    error: float
    freedom: float

    def interval(
        self, level: float = LEVEL, within: tuple[float, float] = (-np.inf, np.inf)
    ) -> Interval:
        """Student's interval, cut at the ends of what is possible."""
        reach = self._reach((1 + level) / 2)
        ends = np.clip([self.value - reach, self.value + reach], *within)
        return Interval(self.value, *map(float, ends))

    def p(self, border: float = 0.0) -> float:
        """Two-sided p-value of the hypothesis that the true value is `border`."""
        if self.freedom <= 0:
            return 1.0
        if not self.error:
            return float(self.value == border)
        return float(2 * scipy.stats.t.sf(abs(self.value - border) / self.error, self.freedom))

    def p_within(self, margin: float) -> float:
        """p-value of two one-sided tests (Schuirmann 1987) that the true value lies within `margin`
        of 0: that of the nearer border.
        """
        inside = margin - abs(self.value)
        half = self.p(np.copysign(margin, self.value)) / 2
        return half if inside > 0 else 1 - half

    @property
    def detectable(self) -> float:
        """The true difference that a two-sided test of level 0.05 finds four times in five."""
        return self._reach(0.975, 0.8)

    def with_seeds(self, *variances: tuple[float, float]) -> "Estimate":
        """The same with further variances, each with its degrees of freedom (Satterthwaite)."""
        parts = [(self.error**2, self.freedom), *variances]
        total = sum(variance for variance, _ in parts)
        if min(freedom for _, freedom in parts) <= 0:  # of one cluster nothing is known
            return Estimate(self.value, float(np.sqrt(total)), 0)
        below = sum(variance**2 / freedom for variance, freedom in parts)
        freedom = total**2 / below if below else self.freedom
        return Estimate(self.value, float(np.sqrt(total)), freedom)

    def _reach(self, *levels: float) -> float:
        """Quantiles of Student's distribution, as a distance; of one cluster nothing is known."""
        if self.freedom <= 0:
            return np.inf
        return float(scipy.stats.t.ppf(levels, self.freedom).sum() * self.error)


Influence = Mapping[object, float]
"""Cluster -> how far its queries move a mean: the sum of (value - mean) / queries."""


def influence(values: np.ndarray, clusters: Sequence | None = None) -> dict[object, float]:
    """What each cluster adds to the mean of `values` [queries]; None makes each query its own."""
    return _sums((values - values.mean()) / len(values), clusters).to_dict()


def _sums(values: np.ndarray, clusters: Sequence | None) -> pd.Series:
    """The sum of each cluster's values, in the order of their names."""
    names = np.arange(len(values)) if clusters is None else np.asarray(clusters)
    return pd.Series(values).groupby(names).sum()


def effective_clusters(clusters: Sequence) -> float:
    """How many equally large clusters `[queries]` count as: 1 over the sum of squared shares (Kish
    1965). An interval over few of them is too narrow, whatever the number of names.

    Example:
        >>> effective_clusters(["a", "b", "c"]), round(effective_clusters(["a", "a", "a", "b"]), 2)
        (3.0, 1.6)
    """
    sizes = np.unique(np.asarray(clusters), return_counts=True)[1]
    return float(sizes.sum() ** 2 / np.square(sizes).sum())


def _averaged(values: np.ndarray) -> np.ndarray:
    """`[queries]` of `[queries]` or `[seeds, queries]`, all of them numbers."""
    values = np.atleast_2d(np.asarray(values, np.float64))
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        problem = f"shape {values.shape} is not [queries] or [seeds, queries], all of them numbers"
        raise InputError(problem, where="differences", fix="Give one value for each query.")
    return values.mean(axis=0)


def combined(parts: Sequence[tuple[float, float, Influence]]) -> Estimate:
    """A weighted sum of means whose queries share clusters.

    The sandwich estimator of its variance with CR1's factor G / (G - 1) and G - 1 degrees of
    freedom, G the number of clusters. Of one cluster nothing is known: its freedom is 0.

    Args:
        parts: (weight, mean, influence) of each.
    """
    sums: dict[object, float] = {}
    for weight, _, moves in parts:
        for cluster, move in moves.items():
            sums[cluster] = sums.get(cluster, 0.0) + weight * move
    variance = np.sum(np.square([*sums.values()])) * _small(len(sums))
    value = sum(weight * mean for weight, mean, _ in parts)
    return Estimate(float(value), float(np.sqrt(variance)), len(sums) - 1)


def scatter(runs: Sequence[Influence]) -> float:
    """What of the variance of a mean over runs their own draws make in each cluster.

    `combined` sees it as scatter of the clusters, and a variance of seeds has it once more: who
    adds both takes it off.

    Args:
        runs: influence of each run of one configuration; of a single one it is not known, and 0.
    """
    if len(runs) < 2:
        return 0.0
    names = dict.fromkeys(cluster for moves in runs for cluster in moves)
    sums = np.array([[moves.get(name, 0.0) for name in names] for moves in runs])
    return float(sums.var(axis=0, ddof=1).sum() / len(runs) * _small(sums.shape[1]))


def _small(clusters: int) -> float:
    """CR1's factor for few clusters."""
    return clusters / max(clusters - 1, 1)


def cluster_mean(values: np.ndarray, clusters: Sequence | None = None) -> Estimate:
    """The mean of `[queries]` or `[seeds, queries]` (seeds averaged) with its cluster-robust error.

    Example:
        >>> found = cluster_mean(np.array([0.0, 0.0, 1.0, 1.0]), ["a", "a", "b", "b"])
        >>> found.value, round(found.error, 3), found.freedom
        (0.5, 0.5, 1)
    """
    averaged = _averaged(values)
    return combined([(1.0, float(averaged.mean()), influence(averaged, clusters))])


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
    """The variance of a run's mean from seed to seed, pooled over configurations.

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
        many variances of normal values lies as far above the pooled one (Cochran 1941), from draws
        of a fixed seed.
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
    def decides_single_runs(self) -> bool:
        """Whether it is known well enough to judge a configuration that was trained once."""
        return self.freedom >= ENOUGH and self.alike

    def interval(self) -> Interval:
        """The standard deviation and its 95 % interval from chi-square quantiles."""
        ends = scipy.stats.chi2.ppf([0.975, 0.025], self.freedom)
        spreads = np.sqrt([self.variance, *(self.freedom * self.variance / ends)])
        return Interval(*map(float, spreads))


def seed_variance(groups: Sequence[Sequence[float]]) -> SeedVariance:
    """Pool means `[runs]` of several configurations; one with a single run says nothing.

    Example:
        >>> found = seed_variance([[1.0, 3.0], [5.0], [2.0, 2.0]])
        >>> found.variance, found.freedom
        (1.0, 2)
    """
    several = [group for group in groups if len(group) > 1]
    return SeedVariance(tuple((len(group) - 1, float(np.var(group, ddof=1))) for group in several))


def sign_flips(differences: np.ndarray, clusters: Sequence | None = None) -> float:
    """Two-sided p-value of a mean difference by flips of sign, a whole cluster at a time.

    Under the null hypothesis the two runs may be swapped in any cluster. The observed assignment
    counts as one of the draws, so p is never 0.

    Args:
        differences: `[queries]` or `[seeds, queries]`.
        clusters: of the queries; None makes each query its own. Where there are fewer than 10,000
            flips, all are taken, else as many at random.

    Example:
        >>> sign_flips(np.ones(20)) < 0.001, sign_flips(np.ones(20), ["a"] * 20)
        (True, 1.0)
    """
    sums = _sums(_averaged(differences), clusters)
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
        Adjusted p-values in the same order; compare each with the level wanted for the whole
        family.

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
