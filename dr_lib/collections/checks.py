"""Checks that hold for every collection, whatever its format: no empty and no duplicate passage, no unknown id.

Ids and texts are compared by 64-bit hashes first, so that millions of passages need 16 bytes each; only where two
hashes are equal is the source read again, to compare the strings themselves and to name the lines.
Book: practice/own-corpus, "what is checked".
"""

from array import array
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np

from dr_lib.collections.source import Judgement, Rows, Source
from dr_lib.errors import InputError


def checked_rows(
    rows: Rows, kind: str, hashes: dict[str, array], keys: dict[str, Callable], source: Source, counts: dict
):
    """Give the rows of a stream that have text, and note a hash of each of their `keys`."""
    for number, row in rows.read():
        if not row.text.strip():
            if not source.published:
                raise InputError(
                    f"{kind} {row.id!r} is empty", where=rows.where(number), fix="Give it a text, or remove the line."
                )
            counts[f"empty_{kind}_left_out"] = counts.get(f"empty_{kind}_left_out", 0) + 1
            continue
        for name, key in keys.items():
            hashes[name].append(hash(key(row)))
        yield row


def repeats(rows: Rows, hashes: array, key: Callable[[Any], Hashable]) -> Iterator[tuple[int, Any, int]]:
    """Find rows whose `key` is equal to that of an earlier row: (number, row, number of the first one)."""
    values = np.frombuffer(hashes, dtype=np.int64) if len(hashes) else np.empty(0, dtype=np.int64)
    ordered = np.sort(values)
    suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not suspects:
        return
    first: dict[Hashable, int] = {}
    for number, row in rows.read():
        value = key(row)
        if hash(value) in suspects:
            if value in first:
                yield number, row, first[value]
            else:
                first[value] = number


def refuse_repeated_ids(rows: Rows, hashes: array, kind: str) -> None:
    """Refuse a second passage or query with the same id."""
    for number, row, first in repeats(rows, hashes, lambda row: row.id):
        raise InputError(
            f"duplicate {kind} id {row.id!r}, first seen in {rows.unit} {first}",
            where=rows.where(number),
            fix="Remove one of the two, or give it an id of its own.",
        )


def count_repeated_texts(rows: Rows, hashes: array, source: Source) -> int:
    """Count passages that repeat title and text of an earlier one; refuse them unless the source allows it."""
    found = list(repeats(rows, hashes, lambda row: (row.title, row.text)))
    if found and not (source.allow_duplicates or source.published):
        number, row, first = found[0]
        raise InputError(
            f"duplicate passage: {row.id!r} repeats title and text of {rows.unit} {first} ({len(found)} such in all)",
            where=rows.where(number),
            fix="Remove the repetitions, or load with allow_duplicates=True, which keeps and counts them.",
        )
    return len(found)


def known_judgements(
    rows: Rows,
    passages: set[str],
    queries: set[str],
    source: Source,
    counts: dict,
) -> list[Judgement]:
    """Judgements whose passage and query exist; an unknown one, or a pair judged twice, is refused."""
    kept: dict[tuple[str, str], Judgement] = {}
    for number, judgement in rows.read():
        problem = _problem(judgement, kept, passages, queries)
        if problem is None:
            kept[judgement.query, judgement.passage] = judgement
        elif source.published:
            counts["judgements_left_out"] = counts.get("judgements_left_out", 0) + 1
        else:
            raise InputError(problem, where=rows.where(number), fix="Correct the id, or remove the line.")
    if not kept and not source.published:
        raise InputError("there is no judgement in it", where=rows.place, fix="Add judgements, or remove the split.")
    return list(kept.values())


def _problem(judgement: Judgement, kept: dict, passages: set[str], queries: set[str]) -> str | None:
    if judgement.query not in queries:
        return f"the judgement names an unknown query {judgement.query!r}"
    if judgement.passage not in passages:
        return f"the judgement names an unknown passage {judgement.passage!r}"
    if (judgement.query, judgement.passage) in kept:
        return f"query {judgement.query!r} and passage {judgement.passage!r} are judged twice"
    return None
