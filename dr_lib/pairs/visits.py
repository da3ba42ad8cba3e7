"""Who is visited at which step: passages or documents, a fixed number at a time, in another order each epoch.

A batch of equal size at every step: what contrastive pre-training compares must not depend on the texts' lengths, and
several processes need equal shapes. Page: ideas/pairs.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dr_lib.errors import InputError


class Visits:
    """Step -> which of some things to visit; each once an epoch, those too few for a batch left out of that epoch.

    Args:
        things: `[n]` integers.
        at_once: how many a step, at most n.
        seed: of the order.

    Example:
        >>> visits = Visits(np.array([4, 5, 6]), at_once=2, seed=0)
        >>> epoch, chosen = visits.of(1)
        >>> epoch, len(set(chosen))
        (1, 2)
    """

    def __init__(self, things: np.ndarray, at_once: int, seed: int):
        self.things, self.at_once, self.seed = things, at_once, seed
        self.steps_per_epoch = len(things) // at_once
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def of(self, step: int) -> tuple[int, np.ndarray]:
        """Epoch of a step, and the things `[at_once]` that it visits."""
        epoch, within = divmod(step, self.steps_per_epoch)
        return epoch, self._order(epoch)[within * self.at_once :][: self.at_once]

    def _shuffled(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.seed, epoch]).permutation(self.things)


def pairs_at_once(wanted: int | None, budget: int, tokens: int, available: int) -> int:
    """Pairs of a batch: as many as were asked for, or as fill the token budget and are there.

    Args:
        wanted: `batch_pairs` of a method; None fills the budget.
        budget: padded tokens of a micro-batch.
        tokens: longest pair.
        available: pairs that an epoch has.

    Raises:
        InputError: fewer than two, so that there is nothing to tell a positive from.

    Example:
        >>> pairs_at_once(None, 4096, 32 + 128, 1000)
        25
    """
    pairs = min(budget // tokens, available) if wanted is None else wanted
    if pairs < 2:
        problem = f"a batch of {budget} tokens holds {budget // tokens} pairs of {tokens}, and {available} are there"
        raise InputError(problem, where="batch_pairs", fix="Two are needed: raise tokens_per_batch or shorten texts.")
    if pairs > available:
        problem = f"{available} pairs do not fill a batch of {pairs}"
        raise InputError(problem, where="batch_pairs", fix="Make batches smaller or take a larger collection.")
    return pairs


@dataclass(frozen=True)
class Documents:
    """Documents of at least two passages.

    Attributes:
        rows: passages, document after document, in their order there, int64.
        offsets: `[documents + 1]` int64, where each document begins in `rows`.
    """

    rows: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, documents: np.ndarray, positions: np.ndarray, usable: np.ndarray) -> "Documents":
        """Group passages by document.

        Args:
            documents: `[passages]` int64, number of each passage's document.
            positions: `[passages]` int64, order inside the document.
            usable: `[passages]` bool, False for passages to be passed over.

        Raises:
            InputError: no document has two passages.

        Example:
            >>> found = Documents.of(np.array([1, 0, 1, 1]), np.array([2, 0, 0, 1]), np.array([True] * 4))
            >>> found.rows.tolist(), found.offsets.tolist()
            ([2, 3, 0], [0, 3])
        """
        order = np.lexsort((positions, documents))
        order = order[usable[order]]
        _, place, counts = np.unique(documents[order], return_inverse=True, return_counts=True)
        order, counts = order[counts[place] > 1], counts[counts > 1]
        if not len(counts):
            raise InputError(
                "no document of this collection has two passages", where="documents",
                fix="Give the passages a document (doc and position), or choose a method that reads passages alone.",
            )  # fmt: skip
        return cls(order.astype(np.int64), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def first(self, chosen: np.ndarray) -> np.ndarray:
        """The first passage of each document."""
        return self.rows[self.offsets[chosen]]

    def another(self, chosen: np.ndarray, lots: np.ndarray) -> np.ndarray:
        """Any passage but the first of each document, by whole numbers `lots`."""
        return self.rows[self.offsets[chosen] + 1 + _below(lots, self._counts(chosen) - 1)]

    def two(self, chosen: np.ndarray, lots: np.ndarray, more_lots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Two distinct passages of each document, every ordered pair equally likely."""
        counts, begin = self._counts(chosen), self.offsets[chosen]
        one = _below(lots, counts)
        other = (one + 1 + _below(more_lots, counts - 1)) % counts
        return self.rows[begin + one], self.rows[begin + other]

    def _counts(self, chosen: np.ndarray) -> np.ndarray:
        return self.offsets[chosen + 1] - self.offsets[chosen]


def _below(lots: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Whole numbers brought below their bounds, int64."""
    return (lots % bounds.astype(np.uint64)).astype(np.int64)
