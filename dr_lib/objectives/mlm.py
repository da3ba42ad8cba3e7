"""Masked language modelling on the target corpus (BERT; the baseline of SimLM Table 6). Page:
ideas/masking.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from dr_lib import masking
from dr_lib.models import hidden_states
from dr_lib.objectives.base import (
    MaskedObjective,
    MaskedSettings,
    Prediction,
    predict_tokens,
    report,
)
from dr_lib.tokens import TokenBatch


class MlmSettings(MaskedSettings):
    """Parameters of masked language modelling.

    Attributes:
        rate: share of tokens that are hidden.
        unit: hide whole words or single pieces.
        budget: whether the rate counts non-special tokens or [CLS] and [SEP] too (as SimLM's code
            does).
        mask_policy: always [MASK], or BERT's 80 % [MASK], 10 % a random piece, 10 % unchanged.
    """

    rate: float = Field(0.15, ge=0, le=1)
    unit: Literal["whole_word", "piece"] = "whole_word"
    budget: Literal["maskable", "all"] = "maskable"
    mask_policy: Literal["mask", "80_10_10"] = "80_10_10"


class Mlm(MaskedObjective):
    """Hide some tokens, predict them from what is left."""

    cites = ("devlin2019",)
    title, family = "masked LM", "masked words alone"
    settings: MlmSettings

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss and accuracy at the hidden positions."""
        _, encoder = self.read(batch, generator)
        return report(encoder.loss, encoder=encoder)

    def read(self, batch: TokenBatch, generator: torch.Generator) -> tuple[Tensor, Prediction]:
        """States `[batch, length, hidden]` of the masked batch, and what they predict at the hidden
        positions.
        """
        chosen, batch = self.settings, self.maskable(batch)
        draw = masking.whole_word if chosen.unit == "whole_word" else masking.uniform
        mask = draw(batch, chosen.rate, generator, budget=chosen.budget)
        states = hidden_states(
            self.model, batch, self.hide(batch, mask, generator, chosen.mask_policy)
        )
        return states, predict_tokens(self.model, states, batch.input_ids, mask, chosen.rate)
