"""Decoders and heads behind the encoder's first state, which they make a bottleneck. Page: ideas/bottleneck.

The shallow decoder (SimLM section 3.1) reads a heavily masked or replaced copy of the passage; what it cannot see
there, only the bottleneck can tell it. RetroMAE's enhanced decoder (Xiao et al. 2022, as in the released code) lets
every row of its attention see another part of the passage. ELECTRA's head (Clark et al. 2020) tells replaced tokens.
"""

import copy
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from dr_lib.errors import InputError
from dr_lib.models.bert import attention_bias, fresh_copy
from dr_lib.tokens import TokenBatch


class Decoder(nn.Module):
    """A few bidirectional Transformer layers of the encoder's shape over embeddings whose first one is the bottleneck.

    Args:
        model: the encoder (with or without head) whose layers are copied or imitated.
        layers: number of layers.
        init: ``copy_last`` takes deep copies of the encoder's last layers (SimLM), ``random`` draws N(0, 0.02) weights.
        projection: a linear map with bias on the bottleneck, used in pre-training only (CDMAE eq. 4).
        seed: of the random weights.
        key: what the method's own parameter for the number of layers is called, for the error.
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
            raise InputError(
                f"{layers} decoder layers cannot be taken from an encoder of {depth}", where=key,
                fix="Give a number from 1 to the encoder's depth.",
            )  # fmt: skip
        source = model if init == "copy_last" else fresh_copy(model, seed)
        self.layers = copy.deepcopy(source.base_model.encoder.layer[-layers:])
        self.projection = fresh_projection(hidden, seed).to(model.device) if projection else nn.Identity()

    def forward(self, embedded: Tensor, bottleneck: Tensor, batch: TokenBatch) -> Tensor:
        """Decoder states `[batch, length, hidden]`.

        Args:
            embedded: `[batch, length, hidden]` embedding output of the decoder's ids (`models.embed`).
            bottleneck: `[batch, hidden]`, put in place of position 0 as it is: no position embedding, no LayerNorm.
            batch: for its padding.
        """
        first = self.projection(bottleneck)[:, None].to(embedded.dtype)
        states, bias = torch.cat([first, embedded[:, 1:]], dim=1), attention_bias(batch)
        for layer in self.layers:
            states = layer(states, bias)
        return states


def fresh_projection(hidden: int, seed: int) -> nn.Linear:
    """A linear layer with N(0, 0.02) weights drawn from `seed` and a bias of zeros."""
    layer = nn.utils.skip_init(nn.Linear, hidden, hidden)
    nn.init.normal_(layer.weight, std=0.02, generator=torch.Generator().manual_seed(seed))
    nn.init.zeros_(layer.bias)
    return layer


class EnhancedDecoder(nn.Module):
    """One Transformer layer of the encoder's shape with queries from one stream, keys and values from another.

    The attention's residual is the query stream: a position knows of the passage what it attends to and nothing else.

    Args:
        model: the encoder (with or without head) whose layers are imitated.
        seed: of the weights, N(0, 0.02).
    """

    def __init__(self, model: PreTrainedModel, seed: int = 0):
        super().__init__()
        self.layer = fresh_copy(model, seed).base_model.encoder.layer[-1]

    def forward(self, queries: Tensor, contents: Tensor, unseen: Tensor) -> Tensor:
        """Decoder states `[batch, length, hidden]`.

        Args:
            queries: `[batch, length, hidden]`, what each row asks with; also the residual.
            contents: `[batch, length, hidden]`, what keys and values are made from.
            unseen: `[batch, length, length]` bool from `masking.per_row`, True where row i may not see column j.
        """
        attention, after = self.layer.attention.self, self.layer.attention.output
        mixed = functional.scaled_dot_product_attention(
            *(
                linear(stream).unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)
                for linear, stream in (
                    (attention.query, queries), (attention.key, contents), (attention.value, contents),
                )
            ),
            attn_mask=~unseen[:, None], dropout_p=attention.dropout.p if self.training else 0.0,
        )  # fmt: skip
        attended = after(mixed.transpose(1, 2).flatten(2), queries)
        states: Tensor = self.layer.feed_forward_chunk(attended)
        return states


WEIGHT_SPREAD = 0.02
"""Standard deviation of fresh weights, as in BERT and ELECTRA."""


class ReplacedTokenHead(nn.Module):
    """A dense layer, GELU, and one number a token, the logit of "replaced".

    Args:
        hidden: width of the states.
        seed: of its weights, N(0, 0.02) with biases of zero; the global random state is left as it was.

    Example:
        >>> ReplacedTokenHead(8)(torch.zeros(2, 5, 8)).shape
        torch.Size([2, 5])
    """

    def __init__(self, hidden: int, seed: int = 0):
        super().__init__()
        self.dense = nn.utils.skip_init(nn.Linear, hidden, hidden)
        self.replaced = nn.utils.skip_init(nn.Linear, hidden, 1)
        source = torch.Generator().manual_seed(seed)
        for layer in (self.dense, self.replaced):
            nn.init.normal_(layer.weight, std=WEIGHT_SPREAD, generator=source)
            nn.init.zeros_(layer.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Logits `[batch, length]` of states `[batch, length, hidden]`."""
        logits: Tensor = self.replaced(functional.gelu(self.dense(states)))
        return logits.squeeze(-1)
