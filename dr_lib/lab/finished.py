"""Trained models of finished runs: from a record, or from the names of a study, to the folders in the cache.

Page of the book: practice/own-corpus.
"""

from glob import escape
from pathlib import Path

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.lab.cache import Cache, check_folder
from dr_lib.lab.opening import open_sample
from dr_lib.lab.records import Record, live_folder, load_record, load_records
from dr_lib.lab.specs import CollectionSpec
from dr_lib.retrieval import Ranking

WRITTEN = "question_collection"
"""Kind of the stages that `lab.ask` keeps its collections in."""
EXPORTED = ("retriever", "query-encoder", "passage-encoder", "re-ranker")
"""Names of the folders that an export of several models makes."""
TRAIN = "Run the notebook or study that made it on this machine; its finished stages stay in the cache."


def find_record(
    study: str, label: str | None = None, *, seed: int | None = None, scale: str = "laptop", folder: Path | None = None
) -> Record:
    """The record of this machine with these names; of several seeds the first, of several runs with it the newest.

    Args:
        study: such as "simlm/table08".
        label: the configuration; None where the study has one only.
        seed: the seed; None takes the lowest.
        scale: name of the scale.
        folder: where records lie, default `live_folder(scale)`.

    Raises:
        InputError: no such record, or several labels to choose from.
    """
    records = load_records(folder or live_folder(scale), study)
    found = [record for record in records if label in (None, record.label) and seed in (None, record.seed)]
    labels = list(dict.fromkeys(record.label for record in found))
    if len(labels) != 1:
        known = ", ".join(repr(one) for one in dict.fromkeys(record.label for record in records))
        problem = "no record of these names" if not labels else "several configurations"
        fix = f"Name one with --label; there are: {known}." if known else f"Name another scale (--scale), or: {TRAIN}"
        raise InputError(problem, where=f"{study} at {scale}", fix=fix)
    lowest = min(record.seed for record in found)
    return max((record for record in found if record.seed == lowest), key=lambda record: record.created)


def models_of(record: Record, cache: Cache | None = None) -> dict[str, Path]:
    """Folders of the models that a run ended with, by what they are.

    Args:
        record: of a run on this machine.
        cache: where its stages are kept.

    Returns:
        "retriever", or "query-encoder" and "passage-encoder" where they are two; also "re-ranker" where the run was
        re-ranked.

    Raises:
        InputError: the run was not made here, its stages were removed, or a file of them was altered.
    """
    found = stage_folder(record, "retriever", cache)
    models = {"retriever": found / "model"}
    if (found / "passage_model").is_dir():
        models = {"query-encoder": found / "model", "passage-encoder": found / "passage_model"}
    if record.recipe.get("final") == "reranker":
        models["re-ranker"] = stage_folder(record, "cross_encoder", cache) / "model"
    return models


def stage_folder(record: Record, name: str, cache: Cache | None = None) -> Path:
    """The checked folder of one finished stage of a run.

    Raises:
        InputError: the run has no such stage, it is not in the cache, or a file of it was altered.
    """
    key, root = record.keys.get(name), (cache or Cache()).root
    if key is None:
        known = ", ".join(sorted(record.keys))
        raise InputError(f"the run has no stage {name!r}", where=record.file_name, fix=f"It has: {known}.")
    places = [path for path in root.glob(f"*-{key[:16]}") if path.is_dir()]
    if not places:
        raise InputError(f"its {name} (key {key[:16]}) is not in {root}", where=record.file_name, fix=TRAIN)
    check_folder(places[0])
    return places[0]


def ranking_of(record: Record, cache: Cache | None = None) -> Ranking:
    """What a run of this machine found for each query it was evaluated on, best first.

    Raises:
        InputError: the run was not made here, its stages were removed, or a file of them was altered.
    """
    return Ranking.open(stage_folder(record, "run", cache) / "ranking")


def open_models(place: Path, cache: Cache | None = None) -> tuple[dict[str, Path], Record | None]:
    """Models by what they are, and their record, from the file of a record or from a folder.

    Args:
        place: a record of this machine, the folder of one model, or one that an export has written several into.
        cache: where the stages of a record are kept.

    Raises:
        InputError: neither a record nor a folder with a dense encoder or a cross-encoder.
    """
    if place.is_file():
        record = load_record(place)
        return models_of(record, cache), record
    for kind, settings in (("retriever", "dense.json"), ("re-ranker", "cross_encoder.json")):
        if (place / settings).is_file():
            return {kind: place}, None
    exported = {kind: place / kind for kind in EXPORTED if (place / kind).is_dir()}
    if "retriever" in exported or {"query-encoder", "passage-encoder"} <= exported.keys():
        return exported, None
    problem = "no record, and no folder with dense.json or cross_encoder.json"
    raise InputError(problem, where=place, fix="Give a record of this machine, or a folder that dr_lib has saved.")


def collection_of(record: Record, cache: Cache | None = None) -> Collection:
    """The collection that a run was trained on, cut to the sizes that it had.

    Args:
        record: of any run.
        cache: where collections with generated questions are kept (`lab.ask`).

    Raises:
        InputError: it cannot be opened under its name here (a record holds no path: set `DR_DATA` to the folder above
            it), or it has changed since.
    """
    spec, data = CollectionSpec(**record.recipe["collection"]), record.data
    expected = data.get("trained_on", data["collection"])["digest"]
    written = (cache or Cache()).root.glob(f"{WRITTEN}-*/{escape(spec.name)}/")
    for place in [*map(str, written), spec.name]:
        collection = open_sample(spec.model_copy(update={"name": place}))
        if collection.digest == expected:
            return collection
    problem = f"collection {spec.name!r} has changed since ({collection.digest[:12]}, then {expected[:12]})"
    raise InputError(problem, where=record.file_name, fix="Run again, or search the collection under its own name.")
