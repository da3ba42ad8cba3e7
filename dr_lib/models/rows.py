"""Take the positions of a batch that a loss or a draw needs, in few distinct shapes and without asking the GPU."""

import torch
from torch import Tensor

MULTIPLE = 256
"""Row counts are rounded up to this: a CPU builds a bf16 kernel for each new shape, a GPU may recompile."""


def rows_of(mask: Tensor, at_most: int | None = None) -> Tensor:
    """Flat positions `[rows]` int64: every True position of `mask` in order, then False ones that fill up the shape.

    On a CPU the count is read and rounded up. On a GPU reading it would stall the queue, so the shape comes from
    `at_most` instead (or is the whole batch where that is None).

    Args:
        mask: `[batch, length]` bool.
        at_most: a bound on the number of True positions, known without looking.

    Example:
        >>> rows_of(torch.tensor([[False, True], [True, False]]))
        tensor([1, 2, 0, 3])
    """
    if mask.device.type == "cpu":
        at_most = int(mask.sum())
    needed = mask.numel() if at_most is None else -(-at_most // MULTIPLE) * MULTIPLE
    return torch.argsort(mask.flatten(), descending=True, stable=True)[:needed]


def most_masked(mask: Tensor, *rates: float) -> int:
    """A bound on the True positions of a mask that is the union of draws at `rates`, from its shape alone."""
    batch, length = mask.shape
    return min(batch * length, batch * sum(max(1, round(rate * length)) for rate in rates))
