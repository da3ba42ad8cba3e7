"""Published pairs as training material: a file of any size becomes queries, passages and examples on disk.

The file is read twice, row by row. The first reading notes a hash of each text, the second writes each distinct text
once; in memory are 16 bytes a text and nothing of the texts themselves. Page: ideas/generators.
"""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.materials.strings import StringWriter, read_strings
from dr_lib.pairs.files import PairRow, first_character, is_table, parse_row, raw_rows
from dr_lib.pairs.line_index import LineIndex
from dr_lib.tokens import TokenStore
from dr_lib.training import distinct_rows, group_examples, text_hash

Stream = Callable[[], Iterator[PairRow]]
SCRATCH = "checkpoint-pairs"  # dropped by the cache of stages when the stage is finished


@dataclass
class _Noted:
    """Hashes of the texts of a file in the order of its rows, and what was left out.

    Attributes:
        queries: hash of each row's question.
        passages: hashes of all rows' passages, positives before negatives.
        positives, negatives: passages of each row.
        left_out: rows without a question or without a positive that has text.
    """

    queries: array = field(default_factory=lambda: array("q"))
    passages: array = field(default_factory=lambda: array("q"))
    positives: array = field(default_factory=lambda: array("q"))
    negatives: array = field(default_factory=lambda: array("q"))
    left_out: int = 0


def store_pairs(
    rows: Stream,
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
    *,
    positives: Literal["first", "all"] = "first",
    depth: int = 1,
    progress: bool = True,
) -> dict[str, int]:
    """Write `queries/`, `passages/` and `examples/`.

    Args:
        rows: gives the rows from the start at each call.
        folder: an existing folder.
        tokenizer: of the model that will read them.
        positives: of each row the first one (as the released loader takes it), or all. Rows with the same question
            are one query in either case, with the positives of all of them.
        depth: hard negatives of a query to keep (PAQ as published: 1 a row).
        progress: show bars.

    Returns:
        Counts: rows, left_out, queries, passages, and pairs of query and positive.

    Raises:
        InputError: a row that cannot be read, or not one pair.
    """
    noted = _note_rows(usable_rows(rows, positives, depth), progress)
    if not noted.queries:
        raise InputError("no row with a question and a passage", where=folder, fix="Look at the file.")
    query_rows, first_queries = distinct_rows(np.frombuffer(noted.queries, np.int64))
    passage_rows, first_passages = distinct_rows(np.frombuffer(noted.passages, np.int64))
    write_strings(usable_rows(rows, positives, depth), folder / SCRATCH, first_queries, first_passages, progress)
    for name, columns in (("queries", ("text",)), ("passages", ("title", "text"))):
        strings = read_strings(folder / SCRATCH / f"{name}.arrow")
        TokenStore.build(strings, tokenizer, folder / name, columns=columns, progress=progress)
    counts = np.stack([np.frombuffer(noted.positives, np.int64), np.frombuffer(noted.negatives, np.int64)], 1)
    owners = np.repeat(query_rows, counts.sum(1))
    is_positive = np.repeat(np.tile([True, False], len(counts)), counts.ravel())
    examples = group_examples(
        owners[is_positive], passage_rows[is_positive], owners[~is_positive], passage_rows[~is_positive],
        passages=len(first_passages), depth=depth,
    )  # fmt: skip
    examples.save(folder / "examples")
    return {
        "rows": len(noted.queries) + noted.left_out,
        "left_out": noted.left_out,
        "queries": len(examples),
        "passages": len(first_passages),
        "pairs": len(examples.positives),
    }


def usable_rows(rows: Stream, positives: Literal["first", "all"], depth: int) -> Iterator[PairRow | None]:
    """The rows with what is kept of them; None for one that lacks a question or a passage with text."""
    most = 1 if positives == "first" else None
    for row in rows():
        answering = tuple(one for one in row.positives if one.text.strip())[:most]
        others = tuple(one for one in row.negatives if one.text.strip() and one not in row.positives)[:depth]
        yield PairRow(row.question, answering, others) if row.question.strip() and answering else None


def _note_rows(rows: Iterator[PairRow | None], progress: bool) -> _Noted:
    """The first reading: hashes of all texts."""
    noted = _Noted()
    for row in tqdm(rows, desc="pairs: reading", unit="row", disable=not progress):
        if row is None:
            noted.left_out += 1
            continue
        noted.queries.append(text_hash(row.question.strip().casefold()))
        noted.passages.extend(text_hash(*one) for one in (*row.positives, *row.negatives))
        noted.positives.append(len(row.positives))
        noted.negatives.append(len(row.negatives))
    return noted


def write_strings(
    rows: Iterator[PairRow | None], folder: Path, first_queries: np.ndarray, first_passages: np.ndarray, progress: bool
) -> None:
    """The second reading: each text where it appears first."""
    folder.mkdir(exist_ok=True)
    new_query, new_passage = (np.zeros(first[-1] + 1, bool) for first in (first_queries, first_passages))
    new_query[first_queries], new_passage[first_passages] = True, True
    query = passage = 0
    with (
        StringWriter(folder / "queries.arrow", ("text",)) as queries,
        StringWriter(folder / "passages.arrow", ("title", "text")) as passages,
    ):
        for row in tqdm(rows, desc="pairs: writing", unit="row", total=None, disable=not progress):
            if row is None:
                continue
            if query < len(new_query) and new_query[query]:
                queries.append((row.question.strip(),))
            query += 1
            for one in (*row.positives, *row.negatives):
                if passage < len(new_passage) and new_passage[passage]:
                    passages.append(one)
                passage += 1


def pair_stream(path: Path, folder: Path, limit: int | None = None, seed: int = 0) -> Stream:
    """The rows of a file, or a random part of them, to be read more than once.

    Args:
        path: a file that `pairs.files.read_pairs` reads.
        folder: for the index of its lines; only a plain file with a row a line has one, others are read through.
        limit: number of rows to draw; None takes all.
        seed: of the draw.

    Raises:
        InputError: no such file.
    """
    path = Path(path)
    if limit is None:
        return lambda: (parse_row(raw, path, number) for number, raw in raw_rows(path))
    if path.is_file() and path.suffix != ".gz" and (is_table(path) or first_character(path) != "["):
        index = LineIndex(path, folder)
        drawn = draw(len(index), limit, seed)
        return lambda: (parse_row(line, path, number) for number, line in index.lines(drawn))
    drawn = draw(sum(1 for _ in raw_rows(path)), limit, seed)
    wanted = np.zeros(int(drawn.max(initial=-1)) + 1, bool)
    wanted[drawn] = True
    return lambda: (
        parse_row(raw, path, number)
        for row, (number, raw) in enumerate(raw_rows(path))
        if row < len(wanted) and wanted[row]
    )


def draw(rows: int, limit: int, seed: int) -> np.ndarray:
    """At most `limit` of the row numbers below `rows`, ascending; a larger limit contains a smaller one.

    Example:
        >>> set(draw(100, 5, seed=1)) < set(draw(100, 20, seed=1))
        True
    """
    return np.sort(np.random.default_rng(seed).permutation(rows)[:limit])
