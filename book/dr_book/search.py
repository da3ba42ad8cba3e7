"""Search a collection: BM25, dense retrievers and re-rankers side by side, with indexes that are
built once and kept.

Page of the book: practice/own-corpus. An index is a stage like any other, found by the content of
collection and model, so that a second question, or a second process, builds nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from glob import escape
from pathlib import Path

from dr_book.hits import Searcher, System, open_bm25
from dr_book.systems import study_name, untrained, word_of
from dr_lib import evaluation, objectives, places, retrieval, tokens
from dr_lib.collections import Collection
from dr_lib.errors import InputError, similar
from dr_lib.files import file_digest, json_digest
from dr_lib.lab import open_checkpoint, open_collection, open_sample
from dr_lib.lab.inputs import in_shards, model_digest
from dr_lib.lab.recipe import CollectionSettings, is_place
from dr_lib.lab.records import (
    FILES,
    PACKED,
    TRAIN,
    Record,
    live_folder,
    load_record,
    load_records,
    models_of,
    studies_in,
)
from dr_lib.models import Prompts, open_encoder
from dr_lib.places import find_model
from dr_lib.retrieval import Ranking
from dr_lib.stages import Cache, Data, Stage
from dr_lib.tokens import TokenStore
from dr_lib.training import machine

CANDIDATES = 100
"""Passages of the first search that a re-ranker scores."""
FUSED = 1_000
"""Depth of each of two fused rankings, as in a comparison."""


def open_searcher(
    collection: Collection,
    *,
    bm25: bool = True,
    dense: Mapping[str, Mapping[str, Path] | Path] | None = None,
    reranker: Path | None = None,
    fuse: bool = False,
    prompts: Mapping[str, Prompts] | None = None,
    cache: Cache | None = None,
) -> Searcher:
    """Build the missing indexes, and open all.

    Args:
        collection: to search.
        bm25: whether BM25 is one of the systems.
        dense: name -> folder of a retriever, or the folders of a run from `models_of`.
        reranker: folder of a cross-encoder, which re-ranks the first 100 passages of every system.
        fuse: add the fusion, by reciprocal rank, of the first system with each other one.
        prompts: name -> prefixes of texts for that encoder, in place of those in its folder.
        cache: where the indexes are kept.

    Raises:
        InputError: there is no system, or a folder contains no model.
    """
    cache, systems = cache or Cache(announce=lambda line: None), {}
    if bm25:
        systems["BM25"] = open_bm25(collection, cache=cache)
    for name, models in (dense or {}).items():
        folders = {"retriever": models} if isinstance(models, Path | str) else dict(models)
        systems[name] = open_dense(collection, folders, cache, (prompts or {}).get(name))
    if reranker is not None:
        reread = open_reranker(collection, Path(reranker), cache)
        systems |= {
            f"{name}, re-ranked": partial(reread, system) for name, system in tuple(systems.items())
        }
    elif fuse and systems:
        (first, system), *others = systems.items()
        systems |= {f"{first} + {name}, by rank": fused(system, other) for name, other in others}
    return Searcher(collection, systems)


def fused(first: System, second: System, weight: float | None = None) -> System:
    """The fusion of two systems, by reciprocal rank or weighted scores, see `evaluation.fuse`."""

    def search(queries: Sequence[str], k: int) -> Ranking:
        depth = max(k, FUSED)
        return evaluation.fuse(first(queries, depth), second(queries, depth), k, weight)

    return search


def names_record(source: str) -> bool:
    """Whether a file contains records and not a collection: packed, or starting with a checksum."""
    path = Path(source).expanduser()
    if not source.endswith(FILES):
        return False
    if not path.is_file():
        return places.find_data(source) is None
    if source.endswith(PACKED):
        return True
    with path.open("rb") as file:
        return file.read(12) == b'{"checksum":'


def searcher_for(
    source: str,
    models: Sequence[Path] = (),
    reranker: Path | None = None,
    *,
    bm25: bool = True,
    fuse: bool = True,
    prompts: Mapping[str, Mapping[str, str]] | None = None,
) -> Searcher:
    """A searcher from the arguments of a command line.

    Args:
        source: a collection as `collections.load` takes it, or the file of a record: its collection
            and its models.
        models: records, folders of retrievers, names of encoders, or pre-training methods
            (`objectives.names()`) that `own_corpus.compare` has trained on this collection.
        reranker: folder of a cross-encoder; None takes that of a record, if it has one.
        bm25: whether BM25 is one of the systems.
        fuse: whether to add the fusion of the first system with each other one.
        prompts: one of `models`, as given -> `{"query": ..., "passage": ...}`: prefixes of texts
            for that encoder, in place of those in its folder or record.
    """
    is_record = names_record(source)
    record = load_record(Path(source)) if is_record else None
    collection = collection_of(record) if record else open_collection(source)
    dense: dict[str, dict[str, Path]] = {}
    stated: dict[str, Prompts] = {}
    for place in map(Path, [*([source] if is_record else []), *models]):
        method = "" if place.exists() else word_of(str(place), objectives.NAMES)
        folders, record = (
            trained_on(collection, method) if method in objectives.names() else open_models(place)
        )
        if "re-ranker" in folders and len(folders) == 1:
            fix = "Give it as the re-ranker (--reranker), and a retriever as the model."
            raise InputError("a re-ranker cannot search by itself", where=place, fix=fix)
        reranker = folders.pop("re-ranker", reranker) if reranker is None else reranker
        name = objectives.NAMES.get(record.label, record.label) if record else place.resolve().name
        name = f"{name} ({place})" if name in {"BM25", *dense} else name
        dense[name] = folders
        if read := (prompts or {}).get(str(place)) or (record and record.recipe.get("prompts")):
            stated[name] = Prompts(**read)
    how = {"bm25": bm25, "fuse": fuse, "prompts": stated}
    return open_searcher(collection, dense=dense, reranker=reranker, **how)


def trained_on(collection: Collection, method: str) -> tuple[dict[str, Path], Record]:
    """The models that the newest comparison, at any scale, trained on a collection by a method, and
    their record.
    """
    matching = [
        record
        for folder in sorted((places.cache_root() / "records").glob("*"))
        for record in load_records(folder, study_name(collection))
        if record.label == method
    ]
    if not matching:
        raise untrained(method, collection)
    newest = max(matching, key=lambda record: record.created)
    return models_of(newest), newest


def open_dense(
    collection: Collection,
    models: Mapping[str, Path | str],
    cache: Cache | None = None,
    prompts: Prompts | None = None,
) -> System:
    """A dense retriever over the vectors of a collection, which are computed at the first call and
    kept; `prompts` as for `open_encoder`.
    """
    cache = cache or Cache(announce=lambda line: None)
    query_side, passage_side = (
        Path(models.get(side) or models["retriever"])
        for side in ("query-encoder", "passage-encoder")
    )
    for folder in (query_side, passage_side):
        if not any((folder / name).is_file() for name in ("modules.json", "dense.json")):
            fix = "Give a model saved by sentence-transformers or dr_lib."
            raise InputError(
                "neither modules.json nor dense.json in this folder", where=folder, fix=fix
            )
    shards = [cache.get(stage) for stage in vectors_of(collection, passage_side, prompts)]
    vectors = retrieval.open_vectors(shards)
    encoder = open_encoder(query_side, device=machine.device(), prompts=prompts)

    def search(queries: Sequence[str], k: int) -> Ranking:
        scores, rows = retrieval.search(
            encoder.encode(queries, queries=True), vectors, k, device=machine.device()
        )
        return Ranking(list(map(str, range(len(queries)))), rows, scores)

    return search


def vectors_of(collection: Collection, folder: Path, prompts: Prompts | None = None) -> list[Stage]:
    """The stages that encode every passage by a saved or ready-made retriever, as in a run."""
    count = len(collection.passages)
    if not (folder / "dense.json").is_file():
        encoder = retrieval.given(folder)
        make = partial(retrieval.given_vectors, encoder, collection, prompts=prompts)
        return in_shards(make, count)
    encoder = Data(
        str(folder), json_digest([model_digest(folder), file_digest(folder / "dense.json")])
    )
    make = partial(
        retrieval.vectors,
        encoder,
        tokens.passage_tokens(collection, open_checkpoint(str(folder)).tokenizer),
    )
    return in_shards(make, count)


def open_reranker(
    collection: Collection, folder: Path, cache: Cache
) -> Callable[[System, Sequence[str], int], Ranking]:
    """A re-ranker of other systems' top passages; the passages are tokenised once."""
    scorer = retrieval.load_scorer(folder)
    passage_tokens = tokens.passage_tokens(collection, open_checkpoint(str(folder)).tokenizer)
    passages = TokenStore.open(cache.get(passage_tokens) / "store")

    def search(first: System, queries: Sequence[str], k: int) -> Ranking:
        ranking = first(queries, max(k, CANDIDATES))
        pairs = scorer.crossing(TokenStore.of(queries, scorer.tokenizer), passages)
        reranked = retrieval.rerank(scorer, ranking, pairs, top=max(k, CANDIDATES))
        return Ranking(reranked.query_ids, reranked.rows[:, :k], reranked.scores[:, :k])

    return search


