"""Judgements by hand: a table to tick, and the collection that it makes.

`dr-lib try` writes the first ten passages of every system for each test question into one CSV file,
pooled and without saying which system found them (Voorhees and Harman 2005, TREC's pooling); opened
in any spreadsheet, what answers the question gets an x. `dr-lib try FOLDER --judged FILE` reads it
back as judgements. Page of the book: practice/own-corpus.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

import numpy as np

from dr_lib.collections import Collection, Judgement, Query, write_folder
from dr_lib.collections.beir import read_table
from dr_lib.errors import InputError
from dr_lib.files import write_text
from dr_lib.retrieval import Ranking

COLUMNS = "relevant", "query", "title", "passage", "query-id", "passage-id"
DEPTH = 10
"""Passages of each system that are pooled."""
YES, NO = ("x", "yes", "y", "true"), ("no", "n", "false", "-")
SIGNS = "=+-@'\t"
"""What a cell that a spreadsheet would compute begins with; an apostrophe before it makes it
text.
"""


def write_pool(
    collection: Collection,
    rankings: Iterable[Ranking],
    file: Path,
    *,
    queries: int = 50,
    grades: Mapping[str, Mapping[str, int]] | None = None,
) -> int:
    """Write what is to be judged as a table.

    Args:
        collection: what was searched.
        rankings: of the same queries, one a system.
        file: where to write; it is replaced.
        queries: at most so many, the first of the rankings.
        grades: judgements that are known, query id -> passage id -> grade; they are filled in.

    Returns:
        The number of rows.
    """
    rankings, known = list(rankings), grades or {}
    texts = dict(zip(*(collection.queries()[name][:] for name in ("id", "text")), strict=True))
    target = io.StringIO()
    table = csv.writer(target, lineterminator="\n")
    table.writerow(COLUMNS)
    count = 0
    for place, query in enumerate(rankings[0].query_ids[:queries]):
        rows = chain.from_iterable(one.rows[place, :DEPTH].tolist() for one in rankings)
        pool = sorted({row for row in rows if row >= 0})
        # in an order that tells nothing about rank or system, the same at every call
        order = np.random.default_rng(place).permutation(len(pool))
        for passage in (collection.passages[pool[one]] for one in order):
            grade = known.get(query, {}).get(passage["id"], "")
            cells = texts[query], passage["title"], passage["text"], query, passage["id"]
            table.writerow([grade, *map(_quoted, cells)])
            count += 1
    write_text(file, target.getvalue())
    return count


def read_pool(file: Path) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Queries and judgements of a table that was ticked.

    An x, yes or a whole number above 0 is relevant; 0 or no is not. Of a query with anything
    ticked, an empty cell is a passage that is not relevant; a query without a tick is left out.

    Returns:
        Query id -> text, and query id -> passage id -> grade.

    Raises:
        InputError: a column is missing, a mark is unknown, or nothing is ticked.
    """
    texts: dict[str, str] = {}
    grades: dict[str, dict[str, int]] = {}
    for where, row in read_table(file):
        if absent := [name for name in COLUMNS if name not in row]:
            raise InputError(
                f"no column {absent[0]!r}", where=where, fix="Keep the first line as it was."
            )
        mark = row["relevant"].strip().lower()
        if mark not in ("", *YES, *NO) and not mark.isdecimal():
            raise InputError(
                f"{mark!r} is no judgement", where=where, fix="Give x, a grade from 0, or nothing."
            )
        grade = int(mark) if mark.isdecimal() else int(mark in YES)
        query = _plain(row["query-id"])
        texts[query] = _plain(row["query"])
        grades.setdefault(query, {})[_plain(row["passage-id"])] = grade
    ticked = {query: own for query, own in grades.items() if any(own.values())}
    if not ticked:
        raise InputError("nothing is ticked", where=file, fix="Put an x before what is relevant.")
    return {query: texts[query] for query in ticked}, ticked


def judged_collection(collection: Collection, file: Path, folder: Path) -> Path:
    """Write a collection in BEIR layout whose split test has the judgements of a ticked table, and
    those that it had.

    Args:
        collection: what the table was made of.
        file: the table.
        folder: where to write.

    Raises:
        InputError: as `read_pool`, or the table names a passage that is not in the collection.
    """
    texts, grades = read_pool(file)
    known = {*collection.passages["id"][:]}
    for own in grades.values():
        if absent := own.keys() - known:
            raise InputError(
                f"passage {min(absent)!r} is not in {collection.name}",
                where=file,
                fix="Give the folder that the table was made of.",
            )
    asked = collection.queries()
    queries = {row["id"]: Query(row["id"], row["text"], tuple(row["answers"])) for row in asked}
    queries |= {name: Query(name, text) for name, text in texts.items() if name not in queries}
    qrels = {
        split: {query: dict(own) for query, own in collection.qrels(split).items()}
        for split in collection.splits
    }
    for query, own in grades.items():
        qrels.setdefault("test", {}).setdefault(query, {}).update(own)
    rows = {
        split: [
            Judgement(query, name, grade)
            for query, own in judged.items()
            for name, grade in own.items()
        ]
        for split, judged in qrels.items()
    }
    readme = f"# {collection.name}, judged by hand\n\n- Licence: {collection.licence}\n"
    write_folder(folder, collection.passages, queries.values(), rows, readme)
    return folder


def _quoted(cell: str) -> str:
    return f"'{cell}" if cell[:1] in SIGNS and cell else cell


def _plain(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" else cell
