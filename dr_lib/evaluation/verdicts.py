"""The verdict on a claim from our own runs' per-query scores: held, reversed, inconclusive, one seed, or not run.

A claim is one or more *comparisons*, each a number that is said to lie in a range: a difference of two rows above 0,
the differences of several rows within half a point, the share of collections on which a row is best above a percentage.
Queries and seeds are resampled, so each number has an interval and a p-value: twice the share of resamples on the other
side of the range's border (for an order of two systems on the same queries, not below the randomisation test's). The
p-values of a claim are one family, corrected by Holm. A comparison is *held* where its interval lies inside the range
and its p-value is below the level, *reversed* where the interval lies outside, and else *inconclusive*, with the
smallest difference that so many queries and seeds would have shown.

A claim is held where all its comparisons are, and reversed where at least one is. Runs of one seed can only ever say
*one seed*, and which way they lean: how far another training would differ is then unknown. Page of the book:
ideas/statistics.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, pairwise
from typing import Any, Literal

import numpy as np
from scipy import stats

from dr_lib.evaluation.measures import Scores
from dr_lib.evaluation.nlu import MEASURES as OF_A_SET
from dr_lib.evaluation.nlu import difference_draws
from dr_lib.evaluation.papers import Check, Claim
from dr_lib.evaluation.statistics import (
    DRAWS,
    Interval,
    aligned,
    bootstrap_means,
    holm,
    interval_of,
    paired_difference,
    randomisation_tests,
)

State = Literal["held", "reversed", "inconclusive", "one seed", "not run"]
Runs = Mapping[str, Sequence[Scores]]
UNTRAINED = ("BM25",)
"""Rows that no training is behind: one run of them is all there is."""
POWER = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)


@dataclass(frozen=True)
class PairResult:
    """One comparison of a claim, measured.

    Attributes:
        better, worse: row names; of a range `worse` says which.
        measure: what was compared.
        interval: of the number, mostly of the paired difference: above 0 where the claim's order holds (signs are
            turned for measures of which less is better).
        p_holm: corrected p-value.
        detectable: smallest difference found with power 0.8.
        state: of this comparison alone, however many seeds there are.
    """

    better: str
    worse: str
    measure: str
    interval: Interval
    p_holm: float
    detectable: float
    state: State


@dataclass(frozen=True)
class Verdict:
    """What our runs say of a claim.

    Attributes:
        claim: the claim's id.
        state: "held", "reversed", "inconclusive", "one seed" or "not run".
        leans: what the same runs would say if one seed were enough; the state itself otherwise.
        pairs: the comparisons of which both sides were run, also where the verdict is "not run".
        fewest_seeds: of a row that is trained.
        seed_noise: standard deviation of a run's mean from seed to seed, pooled over the rows; None for one seed.
        missing: row names without a run, or measures that a run lacks.
        note: why, in one sentence or two.
    """

    claim: str
    state: State
    leans: State = "not run"
    pairs: tuple[PairResult, ...] = ()
    fewest_seeds: int = 0
    seed_noise: float | None = None
    missing: tuple[str, ...] = ()
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass
class _Statistic:
    """A number that a claim says something of: a weighted sum of means, and where it is said to lie.

    Attributes:
        better, worse, measure: as of `PairResult`.
        parts: place, weight and values `[seeds, queries]` of each mean; what is in one place shares its resamples.
        low, high: the range.
        flipped: `[seeds, queries]` differences of two systems that may be swapped on any query; else None.
        mean, draws: the number, and what resamples make of it; filled in later.
    """

    better: str
    worse: str
    measure: str
    parts: list[tuple[int, float, np.ndarray]] = field(default_factory=list)
    low: float = 0.0
    high: float = np.inf
    flipped: np.ndarray | None = None
    mean: float = 0.0
    draws: np.ndarray | None = None


def verdict(
    claim: Claim, runs: Runs | Mapping[str, Runs], *, measure: str | None = None, level: float = 0.95, draws: int = DRAWS
) -> Verdict:
    """Judge a claim by our runs.

    Args:
        claim: from `load_paper`.
        runs: row name -> scores, one for each seed; the same queries everywhere. Or collection -> such runs: rows are
            then compared by their averages over the collections, each with the same weight.
        measure: our name of the claim's metric, e.g. "MRR@10"; read from the metric if None ("Retriever1 MRR@10" is
            "MRR@10", "NQ R@20" is "accuracy@20" where the runs have it, else "R@20").
        level: of the intervals, and 1 minus the level of the tests.
        draws: resamples and flips of sign.

    Raises:
        InputError: two runs scored different queries.

    Example:
        >>> from dr_lib.evaluation import load_paper
        >>> verdict(load_paper("simlm").claim("simlm-no-zero-shot"), {}).note
        'Not run: BM25, SimLM, SimLM, no fine-tuning.'
    """
    places = dict(runs) if runs and all(isinstance(own, Mapping) for own in runs.values()) else {"": runs}
    chosen = measure or _measure(claim.metric, places)
    compare = claim.compare
    checks = [Check(kind="order", rows=pair, paired=compare.paired) for pair in claim.pairs] + list(claim.checks)
    checks = [check if check.measure else check.model_copy(update={"measure": chosen}) for check in checks]
    missing = _missing(checks, places)
    usable = [check for check in checks if not _missing([check], places)]
    sign = -1.0 if claim.lower_is_better else 1.0
    statistics = [one for check in usable for one in _statistics(check, places, sign, draws)]
    pairs = _judge(statistics, level, draws)
    if missing:
        return Verdict(claim.id, "not run", pairs=pairs, missing=missing, note=f"Not run: {', '.join(missing)}.")
    rows = {(place, row) for check in checks for row in check.rows if row not in UNTRAINED for place in places}
    each = [[_mean(run, checks[0].measure) for run in places[place][row]] for place, row in sorted(rows)]
    leans, seeds = _join([one.state for one in pairs]), min(map(len, each), default=0)
    noise = float(np.sqrt(np.mean([np.var(own, ddof=1) for own in each]))) if seeds > 1 else None
    state: State = "one seed" if claim.trained and seeds == 1 else leans
    note = f"One seed: {leans} if another would say the same. " if state == "one seed" else ""
    return Verdict(claim.id, state, leans, pairs, seeds, noise, (), note + _note(pairs))


def _measure(metric: str | None, places: Mapping[str, Runs]) -> str:
    """Our measure for a column of a paper: its last "name@k"; answer accuracy where the runs have it."""
    found = re.search(r"(MRR|Recall|R|nDCG)@(\d+)(k?)$", metric or "")
    if found is None:
        return metric or ""
    cut = int(found[2]) * (1000 if found[3] else 1)
    accuracy = f"accuracy@{cut}"
    has_answers = any(accuracy in run.values for own in places.values() for several in own.values() for run in several)
    if found[1] in ("R", "Recall"):
        return accuracy if has_answers else f"R@{cut}"
    return f"{found[1]}@{cut}"


def _missing(checks: Sequence[Check], places: Mapping[str, Runs]) -> tuple[str, ...]:
    """Row names without a run; where all have one, the measures that some run lacks."""
    needed = {(row, check.measure) for check in checks for row in check.rows}
    labels = sorted({row for row, _ in needed for own in places.values() if not own.get(row)})
    lacking = {
        name
        for row, name in needed
        for own in places.values()
        for run in own.get(row, ())
        if name not in run.values and not (name in OF_A_SET and "predicted" in run.values)
    }
    return tuple(labels) + tuple(sorted(lacking))


def _statistics(check: Check, places: Mapping[str, Runs], sign: float, draws: int) -> Iterator[_Statistic]:
    """The numbers that a check is about."""
    width, name, rows = check.width / 100, check.measure, check.rows
    if check.kind == "within":
        own = _Statistic(rows[0], f"{check.low:g} to {check.high:g}", name, low=check.low / 100, high=check.high / 100)
        for place, runs in enumerate(places.values()):
            own.parts.append((place, 1 / len(places), aligned(runs[rows[0]], runs[rows[0]][0], name)))
        yield own
        return
    if check.kind == "wins":
        yield _wins(check, places, draws)
        return
    pairs = {"best": [(rows[0], row) for row in rows[1:]], "equal": list(combinations(rows, 2))}
    for better, worse in pairs.get(check.kind, list(pairwise(rows))):
        low, high = (-width, width) if check.kind == "equal" else (-width, np.inf)
        one = _Statistic(better, worse, name, low=low, high=high)
        for place, runs in enumerate(places.values()):
            first, second = runs[better], runs[worse]
            if check.kind == "cases":  # what counts are the queries that one of two answers and the other misses
                first, second = _answered(first, name), _answered(second, name)
            if name in OF_A_SET and name not in first[0].values:
                mean, drawn = difference_draws(first, second, name)
                one.mean, one.draws = sign * mean, sign * drawn
            elif check.paired:
                # Both sides in one place: the same queries are drawn, and of as many seeds the same seeds.
                one.parts += [(place, sign / len(places), aligned(first, first[0], name))]
                one.parts += [(place, -sign / len(places), aligned(second, first[0], name))]
                one.flipped = paired_difference(first, second, name)
            else:
                one.parts += [(0, sign, aligned(first, first[0], name)), (1, -sign, aligned(second, second[0], name))]
        if len(places) > 1 or check.kind == "equal" or width:
            one.flipped = None
        yield one


def _mean(run: Scores, measure: str) -> float:
    if measure in run.values:
        return run.mean(measure)
    return OF_A_SET[measure](run.per_query("predicted"), run.per_query("actual"))


def _answered(runs: Sequence[Scores], measure: str) -> list[Scores]:
    return [Scores(run.query_ids, {measure: run.per_query(measure) > 0}) for run in runs]


def _wins(check: Check, places: Mapping[str, Runs], draws: int) -> _Statistic:
    """The share of collections on which the first row is the best of all."""
    won, mean = np.zeros(draws), 0.0
    for place, runs in enumerate(places.values()):
        values = [aligned(runs[row], runs[check.rows[0]][0], check.measure) for row in check.rows]
        drawn = np.stack(bootstrap_means(values, draws=draws, seed=place, resample_seeds=True))
        won += (drawn.argmax(axis=0) == 0) / len(places)
        mean += (np.argmax([one.mean() for one in values]) == 0) / len(places)
    others = f"the others on {check.low:g} % of {len(places)} collections"
    return _Statistic(check.rows[0], others, check.measure, [], check.low / 100 - 1e-9, np.inf, None, mean, won)


def _judge(statistics: Sequence[_Statistic], level: float, draws: int) -> tuple[PairResult, ...]:
    """Intervals, corrected p-values and states of some numbers, which are one family."""
    shared: dict[tuple[int, int], list[tuple[_Statistic, float, np.ndarray]]] = defaultdict(list)
    for one in statistics:
        for place, weight, values in one.parts:
            one.mean += weight * float(values.mean())
            shared[place, values.shape[1]].append((one, weight, values))
    for (place, _), found in shared.items():
        means = bootstrap_means([values for *_, values in found], draws=draws, seed=place, resample_seeds=True)
        for (one, weight, _), drawn in zip(found, means, strict=True):
            one.draws = weight * drawn + (0 if one.draws is None else one.draws)
    p_values = [_p_value(one) for one in statistics]
    for size in {one.flipped.shape[1] for one in statistics if one.flipped is not None} - {1}:  # a size has no flips
        chosen = [n for n, one in enumerate(statistics) if one.flipped is not None and one.flipped.shape[1] == size]
        tests = randomisation_tests([statistics[n].flipped for n in chosen], draws=draws)
        for number, p in zip(chosen, tests, strict=True):
            p_values[number] = max(p, p_values[number])
    results = []
    for one, p in zip(statistics, holm(p_values).tolist(), strict=True):
        interval, decided = interval_of(one.mean, one.draws, level), p <= 1 - level
        state: State = "held" if decided and one.low < interval.low and interval.high < one.high else "inconclusive"
        state = "reversed" if decided and (interval.high < one.low or interval.low > one.high) else state
        detectable = float(POWER * one.draws.std())
        results.append(PairResult(one.better, one.worse, one.measure, interval, p, detectable, state))
    return tuple(results)


def _p_value(one: _Statistic) -> float:
    """Twice the share of resamples on the other side of the range's border than the number itself."""
    inside = (one.draws > one.low) & (one.draws < one.high)
    other = ~inside if one.low < one.mean < one.high else inside
    return min(1.0, 2 * (1 + int(other.sum())) / (1 + len(one.draws)))


