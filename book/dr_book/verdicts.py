"""The verdict on a claim, pair by pair: what our records support, contradict, leave open, or cannot
test.

A claim is one or more *pairs*: a difference of two rows above 0, two rows equal within a margin, a
share inside a range. Each is a number with a standard error over clusters of queries and over seeds
(`measured.compared`).

A pair is *supported* if the test of its border says so at 0.05 (for a margin: two one-sided tests),
*contradicted* if it lies beyond the border and remains significant after Holm's correction over the
claim's pairs, else *open*. A pair that the given runs cannot test, whatever their numbers, is *not
testable here* and decides nothing.

If a block of the plan fixes the number of seeds, a pair is judged once both rows have them; until
then it is open.

A claim is *held* if all its testable carrying pairs are supported, *contradicted* if one of them is
contradicted, else *open*; if none is marked as carrying, all are. Page of the book:
ideas/statistics.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, cycle, pairwise
from typing import Any, Literal, get_args

import numpy as np

from dr_book.measured import (
    FEWEST,
    Compared,
    Side,
    aligned,
    check_same_queries,
    compared,
    made_by,
    possible,
    unit_of,
)
from dr_book.papers import Check, Claim
from dr_book.plan import seeds_of
from dr_book.statistics import Estimate, holm
from dr_lib.evaluation.measures import Scores
from dr_lib.lab import Record

State = Literal["supported", "contradicted", "open", "not testable here", "not run"]
STATES = get_args(State)
Word = Literal["held", "contradicted", "open", "not testable here", "not run"]
WORDS = get_args(Word)
WAITS = "waits for seeds"
"""State of an open pair that lacks seeds, as on pages."""
COUNTED = {
    "supported": "for",
    "contradicted": "against",
    "open": "open",
    WAITS: "waiting for seeds",
    "not run": "not run",
}
"""State of a pair -> the word in a count of such pairs."""
Runs = Mapping[str, Sequence[Record]]
"""Row of a paper -> records, one a run."""
LISTED = 6
"""The most names that a note lists; more are counted."""
LEVEL = 0.05
NEEDED = float(1.6449 + 1.2816)
"""Width of a margin, in standard errors, with which two one-sided tests show equality in four of
five repetitions if there is no difference.
"""


@dataclass(frozen=True)
class PairResult:
    """One pair of a claim with its result.

    Attributes:
        better, worse: row names; for a range, `worse` is the range.
        measure: the compared measure.
        relation: what the claim says of the two: the first "over" the second, "level with" it, "at
            least level with" it, or "within" a range.
        state: one of `STATES`.
        carrying: whether it decides the claim.
        testable: whether runs here can test it; `because` says why not, or why an open pair cannot
            be decided.
        difference, low, high: better minus worse (with the sign reversed if less is better) with
            its 95 % interval (90 % inside a margin or range), in points or in the measure's own
            unit; None if not run.
        unit: of the difference.
        p: of the test that decides it: below 0.05 it lies on that side of the border.
        p_holm: the same for a pair beyond the border, corrected over the claim; 1 for others.
        detectable: difference detected with power 0.8.
        seeds: number of seeds of each row.
        clusters: number of clusters of queries.
        apart: whether every run of one row differs from every run of the other in code number,
            precision or kind of device.
        lacks: (row, what it is trained on) -> number of seeds missing before the pair may be
            judged; empty if it does not wait.
    """

    better: str
    worse: str
    measure: str
    relation: str = "over"
    state: State = "not run"
    carrying: bool = True
    testable: bool = True
    because: str = ""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = "points"
    p: float | None = None
    p_holm: float | None = None
    detectable: float | None = None
    seeds: tuple[int, ...] = ()
    clusters: int = 0
    apart: bool = False
    lacks: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def waits(self) -> int:
        """Number of missing seeds of its rows, each training counted once."""
        return sum(self.lacks.values())

    @property
    def said(self) -> str:
        """The pair in words."""
        return f"{self.better} {self.relation} {self.worse}"


@dataclass(frozen=True)
class Verdict:
    """The judgement of a claim by our runs.

    Attributes:
        claim: the claim's id.
        verdict: one of `WORDS`.
        pairs: all its pairs, run or not.
        missing: row names without a run, or measures that a run lacks.
        notes: the results of the pairs, as sentences.
        p: p-value for a correction over claims: 1 for an open claim; None if it was not judged.
    """

    claim: str
    verdict: Word
    pairs: tuple[PairResult, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    p: float | None = None

    @property
    def counts(self) -> dict[str, int]:
        """State -> number of pairs."""
        return {state: Counter(pair.state for pair in self.pairs)[state] for state in STATES}

    @property
    def waits(self) -> int:
        """Number of missing seeds, if the claim is open only because of them; else 0."""
        undecided = [
            pair
            for pair in self.pairs
            if pair.testable and pair.carrying and pair.state != "supported"
        ]
        if self.verdict != "open" or not all(pair.waits for pair in undecided):
            return 0
        lacks: dict[tuple[str, str], int] = {}
        for pair in undecided:
            for training, seeds in pair.lacks.items():
                lacks[training] = max(seeds, lacks.get(training, 0))
        return sum(lacks.values())

    @property
    def note(self) -> str:
        """All notes as one text."""
        return " ".join(self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; infinite numbers become None."""
        plain = asdict(self) | {"counts": self.counts, "waits": self.waits}
        for pair in plain["pairs"]:
            pair["seeds"], pair["waits"] = list(pair["seeds"]), sum(pair.pop("lacks").values())
            for name, number in pair.items():
                if isinstance(number, float) and not np.isfinite(number):
                    pair[name] = None
        return plain


