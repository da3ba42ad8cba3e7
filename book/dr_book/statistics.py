"""The certainty of a difference: intervals and tests on paired per-query differences, over seeds.

All take differences `[queries]` (one run each) or `[seeds, queries]` (the seeds of two
configurations, paired). A new seed is not a new query: intervals draw queries and then move by the
spread of the seeds (`seed_moves`), so that of several seeds they also cover what another training
might bring; flips of sign and equivalence average the seeds of a query first. Page of the book:
ideas/statistics.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy  # which loads its parts where they are used: the distributions take half a second
from scipy.special import ndtri

from dr_lib.errors import InputError
from dr_lib.evaluation.measures import Scores
from dr_lib.evaluation.nlu import MEASURES

DRAWS = 10_000
AT_ONCE = 1 << 22
FEW = 5
"""Fewer queries than these that differ from the rest say little of how far others may differ."""
COLUMNS = 256  # of which sums are kept
IN_CACHE = 100_000  # numbers of 8 bytes that stay in a core's own cache
KEPT = 1 << 27  # numbers drawn that are kept in memory, at most
POWER = float(ndtri(0.975) + ndtri(0.8))
"""Standard errors that a difference must measure to be found at level 0.05 in four of five
repetitions.
"""

Draw = Callable[[np.random.Generator, int, int], np.ndarray]
"""(source, draws, queries) -> `[draws, queries]`."""


@dataclass(frozen=True)
class Interval:
    """A mean and the interval it lies in with a given level of confidence.

    Attributes:
        mean: mean over queries (and seeds), in the unit of the values given.
        low, high: the ends of the interval.
        level: e.g. 0.95.
    """

    mean: float
    low: float
    high: float
    level: float = 0.95


def paired_difference(
    better: Scores | Sequence[Scores], worse: Scores | Sequence[Scores], measure: str
) -> np.ndarray:
    """Differences of two configurations on the same queries.

    Args:
        better: scores of one run, or of several seeds.
        worse: likewise; with the same number of seeds they are paired in the order given.
        measure: the measure to compare.

    Returns:
        `[seeds, queries]` float64 where both have the same number of seeds; otherwise `[1,
        queries]`, the difference of the means over each one's own seeds.

    Raises:
        InputError: no scores, another set of queries, or a measure that was not taken.

    Example:
        >>> a, b = (Scores(["q", "r"], {"R@1": np.array(values)}) for values in ([1, 1], [0, 1]))
        >>> paired_difference(a, b, "R@1")
        array([[1., 0.]])
    """
    sides = [[side] if isinstance(side, Scores) else list(side) for side in (better, worse)]
    if not all(sides):
        raise InputError(
            "no scores to compare", where=measure, fix="Give at least one run of each."
        )
    columns = [aligned(side, sides[0][0], measure) for side in sides]
    if len(columns[0]) != len(columns[1]):
        columns = [column.mean(axis=0, keepdims=True) for column in columns]
    return columns[0] - columns[1]


def aligned(runs: Sequence[Scores], first: Scores, measure: str) -> np.ndarray:
    """Values `[runs, queries]` float64 in the order of another run's queries; `InputError` where it
    scored others.
    """
    columns = []
    for run in runs:
        values = run.per_query(measure).astype(np.float64)
        if run.query_ids != first.query_ids:
            places = {query: place for place, query in enumerate(run.query_ids)}
            if places.keys() != set(first.query_ids):
                odd = sorted(places.keys() ^ set(first.query_ids))[0]
                fix = "Measure both on the same split of the same collection."
                raise InputError(
                    f"query {odd!r} was scored in one run only", where="scores", fix=fix
                )
            values = values[[places[query] for query in first.query_ids]]
        columns.append(values)
    return np.stack(columns)


def bootstrap_interval(
    differences: np.ndarray, *, draws: int = DRAWS, seed: int = 0, level: float = 0.95
) -> Interval:
    """Percentile bootstrap interval of a mean over queries.

    Args:
        differences: `[queries]` or `[seeds, queries]`; plain scores give the interval of a mean
            score.
        draws: number of resamples.
        seed: of the resampling; equal input gives an equal interval.
        level: confidence, in (0, 1).

    Raises:
        InputError: nothing given, or a value that is not a number.

    Example:
        >>> interval = bootstrap_interval(np.array([0.0, 1.0, 1.0, 1.0]))
        >>> interval.mean, interval.low, interval.high
        (0.75, 0.25, 1.0)
    """
    return bootstrap_intervals([differences], draws=draws, seed=seed, level=level)[0]


def bootstrap_intervals(
    differences: Sequence[np.ndarray], *, draws: int = DRAWS, seed: int = 0, level: float = 0.95
) -> list[Interval]:
    """`bootstrap_interval` of several differences on the same queries, for little more than the
    price of one.
    """
    means = bootstrap_means(differences, draws=draws, seed=seed)
    return [
        interval_of(float(np.mean(own, dtype=np.float64)), drawn, level)
        for own, drawn in zip(differences, means, strict=True)
    ]


def interval_of(mean: float, drawn: np.ndarray, level: float = 0.95) -> Interval:
    """The percentile interval of a mean from the means of its resamples `[draws]`."""
    return Interval(
        mean, *map(float, np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])), level
    )


def bootstrap_means(
    differences: Sequence[np.ndarray], *, draws: int = DRAWS, seed: int = 0, source: int = 0
) -> list[np.ndarray]:
    """Means `[draws]` float64 of resamples of queries, those of one draw the same for all given,
    moved as `seed_moves` says.
    """
    seeded = _seeded(differences)
    queries = seeded[0].shape[1]
    columns = np.concatenate(seeded).T
    ends = np.cumsum([0, *map(len, seeded)])
    moves = seed_moves([own.mean(axis=1) for own in seeded], draws, source)
    by_seed = _sums(columns, draws, seed) / queries
    return [
        by_seed[:, start:stop].mean(axis=1) + moved
        for start, stop, moved in zip(ends[:-1], ends[1:], moves, strict=True)
    ]


def seed_moves(means: Sequence[np.ndarray], draws: int, source: int = 0) -> list[np.ndarray]:
    """How far other seeds might have moved the means of some configurations: `[draws]` for each.

    The spread from seed to seed is taken to be the same for all configurations given, so that two
    seeds of six rows say as much of it as seven seeds of one. The moves of a mean of n seeds are
    that spread over sqrt(n) times draws from Student's t distribution, with the degrees of freedom
    that the spread rests on: resamples of two or three values would be too narrow by far. A seed is
    one training, whatever it is measured on: equal configurations get equal draws in every call of
    one source. That is cautious where measurements are averaged; where one is subtracted from
    another, equal draws would cancel, and each takes a source of its own.

    Args:
        means: `[seeds]` of each configuration; of one seed there is nothing to say, and nothing
            moves.
        draws: how many.
        source: of the draws.
    """
    known = {tuple(own) for own in means if len(own) > 1}
    freedom = sum(len(own) - 1 for own in known)
    if not freedom:
        return [np.zeros(draws)] * len(means)
    rng, squares = (
        np.random.default_rng([0, source] if source else 0),
        sum(len(own) * np.var(own) for own in known),
    )
    spread = np.sqrt(squares / rng.chisquare(freedom, draws))
    moves = [rng.standard_normal(draws) * spread for _ in means]
    return [
        move / np.sqrt(len(own)) if len(own) > 1 else 0 * move
        for own, move in zip(means, moves, strict=True)
    ]


def randomisation_tests(
    differences: Sequence[np.ndarray], *, draws: int = DRAWS, seed: int = 0
) -> list[float]:
    """Two-sided p-values of mean differences by random flips of sign, one per query, the same for
    all differences.

    Under the null hypothesis the two runs may be swapped on any query. The observed assignment is
    counted as one of the draws: p = (1 + flips at least as far from 0) / (1 + draws), so p is never
    0.

    Args:
        differences: each `[queries]` or `[seeds, queries]`, of the same queries.
        draws: number of random flips.
        seed: of the flips.

    Example:
        >>> [round(p, 4) for p in randomisation_tests([np.zeros(20), np.ones(20)])]
        [1.0, 0.0001]
    """
    columns = np.stack([own.mean(axis=0) for own in _seeded(differences)], axis=1)
    # Flips that give the same mean in another order of rounding must count as equally far.
    observed = np.abs(columns.sum(axis=0)) - 1e-9 * np.abs(columns).sum(axis=0)
    far = np.zeros(columns.shape[1], np.int64)
    for _, signs in _drawn(_signs, draws, len(columns), seed):
        far += (np.abs(_times(signs, columns)) >= observed).sum(axis=0)
    return [(1 + int(count)) / (1 + draws) for count in far]


def crossing(mean: float, drawn: np.ndarray, low: float = 0.0, high: float = np.inf) -> float:
    """Twice the share of resamples `[draws]` on the other side of a border of (low, high) than the
    mean itself.

    At the upper end of what other draws might have given (one-sided, 95 %): at the level no verdict
    hangs on the draws.
    """
    inside = (drawn > low) & (drawn < high)
    other = int((~inside if low < mean < high else inside).sum())
    hidden = scipy.stats.norm.ppf(0.95) * np.sqrt(other * (1 - other / len(drawn)))
    return float(min(1.0, 2 * (1 + other + hidden) / (1 + len(drawn))))


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


def detectable_among(drawn: np.ndarray) -> float:
    """`smallest_detectable_difference` from resamples `[draws]` of a difference, whose spread may
    have long tails.

    Their spread is half the width of the middle 68 %: of two or three seeds no variance exists.
    """
    return float(POWER * np.diff(np.quantile(drawn, [0.1587, 0.8413]))[0] / 2)


def smallest_detectable_difference(differences: np.ndarray) -> float:
    """The smallest true mean difference that a two-sided test of level 0.05 on so many queries
    finds with power 0.8.

    Normal approximation: the sum of the two quantiles times the standard error of the paired
    differences, over queries and, where there are several, over seeds. A difference below it cannot
    be expected to show, so "inconclusive" says nothing about it.

    Args:
        differences: `[queries]` or `[seeds, queries]`, at least two queries, of a measure between 0
            and 1.

    Example:
        >>> round(smallest_detectable_difference(np.tile([0.0, 1.0], 50)), 3)
        0.141
    """
    values = _seeded([differences])[0]
    seeds, queries = values.shape
    if queries < 2:
        raise InputError(
            "one query tells nothing of the spread", where="differences", fix="Give two or more."
        )
    variance = values.mean(axis=0).var(ddof=1) / queries
    # two or three say little of their spread: as wide as Student's middle 68 %, not the normal one
    if seeds > 1:
        variance += (
            values.mean(axis=1).var(ddof=1)
            / seeds
            * scipy.stats.t.isf(scipy.stats.norm.sf(1), seeds - 1) ** 2
        )
    found = float(POWER * np.sqrt(variance))
    # All agree, but for rounding: what so many queries cannot rule out, as in `equivalence_test`.
    return found if found > 1e-9 else 1 - 0.05 ** (1 / queries)


def equivalence_test(
    differences: np.ndarray, margin: float, alpha: float = 0.05
) -> tuple[Interval, float]:
    """Two one-sided t-tests (Schuirmann 1987): whether a mean difference lies within a margin on
    either side of 0.

    Args:
        differences: `[queries]` or `[seeds, queries]`, at least two queries, of a measure between 0
            and 1.
        margin: the largest difference that does not matter, above 0, in the unit of the
            differences.
        alpha: level of each test.

    Returns:
        The mean with its interval of level 1 - 2 alpha, which lies inside the margins where p <
        alpha; and p, the larger of both.

    Example:
        >>> interval, p = equivalence_test(np.tile([0.01, -0.01], 50), margin=0.02)
        >>> round(interval.high, 4), p < 0.05
        (0.0017, True)
    """
    values = _seeded([differences])[0].mean(axis=0)
    if len(values) < 2:
        raise InputError(
            "one query tells nothing of the spread", where="differences", fix="Give two or more."
        )
    if not margin > 0:
        raise InputError(f"the margin is {margin}", where="margin", fix="Give a number above 0.")
    queries, mean, error = (
        len(values),
        float(values.mean()),
        float(values.std(ddof=1) / np.sqrt(len(values))),
    )
    reach, unseen = float(scipy.stats.t.ppf(1 - alpha, queries - 1)) * error, 0.0
    p = (
        float(scipy.stats.t.sf((margin - abs(mean)) / error, queries - 1))
        if error
        else float(abs(mean) >= margin)
    )
    if odd_ones(values) < FEW:
        # What so few cannot show: a share of all queries may differ by 1 and none of these be among
        # them, with probability (1 - share) ** queries. Without this, two queries that agree would
        # prove as much as two thousand.
        unseen = (1 - min(max(margin - abs(mean), 0.0), 1.0)) ** queries
        reach = max(reach, 1 - alpha ** (1 / queries))
    # the larger p is that of the nearer margin
    return Interval(mean, mean - reach, mean + reach, 1 - 2 * alpha), max(p, unseen)


def odd_ones(values: np.ndarray) -> int:
    """How many of `[queries]` values are another one than the most frequent."""
    return len(values) - int(np.unique(values.round(9), return_counts=True)[1].max())


def _seeded(differences: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Every entry as `[seeds, queries]` float64, all of the same queries."""
    seeded = [np.atleast_2d(np.asarray(own, np.float64)) for own in differences]
    shapes = [own.shape for own in seeded]
    if not seeded or any(
        len(shape) != 2 or 0 in shape or shape[1] != shapes[0][1] for shape in shapes
    ):
        problem = f"shapes {shapes} are not [queries] or [seeds, queries] of the same queries"
        raise InputError(problem, where="differences", fix="Give one value for each query.")
    if not all(np.isfinite(own).all() for own in seeded):
        raise InputError("a value is not a number", where="differences", fix="Measure again.")
    return seeded


