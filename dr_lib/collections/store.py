"""The interface of format readers, and the Arrow files that are made once from what they read: all
checks, the digest, the counts.

Each format's module describes a `Source`; the rules for every collection are checked here: no empty
and no duplicate passage, no id that would break a line, no judgement of an unknown passage or
query. Ids and texts are compared by 64-bit hashes first, 16 bytes per passage; strings are compared
only where two hashes are equal. Page of the book: practice/own-corpus, "what is checked".
"""

import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset, Features, Value
from datasets.arrow_writer import ArrowWriter
from tqdm.auto import tqdm

from dr_lib.collections.collection import (
    AS_PUBLISHED,
    COPIED,
    JUDGEMENT,
    Collection,
    Grades,
    copy_key,
    repeats,
    rows_of,
)
from dr_lib.errors import InputError
from dr_lib.files import json_digest, read_json, write_json
from dr_lib.stages import Cache, Stage, stage

ABOUT = "collection.json"
LENIENT = "load with strict=False (in a recipe `collection: {strict: false}`), which counts such"
MEASURED_WITH = {
    "97eb610bc717ab21bf75d91b71d5db1ab67ca77cc4ee610958f36a8339812dd9",  # SQuAD, 12 of 77,230
    "7f35348b8545623c51b1d2a0a89a7f00b4575c7f35065d3afda51d0edcfa55b4",  # SciFact, 3 of 699
}
"""Digests of the passages of recorded collections in which some training queries are test queries
too: they stay as they were measured.
"""
SPLITS = ("train", "dev", "test")
TEXT, NUMBER = Value("string"), Value("int64")
PASSAGE = Features({"id": TEXT, "title": TEXT, "text": TEXT, "doc": TEXT, "position": NUMBER})
QUERY = Features({"id": TEXT, "text": TEXT, "answers": [TEXT]})
# Tabs and line ends would break qrels and runs, the others a terminal; half surrogates stand for
# bytes of a name that are not UTF-8.
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
class Expected:
    """What a published collection should contain: that of the book's records.

    Args:
        digest: of its content.
        passages: how many.
        queries: how many, by split.
    """

    digest: str
    passages: int
    queries: Mapping[str, int]

    def differences(self, collection: Collection) -> str:
        """How a collection differs, such as "19 passages (of the records: 20)"; "" if it is the
        same.
        """
        if collection.digest == self.digest:
            return ""
        sizes = {"passages": (len(collection), self.passages)}
        for split in dict.fromkeys([*self.queries, *collection.splits]):
            asked = len(collection.qrels(split)) if split in collection.splits else 0
            sizes[f"{split} queries"] = asked, self.queries.get(split, 0)
        differences = [
            f"{here:,} {what} (of the records: {wanted:,})"
            for what, (here, wanted) in sizes.items()
            if here != wanted
        ]
        return ", ".join(differences) or "as many passages and queries, but other ids or texts"


Rows = Callable[[], Iterable[tuple[str, Any]]]
"""A stream that can be read repeatedly: rows from the start, each with its place for error
messages.
"""


@dataclass(frozen=True)
class Source:
    """A collection in its original format, not yet read.

    Args:
        name: the collection's name.
        digest: of the source's files or versions; it names the folder in the cache.
        passages, queries, judgements: the streams; judgements by split, in the order splits are
            listed.
        info: licence, source and versions, kept with the collection.
        published: True for data the reader cannot edit: rows that break a rule are left out, and
            judgements of absent passages kept, and counted in `info`, where a folder of the
            reader's own would be refused.
        expected: what it should contain, if that is known.
        parts: splits that are read when they are first asked for, each with its own queries and one
            split of judgements; None where all are read at once.
        look: finds out what requires reading all of it; called once, its result is kept with the
            Arrow files.
        tell: makes further entries of `info` from the result of `look`.
    """

    name: str
    digest: str
    passages: Rows
    queries: Rows = tuple  # no rows
    judgements: dict[str, Rows] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    published: bool = False
    expected: Expected | None = None
    parts: "Mapping[str, Source] | None" = None
    look: Callable[[], dict[str, Any]] = dict
    tell: Callable[[dict[str, Any]], dict[str, Any]] = dict

    def named(self, splits: Mapping[str, str]) -> "Source":
        """The source with only some of its splits, under other names.

        Args:
            splits: new name -> present name.

        Raises:
            InputError: a split that is not there.
        """
        known = self.judgements if self.parts is None else self.parts
        for name in splits.values():
            if name not in known:
                fix = f"Name some of: {', '.join(known) or 'none, it has no judgements'}."
                raise InputError(f"{self.name} has no split {name!r}", where="splits", fix=fix)
        chosen = {name: known[old] for name, old in splits.items()}
        if self.parts is not None:
            return replace(self, parts=chosen)
        digest = json_digest([self.digest, splits])
        return replace(self, digest=digest, judgements=chosen, expected=None)