def collection_of(
    record: Record, cache: Cache | None = None, place: str | None = None, *, searched: bool = False
) -> Collection:
    """The collection that a run was trained on, cut to the same sizes, or the one that it searched.

    Args:
        record: of any run.
        cache: where collections with generated questions are kept (`generate_queries`).
        place: its folder, if it cannot be found by name.
        searched: return the collection that it was measured on, if that is another
            (`evaluation.on`).

    Raises:
        InputError: it cannot be opened by its name here (a record contains no path: set `DR_DATA`
            to the folder above it), or it has changed since.
    """
    other = record.evaluation.get("on") if searched else None
    facts = record.searched_on if searched else record.trained_on
    spec, expected = CollectionSettings(**(other or record.recipe["collection"])), facts["digest"]
    written = (cache or Cache()).root.glob(f"question_collection-*/{escape(spec.name)}/")
    for name in [place] if place else [*map(str, written), spec.name]:
        try:
            collection = open_sample(spec.model_copy(update={"name": name}))
        except InputError as error:
            if place or places.find_data(name):
                raise
            fix = "A record contains no path: run in the folder above it, or set DR_DATA to it."
            raise InputError(error.problem, where=record.name, fix=fix) from None
        collection = collection.with_own_passage(record.evaluation.get("own_passage"))
        if collection.digest == expected:
            return collection
    problem = (
        f"collection {spec.name!r} has changed since (now {collection.digest[:12]}, then"
        f" {expected[:12]})"
    )
    raise InputError(
        problem, where=record.name, fix="Run again, or search the collection under its own name."
    )


