"""The verdict on a claim, pair by pair: what our records support, contradict, leave open, or cannot
test.

A claim is one or more *pairs*: a difference of two rows above 0, several rows level within a
margin, a share inside a range. Each is a number with a standard error over clusters of queries and
over seeds (`measured.compared`).

A pair is *supported* where the test of its border says so at 0.05 (for a margin: two one-sided
tests), *contradicted* where it lies beyond the border and Holm's correction over the claim's pairs
leaves that significant, else *open*. A pair that the runs at hand cannot test, whatever their
numbers, is *not testable here* and decides nothing.

Where a block of the plan has fixed the number of seeds, a pair is judged when both rows have them;
until then it is open.

A claim is *held* where all its testable carrying pairs are supported, *contradicted* where one of
them is, else *open*; where nothing marks some as carrying, all are. Page of the book:
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
"""What pages call the state of an open pair that lacks seeds."""
COUNTED = {
    "supported": "for",
    "contradicted": "against",
    "open": "open",
    WAITS: "waiting for seeds",
    "not run": "not run",
}
"""State of a pair -> what a count of such pairs says."""
Runs = Mapping[str, Sequence[Record]]
"""Row of a paper -> records, one a run."""
LISTED = 6
"""Names that a note lists; of more it gives the number."""
LEVEL = 0.05
NEEDED = float(1.6449 + 1.2816)
"""Standard errors that a margin must measure for two one-sided tests to show equality in four of
five repetitions, where there is no difference.
"""


@dataclass(frozen=True)
class PairResult:
    """One pair of a claim and what became of it.

    Attributes:
        better, worse: row names; of a range `worse` says which.
        measure: what was compared.
        relation: what the claim says of the two: the first "over" the second, "level with" it, "at
            least level with" it, or "within" a range.
        state: one of `STATES`.
        carrying: whether it decides the claim.
        testable: whether runs here can test it; `because` says why not, or why an open pair cannot
            be decided.
        difference, low, high: better minus worse (signs are turned where less is better) with its
            95 % interval (90 % for "level with"), in points or in the measure's own unit; None
            where it is not run.
        unit: of the difference.
        p: of the test that decides it: below 0.05 it lies on that side of the border.
        p_holm: the same for a pair beyond the border, corrected over the claim; 1 for others.
        detectable: difference found with power 0.8.
        seeds: of each row.
        clusters: of queries.
        apart: whether no precision or kind of device trained runs of both rows.
        lacks: (row, what it is trained on) -> seeds that this training lacks before the pair may be
            judged; empty where it does not wait.
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
        """Seeds that its rows lack, however many collections each training searches."""
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
        notes: what the pairs say, a sentence each.
        p: of a judged claim, for a correction over claims: 1 of an open one; else None.
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
        """Seeds that its pairs lack, where an open claim is open for nothing else; else 0."""
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
        """All notes in a row."""
        return " ".join(self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is infinite is None."""
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
            by their averages, each with the same weight.

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
    """The pairs of a claim, each with what is marked of it."""
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
    """A pair with a system that is not run here cannot be tested."""
    if {*check.rows} <= {*known} or not check.testable:
        return check
    because = "A system of the pair is not run here."
    return check.model_copy(update={"testable": False, "because": because})


def _measure(claim: Claim, check: Check, row: str) -> str:
    return claim.answered_by.measure_of(row, check.measure)


def _missing(claim: Claim, check: Check, runs: Mapping[str, Runs]) -> tuple[str, ...]:
    """Row names without a run; where all have one, the measure if no run of a row has it."""
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
    """A pair as it is named, in a state."""
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
    """A pair, before Holm's correction; what lies beyond its border has its p-value in `p_holm`."""
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
        detectable=result.detectable,
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
    """Training of a pair -> seeds that it lacks: to what the plan gives, or to a second one.

    Args:
        claim: of the pair.
        rows: its names.
        sides: each of the rows on a first collection, then on the next.
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
    """Whether two trained sides have no precision and device in common."""
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
            _asked_alike(*sides)
    return terms


def _asked_alike(first: Side, second: Side) -> None:
    """Refuse two systems that were measured on different queries, unless each run has its own."""
    sides = first.runs, second.runs
    if all(len({frozenset(run.query_ids) for run in runs}) == 1 for runs in sides):
        check_same_queries([runs[0] for runs in sides])


def _beyond_this_test_set(pair: PairResult, result: Compared, width: float) -> PairResult:
    """A margin that the queries' own scatter hides, however many seeds there are."""
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
    """Pairs beyond their border are contradicted where they may be judged and Holm's correction
    over the pairs that were run leaves them significant.
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
    """The word for a claim, and the p-value that a correction over claims takes: that of an open
    one can only lower how many survive it.
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
    """How many pairs are in each state, in words; what none is in goes without saying.

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
    """What the pairs say: how many for and against, which were not run, which cannot be tested."""
    counts = Counter(pair.state for pair in pairs)
    waiting = sum(pair.state == "open" and pair.waits > 0 for pair in pairs)
    tested = sum(counts[state] for state in ("supported", "contradicted", "open"))
    spoken = counts | {"open": counts["open"] - waiting, WAITS: waiting, "not run": 0}
    notes = [f"{pairs_counted(spoken)}."] if tested else []
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
            f"In {apart} pair{'s' * (apart > 1)} the two rows were trained with another precision"
            " or on another kind of device."
        )
    notes += dict.fromkeys(
        f"Open: {pair.because}." for pair in pairs if pair.state == "open" and pair.because
    )
    return notes


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