def _silently(_: str) -> None:
    """Announces nothing; a named function, so that a collection can be pickled."""


def open_source(
    source: Source,
    root: Path,
    *,
    allow_duplicates: bool = True,
    strict: bool = True,
    place: str | None = None,
) -> Collection:
    """Open the Arrow files of `source`, making them first if they are missing.

    Args:
        source: from a format's module.
        root: folder of all collections' files.
        allow_duplicates: keep (and count) copies of other passages (`collection.copy_key`).
        strict: refuse empty passages and judgements of unknown passages or queries; False counts
            them, as in published data.
        place: the name or path by which the reader gave it.

    Raises:
        InputError: the source breaks a rule (nothing is left behind), or a file was altered since.
    """
    source = source if strict else replace(source, published=True)
    made = arrow_files(source, allow_duplicates, source.published)
    cache = Cache(root, announce=_silently)
    folder = cache.get(made)
    about = read_json(folder / ABOUT)
    passages, queries = (
        Dataset.from_file(str(folder / f"{kind}.arrow")) for kind in ("passages", "queries")
    )
    judged = {split: Dataset.from_file(str(folder / name)) for split, name in about["splits"]}
    # a copied folder has the same files, but another name, and perhaps other files beside them
    known = {AS_PUBLISHED: True} if about["passages_digest"] in MEASURED_WITH else {}
    info = {**about["info"], **source.info, **source.tell(about.get("seen", {})), **known}
    made_of = source.name, about["digest"], info
    whole = Collection(*made_of, passages, queries, judged, folder, place, about["passages_digest"])
    if source.parts is None:
        return whole.without_tested()
    return ReadOnUse(whole, source.parts, made, cache)


def check_within_reach(source: Source, splits: Iterable[str], root: Path) -> None:
    """Try to read the first row of everything that is still missing of a source with `parts`, small
    files first: what is out of reach is reported before anything large is fetched.

    Args:
        source: without `parts`, nothing is tried.
        splits: those that will be read; unknown names are ignored.
        root: as in `open_source`.

    Raises:
        InputError: everything out of reach, in one message.
    """
    if source.parts is None:
        return
    made, cache = arrow_files(source, True, True), Cache(root, announce=_silently)
    parts = {split: source.parts[split] for split in splits if split in source.parts}
    streams = {
        f"split {split}": (*part.judgements.values(), part.queries)
        for split, part in parts.items()
        if not cache.finished(split_files(part, made))
    }
    if not cache.finished(made):
        streams["passages"] = (source.passages,)
    missing = {}
    for name, rows in streams.items():
        try:
            for stream in rows:
                next(iter(stream()), None)
        except InputError as error:
            missing[name] = error
    if missing:
        (first, *_), names = missing.values(), " and ".join(missing)
        problem = f"{names} cannot be had: {first.where}: {first.problem}"
        raise InputError(problem, where=source.name, fix=first.fix)


class ReadOnUse(Collection):
    """A published collection whose splits are read, and downloaded if necessary, at their first
    use: an unused split costs nothing, and may be out of reach.

    Args:
        whole: its passages, without queries and judgements.
        parts: split -> its source.
        made: the stage of the passages.
        cache: where splits are kept.
    """

    def __init__(self, whole: Collection, parts: Mapping[str, Source], made: Stage, cache: Cache):
        self.__dict__ |= whole.__dict__
        self._parts_of, self._made, self._cache = parts, made, cache
        self._judgements, self._asked = dict.fromkeys(parts), {}
        self.digest = json_digest(
            [self.passages_digest, [[name, part.digest] for name, part in parts.items()]]
        )

    def qrels(self, split: str) -> Grades:
        """As `Collection.qrels`; reads the split at its first use.

        Raises:
            InputError: a split that does not exist, or that is out of reach.
        """
        if split in self._judgements and split not in self._asked:
            folder = self._cache.get(split_files(self._parts_of[split], self._made))
            self._asked[split], self._judgements[split] = (
                Dataset.from_file(str(folder / f"{kind}.arrow")) for kind in ("queries", "qrels")
            )
            counts = Counter(self.info["counts"]) + Counter(read_json(folder / ABOUT))
            self.info = {**self.info, "counts": dict(counts)}
            self.__dict__.pop("tested_too", None)  # of the splits that were read
        return super().qrels(split)

    def queries(self, split: str | None = None) -> Dataset:
        """As `Collection.queries`; None reads all splits."""
        if split is None:
            return self.eager(self.splits).queries()
        judged, asked = self.qrels(split), self._asked[split]
        return asked.select([row for row, id_ in enumerate(asked["id"][:]) if id_ in judged])

    def only(self, *splits: str) -> Collection:
        """As `Collection.only`; reads these splits."""
        if splits not in self._parts:
            self._parts[splits] = self.eager(splits).only(*splits)
        return self._parts[splits]

    def sample(self, *sizes: int | None, **named: int | None) -> Collection:
        """As `Collection.sample`, of all splits of the collection."""
        return self.eager(self.splits).sample(*sizes, **named)

    def __copy__(self) -> "ReadOnUse":
        twin = object.__new__(ReadOnUse)
        twin.__dict__ |= self.__dict__
        return twin

    def __reduce__(self) -> tuple:
        """Pickled, it has the splits that were read so far."""
        return copy, (self.eager([*self._asked]),)

    def eager(self, splits: Sequence[str]) -> Collection:
        """The collection with some splits, read at once.

        Raises:
            InputError: one query has two texts.
        """
        rows: dict[str, dict] = {}
        for split in splits:
            self.qrels(split)
            for row in self._asked[split]:
                if rows.setdefault(row["id"], row)["text"] != row["text"]:
                    problem = f"query id {row['id']!r} has another text in another split"
                    raise InputError(
                        problem, where=f"{self.name}, split {split}", fix="Load this split alone."
                    )
        asked = Dataset.from_dict(
            {name: [row[name] for row in rows.values()] for name in QUERY}, features=QUERY
        )
        judged = {split: self._judgements[split] for split in splits}
        made_of = self.name, self.digest, self.info, self.passages, asked, judged
        return Collection(*made_of, self.folder, self.place, self.passages_digest)


