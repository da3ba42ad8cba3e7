"""Passages without questions: one JSON Lines file, or a folder of text files that are cut into passages.

The checks are those of every collection. There are no queries and no judgements: such a collection is text for
pre-training, until questions are written for it (`lab.generate_queries`). About 100 words per passage, as in DPR's
Wikipedia (Karpukhin et al. 2020, section 4.1), but no sentence is torn apart unless it is longer than a passage. Page
of the book: practice/own-corpus.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from dr_lib.collections.beir import files_digest, licence_of, passage_of, read_lines, read_records
from dr_lib.collections.store import NOT_IN_NAMES, Passage, Source
from dr_lib.errors import InputError
from dr_lib.files import json_digest

WORDS = 100
LAYOUT = ("corpus.jsonl", "corpus.jsonl.gz", "queries.jsonl", "queries.jsonl.gz", "qrels")
ABBREVIATIONS = ("e.g", "i.e", "cf", "vs", "etc", "Eq", "Fig", "Dr", "et al", "resp", "Ref", "approx", "No")
SENTENCE_END = re.compile(
    rf"(?<=[a-z0-9)\]\"'%][.!?]){''.join(f'(?<!{re.escape(word)}[.])' for word in ABBREVIATIONS)}\s+(?=[\"'(]?[A-Z0-9])"
)


def lines_source(path: Path) -> Source:
    """Describe a JSON Lines file of passages.

    Args:
        path: a line is an object with `text`, and as in a corpus.jsonl `title`, `doc` and `position`; without `_id` it
            is called "line-" and its number.
    """

    def parse(record: dict[str, Any], where: str) -> Passage:
        return passage_of({"_id": f"line-{where.rpartition(' ')[2]}", **record}, where)

    return Source(
        name=path.name.removesuffix(".gz").removesuffix(".jsonl"),
        digest=files_digest([path]),
        passages=partial(read_records, path, parse),
        info={"source": "JSON Lines file", "licence": licence_of(path.parent), "files": [path.name]},
    )


def text_files(folder: Path) -> list[Path]:
    """The text files of a folder and of those in it, by name; none where it has files of the BEIR layout.

    What begins with a dot is left out.
    """
    if any((folder / name).exists() for name in LAYOUT):
        return []
    files = {path.relative_to(folder): path for path in sorted(folder.rglob("*.txt")) if path.is_file()}
    return [path for name, path in files.items() if not any(part.startswith(".") for part in name.parts)]


def texts_source(folder: Path) -> Source:
    """Describe a folder of text files, each a document that is cut into passages.

    Args:
        folder: its `*.txt` files in UTF-8, also in folders below. `doc` is the file's name as seen from the folder, the
            id of a passage that name and the passage's number. Titles are empty.

    Raises:
        InputError: a file whose name is not UTF-8 or holds a line end.
    """
    files = {path.relative_to(folder).as_posix(): path for path in text_files(folder)}
    for name in files:
        if NOT_IN_NAMES.search(name):
            fix = "Rename it: the name is the document's id."
            raise InputError(f"a file name with a control character or not in UTF-8: {name!r}", where=folder, fix=fix)
    return Source(
        name=folder.name,
        digest=json_digest([files_digest(files.values()), list(files)]),
        passages=partial(_passages, files),
        info={"source": "folder of text files", "licence": licence_of(folder), "files": len(files)},
    )


def _passages(files: dict[str, Path]) -> Iterator[tuple[str, Passage]]:
    for name, path in files.items():
        texts = cut(paragraphs(line for _, line in read_lines(path)))
        if not texts:
            raise InputError("there is no text in the file", where=path, fix="Remove it, or give it its text.")
        for position, text in enumerate(texts):
            yield str(path), Passage(f"{name}#{position}", "", text, name, position)


def paragraphs(lines: Iterable[str]) -> list[str]:
    """The paragraphs of a text: runs of lines with a blank line between, each as one line.

    Example:
        >>> paragraphs(["The moon", "  pulls.", "", "Tides rise."])
        ['The moon pulls.', 'Tides rise.']
    """
    groups: list[list[str]] = [[]]
    for line in lines:
        words = line.split()
        if not words and groups[-1]:
            groups.append([])
        groups[-1] += words
    return [" ".join(group) for group in groups if group]


def sentences(text: str) -> list[str]:
    """Cut plain text at sentence ends.

    Example:
        >>> sentences("Sort the rows, e.g. by name. The order is kept. 3 of 4 stay.")
        ['Sort the rows, e.g. by name.', 'The order is kept.', '3 of 4 stay.']
    """
    return [part for part in SENTENCE_END.split(text) if part]


def cut(parts: Iterable[str], words: int = WORDS) -> list[str]:
    """Passages of a document.

    Args:
        parts: its paragraphs.
        words: most words of a passage. A last one of less than a fifth of it is joined to the one before.

    Returns:
        The passages in order; joined with spaces they give the paragraphs again.

    Example:
        >>> cut(["One two three. Four five six. Seven.", "Eight nine ten."], words=6)
        ['One two three. Four five six.', 'Seven. Eight nine ten.']
    """
    groups: list[list[str]] = [[]]
    for part in parts:
        # End with a paragraph where the next one does not fit, unless that leaves the passage half empty.
        if len(groups[-1]) >= words / 2 and len(groups[-1]) + len(part.split()) > words:
            groups.append([])
        for sentence in map(str.split, sentences(part)):
            for run in (sentence[start : start + words] for start in range(0, len(sentence), words)):
                if groups[-1] and len(groups[-1]) + len(run) > words:
                    groups.append([])
                groups[-1] += run
    if len(groups) > 1 and len(groups[-1]) < words / 5:
        groups[-2:] = [groups[-2] + groups[-1]]
    return [" ".join(group) for group in groups if group]
