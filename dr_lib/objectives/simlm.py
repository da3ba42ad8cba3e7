"""SimLM: replaced language modelling with a representation bottleneck (Wang et al. 2023, section 3.1, eq. 1-2).

A generator replaces 30 % of the passage for the encoder and 50 % (the same tokens and more) for a two-layer decoder,
which sees the encoder only through its first state. Both sides recover the clean passage. Page: papers/simlm.
"""

import copy
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import masking
from dr_lib.models import Generator, fresh_copy, hidden_states, max_masked
from dr_lib.objectives.base import Settings
from dr_lib.objectives.encoder_decoder import EncoderDecoder, EncoderDecoderSettings
from dr_lib.objectives.predict import labels_at, predict_tokens, two_sides
from dr_lib.tokens import TokenBatch


class SimlmSettings(EncoderDecoderSettings):
    """Parameters of SimLM. Where paper and released code differ, `paper` and `released` are the two values.

    Attributes:
        encoder_rate, decoder_rate: share of tokens replaced on each side. At or below the encoder's rate the decoder
            reuses the encoder's mask (its tokens are sampled anew).
        budget: the rates count non-special tokens (recommended), or [CLS] and [SEP] too (released).
        mask_policy: what the generator reads at chosen positions; the released script always uses [MASK], its
            configuration defaults to BERT's 80/10/10.
        generator: frozen; joint, also trained by masked LM on the encoder's mask; joint_random, the same from fresh
            weights (SimLM Table 12).
        generator_weight: weight of the generator's loss where it is trained.
        generator_dropout: a frozen generator has none (paper), or keeps it active (released code, by accident).
        forbid_special_samples: never sample [PAD], [CLS], [SEP] or [MASK]; the released code allows them.
        loss_mean: over all tokens of the batch (released), or within passages, then over them (paper, eq. 2).

    The decoder's parameters are those of `EncoderDecoderSettings`.
    """

    encoder_rate: float = Field(0.3, ge=0, le=1)
    decoder_rate: float = Field(0.5, ge=0, le=1)
    budget: Literal["maskable", "all"] = "maskable"
    mask_policy: Literal["mask", "80_10_10"] = "mask"
    generator: Literal["frozen", "joint", "joint_random"] = "frozen"
    generator_weight: float = Field(0.2, ge=0)
    generator_dropout: Literal["paper", "released"] = "paper"
    forbid_special_samples: bool = True
    loss_mean: Literal["released", "paper"] = "released"


class Simlm(EncoderDecoder):
    """Recover the clean passage from replaced tokens: encoder from its own input, decoder through one vector."""

    settings_type: ClassVar[type[Settings]] = SimlmSettings
    needs_generator: ClassVar[bool] = True
    settings: SimlmSettings

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        settings: SimlmSettings,
        generator_model: PreTrainedModel,
    ):
        super().__init__(model, tokenizer, settings)
        if settings.generator == "joint_random":
            generator_model = fresh_copy(generator_model, settings.init_seed)
        elif generator_model is model:
            generator_model = copy.deepcopy(model)
        self.generator = Generator(
            generator_model, self.special, frozen=settings.generator == "frozen",
            dropout_active=settings.generator_dropout == "released", forbid_special=settings.forbid_special_samples,
        )  # fmt: skip

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Encoder loss + decoder loss (+ weighted generator loss where it learns), eq. 2."""
        encoder_ids, decoder_ids, learned = self.replaced_inputs(batch, generator)
        encoded, decoded = self.states(batch, encoder_ids, decoder_ids)
        parts = two_sides(self.ask(batch, encoder_ids, encoded), self.ask(batch, decoder_ids, decoded))
        if learned:
            parts["loss"] = parts["loss"] + self.settings.generator_weight * learned["generator_loss"]
        return {
            **parts,
            "encoder_replaced": replaced_share(batch, encoder_ids),
            "decoder_replaced": replaced_share(batch, decoder_ids),
            **{name: value.detach() for name, value in learned.items()},
        }

    def ask(self, batch: TokenBatch, ids: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """One side's loss and accuracy: the clean token at every position.

        Args:
            batch: clean passages.
            ids: `[batch, length]` what the side has read.
            states: `[batch, length, hidden]` what it made of it.
        """
        labels = labels_at(batch.input_ids, self.predictable(batch))
        return predict_tokens(self.model, states, labels, by_passage=self.settings.loss_mean == "paper")

    def replaced_inputs(
        self, batch: TokenBatch, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Ids `[batch, length]` that encoder and decoder read (eq. 1), and the loss of a generator that learns."""
        chosen, rate = self.settings, self.settings.encoder_rate
        encoder_mask = masking.whole_word(batch, rate, generator, budget=chosen.budget)
        decoder_mask = masking.superset(
            batch, encoder_mask, chosen.decoder_rate, generator, encoder_rate=rate, budget=chosen.budget
        )
        rates = (rate, masking.extra_rate(rate, chosen.decoder_rate))
        encoder_ids, learned = self.replace(batch, encoder_mask, generator, rates[:1], chosen.generator != "frozen")
        return encoder_ids, self.replace(batch, decoder_mask, generator, rates)[0], learned

    def replace(
        self, batch: TokenBatch, mask: Tensor, generator: torch.Generator, rates: tuple[float, ...], learn: bool = False
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Ids with the masked positions re-sampled; where the generator learns, its masked-LM loss as well."""
        masked_ids = self.hide(batch, mask, generator, self.settings.mask_policy)
        bound = max_masked(mask, *rates)
        if not learn:
            return self.generator.sample(batch, masked_ids, mask, generator, bound), {}
        hidden = hidden_states(self.generator.model, batch, masked_ids)
        ids = self.generator.fill(hidden, batch, mask, generator, bound)
        loss, accuracy = predict_tokens(self.generator.model, hidden, labels_at(batch.input_ids, mask), bound)
        return ids, {"generator_loss": loss, "generator_accuracy": accuracy}


def replaced_share(batch: TokenBatch, ids: Tensor) -> Tensor:
    """Share of non-padding positions whose token really changed."""
    return (ids != batch.input_ids).sum() / batch.attention_mask.sum()