@stage()
def split_files(folder: Path, source: Source, passages: Path) -> None:
    """`queries.arrow` and `qrels.arrow` of one split; counts in `collection.json`."""
    counts: Counter = Counter()
    ((split, rows),) = source.judgements.items()
    judged = list(rows())  # first: it is small
    known_passages = Dataset.from_file(str(passages / "passages.arrow"))["id"]
    queries, _ = _write_texts(source, "query", folder / "queries.arrow", counts)
    known = _known_judgements(source, split, judged, known_passages, queries["id"], counts)
    if not known:
        raise InputError("there is no judgement in it", where=source.name, fix="Name another.")
    _write_arrow(folder / "qrels.arrow", JUDGEMENT, known)
    counts["queries_without_judgement"] = len(queries) - len({row.query for _, row in known})
    write_json(folder / ABOUT, {name: number for name, number in counts.items() if number})


@stage(version=4)
def arrow_files(folder: Path, source: Source, allow_duplicates: bool, published: bool) -> None:
    """`passages.arrow`, `queries.arrow`, one Arrow file per split, and `collection.json`."""
    write_json(folder / ABOUT, _write_collection(source, folder, allow_duplicates))


def _write_collection(source: Source, folder: Path, allow_duplicates: bool) -> dict[str, Any]:
    """Read and check the whole source; write its Arrow files and return their description."""
    counts, seen = Counter(), source.look()
    # first: a bad line ends it early
    judged = {split: list(rows()) for split, rows in source.judgements.items()}
    passages, passage_digest = _write_texts(
        source, "passage", folder / "passages.arrow", counts, allow_duplicates
    )
    queries, query_digest = _write_texts(source, "query", folder / "queries.arrow", counts)
    files: dict[str, str] = {}
    digests: dict[str, str] = {}
    asked: set[str] = set()
    for split, rows in judged.items():
        if known := _known_judgements(source, split, rows, passages["id"], queries["id"], counts):
            files[split] = f"qrels-{len(files)}.arrow"
            digests[split] = _write_arrow(folder / files[split], JUDGEMENT, known)
            query_ids = {judgement.query for _, judgement in known}
            counts[split] = {"queries": len(query_ids), "judgements": len(known)}
            asked |= query_ids
    if not counts["judgements_of_absent_passages"]:
        del counts["judgements_of_absent_passages"]
    counts["queries_without_judgement"] = len(queries) - len(asked)
    digest = json_digest({"passages": passage_digest, "queries": query_digest, "splits": digests})
    info = {**source.info, "counts": counts}
    about = {"digest": digest, "passages_digest": passage_digest, "seen": seen}
    return about | {"info": info, "splits": list(files.items())}


