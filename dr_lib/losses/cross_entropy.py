"""Cross-entropy over a vocabulary without materialising all logits (the masked-LM part of every
method).

Logits are computed for a few hundred positions at a time, turned into loss and gradients, and
dropped; the backward pass only scales those gradients. Page: ideas/bottleneck.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from dr_lib.losses.checks import check_shapes

IGNORED = -100
"""The label of positions to ignore."""
MULTIPLE = 64
"""Rows per chunk are a multiple of this: a CPU builds a kernel for each new shape of a bf16
product.
"""
FUSED = (("cuda", torch.bfloat16),)
"""Devices and types of logits that become gradients in one compiled pass (`row_gradients`). On
one H100 that took 13.7 ms for 20.7 ms (16,384 rows, vocabulary 30,522, width 768), and the same
time at 3,000 rows and 8,192; in float32 there is no gain.
"""
ROWS = 512
"""Positions per chunk on a CPU."""
LOGITS = 2**29
"""Bytes of logits per chunk on a GPU; each chunk adds to the gradient of the whole table.
"""
CACHED = 2**18
"""Logits processed at a time: in float32 they fit into a core's cache."""


def chunked_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    *,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of `softmax(hidden @ weight.T + bias)` at the labels, and the number of
    labels with the highest logit.

    Equal to `torch.nn.functional.cross_entropy` on the full logits up to rounding, in one pass over
    the vocabulary and with memory for one chunk. In bfloat16 (by autocast or the input's type)
    products are in bfloat16 and everything else in float32; other types are computed in float32.
    With a vocabulary of 8,192, this rounding changes the loss by 3e-5 at a loss of 8.2 and by 6e-4
    at 4.0, and gradients by 0.3 to 0.6 % without bias, like float16; a log-softmax in bfloat16 as
    well would change the loss by 0.007 and 0.013.

    Args:
        hidden: `[tokens, hidden]` float, output of the LM head's transform.
        weight: `[vocab, hidden]` float, usually the word embeddings.
        bias: `[vocab]` float, or None.
        labels: `[tokens]` int64, ids of the vocabulary; -100, and no other number, is ignored.
        weights: `[tokens]` float, not negative, for a weighted mean: `1 / (labels in the token's
            sequence)` gives the mean per sequence of SimLM's equation 2; None weighs all tokens
            equally, as its code does.

    Returns:
        The loss, float32 scalar with gradient to `hidden`, `weight` and `bias` (0 without labels),
        and the number of labels with the highest logit, int64 scalar.

    Raises:
        InputError: shapes do not fit.

    Example:
        >>> import torch
        >>> hidden, weight = torch.eye(2), torch.tensor([[9.0, 0.0], [0.0, 9.0], [0.0, 0.0]])
        >>> loss, correct = chunked_cross_entropy(hidden, weight, None, torch.tensor([0, -100]))
        >>> round(loss.item(), 4), correct.item()
        (0.0002, 1)
    """
    check_shapes(
        hidden=(hidden, "[tokens, hidden]"),
        weight=(weight, "[vocab, hidden]"),
        bias=(bias, "[vocab]"),
        labels=(labels, "[tokens]"),
        weights=(weights, "[tokens]"),
    )
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    # The gradients of a mean over many tokens underflow in float16.
    dtype = torch.bfloat16 if dtype == torch.bfloat16 else torch.float32
    counted = (labels != IGNORED).float()
    if weights is not None:
        counted = counted * weights.detach().float()
    shares = counted / counted.sum().clamp(min=torch.finfo(torch.float32).tiny)
    # Enough positions per product to keep the device busy.
    chunk = ROWS if device == "cpu" else LOGITS // (dtype.itemsize * len(weight))
    rows = _rows_per_chunk(len(labels), max(chunk, 1))
    with torch.autocast(device, enabled=False):
        return _ChunkedCrossEntropy.apply(
            hidden, weight, bias, labels, shares, rows, dtype, torch.is_grad_enabled()
        )


def _rows_per_chunk(tokens: int, chunk: int) -> int:
    """Equal chunks, so that few rows are padding."""
    pieces = max(1, -(-tokens // chunk))
    return max(1, -(-tokens // (pieces * MULTIPLE))) * MULTIPLE


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        shares: Tensor,
        rows: int,
        dtype: torch.dtype,
        with_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        to_hidden, to_weight, to_bias = (
            need and with_gradient for need in ctx.needs_input_grad[:3]
        )
        padding = -len(labels) % rows
        states = functional.pad(hidden.to(dtype), (0, 0, 0, padding))
        targets = functional.pad(labels.clamp(min=0), (0, padding))[:, None]
        shares = functional.pad(shares, (0, padding))[:, None]
        table = weight.to(dtype)
        offset = torch.zeros(len(weight), device=weight.device) if bias is None else bias.float()
        loss = torch.zeros((), device=hidden.device)
        correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
        hidden_gradient = torch.empty_like(states) if to_hidden else None
        weight_gradient = torch.zeros(weight.shape, device=weight.device) if to_weight else None
        bias_gradient = torch.zeros_like(offset) if to_bias else None
        room = torch.empty(rows, len(weight), dtype=dtype, device=weight.device)
        for start in range(0, len(states), rows):
            piece = slice(start, start + rows)
            torch.mm(states[piece], table.T, out=room)
            gradients, scale = _logits_to_gradients(
                room, offset, targets[piece], shares[piece], loss, correct, bias_gradient
            )
            scaled = states[piece]
            if hidden_gradient is not None:
                torch.mm(gradients, table, out=hidden_gradient[piece])
            if scale is not None:
                scaled = (scaled * scale).to(dtype)
                if hidden_gradient is not None:
                    hidden_gradient[piece].mul_(scale)
            if weight_gradient is not None:
                if dtype == torch.float32:
                    weight_gradient.addmm_(gradients.T, scaled)
                else:  # accumulate in float32 although the product is not
                    weight_gradient.add_(gradients.T @ scaled)
        ctx.save_for_backward(
            None if hidden_gradient is None else hidden_gradient[: len(labels)].to(hidden.dtype),
            None if weight_gradient is None else weight_gradient.to(weight.dtype),
            None if bias_gradient is None or bias is None else bias_gradient.to(bias.dtype),
        )
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients = (
            None if gradient is None else gradient * scale for gradient in ctx.saved_tensors
        )
        return (*gradients, None, None, None, None, None)


def _logits_to_gradients(
    logits: Tensor,
    offset: Tensor,
    targets: Tensor,
    shares: Tensor,
    loss: Tensor,
    correct: Tensor,
    bias_gradient: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Add a chunk to the totals and turn its logits into gradients, possibly up to a factor per
    row.

    Args:
        logits: `[rows, vocab]` without bias; may be overwritten.
        offset: `[vocab]` float32, the bias.
        targets: `[rows, 1]` int64.
        shares: `[rows, 1]` float32, weight of each row in the loss; 0 for ignored rows.
        loss, correct: scalars to add to.
        bias_gradient: `[vocab]` float32 to add the bias's gradient to, or None.

    Returns:
        `[rows, vocab]` gradients in the type of the logits; and None, or where the gradients are
            `exp(logit - highest)` less the row's sum at the target, the missing factor `[rows, 1]`
            float32: applied to rows of the small matrices, it saves a pass over the large one.
    """
    if (logits.device.type, logits.dtype) in FUSED:
        # copies: views at another storage offset would trigger recompilation
        gradients, losses, hits = _compiled()(logits, offset, targets.clone(), shares.clone())
        loss += losses.sum()
        correct += hits.sum()
        if bias_gradient is not None:
            bias_gradient += gradients.sum(0, dtype=torch.float32)
        return gradients, None
    scale = torch.empty_like(shares)
    step = len(logits) if logits.device.type != "cpu" else max(1, CACHED // logits.shape[1])
    room = (
        torch.empty(step, logits.shape[1], device=logits.device)
        if logits.dtype != torch.float32
        else None
    )
    for start in range(0, len(logits), step):
        piece = slice(start, start + step)
        target, share = targets[piece], shares[piece]
        scores = logits[piece] if room is None else room[: len(share)].copy_(logits[piece])
        scores += offset
        highest, aimed = scores.amax(1, keepdim=True), scores.gather(1, target)
        total = scores.sub_(highest).exp_().sum(1, keepdim=True)
        counted = share > 0
        loss += torch.where(counted, (total.log() + highest - aimed) * share, 0).sum()
        correct += (counted & (aimed == highest)).sum()
        scores.scatter_add_(1, target, -total)
        factor = torch.div(share, total, out=scale[piece])
        if bias_gradient is not None:
            bias_gradient.addmv_(scores.T, factor[:, 0])
        if room is not None:
            logits[piece] = scores
    return logits, scale


# On a GPU -----------------------------------------------------------------------------------------
# A chunk exceeds the device's cache, and every float32 pass over it costs more than the products.
# Compiled, `row_gradients` reads the bfloat16 logits and writes the gradients once each.


def row_gradients(
    logits: Tensor, offset: Tensor, targets: Tensor, shares: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The result of `_logits_to_gradients` as a pure function of a whole chunk, which a compiler
    can fuse.

    Args:
        logits: `[rows, vocab]` without bias, float32 or bfloat16.
        offset: `[vocab]` float32, the bias.
        targets: `[rows, 1]` int64.
        shares: `[rows, 1]` float32, weight of each row in the loss.

    Returns:
        The loss's gradients `[rows, vocab]` in the type of the logits; each row's part of the loss
        `[rows, 1]`; whether its target has the highest logit `[rows, 1]` bool.
    """
    scores = logits.float() + offset
    highest = scores.amax(1, keepdim=True)
    powers = (scores - highest).exp()
    total = powers.sum(1, keepdim=True)
    # The target's logit, gathered from the input without another pass.
    aimed = logits.gather(1, targets).float() + offset[targets]
    at_target = torch.arange(logits.shape[1], device=logits.device) == targets
    gradients = torch.where(at_target, powers - total, powers) * (shares / total)
    counted = shares > 0
    # `shares` is 0 there; a constant would be read back from the device by inductor
    losses = torch.where(counted, (total.log() + highest - aimed) * shares, shares)
    return gradients.to(logits.dtype), losses, counted & (aimed == highest)


@functools.cache
def _compiled() -> Callable[..., tuple[Tensor, ...]]:
    """`row_gradients` as one kernel for all chunks of a vocabulary; compiled at the first call."""
    return torch.compile(row_gradients, dynamic=True)
