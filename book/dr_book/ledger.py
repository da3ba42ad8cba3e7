"""The ledger: every claim of the five papers, and how the records judge it.

Page of the book: ideas/statistics. Which records answer a claim stands in `book/papers/*.yaml`,
under `answered_by`: study, labels, measure, collection and stage are all named there, and a record
that differs in one of them is not used.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import scipy
from pydantic import TypeAdapter

from dr_book.papers import AnsweredBy, Claim, load_papers
from dr_book.statistics import DRAWS, POWER
from dr_book.verdicts import UNTRAINED, Verdict, verdict
from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores
from dr_lib.files import json_digest, read_sealed, sealed, write_json
from dr_lib.lab.records import Record, load_records, newest_states, recorded_folder
from dr_lib.places import notebook_of
from dr_lib.stages import code_digest, spell_seconds

OF_VERDICTS = TypeAdapter(Verdict)
# smoke runs only show that everything works, so they decide nothing
SCALES = ("paper", "gpu", "laptop")


def ledger(scale: str | None = None) -> list[dict[str, Any]]:
    """One entry per claim, in the order of the papers' files.

    Args:
        scale: take the records of this scale; None takes, for each claim, the largest scale that
            has any.

    Returns:
        One mapping a claim, for JSON, with paper, source, statement, metric, page that answers it,
        all of `Verdict`, all of `AnsweredBy` (None where nothing can answer), and the records that
        the verdict rests on, with scale and seeds.
    """
    entries = []
    for key, paper in load_papers().items():
        for claim in paper.claims:
            found, records = answer(claim, scale=scale)
            about = {
                "paper": key,
                "source": claim.source,
                "statement": claim.statement,
                "metric": claim.metric,
            }
            about["page"] = claim.page or (paper.table(claim.table).page if claim.table else None)
            fields = (
                claim.answered_by.model_dump(mode="json")
                if claim.answered_by
                else dict.fromkeys(AnsweredBy.model_fields)
            )
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
        live: judge by these runs, on whatever one collection they searched; None judges by the
            book's records.
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
    """The verdict on a claim: the one of an earlier call where claim, scores and code were the
    same, for resampling takes long.
    """
    measured = [
        [place, {row: [one.scores for one in some] for row, some in own.items()}]
        for place, own in runs.items()
    ]
    key = json_digest([claim.model_dump_json(), measured, draws, code_digest(answer)])
    path = places.cache_root() / "verdicts" / f"{claim.id}-{draws}.json"
    with suppress(InputError):  # none yet, or a damaged one
        if (kept := read_sealed(path, "verdict", ""))["key"] == key:
            return OF_VERDICTS.validate_python(kept["verdict"])
    scores = {
        place: {
            row: [_scores(record, row, claim) for record in records] for row, records in own.items()
        }
        for place, own in runs.items()
    }
    found = verdict(claim, scores, draws=draws)
    write_json(path, sealed({"key": key, "verdict": found.to_dict()}))
    return found


def answering(
    named: AnsweredBy, records: Sequence[Record], anywhere: bool = False
) -> dict[str, dict[str, list[Record]]]:
    """Collection -> row of the paper -> records by seed: those of the study, label, collection and
    stage that are named.

    Where a collection changed in the course of time, those on its newest state count. `anywhere`
    takes any collection.
    """
    chosen: list[tuple[str, Record]] = []
    for row, label in named.rows.items():
        for record in sorted(records, key=lambda record: record.seed):
            place, bm25 = (
                record.data["collection"]["name"],
                record.recipe.get("evaluation", {}).get("kind") == "bm25",
            )
            # once the default was not kept
            stage = named.stage_of(row) in ("none", record.recipe.get("final") or "retriever1")
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
    """Scores of a row; a reciprocal rank also says whether something relevant is among the first
    few.
    """
    values, measure = dict(record.measured.values), claim.answered_by.measure
    for check in claim.checks if isinstance(measure, dict) else ():
        values |= {check.measure: values[measure[row]]} if measure[row] in values else {}
    cut = re.fullmatch(r"Success@([1-9]|10)", measure) if isinstance(measure, str) else None
    if cut and measure not in values and "MRR@10" in values:
        values[measure] = values["MRR@10"] > 1 / (int(cut[1]) + 0.5)
    return Scores(record.query_ids, values)


def evidence(records: Sequence[Record]) -> dict[str, Any]:
    """What a verdict rests on: scale, epochs (0 where one is not known), seeds, names of the
    records.
    """
    scale, seeds = (
        records[0].scale if records else None,
        sorted({record.seed for record in records}),
    )
    return {
        "scale": scale,
        "epochs": sorted({record.epoch or 0 for record in records}),
        "seeds": seeds,
        "records": sorted({record.name for record in records}),
    }


def recipe_length(recipe: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Length of passages and steps of fine-tuning, which no study of a method varies in all its
    rows; None where unknown.

    Args:
        recipe: as `Recipe.portable` gives it.
    """
    return recipe.get("passage_length"), recipe.get("finetuning", {}).get("steps")


