"""Auto-encoding through the bottleneck alone (SimLM section 5.1, Table 7: worse than no pre-training).

The encoder reads the clean passage; the decoder reads nothing but [MASK] and the encoder's vector, and writes the
passage. Page: ideas/bottleneck.
"""

from typing import ClassVar

import torch
from torch import Tensor

from dr_lib.objectives.base import Settings
from dr_lib.objectives.encoder_decoder import EncoderDecoder, EncoderDecoderSettings
from dr_lib.objectives.predict import labels_at, predict_tokens
from dr_lib.tokens import TokenBatch


class AutoencoderSettings(EncoderDecoderSettings):
    """Parameters of auto-encoding: those of the decoder, see `EncoderDecoderSettings`."""


class Autoencoder(EncoderDecoder):
    """Write the passage from its vector."""

    settings_type: ClassVar[type[Settings]] = AutoencoderSettings
    settings: AutoencoderSettings

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """The decoder's loss at every token but special ones; the encoder has none of its own."""
        nothing = self.hide(batch, ~batch.special, generator)
        _, decoded = self.states(batch, batch.input_ids, nothing)
        loss, accuracy = predict_tokens(self.model, decoded, labels_at(batch.input_ids, self.predictable(batch)))
        return {"loss": loss, "decoder_loss": loss.detach(), "decoder_accuracy": accuracy}
