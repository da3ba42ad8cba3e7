"""Search a collection: BM25, dense retrievers and re-rankers side by side, from indexes that are built once and kept.

Page of the book: practice/own-corpus. An index is a stage like any other: it is found by the content of collection and
model, so that the second question, or the second process, does not build anything.
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from glob import escape
from pathlib import Path
from textwrap import wrap

import datasets
import numpy as np

from dr_lib import objectives, places, retrieval, tokens
from dr_lib.collections import Collection
from dr_lib.errors import InputError, visible
from dr_lib.files import file_digest, json_digest
from dr_lib.lab.base import in_shards, model_digest, open_checkpoint, open_collection, open_sample
from dr_lib.lab.own_corpus import study_name
from dr_lib.lab.recipe import CollectionSettings
from dr_lib.lab.records import Record, load_record, load_records, models_of, open_models
from dr_lib.lab.status import scale_folders
from dr_lib.models import open_encoder
from dr_lib.retrieval import Bm25, Ranking
from dr_lib.stages import Cache, Data, Stage
from dr_lib.tokens import TokenStore
from dr_lib.training import machine

System = Callable[[Sequence[str], int], Ranking]
"""Queries and depth -> the passages found."""
CANDIDATES = 100
"""Passages of the first search that a re-ranker reads."""


SHOWN, INDENT = 240, " " * 6
"""Characters of a passage that are shown, and where its text begins in a terminal."""


@dataclass(frozen=True)
class Hit:
    """One passage that was found; `grade` is its judgement, None where the query has none for it."""

    rank: int
    id: str
    title: str
    text: str
    score: float
    grade: int | None = None

    @property
    def relevant(self) -> bool:
        """Whether it is judged relevant: of TREC's grades some are below 0."""
        return (self.grade or 0) > 0


@dataclass(frozen=True)
class Result:
    """The results of every system for one query.

    Attributes:
        query: the question.
        relevant: how many passages are judged relevant to it; None where it is no query of the collection.
        hits: system -> passages, best first.
    """

    query: str
    relevant: int | None
    hits: dict[str, list[Hit]]

    @property
    def judged(self) -> str:
        """How many passages are judged relevant, in words; empty where it is no query of the collection."""
        verb = " is" if self.relevant == 1 else "s are"
        return "" if self.relevant is None else f"{self.relevant} passage{verb} judged relevant"

    def as_text(self, width: int = 100) -> str:
        """The results for a terminal, one system below the other.

        Args:
            width: columns of the terminal.

        Returns:
            The query, a line on its judgements if it has any, and for each passage rank, ``*`` where it is judged relevant,
            score and id, then title and text.

        Example:
            >>> hit = Hit(1, "p7", "Tides.", "The moon pulls.", 3.25, grade=1)
            >>> print(Result("why tides", 1, {"BM25": [hit]}).as_text(width=40))
            why tides
            1 passage is judged relevant (*)
            <BLANKLINE>
            BM25
            ----------------------------------------
             1 *    3.250  p7
                  Tides: The moon pulls.
        """
        lines = [one_line(self.query), *([f"{self.judged} (*)"] if self.judged else [])]
        for system, hits in self.hits.items():
            lines += ["", one_line(system), "-" * width, *([] if hits else ["nothing found"])]
            for hit in hits:
                text = shortened(one_line(f"{hit.title.rstrip(' .')}: {hit.text}".removeprefix(": ")))
                lines.append(f"{hit.rank:2d} {'*' if hit.relevant else ' '} {hit.score:8.3f}  {one_line(hit.id)}")
                lines += wrap(text, width, initial_indent=INDENT, subsequent_indent=INDENT)
        return "\n".join(lines)

    def as_json(self) -> str:
        """One line of JSON, safe to look at in a terminal."""
        return visible(json.dumps(asdict(self), ensure_ascii=False))


def shortened(text: str) -> str:
    """As much of a text as is shown, in whole words."""
    return text if len(text) <= SHOWN else text[:SHOWN].rsplit(" ", 1)[0] + " …"


def one_line(text: str) -> str:
    """Text on one line, in which what a terminal would act on is written out.

    Example:
        >>> print(one_line("a\\x1b[31mb\\n c"))
        a\\u001b[31mb c
    """
    return visible(" ".join(text.split()))


