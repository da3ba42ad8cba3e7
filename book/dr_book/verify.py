"""Verifying a record: a run is rebuilt from its record alone, and a certificate says how the two
compare. Page of the book: reference/records.

- **equal**: all weights have the recorded digests, and every query its score.
- **scores equal**: every query has its score to the last digit.
- **equivalent**: the means differ by at most a margin. It is 0.5 points: on SQuAD about 85 of 100
  pairs of trainings of one recipe are within it; if fewer than 80 would be, it is widened to
  include 95.
- **different**: the means differ by more than two trainings of one recipe do in 95 of 100 cases.
- **not shown**: they lie in between.

Processors round differently, and training amplifies this until the weights are as far from the
recorded ones as those of another seed. So the seeds tell how much a faithful run may differ: a
difference d of two runs has the standard error s sqrt(2), where s is pooled over all recipes with
several recorded seeds on that collection and at that stage. The queries are the same in both, and
add nothing. A certificate says how often two faithful runs are within the margin, and gives the
interval of d; if d is beyond chance and inside the margin, the runs are both equivalent and
different.

The same rule compares runs that the book has recorded twice: trainings of one recipe, data and seed
on different machines or by different commits.
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

    Everything is built from scratch in a separate folder, without trusting existing results; an
    interrupted verification continues from that folder. It uses as many threads as the record did,
    or all there are here if fewer; `DR_THREADS` overrides this.

    Args:
        record: of the run.
        collection: path of the collection, if it is not found by name.
        margin: the least difference of the means that matters, in points; widened if trainings
            scatter by more.

    Returns:
        The result of `compare`, with machine, versions, commit, epoch, time and seconds; it
        contains no name or path.

    Raises:
        InputError: the recipe is from another version of the code, or its inputs are missing here
            or have changed.
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
    """As many threads as in the record: sums of the same parts round alike, and small models waste
    no processor on waiting.
    """
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
    """The recipe of a record; `InputError` if its collections and models are missing or changed."""
    try:
        recipe = Recipe(**record.recipe)
    except InputError as error:
        problem = f"its recipe is from another version ({error.where}: {error.problem})"
        fix = f"Check out the record's commit, {record.commit['id']}, or verify another record."
        raise InputError(problem, where=record.name, fix=fix) from None
    recipe = recipe.with_(collection=collection) if collection else recipe
    lacking = [] if collection else not_here(record)
    for known in filter(lambda known: known.name in lacking and not known.load, sheets()):
        how = f"make it: dr-lib data {known.name}" if known.sources else "see its data sheet"
        fix = f"Set DR_DATA to the folder of the collections, and {how}."
        raise InputError(f"{known.name!r} is not on this machine", where=record.name, fix=fix)
    here = data_facts(pipeline(recipe))
    for role, facts in record.data.items():
        today = here.get(role, {})
        differing = [name for name in ("digest", "tokenizer") if facts.get(name) != today.get(name)]
        if differing:
            problem = f"the {role} {facts.get('name')!r} has changed since"
            fix = "Check out the record's commit, or name its collection's folder (--collection)."
            raise InputError(f"{problem} ({differing[0]} differs)", where=record.name, fix=fix)
    return recipe


def compare(
    record: Record, rebuilt: Record, noise: SeedVariance, margin: float = MARGIN
) -> dict[str, Any]:
    """How two runs of one recipe compare.

    Returns:
        `outcome`; `weights`, training -> whether they are equal (None: the record has no digests);
        `measure`, which decides; `means`, measure -> recorded and rebuilt, in the displayed unit;
        `same`, whether every query has its score; `difference`, `low`, `high` of the measure; the
        `margin`; `noise`, its `freedom`, and `faithful`, the share of pairs of trainings within
        the margin; `code`, the stages whose code has changed.
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
    known = noise.variance > 0  # identical runs say nothing about chance
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
    """The variance between trainings in the book's records on this collection, with this final
    stage.
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
    """The record named on a command line.

    Args:
        source: a study of the book, such as "simlm/table08", or a file of records.
        label: the configuration; for a file, a line number works too.
        seed: None takes the lowest.
        scale: of the book's records; None takes the first scale that has the study.
        on: name of the collection that was searched, if the study has several.

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
    """The trained record that is fastest to rebuild, among those made by this code on processors
    whose collections are here.

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
    raise InputError("no trained record can be rebuilt here", where="verify", fix=fix)


def not_here(record: Record) -> list[str]:
    """Names of its collections that are not on this machine; none is downloaded."""
    names = {data["name"] for data in (record.searched_on, record.trained_on)}
    return [name for name in sorted(names - {"primer"}) if not find_data(name)]


def cost(record: Record) -> float:
    """Seconds that its stages took; for a training on a busy machine, processor time."""
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
        lines.append(f"  code has changed since it was recorded, as is usual: {changed}")
    return lines


def _difference(certificate: dict[str, Any]) -> str:
    """The difference of the means, and what is due to chance."""
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
    """Whether a run used no GPU, not even in trainings made on another machine."""
    devices = {log.get("device", "cpu") for log in record.training.values()}
    return not record.machine.get("gpus") and devices <= {"cpu"}
