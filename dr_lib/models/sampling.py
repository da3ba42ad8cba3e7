"""Draw token ids from a masked LM's head by inverting the cumulative distribution, a few rows at a time.

One uniform number a row decides: the drawn id is the first whose cumulative probability exceeds it. The search goes in
two steps, first over sums of 128 neighbouring ids, then inside one such block: a cumulative sum over the whole
vocabulary is sequential, and slower than the softmax on a CPU.
"""

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 128
BELOW_ONE = 1 - 2**-22
"""Keeps a target strictly below its total, whatever the rounding, so that an id of probability 0 is never drawn."""


def draw_ids(
    states: Tensor,
    weight: Tensor,
    bias: Tensor,
    uniform: Tensor,
    forbidden: Tensor,
    chunk: int | None = None,
) -> Tensor:
    """Draw one id a row from ``softmax(states @ weight.T + bias)``, the softmax in float32.

    Args:
        states: `[rows, width]` output of the head's transform.
        weight, bias: `[vocab, width]` and `[vocab]` of the head.
        uniform: `[rows]` float32 numbers in [0, 1).
        forbidden: int64 ids of probability zero, on the same device; may be empty.
        chunk: rows whose logits exist at a time; by default what fits a core's cache, much more on a GPU.

    Returns:
        `[rows]` int64 ids.
    """
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    states, weight, bias = states.to(dtype), weight.to(dtype), bias.to(dtype).index_fill(0, forbidden, -torch.inf)
    fitting = max(1, (2**20 if device == "cpu" else 2**28) // weight.shape[0])
    chunk = chunk or 1 << fitting.bit_length() - 1  # a power of two divides the padded rows: one shape, no tail
    with torch.autocast(device, enabled=False):  # it would cast the whole table again for every chunk
        parts = zip(states.split(chunk), uniform.split(chunk), strict=True)
        drawn = [invert(functional.linear(rows, weight, bias), numbers) for rows, numbers in parts]
    return torch.cat(drawn)


def invert(logits: Tensor, uniform: Tensor) -> Tensor:
    """The id of each row `[rows, vocab]` at which the cumulative softmax first exceeds `uniform` `[rows]`."""
    return pick(torch.softmax(logits, dim=-1, dtype=torch.float32), uniform)


def pick(chances: Tensor, uniform: Tensor) -> Tensor:
    """The id of each row at which the cumulative sum of `chances` first exceeds its share `uniform` of the whole.

    Args:
        chances: `[rows, vocab]` float32, not negative; a row need not sum to 1.
        uniform: `[rows]` float32 in [0, 1).
    """
    vocab = chances.shape[1]
    whole = vocab - vocab % BLOCK
    sums = chances[:, :whole].unflatten(1, (-1, BLOCK)).sum(-1)
    if whole < vocab:
        sums = torch.cat([sums, chances[:, whole:].sum(-1, keepdim=True)], 1)
    block, rest = search(sums, uniform[:, None] * sums.sum(-1, keepdim=True))
    members = block * BLOCK + torch.arange(BLOCK, device=chances.device)
    inside = chances.gather(1, members.clamp(max=vocab - 1)).masked_fill_(members >= vocab, 0.0)
    return (block * BLOCK + search(inside, rest)[0]).squeeze(1)


def search(masses: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """First index `[rows, 1]` whose summed mass exceeds `target` `[rows, 1]`, and the target less what came before."""
    upper = masses.cumsum(-1)
    target = torch.minimum(target, upper[:, -1:] * BELOW_ONE)
    index = torch.searchsorted(upper, target, right=True)
    before = torch.where(index > 0, upper.gather(1, (index - 1).clamp(min=0)), 0.0)
    return index, target - before