def ledger_lines(entries: Sequence[dict[str, Any]]) -> list[str]:
    """The ledger as text: one line a claim, and the count of each state at the end."""
    # of one seed also which way it leans
    states = [
        f"one seed, {entry['leans']}" if entry["state"] == "one seed" else entry["state"]
        for entry in entries
    ]
    claims = (f"{entry['claim']} ({entry['source']}){_where(entry)}" for entry in entries)
    lines = [f"{state:>28}  {claim}" for state, claim in zip(states, claims, strict=True)]
    return [
        *lines,
        "",
        ", ".join(f"{state}: {count}" for state, count in Counter(states).most_common()),
    ]


def _where(entry: dict[str, Any]) -> str:
    if not entry["scale"]:
        return ""
    places = (
        entry["collection"]
        if isinstance(entry["collection"], str)
        else f"{len(entry['collection'])} collections"
    )
    parts = f", {len(entry['pairs'])} of {entry['comparisons']} pairs" if entry["missing"] else ""
    return (
        f" on {places}, {entry['scale']}"
        f" scale{parts}{', STAND-IN' if entry['protocol'] == 'stand-in' else ''}"
    )


# What to run next ---------------------------------------------------------------------------------
# Sweeps are ranked by the claims that they can be expected to decide in an hour. What a claim still
# needs follows from the ledger; what a run costs and how far seeds and queries scatter, from the
# records. A claim counts with the chance that its intervals will leave the border, where the
# differences seen so far are the best guess of the true ones.


DECIDED = ("held", "held in part", "reversed")
SEED_NOISE, SPREAD, ERROR, SECONDS = 0.007, 0.03, 0.012, 600.0
"""Scores' spread from seed to seed, between methods and their standard error, and the cost of a
run, where no record says.
"""
ROUGH_DRAWS = 400  # resamples of a verdict: enough to rank
HOPELESS = 0.05


@dataclass(frozen=True)
class Sweep:
    """A study brought to a number of seeds.

    Attributes:
        study: its name.
        seeds: how many each of its configurations will have.
        runs: label, collection and seed of those that are missing.
        seconds: what they will take.
        claims: claim -> chance that it is decided afterwards.
    """

    study: str
    seeds: int
    runs: tuple[tuple[str, str, int], ...]
    seconds: float
    claims: dict[str, float]

    @property
    def gain(self) -> float:
        """Claims that it can be expected to decide."""
        return sum(self.claims.values())


@dataclass
class Plan:
    """Sweeps in the order in which to run them, and claims with the reason why no run, or none in
    the time, decides them.
    """

    scale: str
    sweeps: list[Sweep] = field(default_factory=list)
    hopeless: dict[str, str] = field(default_factory=dict)
    too_long: dict[str, str] = field(default_factory=dict)


def plan(
    hours: float,
    *,
    scale: str = "laptop",
    seeds: Sequence[int] = (2, 3, 5),
    read: Callable = load_records,
) -> Plan:
    """Choose sweeps for some hours of a machine like the one that the records were made on.

    Args:
        hours: what may be spent.
        scale: of the records.
        seeds: how many seeds a study may be brought to. With 1 a claim counts as decided by the way
            it leans.
        read: (folder, study) -> records.
    """
    made, judged, result = defaultdict(dict), defaultdict(list), Plan(scale)
    for claim in (claim for paper in load_papers().values() for claim in paper.claims):
        if claim.answered_by is None:
            result.hopeless[claim.id] = claim.unanswerable or "no study is named that answers it"
            continue
        found, _ = answer(claim, scale=scale, read=read, draws=ROUGH_DRAWS)
        if (found.leans if min(seeds) == 1 else found.state) not in DECIDED:
            judged[claim.answered_by.study].append((claim, found))
    for study in judged:
        records = read(recorded_folder(scale), study)
        for record in records:
            made[study][record.label, record.data["collection"]["name"], record.seed] = sum(
                record.seconds.values()
            )
    typical = _typical([found for own in judged.values() for _, found in own])
    usual = np.median([cost for own in made.values() for cost in own.values() if cost] or [SECONDS])
    options = {
        (study, n): _sweep(study, n, own, made[study], usual, typical)
        for study, own in judged.items()
        for n in seeds
    }
    for study, own in judged.items():
        for claim, found in own:
            if max(options[study, n].claims[claim.id] for n in seeds) < HOPELESS:
                size = ", ".join(f"{100 * abs(pair.interval.mean):.2f}" for pair in found.pairs)
                result.hopeless[claim.id] = (
                    f"its differences ({size} points) are too small for these queries, whatever the"
                    " seeds"
                )
            elif min(options[study, n].seconds for n in seeds) > 3600 * hours:
                result.too_long[claim.id] = (
                    f"{study} takes {spell_seconds(min(options[study, n].seconds for n in seeds))}"
                )
    left = 3600 * hours
    while ranked := [one for one in options.values() if one.gain > 0 and one.seconds <= left]:
        best = max(ranked, key=lambda one: one.gain / max(one.seconds, 1.0))
        options = {key: one for key, one in options.items() if one.study != best.study}
        left -= best.seconds
        result.sweeps.append(best)
    return result


