"""Exact numbers for sequences: all members but the last have a number, the last one has one, and both share an int64.

So a pair of numbers below 2^31 stands for a sequence of any length, and no two sequences can share one, as they could
share a hash; packing the members themselves side by side would leave four words 15 bits each. Words are chains of
pieces here (`words.py`), n-grams chains of words (`ngrams.py`). Page: ideas/masking.
"""

import numpy as np

from dr_lib.errors import InputError

BITS = 31
LAST = 2**BITS - 1
"""`key & LAST` is the number of a chain's last member."""
UNKNOWN = -1


def chain(before: np.ndarray, last: np.ndarray) -> np.ndarray:
    """One int64 for each sequence; negative where the number of what comes before is -1 (unknown).

    Args:
        before: `[n]` number of the sequence without its last member, below 2^31, or -1.
        last: `[n]` number of the last member, from 0 and below 2^31.

    Example:
        >>> chain(np.array([3, -1]), np.array([5, 5])).tolist()
        [6442450949, -2147483643]
    """
    return before.astype(np.int64) << BITS | last


def find(table: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Place of each key in a sorted table, `[n]` int64; -1 where it is not there.

    The keys are sorted first: a search that runs through the table from left to right keeps to what is in the cache.

    Example:
        >>> find(np.array([4, 7, 9]), np.array([9, 5, 4])).tolist()
        [2, -1, 0]
    """
    if not len(table):
        return np.full(len(keys), UNKNOWN)
    order = np.argsort(keys)
    ranked = keys[order]
    place = np.searchsorted(table, ranked)
    np.minimum(place, len(table) - 1, out=place)
    found = np.empty(len(keys), np.int64)
    found[order] = np.where(table[place] == ranked, place, UNKNOWN)
    return found


def at(values: np.ndarray, place: np.ndarray, missing: int) -> np.ndarray:
    """`values[place]`, and `missing` where the place is -1; `[n]` int64.

    Example:
        >>> at(np.array([10, 20]), np.array([1, -1]), missing=0).tolist()
        [20, 0]
    """
    if not len(values):
        return np.full(len(place), missing)
    return np.where(place < 0, missing, values[place].astype(np.int64))


def check_numbers(count: int, what: str) -> None:
    """Raise `InputError` where there are more of something than numbers for it."""
    if count > 2**BITS:
        raise InputError(
            f"{count:,} different {what} are more than the {2**BITS:,} that can be numbered", where="collection",
            fix="Raise min_count, or count a part of the collection.",
        )  # fmt: skip
