"""RetroMAE: reconstruct the passage from one vector, each position with its own sample of the other
tokens (Xiao et al. 2022).

The encoder predicts the masked tokens of its input. A decoder of one layer predicts every token:
row i of its attention has the passage's vector plus position i as its query, and sees the vector
and about half of the clean tokens, never token i. Page: ideas/bottleneck.
"""

from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import masking
from dr_lib.models import EnhancedDecoder, embed, hidden_states, lm_head, position_vectors
from dr_lib.objectives.base import DrawnSettings, MaskedObjective, predict_tokens, report
from dr_lib.objectives.bow import bag_of_words
from dr_lib.settings import Share
from dr_lib.tokens import TokenBatch

RELEASED_DRAWS = 256
LOGITS, LOGITS_OF_GPU = 2**22, 2**28
"""Logits of whole passages in memory at a time."""
NEVER = -1e4
"""Replaces the logits at special positions: below any other, but finite for a passage without
tokens.
"""


class RetromaeSettings(DrawnSettings):
    """Parameters of RetroMAE. Where paper and released code differ, `paper` and `released` are the
    two values.

    Attributes:
        encoder_rate: share of tokens masked for the encoder.
        decoder_rate: share of tokens that a row of the decoder does not see.
        budget: the rates count non-special tokens (recommended), or [CLS] and [SEP] too (released).
        mask_policy: BERT's 80 % [MASK], 10 % a random piece, 10 % unchanged; or always [MASK].
        draws: a mask for each row (paper), or up to 256 masks per passage, of which each row picks
            one (released).
        bag_weight: weight of DupMAE's bag-of-words loss, 0.1 in its released code; DupMAE's
            LayerNorm on the queries and its second vector for retrieval are not part of this.
        init_seed: of the decoder's weights; None takes the recipe's seed.
    """

    encoder_rate: Share = 0.3
    decoder_rate: Share = 0.5
    budget: masking.Budget = "maskable"
    mask_policy: masking.MaskPolicy = "80_10_10"
    draws: Literal["paper", "released"] = "paper"
    bag_weight: NonNegativeFloat = 0.0

    def depth(self, layers: int) -> int:
        """The decoder's one layer, with a mask for each row, takes as much memory as about two."""
        return layers + 2


class Retromae(MaskedObjective):
    """Masked LM for the encoder, enhanced decoding behind the bottleneck.

    Attributes:
        decoder: the one layer with two streams; discarded after pre-training.
    """

    cites = ("xiao2022",)
    title, family = "RetroMAE", "one vector for a decoder"
    saved_beside = ("decoder",)
    settings: RetromaeSettings

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: RetromaeSettings
    ):
        super().__init__(model, tokenizer, settings)
        self.decoder = EnhancedDecoder(model, settings.init_seed)

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Encoder loss + decoder loss (+ weighted bag-of-words loss)."""
        chosen, batch = self.settings, self.maskable(batch)
        mask = masking.whole_word(batch, chosen.encoder_rate, generator, budget=chosen.budget)
        encoded = hidden_states(
            self.model, batch, self.hide(batch, mask, generator, chosen.mask_policy)
        )
        decoded = self.decode(batch, encoded[:, :1], generator)
        encoder = predict_tokens(self.model, encoded, batch.input_ids, mask, chosen.encoder_rate)
        decoder = predict_tokens(self.model, decoded, batch.input_ids, ~batch.special)
        loss, bag = encoder.loss + decoder.loss, {}
        if chosen.bag_weight:
            words = passage_logits(self.model, encoded, batch)
            bag = {"bag_loss": bag_of_words(words, batch, per="token")}
            loss = loss + chosen.bag_weight * bag["bag_loss"]
        return report(loss, encoder=encoder, decoder=decoder, **bag)

    def decode(self, batch: TokenBatch, bottleneck: Tensor, generator: torch.Generator) -> Tensor:
        """Decoder states `[batch, length, hidden]`.

        Args:
            batch: clean passages.
            bottleneck: `[batch, 1, hidden]`, the encoder's first states.
            generator: for the rows' masks.
        """
        chosen = self.settings
        draws = RELEASED_DRAWS if chosen.draws == "released" else None
        unseen = masking.per_row(
            batch, chosen.decoder_rate, generator, budget=chosen.budget, draws=draws
        )
        embedded = embed(self.model, batch.input_ids, batch.token_type_ids)
        # Position 0 holds the passage's vector in place of [CLS]; every row may see it.
        contents = torch.cat([bottleneck.to(embedded.dtype), embedded[:, 1:]], dim=1)
        return self.decoder(
            bottleneck + position_vectors(self.model, embedded.shape[1]), contents, unseen
        )


def passage_logits(model: PreTrainedModel, hidden: Tensor, batch: TokenBatch) -> Tensor:
    """Logits of DupMAE's bag-of-words task (Xiao and Liu 2022): the maximum over the passage's
    tokens for each id of the vocabulary.

    The released code pools over [SEP] too; here only non-special tokens count.

    Args:
        model: whose head makes the logits.
        hidden: `[batch, length, hidden]` encoder states of the masked passages.
        batch: the clean passages.

    Returns:
        `[batch, vocab]` with gradient.
    """
    # Logits of all positions would fill memory: a few passages at a time, of which only the maxima
    # are kept.
    head, length, vocab = lm_head(model), batch.special.shape[1], model.config.vocab_size
    most = LOGITS if hidden.device.type == "cpu" else LOGITS_OF_GPU
    at_a_time = max(1, most // (length * vocab))
    parts = zip(
        *(t.split(at_a_time) for t in (head.transform(hidden), batch.special[..., None])),
        strict=True,
    )
    logits = (
        functional.linear(part, head.weight, head.bias).masked_fill(special, NEVER)
        for part, special in parts
    )
    return torch.cat([part.max(1).values for part in logits])