def _write_texts(
    source: Source, kind: str, path: Path, counts: Counter, allow_duplicates: bool = True
) -> tuple[Dataset, str]:
    """Write passages or queries; return them with the digest of their content. Duplicates are
    refused or counted.
    """
    features = PASSAGE if kind == "passage" else QUERY
    ids, texts = array("q"), array("q")

    def noted() -> Iterator[tuple[str, Any]]:
        for where, row in _whole_rows(source, kind, counts):
            ids.append(hash(row.id))
            if kind == "passage":
                texts.append(hash(copy_key(row.title, row.text, row.doc)))
            yield where, row

    # the source is read again, since storing the places would take more memory than the texts
    def place(row: int) -> str:
        return next(islice(_whole_rows(source, kind, Counter()), row, None))[0]

    digest = _write_arrow(
        path, features, tqdm(noted(), f"{source.name}: {path.stem}", unit="", delay=3, leave=False)
    )
    written = Dataset.from_file(str(path))
    counts[path.stem] = len(written)
    for row, first in repeats(np.array(ids, np.int64), written, ["id"]):
        problem = f"duplicate {kind} id {written[row]['id']!r}, first seen in {place(first)}"
        raise InputError(
            problem, where=place(row), fix="Remove one of the two, or give it an id of its own."
        )
    if kind == "passage":
        if not len(written):
            raise InputError(
                "there is no passage in it",
                where=f"collection {source.name}",
                fix="Give at least one passage.",
            )
        repeated = list(repeats(np.array(texts, np.int64), written, COPIED, copy_key))
        counts["duplicate_texts"] = len(repeated)
        if repeated and not (allow_duplicates or source.published):
            row, first = repeated[0]
            twin = f"{place(first)} ({len(repeated)} such in all)"
            what = "title and text" if written[row]["title"] == written[first]["title"] else "text"
            problem = f"duplicate passage: {written[row]['id']!r} repeats {what} of {twin}"
            fix = (
                "Remove the repetitions, or load with allow_duplicates=True, which keeps and counts"
                " them."
            )
            raise InputError(problem, where=place(row), fix=fix)
    return written, digest


def _whole_rows(source: Source, kind: str, counts: Counter) -> Iterator[tuple[str, Any]]:
    """The rows that have a text (passages: or a title), their ids checked."""
    for where, row in source.passages() if kind == "passage" else source.queries():
        if not row.id.strip() or NOT_IN_NAMES.search(row.id):
            problem = (
                f"{kind} id {row.id!r} is empty or holds a tab, a line end or a control character"
            )
            raise InputError(problem, where=where, fix="Give it an id of visible characters.")
        if row.text.strip() or (kind == "passage" and row.title.strip()):
            yield where, row
        elif not source.published:
            raise InputError(
                f"{kind} {row.id!r} is empty",
                where=where,
                fix=f"Give it a text, remove the line, or {LENIENT}.",
            )
        else:
            counts[f"empty_{kind}_left_out"] += 1


def _write_arrow(path: Path, features: Features, rows: Iterable[tuple[str, tuple]]) -> str:
    """Write rows as an Arrow stream; return the SHA-256 of their content."""
    content = sha256()
    with ArrowWriter(path=str(path), features=features) as writer:
        for where, row in rows:
            try:
                content.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            except UnicodeEncodeError:
                problem = "a text holds half a surrogate pair"
                raise InputError(problem, where=where, fix="Write the character whole.") from None
            writer.write(dict(zip(features, row, strict=True)))
        writer.finalize()
    return content.hexdigest()


def _known_judgements(
    source: Source,
    split: str,
    judged: list[tuple[str, Judgement]],
    passage_ids: Any,
    query_ids: Any,
    counts: Counter,
) -> list[tuple[str, Judgement]]:
    """Judgements whose passage and query exist; an unknown one, or a pair judged twice, is refused.

    In published data, a judgement of an absent passage is kept, so that recall and nDCG are
    measured with the official judgements; the others are left out. Both are counted.
    """
    queries = rows_of([judgement.query for _, judgement in judged], query_ids).tolist()
    passages = rows_of([judgement.passage for _, judgement in judged], passage_ids).tolist()
    known: dict[tuple[int, int | str], tuple[str, Judgement]] = {}
    for (where, judgement), query, passage in zip(judged, queries, passages, strict=True):
        pair = query, passage if passage >= 0 else judgement.passage
        absent = passage < 0 and source.published
        if query >= 0 and (passage >= 0 or absent) and pair not in known:
            known[pair] = where, judgement
            counts["judgements_of_absent_passages"] += absent
        elif source.published:
            counts["judgements_left_out"] += 1
        else:
            problem = (
                f"query {judgement.query!r} and passage {judgement.passage!r} are judged twice"
            )
            if query < 0 or passage < 0:
                unknown = (
                    f"query {judgement.query!r}" if query < 0 else f"passage {judgement.passage!r}"
                )
                problem = f"the judgement names an unknown {unknown}"
            fix = f"Correct the id, remove the line, or {LENIENT}."
            raise InputError(problem, where=where, fix=fix)
    if not known and not source.published:
        fix = "Add judgements, or remove the split."
        raise InputError(
            "there is no judgement in it", where=f"collection {source.name}, split {split}", fix=fix
        )
    return list(known.values())
