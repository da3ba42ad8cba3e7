"""The generator: a masked LM that fills masked positions (SimLM section 3.1). Page:
ideas/generators.

A replaced token may equal the original one; nothing forces a difference, in paper and code alike.
Ids are drawn by inverting the cumulative distribution: one uniform number per row decides, the
drawn id is the first whose cumulative probability exceeds it. The search goes in two steps, first
over sums of 128 neighbouring ids, then inside one such block: a cumulative sum over the whole
vocabulary is sequential, and slower than the softmax on a CPU.
"""

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from dr_lib.models.bert import compile_layers, hidden_states, layers_of, lm_head, masked_positions
from dr_lib.tokens import TokenBatch

ROUNDED = ("cuda",)
"""Kinds of devices on which a frozen generator has weights in bfloat16 under autocast."""


class Generator(nn.Module):
    """Sample replacements at masked positions; logits are made there and nowhere else.

    Args:
        model: masked LM with the encoder's vocabulary (ids are passed on unchanged).
        special_ids: ids by short name, as from `models.special_ids`.
        frozen: no parameter has a gradient.
        dropout_active: False keeps a frozen generator in eval mode for good (the paper's "frozen").
            True follows the trainer's mode, which is what the released code really does. A
            generator that learns always follows it.
        forbid_special: never sample [PAD], [CLS], [SEP] or [MASK] (the released code allows them).
        pieces: number of pieces of the tokenizer; spare rows of the model above them are never
            sampled. None has none.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        special_ids: Mapping[str, int],
        *,
        frozen: bool = True,
        dropout_active: bool = False,
        forbid_special: bool = True,
        pieces: int | None = None,
    ):
        super().__init__()
        self.model = model.requires_grad_(not frozen)
        self.is_frozen, self.always_eval = frozen, frozen and not dropout_active
        self._rounded: list[PreTrainedModel] = []  # no part of the module: nothing to save or train
        banned = (
            [special_ids[name] for name in ("pad", "cls", "sep", "mask")] if forbid_special else []
        )
        banned += range(pieces or model.config.vocab_size, model.config.vocab_size)
        ids = torch.tensor(banned, dtype=torch.int64, device=model.device)
        self.register_buffer("forbidden", ids, persistent=False)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Switch the mode; a frozen generator without dropout stays in eval mode."""
        super().train(mode)
        if self.always_eval:
            self.model.eval()
        return self

    @torch.no_grad()
    def sample(
        self,
        batch: TokenBatch,
        masked_ids: Tensor,
        mask: Tensor,
        generator: torch.Generator,
        at_most: int | None = None,
    ) -> Tensor:
        """Ids `[batch, length]`: sampled where `mask` is True, those of the batch elsewhere; never
        differentiated.

        Args:
            masked_ids: `[batch, length]` what the generator reads, [MASK] at the masked positions.
            mask: `[batch, length]` bool.
            at_most: a bound on the masked positions of the batch (see `masked_positions`).
        """
        device = mask.device.type
        halved = torch.is_autocast_enabled(device)
        halved = halved and torch.get_autocast_dtype(device) == torch.bfloat16
        if not (halved and device in ROUNDED and self.is_frozen):
            return self.fill(
                hidden_states(self.model, batch, masked_ids), batch, mask, generator, at_most
            )
        with torch.autocast(device, enabled=False):
            states = hidden_states(self.rounded, batch, masked_ids)
            return self.fill(states, batch, mask, generator, at_most, self.rounded)

    @property
    def rounded(self) -> PreTrainedModel:
        """A frozen model with weights in bfloat16, made once: no pass casts states and weights."""
        if not self._rounded:
            twin = copy.deepcopy(self.model).to(torch.bfloat16)
            if layers_of(self.model)[0]._compiled_call_impl:  # of which a copy knows nothing
                compile_layers(twin)
            self._rounded.append(twin)
        return self._rounded[0].train(self.model.training)

    @torch.no_grad()
    def fill(
        self,
        hidden: Tensor,
        batch: TokenBatch,
        mask: Tensor,
        generator: torch.Generator,
        at_most: int | None = None,
        model: PreTrainedModel | None = None,
    ) -> Tensor:
        """The second half of `sample`, from the `[batch, length, hidden]` states of the generator,
        or of its `model` in another precision.
        """
        rows = masked_positions(mask, at_most)
        uniform = torch.rand(mask.shape, generator=generator, device=mask.device).flatten()[rows]
        head = lm_head(model or self.model)
        drawn = draw_ids(
            head.transform(hidden.flatten(0, 1)[rows]),
            head.weight,
            head.bias,
            uniform,
            self.forbidden,
        )
        filled = batch.input_ids.flatten().scatter(0, rows, drawn).view_as(mask)
        return torch.where(mask, filled, batch.input_ids)


