"""Shared by the methods with SimLM's bottleneck: a deep encoder, a shallow decoder, one vector between them.

SimLM figure 1. A method adds what each side reads and what it has to predict. Page: ideas/bottleneck.
"""

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib.models import Decoder, embed, hidden_states
from dr_lib.objectives.base import MaskedObjective, MaskedSettings
from dr_lib.tokens import TokenBatch


class EncoderDecoderSettings(MaskedSettings):
    """Parameters of the shallow decoder.

    Attributes:
        decoder_layers, decoder_init: depth of the decoder; copies of the encoder's last layers, or random weights.
        projection: a linear map between the two, used in pre-training only (CDMAE eq. 4).
        decoder_token_types: as the encoder's (paper), or all zero (SimLM's released code).
        init_seed: of whatever starts from random weights here.
    """

    decoder_layers: int = Field(2, ge=1)
    decoder_init: Literal["copy_last", "random"] = "copy_last"
    decoder_token_types: Literal["paper", "released"] = "paper"
    projection: bool = False
    init_seed: int = Field(0, ge=0)


class EncoderDecoder(MaskedObjective):
    """An encoder and a shallow decoder that sees it through its first state alone.

    Attributes:
        decoder: the shallow decoder; discarded after pre-training.
    """

    saved_beside: ClassVar[tuple[str, ...]] = ("decoder",)
    settings: EncoderDecoderSettings

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: EncoderDecoderSettings):
        super().__init__(model, tokenizer, settings)
        layers, init, seed = settings.decoder_layers, settings.decoder_init, settings.init_seed
        self.decoder = Decoder(model, layers, init, settings.projection, seed=seed)

    def states(self, batch: TokenBatch, encoder_ids: Tensor, decoder_ids: Tensor) -> tuple[Tensor, Tensor]:
        """States of encoder and decoder, each `[batch, length, hidden]`.

        Args:
            batch: for padding and token types.
            encoder_ids, decoder_ids: `[batch, length]` what each side reads; the decoder never sees its position 0.
        """
        encoded = hidden_states(self.model, batch, encoder_ids)
        # The first state alone crosses over; all else that the decoder knows is what is left of its own input.
        types = batch.token_type_ids if self.settings.decoder_token_types == "paper" else None
        return encoded, self.decoder(embed(self.model, decoder_ids, types), encoded[:, 0], batch)