def verdict(claim: Claim, runs: Mapping[str, Runs]) -> Verdict:
    """Judge a claim by our runs.

    Args:
        claim: from `load_paper`.
        runs: collection -> row name -> records, one a run. Rows on several collections are compared
            by their unweighted averages.

    Raises:
        InputError: two runs scored different queries.

    Example:
        >>> from dr_book.papers import load_paper
        >>> found = verdict(load_paper("simlm").claim("simlm-no-zero-shot"), {})
        >>> found.verdict, len(found.pairs)
        ('not run', 2)
    """
    checks = comparisons(claim)
    if claim.answered_by is None:
        reason = claim.unanswerable or "No record is named that answers it."
        pairs = tuple(_pair(claim, check, "not testable here", because=reason) for check in checks)
        return Verdict(claim.id, "not testable here", pairs, notes=(reason,))
    pairs = _with_holm([_judged(claim, check, runs) for check in checks])
    names = (name for check in checks if check.testable for name in _missing(claim, check, runs))
    missing = tuple(dict.fromkeys(names))
    word, p = _joined(pairs)
    return Verdict(claim.id, word, pairs, missing, tuple(_notes(pairs, missing)), p)


def comparisons(claim: Claim) -> list[Check]:
    """The pairs of a claim, each with its marks."""
    answer = claim.answered_by
    paired = claim.compare.paired if claim.compare else True
    marks = {pair: mark for mark in (answer.marks if answer else ()) for pair in mark.pairs}
    checks = []
    for pair in (answer and answer.pairs) or claim.pairs:
        mark = marks.get(tuple(pair))
        about = {name: getattr(mark, name) for name in ("carrying", "testable", "because") if mark}
        checks.append(Check(kind="order", rows=pair, paired=paired, **about))
    for check in claim.checks:
        rows, kind = check.rows, "order" if check.kind == "best" else check.kind
        parts = {
            "best": [(rows[0], row) for row in rows[1:]],
            "equal": list(combinations(rows, 2)),
            **{whole: [rows] for whole in ("within", "gain")},
        }.get(check.kind, list(pairwise(rows)))
        checks += [check.model_copy(update={"kind": kind, "rows": part}) for part in parts]
    if answer:
        checks = [_without_strangers(check, answer.rows) for check in checks]
    chosen = any(check.carrying for check in checks)
    return [check if chosen else check.model_copy(update={"carrying": True}) for check in checks]


