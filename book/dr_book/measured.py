"""From records to the numbers of a page: means with intervals, paired differences, and what a page
may show at all.

The one place where a record becomes a number; tables and figures only show what comes out of here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from statistics import median
from typing import Any

import numpy as np

from dr_book.ledger import SCALES, recipe_length
from dr_book.statistics import (
    Interval,
    aligned,
    bootstrap_intervals,
    bootstrap_means,
    crossing,
    detectable_among,
    holm,
    interval_of,
    paired_difference,
    randomisation_tests,
    smallest_detectable_difference,
)
from dr_lib.lab import Record, load_records, recipe_at, recorded_folder
from dr_lib.lab.records import grouped, newest_states

Runs = Mapping[str, Sequence[Record]]
"""Label -> records, one per seed."""
Pair = tuple[str, str]
"""(first, second) labels; a difference is first minus second."""


def recorded(study: str) -> dict[str, list[Record]]:
    """The book's own records of a study, on the collection that has most of them, in its newest
    state: label -> records by seed.

    Args:
        study: name of the study, e.g. "simlm/table08".
    """
    by_collection = recorded_by_collection(study)
    return max(by_collection.values(), key=lambda runs: sum(map(len, runs.values())), default={})


def recorded_by_collection(study: str) -> dict[str, dict[str, list[Record]]]:
    """The book's own records of a study over many collections, each in its newest state: collection
    -> label -> records by seed.
    """
    records = _at_largest_scale(study)
    newest = newest_states(records)
    kept = [
        one
        for one in records
        if one.data["collection"]["digest"] == newest[one.data["collection"]["name"]]
    ]
    return {
        name: grouped([one for one in kept if one.data["collection"]["name"] == name], "label")
        for name in newest
    }


def _at_largest_scale(study: str) -> list[Record]:
    """The book's own records of a study, at the largest scale that has any."""
    return next(filter(None, (load_records(recorded_folder(scale), study) for scale in SCALES)), [])


def _all_recorded() -> list[Record]:
    """Every record of the book, scale by scale."""
    return [record for scale in SCALES for record in load_records(recorded_folder(scale))]


def recorded_studies(prefix: str) -> list[str]:
    """Names of the studies that the book has records of and that begin with `prefix`, in order,
    each once.
    """
    records = _all_recorded()
    return sorted({record.study for record in records if record.study.startswith(prefix)})


def recorded_collections() -> list[dict[str, Any]]:
    """The collections that the book's own records searched: name, digest, sizes, and the set of
    `studies`.

    Each digest once. Not every record counts everything: sizes come from all records of a
    collection.
    """
    found: dict[str, dict[str, Any]] = {}
    for record in _all_recorded():
        data = record.data["collection"]
        own = found.setdefault(data["digest"], {"studies": set()})
        own |= {name: value for name, value in data.items() if value is not None}
        own["studies"].add(record.study)
    return [*found.values()]


