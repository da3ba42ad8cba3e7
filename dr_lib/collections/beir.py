"""Folders in BEIR layout, plain or gzipped: corpus.jsonl, queries.jsonl, qrels/<split>.tsv.

Thakur et al., "BEIR" (2021), plus two fields of ours: `doc` and `position` say where in which document a passage
stands, and a query may carry `answers`. Book: practice/own-corpus.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from dr_lib.collections.source import Judgement, Passage, Query, Rows, Source
from dr_lib.errors import InputError

HEADER = ("query-id", "corpus-id", "score")
GENERATED = "Generated questions"
"""Subject of the line in a README that says who wrote the queries, where it was a model."""
FIRST_SPLITS = ("train", "dev", "test")
JSON_TYPES = {
    str: "text",
    int: "a whole number",
    list: "a list",
    dict: "an object",
    bool: "true/false",
    float: "a number",
}
Record = dict[str, Any]


def folder_source(folder: Path, *, name: str | None = None, allow_duplicates: bool = False) -> Source:
    """Describe a folder in BEIR layout; nothing but the file digests is read yet.

    Args:
        folder: holds corpus.jsonl[.gz], queries.jsonl[.gz] and qrels/<split>.tsv[.gz]. Without qrels the collection has
            no splits and serves as text for pre-training.
        name: what to call it; by default the folder's name.
        allow_duplicates: keep passages that repeat title and text of another one.

    Raises:
        InputError: the folder, its corpus or its queries are missing.
    """
    corpus = _find(folder, "corpus.jsonl")
    if corpus is None:
        raise InputError("no corpus.jsonl or corpus.jsonl.gz in the folder", where=folder, fix=_what_it_is(folder))
    queries = _find(folder, "queries.jsonl")
    splits = _splits(folder)
    if queries is None and splits:
        raise InputError(
            "there are qrels but no queries.jsonl or queries.jsonl.gz", where=folder, fix="Add the queries they judge."
        )
    files = [corpus, *([queries] if queries else []), *splits.values()]
    return Source(
        name=name or folder.name,
        key=files_digest(files),
        passages=Rows(str(corpus), lambda: read_records(corpus, passage_of)),
        queries=Rows(str(queries), lambda: read_records(queries, _query) if queries else iter(())),
        judgements={split: Rows(str(path), lambda path=path: _judgements(path)) for split, path in splits.items()},
        info={
            "source": "folder in BEIR layout", "licence": licence_of(folder), "files": [path.name for path in files],
            **({"questions": told} if (told := said_of(folder, GENERATED)) else {}),
        },
        allow_duplicates=allow_duplicates,
    )  # fmt: skip


def is_folder_of_passages(folder: Path) -> bool:
    """Tell whether a folder has a corpus in BEIR layout."""
    return any((folder / name).is_file() for name in ("corpus.jsonl", "corpus.jsonl.gz"))


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a text file, plain or .gz; broken compression or encoding ends in `InputError`."""
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"not UTF-8 ({error.reason})", where=f"{path} line {number}", fix="Save the file as UTF-8."
        ) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        where = f"{path} after line {number}"
        raise InputError(
            f"the gzip file is cut off or damaged ({error})", where=where, fix="Copy or compress it again."
        ) from None


def _find(folder: Path, name: str) -> Path | None:
    found = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if len(found) == 2:
        raise InputError(
            f"both {name} and {name}.gz are there", where=folder, fix="Remove the one that is out of date."
        )
    return found[0] if found else None


def _splits(folder: Path) -> dict[str, Path]:
    """Judgement files by split: train, dev, test first, others by name."""
    files = sorted((folder / "qrels").glob("*.tsv")) + sorted((folder / "qrels").glob("*.tsv.gz"))
    names = [path.name.removesuffix(".gz").removesuffix(".tsv") for path in files]
    for name in {name for name in names if names.count(name) > 1}:
        raise InputError(
            f"both {name}.tsv and {name}.tsv.gz are there", where=folder / "qrels", fix="Remove one of them."
        )
    order = {name: rank for rank, name in enumerate(FIRST_SPLITS)}
    return dict(sorted(zip(names, files, strict=True), key=lambda item: (order.get(item[0], len(order)), item[0])))


