"""The ledger: every claim of the five papers, and what the records say to it.

Page of the book: ideas/statistics. A claim on "Table 8" of SimLM is judged by the records of study `simlm/table08`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dr_lib.evaluation import Claim, Scores, load_papers, verdict
from dr_lib.lab.records import Record, load_records, recorded_folder

SCALES = ("paper", "gpu", "laptop")  # smoke runs only show that everything works, so they decide nothing


def ledger(scale: str | None = None) -> list[dict[str, Any]]:
    """One entry a claim, in the order of the papers' files.

    Args:
        scale: take the records of this scale; None takes, for each study, the largest scale that has any.

    Returns:
        Values for JSON, namely paper, claim, source, statement, state, note, pairs and ranges measured, and which
        records (scale, collection, seeds) the verdict rests on.
    """
    entries = []
    for key, paper in load_papers().items():
        for claim in paper.claims:
            records = [one for one in records_for(study_of(key, claim), scale) if can_judge(one, claim)]
            found = verdict(claim, scores_by_label(records)).to_dict()
            about = {"paper": key, "source": claim.source, "statement": claim.statement, "metric": claim.metric}
            entries.append(about | found | evidence(records))
    return entries


def can_judge(record: Record, claim: Claim) -> bool:
    """Whether a record was made on the queries that a claim speaks of.

    The collection that a paper trains on may be stood in for by another one, which is what the scales are for. A second
    set of queries may not (TREC DL's few, judged in depth): the first set's runs would be counted once more.
    """
    named = re.search(r"\bDL ?(?:20)?(19|20)\b", claim.metric or "")
    return not named or f"dl-20{named[1]}" in record.data["collection"]["name"]


def study_of(paper: str, claim: Claim) -> str | None:
    """The study whose records judge a claim: "simlm/table08" for Table 8 of SimLM; None for a claim of the text."""
    match = re.fullmatch(r"([a-z]+)(\d+)", claim.table or "")
    return f"{paper}/{match[1]}{int(match[2]):02d}" if match else None


def records_for(study: str | None, scale: str | None = None) -> list[Record]:
    """The book's records of a study at one scale, on the collection that most of them were made on."""
    for name in [scale] if scale else SCALES:
        records = load_records(recorded_folder(name), study) if study else []
        if records:
            digest, _ = Counter(_collection(record) for record in records).most_common(1)[0]
            return [record for record in records if _collection(record) == digest]
    return []


def _collection(record: Record) -> str:
    return record.data["collection"]["digest"]


def scores_by_label(records: Sequence[Record]) -> dict[str, list[Scores]]:
    """Label -> scores, one for each seed in ascending order, as `evaluation.verdict` takes them."""
    scores: dict[str, list[Scores]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        scores.setdefault(record.label, []).append(record.measured)
    return scores


def evidence(records: Sequence[Record]) -> dict[str, Any]:
    """What a verdict rests on: scale, collection, seeds."""
    if not records:
        return {"scale": None, "collection": None, "seeds": []}
    collection = records[0].data["collection"]["name"]
    return {"scale": records[0].scale, "collection": collection, "seeds": sorted({record.seed for record in records})}


def ledger_lines(entries: Sequence[dict[str, Any]]) -> list[str]:
    """The ledger as text: one line a claim, and the count of each state at the end."""
    lines = [f"{entry['state']:>12}  {entry['claim']} ({entry['source']}){_where(entry)}" for entry in entries]
    counts = Counter(entry["state"] for entry in entries)
    return [*lines, "", ", ".join(f"{state} {count}" for state, count in counts.most_common())]


def _where(entry: dict[str, Any]) -> str:
    return f" on {entry['collection']}, {entry['scale']} scale" if entry["scale"] else ""
