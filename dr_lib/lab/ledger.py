"""The ledger: every claim of the five papers, and how the records judge it.

Page of the book: ideas/statistics. Which records answer a claim stands in `book/papers/*.yaml`, under `answered_by`:
study, labels, measure, collection and stage are all named there, and a record that differs in one of them is not used.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.evaluation import AnsweredBy, Claim, Scores, Verdict, load_papers, verdict
from dr_lib.evaluation.statistics import DRAWS
from dr_lib.files import json_digest, read_sealed, sealed, write_json
from dr_lib.lab.recipe import recipe_at
from dr_lib.lab.records import Record, load_records, newest_states, recorded_folder
from dr_lib.stages import code_digest

OF_VERDICTS = TypeAdapter(Verdict)
SCALES = ("paper", "gpu", "laptop")  # smoke runs only show that everything works, so they decide nothing


def ledger(scale: str | None = None) -> list[dict[str, Any]]:
    """One entry per claim, in the order of the papers' files.

    Args:
        scale: take the records of this scale; None takes, for each claim, the largest scale that has any.

    Returns:
        One mapping a claim, for JSON, with paper, source, statement, metric, page that answers it, all of `Verdict`, all of
        `AnsweredBy` (None where nothing can answer), and the records that the verdict rests on, with scale and seeds.
    """
    entries, read = [], cache(load_records)  # many claims share their records
    for key, paper in load_papers().items():
        for claim in paper.claims:
            found, records = answer(claim, scale=scale, read=read)
            about = {"paper": key, "source": claim.source, "statement": claim.statement, "metric": claim.metric}
            about["page"] = claim.page or (paper.table(claim.table).page if claim.table else None)
            fields = claim.answered_by.model_dump(mode="json") if claim.answered_by else dict.fromkeys(AnsweredBy.model_fields)
            fields["carrying"] = fields.pop("pairs")
            about["trained"] = claim.trained
            entries.append(about | fields | found.to_dict() | evidence(records))
    return entries


def answer(
    claim: Claim,
    live: Sequence[Record] | None = None,
    *,
    scale: str | None = None,
    read: Callable = load_records,
    draws: int = DRAWS,
) -> tuple[Verdict, list[Record]]:
    """The verdict on a claim, and the records that it rests on.

    Args:
        claim: of a paper.
        live: judge by these runs, on whatever one collection they searched; None judges by the book's records.
        scale: of the book's records; None takes the largest that has any.
        read: (folder, study) -> records.
        draws: resamples; a few hundred do for planning.
    """
    if claim.answered_by is None:
        return verdict(claim, {}), []
    for name in [scale] if scale else SCALES:
        known = live if live is not None else read(recorded_folder(name), claim.answered_by.study)
        runs = answering(claim.answered_by, known, anywhere=live is not None)
        if runs:
            break
    whole = live is not None or runs.keys() == {*claim.answered_by.collections}
    records = [record for own in runs.values() for chosen in own.values() for record in chosen]
    return (_judged(claim, runs, draws), records) if whole else (verdict(claim, {}), [])


def _judged(claim: Claim, runs: dict[str, dict[str, list[Record]]], draws: int) -> Verdict:
    """The verdict on a claim: the one of an earlier call where claim, scores and code were the same, for resampling takes long."""
    measured = [[place, {row: [one.scores for one in some] for row, some in own.items()}] for place, own in runs.items()]
    key = json_digest([claim.model_dump_json(), measured, draws, code_digest(answer)])
    path = places.cache_root() / "verdicts" / f"{claim.id}-{draws}.json"
    with suppress(InputError):  # none yet, or a damaged one
        if (kept := read_sealed(path, "verdict", ""))["key"] == key:
            return OF_VERDICTS.validate_python(kept["verdict"])
    scores = {
        place: {row: [_scores(record, row, claim) for record in records] for row, records in own.items()}
        for place, own in runs.items()
    }
    found = verdict(claim, scores, draws=draws)
    write_json(path, sealed({"key": key, "verdict": found.to_dict()}))
    return found


def answering(named: AnsweredBy, records: Sequence[Record], anywhere: bool = False) -> dict[str, dict[str, list[Record]]]:
    """Collection -> row of the paper -> records by seed: those of the study, label, collection and stage that are named.

    Where a collection changed in the course of time, those on its newest state count. `anywhere` takes any collection.
    """
    chosen: list[tuple[str, Record]] = []
    for row, label in named.rows.items():
        for record in sorted(records, key=lambda record: record.seed):
            place, bm25 = record.data["collection"]["name"], record.recipe.get("evaluation", {}).get("kind") == "bm25"
            stage = named.stage_of(row) in ("none", record.recipe.get("final") or "retriever1")  # once the default was not kept
            if (
                (record.study, record.label) == (named.study, label)
                and (anywhere or place in named.collections)
                and (bm25 or stage)
            ):
                chosen.append((row, record))
    newest, runs = newest_states([record for _, record in chosen]), defaultdict(dict)
    for row, record in chosen:
        place = record.data["collection"]["name"]
        if record.data["collection"]["digest"] == newest[place]:
            runs[place].setdefault(row, []).append(record)
    return {place: runs[place] for place in sorted(runs, key=[*named.collections, *runs].index)}


def _scores(record: Record, row: str, claim: Claim) -> Scores:
    """Scores of a row; a reciprocal rank also says whether something relevant is among the first few."""
    values, measure = dict(record.measured.values), claim.answered_by.measure
    for check in claim.checks if isinstance(measure, dict) else ():
        values |= {check.measure: values[measure[row]]} if measure[row] in values else {}
    cut = re.fullmatch(r"Success@([1-9]|10)", measure) if isinstance(measure, str) else None
    if cut and measure not in values and "MRR@10" in values:
        values[measure] = values["MRR@10"] > 1 / (int(cut[1]) + 0.5)
    return Scores(record.query_ids, values)


def evidence(records: Sequence[Record]) -> dict[str, Any]:
    """What a verdict rests on: scale, whether its recipe is an older one, seeds, names of the records' files."""
    scale, seeds = records[0].scale if records else None, sorted({record.seed for record in records})
    files = sorted({record.file_name for record in records})
    return {"scale": scale, "older_recipe": of_older_recipe(records), "seeds": seeds, "records": files}


