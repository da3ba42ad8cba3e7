"""The files of a source, from public repositories or a folder, and those made from them."""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatch
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dr_book.data.text import decode
from dr_lib.collections.beir import HEADER
from dr_lib.errors import InputError, first_line
from dr_lib.files import file_digest, fresh_folder, json_digest
from dr_lib.places import cache_root

RAW = "https://raw.githubusercontent.com/{repository}/{commit}/{path}"
ARCHIVE = "https://codeload.github.com/{repository}/tar.gz/{commit}"
LARGEST = 2**28
"""The most bytes of an unpacked file: many times the largest of the sources."""
SECONDS = 60
"""Timeout of a server."""

Rows = dict[str, Sequence]
"""Path -> its rows: objects of a .jsonl.gz, cells of a .tsv."""


class Files:
    """The files of a source in a folder, under the paths of its repository or all at top level."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, name: str) -> Path:
        """A file; `InputError` if it is missing."""
        for path in (self.folder / name, self.folder / Path(name).name):
            if path.is_file():
                return path
        fix = "Get the source again, or give the folder that contains this file: --from FOLDER."
        raise InputError("no such file", where=self.folder / name, fix=fix)

    def read(self, name: str) -> bytes:
        """Content of a file."""
        return self.path(name).read_bytes()

    def unzipped(self, name: str, member: str) -> bytes:
        """Content of a file in an archive; `InputError` if it is larger than `LARGEST`."""
        with zipfile.ZipFile(io.BytesIO(self.read(name))) as archive:
            check_size(archive.getinfo(member).file_size, f"{self.path(name)}, {member}")
            return archive.read(member)

    def text(self, name: str) -> str:
        """Content of a text file."""
        return decode(self.read(name))

    def lines(self, name: str) -> list[str]:
        """Non-blank lines of a text file, with their tabs."""
        lines = self.read(name).decode("utf-8-sig").split("\n")
        return [line.rstrip("\r") for line in lines if line.strip()]

    def names(self, pattern: str) -> list[str]:
        """Names of the files that match a pattern, sorted; `InputError` if none does."""
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        known = sorted(path.relative_to(self.folder).as_posix() for path in paths)
        if not (names := [name for name in known if fnmatch(name, pattern)]):
            self.path(pattern)
        return names


def check_size(size: int, where: str) -> None:
    """Refuse to unpack a file that is too large to be one of the sources'."""
    if size > LARGEST:
        problem = f"unpacks to {size:,} bytes, more than {LARGEST:,}"
        raise InputError(problem, where=where, fix="Get its source again.")


def fetch(name: str, sources: Sequence[Mapping[str, Any]]) -> Files:
    """The files of a collection's sources, downloaded once: all of them, or none.

    Args:
        name: of the collection.
        sources: repository, commit, and files: path -> SHA-256, or None if unknown. A path with a
            star stands for all that match, which are taken from the repository's archive.

    Raises:
        InputError: no network, no such file, or unexpected content.
    """
    folder = cache_root() / "downloads" / f"{name}-{json_digest(sources)[:10]}"
    if not folder.is_dir():
        with fresh_folder(folder, "downloaded files") as draft:
            for source in sources:
                _download(source, draft)
    return Files(folder)


def _download(source: Mapping[str, Any], to: Path) -> None:
    """Save the files of a source under their paths."""
    patterns = [path for path in source["files"] if "*" in path]
    url = ARCHIVE.format(**source)
    try:
        if patterns:
            _extract(url, patterns, to)
        for path, digest in source["files"].items():
            if path not in patterns:
                url = RAW.format(**source, path=quote(path))
                _save(url, to / path)
                if digest and file_digest(to / path) != digest:
                    raise OSError("its content does not have the expected SHA-256")
    except (OSError, EOFError, HTTPException, tarfile.TarError) as error:
        problem = f"could not be downloaded ({first_line(error)})"
        names = ", ".join(source["files"])
        fix = f"Connect to the network, or give a folder with {names}: --from FOLDER."
        raise InputError(problem, where=url, fix=fix) from None


def _save(url: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(url, timeout=SECONDS) as answer, path.open("wb") as file:
        shutil.copyfileobj(answer, file)


def _extract(url: str, patterns: Sequence[str], to: Path) -> None:
    """Unpack matching files from a repository's archive, without its top folder."""
    with (
        urllib.request.urlopen(url, timeout=SECONDS) as answer,
        tarfile.open(fileobj=answer, mode="r|gz") as archive,
    ):
        for member in archive:
            member.name = member.name.partition("/")[2]
            if member.isfile() and any(fnmatch(member.name, pattern) for pattern in patterns):
                archive.extract(member, to, filter="data")


def collection(
    corpus: Iterable[Mapping], queries: Iterable[Mapping], judged: Mapping[str, Iterable[tuple]]
) -> Rows:
    """The files of a folder in BEIR layout: each judgement once, without those of unknown queries
    or passages, and, if there are judgements, without unjudged queries.

    Args:
        corpus: rows of corpus.jsonl.
        queries: rows of queries.jsonl.
        judged: split -> (query, passage, grade); an empty split gets no file.
    """
    corpus, queries = [*corpus], [*queries]
    passages, asked = ({row["_id"] for row in rows} for rows in (corpus, queries))
    known = {
        split: [row for row in dict.fromkeys(rows) if row[0] in asked and row[1] in passages]
        for split, rows in judged.items()
    }
    answered = {row[0] for rows in known.values() for row in rows}
    if judged:
        queries = [row for row in queries if row["_id"] in answered]
    files: Rows = {"corpus.jsonl.gz": corpus, "queries.jsonl.gz": queries}
    tables = {split: [HEADER.split("\t"), *rows] for split, rows in known.items() if rows}
    return files | {f"qrels/{split}.tsv": rows for split, rows in tables.items()}


def write(folder: Path, files: Rows) -> None:
    """Write the rows of each file; packed files are reproducible byte by byte, as records need.

    Raises:
        InputError: a row is not a text.
    """
    for name, rows in files.items():
        if name.endswith(".tsv"):
            lines = ("\t".join(map(str, cells)) for cells in rows)
        else:
            lines = (json.dumps(row, ensure_ascii=False) for row in rows)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            file: Any = opened.enter_context(path.open("wb"))
            if name.endswith(".gz"):
                file = opened.enter_context(gzip.GzipFile("", "wb", 9, file, mtime=0))
            file = opened.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline="\n"))
            try:
                file.writelines(f"{line}\n" for line in lines)
                file.flush()
            except UnicodeEncodeError as error:  # a lone surrogate, which JSON may contain
                problem = f"a row is not a text ({first_line(error)})"
                raise InputError(problem, where=name, fix="Get its source again.") from None


def content_digest(path: Path) -> str:
    """SHA-256 (hex) of a file's content, decompressed if it is packed."""
    content = path.read_bytes()
    return hashlib.sha256(gzip.decompress(content) if path.suffix == ".gz" else content).hexdigest()
