"""The verdict on a claim from our own runs' per-query scores: held, reversed, inconclusive, one
seed, or not run.

A claim is one or more *comparisons*, each a number that is said to lie in a range: a difference of
two rows above 0, the differences of several rows within half a point, the share of collections on
which a row is best above a percentage. Queries are resampled and seeds drawn, so each number has an
interval and a p-value: twice the share of resamples on the other side of the range's border (for an
order of two systems on the same queries, not below the randomisation test's). The p-values of a
claim are one family, corrected by Holm. A comparison is *held* where its interval lies inside the
range and its p-value is below the level, *reversed* where the interval lies outside, and else
*inconclusive*, with the smallest difference that so many queries and seeds would have shown.

A claim is held where all its comparisons are, and reversed where at least one is, even if others
were not run: they count in Holm's correction as if they had said nothing. Where all that were run
are held and others were not, it is *held in part*. What rests on runs of one seed can only ever say
*one seed*, and which way it leans: how far another training would differ is then unknown. Page of
the book: ideas/statistics.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, pairwise
from typing import Any, Literal, get_args

import numpy as np

from dr_book.papers import Check, Claim
from dr_book.statistics import (
    DRAWS,
    FEW,
    Interval,
    aligned,
    bootstrap_means,
    crossing,
    detectable_among,
    difference_draws,
    holm,
    interval_of,
    odd_ones,
    paired_difference,
    randomisation_tests,
    seed_moves,
)
from dr_lib.evaluation.measures import Scores, unit_of
from dr_lib.evaluation.nlu import MEASURES as OF_A_SET

State = Literal[
    "held", "held in part", "reversed", "inconclusive", "one seed", "not run", "unanswerable"
]
STATES = get_args(State)
Runs = Mapping[str, Sequence[Scores]]
UNTRAINED = ("BM25", "BM25 (anserini)")
"""Rows that no training is behind: one run of them is all there is."""
LISTED = 6
"""Comparisons that a note names; of more it gives the number."""


@dataclass(frozen=True)
class PairResult:
    """One comparison of a claim, measured.

    Attributes:
        better, worse: row names; of a range `worse` says which.
        measure: what was compared.
        interval: of the number, mostly of the paired difference: above 0 where the claim's order
            holds (signs are turned for measures of which less is better).
        p_holm: corrected p-value.
        detectable: smallest difference found with power 0.8.
        state: of this comparison alone, however many seeds there are.
        relation: what the claim says of the two: the first "over" the second, "level with" it, "at
            least level with" it, or "within" a range.
    """

    better: str
    worse: str
    measure: str
    interval: Interval
    p_holm: float
    detectable: float
    state: State
    relation: str = "over"

    @property
    def said(self) -> str:
        """The comparison in words."""
        return f"{self.better} {self.relation} {self.worse}"


@dataclass(frozen=True)
class Verdict:
    """The judgement of a claim by our runs.

    Attributes:
        claim: the claim's id.
        state: one of `STATES`.
        leans: what the same runs would say if one seed were enough; the state itself otherwise.
        pairs: the comparisons of which both sides were run.
        comparisons: how many the claim has.
        fewest_seeds: of a row that is trained, among those that the state rests on.
        seed_noise: standard deviation of a run's mean from seed to seed, pooled over the rows; None
            for one seed.
        missing: row names without a run, or measures that a run lacks.
        notes: why, a sentence each: the leaning of one seed, what was not run, which comparisons
            were reversed or are inconclusive, what these could have detected.
    """

    claim: str
    state: State
    leans: State = "not run"
    pairs: tuple[PairResult, ...] = ()
    comparisons: int = 0
    fewest_seeds: int = 0
    seed_noise: float | None = None
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """All notes in a row."""
        return " ".join(self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass
class _Statistic:
    """A number that a claim says something of: a weighted sum of means, and where it is said to
    lie.

    Attributes:
        better, worse, measure: as of `PairResult`.
        parts: place, weight and values `[queries]` of each mean; what is in one place shares its
            resamples.
        trained: place, weight and the means of its seeds of each configuration; what is in one
            place shares its moves.
        low, high: the range.
        flipped: `[seeds, queries]` differences of two systems that may be swapped on any query;
            else None.
        relation: as of `PairResult`.
        contrasts: whether places are subtracted from each other, so that the seeds of each move on
            their own.
        mean, draws: the number, and what resamples make of it; filled in later.
    """

    better: str
    worse: str
    measure: str
    parts: list[tuple[int, float, np.ndarray]] = field(default_factory=list)
    trained: list[tuple[int, float, np.ndarray]] = field(default_factory=list)
    low: float = 0.0
    high: float = np.inf
    flipped: np.ndarray | None = None
    relation: str = "over"
    contrasts: bool = False
    mean: float = 0.0
    draws: np.ndarray | None = None

    def add(
        self, runs: Sequence[Scores], like: Sequence[Scores], place: int, weight: float, drawn: int
    ) -> None:
        """Take in the mean over some seeds: one part, or one a seed where each has queries of its
        own.

        Args:
            runs: one a seed.
            like: the other side; values stand in the order of its queries, so that both sides
                resample the same ones.
            place: the collection.
            weight: in the sum.
            drawn: the place of its resamples.
        """
        if _asked_alike(runs):
            values = aligned(runs, like[0], self.measure)
            self.parts.append((drawn, weight, values.mean(axis=0)))
            means = values.mean(axis=1)
        else:
            others = [*like, *runs[len(like) :]]
            own = [aligned([run], others[n], self.measure)[0] for n, run in enumerate(runs)]
            self.parts += [
                (drawn + 1000 * n, weight / len(own), values) for n, values in enumerate(own)
            ]
            means = np.array([values.mean() for values in own])
        self.trained.append((place, weight, means))


def verdict(
    claim: Claim,
    runs: Runs | Mapping[str, Runs],
    *,
    measure: str | None = None,
    level: float = 0.95,
    draws: int = DRAWS,
) -> Verdict:
    """Judge a claim by our runs.

    Args:
        claim: from `load_paper`.
        runs: row name -> scores, one for each seed; the same queries everywhere. Or collection ->
            such runs: rows are then compared by their averages over the collections, each with the
            same weight.
        measure: our name of the claim's metric; None takes that of `claim.answered_by`, or the
            metric itself.
        level: of the intervals, and 1 minus the level of the tests.
        draws: resamples and flips of sign.

    Raises:
        InputError: two runs scored different queries.

    Example:
        >>> from dr_lib.evaluation import load_paper
        >>> verdict(load_paper("simlm").claim("simlm-no-zero-shot"), {}).note
        'Not run: SimLM; SimLM, no fine-tuning; BM25 (2 of 2 comparisons).'
    """
    if claim.unanswerable:
        return Verdict(claim.id, "unanswerable", "unanswerable", notes=(claim.unanswerable,))
    places = (
        dict(runs)
        if runs and all(isinstance(own, Mapping) for own in runs.values())
        else {"": runs}
    )
    checks = _comparisons(claim, measure)
    usable = [one for check in checks if (one := _runnable(check, places))]
    missing = tuple(dict.fromkeys(name for check in checks for name in _missing(check, places)))
    sign = -1.0 if claim.lower_is_better else 1.0
    pairs = _judge(
        [_statistic(check, places, sign, draws) for check in usable], len(checks), level, draws
    )
    known = {check.rows: check for check in checks}
    # A row's defeat on one collection is a defeat; its victory needs every rival.
    pairs = tuple(
        (
            replace(pair, state="inconclusive")
            if pair.state == "held" and check.rows not in known
            else pair
        )
        for pair, check in zip(pairs, usable, strict=True)
    )
    trained = [
        {
            (place, row, check.measure)
            for row in check.rows
            if row not in UNTRAINED
            for place in places
        }
        for check in usable
    ]
    means = {
        key: [_mean(run, key[2]) for run in places[key[0]][key[1]]]
        for key in sorted(set().union(*trained))
    }
    each, leans = list(means.values()), _join([one.state for one in pairs], whole=not missing)
    fewest = [min((len(means[key]) for key in own), default=0) for own in trained]
    # One reversed comparison reverses a claim, however few seeds the others have; to be held it
    # needs them all.
    against = [number for number, one in zip(fewest, pairs, strict=True) if one.state == "reversed"]
    seeds = max(against) if against else min(map(len, each), default=0)
    several = [np.var(own, ddof=1) for own in each if len(own) > 1] if seeds > 1 else []
    noise = float(np.sqrt(np.mean(several))) if several else None
    state: State = "one seed" if claim.trained and seeds == 1 else leans
    notes = [f"By one seed alone the claim would be {leans}."] if state == "one seed" else []
    if missing:
        left = len(checks) - len(pairs)  # 0 where rivals are missing in one comparison with several
        share = f" ({left} of {len(checks)} comparison{'s' * (len(checks) > 1)})" if left else ""
        notes.append(f"Not run: {_listed(missing)}{share}.")
    return Verdict(
        claim.id,
        state,
        leans,
        pairs,
        len(checks),
        seeds,
        noise,
        missing,
        (*notes, *_contradictions(pairs)),
    )


def _comparisons(claim: Claim, measure: str | None) -> list[Check]:
    """The comparisons that carry a claim, each of as few rows as can be: mostly two."""
    answer = claim.answered_by
    chosen = measure or (
        answer.measure if answer and isinstance(answer.measure, str) else claim.metric
    )
    paired = claim.compare.paired if claim.compare else True
    pairs = (answer and answer.pairs) or claim.pairs
    found = [Check(kind="order", rows=pair, measure=chosen, paired=paired) for pair in pairs]
    for check in claim.checks:
        rows = check.rows
        split = {"best": [(rows[0], row) for row in rows[1:]], "equal": list(combinations(rows, 2))}
        split |= {"wins": [rows], "within": [rows], "gain": [rows]}
        kind = "order" if check.kind == "best" else check.kind
        own = {"kind": kind, "measure": check.measure or chosen}
        found += [
            check.model_copy(update=own | {"rows": some})
            for some in split.get(check.kind, list(pairwise(rows)))
        ]
    return found


def _runnable(check: Check, places: Mapping[str, Runs]) -> Check | None:
    """A comparison that can be made: of wins with the rivals that were run, else whole or not at
    all.
    """
    if check.kind != "wins":
        return (
            None
            if _missing(check, places) or (check.kind == "gain" and len(places) == 1)
            else check
        )
    rows = tuple(row for row in check.rows if all(own.get(row) for own in places.values()))
    fewer = check.model_copy(update={"rows": rows})
    return (
        fewer
        if rows[:1] == check.rows[:1] and len(rows) > 1 and not _missing(fewer, places)
        else None
    )


def _missing(check: Check, places: Mapping[str, Runs]) -> tuple[str, ...]:
    """Row names without a run; where all have one, the measure if some run lacks it."""
    labels = sorted({row for row in check.rows for own in places.values() if not own.get(row)})
    if labels:
        return tuple(labels)
    known = [run.values for own in places.values() for row in check.rows for run in own[row]]
    there = all(
        check.measure in values or (check.measure in OF_A_SET and "predicted" in values)
        for values in known
    )
    return () if there else (str(check.measure),)


def _statistic(check: Check, places: Mapping[str, Runs], sign: float, draws: int) -> _Statistic:
    """The number that a comparison is about."""
    width, name, rows = check.width / unit_of(check.measure)[0], check.measure, check.rows
    if check.kind == "within":
        own = _Statistic(
            rows[0],
            f"{check.low:g} to {check.high:g}",
            name,
            low=check.low / 100,
            high=check.high / 100,
        )
        own.relation = "within"
        for place, runs in enumerate(places.values()):
            own.add(runs[rows[0]], runs[rows[0]], place, 1 / len(places), place)
        return own
    if check.kind == "wins":
        return _wins(check, places, draws)
    better, worse = rows
    one = _Statistic(
        better, worse, name, low=-width, high=width if check.kind == "equal" else np.inf
    )
    one.relation = (
        "level with" if check.kind == "equal" else "at least level with" if width else "over"
    )
    weights = [sign / len(places)] * len(places)
    if check.kind == "gain":
        weights = [sign, *[-sign / (len(places) - 1)] * (len(places) - 1)]
        one.contrasts = True
        one.worse = f"{worse}, by more on {next(iter(places))} than elsewhere"
    for place, runs in enumerate(places.values()):
        first, second = runs[better], runs[worse]
        # what counts are the queries that one of two answers and the other misses
        if check.kind == "cases":
            first, second = _answered(first, name), _answered(second, name)
        if name in OF_A_SET and name not in first[0].values:
            mean, drawn = difference_draws(
                first, second, name, seed=place, source=place * one.contrasts
            )
            one.mean += weights[place] * mean
            one.draws = weights[place] * drawn + (0 if one.draws is None else one.draws)
        else:
            # Of a pair the same queries are drawn; groups of queries are drawn each for itself.
            one.add(first, first, place, weights[place], place)
            one.add(
                second,
                first if check.paired else second,
                place,
                -weights[place],
                place + (0 if check.paired else len(places)),
            )
            alike = check.paired and _asked_alike(first) and _asked_alike(second)
            one.flipped = paired_difference(first, second, name) if alike else None
    if len(places) > 1 or check.kind == "equal" or width:
        one.flipped = None
    return one


def _asked_alike(runs: Sequence[Scores]) -> bool:
    return all(set(run.query_ids) == set(runs[0].query_ids) for run in runs)


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
        drawn = np.stack(bootstrap_means(values, draws=draws, seed=place))
        won += (drawn[0] > drawn[1:].max(axis=0)) / len(places)  # level is not won
        mean += (values[0].mean() > max(one.mean() for one in values[1:])) / len(places)
    others = f"the others on {check.low:g} % of {len(places)} collections"
    return _Statistic(
        check.rows[0], others, check.measure, low=check.low / 100 - 1e-9, mean=mean, draws=won
    )


def _judge(
    statistics: Sequence[_Statistic], family: int, level: float, draws: int
) -> tuple[PairResult, ...]:
    """Intervals, corrected p-values and states of some numbers, which are of a family of so
    many.
    """
    queries: dict[tuple[int, int], list[tuple[_Statistic, float, np.ndarray]]] = defaultdict(list)
    seeds: dict[tuple[int, bool, str], list[tuple[_Statistic, float, np.ndarray]]] = defaultdict(
        list
    )
    for one in statistics:
        for place, weight, values in one.parts:
            one.mean += weight * float(values.mean())
            queries[place, len(values)].append((one, weight, values))
        for place, weight, means in one.trained:
            seeds[place, one.contrasts, str(one.measure)].append((one, weight, means))
    drawn = [
        (own, bootstrap_means([values for *_, values in own], draws=draws, seed=key[0]))
        for key, own in queries.items()
    ]
    drawn += [
        (own, seed_moves([means for *_, means in own], draws, key[0] * key[1]))
        for key, own in seeds.items()
    ]
    for own, moved in drawn:
        for (one, weight, _), values in zip(own, moved, strict=True):
            one.draws = weight * values + (0 if one.draws is None else one.draws)
    for one in statistics:
        one.draws = one.draws + _unseen(one, draws)
    p_values = [crossing(one.mean, one.draws, one.low, one.high) for one in statistics]
    # a size has no flips
    for size in {one.flipped.shape[1] for one in statistics if one.flipped is not None} - {1}:
        chosen = [
            n
            for n, one in enumerate(statistics)
            if one.flipped is not None and one.flipped.shape[1] == size
        ]
        tests = randomisation_tests([statistics[n].flipped for n in chosen], draws=draws)
        for number, p in zip(chosen, tests, strict=True):
            p_values[number] = max(p, p_values[number])
    results = []
    unseen = [1.0] * (family - len(p_values))  # what was not run
    for one, p in zip(statistics, holm([*p_values, *unseen]).tolist(), strict=False):
        interval, decided = interval_of(one.mean, one.draws, level), p <= 1 - level
        state: State = (
            "held"
            if decided and one.low < interval.low and interval.high < one.high
            else "inconclusive"
        )
        state = (
            "reversed"
            if decided and (interval.high < one.low or interval.low > one.high)
            else state
        )
        least = detectable_among(one.draws)
        results.append(
            PairResult(one.better, one.worse, one.measure, interval, p, least, state, one.relation)
        )
    return tuple(results)


def _unseen(one: _Statistic, draws: int) -> np.ndarray | float:
    """What resamples cannot show where next to all queries agree: by how much those that were not
    asked may still differ.

    Of n queries without any difference the share of others that differ is below 1 - 0.05 ** (1 /
    n), about 3 / n, with 95 % confidence (Clopper and Pearson 1934); here as draws, on either side.
    Amounts such as bytes are not of queries.
    """
    if unit_of(one.measure) != (100, "points"):
        return 0.0
    rng, found = np.random.default_rng(0), 0.0
    columns: dict[int, np.ndarray | float] = defaultdict(float)
    for place, weight, values in one.parts:
        columns[place] = columns[place] + weight * values
    for place, values in columns.items():
        if odd_ones(values) < FEW:
            weight = max(abs(weight) for other, weight, _ in one.parts if other == place)
            found = found + weight * rng.choice([-1.0, 1.0], draws) * rng.beta(
                1, len(values), draws
            )
    return found


def _join(states: Sequence[State], whole: bool) -> State:
    if not states or "reversed" in states:
        return "reversed" if states else "not run"
    held = "held" if whole else "held in part"
    return held if all(state == "held" for state in states) else "inconclusive"


def _contradictions(pairs: Sequence[PairResult]) -> list[str]:
    """Which comparisons contradict the claim or are inconclusive, and what these could have
    detected.
    """
    words = []
    for state in ("reversed", "inconclusive"):
        named = [pair.said for pair in pairs if pair.state == state]
        if len(named) > LISTED:
            words.append(f"{state.capitalize()}: {len(named)} of {len(pairs)} comparisons.")
        elif named:
            words.append(f"{state.capitalize()}: {'; '.join(named)}.")
    if spreads := [
        pair.detectable for pair in pairs if pair.detectable > 0 and pair.state == "inconclusive"
    ]:
        times, unit = unit_of(pairs[0].measure)
        ends = [times * least for least in (min(spreads), max(spreads))]
        # a difference above it does not exist: none can be detected
        bound = 100 if unit == "points" else math.inf
        if ends[0] > bound:
            return [*words, "No difference could be detected with a power of 80 %."]
        size = " to ".join(
            dict.fromkeys(f"over {bound}" if one > bound else f"{one:.2f}" for one in ends)
        )
        words.append(f"Smallest difference detectable with a power of 80 %: {size} {unit}.")
    return words


def _listed(names: Sequence[str]) -> str:
    """Names in a row; where one has a comma itself, semicolons part them."""
    return ("; " if any("," in name for name in names) else ", ").join(names)


@dataclass(frozen=True)
class Case:
    """One query and what each of two systems scored on it (SimLM Tables 9 and 14, MASTER 9, PAIR
    4).
    """

    query_id: str
    first: float
    second: float


def flips(first: Scores, second: Scores, measure: str) -> list[Case]:
    """Queries that the first system misses and the second answers, the widest gap first.

    Chosen examples prove nothing, so the choice is made by a rule and the number of such queries is
    part of it. Call it with the systems exchanged for the queries that are lost.

    Args:
        first, second: scores on the same queries, in any order.
        measure: e.g. "MRR@10"; a query counts as answered where it is above 0.

    Returns:
        All such queries; equal gaps stay in the order of `first`.

    Raises:
        InputError: other queries, or an unknown measure.

    Example:
        >>> old, new = (
        ...     Scores(["a", "b", "c"], {"R@1": values}) for values in ([0, 1, 0], [1, 0, 0])
        ... )
        >>> flips(old, new, "R@1")
        [Case(query_id='a', first=0.0, second=1.0)]
    """
    before, after = aligned([first, second], first, measure)
    chosen = np.flatnonzero((before <= 0) & (after > 0))
    order = chosen[np.argsort((before - after)[chosen], kind="stable")]
    return [Case(first.query_ids[row], float(before[row]), float(after[row])) for row in order]
