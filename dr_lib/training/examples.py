"""Fine-tuning examples: queries with their known positives and hard negatives, and what is drawn in
each epoch.

SimLM section 3.2 (reference code: unilm, simlm/src/loaders): one positive per query and epoch, and
a contiguous cyclic window over a shuffled list of negatives, so that epochs go through disjoint
windows until the list is used up (210 negatives, 15 per step: 14 epochs). Here the list is shuffled
by a hash, not when the file is built, and short lists are filled up with random passages. Book:
ideas/negatives, ideas/distillation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.files import fresh_folder, open_array, read_json, write_json
from dr_lib.stages import stage
from dr_lib.tokens import run_places

FEW_SHOT_DRAW = 0x5A  # separates the draw of training queries from others with the same seed
Positive = Literal["rotate", "first"]
ARRAYS = ("query_rows", "positives", "offsets", "negatives", "annotated")
OPTIONAL = ("same", "itself")


@dataclass(frozen=True)
class Examples:
    """Training queries with positives and negatives, all as rows of their token stores.

    Attributes:
        query_rows: `[queries]` int64, each at most once.
        positives: `[all positives]` int64; those of query i, at least one, are
            `offsets[i]:offsets[i + 1]`.
        offsets: `[queries + 1]` int64.
        negatives: `[queries, depth]` int32, never a positive of their query, padded with -1.
        passages: number of passages in the collection.
        annotated: `[queries]` int64, the positive that was judged first; None takes the first of
            `positives`.
        same: `[passages]` int64, for each passage the row of the first one with the same text,
            which represents all copies (`merge_duplicates`); None if no text repeats.
        itself: `[queries]` int64, the passage that is the query itself, neither positive nor
            negative, -1 for none; None if no query is a passage.

    Raises:
        InputError: no query, or one without a positive.

    Example:
        >>> examples = Examples.of(
        ...     [4, 9], positives=[[0], [1, 2]], negatives=[[3, 5], [6, -1]], passages=8
        ... )
        >>> len(examples), examples.offsets.tolist()
        (2, [0, 1, 3])
    """

    query_rows: np.ndarray
    positives: np.ndarray
    offsets: np.ndarray
    negatives: np.ndarray
    passages: int
    annotated: np.ndarray | None = None
    same: np.ndarray | None = None
    itself: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        query_rows: Sequence[int] | np.ndarray,
        positives: Sequence[Sequence[int] | np.ndarray],
        negatives: Sequence[Sequence[int]] | np.ndarray | None = None,
        *,
        passages: int,
        annotated: Sequence[int] | np.ndarray | None = None,
    ) -> "Examples":
        """Make examples from a list of positives per query; without `negatives`, all negatives are
        random.
        """
        counts = [len(rows) for rows in positives]
        flat = np.concatenate(
            [np.asarray(rows, dtype=np.int64) for rows in positives] or [np.zeros(0, np.int64)]
        )
        listed = np.zeros((len(counts), 0)) if negatives is None else np.asarray(negatives)
        return cls(
            query_rows=np.asarray(query_rows, dtype=np.int64),
            positives=flat,
            offsets=np.cumsum([0, *counts]),
            negatives=listed.astype(np.int32),
            passages=passages,
            annotated=None if annotated is None else np.asarray(annotated, dtype=np.int64),
        )

    def save(self, folder: Path) -> None:
        """Write a `.npy` file per array and `examples.json` to `folder`, atomically."""
        with fresh_folder(folder, "training examples") as draft:
            for name, array in {**vars(self), "annotated": self.first_positives()}.items():
                if name in ARRAYS or (name in OPTIONAL and array is not None):
                    np.save(draft / f"{name}.npy", array, allow_pickle=False)
            write_json(draft / "examples.json", {"passages": self.passages})

    @classmethod
    def open(cls, folder: Path) -> "Examples":
        """Open saved examples; the arrays stay on disk (memory-mapped)."""
        passages = read_json(folder / "examples.json")["passages"]
        paths = {name: folder / f"{name}.npy" for name in (*ARRAYS, *OPTIONAL)}
        arrays = {
            name: np.asarray(open_array(path))
            for name, path in paths.items()
            if name in ARRAYS or path.is_file()
        }
        return cls(**arrays, passages=passages)

    def __post_init__(self) -> None:
        """Refuse examples that would train wrongly without an error, or never end."""
        counts = self.counts()
        if len(counts) == 0 or counts.min() < 1:
            fix = "Leave queries without a positive out, and give at least one other."
            raise InputError(
                "no training query, or one without a positive", where="positives", fix=fix
            )
        # random negatives are drawn until one is neither
        itself = 0 if self.itself is None else self.itself >= 0
        if (counts + itself).max() >= self.texts:
            problem = "a query to which every passage is positive, or the query itself"
            raise InputError(problem, where="positives", fix="Leave it out.")

    def __len__(self) -> int:
        return len(self.query_rows)

    @cached_property
    def texts(self) -> int:
        """Number of distinct texts among the passages."""
        if self.same is None:
            return self.passages
        return int((self.same == np.arange(self.passages)).sum())

    def counts(self, chosen: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Number of known positives of the chosen queries, int64."""
        return self.offsets[1:][chosen] - self.offsets[:-1][chosen]

    def places_of(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Indices into `positives` for the chosen queries, concatenated, and where each query's
        begin.
        """
        counts = self.counts(chosen)
        return run_places(self.offsets[chosen], counts), np.cumsum(counts) - counts

    def first_positives(self) -> np.ndarray:
        """The annotated positive of each query, `[queries]` int64."""
        return self.positives[self.offsets[:-1]] if self.annotated is None else self.annotated

    def positives_of(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positives of the chosen queries, concatenated, and where each query's begin."""
        places, first = self.places_of(chosen)
        return self.positives[places], first


def training_examples(
    collection: Collection,
    negatives: Path | None = None,
    pseudo_labels: Path | None = None,
    *,
    share: float | None = None,
    share_seed: int = 0,
) -> Examples:
    """The training queries with a positive (or a share of them), and their negatives.

    Args:
        collection: its split train.
        negatives: folder with `negatives.npy` `[train queries, depth]` and optionally
            `positives.npy` `[pairs, 2]`: rows of queries and of further positives; None lists none.
        pseudo_labels: folder with `examples/` to add.
        share, share_seed: of the usable queries, as in `nested_share`; None takes all.
    """
    judged = collection.positives("train")
    relevant = [np.sort(rows) for rows in judged]
    # passages that contain an answer, after the judged ones
    if negatives and (negatives / "positives.npy").is_file():
        queries, rows = np.load(negatives / "positives.npy").T
        bounds = np.searchsorted(queries, np.arange(len(relevant) + 1))
        relevant = [
            np.append(positive_rows, rows[slice(*ends)])
            for positive_rows, ends in zip(relevant, pairwise(bounds), strict=True)
        ]
    usable = np.flatnonzero([len(rows) > 0 for rows in relevant])
    if share is not None:
        usable = nested_share(usable, share, share_seed)
    listed = np.load(negatives / "negatives.npy")[usable] if negatives else None
    annotated = [(judged[row] if len(judged[row]) else relevant[row])[0] for row in usable]
    positives = [relevant[row] for row in usable]
    examples = Examples.of(
        usable, positives, listed, passages=len(collection.passages), annotated=annotated
    )
    examples = without_copies(examples, collection)
    return (
        merge_examples(examples, Examples.open(pseudo_labels / "examples"))
        if pseudo_labels
        else examples
    )


@stage(reads=("train",))
def training_set(
    folder: Path,
    collection: Collection,
    negatives: Path | None = None,
    pseudo_labels: Path | None = None,
    *,
    share: float | None = None,
    share_seed: int = 0,
) -> None:
    """`examples/`: the examples of every training on labels, see `training_examples`."""
    training_examples(
        collection, negatives, pseudo_labels, share=share, share_seed=share_seed
    ).save(folder / "examples")


def merge_duplicates(examples: Examples, same: np.ndarray | None) -> Examples:
    """Examples in which passages with the same text count as one, by the row of the first.

    So a copy of a positive is never a negative, whether listed or drawn.

    Args:
        examples: of any passages.
        same: `Collection.same_text`; None leaves the examples unchanged.

    Example:
        >>> examples = Examples.of([0], positives=[[2, 4]], negatives=[[3, 0, 5, 1]], passages=6)
        >>> one = merge_duplicates(examples, np.array([0, 1, 2, 2, 2, 1]))
        >>> one.positives.tolist(), one.negatives.tolist()
        ([2], [[-1, 0, 1, -1]])
    """
    if same is None:
        return examples
    queries, span, listed = np.arange(len(examples)), examples.passages, examples.negatives
    # a (query, passage) pair is one number; the order is kept
    pairs = np.repeat(queries, examples.counts()) * span + same[examples.positives]
    owners, positives = np.divmod(pd.unique(pairs), span)
    others = queries[:, None] * span + same[listed]
    repeated = pd.Series(np.where(listed >= 0, others, -1).ravel()).duplicated().to_numpy()
    left = (listed >= 0) & ~repeated.reshape(listed.shape) & ~np.isin(others, pairs)
    return Examples(
        examples.query_rows,
        positives,
        np.searchsorted(owners, np.arange(len(examples) + 1)).astype(np.int64),
        np.where(left, same[listed], -1).astype(np.int32),
        span,
        same[examples.first_positives()],
        same,
    )


def without_copies(examples: Examples, collection: Collection) -> Examples:
    """Examples of training queries in which neither a copy of a positive nor the passage that is
    the query itself is a negative.
    """
    examples, itself = (
        merge_duplicates(examples, collection.same_text),
        collection.own_texts("train"),
    )
    if itself is None:
        return examples
    itself = itself[examples.query_rows]
    listed = np.where(examples.negatives == itself[:, None], -1, examples.negatives)
    return replace(examples, negatives=listed, itself=itself)


def nested_share(rows: np.ndarray, share: float, seed: int) -> np.ndarray:
    """A random share of some rows, in order, at least one; with the same seed a larger share
    contains a smaller one.

    Example:
        >>> (
        ...     nested_share(np.arange(8), 0.25, seed=0).tolist(),
        ...     nested_share(np.arange(8), 0.5, seed=0).tolist(),
        ... )
        ([1, 2], [0, 1, 2, 5])
    """
    drawn = np.random.default_rng([seed, FEW_SHOT_DRAW]).permutation(rows)
    # Nested, since every share is a prefix of the same permutation.
    return np.sort(drawn[: max(1, round(share * len(rows)))])


def text_hash(*parts: str) -> int:
    """A signed 64-bit hash of some texts together, the same in every process.

    Example:
        >>> text_hash("a", "b") == text_hash("ab"), text_hash("a") == text_hash("a")
        (False, True)
    """
    digest = blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def distinct_rows(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number distinct hashes in order of first appearance.

    Args:
        hashes: `[n]` int64.

    Returns:
        The row of each, `[n]` int64, and where each row appears first, `[distinct]` int64
        ascending.

    Example:
        >>> rows, first = distinct_rows(np.array([7, 3, 7, 5]))
        >>> rows.tolist(), first.tolist()
        ([0, 1, 0, 2], [0, 1, 3])
    """
    return pd.factorize(hashes)[0], np.flatnonzero(~pd.Series(hashes).duplicated())


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
        positive_queries, positive_passages: `[pairs]` int64 rows; pairs may repeat.
        negative_queries, negative_passages: the same for hard negatives; positives of their query
            and queries without a positive are left out.
        passages: number of passages.
        depth: at most this many negatives per query, in the order given; None keeps all.

    Returns:
        Examples of all queries with a positive, query rows and positives ascending.

    Raises:
        InputError: no pair.

    Example:
        >>> answers, others = (
        ...     (np.array([4, 2, 4]), np.array([1, 0, 3])),
        ...     (np.array([4, 4]), np.array([3, 2])),
        ... )
        >>> examples = group_examples(*answers, *others, passages=5)
        >>> examples.query_rows.tolist(), examples.positives.tolist(), examples.negatives.tolist()
        ([2, 4], [0, 1, 3], [[-1], [2]])
    """
    # A pair is one number, query * passages + passage: sorting groups by query and drops
    # repetitions.
    keys = np.unique(positive_queries * passages + positive_passages)
    owners, positives = np.divmod(keys, max(passages, 1))
    rows, counts = np.unique(owners, return_counts=True)
    offsets = np.append(0, np.cumsum(counts))
    negatives = np.zeros((len(rows), 0), np.int32)
    if negative_queries is not None and negative_passages is not None and len(negative_queries):
        negatives = _negatives(keys, rows, negative_queries, negative_passages, passages, depth)
    return Examples(rows, positives, offsets, negatives, passages)


def _negatives(
    positive_keys: np.ndarray,
    rows: np.ndarray,
    queries: np.ndarray,
    candidates: np.ndarray,
    passages: int,
    depth: int | None,
) -> np.ndarray:
    """`[rows, most negatives of a query]` int32 in the order given, -1 behind a query's last
    one.
    """
    listed = pd.DataFrame({"query": queries, "passage": candidates}).drop_duplicates()
    positive = (listed["query"] * passages + listed["passage"]).isin(positive_keys)
    listed = listed[listed["query"].isin(rows) & ~positive]
    # in the order given (hardest first); the rank becomes the column
    rank = listed.groupby("query").cumcount().to_numpy()
    fits = rank < (len(rank) if depth is None else depth)
    table = np.full((len(rows), int(rank[fits].max(initial=-1)) + 1), -1, np.int32)
    table[np.searchsorted(rows, listed["query"][fits]), rank[fits]] = listed["passage"][fits]
    return table


def merge_examples(first: Examples, second: Examples) -> Examples:
    """The queries of both, each with all its positives, and the negatives of the first before those
    of the second.

    A positive in either is a negative in neither, and a negative listed by both is kept once.

    Args:
        first, second: examples over the same queries and passages, both after `merge_duplicates` if
            texts repeat.

    Returns:
        Examples with `query_rows` ascending and lists as long as both together, padded with -1;
        annotated positives of the first take precedence.

    Example:
        >>> given = Examples.of([4], positives=[[0]], negatives=[[3, 5]], passages=8)
        >>> further = Examples.of(
        ...     [4, 9], positives=[[0, 5], [2]], negatives=[[3, 6], [1, -1]], passages=8
        ... )
        >>> both = merge_examples(given, further)
        >>> both.query_rows.tolist(), both.positives.tolist(), both.negatives.tolist()
        ([4, 9], [0, 5, 2], [[3, -1, -1, 6], [-1, -1, 1, -1]])
    """
    rows, span = np.union1d(first.query_rows, second.query_rows), first.passages
    places = [np.searchsorted(rows, part.query_rows) for part in (first, second)]
    keys = np.unique(
        np.concatenate([_keys(part, at) for part, at in zip((first, second), places, strict=True)])
    )
    owners, positives = np.divmod(keys, span)
    annotated = np.zeros(len(rows), np.int64)
    annotated[places[1]] = second.first_positives()
    annotated[places[0]] = first.first_positives()
    # The lists are concatenated and keep their columns: a query without pseudo-labels draws the
    # same negatives as without the second list.
    width = first.negatives.shape[1]
    lists = np.full((len(rows), width + second.negatives.shape[1]), -1, np.int32)
    lists[places[0], :width], lists[places[1], width:] = first.negatives, second.negatives
    pairs = np.where(lists >= 0, np.arange(len(rows))[:, None] * span + lists, -1)
    repeated = np.isin(pairs, keys)
    repeated[:, width:] |= np.isin(pairs[:, width:], pairs[:, :width])
    lists[repeated] = -1
    offsets, itself = np.searchsorted(owners, np.arange(len(rows) + 1)), None
    for part, at in zip((second, first), reversed(places), strict=True):
        if part.itself is not None:
            itself = np.full(len(rows), -1) if itself is None else itself
            itself[at] = part.itself
    return Examples(rows, positives, offsets, lists, span, annotated, first.same, itself)


def _keys(examples: Examples, places: np.ndarray) -> np.ndarray:
    """One number for each pair of a query's place and a positive."""
    return np.repeat(places, examples.counts()) * examples.passages + examples.positives


def hash64(*numbers: np.ndarray | int) -> np.ndarray:
    """A 64-bit hash of whole numbers, element by element with broadcasting (the splitmix64
    finaliser, chained).

    Example:
        >>> bool(hash64(7, np.arange(3))[1] == hash64(7, 1)[0])
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


def draw_positives(
    examples: Examples, chosen: np.ndarray, *, seed: int, epoch: int, rule: Positive = "rotate"
) -> np.ndarray:
    """The positive of each query in an epoch.

    Args:
        examples: queries and positives.
        chosen: `[batch]` numbers of queries in `examples`.
        seed, epoch: from 0.
        rule: "rotate" takes number (epoch + seed) modulo the positives of the query (SimLM's
            loader), "first" always the one judged first (DPR for Natural Questions, where that is
            the annotated passage).

    Returns:
        `[batch]` int64 passage rows.
    """
    if rule == "first":
        return examples.first_positives()[chosen]
    # Shifted by the seed, so that runs of a single epoch differ in it too.
    return examples.positives[examples.offsets[chosen] + (epoch + seed) % examples.counts(chosen)]


def draw_negatives(
    examples: Examples, chosen: np.ndarray, count: int, *, seed: int, epoch: int
) -> np.ndarray:
    """The negatives of each chosen query in an epoch.

    Args:
        examples: queries, positives and negatives.
        chosen: `[batch]` numbers of queries in `examples`.
        count: negatives per query.
        seed: below 2^63.
        epoch: from 0.

    Returns:
        `[batch, count]` int64 passage rows, never a known positive of the query. They are the
        cyclic window of the shuffled list that starts at (epoch + seed) * count. A list shorter
        than `count` is taken whole and filled up with random passages, other ones in each epoch; no
        passage comes twice if there are enough of them.
    """
    listed = examples.negatives[chosen].astype(np.int64)
    available = (listed >= 0).sum(axis=1)
    # The window advances by `count` each epoch and wraps around: no negative repeats before all
    # were used.
    start = (epoch + seed) % 2**31 * count % np.maximum(available, 1)
    start[available < count] = 0
    slot = start[:, None] + np.arange(count)
    short = np.arange(count) >= available[:, None]
    drawn = np.zeros_like(slot)
    if listed.shape[1]:
        order = _shuffled(listed, examples.query_rows[chosen], seed)
        drawn = np.take_along_axis(order, slot % np.maximum(available, 1)[:, None], axis=1)
    if short.any():
        some = short.any(axis=1)
        drawn[short] = _random_negatives(
            examples, chosen[some], listed[some], short[some], seed=seed, epoch=epoch
        )
    return drawn


def _shuffled(listed: np.ndarray, query_rows: np.ndarray, seed: int) -> np.ndarray:
    """Each row of `listed` shuffled by a hash of (seed, query), -1 last."""
    # Sorting by a hash shuffles each row independently of the rest of the batch, and the same in
    # every epoch.
    keys = hash64(seed, query_rows[:, None], np.arange(listed.shape[1])[None, :])
    keys[listed < 0] = np.iinfo(np.uint64).max
    return np.take_along_axis(listed, np.argsort(keys, axis=1, kind="stable"), axis=1)


def _random_negatives(
    examples: Examples,
    chosen: np.ndarray,
    listed: np.ndarray,
    short: np.ndarray,
    *,
    seed: int,
    epoch: int,
) -> np.ndarray:
    """Random passages, by hash, for the places `short` `[batch, count]`, row after row.

    A draw that is a known positive, the query itself, a listed negative or an earlier draw moves on
    to the next passage that is none of these. If a query has too few passages for that, only
    positives and the query itself are skipped.
    """
    query, slot = examples.query_rows[chosen][:, None], np.arange(short.shape[1])[None, :]
    drawn = (hash64(seed, epoch, query, slot, 1) % np.uint64(examples.passages)).astype(np.int64)
    positives, first = examples.positives_of(chosen)
    counts = examples.counts(chosen)
    itself = (
        np.full((len(chosen), 1), -1)
        if examples.itself is None
        else examples.itself[chosen][:, None]
    )
    owner = np.repeat(np.arange(len(chosen)), counts)
    used = counts + (listed >= 0).sum(axis=1) + (itself >= 0).sum(axis=1)
    enough = examples.texts - used >= short.sum(axis=1)
    # [batch, place, places before it that are drawn, too]
    earlier = short[:, None, :] & (slot < slot.T)
    while True:
        text = drawn if examples.same is None else examples.same[drawn]
        wrong = np.logical_or.reduceat(text[owner] == positives[:, None], first, axis=0)
        wrong |= text == itself
        taken = (text[:, :, None] == listed[:, None, :]).any(axis=2)
        taken |= ((text[:, :, None] == text[:, None, :]) & earlier).any(axis=2)
        wrong = (wrong | taken & enough[:, None]) & short
        if not wrong.any():
            return text[short]
        drawn[wrong] = (drawn[wrong] + 1) % examples.passages


def known_positives(
    examples: Examples,
    chosen: np.ndarray,
    columns: np.ndarray,
    *,
    passages_per_query: int,
    first: int = 0,
) -> np.ndarray:
    """Which passages of the batch are known positives of which query.

    Args:
        examples: queries and positives.
        chosen: `[batch]` numbers of queries in `examples`.
        columns: `[columns]` passage rows, of this process's batch and those of the others.
        passages_per_query: n.
        first: the column where this batch begins; query i's own positive is in column first + i *
            n.

    Returns:
        `[batch, columns]` bool; False in the query's own positive column, True in a repetition of
        that passage and in the passage that is the query itself.
    """
    # Positives are flat; `reduceat` combines the rows of the comparison that belong to one query.
    positives, begin = examples.positives_of(chosen)
    known = np.logical_or.reduceat(positives[:, None] == columns[None, :], begin, axis=0)
    if examples.itself is not None:
        known |= columns == examples.itself[chosen][:, None]
    batch = np.arange(len(chosen))
    known[batch, first + batch * passages_per_query] = False
    return known


@dataclass(frozen=True)
class TeacherScores:
    """A teacher's scores of all pairs of `Examples`.

    Attributes:
        positives: `[all positives]` float32, parallel to `Examples.positives`.
        negatives: `[queries, depth]` float32, parallel to `Examples.negatives`; arbitrary where
            there is no passage.

    Example:
        >>> examples = Examples.of([0], positives=[[4]], negatives=[[7, 2]], passages=9)
        >>> teacher = TeacherScores(np.array([3.0]), np.array([[1.0, -1.0]]))
        >>> teacher.of(examples, np.array([0]), np.array([[4, 2, 5]]))
        array([[ 3., -1., nan]], dtype=float32)
    """

    positives: np.ndarray
    negatives: np.ndarray

    def of(self, examples: Examples, chosen: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Scores `[batch, n]` float32 of some pairs; NaN where the teacher has not scored one.

        Args:
            examples: that the scores belong to.
            chosen: `[batch]` numbers of queries in `examples`.
            rows: `[batch, n]` passage rows.
        """
        places, _ = examples.places_of(chosen)
        owner = np.repeat(np.arange(len(chosen)), examples.counts(chosen))
        listed, of_listed = examples.negatives[chosen], self.negatives[chosen]
        query, column = np.nonzero(listed >= 0)
        # A (query, passage) pair is one number, by which its score is looked up.
        pairs = np.append(owner, query) * examples.passages
        pairs += np.append(examples.positives[places], listed[query, column])
        scores = np.append(self.positives[places], of_listed[query, column]).astype(np.float32)
        known = pd.Series(scores, pairs)[~pd.Index(pairs).duplicated()]
        wanted = np.arange(len(chosen))[:, None] * examples.passages + rows
        return known.reindex(wanted.ravel()).to_numpy(copy=True).reshape(rows.shape)

    def save(self, folder: Path) -> None:
        """Write `positives.npy` and `negatives.npy` into `folder`, float32."""
        np.save(folder / "positives.npy", self.positives.astype(np.float32))
        np.save(folder / "negatives.npy", self.negatives.astype(np.float32))

    @classmethod
    def open(cls, folder: Path) -> "TeacherScores":
        """Read what `save` wrote."""
        return cls(np.load(folder / "positives.npy"), np.load(folder / "negatives.npy"))