# Drawing costs many times what it costs to use the draws, and all claims on one set of queries use
# the same ones. A page asks for the same runs several times: in its table, its figure, its
# differences and its tests.

_summed: dict[tuple[int, int, bytes], np.ndarray] = {}
"""(draws, seed, digest of a column) -> sums `[draws]` of its resamples."""


def _sums(columns: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """Sums `[draws, columns]` of resamples of `[queries, columns]`; a column that was summed before
    is not summed again.
    """
    keys = [(draws, seed, hashlib.sha256(column.tobytes()).digest()) for column in columns.T]
    if len(_summed) > COLUMNS:
        _summed.clear()
    if new := {key: place for place, key in enumerate(keys) if key not in _summed}:
        chosen = np.ascontiguousarray(columns[:, [*new.values()]])
        parts = [
            _times(counts, chosen) for _, counts in _drawn(_resamples, draws, len(columns), seed)
        ]
        _summed.update(zip(new, np.ascontiguousarray(np.concatenate(parts).T), strict=True))
    return np.stack([_summed[key] for key in keys], axis=1)


def _drawn(draw: Draw, draws: int, queries: int, seed: int) -> Iterable[tuple[slice, np.ndarray]]:
    """Draws in parts that fit in memory, kept for the next call where they all do and are more than
    one part, thus dear.
    """
    what = draw, draws, queries, seed, max(1, AT_ONCE // queries)
    return _kept(*what) if AT_ONCE < draws * queries <= KEPT else _parts(*what)


@lru_cache(maxsize=4)
def _kept(*what: Any) -> list[tuple[slice, np.ndarray]]:
    """What was drawn last, of resamples and of signs, for two numbers of queries: claims on two
    collections alternate.
    """
    return list(_parts(*what))


def _parts(
    draw: Draw, draws: int, queries: int, seed: int, size: int
) -> Iterator[tuple[slice, np.ndarray]]:
    rng = np.random.default_rng(seed)
    for start in range(0, draws, size):
        stop = min(draws, start + size)
        yield slice(start, stop), draw(rng, stop - start, queries)


def draw_beforehand(queries: int, draws: int = DRAWS, seed: int = 0) -> None:
    """Draw now what intervals and tests on so many queries will use; nothing where it is not worth
    keeping.
    """
    _drawn(_resamples, draws, queries, seed)
    _drawn(_signs, draws, queries, seed)


def _times(drawn: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """`drawn @ columns` in float64, a few rows at a time: they are kept as bytes, and so few stay
    in a processor's cache.
    """
    few = max(1, IN_CACHE // drawn.shape[1])
    return np.concatenate(
        [drawn[row : row + few].astype(np.float64) @ columns for row in range(0, len(drawn), few)]
    )


def _resamples(rng: np.random.Generator, draws: int, queries: int) -> np.ndarray:
    """How often each query was drawn in each resample, `[draws, queries]`: resampled means are then
    one product of matrices.
    """
    counts = np.empty((draws, queries), np.uint8)  # none of thousands of queries is drawn 256 times
    # one at a time stays in a processor's cache, which is more than twice as fast as all at once
    for own in counts:
        own[:] = np.bincount(rng.integers(0, queries, queries, dtype=np.int32), minlength=queries)
    return counts


def _signs(rng: np.random.Generator, draws: int, queries: int) -> np.ndarray:
    """1 and -1 at random, `[draws, queries]` int8."""
    return 1 - 2 * rng.integers(0, 2, (draws, queries), dtype=np.int8)


# Measures of a whole set --------------------------------------------------------------------------

SET_DRAWS = 1_000


def measure_interval(runs: Sequence[Scores], name: str, *, draws: int = SET_DRAWS) -> Interval:
    """A measure of one configuration and its bootstrap interval over rows and seeds.

    Such a measure is no mean over rows, so each resample of the rows is measured anew.

    Args:
        runs: one per seed, with the columns "predicted" and "actual", of the same rows.
        name: a key of `MEASURES`.
        draws: number of resamples.

    Raises:
        InputError: no run, or runs of different rows.

    Example:
        >>> rows = {"predicted": [1, 1, 0, 0], "actual": [1, 0, 0, 0]}
        >>> measure_interval([Scores(list("abcd"), rows)], "accuracy").mean
        0.75
    """
    return interval_of(*difference_draws(runs, (), name, draws=draws))


def measure_difference(
    first: Sequence[Scores], second: Sequence[Scores], name: str, *, draws: int = SET_DRAWS
) -> Interval:
    """First minus second configuration, both measured on the same resampled rows."""
    return interval_of(*difference_draws(first, second, name, draws=draws))


def difference_draws(
    first: Sequence[Scores],
    second: Sequence[Scores],
    name: str,
    *,
    draws: int = SET_DRAWS,
    seed: int = 0,
    source: int = 0,
) -> tuple[float, np.ndarray]:
    """First minus second configuration (or the first alone), and the same on resampled rows and
    over seeds `[draws]`.

    `seed` is that of the resamples, `source` that of `seed_moves`.
    """
    columns = [(run.per_query("predicted"), run.per_query("actual")) for run in (*first, *second)]
    if not columns or any(not np.array_equal(actual, columns[0][1]) for _, actual in columns):
        raise InputError(
            "runs of different rows, or none", where="nlu", fix="Measure all on the same file."
        )

    def values(rows: np.ndarray) -> list[float]:
        return [MEASURES[name](predicted[rows], actual[rows]) for predicted, actual in columns]

    rng, rows = np.random.default_rng(seed), len(columns[0][1])
    drawn = np.array([values(rng.integers(0, rows, rows)) for _ in range(draws)])
    whole = np.array(values(np.arange(rows)))
    sides = [slice(len(first)), slice(len(first), None)][: 2 if second else 1]
    moves = seed_moves([whole[side] for side in sides], draws, source)
    moved = [drawn[:, side].mean(axis=1) + move for side, move in zip(sides, moves, strict=True)]
    mean = whole[sides[0]].mean() - (whole[sides[1]].mean() if second else 0.0)
    return float(mean), moved[0] - (moved[1] if second else 0.0)