FUSED = (("cuda", torch.bfloat16),)
"""Devices and types of logits from which ids are drawn by `pick_from_logits`."""
BLOCK = 128
BELOW_ONE = 1 - 2**-22
"""Keeps a target strictly below its total, whatever the rounding, so that an id of probability 0 is
never drawn.
"""


def draw_ids(
    states: Tensor,
    weight: Tensor,
    bias: Tensor,
    uniform: Tensor,
    forbidden: Tensor,
    chunk: int | None = None,
) -> Tensor:
    """Draw one id per row from ``softmax(states @ weight.T + bias)``, the softmax in float32.

    Args:
        states: `[rows, width]` output of the head's transform.
        weight, bias: `[vocab, width]` and `[vocab]` of the head.
        uniform: `[rows]` float32 numbers in [0, 1).
        forbidden: int64 ids of probability zero, on the same device; may be empty.
        chunk: rows whose logits exist at a time; by default what fits a core's cache, much more on
            a GPU.

    Returns:
        `[rows]` int64 ids.
    """
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    states, weight, bias = (
        states.to(dtype),
        weight.to(dtype),
        bias.to(dtype).index_fill(0, forbidden, -torch.inf),
    )
    fitting = max(1, (2**20 if device == "cpu" else 2**28) // weight.shape[0])
    # a power of two divides the padded rows: one shape, no tail
    chunk = chunk or 1 << fitting.bit_length() - 1
    # it would cast the whole table again for every chunk
    with torch.autocast(device, enabled=False):
        parts = zip(states.split(chunk), uniform.split(chunk), strict=True)
        logits = ((functional.linear(rows, weight, bias), numbers) for rows, numbers in parts)
        draw = pick_from_logits if (device, dtype) in FUSED else pick_from_softmax
        drawn = [draw(one, numbers) for one, numbers in logits]
    return torch.cat(drawn)


def pick_from_softmax(logits: Tensor, uniform: Tensor) -> Tensor:
    """`pick` from the softmax of logits `[rows, vocab]`, worked out whole."""
    return pick(torch.softmax(logits, dim=-1, dtype=torch.float32), uniform)


def pick_from_logits(logits: Tensor, uniform: Tensor) -> Tensor:
    """The same from sums of blocks that one compiled pass makes: on a GPU no table of float32 is
    written, and of the chances only those of one block a row.
    """
    vocab = logits.shape[1]
    sums, highest = _compiled()(logits)
    block, rest = search(sums, uniform[:, None] * sums.sum(-1, keepdim=True))
    members = block * BLOCK + torch.arange(BLOCK, device=logits.device)
    inside = (logits.gather(1, members.clamp(max=vocab - 1)).float() - highest).exp()
    inside = inside.masked_fill_(members >= vocab, 0.0)
    return (block * BLOCK + search(inside, rest)[0]).squeeze(1)


def block_sums(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Sums `[rows, blocks]` of `exp(logit - highest)`, and the highest logit `[rows, 1]`, float32,
    of logits `[rows, vocab]`.

    A block is summed below its own highest logit, so that each logit is read once, and padded
    before it is looked at: what a compiler has to pad between two reductions, it writes.
    """
    least = torch.finfo(torch.float32).min  # finite: all ids of a block may be forbidden
    scores = functional.pad(logits.float(), (0, -logits.shape[1] % BLOCK), value=least)
    scores = scores.unflatten(1, (-1, BLOCK))
    tops = scores.amax(-1, keepdim=True).clamp(min=least)
    sums, tops = (scores - tops).exp().sum(-1), tops.squeeze(-1)
    highest = tops.amax(1, keepdim=True)
    return sums * (tops - highest).exp(), highest


@functools.cache
def _compiled() -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """`block_sums` as one kernel; compiled at the first call."""
    return torch.compile(block_sums, dynamic=True)


def pick(chances: Tensor, uniform: Tensor) -> Tensor:
    """The id of each row at which the cumulative sum of `chances` first exceeds its share `uniform`
    of the whole.

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
    """First index `[rows, 1]` whose summed mass exceeds `target` `[rows, 1]`, and the target less
    what came before.
    """
    upper = masses.cumsum(-1)
    target = torch.minimum(target, upper[:, -1:] * BELOW_ONE)
    index = torch.searchsorted(upper, target, right=True)
    before = torch.where(index > 0, upper.gather(1, (index - 1).clamp(min=0)), 0.0)
    return index, target - before