def _sweep(
    study: str,
    seeds: int,
    claims: list[tuple[Claim, Verdict]],
    made: dict,
    usual: float,
    typical: tuple,
) -> Sweep:
    """What a study still lacks to so many seeds, its cost, and the chance of each claim."""
    asked = {
        claim.id: {*product(claim.answered_by.rows.values(), claim.answered_by.collections)}
        for claim, _ in claims
    }
    needed = {(label, place) for label, place, _ in made}.union(*asked.values())
    whole = [
        (*one, seed)
        for one in sorted(needed)
        for seed in range(1 if one[0] in UNTRAINED else seeds)
    ]
    runs = tuple(one for one in whole if one not in made)
    # a record without times was read off other runs
    known = {one[:2]: cost for one, cost in made.items() if cost}
    mean = float(np.mean([cost for cost in made.values() if cost])) if known else usual
    seconds = sum(known.get(run[:2], mean) for run in runs)
    # a claim whose runs are all made is as open after the sweep as before it
    lacking = {run[:2] for run in runs}
    chances = {
        claim.id: (
            chance(found, 1 if not claim.trained else seeds, typical)
            if asked[claim.id] & lacking
            else 0.0
        )
        for claim, found in claims
    }
    return Sweep(study, seeds, runs, seconds, chances)


def _typical(verdicts: Sequence[Verdict]) -> tuple[float, float, float]:
    """Noise from seed to seed, spread of the differences and their standard error, as medians of
    what is known.
    """
    noise = [one.seed_noise for one in verdicts if one.seed_noise]
    pairs = [pair for one in verdicts for pair in one.pairs]
    spread, error = (
        [abs(pair.interval.mean) for pair in pairs],
        [pair.detectable / POWER for pair in pairs],
    )
    return tuple(
        float(np.median(own or [other]))
        for own, other in ((noise, SEED_NOISE), (spread, SPREAD), (error, ERROR))
    )


def chance(found: Verdict, seeds: int, typical: tuple[float, float, float]) -> float:
    """The chance that a claim is held or reversed once each of its rows has so many seeds.

    The estimate of a difference moves as its noise from seed to seed shrinks from what it is to
    what it will be; a difference that nobody has seen yet lies around 0.
    """
    noise, spread, error = typical
    noise = 2 * (found.seed_noise or noise) ** 2
    had, reach = (
        max(found.fewest_seeds, 1),
        scipy.stats.norm.ppf(1 - 0.05 / 2 / max(found.comparisons, 1)),
    )
    pairs = [
        (one.interval.mean, one.detectable / POWER, noise * max(1 / had - 1 / seeds, 0))
        for one in found.pairs
    ]
    pairs += [(0.0, error, spread**2 + noise / seeds)] * max(
        found.comparisons - len(found.pairs), not found.pairs
    )
    held = reversed_ = 1.0
    for mean, known, moves in pairs:
        # of one seed it holds no noise of seeds
        queries = max(known**2 - (noise / had if had > 1 else 0), 1e-10)
        # Of few seeds the spread is hardly known: Student's quantile for their part, the normal one
        # for the queries'.
        freedom = (seeds - 1) * (max(found.comparisons, 1) + 1)
        by_seeds = (
            scipy.stats.t.isf(scipy.stats.norm.sf(reach), freedom) ** 2 * noise / seeds
            if seeds > 1
            else 0.0
        )
        border, width = np.sqrt(reach**2 * queries + by_seeds), np.sqrt(moves) + 1e-6
        held *= scipy.stats.norm.cdf((mean - border) / width)
        reversed_ *= 1 - scipy.stats.norm.cdf((-mean - border) / width)
    return float(held + (1 - reversed_))


def plan_lines(made: Plan) -> list[str]:
    """A plan in words: the sweeps, the commands that run them, and the claims that they leave
    open.
    """
    lines = [
        f"{one.gain / max(one.seconds, 1) * 3600:5.2f} claims an hour: {one.study} to {one.seeds}"
        f" seeds, {len(one.runs)} runs, {spell_seconds(one.seconds)}, {one.gain:.1f} claims"
        " expected"
        for one in made.sweeps
    ]
    commands = []
    for one in made.sweeps:
        notebook = notebook_of(one.study)
        command = (
            f".venv/bin/dr-lib batch {notebook} --scale {made.scale} -p seeds"
            f' "{[*range(one.seeds)]}"'
        )
        commands.append(
            command if notebook else f"# {one.study}: its notebook is still to be written"
        )
    # one notebook may hold several studies
    lines += [part for command in dict.fromkeys(commands) for part in ("", command)]
    for title, own in (
        ("these hours are too few for", made.too_long),
        ("no run decides", made.hopeless),
    ):
        lines += [
            "",
            f"{title} {len(own)} claims:",
            *(f"  {name}: {why}" for name, why in own.items()),
        ]
    return lines