class Searcher:
    """A collection and the systems that search it.

    Args:
        collection: what is searched.
        systems: by the name that is shown.
    """

    def __init__(self, collection: Collection, systems: Mapping[str, System]):
        if not systems:
            raise InputError("nothing to search with", where="search", fix="Give BM25 or a model.")
        self.collection, self.systems = collection, dict(systems)
        self._judged = judgements_by_text(collection)

    def search(self, queries: str | Sequence[str], k: int = 5) -> list[Result]:
        """The first `k` passages of every system for each query (or the only one); known judgements are shown.

        Raises:
            InputError: an empty query, or `k` below 1.
        """
        queries = [queries] if isinstance(queries, str) else queries
        check_queries(queries, k)
        rankings, results = {name: system(queries, k) for name, system in self.systems.items()}, []
        for row, query in enumerate(queries):
            grades = self._judged.get(query.strip())
            relevant = None if grades is None else sum(grade > 0 for grade in grades.values())
            found = {name: self._hits(one.rows[row], one.scores[row], grades or {}) for name, one in rankings.items()}
            results.append(Result(query, relevant, found))
        return results

    def _hits(self, rows: np.ndarray, scores: np.ndarray, grades: Mapping[str, int]) -> list[Hit]:
        passages = self.collection.passages[rows[rows >= 0].tolist()]
        columns = zip(passages["id"], passages["title"], passages["text"], scores.tolist(), strict=False)
        return [Hit(rank, *row, grades.get(row[0])) for rank, row in enumerate(columns, 1)]


def check_queries(queries: Sequence[str], k: int) -> None:
    """Raise `InputError` for an empty query or a `k` below 1; worth knowing before an index is made."""
    if any(not query.strip() for query in queries):
        raise InputError("the query is empty", where="search", fix="Write a question.")
    if k < 1:
        raise InputError(f"k is {k}", where="k", fix="Give 1 or more.")


def judgements_by_text(collection: Collection) -> dict[str, dict[str, int]]:
    """Query text -> passage id -> grade, over all splits."""
    queries, found = collection.queries(), {}
    texts = dict(zip(queries["id"][:], queries["text"][:], strict=True))
    for split in collection.splits:
        for query, grades in collection.qrels(split).items():
            found.setdefault(texts[query].strip(), {}).update(grades)
    return found


def open_searcher(
    collection: Collection,
    *,
    bm25: bool = True,
    dense: Mapping[str, Mapping[str, Path] | Path] | None = None,
    reranker: Path | None = None,
    cache: Cache | None = None,
) -> Searcher:
    """Build what is missing of the indexes, and open them.

    Args:
        collection: what is searched.
        bm25: whether BM25 is one of the systems.
        dense: name -> folder of a retriever, or the folders of a run as `models_of` gives them.
        reranker: folder of a cross-encoder, which re-ranks the first 100 passages of each other system.
        cache: where the indexes are kept.

    Raises:
        InputError: no system at all, or a folder without a model.
    """
    cache, systems = cache or Cache(announce=lambda line: None), {}
    if bm25:
        systems["BM25"] = Bm25.open(cache.get(retrieval.bm25_index(collection, title=True)) / "index").search
    for name, models in (dense or {}).items():
        folders = {"retriever": models} if isinstance(models, Path | str) else dict(models)
        systems[name] = open_dense(collection, folders, cache)
    if reranker is not None:
        reread = open_reranker(collection, Path(reranker), cache)
        systems |= {f"{name}, re-ranked": partial(reread, system) for name, system in tuple(systems.items())}
    return Searcher(collection, systems)


def searcher_for(source: str, models: Sequence[Path] = (), reranker: Path | None = None, *, bm25: bool = True) -> Searcher:
    """A searcher from what a command line names.

    Args:
        source: a collection as `collections.load` takes it, or the file of a record: its collection and its models.
        models: records, folders of retrievers, names of encoders; or of ways to pre-train (`objectives.names()`), for
            what `lab.compare` has trained on this collection.
        reranker: folder of a cross-encoder; None takes that of a record, if one has it.
        bm25: whether BM25 is one of the systems.
    """
    is_record = names_record(source)
    record = load_record(Path(source)) if is_record else None
    collection = collection_of(record) if record else open_collection(source)
    dense: dict[str, dict[str, Path]] = {}
    for place in map(Path, [*([source] if is_record else []), *models]):
        method = "" if place.exists() else objectives.word(str(place))
        found, record = trained_on(collection, method) if method in objectives.names() else open_models(place)
        if "re-ranker" in found and len(found) == 1:
            fix = "Give it as the re-ranker (--reranker), and a retriever as the model."
            raise InputError("a re-ranker, which searches nothing by itself", where=place, fix=fix)
        reranker = found.pop("re-ranker", reranker) if reranker is None else reranker
        name = objectives.NAMES.get(record.label, record.label) if record else place.resolve().name
        dense[f"{name} ({place})" if name in {"BM25", *dense} else name] = found
    return open_searcher(collection, bm25=bm25, dense=dense, reranker=reranker)


