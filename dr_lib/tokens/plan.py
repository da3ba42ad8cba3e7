"""Which rows go together: batches of like length, under a budget of padded tokens, in an order fixed by seed and epoch.

Every batch of one padded length has the same number of rows, so that an epoch shows few distinct shapes: the CPU's bf16
kernels are built, and a GPU's graphs compiled, once per shape. Explained in the book's chapter on your own corpus.
"""

import numpy as np

from dr_lib.errors import InputError


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
