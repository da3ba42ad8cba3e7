"""What a reader of a format gives, and the Arrow files that are made of it once: all checks, the digest, the counts.

A format's file describes a `Source`; what holds for every collection is checked here: no empty and no duplicate
passage, no id that would break a line, no judgement that names what is not there. Ids and texts are compared by 64-bit
hashes first, 16 bytes a passage; only where two hashes are equal are the strings looked at.
Page of the book: practice/own-corpus, "what is checked".
"""

import json
import re
import shutil
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset, Features, Value
from datasets.arrow_writer import ArrowWriter
from tqdm.auto import tqdm

from dr_lib.collections.collection import Collection, rows_of
from dr_lib.errors import InputError
from dr_lib.files import json_digest, read_json, write_json
from dr_lib.stages import Cache, stage

ABOUT = "collection.json"
SPLITS = ("train", "dev", "test")
TEXT, NUMBER = Value("string"), Value("int64")
PASSAGE = Features({"id": TEXT, "title": TEXT, "text": TEXT, "doc": TEXT, "position": NUMBER})
QUERY = Features({"id": TEXT, "text": TEXT, "answers": [TEXT]})
JUDGEMENT = Features({"query": TEXT, "passage": TEXT, "grade": NUMBER})
# Tabs and line ends would break qrels and runs, the others a terminal; half surrogates are what is not UTF-8 in a name.
NOT_IN_NAMES = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Passage(NamedTuple):
    """One passage: `doc` is "" and `position` 0 where the collection does not know them."""

    id: str
    title: str
    text: str
    doc: str = ""
    position: int = 0


class Query(NamedTuple):
    """One query with its accepted answers (often none)."""

    id: str
    text: str
    answers: tuple[str, ...] = ()


class Judgement(NamedTuple):
    """One relevance judgement: grade 0 is judged not relevant."""

    query: str
    passage: str
    grade: int


@dataclass(frozen=True)
class Rows:
    """A stream that can be read more than once.

    Args:
        place: the file or source that an error names.
        read: gives (line number, row) pairs from the start at each call.
        unit: what the numbers count: "line" for files, "row" elsewhere.
    """

    place: str
    read: Callable[[], Iterable[tuple[int, Any]]]
    unit: str = "line"

    def error(self, number: int, problem: str, fix: str) -> InputError:
        """What is wrong with row `number`."""
        return InputError(problem, where=f"{self.place} {self.unit} {number}", fix=fix)


@dataclass(frozen=True)
class Source:
    """A collection in its original format, not read yet.

    Args:
        name: what the collection is called.
        digest: of the source's files or versions; it names the folder in the cache.
        passages, queries, judgements: the streams; judgements by split, in the order splits are listed.
        info: licence, source and versions, kept with the collection.
        published: True for data the reader cannot edit: rows that break a rule are left out and counted in `info`
            where a folder of the reader's own would be refused.
        allow_duplicates: keep (and count) passages that repeat title and text of another one.
    """

    name: str
    digest: str
    passages: Rows
    queries: Rows
    judgements: dict[str, Rows] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    published: bool = False
    allow_duplicates: bool = False


def published_source(name: str, digest: str, place: str, build: Callable[[], dict[str, list]], info: dict) -> Source:
    """A source that `build` makes as a whole: lists of `passages`, of `queries`, and of the judgements of `SPLITS`."""
    built = cache(build)  # reading any of them first builds all
    passages, queries, *judgements = (
        Rows(f"{place}, {part}", lambda part=part: enumerate(built()[part], start=1), "row")
        for part in ("passages", "queries", *SPLITS)
    )
    return Source(name, digest, passages, queries, dict(zip(SPLITS, judgements, strict=True)), info, published=True)


def open_source(source: Source, root: Path) -> Collection:
    """Open the Arrow files of `source`, making them first where they are missing.

    Args:
        source: what the reader of a format gives.
        root: folder of all collections' files.

    Raises:
        InputError: the source breaks a rule (nothing is left behind), or a file was altered since.
    """
    folder = Cache(root, announce=lambda _: None).get(arrow_files(source, source.allow_duplicates))
    about = read_json(folder / ABOUT)
    passages, queries = (Dataset.from_file(str(folder / f"{kind}.arrow")) for kind in ("passages", "queries"))
    judged = {split: Dataset.from_file(str(folder / name)) for split, name in about["splits"]}
    return Collection(about["name"], about["digest"], about["info"], passages, queries, judged, folder)


@stage(version=2)
def arrow_files(folder: Path, source: Source, allow_duplicates: bool) -> None:
    """`passages.arrow`, `queries.arrow`, one Arrow file a split, and `collection.json`."""
    try:
        write_json(folder / ABOUT, _write_collection(source, folder))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # a refused collection may be large
        raise


def _write_collection(source: Source, folder: Path) -> dict[str, Any]:
    """Read and check the whole source; write its Arrow files and return what is to be said about them."""
    counts: Counter = Counter()
    judged = {split: list(rows.read()) for split, rows in source.judgements.items()}  # first: a bad line ends it early
    passages, passage_digest = _write_texts(source, "passages", folder, counts)
    queries, query_digest = _write_texts(source, "queries", folder, counts)
    files: dict[str, str] = {}
    digests: dict[str, str] = {}
    asked: set[str] = set()
    for split, rows in source.judgements.items():
        if known := _known_judgements(source, rows, judged[split], passages["id"], queries["id"], counts):
            files[split] = f"qrels-{len(files)}.arrow"
            digests[split], _ = _write_arrow(folder / files[split], JUDGEMENT, rows, known)
            own = {judgement.query for _, judgement in known}
            counts[split] = {"queries": len(own), "judgements": len(known)}
            asked |= own
    counts["queries_without_judgement"] = len(queries) - len(asked)
    digest = json_digest({"passages": passage_digest, "queries": query_digest, "splits": digests})
    info = {**source.info, "counts": counts}
    return {"name": source.name, "digest": digest, "info": info, "splits": list(files.items())}


