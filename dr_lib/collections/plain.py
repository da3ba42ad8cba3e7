"""Passages without questions: one JSON Lines file, or a folder of text files. Book: practice/own-corpus.

The checks are those of every collection. There are no queries and no judgements: such a collection is text for
pre-training, until questions are written for it (`lab.generate_queries`).
"""

from collections.abc import Iterator
from pathlib import Path

from dr_lib.collections.beir import files_digest, licence_of, passage_of, read_lines, read_records
from dr_lib.collections.cutting import cut, paragraphs
from dr_lib.collections.source import Passage, Rows, Source
from dr_lib.errors import InputError
from dr_lib.files import json_digest

LINES = (".jsonl", ".jsonl.gz")
TEXTS = "*.txt"
NO_ROWS = Rows("queries", lambda: iter(()))


def is_lines_file(path: Path) -> bool:
    """Tell whether a path is a JSON Lines file, plain or gzipped."""
    return path.is_file() and path.name.endswith(LINES)


def lines_source(path: Path, *, allow_duplicates: bool = False) -> Source:
    """Describe a JSON Lines file of passages.

    Args:
        path: a line is an object with `text`, and as in a corpus.jsonl `title`, `doc` and `position`; without `_id` it
            is called "line-" and its number.
        allow_duplicates: keep passages that repeat title and text of another one.
    """
    return Source(
        name=path.name.removesuffix(".gz").removesuffix(".jsonl"),
        key=files_digest([path]),
        passages=Rows(str(path), lambda: _numbered(path)),
        queries=NO_ROWS,
        info={"source": "JSON Lines file", "licence": licence_of(path.parent), "files": [path.name]},
        allow_duplicates=allow_duplicates,
    )


def _numbered(path: Path) -> Iterator[tuple[int, Passage]]:
    for number, (record, where) in read_records(path, lambda record, where: (record, where)):
        yield number, passage_of({"_id": f"line-{number}", **record}, where)


def is_text_folder(folder: Path) -> bool:
    """Tell whether a folder holds text files, and nothing of the BEIR layout beside them."""
    layout = ("corpus.jsonl", "corpus.jsonl.gz", "queries.jsonl", "queries.jsonl.gz", "qrels")
    return not any((folder / name).exists() for name in layout) and bool(text_files(folder))


def text_files(folder: Path) -> list[Path]:
    """The text files of a folder and of the folders in it, by name; what begins with a dot is left out."""
    found = sorted(path for path in folder.rglob(TEXTS) if path.is_file())
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def texts_source(folder: Path, *, allow_duplicates: bool = False) -> Source:
    """Describe a folder of text files, each a document that is cut into passages.

    Args:
        folder: its `*.txt` files in UTF-8, also in folders below. `doc` is the file's name as seen from the folder, the
            id of a passage that name and the passage's number. Titles are empty.
        allow_duplicates: keep passages that repeat the text of another one.

    Raises:
        InputError: no such file in it.
    """
    files = text_files(folder)
    if not files:
        raise InputError("no text file (*.txt) in the folder", where=folder, fix="Give a folder with some.")
    names = [path.relative_to(folder).as_posix() for path in files]
    return Source(
        name=folder.name,
        key=json_digest([files_digest(files), names]),
        passages=Rows(str(folder), lambda: enumerate(_passages(folder, files), start=1), "passage"),
        queries=NO_ROWS,
        info={"source": "folder of text files", "licence": licence_of(folder), "files": len(files)},
        allow_duplicates=allow_duplicates,
    )


def _passages(folder: Path, files: list[Path]) -> Iterator[Passage]:
    for path in files:
        name, found = path.relative_to(folder).as_posix(), cut(paragraphs(line for _, line in read_lines(path)))
        if not found:
            raise InputError("there is no text in the file", where=path, fix="Remove it, or give it its text.")
        for position, text in enumerate(found):
            yield Passage(f"{name}#{position}", "", text, name, position)
