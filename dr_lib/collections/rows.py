"""From passage ids to rows of the collection, and from judgements to rows.

Vectors, rankings and negatives speak of rows (0, 1, 2, ...); judgements and run files speak of ids. Here is the bridge.
Page of the book: ideas/evaluation.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def rows_of(ids: Sequence[str], passage_ids: Sequence[str]) -> np.ndarray:
    """The row of each id in the collection.

    Only the ids asked for are held in a table; the collection's own ids are streamed past it once.

    Args:
        ids: ids to look up, any order, may repeat.
        passage_ids: ids of the whole collection in row order (a list, or the `id` column of its dataset).

    Returns:
        `[len(ids)]` int64, -1 where the collection has no such id.

    Example:
        >>> rows_of(["c", "a", "x"], ["a", "b", "c"]).tolist()
        [2, 0, -1]
    """
    wanted = pa.array(list(ids), pa.string())
    distinct = wanted.unique()
    rows = np.full(len(distinct) + 1, -1, np.int64)
    start = 0
    for chunk in id_chunks(passage_ids):
        found = pc.index_in(chunk, value_set=distinct).fill_null(-1).to_numpy(zero_copy_only=False)
        hits = np.flatnonzero(found >= 0)
        rows[found[hits]] = hits + start
        start += len(chunk)
    return rows[pc.index_in(wanted, value_set=distinct).to_numpy(zero_copy_only=False)]


def id_chunks(passage_ids: Sequence[str], size: int = 1 << 18) -> list[pa.Array]:
    """The ids of a collection as Arrow arrays; a dataset column without re-ordering is not copied.

    Args:
        passage_ids: a list of ids or the `id` column of a dataset.
        size: ids in one array where they have to be copied.
    """
    source: Any = getattr(passage_ids, "source", None)
    if source is not None and getattr(source, "_indices", 0) is None:
        column = source.data.column(passage_ids.column_name)
        return [chunk.cast(pa.string()) for chunk in column.chunks]
    return [pa.array(list(passage_ids[i : i + size]), pa.string()) for i in range(0, len(passage_ids), size)]


def judged_rows(
    qrels: Mapping[str, Mapping[str, int]], query_ids: Sequence[str], passage_ids: Sequence[str], minimum: int = 1
) -> list[np.ndarray]:
    """Rows of the passages judged relevant to each query.

    Args:
        qrels: query id -> passage id -> grade.
        query_ids: queries in the order wanted; one without judgements gets an empty array.
        passage_ids: ids of the collection in row order.
        minimum: lowest grade that counts.

    Returns:
        One int64 array of rows a query, ascending; judged passages that the collection lacks are left out.

    Example:
        >>> [rows.tolist() for rows in judged_rows({"q": {"c": 1, "a": 2, "b": 0}}, ["q", "r"], ["a", "b", "c"])]
        [[0, 2], []]
    """
    wanted: list[Collection[str]] = [
        [passage for passage, grade in qrels.get(query, {}).items() if grade >= minimum] for query in query_ids
    ]
    rows = rows_of([passage for passages in wanted for passage in passages], passage_ids)
    ends = np.cumsum([len(passages) for passages in wanted])
    return [np.unique(part[part >= 0]) for part in np.split(rows, ends[:-1])] if wanted else []


def document_numbers(documents: Sequence[str]) -> np.ndarray:
    """The number of each passage's document, in the order of their names; a passage without one is its own document.

    Names stay in Arrow, so that one long name among many costs its own length and no more.

    Args:
        documents: name of each passage's document, "" for none: a list, or the `doc` column of a dataset.

    Returns:
        `[passages]` int64.

    Example:
        >>> document_numbers(["b", "", "a", "b"]).tolist()
        [2, 0, 1, 2]
    """
    names = pa.chunked_array(id_chunks(documents), pa.string()).combine_chunks()
    alone = pa.array((f"\0{row}" for row in range(len(names))), pa.string(), size=len(names))
    coded = pc.if_else(pc.equal(names, ""), alone, names).dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[coded.indices.to_numpy()]
