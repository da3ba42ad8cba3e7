"""Hard negatives from a ranking, as SimLM prepares them.

From a query's ranking the labelled positives are dropped; the first `depth` passages are shuffled
and cut to `keep`; random passages are added, and the list is shuffled again. So any contiguous
window of the list is a random draw, and training goes through windows epoch by epoch. Unlabelled
positives are not filtered. BM25's and mined negatives are drawn in the same way. Page of the book:
ideas/negatives.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from dr_lib.collections import Collection
from dr_lib.retrieval.ranking import Ranking, also_in, holds_answer
from dr_lib.stages import stage

QUERIES_AT_ONCE = 8_192


def mine_negatives(
    ranking: Ranking,
    positives: Sequence[np.ndarray],
    *,
    passages: int,
    depth: int = 200,
    keep: int | None = None,
    random_negatives: int = 10,
    seed: int = 0,
    among: np.ndarray | None = None,
) -> np.ndarray:
    """Draw the list of negatives of each query.

    Args:
        ranking: the ranking to mine, best first.
        positives: rows of the positives of each query, in the ranking's order
            (`collections.judged_rows`).
        passages: size of the collection, from which random negatives are drawn.
        depth: passages kept of the ranking, after the positives are dropped (SimLM: 200, NQ: 100).
        keep: at most this many of them, after shuffling; `depth` if None.
        random_negatives: random passages added (SimLM: 10), more where the ranking is shorter than
            `keep`; never one of the ranking or a positive.
        seed: of all draws.
        among: `[rows]` passages that may be negatives, ascending; None allows all.

    Returns:
        `[queries, keep + random_negatives]` int32, distinct rows in random order, padded with -1 if
        the collection has too few passages.

    Raises:
        InputError: `positives` for another number of queries than the ranking has.

    Example:
        >>> ranking = Ranking(["q"], np.array([[3, 1, 2]]), np.array([[3.0, 2.0, 1.0]]))
        >>> drawn = mine_negatives(
        ...     ranking, [np.array([3])], passages=9, depth=2, random_negatives=1
        ... )
        >>> drawn.shape, {1, 2} <= set(drawn[0].tolist()), 3 in drawn
        ((1, 3), True, False)
    """
    ranking.check_lists(positives=positives)
    keep = depth if keep is None else keep
    among = np.arange(passages) if among is None else among
    numbers = np.full(
        passages + 1, -1, np.int64
    )  # index among the allowed passages; also for row -1
    numbers[among] = np.arange(len(among))
    out = np.full((len(ranking), keep + random_negatives), -1, np.int32)
    for start in range(0, len(ranking), QUERIES_AT_ONCE):
        part = slice(start, start + QUERIES_AT_ONCE)
        ranked = numbers[np.asarray(ranking.rows[part])]
        out[part] = _draw(
            ranked, positives[part], numbers, len(among), depth, keep, out.shape[1], [seed, start]
        )
    return np.append(among, -1).astype(np.int32)[out]


def _draw(
    ranked: np.ndarray,
    positives: Sequence[np.ndarray],
    numbers: np.ndarray,
    passages: int,
    depth: int,
    keep: int,
    width: int,
    seed: list,
) -> np.ndarray:
    """The lists `[queries, width]` of some queries, as `numbers` of allowed passages; positives are
    rows.

    A (query, passage) pair is one integer, query * passages + row, so that membership is a search
    in sorted integers, for all queries at once.
    """
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(len(positives)), [len(rows) for rows in positives])
    right = numbers[np.concatenate([np.empty(0, np.int64), *positives]).astype(np.int64)]
    positive_keys = np.sort((owners * passages + right)[right >= 0])
    ranked_keys = np.arange(len(ranked))[:, None] * passages + ranked
    usable = (ranked >= 0) & ~_among(ranked_keys, positive_keys)
    # usable ones first, in ranking order
    first = np.argsort(~usable, axis=1, kind="stable")[:, :depth]
    hard = np.where(
        np.take_along_axis(usable, first, axis=1), np.take_along_axis(ranked, first, axis=1), -1
    )
    drawn = np.full((len(ranked), width), -1, np.int64)
    hard = _shuffle(hard, rng)[:, :keep]
    drawn[:, : hard.shape[1]] = hard
    taken = _distinct(np.concatenate([ranked_keys[ranked >= 0], positive_keys]))
    _fill_with_random(drawn, taken, passages, rng)
    return _shuffle(drawn, rng)


# Sorting is many times faster than numpy's hashed `unique` and `isin` on such keys.
def _distinct(keys: np.ndarray) -> np.ndarray:
    keys = np.sort(keys)
    return keys[np.diff(keys, prepend=-1) != 0]


def _among(keys: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    places = np.searchsorted(ascending, keys)
    return np.append(ascending, -1)[places] == keys


def _shuffle(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each row in random order, -1 last."""
    places = np.where(rows >= 0, rng.random(rows.shape), 2.0)
    return np.take_along_axis(rows, np.argsort(places, axis=1, kind="stable"), axis=1)


