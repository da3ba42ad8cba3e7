"""A padded batch, encoded in a few groups of about one length each, so that less padding is computed.

The batches of fine-tuning are drawn by query, so short passages lie beside long ones; a third of the positions of a
batch of PyDocs is padding. On a CPU, where time goes with positions, each group is cut to its own longest sequence.
Page: reference/speed.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from dr_lib.tokens.batch import TokenBatch

GROUPS, FEWEST_ROWS = 4, 16
MULTIPLE = 16


def encode_by_length(function: Callable[[TokenBatch], Tensor], batch: TokenBatch) -> Tensor:
    """`function(batch)` for a function that gives each sequence a vector of its own, whatever stands beside it.

    Args:
        function: `function(part)` -> vectors `[rows, hidden]`.
        batch: all sequences. On a GPU, or with fewer than 32, it stays whole: a GPU computes padding beside the rest
            and would have to wait for the lengths.

    Returns:
        Vectors in the order of the batch, equal to those of one call but for rounding and the draw of dropout.
    """
    groups = min(GROUPS, len(batch) // FEWEST_ROWS)
    if groups < 2 or batch.input_ids.device.type != "cpu":
        return function(batch)
    lengths = batch.attention_mask.sum(1)
    order = lengths.argsort(descending=True, stable=True)
    parts = [function(batch.take(rows).cut(_padded(int(lengths[rows[0]])))) for rows in order.chunk(groups)]
    return torch.cat(parts)[order.argsort()]


def _padded(length: int) -> int:
    """The length rounded up, so that there are few shapes: each costs the math library a kernel of its own."""
    return -(-length // MULTIPLE) * MULTIPLE
