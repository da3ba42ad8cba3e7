"""The shallow decoder that makes the encoder's first state a bottleneck (SimLM section 3.1). Page: ideas/bottleneck.

It reads a heavily masked or replaced copy of the passage; what it cannot see there, only the bottleneck can tell it.
"""

import copy
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from dr_lib.errors import InputError
from dr_lib.models.generator import fresh_copy
from dr_lib.models.states import attention_bias
from dr_lib.tokens.batch import TokenBatch


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
