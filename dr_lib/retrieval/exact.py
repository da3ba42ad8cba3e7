"""True scores and the one order that is made from them: score descending, then row ascending.

A score is the inner product of two vectors summed in float64 and rounded to float32. Each pair is summed alone, so
nothing but its two vectors matters. Page of the book: ideas/evaluation.
"""

import numpy as np

PAIRS = 512
"""Vectors whose scores are computed at a time; they fit into a processor's cache."""


def exact_scores(queries: np.ndarray, passages: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Inner products of each query with its own rows, summed in float64 and rounded to float32.

    Args:
        queries: `[queries, hidden]` float32.
        passages: `[passages, hidden]` float16 or float32; may be memory-mapped.
        rows: `[queries, depth]` int64.

    Returns:
        `[queries, depth]` float32.
    """
    counts = np.full(len(rows), rows.shape[1])
    return (
        pair_scores(queries.astype(np.float64), passages, rows.ravel(), counts).astype(np.float32).reshape(rows.shape)
    )


def pair_scores(queries: np.ndarray, passages: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The same for another number of rows a query, before rounding.

    Args:
        queries: `[queries, hidden]` float64.
        passages: `[passages, hidden]` float16 or float32.
        rows: `[all]` integers, those of each query after those of the query before.
        counts: `[queries]`, how many each has.

    Returns:
        `[all]` float64.
    """
    scores, ends = np.empty(len(rows)), np.cumsum(counts)
    wide = np.empty((PAIRS, passages.shape[1]))
    for query, start, end in zip(queries, (ends - counts).tolist(), ends.tolist(), strict=True):
        for i in range(start, end, PAIRS):
            part = slice(i, min(i + PAIRS, end))
            own = wide[: part.stop - i]
            own[:] = passages[rows[part]]
            np.vecdot(own, query, out=scores[part])
    return scores


def keys(scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Score and row as one whole number, so that the order (score descending, then row ascending) is that of numbers.

    The bits of a float32, read as an integer, are in order once those of negative numbers are flipped.

    Example:
        >>> opened(np.sort(keys(np.array([1.0, 2.0, 2.0, -3.0], np.float32), np.array([0, 9, 4, 1]))))[1].tolist()
        [4, 9, 0, 1]
    """
    bits = (scores + np.float32(0)).view(np.int32)
    return (~(bits ^ ((bits >> 31) & 0x7FFFFFFF))).astype(np.int64) << 32 | rows


def opened(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores float32 and rows int64 of `keys`."""
    rank = ~(found >> 32).astype(np.int32)
    return (rank ^ ((rank >> 31) & 0x7FFFFFFF)).view(np.float32), found & 0xFFFFFFFF