def _without_strangers(check: Check, known: Mapping[str, str]) -> Check:
    """The pair, marked as not testable if one of its systems is not run here."""
    if {*check.rows} <= {*known} or not check.testable:
        return check
    because = "A system of the pair is not run here."
    return check.model_copy(update={"testable": False, "because": because})


def _measure(claim: Claim, check: Check, row: str) -> str:
    return claim.answered_by.measure_of(row, check.measure)


def _missing(claim: Claim, check: Check, runs: Mapping[str, Runs]) -> tuple[str, ...]:
    """Row names without a run; if all have one, measures that no run of a row has."""
    rows = check.rows
    if not runs:
        return rows
    labels = {row for row in rows if not all(recorded.get(row) for recorded in runs.values())}
    lacking = (
        _measure(claim, check, row)
        for row in rows
        for recorded in runs.values()
        if not Side(recorded.get(row, ()), _measure(claim, check, row)).runs
    )
    return tuple(sorted(labels) or dict.fromkeys(lacking))


def _pair(claim: Claim, check: Check, state: State, **more: Any) -> PairResult:
    """A pair with its names, in a given state."""
    rows, measure = check.rows, check.measure
    if claim.answered_by:
        measure = _measure(claim, check, rows[0])
    relations = {"equal": "level with", "within": "within"}
    relation = relations.get(check.kind, "at least level with" if check.width else "over")
    worse = rows[-1]
    if check.kind == "within":
        worse = f"{check.low:g} to {check.high:g}"
    elif check.kind == "gain":
        first = claim.answered_by.collections[0] if claim.answered_by else "the first collection"
        worse = f"{worse}, by more on {first} than elsewhere"
    about = {"carrying": check.carrying, "testable": state != "not testable here"}
    unit = "%" if check.kind == "within" else unit_of(str(measure))[1]
    return PairResult(
        rows[0], worse, str(measure), relation, state, **{"unit": unit} | about | more
    )


def _judged(claim: Claim, check: Check, runs: Mapping[str, Runs]) -> PairResult:
    """A pair before Holm's correction; beyond its border the p-value is in `p_holm`."""
    if not check.testable:
        return _pair(claim, check, "not testable here", because=check.because)
    if _missing(claim, check, runs) or (check.kind == "gain" and len(runs) < 2):
        return _pair(claim, check, "not run")
    terms = _terms(claim, check, runs)
    every = (
        Side(records, _measure(claim, check, row), fixed=not claim.trained)
        for recorded in runs.values()
        for row, records in recorded.items()
    )
    result = compared(terms, [side for side in every if side.trained])
    sign = -1.0 if claim.lower_is_better and check.kind != "within" else 1.0
    estimate = replace(result.estimate, value=sign * result.estimate.value)
    low, high = -check.width, np.inf
    if check.kind == "equal":
        high = check.width
    elif check.kind == "within":
        low, high = check.low, check.high
    inside = low < estimate.value < high
    near = low if abs(estimate.value - low) <= abs(estimate.value - high) else high
    p, level = estimate.p(near), 0.95
    if inside and np.isfinite(high):
        half = [estimate.p(end) / 2 for end in (low, high)]
        p, level = max(half), 0.9
    sides = [side for _, side in terms]
    lacks = _lacking(claim, check.rows, sides)
    why_open, block = result.why_open, claim.answered_by.block
    if block and lacks and not why_open:
        why_open = (
            f"the plan gives a row {seeds_of(block)} seeds, one has"
            f" {seeds_of(block) - max(lacks.values())}"
        )
    may = not why_open
    state: State = "supported" if inside and p < LEVEL and may else "open"
    because = why_open if state == "open" else ""
    interval = estimate.interval(
        level, possible(_measure(claim, check, check.rows[0]), difference=check.kind != "within")
    )
    pair = _pair(
        claim,
        check,
        state,
        difference=interval.mean,
        low=interval.low,
        high=interval.high,
        p=p,
        p_holm=1.0 if inside else p,
        detectable=result.detectable(),
        seeds=result.seeds,
        clusters=result.clusters,
        because=because,
        apart=_made_apart(sides),
        lacks={} if may or result.effective < FEWEST else lacks,
    )
    if check.kind == "equal" and state == "open" and inside and may:
        pair = _beyond_this_test_set(pair, result, check.width)
    return pair


