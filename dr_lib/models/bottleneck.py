"""Decoders and heads behind the encoder's first state, which they make a bottleneck. Page:
ideas/bottleneck.

The shallow decoder (SimLM section 3.1) reads a heavily masked or replaced copy of the passage; what
it cannot see there, only the bottleneck can supply it. RetroMAE's enhanced decoder (Xiao et al.
2022, as in the released code) lets every row of its attention see another part of the passage.
ELECTRA's head (Clark et al. 2020) detects replaced tokens.
"""

import copy
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from dr_lib.errors import InputError
from dr_lib.models.bert import attention_bias, fresh_copy, fresh_linear, layers_of
from dr_lib.tokens import TokenBatch


class Decoder(nn.Module):
    """A few bidirectional Transformer layers of the encoder's shape over embeddings whose first one
    is the bottleneck.

    Args:
        model: the encoder (with or without head) whose layers are copied or imitated.
        layers: number of layers.
        init: ``copy_last`` takes deep copies of the encoder's last layers (SimLM), ``random`` draws
            N(0, 0.02) weights.
        projection: a linear map with bias on the bottleneck, used in pre-training only (CDMAE eq.
            4).
        seed: of the random weights.
        key: the name of the method's own parameter for the number of layers, for the error.
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
            bottleneck: `[batch, hidden]`, put in place of position 0 as it is: no position
                embedding, no LayerNorm.
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
        model: the encoder (with or without head) whose layers are imitated.
        seed: of the weights, N(0, 0.02).
    """

    def __init__(self, model: PreTrainedModel, seed: int = 0):
        super().__init__()
        self.layer = layers_of(fresh_copy(model, seed))[-1]

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
        seed: of its weights, N(0, 0.02) with biases of zero; the global random state is left as it
            was.

    Example:
        >>> ReplacedTokenHead(8)(torch.zeros(2, 5, 8)).shape
        torch.Size([2, 5])
    """

    def __init__(self, hidden: int, seed: int = 0):
        super().__init__()
        source = torch.Generator().manual_seed(seed)
        self.dense, self.replaced = (
            fresh_linear(hidden, hidden, source),
            fresh_linear(hidden, 1, source),
        )

    def forward(self, states: Tensor) -> Tensor:
        """Logits `[batch, length]` of states `[batch, length, hidden]`."""
        return self.replaced(functional.gelu(self.dense(states))).squeeze(-1)
