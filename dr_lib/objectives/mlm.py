"""BERT's tasks: masked LM on the target corpus (the baseline of SimLM Table 7) and, on natural
pairs, next-sentence prediction.

Both texts of a pair form one sequence, as for a cross-encoder. Humeau et al. 2019 pre-train this
way on posts and comments; DPR-PAQ compares its dual encoder with theirs (section 5.1; Table 3, row
5). Pages: ideas/masking and ideas/pairs.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from pydantic import Field, NonNegativeInt
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import masking
from dr_lib.models import fresh_linear, hidden_states
from dr_lib.objectives.base import (
    MaskedObjective,
    MaskedSettings,
    Prediction,
    Source,
    predict_tokens,
    report,
)
from dr_lib.objectives.contrastive import pairs_at_once, stored_pairs
from dr_lib.settings import Share
from dr_lib.tokens import QueryPassagePairs, TokenBatch
from dr_lib.training import PairBatches


class MlmSettings(MaskedSettings):
    """Parameters of masked language modelling.

    Attributes:
        rate: share of tokens that are hidden.
        unit: hide whole words or single pieces.
        budget: whether the rate counts non-special tokens or [CLS] and [SEP] too (as SimLM's code
            does).
        mask_policy: always [MASK], or BERT's 80 % [MASK], 10 % a random piece, 10 % unchanged.
    """

    rate: Share = 0.15
    unit: Literal["whole_word", "piece"] = "whole_word"
    budget: masking.Budget = "maskable"
    mask_policy: masking.MaskPolicy = "80_10_10"


class Mlm(MaskedObjective):
    """Mask some tokens and predict them from the rest."""

    cites = ("devlin2019",)
    title, family = "masked LM", "masked words alone"
    settings: MlmSettings

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss and accuracy at the hidden positions."""
        _, encoder = self.read(batch, generator)
        return report(encoder.loss, encoder=encoder)

    def read(self, batch: TokenBatch, generator: torch.Generator) -> tuple[Tensor, Prediction]:
        """States `[batch, length, hidden]` of the masked batch, and the prediction at the hidden
        positions.
        """
        chosen, batch = self.settings, self.maskable(batch)
        draw = masking.whole_word if chosen.unit == "whole_word" else masking.uniform
        mask = draw(batch, chosen.rate, generator, budget=chosen.budget)
        states = hidden_states(
            self.model, batch, self.hide(batch, mask, generator, chosen.mask_policy)
        )
        return states, predict_tokens(self.model, states, batch.input_ids, mask, chosen.rate)


class NspSettings(MlmSettings):
    """Parameters: those of masked language modelling, and of the pairs.

    Attributes:
        batch_pairs: true pairs per micro-batch, each with a random one; None fills the token budget
            at full length.
        init_seed: of the classification head; None takes the recipe's seed.
    """

    batch_pairs: int | None = Field(None, ge=2)
    init_seed: NonNegativeInt | None = None

    def materials(self) -> dict[str, dict[str, Any]]:
        """The pairs, which may bring passages of their own."""
        return {"reddit_pairs": {}}


class Nsp(Mlm):
    """Predict masked words of two texts, and whether they belong together; half of them do.

    A pair is at most as long as a passage, so that a step reads as many tokens as any other
    method's. A random text is never another positive of the first. The pair is classified from
    [CLS] through one layer, without BERT's pooler, which none of the book's base models has.

    Attributes:
        follows: from [CLS] to the logit of "belongs together".
    """

    cites = ("devlin2019", "dpr_paq")
    title, family = "pairs read together (BERT)", "pairs of texts"
    shares_batches = True
    saved_beside = ("follows",)
    settings: NspSettings

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: NspSettings
    ):
        super().__init__(model, tokenizer, settings)
        source = torch.Generator().manual_seed(settings.init_seed or 0)
        self.follows = fresh_linear(model.config.hidden_size, 1, source).to(model.device)

    @classmethod
    def batches(cls, settings: NspSettings, source: Source) -> Callable[[int], TokenBatch]:
        """Sequences of two texts: a true pair at even rows, followed by the same first text with a
        random second one.
        """
        queries, passages, examples = stored_pairs(source, source.materials["reddit_pairs"])
        length = source.layout.passage_length
        pairs = QueryPassagePairs(
            queries,
            passages,
            source.tokenizer,
            max_length=length,
            title=source.layout.title != "none",
        )
        count = pairs_at_once(
            settings.batch_pairs, source.tokens_per_batch, 2 * length, len(examples)
        )
        return PairBatches(
            pairs, examples, batch_queries=count, passages_per_query=2, seed=source.seed
        ).batch

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """The sum of both losses, as in BERT, and the accuracies."""
        states, words = self.read(batch, generator)
        logits = self.follows(states[:, 0]).squeeze(-1).float()
        true = torch.arange(len(batch), device=logits.device) % 2 == 0
        loss = functional.binary_cross_entropy_with_logits(logits, true.float())
        follows = Prediction(loss, ((logits > 0) == true).float().mean())
        return report(words.loss + loss, encoder=words, follows=follows)