def _lacking(
    claim: Claim, rows: Sequence[str], sides: Sequence[Side]
) -> dict[tuple[str, str], int]:
    """Training of a pair -> number of missing seeds, up to the plan's number, or else up to two.

    Args:
        claim: of the pair.
        rows: its names.
        sides: of all rows on the first collection, then on the next.
    """
    least = seeds_of(claim.answered_by.block) if claim.answered_by.block else 2
    lacks: dict[tuple[str, str], int] = {}
    for row, side in zip(cycle(rows), sides, strict=False):
        if side.trained and len(side.seeds) < least:
            facts = side.runs[0].data
            training = row, facts.get("trained_on", facts["collection"])["digest"]
            lacks[training] = max(least - len(side.seeds), lacks.get(training, 0))
    return lacks


def _made_apart(sides: Sequence[Side]) -> bool:
    """Whether all runs of one trained side differ from all of another's in `made_by`."""
    made = [{made_by(run) for run in side.runs} - {""} for side in sides if side.trained]
    return any(former and latter and not former & latter for former, latter in pairwise(made))


def _terms(claim: Claim, check: Check, runs: Mapping[str, Runs]) -> list[tuple[float, Side]]:
    """The weighted sum of means that a pair is about."""
    weights = [1 / len(runs)] * len(runs)
    if check.kind == "gain":
        weights = [1.0, *[-1 / (len(runs) - 1)] * (len(runs) - 1)]
    terms = []
    for weight, recorded in zip(weights, runs.values(), strict=True):
        sides = [
            Side(recorded[row], _measure(claim, check, row), fixed=not claim.trained)
            for row in check.rows
        ]
        terms.append((weight, sides[0]))
        terms += [(-weight, side) for side in sides[1:]]
        if check.paired and len(sides) > 1:
            _check_paired(*sides)
    return terms


def _check_paired(first: Side, second: Side) -> None:
    """Refuse two systems measured on different queries, unless their runs have different ones."""
    sides = first.runs, second.runs
    if all(len({frozenset(run.query_ids) for run in runs}) == 1 for runs in sides):
        check_same_queries([runs[0] for runs in sides])


def _beyond_this_test_set(pair: PairResult, result: Compared, width: float) -> PairResult:
    """The pair, not testable if the queries' variance hides the margin with any number of seeds."""
    if (
        result.floor is None
        or Estimate(0.0, ((result.floor**2, result.effective - 1),)).p_within(width) < LEVEL
    ):
        return pair
    needed = result.clusters * (NEEDED * result.floor / width) ** 2
    because = (
        f"A margin of {width:g} {pair.unit} cannot be shown with {result.clusters} clusters of"
        f" queries and any number of seeds; about {round(needed, -2 if needed > 1000 else -1):,.0f}"
        " would do."
    )
    return replace(pair, state="not testable here", testable=False, because=because)


def _with_holm(pairs: Sequence[PairResult]) -> tuple[PairResult, ...]:
    """The pairs; those beyond their border are contradicted if they may be judged and remain
    significant after Holm's correction over the pairs that were run.
    """
    p_values = holm([pair.p_holm for pair in pairs if pair.p_holm is not None]).tolist()
    corrected = []
    for pair in pairs:
        if pair.p_holm is not None:
            pair = replace(pair, p_holm=p_values.pop(0))
            if pair.p_holm < LEVEL and not pair.because:
                pair = replace(pair, state="contradicted")
        corrected.append(pair)
    return tuple(corrected)