def _join(states: Sequence[State]) -> State:
    if "reversed" in states:
        return "reversed"
    return "held" if all(state == "held" for state in states) else "inconclusive"


def _note(pairs: Sequence[PairResult]) -> str:
    """Which comparisons speak against or are open, and what could have been seen; differences in points (x 100)."""
    words = []
    for state, verb in (("reversed", "the other way round"), ("inconclusive", "open")):
        named = [f"{pair.better} over {pair.worse}" for pair in pairs if pair.state == state]
        if named:
            words.append(f"{len(named)} of {len(pairs)} pairs {verb}: {'; '.join(named)}.")
    if pairs:
        least, most = (100 * f(pair.detectable for pair in pairs) for f in (min, max))
        size = f"{least:.2f}" if f"{least:.2f}" == f"{most:.2f}" else f"{least:.2f} to {most:.2f}"
        words.append(f"Smallest difference detectable with power 0.8: {size} points.")
    return " ".join(words)


@dataclass(frozen=True)
class Case:
    """One query and what each of two systems scored on it (SimLM Tables 9 and 14, MASTER 9, PAIR 4)."""

    query_id: str
    first: float
    second: float


def flips(first: Scores, second: Scores, measure: str, *, threshold: float = 0.0) -> list[Case]:
    """Queries that the first system misses and the second answers, the widest gap first.

    Chosen examples prove nothing, so the choice is made by a rule and the number of such queries is part of it. Call it
    with the systems exchanged for the queries that are lost.

    Args:
        first, second: scores on the same queries, in any order.
        measure: e.g. "MRR@10".
        threshold: the first scores at most this, the second more.

    Returns:
        All such queries; equal gaps stay in the order of `first`.

    Raises:
        InputError: other queries, or an unknown measure.

    Example:
        >>> old, new = (Scores(["a", "b", "c"], {"R@1": values}) for values in ([0, 1, 0], [1, 0, 0]))
        >>> flips(old, new, "R@1")
        [Case(query_id='a', first=0.0, second=1.0)]
    """
    gaps = -paired_difference(first, second, measure)[0]
    places = {query: place for place, query in enumerate(second.query_ids)}
    before, after = first.per_query(measure), second.per_query(measure)[[places[query] for query in first.query_ids]]
    chosen = np.flatnonzero((before <= threshold) & (after > threshold))
    order = chosen[np.argsort(-gaps[chosen], kind="stable")]
    return [Case(first.query_ids[row], float(before[row]), float(after[row])) for row in order]
