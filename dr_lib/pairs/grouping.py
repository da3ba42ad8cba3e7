"""From a flat list of (query, passage) pairs to training examples: repeated texts are one row, all their pairs joined.

A title that stands over two posts, or a question written for two passages, is one query with two positives, so neither
passage is ever a negative of the other's query. Texts are compared by 64-bit hashes: 16 bytes each, whatever their
length. Page: ideas/generators.
"""

from hashlib import blake2b

import numpy as np

from dr_lib.pairs.examples import Examples


def text_hash(*parts: str) -> int:
    """A 64-bit hash (signed) of some texts together, the same in every process.

    Example:
        >>> text_hash("a", "b") == text_hash("ab"), text_hash("a") == text_hash("a")
        (False, True)
    """
    digest = blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def distinct_rows(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number equal hashes alike, in order of first appearance.

    Args:
        hashes: `[n]` int64.

    Returns:
        The row of each, `[n]` int64, and where each row appears first, `[distinct]` int64 ascending.

    Example:
        >>> rows, first = distinct_rows(np.array([7, 3, 7, 5]))
        >>> rows.tolist(), first.tolist()
        ([0, 1, 0, 2], [0, 1, 3])
    """
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return number[inverse], first[order]


def group_examples(
    positive_queries: np.ndarray,
    positive_passages: np.ndarray,
    negative_queries: np.ndarray | None = None,
    negative_passages: np.ndarray | None = None,
    *,
    passages: int,
    depth: int | None = None,
) -> Examples:
    """Join the pairs of each query.

    Args:
        positive_queries, positive_passages: `[pairs]` int64 rows; a pair may repeat.
        negative_queries, negative_passages: the same for passages known not to answer; those that are a positive of
            their query, and queries without positive, are left out.
        passages: number of passages.
        depth: most negatives a query, the first ones given; None keeps all.

    Returns:
        Examples of all queries with a positive, by ascending row, positives ascending.

    Raises:
        InputError: a row outside the passages, or no pair.

    Example:
        >>> answers, others = (np.array([4, 2, 4]), np.array([1, 0, 3])), (np.array([4, 4]), np.array([3, 2]))
        >>> made = group_examples(*answers, *others, passages=5)
        >>> made.query_rows.tolist(), made.positives.tolist(), made.negatives.tolist()
        ([2, 4], [0, 1, 3], [[-1], [2]])
    """
    keys = np.unique(positive_queries * passages + positive_passages)
    owners, positives = np.divmod(keys, max(passages, 1))
    rows, counts = np.unique(owners, return_counts=True)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    negatives = np.zeros((len(rows), 0), np.int32)
    if negative_queries is not None and negative_passages is not None and len(negative_queries):
        negatives = _negatives(keys, rows, negative_queries, negative_passages, passages, depth)
    return Examples(rows, positives, offsets, negatives, passages)


def _negatives(
    positive_keys: np.ndarray, rows: np.ndarray, queries: np.ndarray, found: np.ndarray, passages: int,
    depth: int | None,
) -> np.ndarray:  # fmt: skip
    """`[rows, most negatives of a query]` int32 in the order given, -1 behind a query's last one."""
    keys = queries * passages + found
    _, first = np.unique(keys, return_index=True)
    usable = np.zeros(len(keys), bool)
    usable[first] = True
    usable &= ~np.isin(keys, positive_keys, kind="sort") & np.isin(queries, rows, kind="sort")
    queries, found = queries[usable], found[usable]
    order = np.argsort(queries, kind="stable")
    owner = np.searchsorted(rows, queries[order])
    rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
    width = int(rank.max(initial=-1)) + 1 if depth is None else min(depth, int(rank.max(initial=-1)) + 1)
    table = np.full((len(rows), width), -1, np.int32)
    kept = rank < width
    table[owner[kept], rank[kept]] = found[order][kept]
    return table
