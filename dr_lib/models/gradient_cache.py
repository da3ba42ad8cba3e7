"""The gradient cache: many sequences against each other in the memory of a few (Gao et al. 2021).

A contrastive loss needs the vectors of its whole batch, but not the activations behind them. Page: practice/gpu.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dr_lib.errors import InputError
from dr_lib.tokens.batch import TokenBatch


def encode_in_chunks(function: Callable[..., Any], batch: TokenBatch, rows: int | None, *beside: Tensor) -> Any:
    """Encode a batch chunk by chunk and keep nothing of a chunk but its result until its turn backward.

    Why checkpointing a chunk is the gradient cache: that method encodes each chunk without a graph, takes the gradient
    of the loss to all vectors, then encodes each chunk once more, with the random state it had, and sends the kept
    gradient of its vectors through it. A checkpointed chunk keeps no activations forward; the loss lies above all
    chunks, so autograd has the gradient of every vector before it reaches the first chunk, computes that chunk once
    more with the random state it had, sends the gradient through it, and goes on to the next one. A further loss that
    is made inside a chunk arrives by the same path with the weight it has in the sum, and a temperature is wherever
    the loss has it: there are no two formulas that could differ.

    Args:
        function: `function(chunk, *beside)` -> vectors `[rows, hidden]`, or a tuple of these and sums over its rows. It
            may use dropout (its random state comes back) but no generator of its own.
        batch: all sequences.
        rows: sequences of a chunk, the last one may have fewer; None encodes all at once.
        beside: tensors `[batch, ...]` to be cut as the batch is.

    Returns:
        Vectors one after the other and sums added up, as one call on the whole batch gives them up to rounding and the
        draw of dropout. The gradient is that of the same chunks without the cache, for one more forward pass.

    Raises:
        InputError: `rows` below 1.
    """
    if rows is None or rows >= len(batch):
        return function(batch, *beside)
    if rows < 1:
        raise InputError(f"{rows} is less than 1", where="chunk", fix="Give the number of sequences encoded at a time.")

    def encode(index: Tensor) -> Any:
        return function(batch.take(index), *(tensor[index] for tensor in beside))

    # The index is a tensor on the device: the checkpoint keeps the random state of the devices among its arguments.
    chunks = torch.arange(len(batch), device=batch.input_ids.device).split(rows)
    results = [checkpoint(encode, index, use_reentrant=False) for index in chunks]
    if isinstance(results[0], Tensor):
        return torch.cat(results)
    vectors, *sums = zip(*results, strict=True)
    return torch.cat(vectors), *(torch.stack(parts).sum(0) for parts in sums)