def of_older_recipe(records: Sequence[Record]) -> bool:
    """Whether none of some records has the recipe that their scale has now; of a sweep one row has it.

    Records of encoders that are used as they come are of no recipe.
    """
    trained = [record for record in records if "finetuning" in record.recipe and not record.recipe.get("retriever")]
    now = {scale: recipe_length(recipe_at(scale).portable()) for scale in {record.scale for record in trained}}
    return bool(trained) and not any(recipe_length(record.recipe) == now[record.scale] for record in trained)


def recipe_length(recipe: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Length of passages and steps of fine-tuning, which no study of a method varies in all its rows; None where unknown.

    Args:
        recipe: as `Recipe.portable` gives it.
    """
    return recipe.get("passage_length"), recipe.get("finetuning", {}).get("steps")


def ledger_lines(entries: Sequence[dict[str, Any]]) -> list[str]:
    """The ledger as text: one line a claim, and the count of each state at the end."""
    # of one seed also which way it leans
    states = [f"one seed, {entry['leans']}" if entry["state"] == "one seed" else entry["state"] for entry in entries]
    claims = (f"{entry['claim']} ({entry['source']}){_where(entry)}" for entry in entries)
    lines = [f"{state:>28}  {claim}" for state, claim in zip(states, claims, strict=True)]
    return [*lines, "", ", ".join(f"{state}: {count}" for state, count in Counter(states).most_common())]


def _where(entry: dict[str, Any]) -> str:
    if not entry["scale"]:
        return ""
    places = entry["collection"] if isinstance(entry["collection"], str) else f"{len(entry['collection'])} collections"
    parts = f", {len(entry['pairs'])} of {entry['comparisons']} pairs" if entry["missing"] else ""
    parts += ", OLDER RECIPE" * entry["older_recipe"]
    return f" on {places}, {entry['scale']} scale{parts}{', STAND-IN' if entry['protocol'] == 'stand-in' else ''}"
