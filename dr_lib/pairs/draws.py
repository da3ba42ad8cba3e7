"""Which positive and which negatives a query gets in an epoch: exact functions of (seed, query, epoch).

As SimLM's loader: one positive a query and epoch, and a contiguous cyclic window over a shuffled list of negatives, so
that epochs walk through disjoint windows until the list is used up (210 negatives, 15 a step: 14 epochs). The list is
shuffled here by a hash and not when the file is built, and short lists are filled with random passages.
Book: ideas/negatives.
"""

import numpy as np

from dr_lib.pairs.examples import Examples


def mixed(*numbers: np.ndarray | int) -> np.ndarray:
    """A 64-bit hash of whole numbers, element by element with broadcasting (the splitmix64 finaliser, chained).

    Example:
        >>> bool(mixed(7, np.arange(3))[1] == mixed(7, 1)[0])
        True
    """
    state = np.zeros(1, dtype=np.uint64)
    for number in numbers:
        part = np.atleast_1d(np.asarray(number)).astype(np.uint64)
        state = (state ^ part) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def draw_positives(examples: Examples, chosen: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
    """Passage rows `[batch]` int64: of each chosen query the positive number (epoch + seed) modulo its positives."""
    return examples.positives[examples.offsets[chosen] + (epoch + seed) % examples.counts(chosen)]


def draw_negatives(examples: Examples, chosen: np.ndarray, count: int, *, seed: int, epoch: int) -> np.ndarray:
    """Negatives of each chosen query in this epoch.

    Args:
        examples: queries, positives and negatives.
        chosen: `[batch]` numbers of queries in `examples`.
        count: negatives a query.
        seed: below 2^63.
        epoch: from 0.

    Returns:
        `[batch, count]` int64 passage rows, never a known positive of the query. From the list: the window from
        (epoch + seed) * count on, cyclic. A list shorter than `count` is taken whole and filled with random passages,
        other ones in each epoch.
    """
    listed = examples.negatives[chosen].astype(np.int64)
    available = (listed >= 0).sum(axis=1)
    start = (epoch + seed) % 2**31 * count % np.maximum(available, 1)
    start[available < count] = 0
    slot = start[:, None] + np.arange(count)
    short = np.arange(count) >= available[:, None]
    drawn = np.zeros_like(slot)
    if listed.shape[1]:
        order = _shuffled(listed, examples.query_rows[chosen], seed)
        drawn = np.take_along_axis(order, slot % np.maximum(available, 1)[:, None], axis=1)
    if short.any():
        drawn[short] = _random_negatives(examples, chosen, count, seed=seed, epoch=epoch)[short]
    return drawn


def _shuffled(listed: np.ndarray, query_rows: np.ndarray, seed: int) -> np.ndarray:
    """Each row of `listed` in an order of its own that depends on (seed, query); -1 goes to the end."""
    keys = mixed(seed, query_rows[:, None], np.arange(listed.shape[1])[None, :])
    keys[listed < 0] = np.iinfo(np.uint64).max
    return np.take_along_axis(listed, np.argsort(keys, axis=1, kind="stable"), axis=1)


def _random_negatives(examples: Examples, chosen: np.ndarray, count: int, *, seed: int, epoch: int) -> np.ndarray:
    """`[batch, count]` passages by hash; one that is a known positive of its query moves on to the next that is not."""
    query, slot = examples.query_rows[chosen][:, None], np.arange(count)[None, :]
    drawn = (mixed(seed, epoch, query, slot, 1) % np.uint64(examples.passages)).astype(np.int64)
    positives, first = examples.positives_of(chosen)
    owner = np.repeat(np.arange(len(chosen)), examples.counts(chosen))
    while (wrong := np.logical_or.reduceat(drawn[owner] == positives[:, None], first, axis=0)).any():
        drawn[wrong] = (drawn[wrong] + 1) % examples.passages
    return drawn


def known_positives(
    examples: Examples, chosen: np.ndarray, columns: np.ndarray, *, passages_per_query: int, first: int = 0
) -> np.ndarray:
    """Where a passage of the batch is a known positive of a query.

    Args:
        examples: queries and positives.
        chosen: `[batch]` numbers of queries in `examples`.
        columns: `[columns]` passage rows, of this batch and of those of other processes.
        passages_per_query: n.
        first: column where this batch begins; query i's own positive is in column first + i * n.

    Returns:
        `[batch, columns]` bool; False in the query's own positive column, True in a repetition of that passage.
    """
    positives, begin = examples.positives_of(chosen)
    known = np.logical_or.reduceat(positives[:, None] == columns[None, :], begin, axis=0)
    batch = np.arange(len(chosen))
    known[batch, first + batch * passages_per_query] = False
    return known
