"""The ledger: every claim of the five papers, and how the records judge it.

Page of the book: ideas/statistics. `answered_by` in `book/papers/*.yaml` says which records answer
a claim: labels of a study, measure, collection and stage. All recorded runs of these configurations
count, including those made for other studies.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scipy.stats import false_discovery_control

from dr_book.measured import SCALES, all_runs, by_collection
from dr_book.papers import AnsweredBy, Claim, Table, load_papers, number
from dr_book.verdicts import STATES, WAITS, Verdict, verdict
from dr_lib.lab.records import Record, load_records, recorded_folder

SIZE = re.compile(r"\bsizes?\b|\bhow (?:far|much|many|little)\b|\d")
"""Words that name a size in the unchecked part of a claim."""
SHOWN = ("supported", "open", "contradicted")
"""States of a pair that was run and could be tested."""
PAIR_STATES = ("supported", "open", WAITS, "contradicted")
"""Those states on pages and bars: an open pair that lacks seeds waits (`pair_state`)."""
ANSWERED = ("study", "measure", "collection", "stage", "protocol", "lacks", "why", "block")
"""Fields of `AnsweredBy` in an entry."""


def ledger(scale: str | None = None) -> list[dict[str, Any]]:
    """One entry per claim, in the order of the papers' files.

    Args:
        scale: use the records of this scale; None uses, for each claim, the largest scale with any.

    Returns:
        One mapping per claim, for JSON, with paper, source, statement, metric, the page that
        answers it; claim, verdict, counts, pairs, missing and notes as in `Verdict`; protocol,
        study, measure, collection, stage, lacks, why and block as in `AnsweredBy` (None if nothing
        can answer it); and scale, seeds and names of the records that the verdict rests on. A pair
        has the paper's own difference as `paper`, if its table has one.
    """
    entries = []
    for key, paper in load_papers().items():
        for claim in paper.claims:
            judgement, records = answer(claim, scale=scale)
            table = paper.table(claim.table) if claim.table else None
            about = {
                "paper": key,
                "source": claim.source,
                "statement": claim.statement,
                "metric": claim.metric,
                "page": claim.page or (table.page if table else None),
                "trained": claim.trained,
            }
            named = claim.answered_by
            about |= {name: getattr(named, name, None) for name in ANSWERED}
            entries.append(about | described(claim, judgement, table) | evidence(records))
    return over_claims(entries)


def over_claims(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries; judged claims have their p-value after the correction of Benjamini and Hochberg
    (1995) as `p_over_claims`.

    The family is all judged claims, including open ones: if it were only the decided ones, whose
    p-values are all below 0.05, none could be rejected by the correction.

    Example:
        >>> judged = over_claims([{"p": 0.01}, {"p": 0.04}, {"p": 1.0}, {"p": None}])
        >>> [round(entry["p_over_claims"], 2) for entry in judged[:3]], judged[3]
        ([0.03, 0.06, 1.0], {'p': None})
    """
    p_values = [entry["p"] for entry in entries if entry["p"] is not None]
    corrected = iter(false_discovery_control(p_values).tolist())
    return [
        entry if entry["p"] is None else entry | {"p_over_claims": next(corrected)}
        for entry in entries
    ]


def described(claim: Claim, judgement: Verdict, table: Table | None) -> dict[str, Any]:
    """A verdict as plain values, with the unchecked part of the claim and the paper's difference of
    each pair, as `paper`.
    """
    judged = judgement.to_dict() | {"unchecked": claim.unchecked}
    for pair in judged["pairs"]:
        pair["paper"] = printed(claim, table, pair["better"], pair["worse"])
    return judged


def printed(claim: Claim, table: Table | None, better: str, worse: str) -> float | None:
    """The paper's own difference of two rows, signed as ours; None if its table has none."""
    if not table or claim.metric not in table.columns or not {better, worse} <= {*table.labels()}:
        return None
    values = [number(table.cell(row, claim.metric)) for row in (better, worse)]
    if None in values:
        return None
    return round((values[0] - values[1]) * (-1 if claim.lower_is_better else 1), 6)


def answer(
    claim: Claim, live: Sequence[Record] | None = None, *, scale: str | None = None
) -> tuple[Verdict, list[Record]]:
    """The verdict on a claim, and the records that it rests on.

    Args:
        claim: of a paper.
        live: judge by these runs, on whichever collection they searched; None judges by the book's
            records.
        scale: of the book's records; None takes the largest with any.
    """
    if claim.answered_by is None:
        return verdict(claim, {}), []
    for name in [scale] if scale else SCALES:
        known = (
            load_records(recorded_folder(name), claim.answered_by.study) if live is None else live
        )
        runs = answering(claim.answered_by, known, anywhere=live is not None)
        if runs:
            break
    if live is None and runs.keys() != {*claim.answered_by.collections}:
        return verdict(claim, {}), []
    records = [
        record for by_row in runs.values() for recorded in by_row.values() for record in recorded
    ]
    return verdict(claim, runs), records


