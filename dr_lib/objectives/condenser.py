"""Condenser: the late layers pass on what they add through [CLS] alone (Gao and Callan 2021).

The encoder is cut in two. A short head, used in pre-training only, predicts the masked tokens from the early layers'
states of all positions and the last layer's state of [CLS]. What the late layers have learned about the passage can
reach it in no other way; what the early ones know passes beside the bottleneck. Page: ideas/bottleneck.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import masking
from dr_lib.errors import InputError
from dr_lib.models import Decoder, encode_in_chunks, layer_states, max_masked
from dr_lib.objectives.base import Objective, Settings
from dr_lib.objectives.predict import IGNORED, labels_at, predict_tokens
from dr_lib.tokens import TokenBatch

LOGGED = ("decoder_loss", "decoder_accuracy", "encoder_loss", "encoder_accuracy")


class CondenserSettings(Settings):
    """Parameters of Condenser.

    Attributes:
        rate: share of tokens that are masked, once for encoder and head (SimLM's Table 7 pre-trains it at 0.3).
        budget: the rate counts non-special tokens (as Condenser's code does), or [CLS] and [SEP] too.
        mask_policy: BERT's 80 % [MASK], 10 % a random piece, 10 % unchanged; or always [MASK].
        skip_from: layer whose states the head reads at all positions but the first; 0 is the embedding, None half of
            the layers (6 of BERT-base's 12, as published).
        head_layers: depth of the head, N(0, 0.02) weights.
        late_mlm: also predict the masked tokens from the last layer itself, with weight 1 (on in the released recipe).
        init_seed: of the head's weights.
    """

    rate: float = Field(0.15, ge=0, le=1)
    budget: Literal["maskable", "all"] = "maskable"
    mask_policy: Literal["mask", "80_10_10"] = "80_10_10"
    skip_from: int | None = Field(None, ge=0)
    head_layers: int = Field(2, ge=1)
    late_mlm: bool = True
    init_seed: int = Field(0, ge=0)


class Condenser(Objective):
    """Predict masked tokens from early states and the late [CLS].

    Attributes:
        head: the layers that read both; thrown away after pre-training.
        skip_from: the layer that the early states come from.
    """

    settings_type: ClassVar[type[Settings]] = CondenserSettings
    saved_beside: ClassVar[tuple[str, ...]] = ("head",)
    settings: CondenserSettings

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: CondenserSettings):
        super().__init__(model, tokenizer, settings)
        depth = model.config.num_hidden_layers
        self.skip_from = depth // 2 if settings.skip_from is None else settings.skip_from
        if self.skip_from >= depth:
            raise InputError(
                f"layer {self.skip_from} of {depth} leaves no late layer", where="skip_from",
                fix=f"Give a number from 0 to {depth - 1}.",
            )  # fmt: skip
        self.head = Decoder(model, settings.head_layers, "random", seed=settings.init_seed, key="head_layers")

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """The head's loss (+ that of the last layer)."""
        return self.condense(batch, generator)[0]

    def condense(
        self, batch: TokenBatch, generator: torch.Generator, chunk: int | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        """What `forward` returns, and the passages' vectors `[batch, hidden]`: the last layer's states of [CLS].

        The vectors are those of the masked passages and carry gradient (coCondenser compares them). With `chunk`
        passages at a time losses and gradient stay what they are (`models.encode_in_chunks`).
        """
        chosen = self.settings
        mask = masking.whole_word(batch, chosen.rate, generator, budget=chosen.budget)
        ids, labels = self.hide(batch, mask, generator, chosen.mask_policy), labels_at(batch.input_ids, mask)
        vectors, sums = encode_in_chunks(self.read, batch, chunk, ids, labels)
        means = sums / mask.sum().clamp(min=1)
        parts = dict(zip(LOGGED, means.detach(), strict=False))
        return {"loss": means[::2].sum(), **parts}, vectors

    def read(self, batch: TokenBatch, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors `[batch, hidden]`, and for the head (and the last layer) the sums of losses and of tokens recovered.

        Args:
            batch: clean passages.
            ids: `[batch, length]` what is read.
            labels: `[batch, length]` clean ids at masked positions, -100 elsewhere.
        """
        states = layer_states(self.model, batch, ids)
        early, late = states[self.skip_from], states[-1]
        asked = [self.head(early, late[:, 0], batch), *([late] if self.settings.late_mlm else [])]
        bound, count = max_masked(labels, self.settings.rate), (labels != IGNORED).sum()
        means = [mean for hidden in asked for mean in predict_tokens(self.model, hidden, labels, bound)]
        return late[:, 0], torch.stack(means) * count