def _fill_with_random(
    drawn: np.ndarray, taken: np.ndarray, passages: int, rng: np.random.Generator
) -> None:
    """Replace each -1 of `drawn` by a random row that its query has not used, as long as there is
    one.

    Rejection sampling is fast while most passages are free; a query with few free passages samples
    from a list of them.
    """
    missing = (drawn < 0).sum(axis=1)
    free = passages - np.bincount(taken // passages, minlength=len(drawn))
    for query in np.flatnonzero((missing > 0) & (free < 2 * missing + passages // 8)):
        used = (
            taken[slice(*np.searchsorted(taken, [query * passages, (query + 1) * passages]))]
            - query * passages
        )
        pool = rng.permutation(np.delete(np.arange(passages), used))[: missing[query]]
        drawn[query, np.flatnonzero(drawn[query] < 0)[: len(pool)]] = pool
        missing[query] = 0
    while missing.any():
        # One draw per hole; of equal draws the first counts.
        queries = np.repeat(np.flatnonzero(missing), missing[missing > 0])
        keys = queries * passages + rng.integers(0, passages, len(queries))
        order = np.argsort(keys, kind="stable")
        fresh = (np.diff(keys[order], prepend=-1) != 0) & ~_among(keys[order], taken)
        first = np.sort(order[fresh])
        queries, keys = queries[first], keys[first]
        # A query's n-th accepted draw goes into its n-th hole; rejected draws leave holes for the
        # next round.
        rank = np.arange(len(queries)) - np.searchsorted(queries, queries)
        hole = np.argsort(drawn >= 0, axis=1, kind="stable")
        drawn[queries, hole[queries, rank]] = keys - queries * passages
        missing -= np.bincount(queries, minlength=len(drawn))
        taken = _distinct(np.concatenate([taken, keys]))


def not_held_out(collection: Collection) -> np.ndarray:
    """Rows, ascending, of the passages that answer a training query, or no query of any split.

    The others are positives in an evaluation and could only be negatives in training. If every
    passage is judged, as in SQuAD, a cross-encoder learns to recognise them and ranks them last
    (`ideas/negatives`). Copies of a text are all in or all out.
    """
    allowed = np.ones(len(collection.passages), bool)
    for split in sorted(collection.splits, key="train".__eq__):  # train comes last and decides
        allowed[np.concatenate([np.empty(0, np.int64), *collection.positives(split)])] = (
            split == "train"
        )
    if collection.same_text is not None:
        allowed = allowed[collection.same_text]
    return np.flatnonzero(allowed)


def first_of_each_text(collection: Collection) -> np.ndarray | None:
    """Rows, ascending, of the passages that do not repeat an earlier one; None if no passage
    repeats another.
    """
    same = collection.same_text
    return None if same is None else np.flatnonzero(same == np.arange(len(same)))


@stage()
def negatives(
    folder: Path,
    run: Path,
    collection: Collection,
    also: Path | None = None,
    *,
    depth: int,
    random_negatives: int,
    seed: int,
    answers: Literal["keep", "drop", "positive"] = "keep",
    held_out: Literal["drop"] | None = None,
    keep: int | None = None,
) -> None:
    """`negatives.npy`: `[train queries, negatives]` int32, drawn from a ranking of the training
    queries; padded with -1.

    Args:
        folder: where to write.
        run: the ranking, of BM25 or of a retriever.
        collection: the searched collection.
        also: folder of further negatives, appended to these, each passage once.
        depth, random_negatives, seed, keep: as in `mine_negatives`.
        answers: "drop" leaves out passages that contain an accepted answer; "positive" also makes
            those among the first `depth` positives (SimLM's rule for NQ): `positives.npy` `[pairs,
            2]`, rows of queries and passages.
        held_out: "drop" leaves out passages that answer queries of other splits and no training
            query.
    """
    ranking, positives = Ranking.open(run / "ranking"), collection.positives("train")
    if answers != "keep":
        listed, accepted = np.asarray(ranking.rows), collection.queries("train")["answers"][:]
        held = holds_answer(listed, collection.passages, accepted)
        if answers == "positive":
            first = _marked(listed[:, :depth], held[:, :depth], collection)
            np.save(folder / "positives.npy", _new_pairs(first, positives))
        answering = _marked(listed, held, collection)
        positives = [np.union1d(*both) for both in zip(positives, answering, strict=True)]
    # only the first copy of a text, so that positives and negatives can be compared by row
    among = first_of_each_text(collection)
    if held_out == "drop":
        allowed = not_held_out(collection)
        among = allowed if among is None else np.intersect1d(among, allowed)
    drawn = mine_negatives(
        ranking,
        _with_themselves(positives, collection),
        passages=len(collection.passages),
        depth=depth,
        keep=keep,
        random_negatives=random_negatives,
        seed=seed,
        among=among,
    )
    if also:
        further = np.load(also / "negatives.npy")
        taken = [np.append(rows, line) for rows, line in zip(positives, drawn, strict=True)]
        drawn = np.concatenate([drawn, np.where(also_in(further, taken), -1, further)], axis=1)
    np.save(folder / "negatives.npy", drawn)


def _marked(listed: np.ndarray, marked: np.ndarray, collection: Collection) -> list[np.ndarray]:
    """The marked passages of each query's list `[queries, depth]`; copies are replaced by the
    first.
    """
    same = collection.same_text
    chosen = [rows[marks] for rows, marks in zip(listed, marked, strict=True)]
    return chosen if same is None else [np.unique(same[rows]) for rows in chosen]


def _new_pairs(first: Sequence[np.ndarray], known: Sequence[np.ndarray]) -> np.ndarray:
    """`[pairs, 2]` int32: rows of queries and of those `first` passages that were not known
    positives.
    """
    new = [rows[~np.isin(rows, others)] for rows, others in zip(first, known, strict=True)]
    owners = np.repeat(np.arange(len(new)), [len(rows) for rows in new])
    return np.stack([owners, np.concatenate(new)], axis=1).astype(np.int32)


def _with_themselves(
    positives: Sequence[np.ndarray], collection: Collection
) -> Sequence[np.ndarray]:
    """What is never a negative of each training query: its positives, and the passage that is the
    query itself.
    """
    itself = collection.own_texts("train")
    if itself is None:
        return positives
    both = zip(positives, itself, strict=True)
    return [np.append(rows, row) if row >= 0 else rows for rows, row in both]
