"""Replaced token detection (ELECTRA, Clark et al. 2020): the starting point of SimLM's Tables 1 and
5. Page: ideas/bottleneck.

A generator fills the gaps of a passage, and the encoder says of each token whether it is the
original. Our choices: the generator is frozen, as in SimLM, while ELECTRA trains it jointly; a
sampled token that equals the original counts as original. There is no bottleneck and no decoder;
with both it is `encdec_rtd`.
"""

import copy

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import masking
from dr_lib.models import Generator, ReplacedTokenHead, hidden_states, max_masked
from dr_lib.objectives.base import DrawnSettings, MaskedObjective, Prediction, report
from dr_lib.settings import Share
from dr_lib.tokens import TokenBatch


class RtdSettings(DrawnSettings):
    """Parameters of replaced token detection.

    Attributes:
        rate: share of tokens that the generator replaces.
        init_seed: of the head; None takes the recipe's seed.
    """

    rate: Share = 0.15


class Rtd(MaskedObjective):
    """Detect replaced tokens, at all but special positions.

    An accuracy below `1 - encoder_replaced` is worse than calling every token original.

    Attributes:
        detector: the head; discarded after pre-training. The masked-LM head is unchanged.
    """

    cites = ("clark2020",)
    title, family = "replaced tokens (ELECTRA)", "masked words alone"
    needs_generator = True
    saved_beside = ("detector",)
    settings: RtdSettings

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        settings: RtdSettings,
        generator_model: PreTrainedModel,
    ):
        super().__init__(model, tokenizer, settings)
        generator_model = copy.deepcopy(model) if generator_model is model else generator_model
        self.generator = Generator(generator_model, self.special, pieces=self.pieces)
        self.detector = ReplacedTokenHead(model.config.hidden_size, settings.init_seed).to(
            model.device
        )

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """The mean binary cross-entropy over all tokens, and the accuracy."""
        batch, rate = self.maskable(batch), self.settings.rate
        mask = masking.whole_word(batch, rate, generator)
        hidden = self.hide(batch, mask, generator)
        ids = self.generator.sample(batch, hidden, mask, generator, max_masked(mask, rate))
        replaced = ids != batch.input_ids
        detection = detect_replaced(
            self.detector, hidden_states(self.model, batch, ids), replaced, ~batch.special
        )
        return report(
            detection.loss,
            encoder=detection,
            encoder_replaced=replaced.sum() / batch.attention_mask.sum(),
        )


def detect_replaced(
    detector: ReplacedTokenHead,
    states: Tensor,
    replaced: Tensor,
    where: Tensor,
    by_passage: bool = False,
) -> Prediction:
    """Binary cross-entropy of "replaced or original?" at some positions, and the accuracy.

    Args:
        detector: the head.
        states: `[batch, length, hidden]` of the corrupted input.
        replaced: `[batch, length]` bool, where it differs from the clean passage.
        where: `[batch, length]` bool, the positions that count.
        by_passage: average within each passage first, then over passages; otherwise every token
            weighs the same.
    """
    logits, counted = detector(states).float(), where.float()
    total = counted.sum().clamp(min=1)
    accuracy = (((logits > 0) == replaced) * counted).sum() / total
    if by_passage:
        counted = counted / counted.sum(1, keepdim=True).clamp(min=1)
        total = where.any(1).sum().clamp(min=1)
    losses = functional.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
    return Prediction((losses * counted).sum() / total, accuracy)
