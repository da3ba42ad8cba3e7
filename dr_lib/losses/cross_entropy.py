"""Cross-entropy over a vocabulary without the table of all logits (the masked-LM part of every method).

The logits of a few hundred positions at a time are made, turned into loss and gradients, and forgotten; the backward
pass only scales what the forward pass has found. Page: ideas/bottleneck.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from dr_lib.errors import InputError

IGNORED = -100
MULTIPLE = 64
"""Rows of a chunk are a multiple of this: a CPU builds a kernel for each new shape of a bf16 product."""


def chunked_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    *,
    chunk: int | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of `softmax(hidden @ weight.T + bias)` at the labels, and how many labels score highest.

    Equal to `torch.nn.functional.cross_entropy` on the full logits up to rounding, in one pass over the vocabulary and
    with memory for one chunk. Under autocast the products run in its type, all sums in float32.

    Args:
        hidden: `[tokens, hidden]` float, output of the LM head's transform.
        weight: `[vocab, hidden]` float, usually the word embeddings.
        bias: `[vocab]` float, or None.
        labels: `[tokens]` int64; -100 where there is nothing to predict.
        chunk: positions per piece; chosen for the device where None.
        weights: `[tokens]` float, not negative, for a weighted mean: `1 / (labels in the token's sequence)` gives the
            mean per sequence of SimLM's equation 2; None weighs all tokens alike, as its code does.

    Returns:
        The loss, float32 scalar with gradient to `hidden`, `weight` and `bias` (0 without labels), and the number of
        labels with the highest logit, int64 scalar.

    Raises:
        InputError: shapes that do not fit, or (on a CPU) a label outside the vocabulary.

    Example:
        >>> import torch
        >>> hidden, weight = torch.eye(2), torch.tensor([[9.0, 0.0], [0.0, 9.0], [0.0, 0.0]])
        >>> loss, correct = chunked_cross_entropy(hidden, weight, None, torch.tensor([0, -100]))
        >>> round(loss.item(), 4), correct.item()
        (0.0002, 1)
    """
    _check(hidden, weight, bias, labels, weights)
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    counted = (labels != IGNORED).float()
    if weights is not None:
        counted = counted * weights.detach().float()
    shares = counted / counted.sum().clamp(min=torch.finfo(torch.float32).tiny)
    rows = _rows_per_chunk(len(labels), chunk or _default_chunk(weight, dtype))
    with torch.autocast(device, enabled=False):
        return _ChunkedCrossEntropy.apply(hidden, weight, bias, labels, shares, rows, dtype, torch.is_grad_enabled())


def _check(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, weights: Tensor | None) -> None:
    fits = (
        hidden.ndim == weight.ndim == 2
        and hidden.shape[1] == weight.shape[1]
        and labels.shape == hidden.shape[:1]
        and (bias is None or bias.shape == weight.shape[:1])
        and (weights is None or weights.shape == labels.shape)
    )
    if not fits:
        shapes = [None if t is None else tuple(t.shape) for t in (hidden, weight, bias, labels, weights)]
        raise InputError(
            f"shapes {shapes} do not fit",
            where="chunked_cross_entropy",
            fix="Give hidden [tokens, hidden], weight [vocab, hidden], bias [vocab], labels and weights [tokens].",
        )
    if labels.device.type == "cpu" and len(labels):
        low, high = map(int, labels.aminmax())
        if high >= len(weight) or (low < 0 and bool(((labels < 0) & (labels != IGNORED)).any())):
            raise InputError(
                f"labels from {low} to {high} for a vocabulary of {len(weight)}",
                where="labels",
                fix="Use the tokenizer that belongs to the model; -100 marks what is not predicted.",
            )


def _default_chunk(weight: Tensor, dtype: torch.dtype) -> int:
    """Positions whose logits just fit a core's cache; on a GPU as many as keep it busy."""
    elements = 2**28 if weight.device.type == "cuda" else 2**21 if dtype == torch.float32 else 2**20
    return max(MULTIPLE, elements // len(weight))


def _rows_per_chunk(tokens: int, chunk: int) -> int:
    """Chunks of equal size, so that few rows are padded."""
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
        needed = [need and with_gradient for need in ctx.needs_input_grad[:3]]
        padding = -len(labels) % rows
        states = functional.pad(hidden.to(dtype), (0, 0, 0, padding))
        targets = functional.pad(labels.clamp(min=0), (0, padding))
        shares = functional.pad(shares, (0, padding))
        table = weight.to(dtype)
        offset = None if bias is None else bias.to(dtype)
        loss = torch.zeros((), device=hidden.device)
        correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
        to_hidden = torch.empty_like(states) if needed[0] else None
        to_weight = torch.zeros(weight.shape, device=weight.device) if needed[1] else None
        to_bias = torch.zeros(len(weight), device=weight.device) if needed[2] else None
        for start in range(0, len(states), rows):
            piece = slice(start, start + rows)
            logits = functional.linear(states[piece], table, offset).float()
            target = targets[piece, None]
            highest = logits.amax(1, keepdim=True)
            aimed = logits.gather(1, target)
            correct += ((aimed == highest)[:, 0] & (labels_counted := shares[piece] > 0)).sum()
            total = logits.sub_(highest).exp_().sum(1, keepdim=True)
            loss += (total.log() + highest - aimed)[:, 0].where(labels_counted, 0.0) @ shares[piece]
            if not any(needed):
                continue
            share = shares[piece, None]
            slope = logits.mul_(share / total).scatter_add_(1, target, -share)
            if to_bias is not None:
                to_bias += slope.sum(0)
            slope = slope.to(dtype)
            if to_hidden is not None:
                torch.mm(slope, table, out=to_hidden[piece])
            if to_weight is not None:
                to_weight += slope.t() @ states[piece]
        to_hidden = None if to_hidden is None else to_hidden[: len(labels)].to(hidden.dtype)
        to_weight = None if to_weight is None else to_weight.to(weight.dtype)
        to_bias = None if to_bias is None or bias is None else to_bias.to(bias.dtype)
        ctx.save_for_backward(to_hidden, to_weight, to_bias)
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        found = (None if gradient is None else gradient * scale for gradient in ctx.saved_tensors)
        return (*found, None, None, None, None, None)
