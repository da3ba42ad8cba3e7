"""Passages without questions: one file of JSON Lines or CSV, or text files that are cut into
passages.

The checks are those of every collection. There are no queries and no judgements: such a collection
is text for pre-training, until questions are written for it (`lab.generate_queries`). About 100
words per passage, as in DPR's Wikipedia (Karpukhin et al. 2020, section 4.1), but no sentence is
torn apart unless it is longer than a passage. Page of the book: practice/own-corpus.
"""

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from dr_lib.collections.beir import (
    files_digest,
    licence_of,
    passage_of,
    read_lines,
    read_records,
    read_table,
    said_of,
)
from dr_lib.collections.store import NOT_IN_NAMES, Passage, Source
from dr_lib.errors import InputError
from dr_lib.files import json_digest
from dr_lib.words import pieces, sentences

WORDS = 100
TEXTS = tuple(kind + packed for kind in (".txt", ".md", ".rst") for packed in ("", ".gz"))
LINES = tuple(
    kind + packed
    for kind in (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
    for packed in ("", ".gz")
)
"""Endings of files of running text, and of files with a passage a line."""
SIGNS = "[=~^\"'`#*+.:_-]"
HEADING = re.compile(
    r"^ *(?P<fence>```|~~~)[\s\S]*?(?:^ *(?P=fence)|\Z)"  # code, in which a # begins a comment
    r"|^(?P<hashes>#{1,6})[ \t]+(?P<title>.*?)[ \t#]*$"
    rf"|(?:\A|(?<=\n\n))(?:(?P<over>{SIGNS})(?P=over){{2,}}\n"
    rf" *)?(?P<above>\S.*)\n(?P<under>{SIGNS})(?P=under){{2,}}$",
    re.MULTILINE,
)
"""A heading of Markdown or reStructuredText: behind signs, above a line of them, or between two
such lines.
"""
# of the way that files become passages: another one makes other passages of the same files
CUT = 2
LAYOUT = ("corpus.jsonl", "corpus.jsonl.gz", "queries.jsonl", "queries.jsonl.gz", "qrels")
INVISIBLE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff\ue000-\uf8ff]"
)
"""Controls, marks of no width, halves of surrogate pairs and signs of private use."""


def lines_source(path: Path) -> Source:
    """Describe a file of passages, in JSON Lines or CSV.

    Args:
        path: a line is an object with `text`, and as in a corpus.jsonl `title`, `doc` and
            `position`; without `_id` it is called "line-" and its number. The first line of a .csv
            or .tsv names its columns likewise.
    """
    name, _, kind = path.name.removesuffix(".gz").rpartition(".")

    def parse(record: dict[str, Any], where: str) -> Passage:
        return passage_of(record, where, f"line-{where.rpartition(' ')[2]}")

    return Source(
        name=name,
        digest=files_digest([path]),
        passages=partial(_cells if kind.lower() in ("csv", "tsv") else read_records, path, parse),
        info={
            "source": f"{kind.upper()} file",
            "licence": licence_of(path.parent),
            "files": [path.name],
        },
    )


def _cells(
    path: Path, parse: Callable[[dict[str, Any], str], Passage]
) -> Iterator[tuple[str, Passage]]:
    """The rows of a table as `parse` makes them; an empty cell is no field."""
    for where, row in read_table(path):
        record: dict[str, Any] = {name.lower(): cell for name, cell in row.items() if cell}
        if record.get("position", "").isdecimal():
            record["position"] = int(record["position"])
        yield where, parse(record, where)


def text_files(place: Path) -> list[Path]:
    """The text files of a folder and of those in it, by name; none where it has files of the BEIR
    layout.

    What begins with a dot is left out, as is a README that states the licence or describes the one
    file of passages.

    Raises:
        InputError: texts beside a file of JSON Lines: which of the two is meant?
    """
    if place.is_file():
        return [place]
    if any((place / name).exists() for name in LAYOUT):
        return []
    files = [
        path
        for path in sorted(place.rglob("*"))
        if path.name.lower().endswith(TEXTS) and path.is_file()
    ]
    files = [
        path
        for path in files
        if not any(part.startswith(".") for part in path.relative_to(place).parts)
    ]
    lines, readme = (
        line_files(place),
        [path for path in files if path.parent == place and path.stem.upper() == "README"],
    )
    if said_of(place, "Licence") or (len(lines) == 1 and files == readme):
        files = [path for path in files if path not in readme]
    if files and (passages := [path.name for path in lines if ".jsonl" in path.name.lower()]):
        fix = f"Give {place.name}/{passages[0]}, or move the texts to a folder of their own."
        raise InputError(
            f"both texts ({files[0].name}) and passages ({passages[0]}) are there",
            where=place,
            fix=fix,
        )
    return files


def check_links(folder: Path) -> None:
    """Raise `InputError` where a file that could be read is a link that leads out of the folder:
    whoever made the folder would choose what is shown of other places.
    """
    inside = folder.resolve()
    for path in folder.rglob("*"):
        if path.is_symlink() and path.name.lower().endswith(TEXTS + LINES):
            target = Path(os.path.realpath(path))  # a circle of links ends
            if target.is_file() and not target.is_relative_to(inside):
                problem = f"is a link that leads out of {folder.name}"
                fix = "Copy the file here, or give it by its own name."
                raise InputError(problem, where=path, fix=fix)


