"""Which rows go together, and an endless sequence of such batches in which the same step is always
the same batch.

Every batch of one padded length has the same number of rows, so that an epoch shows few distinct
shapes: the CPU's bf16 kernels are built, and a GPU's graphs compiled, once per shape. Training
resumes at any step without replaying the earlier ones; of several processes, number r of W takes
the steps `W * step + r`. Explained in the book's chapter on your own corpus.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np

from dr_lib.errors import InputError
from dr_lib.tokens.layout import Title, TokenBatch, padded_length
from dr_lib.tokens.store import TokenStore, TokenValues

Window = Literal["first", "random"]
ENCODING_MULTIPLE = 8  # padded lengths in encoding: few shapes ever reach a model


def plan_epoch(
    lengths: np.ndarray, *, tokens_per_batch: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Divide all rows into batches: shuffle, sort by padded length, cut, shuffle the batches.

    The longest rows come first: with padded length P a batch takes `tokens_per_batch // P` rows, at
    least one, and only the last batch (the shortest rows) may be smaller than its kind. Shapes and
    number of batches are the same in every epoch, the rows that meet in a batch are not.

    Args:
        lengths: `[n]` padded lengths, at least 1.
        tokens_per_batch: budget of rows x padded length. A single row above it is a batch of its
            own.
        seed, epoch: fix the order; 0 or more.

    Returns:
        One array of row numbers (int64) per batch; together they hold every row exactly once.

    Example:
        >>> [
        ...     rows.tolist()
        ...     for rows in plan_epoch(
        ...         np.array([8, 16, 8, 16]), tokens_per_batch=32, seed=0, epoch=0
        ...     )
        ... ]
        [[2, 0], [1, 3]]
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    # A stable sort keeps the shuffled order among rows of one length, so they meet others in the
    # next epoch.
    order = order[np.argsort(-lengths[order].astype(np.int32), kind="stable")]
    batches = _cut(order, lengths[order], tokens_per_batch)
    return [batches[index] for index in random.permutation(len(batches))]


def plan_by_length(lengths: np.ndarray, tokens_per_batch: int, max_length: int) -> list[np.ndarray]:
    """Cut the rows into batches: longest first, `tokens_per_batch // padded length` rows each.

    A length has one batch size, so shapes are at most as many as padded lengths, plus the last
    batch.

    Example:
        >>> [batch.tolist() for batch in plan_by_length(np.array([5, 16, 9, 8, 1]), 16, 32)]
        [[1], [2], [3, 0], [4]]
    """
    order = np.argsort(-lengths, kind="stable")
    return _cut(
        order, padded_length(lengths[order], ENCODING_MULTIPLE, max_length), tokens_per_batch
    )


def _cut(rows: np.ndarray, padded: np.ndarray, tokens_per_batch: int) -> list[np.ndarray]:
    """Rows in batches, each with as many as the budget holds of the length of its first, which is
    its longest.
    """
    batches, start = [], 0
    while start < len(rows):
        stop = start + max(1, tokens_per_batch // int(padded[start]))
        batches.append(rows[start:stop])
        start = stop
    return batches


class BatchStream:
    """Batches of a store, epoch after epoch.

    Args:
        store: where the tokens lie.
        tokens_per_batch: budget of rows x padded length of a batch, at least `max_length`.
        max_length: longest sequence, special tokens included.
        title: see `TokenStore.batch`.
        seed: 0 or more; another seed gives another order.
        beside: `[n]` length of the longest other text that goes with each row of the store; the
            budget then counts the longer of the two, so that a batch of such texts keeps it too.
        pad_to_multiple: padded lengths are multiples of this, but never more than `max_length`.
        window: of a passage that is too long, its beginning, or in each epoch another window, drawn
            at random (Condenser and MASTER, released code).
        values: numbers beside the pieces that the batches are to carry.

    Raises:
        InputError: the budget is smaller than one sequence.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        tokens_per_batch: int,
        max_length: int,
        title: Title = "pair",
        seed: int = 0,
        beside: np.ndarray | None = None,
        pad_to_multiple: int = 8,
        window: Window = "first",
        values: TokenValues | None = None,
    ):
        if tokens_per_batch < max_length:
            problem = f"budget of {tokens_per_batch} cannot hold one sequence of {max_length}"
            raise InputError(
                problem, where="tokens_per_batch", fix="Raise the budget or lower max_length."
            )
        self.store, self.values, self.seed, self.window = store, values, seed, window
        self.tokens_per_batch = tokens_per_batch
        self._layout = {
            "max_length": max_length,
            "title": title,
            "pad_to_multiple": pad_to_multiple,
        }
        lengths = np.maximum(store.lengths(max_length, title), 0 if beside is None else beside)
        self._lengths = padded_length(lengths, pad_to_multiple, max_length)
        self.plan = lru_cache(maxsize=2)(self._plan)  # an epoch and, at its end, the next one
        self.steps_per_epoch = len(self.plan(0))

    def batch(self, step: int) -> TokenBatch:
        """The batch of a step, counted from 0 over all epochs; the last of an epoch may be a
        `share` of a full one.
        """
        epoch, index = self.locate(step)
        rows, layout = self.plan(epoch)[index], self._layout
        if self.window == "random":
            random = np.random.default_rng([self.seed, epoch, index])
            layout = layout | {"lots": random.integers(2**63, size=len(rows), dtype=np.uint64)}
        full = max(1, self.tokens_per_batch // int(self._lengths[rows[0]]))
        batch = replace(self.store.batch(rows, **layout), share=len(rows) / full)
        return batch if self.values is None else self.values.attach(batch, **layout)

    def locate(self, step: int) -> tuple[int, int]:
        """Epoch of a step and its place in that epoch."""
        return divmod(step, self.steps_per_epoch)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        return plan_epoch(
            self._lengths, tokens_per_batch=self.tokens_per_batch, seed=self.seed, epoch=epoch
        )
