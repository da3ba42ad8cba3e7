"""Enc-Dec MLM: SimLM's bottleneck without its generator (SimLM section 5.1, Table 7). Page: ideas/bottleneck.

Encoder and decoder read masked passages and predict the masked tokens. The paper gives the rates, 30 % and 50 %, and
that only masked tokens carry a loss. It leaves open whether the decoder's mask contains the encoder's, as SimLM's does,
and whether a masked token always becomes [MASK].
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from dr_lib import masking
from dr_lib.models import max_masked
from dr_lib.objectives.base import Settings
from dr_lib.objectives.encoder_decoder import EncoderDecoder, EncoderDecoderSettings
from dr_lib.objectives.predict import labels_at, predict_tokens, two_sides
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

    settings_type: ClassVar[type[Settings]] = EncdecMlmSettings
    settings: EncdecMlmSettings

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Encoder loss + decoder loss."""
        policy = self.settings.mask_policy
        encoder_mask, decoder_mask, rates = self.masks(batch, generator)
        encoder_ids, decoder_ids = (self.hide(batch, mask, generator, policy) for mask in (encoder_mask, decoder_mask))
        encoded, decoded = self.states(batch, encoder_ids, decoder_ids)
        return two_sides(
            self.ask(batch, encoded, encoder_mask, max_masked(encoder_mask, self.settings.encoder_rate)),
            self.ask(batch, decoded, decoder_mask, max_masked(decoder_mask, *rates)),
        )

    def masks(self, batch: TokenBatch, generator: torch.Generator) -> tuple[Tensor, Tensor, tuple[float, ...]]:
        """The masks of encoder and decoder, `[batch, length]` bool, and the rates of the draws that made the second."""
        chosen, rate = self.settings, self.settings.encoder_rate
        mask = masking.whole_word(batch, rate, generator, budget=chosen.budget)
        if chosen.decoder_mask == "independent":
            own = masking.whole_word(batch, chosen.decoder_rate, generator, budget=chosen.budget)
            return mask, own, (chosen.decoder_rate,)
        more = masking.superset(
            batch, mask, chosen.decoder_rate, generator, encoder_rate=rate, budget=chosen.budget
        )  # fmt: skip
        return mask, more, (rate, masking.extra_rate(rate, chosen.decoder_rate))

    def ask(self, batch: TokenBatch, states: Tensor, mask: Tensor, at_most: int) -> tuple[Tensor, Tensor]:
        """One side's loss and accuracy at its masked tokens (`at_most` of them), or at all but special ones."""
        if self.settings.targets == "all":
            return predict_tokens(self.model, states, labels_at(batch.input_ids, self.predictable(batch)))
        return predict_tokens(self.model, states, labels_at(batch.input_ids, mask), at_most)
