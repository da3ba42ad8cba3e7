"""Which rows go together, and an endless sequence of such batches in which the same step is always the same batch.

Every batch of one padded length has the same number of rows, so that an epoch shows few distinct shapes: the CPU's bf16
kernels are built, and a GPU's graphs compiled, once per shape. Training resumes at any step without replaying the
earlier ones; of several processes, number r of W takes the steps `W * step + r`. Explained in the book's chapter on
your own corpus.
"""

from bisect import bisect_right
from functools import lru_cache

import numpy as np

from dr_lib.errors import InputError
from dr_lib.tokens.batch import TokenBatch
from dr_lib.tokens.layout import Side, Title, check_layout, padded_length
from dr_lib.tokens.store import TokenStore, check_rows

ENCODING_MULTIPLE = 8  # padded lengths in encoding: few shapes ever reach a model


def plan_epoch(
    lengths: np.ndarray,
    *,
    tokens_per_batch: int | None = None,
    fixed_rows: int | None = None,
    seed: int,
    epoch: int,
    window: int | None = None,
    multiple: int = 8,
    drop_last: bool = False,
) -> list[np.ndarray]:
    """Divide all rows into batches: shuffle, sort by padded length within windows, cut, shuffle the batches.

    Within a window the longest rows come first: with padded length P a batch takes `tokens_per_batch // P` rows (at
    least one) or `fixed_rows`. Rows too few for a batch at the end of a window join the next window, so only one batch
    of an epoch may be smaller than its kind.

    Args:
        lengths: `[n]` sequence lengths, at least 1.
        tokens_per_batch: budget of rows x padded length. A single row above it is a batch of its own.
        fixed_rows: number of rows of every batch, in place of the budget.
        seed, epoch: fix the order; 0 or more.
        window: number of rows sorted together; None sorts the whole epoch, which also makes the shapes and the number
            of batches the same in every epoch. `window=fixed_rows` gives plain random batches.
        multiple: lengths are padded to a multiple of this.
        drop_last: leave out the one smaller batch (it holds the shortest rows of the last window).

    Returns:
        One array of row numbers (int64) per batch; together they hold every row exactly once.

    Raises:
        InputError: an argument is outside its range, or not exactly one of budget and fixed rows is given.

    Example:
        >>> [rows.tolist() for rows in plan_epoch(np.array([5, 16, 7, 9]), tokens_per_batch=32, seed=0, epoch=0)]
        [[2, 0], [1, 3]]
    """
    lengths = np.asarray(lengths)
    _check(lengths, tokens_per_batch, fixed_rows, seed, epoch, window, multiple)
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    padded = (-(-lengths // multiple)).astype(np.int32)  # in units of `multiple`
    batches: list[np.ndarray] = []
    rest = order[:0]
    for start in range(0, len(order), window or len(order)):
        rows = np.concatenate([rest, order[start : start + (window or len(order))]])
        rows = rows[np.argsort(-padded[rows], kind="stable")]
        cuts = _cuts(padded[rows] * multiple, tokens_per_batch, fixed_rows)
        *full, rest = np.split(rows, cuts)
        batches += full
    if len(rest) and not drop_last:
        batches.append(rest)
    return [batches[index] for index in random.permutation(len(batches))]


def _cuts(padded: np.ndarray, budget: int | None, fixed_rows: int | None) -> list[int]:
    """Ends of the full batches over descending padded lengths; what lies behind the last end is left over."""
    ends, end = [], 0
    while end < len(padded):
        end += fixed_rows or max(1, budget // int(padded[end]))
        if end <= len(padded):
            ends.append(end)
    return ends


def _check(
    lengths: np.ndarray,
    budget: int | None,
    fixed_rows: int | None,
    seed: int,
    epoch: int,
    window: int | None,
    multiple: int,
) -> None:
    if (budget is None) == (fixed_rows is None):
        raise InputError("give one of tokens_per_batch and fixed_rows", where="batches", fix="Leave the other one out.")
    if len(lengths) == 0 or np.min(lengths) < 1:
        raise InputError("no rows, or a row without length", where="lengths", fix="Give lengths of at least 1.")
    counts = {"tokens_per_batch": budget, "fixed_rows": fixed_rows, "window": window, "multiple": multiple}
    bounds = [(name, value, 1) for name, value in counts.items()] + [("seed", seed, 0), ("epoch", epoch, 0)]
    for name, value, lowest in bounds:
        if value is not None and value < lowest:
            raise InputError(f"{value} is below {lowest}", where=name, fix=f"Give {lowest} or more.")


PLANS_KEPT = 2


class BatchStream:
    """Batches of a store, epoch after epoch.

    Args:
        store: where the tokens lie.
        tokens_per_batch: budget of rows x padded length of a batch, at least `max_length`.
        fixed_rows: number of rows of a batch, in place of the budget.
        max_length: longest sequence, special tokens included.
        title: see `TokenStore.batch`.
        seed: 0 or more; another seed gives another order.
        rows: the rows of the store to draw from, each once an epoch; None takes all.
        beside: `[n]` length of the longest other text that goes with each row of the store; the budget then counts the
            longer of the two, so that a batch of such texts keeps it too.
        window: rows sorted together by length, see `plan_epoch`; None sorts the whole epoch.
        pad_to_multiple: padded lengths are multiples of this, but never more than `max_length`.
        side: the end that loses pieces of a long text.
        drop_last: leave out the one batch of an epoch that is smaller than its kind.

    Raises:
        InputError: the budget is smaller than one sequence, a row is outside the store or repeated, or another argument
            is outside its range.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        tokens_per_batch: int | None = None,
        fixed_rows: int | None = None,
        max_length: int,
        title: Title = "pair",
        seed: int = 0,
        rows: np.ndarray | None = None,
        beside: np.ndarray | None = None,
        window: int | None = None,
        pad_to_multiple: int = 8,
        side: Side = "right",
        drop_last: bool = False,
    ):
        check_layout(max_length, title, side, pad_to_multiple)
        if tokens_per_batch is not None and tokens_per_batch < max_length:
            raise InputError(
                f"budget of {tokens_per_batch} cannot hold one sequence of {max_length}",
                where="tokens_per_batch",
                fix="Raise the budget or lower max_length.",
            )
        self.store = store
        self._rows = _checked_subset(rows, len(store))
        self._layout = {"max_length": max_length, "title": title, "pad_to_multiple": pad_to_multiple, "side": side}
        lengths = np.maximum(store.lengths(max_length, title), 0 if beside is None else beside)
        self._lengths = padded_length(lengths[self._rows], pad_to_multiple, max_length)
        self._cutting = {"tokens_per_batch": tokens_per_batch, "fixed_rows": fixed_rows, "drop_last": drop_last}
        self._order = {"seed": seed, "window": window, "multiple": 1}
        self._varies = window is not None and fixed_rows is None
        self.plan = lru_cache(maxsize=PLANS_KEPT)(self._plan)
        self._first_steps = [0, len(self.plan(0))]
        if not self.plan(0):
            raise InputError("no full batch", where="drop_last", fix="Keep the last batch or make batches smaller.")

    def steps_per_epoch(self, epoch: int = 0) -> int:
        """Number of batches of an epoch; the same for every epoch unless both a budget and a window are set."""
        return len(self.plan(epoch)) if self._varies else self._first_steps[1]

    def batch(self, step: int) -> TokenBatch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, index = self.locate(step)
        return self.store.batch(self.plan(epoch)[index], **self._layout)

    def locate(self, step: int) -> tuple[int, int]:
        """Epoch of a step and its place in that epoch."""
        if step < 0:
            raise InputError(f"{step} is below 0", where="step", fix="Steps count from 0.")
        if not self._varies:
            return divmod(step, self.steps_per_epoch())
        while self._first_steps[-1] <= step:
            self._first_steps.append(self._first_steps[-1] + self.steps_per_epoch(len(self._first_steps) - 1))
        epoch = bisect_right(self._first_steps, step) - 1
        return epoch, step - self._first_steps[epoch]

    def _plan(self, epoch: int) -> list[np.ndarray]:
        return [self._rows[batch] for batch in plan_epoch(self._lengths, epoch=epoch, **self._cutting, **self._order)]


def _checked_subset(rows: np.ndarray | None, size: int) -> np.ndarray:
    if rows is None:
        return np.arange(size)
    rows = check_rows(rows, size)
    if len(np.unique(rows)) != len(rows):
        raise InputError("a row occurs twice", where="rows", fix="Give each row once.")
    return rows


def plan_by_length(lengths: np.ndarray, tokens_per_batch: int, max_length: int) -> list[np.ndarray]:
    """Cut the rows into batches: longest first, `tokens_per_batch // padded length` rows each.

    A length has one batch size, so shapes are at most as many as padded lengths, plus the last batch.

    Example:
        >>> [batch.tolist() for batch in plan_by_length(np.array([5, 16, 9, 8, 1]), 16, 32)]
        [[1], [2], [3, 0], [4]]
    """
    order = np.argsort(-lengths, kind="stable")
    padded = padded_length(lengths[order], ENCODING_MULTIPLE, max_length)
    batches, start = [], 0
    while start < len(order):
        stop = start + max(1, tokens_per_batch // int(padded[start]))
        batches.append(order[start:stop])
        start = stop
    return batches
