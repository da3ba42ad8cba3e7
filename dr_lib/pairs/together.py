"""Two sets of training examples about the same queries and passages put together: given labels and pseudo-labels.

PAIR section 3.4 (after RocketQA): fine-tuning learns from both. Page: ideas/passage-centric.
"""

import numpy as np

from dr_lib.errors import InputError
from dr_lib.pairs.examples import Examples


def together(first: Examples, second: Examples) -> Examples:
    """The queries of both, each with all its positives, and the negatives of the first before those of the second.

    What is a positive in either is a negative in neither, and a negative that both list stands once.

    Args:
        first, second: examples whose rows mean the same queries and passages.

    Returns:
        Examples with `query_rows` ascending and lists as long as both together, -1 where nothing stands.

    Raises:
        InputError: examples about collections of different sizes.

    Example:
        >>> given = Examples.of([4], positives=[[0]], negatives=[[3, 5]], passages=8)
        >>> made = Examples.of([4, 9], positives=[[0, 5], [2]], negatives=[[3, 6], [1, -1]], passages=8)
        >>> both = together(given, made)
        >>> both.query_rows.tolist(), both.positives.tolist(), both.negatives.tolist()
        ([4, 9], [0, 5, 2], [[3, -1, -1, 6], [-1, -1, 1, -1]])
    """
    if first.passages != second.passages:
        problem = f"{first.passages} passages in one, {second.passages} in the other"
        raise InputError(problem, where="examples", fix="Put together what was made from one collection.")
    rows, span = np.union1d(first.query_rows, second.query_rows), first.passages
    places = [np.searchsorted(rows, part.query_rows) for part in (first, second)]
    keys = np.unique(np.concatenate([_keys(part, at) for part, at in zip((first, second), places, strict=True)]))
    owners, positives = np.divmod(keys, span)
    width = first.negatives.shape[1]
    lists = np.full((len(rows), width + second.negatives.shape[1]), -1, np.int32)
    lists[places[0], :width], lists[places[1], width:] = first.negatives, second.negatives
    pairs = np.where(lists >= 0, np.arange(len(rows))[:, None] * span + lists, -1)
    repeated = np.isin(pairs, keys)
    repeated[:, width:] |= np.isin(pairs[:, width:], pairs[:, :width])
    lists[repeated] = -1
    return Examples(rows, positives, np.searchsorted(owners, np.arange(len(rows) + 1)), lists, span)


def _keys(examples: Examples, places: np.ndarray) -> np.ndarray:
    """One number for each pair of a query's place and a positive."""
    return np.repeat(places, examples.counts()) * examples.passages + examples.positives
