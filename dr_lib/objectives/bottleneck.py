"""SimLM's bottleneck, a deep encoder and a shallow decoder with one vector between them, and two
baselines that use it.

Several methods build on it and define what each side reads and predicts (SimLM figure 1). Two of
SimLM's baselines (section 5.1, Table 7) need no generator. In `encdec_mlm` encoder and decoder read
masked passages and predict the masked tokens. The paper gives the rates, 30 % and 50 %, and that
only masked tokens carry a loss. It leaves open whether the decoder's mask contains the encoder's,
as SimLM's does, and whether a masked token always becomes [MASK]. In `autoencoder`, which the paper
finds worse than no pre-training, the encoder reads the clean passage (`encoder_rate` hides a part
of it), and the decoder has nothing but its vector. Page: ideas/bottleneck.
"""

from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import masking
from dr_lib.models import Decoder, embed, hidden_states
from dr_lib.objectives.base import (
    DrawnSettings,
    MaskedObjective,
    Prediction,
    predict_tokens,
    report,
)
from dr_lib.settings import Share
from dr_lib.tokens import TokenBatch


class EncoderDecoderSettings(DrawnSettings):
    """Parameters of the shallow decoder.

    Attributes:
        decoder_layers, decoder_init: depth of the decoder; copies of the encoder's last layers, or
            random weights.
        projection: a linear map between encoder and decoder, used in pre-training only (CDMAE eq.
            4).
        decoder_token_types: as the encoder's (paper), or all zero (SimLM's released code).
        init_seed: of all newly initialised weights; None takes the recipe's seed.
    """

    decoder_layers: PositiveInt = 2
    decoder_init: Literal["copy_last", "random"] = "copy_last"
    decoder_token_types: Literal["paper", "released"] = "paper"
    projection: bool = False

    def depth(self, layers: int) -> int:
        """The encoder's layers and the decoder's."""
        return layers + self.decoder_layers


class EncoderDecoder(MaskedObjective):
    """An encoder and a shallow decoder that sees it through its first state only.

    Attributes:
        decoder: the shallow decoder; discarded after pre-training.
    """

    saved_beside = ("decoder",)
    settings: EncoderDecoderSettings

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        settings: EncoderDecoderSettings,
    ):
        super().__init__(model, tokenizer, settings)
        layers, init, seed = settings.decoder_layers, settings.decoder_init, settings.init_seed
        self.decoder = Decoder(model, layers, init, settings.projection, seed=seed)

    def states(
        self, batch: TokenBatch, encoder_ids: Tensor, decoder_ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        """States of encoder and decoder, each `[batch, length, hidden]`.

        Args:
            batch: for padding and token types.
            encoder_ids, decoder_ids: `[batch, length]` inputs of each side; the decoder never sees
                its position 0.
        """
        encoded = hidden_states(self.model, batch, encoder_ids)
        # Only the first state crosses over; everything else the decoder knows is in its own input.
        types = batch.token_type_ids if self.settings.decoder_token_types == "paper" else None
        return encoded, self.decoder(embed(self.model, decoder_ids, types), encoded[:, 0], batch)


class EncdecMlmSettings(EncoderDecoderSettings):
    """Parameters of masked language modelling through a bottleneck.

    Attributes:
        encoder_rate, decoder_rate: share of tokens masked on each side.
        decoder_mask: superset, the encoder's mask and more (as in SimLM; at or below the encoder's
            rate, the same mask), or independent, a separate draw.
        budget: the rates count non-special tokens, or [CLS] and [SEP] too (as SimLM's code does).
        mask_policy: BERT's 80 % [MASK], 10 % a random piece, 10 % unchanged, drawn for each side;
            or always [MASK].
        targets: the loss is over masked tokens (the paper), or over all but special ones, as in
            SimLM.

    The decoder's parameters are those of `EncoderDecoderSettings`.
    """

    encoder_rate: Share = 0.3
    decoder_rate: Share = 0.5
    decoder_mask: Literal["superset", "independent"] = "superset"
    budget: masking.Budget = "maskable"
    mask_policy: masking.MaskPolicy = "80_10_10"
    targets: Literal["masked", "all"] = "masked"


class EncdecMlm(EncoderDecoder):
    """Predict masked tokens: the encoder from its own input, the decoder from its input and one
    vector.
    """

    cites = ("simlm",)
    title, family = "Enc-Dec MLM", "one vector for a decoder"
    settings: EncdecMlmSettings

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Encoder loss + decoder loss."""
        batch = self.maskable(batch)
        policy, rate = self.settings.mask_policy, self.settings.encoder_rate
        encoder_mask, decoder_mask, decoder_rates = self.masks(batch, generator)
        encoder_ids, decoder_ids = (
            self.hide(batch, mask, generator, policy) for mask in (encoder_mask, decoder_mask)
        )
        encoded, decoded = self.states(batch, encoder_ids, decoder_ids)
        encoder = self.side_loss(batch, encoded, encoder_mask, rate)
        decoder = self.side_loss(batch, decoded, decoder_mask, *decoder_rates)
        return report(encoder.loss + decoder.loss, encoder=encoder, decoder=decoder)

    def masks(
        self, batch: TokenBatch, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, tuple[float, ...]]:
        """The masks of encoder and decoder, `[batch, length]` bool, and the rates of the draws
        behind the second.
        """
        chosen, rate = self.settings, self.settings.encoder_rate
        how = {"generator": generator, "budget": chosen.budget}
        if chosen.decoder_mask == "independent":
            return (
                masking.whole_word(batch, rate, **how),
                masking.whole_word(batch, chosen.decoder_rate, **how),
                (chosen.decoder_rate,),
            )
        masks = masking.nested(batch, rate, chosen.decoder_rate, **how)
        return *masks, (rate, masking.extra_rate(rate, chosen.decoder_rate))

    def side_loss(
        self, batch: TokenBatch, states: Tensor, mask: Tensor, *rates: float
    ) -> Prediction:
        """One side's loss and accuracy, at its masked tokens or at all but special ones."""
        if self.settings.targets == "all":
            return predict_tokens(self.model, states, batch.input_ids, ~batch.special)
        return predict_tokens(self.model, states, batch.input_ids, mask, *rates)


class AutoencoderSettings(EncoderDecoderSettings):
    """Parameters of the auto-encoder.

    Attributes:
        encoder_rate: share of tokens masked for the encoder; 0 in the paper, which explains the
            row's result by the clean input.

    The decoder's parameters are those of `EncoderDecoderSettings`.
    """

    encoder_rate: Share = 0.0


class Autoencoder(EncoderDecoder):
    """Reconstruct the passage from its vector alone: the decoder reads nothing but [MASK]."""

    cites = ("simlm",)
    title, family = "auto-encoder", "one vector for a decoder"
    settings: AutoencoderSettings

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """The decoder's loss at all but special tokens; the encoder has none of its own."""
        batch = self.maskable(batch)
        # The decoder sees only lengths and special tokens: every word has to come from the vector.
        nothing = self.hide(batch, ~batch.special, generator)
        mask = masking.whole_word(batch, self.settings.encoder_rate, generator)
        _, decoded = self.states(batch, self.hide(batch, mask, generator), nothing)
        decoder = predict_tokens(self.model, decoded, batch.input_ids, ~batch.special)
        return report(decoder.loss, decoder=decoder)