# The models behind a record -----------------------------------------------------------------------

EXPORTED = ("retriever", "query-encoder", "passage-encoder", "re-ranker")
"""Names of the folders in an export of several models."""
SAVED = {
    "dense.json": "retriever",
    "cross_encoder.json": "re-ranker",
    "late_interaction.json": "re-ranker",
}


def open_models(place: Path) -> tuple[dict[str, Path], Record | None]:
    """Kind -> folder of models, and their record, from the file of a record or from a folder.

    Args:
        place: a record of this machine, the folder of a model or of an export of several, or a name
            for `places.find_model`.

    Raises:
        InputError: neither a record nor a folder with a dense encoder or a cross-encoder, nor the
            name of an encoder.
    """
    if place.is_file():
        record = load_record(place)
        return models_of(record), record
    for file, kind in SAVED.items():
        if (place / file).is_file():
            return {kind: place}, None
    exported = {kind: place / kind for kind in EXPORTED if (place / kind).is_dir()}
    if "retriever" in exported or {"query-encoder", "passage-encoder"} <= exported.keys():
        return exported, None
    named = not is_place(str(place)) and not place.name.endswith(FILES)
    if named or (place / "modules.json").is_file():
        return {"retriever": find_model(place)}, None
    problem = "neither a record nor a folder with modules.json, dense.json or cross_encoder.json"
    fix = "Give a record of this machine, or a folder saved by sentence-transformers or dr_lib."
    raise InputError(problem, where=place, fix=fix)


def find_record(
    study: str, label: str | None = None, *, seed: int | None = None, scale: str = "laptop"
) -> Record:
    """The record of this machine with these names; with several seeds the lowest, with several runs
    of it the newest.

    Args:
        study: such as "simlm/table08".
        label: the configuration, or its name on pages ("SimLM"); None if the study has only one.
        seed: the seed; None takes the lowest.
        scale: name of the scale.

    Raises:
        InputError: no such record, or several labels to choose from.
    """
    if not (records := load_records(live_folder(scale), study)):
        raise unknown_study(study, scale, live=True)
    return named_record(records, label, seed, f"{study} at {scale}")


def unknown_study(study: str, scale: str | None, *, live: bool) -> InputError:
    """The error for a study without records: it names the scale that has some, else a study with a
    similar name, or those of the same paper.

    Args:
        study: its name.
        scale: where records were looked for; None: everywhere.
        live: whether among this machine's runs, else in the book.
    """
    book = places.records_root()
    root = live_folder("any").parent if live else book
    at: dict[str, str] = {}
    for place in {book, root}:
        for folder in sorted(place.glob("*/")):
            for name, its_scale in studies_in(folder).items():
                at.setdefault(name, "")
                if place == root:
                    at[name] = at[name] or its_scale
    if at.get(study):
        return InputError(f"no record at {scale}", where=study, fix=f"Give --scale {at[study]}.")
    known = sorted(at)
    beside = [name for name in known if name.split("/")[0] == study.split("/")[0]]
    meant = similar(study, known) or f"There are: {', '.join(beside)}. " * bool(beside)
    if live:
        problem = "no record of this study was made on this machine"
        return InputError(problem, where=study, fix=("" if study in at else meant) + TRAIN)
    fix = f"{meant}The page reference/records has every study."
    return InputError("the book has no record of this study", where=study, fix=fix)


def named_record(
    records: Sequence[Record], label: str | None, seed: int | None, where: object
) -> Record:
    """The record of a label and seed, chosen as in `find_record`; `InputError` names `where` and
    the known labels.
    """
    labels = (
        {label, word_of(label, objectives.NAMES)} if label else {record.label for record in records}
    )
    of_label = [record for record in records if record.label in labels]
    matching = [record for record in of_label if seed in (None, record.seed)]
    if of_label and not matching:
        seeds = ", ".join(map(str, sorted({record.seed for record in of_label})))
        raise InputError(f"no record of seed {seed}", where=where, fix=f"There are: {seeds}.")
    if len({record.label for record in matching}) != 1:
        known = dict.fromkeys(record.label for record in records)
        problem = "several configurations" if matching else "no record with these names"
        names = ", ".join(map(repr, known))
        fix = f"{similar(label or '', [*known])}Name one by its label; there are: {names}."
        raise InputError(problem, where=where, fix=fix)
    return max(matching, key=lambda record: (-record.seed, record.created))
