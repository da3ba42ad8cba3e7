"""Bag of words: predict the passage's words from the vector alone (Ma et al. 2024, after Xiao and
Liu 2022).

A bottleneck whose decoder has no layers. The masked LM's own head, or one linear layer that is
discarded after pre-training, turns the first state into a distribution over the vocabulary, whose
targets are the passage's words. The encoder also predicts its masked tokens; at rate 0 it reads the
clean passage and bag of words is the only task. Page: practice/adding-an-objective.
"""

from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import masking
from dr_lib.models import fresh_linear, hidden_states, lm_head
from dr_lib.objectives.base import DrawnSettings, MaskedObjective, predict_tokens, report
from dr_lib.settings import Share
from dr_lib.tokens import TokenBatch


class BowSettings(DrawnSettings):
    """Parameters of bag-of-words prediction.

    Attributes:
        encoder_rate: share of tokens masked for the encoder, which it predicts; 0 leaves only the
            bag of words.
        mask_policy: BERT's 80 % [MASK], 10 % a random piece, 10 % unchanged; or always [MASK].
        targets: binary, all distinct pieces of the passage weigh the same (the paper); or count,
            each weighs as often as it occurs.
        head: the masked LM's own head, without new weights (the paper); or linear, one new layer.
        bag_weight: of the bag-of-words loss, relative to that of the masked LM.
        init_seed: of the new layer; None takes the recipe's seed.
    """

    encoder_rate: Share = 0.3
    mask_policy: masking.MaskPolicy = "80_10_10"
    targets: Literal["binary", "count"] = "binary"
    head: Literal["masked_lm", "linear"] = "masked_lm"
    bag_weight: NonNegativeFloat = 1.0


class Bow(MaskedObjective):
    """Masked LM, and the words of the passage predicted from its first state.

    Attributes:
        bag: the new layer from the vector to the vocabulary; None if the masked LM's head is used.
    """

    cites = ("ma2024", "xiao2022b")
    title, family = "bag of words", "one vector, no decoder"
    saved_beside = ("bag",)
    settings: BowSettings

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: BowSettings
    ):
        super().__init__(model, tokenizer, settings)
        self.bag: nn.Linear | None = None
        if settings.head == "linear":
            source = torch.Generator().manual_seed(settings.init_seed or 0)
            width, pieces = model.config.hidden_size, model.config.vocab_size
            self.bag = fresh_linear(width, pieces, source).to(model.device)

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Encoder loss + weight * bag-of-words loss."""
        chosen, batch = self.settings, self.maskable(batch)
        mask = masking.whole_word(batch, chosen.encoder_rate, generator)
        states = hidden_states(
            self.model, batch, self.hide(batch, mask, generator, chosen.mask_policy)
        )
        encoder = predict_tokens(self.model, states, batch.input_ids, mask, chosen.encoder_rate)
        bag_loss = self.bag_loss(batch, states[:, 0])
        return report(
            encoder.loss + chosen.bag_weight * bag_loss, encoder=encoder, bag_loss=bag_loss
        )

    def bag_loss(self, batch: TokenBatch, vectors: Tensor) -> Tensor:
        """-log p(piece | vector), averaged over the pieces of each passage, then over passages.

        Args:
            batch: clean passages.
            vectors: `[batch, hidden]` first states.

        Returns:
            float32 scalar with gradient; a passage without pieces adds nothing.
        """
        if self.bag is None:
            head = lm_head(self.model)
            logits = functional.linear(head.transform(vectors), head.weight, head.bias)
        else:
            logits = self.bag(vectors)
        return bag_of_words(logits, batch, targets=self.settings.targets)


def bag_of_words(
    logits: Tensor,
    batch: TokenBatch,
    *,
    targets: Literal["binary", "count"] = "binary",
    per: Literal["target", "token"] = "target",
) -> Tensor:
    """`-sum(bag * log softmax(logits)) / size`, averaged over passages: the words of each passage
    under one distribution.

    Args:
        logits: `[batch, vocab]` float.
        batch: clean passages; their non-special tokens are the bag.
        targets: binary, a piece weighs 1 however often it occurs; or count, as often as it occurs.
        per: what `size` is: target, the sum of the weights, for a mean; or token, the number of
            tokens with repetitions (DupMAE's released code).

    Returns:
        float32 scalar with gradient; a passage without tokens adds nothing.
    """
    tokens = (~batch.special).float()
    counts = torch.zeros(logits.shape, device=logits.device).scatter_add_(
        1, batch.input_ids, tokens
    )
    bag = counts.clamp(max=1) if targets == "binary" else counts
    size = (bag if per == "target" else tokens).sum(1).clamp(min=1)
    log_p = functional.log_softmax(logits.float(), dim=-1)
    return -((bag * log_p).sum(1) / size).mean()