def _joined(pairs: Sequence[PairResult]) -> tuple[Word, float | None]:
    """The verdict on a claim, and its p-value for a correction over claims: the 1 of an open claim
    can only reduce how many survive it.
    """
    testable = [pair for pair in pairs if pair.testable]
    carrying = [pair for pair in testable if pair.carrying]
    if not carrying:
        return "not testable here", None
    if all(pair.state == "not run" for pair in testable):
        return "not run", None
    against = [pair for pair in carrying if pair.state == "contradicted"]
    if against:
        return "contradicted", min(pair.p_holm for pair in against)
    if all(pair.state == "supported" for pair in carrying):
        return "held", max(pair.p for pair in carrying)
    return "open", 1.0


def pairs_counted(numbers: Mapping[str, int]) -> str:
    """How many pairs are in each state, in words; empty states are omitted.

    Example:
        >>> pairs_counted({"supported": 3, "contradicted": 0, "open": 1, WAITS: 2})
        '3 pairs for, 1 open, 2 waiting for seeds'
        >>> pairs_counted({"open": 1})
        '1 pair open'
    """
    states = [state for state in COUNTED if numbers.get(state)]
    words = [f"{numbers[state]} {COUNTED[state]}" for state in states]
    if words:
        number = numbers[states[0]]
        words[0] = f"{number} pair{'s' * (number > 1)} {COUNTED[states[0]]}"
    return ", ".join(words)


def _notes(pairs: Sequence[PairResult], missing: Sequence[str]) -> list[str]:
    """The results of the pairs: how many for and against, which not run, which not testable."""
    counts = Counter(pair.state for pair in pairs)
    waiting = sum(pair.state == "open" and pair.waits > 0 for pair in pairs)
    tested = sum(counts[state] for state in ("supported", "contradicted", "open"))
    shown = counts | {"open": counts["open"] - waiting, WAITS: waiting, "not run": 0}
    notes = [f"{pairs_counted(shown)}."] if tested else []
    against = [pair.said for pair in pairs if pair.state == "contradicted"]
    if 0 < len(against) <= LISTED and len(against) < tested:
        notes.append(f"Against: {'; '.join(against)}.")
    if missing:
        number = counts["not run"]
        share = f" ({number} pair{'s' * (number > 1)})" if number else ""
        notes.append(f"Not run: {_listed(missing)}{share}.")
    reasons: dict[str, list[str]] = {}
    for pair in pairs:
        if not pair.testable:
            reasons.setdefault(pair.because, []).append(pair.said)
    for because, spelled in reasons.items():
        names = f"{'; '.join(spelled)}: " if len(spelled) <= 2 else f"{len(spelled)} pairs: "
        notes.append(f"Not testable here, {names}{because}")
    if apart := sum(pair.apart for pair in pairs):
        notes.append(
            f"In {apart} pair{'s' * (apart > 1)} all runs of one row differ from all of the other"
            " in code number, precision or kind of device."
        )
    notes += dict.fromkeys(
        f"Open: {pair.because}." for pair in pairs if pair.state == "open" and pair.because
    )
    return notes


def _listed(names: Sequence[str]) -> str:
    """Names separated by commas, or by semicolons if one contains a comma."""
    return ("; " if any("," in name for name in names) else ", ").join(names)


@dataclass(frozen=True)
class Case:
    """One query and the scores of two systems on it (SimLM Tables 9 and 14, MASTER 9, PAIR 4)."""

    query_id: str
    first: float
    second: float


def flips(first: Scores, second: Scores, measure: str) -> list[Case]:
    """Queries that the first system misses and the second answers, the widest gap first.

    Chosen examples prove nothing, so they are chosen by a rule, and their number is reported too.
    Swap the systems to get the queries that are lost.

    Args:
        first, second: scores on the same queries, in any order.
        measure: e.g. "MRR@10"; a query counts as answered if it is above 0.

    Returns:
        All such queries; equal gaps stay in the order of `first`.

    Raises:
        InputError: the queries differ, or the measure is unknown.

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
