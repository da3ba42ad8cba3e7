"""Bag of words: the first state alone must name the words of the passage.

An example objective, beside masked LM; after Shen et al. 2022 (LexMAE) and the
bag-of-words term of DupMAE, in its simplest form.
Page: practice/adding-an-objective.
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from dr_lib import masking
from dr_lib.models import hidden_states, lm_head
from dr_lib.objectives import MaskedObjective, MaskedSettings, predict_tokens, report
from dr_lib.tokens import TokenBatch


class BagOfWordsSettings(MaskedSettings):
    """Parameters of the example.

    Attributes:
        rate: share of tokens hidden from the encoder.
        weight: of the bag-of-words loss beside the masked-LM loss.
    """

    rate: float = Field(0.3, ge=0, le=1)
    weight: float = Field(0.5, ge=0)


class BagOfWords(MaskedObjective):
    """Masked LM, and all tokens of the passage predicted from its first state."""

    settings: BagOfWordsSettings

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Masked-LM loss + weight * bag-of-words loss of the first state."""
        batch = self.maskable(batch)
        mask = masking.whole_word(batch, self.settings.rate, generator)
        states = hidden_states(self.model, batch, self.hide(batch, mask, generator))
        mlm_loss, accuracy = predict_tokens(
            self.model, states, batch.input_ids, mask, self.settings.rate
        )
        bag_loss = self.bag_of_words(batch, states[:, 0])
        loss = mlm_loss + self.settings.weight * bag_loss
        return report(loss, encoder_loss=mlm_loss, encoder_accuracy=accuracy, bag_loss=bag_loss)

    def bag_of_words(self, batch: TokenBatch, first: Tensor) -> Tensor:
        """-log p(token | first state): mean over distinct tokens, then over passages."""
        head = lm_head(self.model)
        logits = functional.linear(head.transform(first), head.weight, head.bias).float()
        words = torch.zeros_like(logits).scatter_(1, batch.input_ids, (~batch.special).float())
        words[:, list(self.special.values())] = 0
        return -(words * logits.log_softmax(1)).sum(1).div(words.sum(1).clamp(min=1)).mean()
