"""Parts that pre-training adds to an encoder: decoders and heads behind its first state, the
bottleneck, and the generator that fills masked positions. Pages: ideas/bottleneck and
ideas/generators.

The shallow decoder (SimLM section 3.1) reads a heavily masked or replaced copy of the passage; the
rest must come from the bottleneck. In RetroMAE's enhanced decoder (Xiao et al. 2022, as in the
released code) every row of the attention sees another part of the passage. ELECTRA's head (Clark et
al. 2020) detects replaced tokens.

The generator is a masked LM (SimLM section 3.1). A sampled token may equal the original one, in
paper and code alike. Ids are drawn by inverting the cumulative distribution: given one uniform
number per row, the drawn id is the first whose cumulative probability exceeds it. The search has
two steps, over sums of blocks of 128 ids, then inside one block: a cumulative sum over the whole
vocabulary is sequential, and on a CPU slower than the softmax.
"""

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from dr_lib.errors import InputError
from dr_lib.models.bert import (
    attention_bias,
    compile_layers,
    fresh_copy,
    fresh_linear,
    halve_norms,
    hidden_states,
    layers_of,
    lm_head,
    masked_positions,
)
from dr_lib.tokens import TokenBatch


class Decoder(nn.Module):
    """A few bidirectional Transformer layers of the encoder's shape over embeddings whose first one
    is the bottleneck.

    Args:
        model: the encoder (with or without head) whose layers are copied, or whose shape is used.
        layers: number of layers.
        init: ``copy_last`` takes deep copies of the encoder's last layers (SimLM), ``random`` draws
            N(0, 0.02) weights.
        projection: a linear map with bias on the bottleneck, used in pre-training only (CDMAE eq.
            4).
        seed: of the random weights.
        key: the method's name for the number of layers, for the error message.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        layers: int = 2,
        init: Literal["copy_last", "random"] = "copy_last",
        projection: bool = False,
        seed: int = 0,
        key: str = "decoder_layers",
    ):
        super().__init__()
        depth, hidden = model.config.num_hidden_layers, model.config.hidden_size
        if not 1 <= layers <= depth:
            problem = f"{layers} decoder layers cannot be taken from an encoder of {depth}"
            raise InputError(problem, where=key, fix="Give a number from 1 to the encoder's depth.")
        source = model if init == "copy_last" else fresh_copy(model, seed)
        self.layers = copy.deepcopy(layers_of(source)[-layers:])
        halve_norms(self.layers)  # a head reads its states, which are not compared as vectors
        self.projection: nn.Module = nn.Identity()
        if projection:
            self.projection = fresh_linear(hidden, hidden, torch.Generator().manual_seed(seed)).to(
                model.device
            )

    def forward(self, embedded: Tensor, bottleneck: Tensor, batch: TokenBatch) -> Tensor:
        """Decoder states `[batch, length, hidden]`.

        Args:
            embedded: `[batch, length, hidden]` embedding output of the decoder's ids
                (`models.embed`).
            bottleneck: `[batch, hidden]`, replaces position 0 directly, without position embedding
                or LayerNorm.
            batch: for its padding.
        """
        first = self.projection(bottleneck)[:, None].to(embedded.dtype)
        states, bias = torch.cat([first, embedded[:, 1:]], dim=1), attention_bias(batch)
        for layer in self.layers:
            states = layer(states, bias)
        return states


class EnhancedDecoder(nn.Module):
    """One Transformer layer of the encoder's shape with queries from one stream, keys and values
    from another.

    The attention's residual is the query stream: a position gets from the passage only what it
    attends to.

    Args:
        model: the encoder (with or without head) whose shape is used.
        seed: of the weights, N(0, 0.02).
    """

    def __init__(self, model: PreTrainedModel, seed: int = 0):
        super().__init__()
        self.layer = layers_of(fresh_copy(model, seed))[-1]
        halve_norms(self.layer)

    def forward(self, queries: Tensor, contents: Tensor, unseen: Tensor) -> Tensor:
        """Decoder states `[batch, length, hidden]`.

        Args:
            queries: `[batch, length, hidden]`, the query of each row; also the residual.
            contents: `[batch, length, hidden]`, what keys and values are made from.
            unseen: `[batch, length, length]` bool from `masking.per_row`, True where row i may not
                see column j.
        """
        attention, after = self.layer.attention.self, self.layer.attention.output

        def heads(linear: nn.Linear, stream: Tensor) -> Tensor:
            return linear(stream).unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)

        mixed = functional.scaled_dot_product_attention(
            heads(attention.query, queries),
            heads(attention.key, contents),
            heads(attention.value, contents),
            attn_mask=~unseen[:, None],
            dropout_p=attention.dropout.p if self.training else 0.0,
        )
        return self.layer.feed_forward_chunk(after(mixed.transpose(1, 2).flatten(2), queries))


class ReplacedTokenHead(nn.Module):
    """A dense layer, GELU, and one number per token, the logit of "replaced".

    Args:
        hidden: width of the states.
        seed: of its weights, N(0, 0.02) with zero biases; the global random state is unchanged.

    Example:
        >>> ReplacedTokenHead(8)(torch.zeros(2, 5, 8)).shape
        torch.Size([2, 5])
    """

    def __init__(self, hidden: int, seed: int = 0):
        super().__init__()
        source = torch.Generator().manual_seed(seed)
        self.dense = fresh_linear(hidden, hidden, source)
        self.replaced = fresh_linear(hidden, 1, source)

    def forward(self, states: Tensor) -> Tensor:
        """Logits `[batch, length]` of states `[batch, length, hidden]`."""
        return self.replaced(functional.gelu(self.dense(states))).squeeze(-1)


# The generator ------------------------------------------------------------------------------------

ROUNDED = ("cuda",)
"""Device types on which a frozen generator has weights in bfloat16 under autocast."""


class Generator(nn.Module):
    """Samples replacements at masked positions, the only ones with logits.

    Args:
        model: masked LM with the encoder's vocabulary (ids are passed on unchanged).
        special_ids: ids by short name, as from `tokens.special_ids`.
        frozen: no parameter has a gradient.
        dropout_active: False keeps a frozen generator in eval mode (the paper's "frozen"). True
            follows the trainer's mode, which is what the released code actually does. A trained
            generator always follows it.
        forbid_special: never sample [PAD], [CLS], [SEP] or [MASK] (the released code may).
        pieces: vocabulary size of the tokenizer; unused rows of the model above it are never
            sampled. None if there are none.
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
        self._rounded: list[
            PreTrainedModel
        ] = []  # a list, so that it is not a sub-module: nothing to save or train
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
        """Ids `[batch, length]`: sampled where `mask` is True, those of the batch elsewhere;
        without gradient.

        Args:
            masked_ids: `[batch, length]` input of the generator, [MASK] at the masked positions.
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
        """A copy of the frozen model with weights in bfloat16, made once, so that no pass casts
        states and weights.
        """
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
        """The second half of `sample`, from the generator's states `[batch, length, hidden]`, or
        those of its `model` in another precision.
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
"""Devices and dtypes of logits for which `pick_from_logits` is used."""
LOGITS, LOGITS_OF_GPU = 2**20, 2**28
"""Logits per chunk: what fits into a core's cache, much more on a GPU."""
BLOCK = 128
BELOW_ONE = 1 - 2**-22
"""Keeps a target strictly below its total despite rounding, so that an id of probability 0 is never
drawn.
"""


def draw_ids(
    states: Tensor, weight: Tensor, bias: Tensor, uniform: Tensor, forbidden: Tensor
) -> Tensor:
    """Draw one id per row from ``softmax(states @ weight.T + bias)``, the softmax in float32.

    Args:
        states: `[rows, width]` output of the head's transform.
        weight, bias: `[vocab, width]` and `[vocab]` of the head.
        uniform: `[rows]` float32 numbers in [0, 1).
        forbidden: int64 ids of probability zero, on the same device; may be empty.

    Returns:
        `[rows]` int64 ids.
    """
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    states, weight = states.to(dtype), weight.to(dtype)
    bias = bias.to(dtype).index_fill(0, forbidden, -torch.inf)
    fitting = max(1, (LOGITS if device == "cpu" else LOGITS_OF_GPU) // weight.shape[0])
    # a power of two divides the padded rows: a single shape
    chunk = 1 << fitting.bit_length() - 1
    # autocast would cast the whole table again for every chunk
    with torch.autocast(device, enabled=False):
        parts = zip(states.split(chunk), uniform.split(chunk), strict=True)
        logits = ((functional.linear(rows, weight, bias), numbers) for rows, numbers in parts)
        draw = pick_from_logits if (device, dtype) in FUSED else pick_from_softmax
        drawn = [draw(logits_of, numbers) for logits_of, numbers in logits]
    return torch.cat(drawn)


def pick_from_softmax(logits: Tensor, uniform: Tensor) -> Tensor:
    """`sample_by_cdf` from the full softmax of logits `[rows, vocab]`."""
    return sample_by_cdf(torch.softmax(logits, dim=-1, dtype=torch.float32), uniform)


def pick_from_logits(logits: Tensor, uniform: Tensor) -> Tensor:
    """One sampled id per row of logits, from block sums computed in one compiled pass: on a GPU no
    float32 table is written, and only one block of probabilities per row.
    """
    sums, highest = _compiled()(logits)
    return _in_block(sums, uniform, logits, lambda inside: (inside.float() - highest).exp())


def block_sums(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Sums `[rows, blocks]` of `exp(logit - highest)`, and the highest logit `[rows, 1]`, float32,
    of logits `[rows, vocab]`.

    Each block is summed relative to its own highest logit, so that each logit is read once. Padding
    comes first: between two reductions the compiler would write the padded tensor.
    """
    least = torch.finfo(torch.float32).min  # finite, since all ids of a block may be forbidden
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


def sample_by_cdf(probs: Tensor, uniform: Tensor) -> Tensor:
    """The id of each row at which the cumulative sum of `probs` first exceeds the fraction
    `uniform` of its total.

    Args:
        probs: `[rows, vocab]` float32, not negative; a row need not sum to 1.
        uniform: `[rows]` float32 in [0, 1).
    """
    vocab = probs.shape[1]
    whole = vocab - vocab % BLOCK
    sums = probs[:, :whole].unflatten(1, (-1, BLOCK)).sum(-1)
    if whole < vocab:
        sums = torch.cat([sums, probs[:, whole:].sum(-1, keepdim=True)], 1)
    return _in_block(sums, uniform, probs, lambda inside: inside)


def _in_block(
    sums: Tensor, uniform: Tensor, table: Tensor, masses: Callable[[Tensor], Tensor]
) -> Tensor:
    """The id of each row, from its block sums and, within one block, the `masses` of the table's
    entries.
    """
    block, rest = invert_cdf(sums, uniform[:, None] * sums.sum(-1, keepdim=True))
    members, last = block * BLOCK + torch.arange(BLOCK, device=sums.device), table.shape[1] - 1
    inside = masses(table.gather(1, members.clamp(max=last))).masked_fill_(members > last, 0.0)
    return (block * BLOCK + invert_cdf(inside, rest)[0]).squeeze(1)


def invert_cdf(masses: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """First index `[rows, 1]` whose cumulative mass exceeds `target` `[rows, 1]`, and the target
    minus the mass before it.
    """
    upper = masses.cumsum(-1)
    target = torch.minimum(target, upper[:, -1:] * BELOW_ONE)
    index = torch.searchsorted(upper, target, right=True)
    before = torch.where(index > 0, upper.gather(1, (index - 1).clamp(min=0)), 0.0)
    return index, target - before
