"""RetroMAE: rebuild the passage from one vector, each position from its own sample of the others (Xiao et al. 2022).

The encoder predicts the masked tokens of its input. A decoder of one layer predicts every token: row i of its attention
asks with the passage's vector and position i, and sees the vector and about half of the clean tokens, never token i.
Page: ideas/bottleneck.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import masking
from dr_lib.models import EnhancedDecoder, embed, hidden_states, max_masked, position_vectors
from dr_lib.objectives.bag_of_words import bag_of_words
from dr_lib.objectives.base import Objective, Settings
from dr_lib.objectives.predict import labels_at, predict_tokens, two_sides
from dr_lib.tokens import TokenBatch

RELEASED_DRAWS = 256


class RetromaeSettings(Settings):
    """Parameters of RetroMAE. Where paper and released code differ, `paper` and `released` are the two values.

    Attributes:
        encoder_rate: share of tokens masked for the encoder.
        decoder_rate: share of tokens that a row of the decoder does not see.
        budget: the rates count non-special tokens (recommended), or [CLS] and [SEP] too (released).
        mask_policy: BERT's 80 % [MASK], 10 % a random piece, 10 % unchanged; or always [MASK].
        draws: a draw for each row (paper), or up to 256 draws a passage, of which each row picks one (released).
        bag_weight: weight of DupMAE's bag-of-words loss, 0.1 in its released code; DupMAE's LayerNorm on the queries
            and its second vector for retrieval are not part of this.
        init_seed: of the decoder's weights.
    """

    encoder_rate: float = Field(0.3, ge=0, le=1)
    decoder_rate: float = Field(0.5, ge=0, le=1)
    budget: Literal["maskable", "all"] = "maskable"
    mask_policy: Literal["mask", "80_10_10"] = "80_10_10"
    draws: Literal["paper", "released"] = "paper"
    bag_weight: float = Field(0.0, ge=0)
    init_seed: int = Field(0, ge=0)


class Retromae(Objective):
    """Masked LM for the encoder, enhanced decoding behind the bottleneck.

    Attributes:
        decoder: the one layer with two streams; thrown away after pre-training.
    """

    settings_type: ClassVar[type[Settings]] = RetromaeSettings
    saved_beside: ClassVar[tuple[str, ...]] = ("decoder",)
    settings: RetromaeSettings

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: RetromaeSettings):
        super().__init__(model, tokenizer, settings)
        self.decoder = EnhancedDecoder(model, settings.init_seed)

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Encoder loss + decoder loss (+ weighted bag-of-words loss)."""
        chosen = self.settings
        mask = masking.whole_word(batch, chosen.encoder_rate, generator, budget=chosen.budget)
        encoded = hidden_states(self.model, batch, self.hide(batch, mask, generator, chosen.mask_policy))
        decoded = self.decode(batch, encoded[:, :1], generator)
        masked, every = labels_at(batch.input_ids, mask), labels_at(batch.input_ids, ~batch.special)
        parts = two_sides(
            predict_tokens(self.model, encoded, masked, max_masked(mask, chosen.encoder_rate)),
            predict_tokens(self.model, decoded, every),
        )
        if chosen.bag_weight:
            bag_loss = bag_of_words(self.model, encoded, batch)
            parts |= {"loss": parts["loss"] + chosen.bag_weight * bag_loss, "bag_loss": bag_loss.detach()}
        return parts

    def decode(self, batch: TokenBatch, bottleneck: Tensor, generator: torch.Generator) -> Tensor:
        """Decoder states `[batch, length, hidden]`.

        Args:
            batch: clean passages.
            bottleneck: `[batch, 1, hidden]`, the encoder's first states.
            generator: of the rows' masks.
        """
        unseen = masking.per_row(
            batch, self.settings.decoder_rate, generator, budget=self.settings.budget,
            draws=RELEASED_DRAWS if self.settings.draws == "released" else None,
        )  # fmt: skip
        embedded = embed(self.model, batch.input_ids, batch.token_type_ids)
        contents = torch.cat([bottleneck.to(embedded.dtype), embedded[:, 1:]], dim=1)
        return self.decoder(bottleneck + position_vectors(self.model, embedded.shape[1]), contents, unseen)
