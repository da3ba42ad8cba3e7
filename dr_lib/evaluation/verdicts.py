"""The verdict on a claim: held, reversed, inconclusive, or not run, from our own runs' per-query scores.

A claim's pairs form one family. A pair counts as decided where the bootstrap interval of its paired differences leaves
out 0 and its randomisation test, corrected by Holm over the pairs, does so too. *Held* asks this of every pair;
*reversed* means that at least one pair is decided against the claim; everything else is *inconclusive*, with the
smallest difference that so many queries would have shown. Claims of equality (`spreads`) hold where every interval
lies inside the stated range, and are reversed where one, widened for the number of pairs, lies outside. Page of the
book: ideas/statistics.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

from dr_lib.evaluation.measures import Scores
from dr_lib.evaluation.papers import Claim, Spread
from dr_lib.evaluation.statistics import (
    Interval,
    bootstrap_intervals,
    holm,
    paired_difference,
    randomisation_tests,
    smallest_detectable_difference,
)

State = Literal["held", "reversed", "inconclusive", "not run"]
Runs = Mapping[str, Sequence[Scores]]


@dataclass(frozen=True)
class PairResult:
    """One pair of a claim, measured.

    Attributes:
        better, worse: row names.
        measure: what was compared.
        interval: of the paired difference, above 0 where the claim's order holds (signs are turned for measures of
            which less is better).
        p_holm: corrected p-value of the randomisation test.
        detectable: smallest difference found with power 0.8.
        state: of this pair alone.
    """

    better: str
    worse: str
    measure: str
    interval: Interval
    p_holm: float
    detectable: float
    state: State


@dataclass(frozen=True)
class SpreadResult:
    """A claim of equality, measured on its two most distant configurations.

    Attributes:
        measure: what was compared.
        width: largest difference that the claim allows.
        apart: the two configurations farthest apart.
        interval: of their difference, the higher minus the lower one.
        state: of this range.
    """

    measure: str
    width: float
    apart: tuple[str, str]
    interval: Interval
    state: State


@dataclass(frozen=True)
class Verdict:
    """What our runs say of a claim.

    Attributes:
        claim: the claim's id.
        state: "held", "reversed", "inconclusive" or "not run".
        pairs: results of the pairs of which both sides were run, also where the verdict is "not run".
        spreads: results of the ranges, where the claim states one.
        missing: row names or measures that were not run.
        note: the reason in words.
    """

    claim: str
    state: State
    pairs: tuple[PairResult, ...] = ()
    spreads: tuple[SpreadResult, ...] = ()
    missing: tuple[str, ...] = ()
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def verdict(
    claim: Claim,
    scores_by_label: Runs,
    *,
    measure: str | None = None,
    level: float = 0.95,
    draws: int = 10_000,
    resample_seeds: bool = False,
) -> Verdict:
    """Judge a claim by our runs.

    Args:
        claim: from `load_paper`.
        scores_by_label: row name of the paper's table -> scores, one for each seed; the same queries everywhere.
        measure: our name of the claim's metric, e.g. "MRR@10"; read from the metric if None ("Retriever1 MRR@10" is
            "MRR@10", "NQ R@20" is "accuracy@20" where the runs have it, else "R@20").
        level: of the intervals, and 1 minus the level of the tests.
        draws: resamples and flips of sign.
        resample_seeds: let the intervals of pairs cover the choice of seeds too.

    Raises:
        InputError: two runs scored different queries.

    Example:
        >>> from dr_lib.evaluation import load_paper
        >>> verdict(load_paper("simlm").claim("simlm-no-zero-shot"), {}).note
        'No machine comparison is defined for this claim.'
    """
    spreads = claim.spreads
    if claim.compare is None and not spreads:
        return Verdict(claim.id, "not run", note="No machine comparison is defined for this claim.")
    chosen = measure or _measure(claim.metric, scores_by_label)
    needed = {(label, chosen) for pair in claim.pairs for label in pair}
    needed |= {(label, spread.measure) for spread in spreads for label in spread.rows}
    missing = _missing(needed, scores_by_label)
    absent = _missing({(label, chosen) for pair in claim.pairs for label in pair}, scores_by_label)
    pairs = [pair for pair in claim.pairs if not set(pair) & set(absent)] if chosen not in absent else []
    sign = -1.0 if claim.lower_is_better else 1.0
    results = _judge_pairs(pairs, scores_by_label, chosen, sign, level, draws, resample_seeds)
    if missing:
        note = f"Not run: {', '.join(missing)}."
        return Verdict(claim.id, "not run", results, missing=missing, note=note)
    ranges = tuple(_judge_spread(spread, scores_by_label, level, draws) for spread in spreads)
    return Verdict(claim.id, _join([r.state for r in (*results, *ranges)]), results, ranges, (), _note(results, ranges))


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


def _measure(metric: str | None, runs: Runs) -> str:
    """Our measure for a column of a paper: its last "name@k"; answer accuracy where the runs have it."""
    found = re.search(r"(MRR|Recall|R|nDCG)@(\d+)(k?)$", metric or "")
    if found is None:
        return metric or ""
    cut = int(found[2]) * (1000 if found[3] else 1)
    accuracy = f"accuracy@{cut}"
    has_answers = any(accuracy in scores.values for several in runs.values() for scores in several)
    if found[1] in ("R", "Recall"):
        return accuracy if has_answers else f"R@{cut}"
    return f"{found[1]}@{cut}"


def _missing(needed: set[tuple[str, str]], runs: Runs) -> tuple[str, ...]:
    """Row names without a run; where all have one, the measures that some run lacks."""
    labels = sorted({label for label, _ in needed if not runs.get(label)})
    measures = {m for label, m in needed for scores in runs.get(label, ()) if m not in scores.values}
    return tuple(labels) + tuple(sorted(measures))


def _judge_pairs(
    pairs: Sequence[tuple[str, str]], runs: Runs, measure: str, sign: float, level: float, draws: int, seeds: bool
) -> tuple[PairResult, ...]:
    if not pairs:
        return ()
    differences = [sign * paired_difference(runs[better], runs[worse], measure) for better, worse in pairs]
    intervals = bootstrap_intervals(differences, draws=draws, level=level, resample_seeds=seeds)
    corrected = holm(randomisation_tests(differences, draws=draws))
    results = []
    for pair, difference, interval, p in zip(pairs, differences, intervals, corrected.tolist(), strict=True):
        decided = p <= 1 - level
        state: State = "held" if decided and interval.low > 0 else "inconclusive"
        state = "reversed" if decided and interval.high < 0 else state
        results.append(PairResult(*pair, measure, interval, p, smallest_detectable_difference(difference), state))
    return tuple(results)


def _judge_spread(spread: Spread, runs: Runs, level: float, draws: int) -> SpreadResult:
    """Every two configurations within the width of each other?

    Held: each interval lies inside, which is a test of equivalence for each pair. Reversed: one interval lies outside
    at the level that Bonferroni's correction asks for.
    """
    couples = list(combinations(spread.rows, 2))
    means = {label: np.mean([scores.mean(spread.measure) for scores in runs[label]]) for label in spread.rows}
    couples = [couple if means[couple[0]] >= means[couple[1]] else couple[::-1] for couple in couples]
    differences = [paired_difference(runs[high], runs[low], spread.measure) for high, low in couples]
    inner = bootstrap_intervals(differences, draws=draws, level=level)
    outer = bootstrap_intervals(differences, draws=draws, level=1 - (1 - level) / len(couples))
    state: State = "held" if all(max(-i.low, i.high) <= spread.width / 100 for i in inner) else "inconclusive"
    state = "reversed" if any(i.low > spread.width / 100 for i in outer) else state
    farthest = max(range(len(couples)), key=lambda i: inner[i].mean)
    return SpreadResult(spread.measure, spread.width / 100, couples[farthest], inner[farthest], state)


def _join(states: Sequence[State]) -> State:
    if "reversed" in states:
        return "reversed"
    return "held" if all(state == "held" for state in states) else "inconclusive"


def _note(pairs: Sequence[PairResult], ranges: Sequence[SpreadResult]) -> str:
    """Which pairs speak against or are open, and what could have been seen; differences in points (x 100)."""
    words = []
    for state, verb in (("reversed", "the other way round"), ("inconclusive", "open")):
        named = [f"{pair.better} over {pair.worse}" for pair in pairs if pair.state == state]
        if named:
            words.append(f"{len(named)} of {len(pairs)} pairs {verb}: {'; '.join(named)}.")
    if pairs:
        least, most = (100 * f(pair.detectable for pair in pairs) for f in (min, max))
        size = f"{least:.2f}" if f"{least:.2f}" == f"{most:.2f}" else f"{least:.2f} to {most:.2f}"
        words.append(f"Smallest difference detectable with power 0.8: {size} points.")
    for spread in ranges:
        high, low = spread.apart
        gap, bound = 100 * spread.interval.mean, 100 * spread.interval.high
        words.append(
            f"Range of {spread.measure} ({spread.state}): {high} is {gap:.2f} points above {low} (up to {bound:.2f}); "
            f"the claim allows {100 * spread.width:.2f}."
        )
    return " ".join(words)
