"""An endless, randomly accessible sequence of batches over a token store: the same step is always the same batch.

Training resumes at any step without replaying the earlier ones; of several processes, number r of W takes the steps
`W * step + r`. Explained in the book's chapter on your own corpus.
"""

from bisect import bisect_right
from functools import lru_cache

import numpy as np

from dr_lib.errors import InputError
from dr_lib.tokens.batch import TokenBatch
from dr_lib.tokens.layout import Side, Title, check_layout, padded_length
from dr_lib.tokens.plan import plan_epoch
from dr_lib.tokens.store import TokenStore, check_rows

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
