"""Making a record again: a run is rebuilt from its record alone, and a certificate says how the two
compare. Page of the book: reference/records.

- **equal**: all weights have the recorded digests, and every query its score.
- **scores equal**: every query has its score to the last digit.
- **equivalent**: the means differ by no more than a margin. It is 0.5 points, which on SQuAD about
  85 of 100 pairs of trainings of one recipe keep; where fewer than 80 would, it is what 95 keep.
- **different**: the means differ by more than two trainings of one recipe do in 95 of 100 cases.

Processors round differently, and a training carries that on until its weights are as far from the
recorded ones as those of another seed. So what a faithful run may differ by is known from the
seeds: a difference d of two runs has the standard error s sqrt(2), where s is pooled over all
recipes that the book's records have several seeds of, on that collection and at that stage. The
queries are the same in both, and add nothing. A certificate says how often two faithful runs come
as near as the margin, and gives the interval of d; where d is outside of chance and inside the
margin, the runs are both equivalent and different.

The same rule compares what the book's records hold twice: trainings of one recipe, data and seed on
other machines or by other commits.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from dr_book.data.sheets import sheets
from dr_book.measured import SCALES, Side, aligned, all_recorded, pools_of, unit_of
from dr_book.search import named_record, unknown_study
from dr_book.statistics import SeedVariance
from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.lab.pipeline import pipeline
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.records import (
    FILES,
    Record,
    epoch,
    load_records,
    publish,
    read_all,
    recorded_folder,
)
from dr_lib.lab.study import Run, data_facts, execute
from dr_lib.places import find_data
from dr_lib.stages import Cache
from dr_lib.training import machine

MARGIN, LEVEL, ENOUGH = 0.5, 0.95, 0.8
GOOD = ("equal", "scores equal", "equivalent", "equivalent and different")
"""Outcomes that confirm a record."""


def verify(
    record: Record, *, collection: str | None = None, margin: float = MARGIN
) -> dict[str, Any]:
    """Rebuild a run and certify how it compares with its record.

    Everything is built anew in a folder of its own, so that nothing that is there is trusted; a run
    that was stopped goes on from it. It computes with as many threads as the record did, or as
    there are here, if fewer; `DR_THREADS` says otherwise.

    Args:
        record: of the run.
        collection: place of the collection, where it is not found by its name.
        margin: the least difference of the means that matters, in points; wider where trainings
            scatter by more.

    Returns:
        What `compare` gives, with machine, versions, commit, epoch, time and
        seconds; it holds no name or path.

    Raises:
        InputError: the recipe is of another time, or what it was made from is not here or not the
            same.
    """
    run = Run(record.study, record.label, record.scale, recipe_of(record, collection))
    with _threads_of(record):
        rebuilt = execute(run, Cache(places.cache_root() / "rebuilt" / record.name))
    measure = measure_of(record)
    facts = rebuilt.model_dump(include={"machine", "versions", "commit", "created", "epoch"})
    certificate = compare(record, rebuilt, seed_noise(record, measure), margin)
    return certificate | facts | {"seconds": round(sum(rebuilt.seconds.values()), 1)}


@contextmanager
def _threads_of(record: Record) -> Iterator[None]:
    """Sums of the same parts round as they did, and small models waste no processor on waiting."""
    if "DR_THREADS" in os.environ:
        yield
        return
    here = machine.threads()
    os.environ["DR_THREADS"] = str(min(record.machine.get("threads") or here, here))
    try:
        yield
    finally:
        del os.environ["DR_THREADS"]


def recipe_of(record: Record, collection: str | None = None) -> Recipe:
    """The recipe of a record, whose collections and models are here and the same; else
    `InputError`.
    """
    try:
        recipe = Recipe(**record.recipe)
    except InputError as error:
        problem = f"its recipe is of another time ({error.where}: {error.problem})"
        fix = f"Check out the record's commit, {record.commit['id']}, or verify another record."
        raise InputError(problem, where=record.name, fix=fix) from None
    recipe = recipe.with_(collection=collection) if collection else recipe
    lacking = [] if collection else not_here(record)
    for known in filter(lambda known: known.name in lacking and not known.load, sheets()):
        how = f"make it there: dr-lib data {known.name}" if known.sources else "see its data sheet"
        fix = f"Set DR_DATA to the folder of the collections, and {how}."
        raise InputError(f"{known.name!r} is not on this machine", where=record.name, fix=fix)
    here = data_facts(pipeline(recipe))
    for role, facts in record.data.items():
        today = here.get(role, {})
        differing = [name for name in ("digest", "tokenizer") if facts.get(name) != today.get(name)]
        if differing:
            problem = f"the {role} {facts.get('name')!r} is another one today"
            fix = "Check out the record's commit, or name its collection's folder (--collection)."
            raise InputError(f"{problem} ({differing[0]} differs)", where=record.name, fix=fix)
    return recipe


def compare(
    record: Record, rebuilt: Record, noise: SeedVariance, margin: float = MARGIN
) -> dict[str, Any]:
    """How two runs of one recipe compare.

    Returns:
        `outcome`; `weights`, training -> whether they are equal (None: the record holds no
        digests); `measure`, which decides; `means`, measure -> recorded and rebuilt, in the unit
        that is shown; `same`, whether every query has its score; `difference`, `low`, `high` of the
        measure; the `margin`; `noise`, its `freedom`, and `faithful`, the share of pairs of
        trainings that come as near as the margin; `code`, what was made by other code.
    """
    measure = measure_of(record, rebuilt)
    shared = [name for name in record.means if name in rebuilt.means]
    same = all(
        not np.ptp(
            aligned([rebuilt.measured, record.measured], record.measured, name), axis=0
        ).any()
        for name in shared
    )
    weights = {
        name: log.get("weights") and log["weights"] == rebuilt.training[name].get("weights")
        for name, log in record.training.items()
    }
    means = {
        name: [unit_of(name)[0] * run.means[name] for run in (record, rebuilt)] for name in shared
    }
    difference = means[measure][1] - means[measure][0]
    known = noise.variance > 0  # of runs that were all alike there is no chance to speak of
    chance = scipy.stats.t(noise.freedom, scale=(2 * noise.variance) ** 0.5)
    reach = float(chance.ppf((1 + LEVEL) / 2)) if known else None
    if known and 2 * chance.cdf(margin) - 1 < ENOUGH:
        margin = reach
    faithful = float(2 * chance.cdf(margin) - 1) if known else None
    words = ["equivalent"] if abs(difference) <= margin else []
    words += ["different"] if known and abs(difference) > reach else []
    if same:
        words = ["equal" if all(weights.values()) else "scores equal"]
    return {
        "outcome": " and ".join(words) or "not shown",
        "weights": weights,
        "measure": measure,
        "means": means,
        "same": same,
        "difference": difference,
        "low": difference - reach if known else None,
        "high": difference + reach if known else None,
        "margin": margin,
        "noise": noise.variance**0.5 if known else None,
        "freedom": noise.freedom,
        "faithful": faithful,
        "code": sorted(kind for kind in record.code if record.code[kind] != rebuilt.code.get(kind)),
    }


def measure_of(*records: Record) -> str:
    """The measure that decides: MRR@10, else the first that all have."""
    shared = [name for name in records[0].means if all(name in record.means for record in records)]
    return "MRR@10" if "MRR@10" in shared else shared[0]


def seed_noise(record: Record, measure: str) -> SeedVariance:
    """What the book's records on this collection, with this last stage, show of the spread from
    training to training.
    """
    (pool,) = pools_of([Side([record], measure)]).values()
    return pool


# Which record -------------------------------------------------------------------------------------


def find(
    source: str,
    label: str | None = None,
    *,
    seed: int | None = None,
    scale: str | None = None,
    on: str | None = None,
) -> Record:
    """The record that a command line names.

    Args:
        source: a study of the book, such as "simlm/table08", or a file of records.
        label: the configuration; of a file also the number of a line.
        seed: None takes the lowest.
        scale: of the book's records; None takes the first scale that has the study.
        on: name of the collection that was searched, where the study has several.

    Raises:
        InputError: no such record, or several to choose from.
    """
    if Path(source).is_file() or source.endswith((*FILES, ".jsonl")):
        records = read_all(Path(source))
        if label and label.isdecimal() and label not in {record.label for record in records}:
            if not 1 <= int(label) <= len(records):
                fix = f"It has {len(records)}."
                raise InputError(f"no line {label}", where=source, fix=fix)
            return records[int(label) - 1]
    else:
        scales = [scale] if scale else dict.fromkeys([*SCALES, *places.known_scales()])
        every = (load_records(recorded_folder(name), source) for name in scales)
        records = next(filter(None, every), [])
        if not records:
            raise unknown_study(source, scale, live=False)
    record = named_record(records, label, seed, source)
    names = {
        other.searched_on["name"]: other
        for other in records
        if (other.label, other.seed) == (record.label, record.seed)
    }
    if on is None and len(names) == 1:
        return record
    if on not in names:
        fix = f"Name one with --on: {', '.join(sorted(names))}."
        problem = f"it was not searched on {on}" if on else "it was searched on several collections"
        raise InputError(problem, where=source, fix=fix)
    return names[on]


def cheapest() -> Record:
    """The trained record that takes the shortest time to make again, of those of this code that a
    processor has made and whose collections are here.

    Raises:
        InputError: there is none.
    """
    trained = [
        record
        for record in all_recorded()
        if record.training and record.epoch == epoch() and by_processor(record)
    ]
    for record in sorted(itertools.filterfalse(not_here, trained), key=cost):
        try:
            recipe_of(record)
        except InputError:
            continue
        return record
    fix = "Set DR_DATA to the folder with the collections (`dr-lib data` makes them)."
    raise InputError("no trained record that can be made again here", where="verify", fix=fix)


def not_here(record: Record) -> list[str]:
    """Names of its collections that do not lie on this machine: none is fetched."""
    names = {data["name"] for data in (record.searched_on, record.trained_on)}
    return [name for name in sorted(names - {"primer"}) if not find_data(name)]


def cost(record: Record) -> float:
    """Seconds that its stages took; of a training on a busy machine those of the processor."""
    return sum(
        min(wall, record.training.get(name, {}).get("processor_seconds") or wall)
        for name, wall in record.seconds.items()
    )


def keep(record: Record, certificate: dict[str, Any]) -> Path:
    """Add a certificate to its record in the book; return the file."""
    publish([record.model_copy(update={"rebuilt": (*record.rebuilt, certificate)})])
    return recorded_folder(record.scale) / record.file_name


def certificate_lines(record: Record, certificate: dict[str, Any]) -> list[str]:
    """A certificate in words."""
    words = {True: "have the recorded digests", False: "differ", None: "have no recorded digests"}
    lines = [f"{record.study}, {record.label}, seed {record.seed}: {certificate['outcome']}"]
    lines += [f"  weights of {name} {words[same]}" for name, same in certificate["weights"].items()]
    if certificate["same"]:
        lines.append("  every query has its recorded score, to the last digit")
    for name, (recorded, rebuilt) in certificate["means"].items():
        unit = unit_of(name)[1]
        lines.append(f"  {name}: recorded {recorded:.2f}, rebuilt {rebuilt:.2f} {unit}")
    if not certificate["same"]:
        lines.append(_difference(certificate))
    if record.epoch != certificate["epoch"]:
        lines.append(f"  recorded by code {record.epoch}, rebuilt by code {certificate['epoch']}")
    if certificate["code"]:
        changed = ", ".join(certificate["code"])
        lines.append(f"  as is usual, code has changed since it was recorded, here of: {changed}")
    return lines


def _difference(certificate: dict[str, Any]) -> str:
    """The difference of the means, and what chance allows."""
    line = f"  {certificate['measure']} differs by {certificate['difference']:.2f}"
    margin = f"margin {certificate['margin']:.2f}"
    if certificate["noise"] is None:
        return f"{line} ({margin}; no records show how trainings scatter)"
    return (
        f"{line} [{certificate['low']:.2f}, {certificate['high']:.2f}] ({margin}, which"
        f" {100 * certificate['faithful']:.0f} % of pairs of trainings keep; one scatters by"
        f" {certificate['noise']:.2f})"
    )


def by_processor(record: Record) -> bool:
    """Whether a processor made all of a run, which may rest on trainings of another machine."""
    devices = {log.get("device", "cpu") for log in record.training.values()}
    return not record.machine.get("gpus") and devices <= {"cpu"}