def answering(
    named: AnsweredBy, records: Sequence[Record], anywhere: bool = False
) -> dict[str, dict[str, list[Record]]]:
    """Collection -> row of the paper -> records, one a run: those of the named study, label,
    collection and stage, and all others of the same configuration.

    If a collection changed over time, only records on its newest state count. `anywhere` accepts
    any collection, and only the given records.
    """
    chosen: list[tuple[str, Record]] = []
    for row, label in named.rows.items():
        for record in sorted(records, key=lambda record: record.seed):
            bm25 = record.evaluation.get("kind") == "bm25"
            # old recipes do not store the default
            stage = named.stage_of(row) in ("none", record.recipe.get("final") or "retriever1")
            place = anywhere or record.searched_on["name"] in named.collections
            if (record.study, record.label) == (named.study, label) and place and (bm25 or stage):
                chosen.append((row, record))
    runs = by_collection(chosen)
    if not anywhere:
        runs = {
            place: {row: all_runs(recorded) for row, recorded in by_row.items()}
            for place, by_row in runs.items()
        }
    return {place: runs[place] for place in sorted(runs, key=[*named.collections, *runs].index)}


def evidence(records: Sequence[Record]) -> dict[str, Any]:
    """What a verdict rests on: scale, code numbers (`epochs`; 0: unknown), seeds, names of the
    records, and `looks`: the number of days on which they came in, when somebody may have looked.
    """
    return {
        "scale": records[0].scale if records else None,
        "epochs": sorted({record.epoch or 0 for record in records}),
        "seeds": sorted({record.seed for record in records}),
        "looks": len({record.created[:10] for record in records}),
        "records": sorted({record.name for record in records}),
    }


def pairs(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every pair of some claims with its claim, paper and protocol, for the figure of all claims at
    a glance.

    Example:
        >>> [pair["difference"] for pair in pairs([{"claim": "x", "paper": "simlm", "protocol":
        ...     "scaled", "pairs": [{"difference": 1.5}]}])]
        [1.5]
    """
    return [
        {name: entry[name] for name in ("claim", "paper", "protocol")} | pair
        for entry in entries
        for pair in entry["pairs"]
    ]


def counts(entries: Iterable[dict[str, Any]]) -> dict[str, int]:
    """State -> number of pairs of some claims."""
    states = [pair["state"] for pair in pairs(entries)]
    return {state: states.count(state) for state in STATES}


def pair_state(pair: Mapping[str, Any]) -> str:
    """The state of a pair as on pages: an open one that lacks seeds waits for them.

    Example:
        >>> [pair_state({"state": "open", "waits": number}) for number in (0, 2)]
        ['open', 'waits for seeds']
    """
    return WAITS if pair["state"] == "open" and pair.get("waits") else pair["state"]


def direction_only(pair: Mapping[str, Any]) -> bool:
    """Whether a pair is supported, but the paper's difference is outside our interval."""
    ends = (pair.get("paper"), pair["low"], pair["high"])
    if pair["state"] != "supported" or pair["relation"] != "over" or None in ends:
        return False
    return not ends[1] <= ends[0] <= ends[2]


def direction_held(entry: Mapping[str, Any]) -> str:
    """Text of the badge of a claim that is held only in its direction, with our size and the
    paper's if one pair decides it; "" for any other claim.

    Such a claim has an unchecked size, or the paper's difference of a carrying pair is outside our
    interval.

    Example:
        >>> pair = {"state": "supported", "relation": "over", "carrying": True}
        >>> pair |= {"difference": 0.7, "low": 0.4, "high": 1.0, "paper": 3.0}
        >>> direction_held({"verdict": "held", "unchecked": "", "pairs": [pair]})
        'direction held, here 0.7, paper 3.0'
    """
    if entry["verdict"] != "held":
        return ""
    carrying = [pair for pair in entry["pairs"] if pair["carrying"]]
    if not SIZE.search(entry["unchecked"] or "") and not any(map(direction_only, carrying)):
        return ""
    sizes = sizes_of(entry)
    return "direction held" + (
        ", here {:.1f}, paper {:.1f}".format(*sizes[0]) if len(sizes) == 1 else ""
    )


def sizes_of(entry: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Our difference and the paper's, for the carrying pairs of a claim that have both."""
    pairs = ((pair["difference"], pair["paper"]) for pair in entry["pairs"] if pair["carrying"])
    return [pair for pair in pairs if None not in pair]


def state_of(entry: Mapping[str, Any]) -> str:
    """The verdict of a claim as on pages: what of it is held, or what it is waiting for."""
    if entry["verdict"] == "open" and entry.get("waits"):
        return f"open: {WAITS}"
    return direction_held(entry) or entry["verdict"]


def ledger_lines(entries: Sequence[dict[str, Any]]) -> list[str]:
    """The ledger as text: one line a claim, and the count of claims and pairs at the end."""
    lines = [
        f"{state_of(entry):>31}  {entry['claim']} ({entry['source']}){_where(entry)}"
        for entry in entries
    ]
    states = Counter(pair_state(pair) for pair in pairs(entries))
    order = (*PAIR_STATES, *(state for state in STATES if state not in PAIR_STATES))
    claims = Counter(entry["verdict"] for entry in entries)
    return [
        *lines,
        "",
        f"claims: {', '.join(f'{number} {word}' for word, number in claims.most_common())}",
        f"pairs: {', '.join(f'{states[word]} {word}' for word in order)}",
    ]


def _where(entry: dict[str, Any]) -> str:
    if not entry["scale"]:
        return ""
    places = (
        entry["collection"]
        if isinstance(entry["collection"], str)
        else f"{len(entry['collection'])} collections"
    )
    number = Counter(map(pair_state, entry["pairs"]))
    states = ", ".join(f"{number[state]} {state}" for state in PAIR_STATES if number[state])
    return f" on {places}, {entry['scale']} scale, {entry['protocol']}: {states or 'none tested'}"