def trained_in(recipe: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """What the cost of a run hangs on: base model, pre-training method and last stage; None where
    nothing is trained.
    """
    if (recipe.get("evaluation") or {}).get("kind") == "bm25" or recipe.get("retriever"):
        return None
    return recipe["base"], recipe["objective"]["name"], recipe.get("final") or "retriever1"


def usual_seconds(recipe: Mapping[str, Any]) -> float | None:
    """What a run of the scale "laptop" takes, all its stages included, by the book's records of the
    same trainings.

    Args:
        recipe: of the run, as `Recipe.portable` gives it; one of the scale "smoke" counts as what
            it is at that scale.

    Returns:
        Wall seconds, pre-training by its share of steps, as the median of the records; None where
        there is none.
    """
    smoke, laptop = (_usual_recipe(scale) for scale in ("smoke", "laptop"))
    steps, seconds = recipe["pretraining"]["steps"], []
    if recipe_length(recipe) == recipe_length(smoke):
        steps *= laptop["pretraining"]["steps"] / smoke["pretraining"]["steps"]
    for record in _timed_runs():
        if recipe_length(record.recipe) == recipe_length(laptop) and trained_in(
            record.recipe
        ) == trained_in(recipe):
            pretraining = sum(s for stage, s in record.seconds.items() if "pretrained" in stage)
            made = record.training.get("pretrained", {}).get("steps", steps)
            seconds.append(sum(record.seconds.values()) + pretraining * (steps / made - 1))
    return median(seconds) if seconds else None


@cache
def _usual_recipe(scale: str) -> dict[str, Any]:
    return recipe_at(scale).portable()


@cache
def _timed_runs() -> list[Record]:
    """The trained runs of the scale "laptop" on processors: what a GPU takes says nothing of
    them.
    """
    return [
        record
        for record in load_records(recorded_folder("laptop"))
        if record.seconds and record.training and not record.machine.get("gpus")
    ]


def on_processors(runs: Runs) -> Runs:
    """The runs of machines without a GPU: a table of costs compares times of one kind."""
    kept = {
        label: [record for record in records if not record.machine.get("gpus")]
        for label, records in runs.items()
    }
    return {label: records for label, records in kept.items() if records}


def presentable(runs: Runs) -> Runs:
    """The runs that a page may show: smoke runs only prove that everything works, so they are left
    out.
    """
    return {
        label: records for label, records in runs.items() if records and records[0].scale != "smoke"
    }


def per_query(records: Sequence[Record], measure: str) -> np.ndarray:
    """Scores of one configuration, in percent.

    Args:
        records: the same recipe with different seeds; all must have been measured on the same
            queries.
        measure: e.g. "MRR@10".

    Returns:
        `[seeds, queries]` float64.

    Raises:
        InputError: the records answer different queries.
    """
    return 100.0 * aligned([record.measured for record in records], records[0].measured, measure)


def paired(first: Sequence[Record], second: Sequence[Record], measure: str) -> np.ndarray:
    """Differences in percentage points, `[seeds, queries]` where both have as many seeds, else `[1,
    queries]`, of the means.

    Raises:
        InputError: the two were measured on different queries.
    """
    return 100.0 * paired_difference(
        *([record.measured for record in side] for side in (first, second)), measure
    )


def mean_intervals(runs: Runs, measure: str) -> dict[str, Interval]:
    """Label -> mean over queries and seeds in percent, with its 95 % bootstrap interval, which ends
    at 0 and 100.

    Raises:
        InputError: two configurations were measured on different queries.
    """
    filled = {label: per_query(records, measure) for label, records in runs.items() if records}
    found = bootstrap_intervals(list(filled.values())) if filled else []
    return {
        label: replace(
            own, low=max(own.low, min(0.0, own.mean)), high=min(own.high, max(100.0, own.mean))
        )
        for label, own in zip(filled, found, strict=True)
    }


def differences(pairs: Sequence[Pair], runs: Runs, measure: str) -> dict[Pair, Interval]:
    """First minus second of each pair that was run: difference of the means in points, with its
    interval.

    Both sides resample the same queries, and of as many seeds the same ones; one that has more
    seeds keeps them all, so that differences are those of the means that a page shows.
    """
    sides, run = _sides(pairs, runs, measure)
    drawn = dict(zip(sides, bootstrap_means([*sides.values()]), strict=True)) if sides else {}
    return {
        (a, b): interval_of(float(sides[a].mean() - sides[b].mean()), drawn[a] - drawn[b])
        for a, b in run
    }


def corrected_tests(pairs: Sequence[Pair], runs: Runs, measure: str) -> dict[Pair, float]:
    """p-value of each pair that was run, with Holm's correction: of flips of sign and, over seeds,
    of resamples the larger.
    """
    sides, run = _sides(pairs, runs, measure)
    if not run:
        return {}
    p_values = randomisation_tests([paired(runs[a], runs[b], measure) for a, b in run])
    if max(map(len, sides.values())) > 1:  # flips know nothing of the spread from seed to seed
        drawn = dict(zip(sides, bootstrap_means([*sides.values()]), strict=True))
        for number, (a, b) in enumerate(run):
            if max(len(sides[a]), len(sides[b])) > 1:
                p_values[number] = max(
                    p_values[number],
                    crossing(sides[a].mean() - sides[b].mean(), drawn[a] - drawn[b]),
                )
    return dict(zip(run, map(float, holm(p_values)), strict=True))


def detectable(pairs: Sequence[Pair], runs: Runs, measure: str) -> dict[Pair, float]:
    """The smallest difference in points that the queries, and where there are several the seeds, of
    each pair can detect.

    Power 0.8, level 0.05; with several seeds from the resamples of `differences`, as a verdict has
    it.
    """
    sides, run = _sides(pairs, runs, measure)
    found = {
        (a, b): 100 * smallest_detectable_difference(paired(runs[a], runs[b], measure) / 100)
        for a, b in run
    }
    if max(map(len, sides.values()), default=1) > 1:
        drawn = dict(zip(sides, bootstrap_means([*sides.values()]), strict=True))
        found |= {
            (a, b): detectable_among(drawn[a] - drawn[b])
            for a, b in run
            if max(len(sides[a]), len(sides[b])) > 1
        }
    return found


def _sides(
    pairs: Sequence[Pair], runs: Runs, measure: str
) -> tuple[dict[str, np.ndarray], list[Pair]]:
    """Scores `[seeds, queries]` in percent of every label of the pairs that were run, queries in
    one order; these pairs.
    """
    run = [pair for pair in pairs if all(runs.get(label) for label in pair)]
    labels = dict.fromkeys(label for pair in run for label in pair)
    first = next((runs[label][0].measured for label in labels), None)
    return {
        label: 100.0 * aligned([one.measured for one in runs[label]], first, measure)
        for label in labels
    }, run