def _what_it_is(folder: Path) -> str:
    """Say what a folder without a corpus seems to be."""
    if _find(folder, "queries.jsonl"):
        return "It holds queries only: join them with the passages they are asked of, as corpus.jsonl."
    if (folder / "pairs").is_dir():
        return "It holds text pairs, not passages to search: use it for pre-training on pairs, not as a collection."
    return (
        "Give a folder with corpus.jsonl (fields _id, title, text), queries.jsonl and qrels/<split>.tsv; for passages"
        " without questions one with corpus.jsonl alone or with text files (*.txt), or a JSON Lines file."
    )


def files_digest(files: list[Path]) -> str:
    """SHA-256 (hex) of the files' content and names."""
    total = sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                total.update(block)
        total.update(path.name.encode() + b"\0")
    return total.hexdigest()


def licence_of(folder: Path) -> str:
    """The licence line of the folder's README, or a word that it is unknown."""
    return said_of(folder, "Licence") or "unknown: the folder's README.md has no line with 'Licence:'"


def said_of(folder: Path, subject: str) -> str | None:
    """What follows `<subject>:` in the folder's README, to the end of that line; None where nothing does."""
    readme = folder / "README.md"
    for line in readme.read_text(encoding="utf-8", errors="replace").splitlines() if readme.is_file() else ():
        _, found, rest = line.partition(f"{subject}:")
        if found:
            return rest.strip()
    return None


def read_records(path: Path, parse: Callable[[Record, str], Any]) -> Iterator[tuple[int, Any]]:
    """Line numbers of a JSON Lines file with what `parse` makes of each object and of the place that errors name."""
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a JSON object ({error})", where=where, fix="Write one JSON object a line.") from None
        if not isinstance(record, dict):
            raise InputError(
                f"a JSON object is expected, not {_kind(record)}", where=where, fix="Write one JSON object a line."
            )
        yield number, parse(record, where)


def passage_of(record: Record, where: str) -> Passage:
    """A line of a corpus.jsonl as a passage; `InputError` names the field that is wrong."""
    return Passage(
        _text(record, "_id", where, needed=True, empty=False),
        _text(record, "title", where),
        _text(record, "text", where, needed=True),
        _text(record, "doc", where),
        _field(record, "position", int, 0, where),
    )


def _query(record: Record, where: str) -> Query:
    answers = _field(record, "answers", list, [], where)
    for answer in answers:
        if not isinstance(answer, str):
            raise InputError(f"field answers holds {_kind(answer)}", where=where, fix="Give a list of texts.")
    return Query(
        _text(record, "_id", where, needed=True, empty=False), _text(record, "text", where, needed=True), tuple(answers)
    )


def query_text(record: Record, where: str) -> str:
    """The text of a line of a queries.jsonl; `InputError` where it is missing or is no text."""
    return _text(record, "text", where, needed=True)


def _field(record: Record, name: str, kind: type, default: Any, where: str) -> Any:
    value = record.get(name)
    if value is None:
        return default
    if type(value) is not kind:
        problem = f"field {name} is {_kind(value)}, not {JSON_TYPES[kind]}"
        raise InputError(problem, where=where, fix=f"Give {name} as {JSON_TYPES[kind]}.")
    return value


def _text(record: Record, name: str, where: str, *, needed: bool = False, empty: bool = True) -> str:
    value = _field(record, name, str, None, where)
    if value is None:
        if needed:
            raise InputError(f"field {name} is missing", where=where, fix=f"Give every line a field {name}.")
        return ""
    if not empty and not value.strip():
        raise InputError(f"field {name} is empty", where=where, fix="Give it an id.")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"field {name} holds half a surrogate pair", where=where, fix="Write the character whole.")
    return value


def _kind(value: Any) -> str:
    return "null" if value is None else JSON_TYPES[type(value)]


def _judgements(path: Path) -> Iterator[tuple[int, Judgement]]:
    lines = read_lines(path)
    _, header = next(lines, (0, ""))
    if tuple(header.split("\t")) != HEADER:
        problem = f"the first line is {header[:60]!r}, not the header"
        fix = "Begin the file with the columns query-id, corpus-id and score, separated by tabs."
        raise InputError(problem, where=f"{path} line 1", fix=fix)
    for number, line in lines:
        if not line.strip():
            continue
        cells, where = line.split("\t"), f"{path} line {number}"
        if len(cells) != 3:
            fix = "Give query-id, corpus-id and score, separated by tabs."
            raise InputError(f"{len(cells)} columns instead of 3", where=where, fix=fix)
        try:
            yield number, Judgement(cells[0], cells[1], int(cells[2]))
        except ValueError:
            problem = f"grade {cells[2]!r} in column score is not a whole number"
            raise InputError(problem, where=where, fix="Give 0, 1, 2, ...") from None