def line_files(folder: Path) -> list[Path]:
    """The files of a folder that may hold a passage a line."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.name.lower().endswith(LINES) and path.is_file()
    ]


def texts_source(place: Path) -> Source:
    """Describe text files, each a document that is cut into passages.

    Args:
        place: a folder with `.txt`, `.md` or `.rst` files in UTF-8, plain or gzipped, also in
            folders below, or one such file. `doc` is the file's name as seen from the folder, the
            id of a passage that name and the passage's number, its title the headings above it, of
            which a `.txt` has none. Files without text are left out and counted in `info`.

    Raises:
        InputError: a file that is not UTF-8, or whose name is not or holds a line end.
    """
    folder = place.parent if place.is_file() else place
    found = {path.relative_to(folder).as_posix(): path for path in text_files(place)}
    files = {name: path for name, path in found.items() if _holds_text(path)}
    counts = {"files": len(files), "empty_files_left_out": len(found) - len(files)}
    # what lies behind a link to a folder is not read
    linked = [path for path in folder.rglob("*") if path.is_symlink() and path.is_dir()]
    if place.is_dir() and linked:
        counts["linked_folders_left_out"] = len(linked)
    for name in files:
        if NOT_IN_NAMES.search(name):
            fix = "Rename it: the name is the document's id."
            raise InputError(
                f"a file name with a control character or not in UTF-8: {name!r}",
                where=folder,
                fix=fix,
            )
    return Source(
        name=Path(place.name.removesuffix(".gz")).stem if place.is_file() else folder.name,
        digest=json_digest([files_digest(found.values()), list(found), CUT]),
        passages=partial(_passages, files),
        info={"source": "folder of text files", "licence": licence_of(folder), **counts},
    )


def _holds_text(path: Path) -> bool:
    return any(line.strip() for _, line in read_lines(path))


def _passages(files: dict[str, Path]) -> Iterator[tuple[str, Passage]]:
    for name, path in files.items():
        text = "\n".join(line.rstrip() for _, line in read_lines(path))
        parts = (
            [("", text)]
            if path.name.lower().removesuffix(".gz").endswith(".txt")
            else sections(text)
        )
        passages = (
            (title, own) for title, part in parts for own in cut(paragraphs(part.splitlines()))
        )
        for position, (title, own) in enumerate(passages):
            yield str(path), Passage(f"{name}#{position}", title, own, name, position)


def sections(text: str) -> list[tuple[str, str]]:
    """The parts of a Markdown or reStructuredText file between its headings, each with the headings
    that stand above it.

    A heading with nothing below it is text itself, so that its words are not lost.

    Example:
        >>> sections("# Sea\\nSalt.\\n## Tides\\nTwice a day.\\n# Moon")
        [('', ''), ('Sea', '\\nSalt.\\n'), ('Sea: Tides', '\\nTwice a day.\\n'), ('', 'Moon')]
    """
    marks = [mark for mark in HEADING.finditer(text) if not mark["fence"]]
    # by their order, as in reStructuredText
    styles = list(dict.fromkeys((mark["over"], mark["under"]) for mark in marks))
    levels = [
        len(mark["hashes"] or "") or 1 + styles.index((mark["over"], mark["under"]))
        for mark in marks
    ]
    starts = [*(mark.start() for mark in marks), len(text)]
    found, titles = [("", text[: starts[0]])], {}
    for mark, level, end, following in zip(
        marks, levels, starts[1:], [*levels[1:], 0], strict=False
    ):
        titles = {depth: title for depth, title in titles.items() if depth < level}
        above, heading, own = (
            ": ".join(titles.values()),
            mark["title"] or mark["above"] or "",
            text[mark.end() : end],
        )
        titles[level] = heading
        if own.strip() or following > level:
            found.append((": ".join(titles.values()), own))
        else:
            found.append((above, heading))
    return found


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


def one_line(text: str) -> str:
    r"""A text of another source on one line: NFC, no control characters, single spaces.

    Example:
        >>> one_line(" Caf\u0065\u0301,\r\n\u200b open ")
        'Café, open'
    """
    return " ".join(INVISIBLE.sub(" ", unicodedata.normalize("NFC", text)).split())


def cut(parts: Iterable[str], words: int = WORDS) -> list[str]:
    """Passages of a document.

    Args:
        parts: its paragraphs.
        words: most words of a passage, as `words.pieces` counts them. A last one of less than a
            fifth of it is joined to the one before.

    Returns:
        The passages in order. Joined with spaces they give the paragraphs again; where a script
        writes none, they are joined without.

    Example:
        >>> cut(["One two three. Four five six. Seven.", "Eight nine ten."], words=6)
        ['One two three. Four five six.', 'Seven. Eight nine ten.']
    """
    groups: list[list[str]] = [[]]
    for part in parts:
        # End with a paragraph where the next one does not fit, unless that leaves the passage half
        # empty.
        if len(groups[-1]) >= words / 2 and len(groups[-1]) + len(pieces(part)) > words:
            groups.append([])
        end = 0
        for sentence in sentences(part):
            begin = part.index(sentence, end)
            end, run = begin + len(sentence), pieces(sentence)
            if begin and not part[begin - 1].isspace():  # a script that writes no spaces
                run[0] = run[0].removeprefix(" ")
            for stretch in (run[start : start + words] for start in range(0, len(run), words)):
                if groups[-1] and len(groups[-1]) + len(stretch) > words:
                    groups.append([])
                groups[-1] += stretch
    if len(groups) > 1 and len(groups[-1]) < words / 5:
        groups[-2:] = [groups[-2] + groups[-1]]
    return ["".join(group).strip() for group in groups if group]
