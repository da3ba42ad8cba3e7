"""Judgements by hand: a table to tick, and the collection made from it.

`dr-lib try` writes the top ten passages of every system for each test question into one CSV file,
pooled, without saying which system found them (Voorhees and Harman 2005, TREC's pooling). In any
spreadsheet, passages that answer the question are marked with an x. `dr-lib try FOLDER --judged
FILE` reads it back as judgements. Page of the book: practice/own-corpus.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count
from pathlib import Path

import numpy as np

from dr_lib.collections import Collection, Judgement, Query, write_folder
from dr_lib.collections.beir import read_table
from dr_lib.errors import InputError
from dr_lib.files import fresh_folder, write_text
from dr_lib.retrieval import Ranking

COLUMNS = "relevant", "query", "title", "passage", "query-id", "passage-id"
DEPTH, QUERIES = 10, 50
"""Pooled passages per system and query, and number of queries, the first of the rankings."""
YES, NO = ("x", "yes", "y", "true"), ("no", "n", "false", "-")
SIGNS = "=+-@'\t"
"""First characters of cells that a spreadsheet would evaluate; a preceding apostrophe prevents it.
"""


def write_pool(
    collection: Collection,
    rankings: Iterable[Ranking],
    file: Path,
    *,
    grades: Mapping[str, Mapping[str, int]] | None = None,
) -> Path:
    """Write the passages to be judged as a table.

    Args:
        collection: the searched collection.
        rankings: of the same queries, one a system.
        file: where to write. A table without ticks, or one whose ticks and questions are all in the
            new one, is replaced; otherwise the new one is written beside it: `to-judge-2.csv`, and
            so on.
        grades: known judgements, query id -> passage id -> grade, which are filled in.

    Returns:
        The file written.
    """
    rankings, known = list(rankings), grades or {}
    texts = dict(zip(*(collection.queries()[name][:] for name in ("id", "text")), strict=True))
    target = io.StringIO()
    table = csv.writer(target, lineterminator="\n")
    table.writerow(COLUMNS)
    marks: dict[tuple[str, str], int] = {}
    shown = rankings[0].query_ids[:QUERIES]
    for place, query in enumerate(shown):
        rows = chain.from_iterable(ranking.rows[place, :DEPTH].tolist() for ranking in rankings)
        pool = sorted({row for row in rows if row >= 0})
        # a fixed order that reveals neither rank nor system
        order = np.random.default_rng(place).permutation(len(pool))
        for passage in (collection.passages[pool[turn]] for turn in order):
            grade = known.get(query, {}).get(passage["id"], "")
            if grade != "":
                marks[query, passage["id"]] = grade
            cells = texts[query], passage["title"], passage["text"], query, passage["id"]
            table.writerow([grade, *map(_quoted, cells)])
    names = chain([file], (file.with_stem(f"{file.stem}-{number}") for number in count(2)))
    free = next(name for name in names if not _loses(name, marks, shown))
    write_text(free, target.getvalue())
    return free


def _loses(file: Path, marks: Mapping[tuple[str, str], int], shown: Iterable[str]) -> bool:
    """Whether a user would lose marks, columns or questions yet to be judged if a file were
    replaced by a table with these marks on these queries.
    """
    if not file.exists() and not file.is_symlink():
        return False
    try:
        rows = [*_rows(file)]
    except (InputError, OSError):
        return True
    ticked = {(row["query-id"], row["passage-id"]): grade for row, grade in rows if grade != ""}
    asked = {row["query-id"] for row, _ in rows} if ticked else set()
    return (
        any(len(row) > len(COLUMNS) for row, _ in rows)
        or not ticked.items() <= marks.items()
        or not asked <= {*shown}
    )


def _rows(file: Path) -> Iterator[tuple[dict[str, str], int | str]]:
    """Rows of a table with their original texts, each with its grade, "" for none.

    Raises:
        InputError: a column is missing, or a mark is unknown.
    """
    for where, row in read_table(file):
        if absent := [name for name in COLUMNS if name not in row]:
            raise InputError(
                f"no column {absent[0]!r}", where=where, fix="Keep the first line as it was."
            )
        mark = row["relevant"].strip().lower()
        if mark not in ("", *YES, *NO) and not (mark.isdecimal() and len(mark) < 5):
            fix = "Give x, a grade from 0, or nothing."
            raise InputError(f"{mark[:80]!r} is not a judgement", where=where, fix=fix)
        grade = int(mark) if mark.isdecimal() else int(mark in YES)
        yield {name: _plain(cell) for name, cell in row.items()}, grade if mark else ""


def read_pool(file: Path) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Queries and judgements of a ticked table.

    An x, yes or a whole number above 0 is relevant; 0 or no is not. If a query has any tick, an
    empty cell means not relevant; a query without a tick is left out. If a passage occurs twice, as
    in two tables put together, the higher mark counts.

    Returns:
        Query id -> text, and query id -> passage id -> grade.

    Raises:
        InputError: a column is missing, a mark is unknown, or nothing is ticked.
    """
    texts: dict[str, str] = {}
    grades: dict[str, dict[str, int]] = {}
    for row, grade in _rows(file):
        texts[row["query-id"]] = row["query"]
        marks = grades.setdefault(row["query-id"], {})
        marks[row["passage-id"]] = max(int(grade or 0), marks.get(row["passage-id"], 0))
    ticked = {query: by_passage for query, by_passage in grades.items() if any(by_passage.values())}
    if not ticked:
        raise InputError("nothing is ticked", where=file, fix="Put an x before what is relevant.")
    return {query: texts[query] for query in ticked}, ticked


def judged_collection(collection: Collection, file: Path, folder: Path) -> Path:
    """Write a collection in BEIR layout whose split test has the judgements of a ticked table
    besides its own.

    Args:
        collection: the one that the table was made from.
        file: the table.
        folder: the new folder, or one that an earlier call wrote.

    Raises:
        InputError: as `read_pool`; the table names a passage that is not in the collection; or
            the folder contains something else.
    """
    texts, grades = read_pool(file)
    known = {*collection.passages["id"][:]}
    for by_passage in grades.values():
        if absent := by_passage.keys() - known:
            raise InputError(
                f"passage {min(absent)!r} is not in {collection.name}",
                where=file,
                fix="Give the folder that the table was made from.",
            )
    asked = collection.queries()
    queries = {row["id"]: Query(row["id"], row["text"], tuple(row["answers"])) for row in asked}
    queries |= {name: Query(name, text) for name, text in texts.items() if name not in queries}
    qrels = {
        split: {query: dict(by_passage) for query, by_passage in collection.qrels(split).items()}
        for split in collection.splits
    }
    for query, by_passage in grades.items():
        qrels.setdefault("test", {}).setdefault(query, {}).update(by_passage)
    rows = {
        split: [
            Judgement(query, name, grade)
            for query, by_passage in judged.items()
            for name, grade in by_passage.items()
        ]
        for split, judged in qrels.items()
    }
    readme = f"# {collection.name}, judged by hand\n\n- Licence: {collection.licence}\n"
    with fresh_folder(folder, "judged collection") as draft:
        write_folder(draft, collection.passages, queries.values(), rows, readme)
    return folder


def _quoted(cell: str) -> str:
    return f"'{cell}" if cell[:1] in SIGNS and cell else cell


def _plain(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" else cell