def _write_texts(source: Source, name: str, folder: Path, counts: Counter) -> tuple[Dataset, str]:
    """Write passages or queries; return them with the digest of their content. Duplicates are refused or counted."""
    rows, kind = (source.passages, "passage") if name == "passages" else (source.queries, "query")
    ids, texts = array("q"), array("q")

    def noted() -> Iterator[tuple[int, Any]]:
        for number, row in _whole_rows(source, rows, kind, counts):
            ids.append(hash(row.id))
            if kind == "passage":
                texts.append(hash((row.title, row.text)))
            yield number, row

    bar = tqdm(noted(), f"{source.name}: {name}", unit="", delay=3, mininterval=1, leave=False)
    path = folder / f"{name}.arrow"
    digest, numbers = _write_arrow(path, PASSAGE if kind == "passage" else QUERY, rows, bar)
    written = Dataset.from_file(str(path))
    counts[name] = len(numbers)
    if kind == "passage" and not numbers:
        raise InputError("there is no passage in it", where=rows.place, fix="Give at least one passage.")
    for row, first in _repeats(ids, written, ("id",)):
        problem = f"duplicate {kind} id {written[row]['id']!r}, first seen in {rows.unit} {numbers[first]}"
        raise rows.error(numbers[row], problem, "Remove one of the two, or give it an id of its own.")
    if kind == "passage":
        repeated = list(_repeats(texts, written, ("title", "text")))
        counts["duplicate_texts"] = len(repeated)
        if repeated and not (source.allow_duplicates or source.published):
            row, first = repeated[0]
            twin = f"{rows.unit} {numbers[first]} ({len(repeated)} such in all)"
            problem = f"duplicate passage: {written[row]['id']!r} repeats title and text of {twin}"
            fix = "Remove the repetitions, or load with allow_duplicates=True, which keeps and counts them."
            raise rows.error(numbers[row], problem, fix)
    return written, digest


def _whole_rows(source: Source, rows: Rows, kind: str, counts: Counter) -> Iterator[tuple[int, Any]]:
    """The rows that have a text; an id is a name on one line."""
    for number, row in rows.read():
        if not row.id.strip() or NOT_IN_NAMES.search(row.id):
            problem = f"{kind} id {row.id!r} is empty or holds a tab, a line end or a control character"
            raise rows.error(number, problem, "Give it an id of visible characters.")
        if row.text.strip():
            yield number, row
        elif not source.published:
            raise rows.error(number, f"{kind} {row.id!r} is empty", "Give it a text, or remove the line.")
        else:
            counts[f"empty_{kind}_left_out"] += 1


def _write_arrow(path: Path, features: Features, rows: Rows, numbered: Iterable[tuple[int, tuple]]) -> tuple[str, array]:
    """Write rows as an Arrow stream; return the SHA-256 of their content, and their numbers in the source."""
    content, numbers = sha256(), array("q")
    with ArrowWriter(path=str(path), features=features) as writer:
        for number, row in numbered:
            try:
                content.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            except UnicodeEncodeError:
                raise rows.error(number, "a text holds half a surrogate pair", "Write the character whole.") from None
            numbers.append(number)
            writer.write(dict(zip(features, row, strict=True)))
        writer.finalize()
    return content.hexdigest(), numbers


def _repeats(hashes: array, table: Dataset, columns: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Rows that are equal to an earlier one in some columns: (row, the first such row)."""
    values = np.array(hashes, np.int64)
    order = np.argsort(values, kind="stable")
    equal = np.flatnonzero(values[order[1:]] == values[order[:-1]])
    first: dict[Hashable, int] = {}
    for row in np.union1d(order[equal], order[equal + 1]).tolist():  # only here may strings be equal
        key = tuple(table.data.column(name)[row].as_py() for name in columns)
        if first.setdefault(key, row) != row:
            yield row, first[key]


def _known_judgements(
    source: Source, rows: Rows, judged: list[tuple[int, Judgement]], passage_ids: Any, query_ids: Any, counts: Counter
) -> list[tuple[int, Judgement]]:
    """Judgements whose passage and query exist; an unknown one, or a pair judged twice, is refused or left out."""
    queries = rows_of([judgement.query for _, judgement in judged], query_ids).tolist()
    passages = rows_of([judgement.passage for _, judgement in judged], passage_ids).tolist()
    known: dict[tuple[int, int], tuple[int, Judgement]] = {}
    for (number, judgement), query, passage in zip(judged, queries, passages, strict=True):
        problem = None
        if query < 0 or passage < 0:
            unknown = f"query {judgement.query!r}" if query < 0 else f"passage {judgement.passage!r}"
            problem = f"the judgement names an unknown {unknown}"
        elif (query, passage) in known:
            problem = f"query {judgement.query!r} and passage {judgement.passage!r} are judged twice"
        if problem and not source.published:
            raise rows.error(number, problem, "Correct the id, or remove the line.")
        if problem:
            counts["judgements_left_out"] += 1
        else:
            known[query, passage] = number, judgement
    if not known and not source.published:
        raise InputError("there is no judgement in it", where=rows.place, fix="Add judgements, or remove the split.")
    return list(known.values())
