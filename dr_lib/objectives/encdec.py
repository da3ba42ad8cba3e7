"""SimLM's bottleneck without its generator: Enc-Dec MLM and auto-encoding (SimLM section 5.1, Table 7).

In `encdec_mlm` encoder and decoder read masked passages and predict the masked tokens. The paper gives the rates, 30 %
and 50 %, and that only masked tokens carry a loss. It leaves open whether the decoder's mask contains the encoder's, as
SimLM's does, and whether a masked token always becomes [MASK]. In `autoencoder`, which the paper finds worse than no
pre-training, the encoder reads the clean passage, and the decoder has nothing but its vector. Page: ideas/bottleneck.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from dr_lib import masking
from dr_lib.objectives.base import Prediction, predict_tokens, report
from dr_lib.objectives.bottleneck import EncoderDecoder, EncoderDecoderSettings
from dr_lib.tokens import TokenBatch


class EncdecMlmSettings(EncoderDecoderSettings):
    """Parameters of masked language modelling through a bottleneck.

    Attributes:
        encoder_rate, decoder_rate: share of tokens masked on each side.
        decoder_mask: superset, the encoder's mask and more (as SimLM; at or below the encoder's rate the same mask), or
            independent, a draw of its own.
        budget: the rates count non-special tokens, or [CLS] and [SEP] too (as SimLM's code does).
        mask_policy: BERT's 80 % [MASK], 10 % a random piece, 10 % unchanged, drawn for each side; or always [MASK].
        targets: masked tokens carry a loss (the paper), or all but special ones do, as in SimLM.

    The decoder's parameters are those of `EncoderDecoderSettings`.
    """

    encoder_rate: float = Field(0.3, ge=0, le=1)
    decoder_rate: float = Field(0.5, ge=0, le=1)
    decoder_mask: Literal["superset", "independent"] = "superset"
    budget: Literal["maskable", "all"] = "maskable"
    mask_policy: Literal["mask", "80_10_10"] = "80_10_10"
    targets: Literal["masked", "all"] = "masked"


class EncdecMlm(EncoderDecoder):
    """Predict masked tokens: the encoder from its own input, the decoder from its input and one vector."""

    cites = ("simlm",)
    settings: EncdecMlmSettings

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Encoder loss + decoder loss."""
        batch = self.maskable(batch)
        policy, rate = self.settings.mask_policy, self.settings.encoder_rate
        encoder_mask, decoder_mask, decoder_rates = self.masks(batch, generator)
        encoder_ids, decoder_ids = (self.hide(batch, mask, generator, policy) for mask in (encoder_mask, decoder_mask))
        encoded, decoded = self.states(batch, encoder_ids, decoder_ids)
        encoder = self.side_loss(batch, encoded, encoder_mask, rate)
        decoder = self.side_loss(batch, decoded, decoder_mask, *decoder_rates)
        return report(encoder.loss + decoder.loss, encoder=encoder, decoder=decoder)

    def masks(self, batch: TokenBatch, generator: torch.Generator) -> tuple[Tensor, Tensor, tuple[float, ...]]:
        """The masks of encoder and decoder, `[batch, length]` bool, and the rates of the draws that made the second."""
        chosen, rate = self.settings, self.settings.encoder_rate
        how = {"generator": generator, "budget": chosen.budget}
        mask = masking.whole_word(batch, rate, **how)
        if chosen.decoder_mask == "independent":
            return mask, masking.whole_word(batch, chosen.decoder_rate, **how), (chosen.decoder_rate,)
        more = masking.superset(batch, mask, chosen.decoder_rate, encoder_rate=rate, **how)
        return mask, more, (rate, masking.extra_rate(rate, chosen.decoder_rate))

    def side_loss(self, batch: TokenBatch, states: Tensor, mask: Tensor, *rates: float) -> Prediction:
        """One side's loss and accuracy at its masked tokens, or at all but special ones."""
        if self.settings.targets == "all":
            return predict_tokens(self.model, states, batch.input_ids, ~batch.special)
        return predict_tokens(self.model, states, batch.input_ids, mask, *rates)


class Autoencoder(EncoderDecoder):
    """Write the passage from its vector alone: the decoder reads nothing else but [MASK]."""

    cites = ("simlm",)

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """The decoder's loss at every token but special ones; the encoder has none of its own."""
        batch = self.maskable(batch)
        # The decoder sees lengths and special tokens, nothing else: every word has to come out of the vector.
        nothing = self.hide(batch, ~batch.special, generator)
        _, decoded = self.states(batch, batch.input_ids, nothing)
        decoder = predict_tokens(self.model, decoded, batch.input_ids, ~batch.special)
        return report(decoder.loss, decoder=decoder)