def trained_on(collection: Collection, method: str) -> tuple[dict[str, Path], Record]:
    """The models that the newest comparison of any scale has trained on a collection by a method, and their record."""
    folders = scale_folders(places.cache_root() / "records")
    found = [one for folder in folders for one in load_records(folder, study_name(collection)) if one.label == method]
    if not found:
        problem = f"{method!r} is a way to pre-train, and none of its retrievers was trained on {collection.name} here"
        fix = f"Run dr-lib try with --system {method}, or give a folder, a record or the name of an encoder."
        raise InputError(problem, where="model", fix=fix)
    newest = max(found, key=lambda record: record.created)
    return models_of(newest), newest


def names_record(source: str) -> bool:
    """Whether a .json file is a record: one object with its checksum first, where a collection has an object a line."""
    path = Path(source).expanduser()
    if not source.endswith(".json") or not path.is_file():
        return source.endswith(".json") and places.find_data(source) is None
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline().strip() == "{" and file.readline().lstrip().startswith('"checksum"')


def open_dense(collection: Collection, models: Mapping[str, Path | str], cache: Cache) -> System:
    """A dense retriever over the vectors of a collection, which are made at the first call and kept."""
    query_side, passage_side = (Path(models.get(side) or models["retriever"]) for side in ("query-encoder", "passage-encoder"))
    for folder in (query_side, passage_side):
        if not any((folder / name).is_file() for name in ("modules.json", "dense.json")):
            fix = "Give a model that sentence-transformers or dr_lib has saved."
            raise InputError("neither modules.json nor dense.json in this folder", where=folder, fix=fix)
    vectors = retrieval.open_vectors([cache.get(one) for one in vectors_of(collection, passage_side)])
    encoder = open_encoder(query_side, device=machine.device())

    def search(queries: Sequence[str], k: int) -> Ranking:
        scores, rows = retrieval.search(encoder.encode(queries, queries=True), vectors, k, device=machine.device())
        return Ranking(list(map(str, range(len(queries)))), rows, scores)

    return search


def vectors_of(collection: Collection, folder: Path) -> list[Stage]:
    """Every passage as a vector of a saved or given retriever: the same stages as of a run."""
    count = len(collection.passages)
    if not (folder / "dense.json").is_file():
        make = partial(retrieval.given_vectors, retrieval.given(folder), collection)
        return in_shards(make, count)
    encoder = Data(str(folder), json_digest([model_digest(str(folder)), file_digest(folder / "dense.json")]))
    make = partial(retrieval.vectors, encoder, tokens.passage_tokens(collection, open_checkpoint(str(folder)).tokenizer))
    return in_shards(make, count)


def open_reranker(collection: Collection, folder: Path, cache: Cache) -> Callable[[System, Sequence[str], int], Ranking]:
    """A re-ranker of other systems' first passages; the passages' tokens are made once and kept."""
    scorer = retrieval.load_scorer(folder)
    passage_tokens = tokens.passage_tokens(collection, open_checkpoint(str(folder)).tokenizer)
    passages = TokenStore.open(cache.get(passage_tokens) / "store")

    def search(first: System, queries: Sequence[str], k: int) -> Ranking:
        ranking, rows = first(queries, max(k, CANDIDATES)), datasets.Dataset.from_dict({"text": list(queries)})
        with tempfile.TemporaryDirectory() as name:
            store = TokenStore.build(rows, scorer.tokenizer, Path(name) / "queries", columns=("text",), progress=False)
            found = retrieval.rerank(scorer, ranking, scorer.crossing(store, passages), top=max(k, CANDIDATES), progress=False)
        return Ranking(found.query_ids, found.rows[:, :k], found.scores[:, :k])

    return search


def collection_of(record: Record, cache: Cache | None = None, place: str | None = None, *, searched: bool = False) -> Collection:
    """The collection that a run was trained on, cut to the sizes that it had, or the one that it searched.

    Args:
        record: of any run.
        cache: where collections with generated questions are kept (`lab.generate_queries`).
        place: its folder, where it cannot be found by its name.
        searched: the one it was measured on, where that is another (`evaluation.on`).

    Raises:
        InputError: it cannot be opened under its name here (a record holds no path: set `DR_DATA` to the folder above
            it), or it has changed since.
    """
    other = record.recipe["evaluation"].get("on") if searched else None
    facts = record.data["collection"] if searched else record.trained_on
    spec, expected = CollectionSettings(**(other or record.recipe["collection"])), facts["digest"]
    written = (cache or Cache()).root.glob(f"question_collection-*/{escape(spec.name)}/")
    for one in [place] if place else [*map(str, written), spec.name]:
        collection = open_sample(spec.model_copy(update={"name": one}))
        if collection.digest == expected:
            return collection
    problem = f"collection {spec.name!r} has changed since ({collection.digest[:12]}, then {expected[:12]})"
    raise InputError(problem, where=record.file_name, fix="Run again, or search the collection under its own name.")
