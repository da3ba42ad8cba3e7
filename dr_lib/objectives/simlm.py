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
from dr_lib.models import Decoder, Generator, embed, hidden_states, most_masked
from dr_lib.models.generator import fresh_copy
from dr_lib.objectives.base import Objective, Settings
from dr_lib.objectives.predict import labels_at, predict_tokens
from dr_lib.tokens.batch import TokenBatch


class SimlmSettings(Settings):
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
        decoder_layers, decoder_init: depth of the decoder; copies of the encoder's last layers, or random weights.
        decoder_token_types: as the encoder's (paper), or all zero (released).
        loss_mean: over all tokens of the batch (released), or within passages, then over them (paper, eq. 2).
        init_seed: of whatever starts from random weights here.
    """

    encoder_rate: float = Field(0.3, ge=0, le=1)
    decoder_rate: float = Field(0.5, ge=0, le=1)
    budget: Literal["maskable", "all"] = "maskable"
    mask_policy: Literal["mask", "80_10_10"] = "mask"
    generator: Literal["frozen", "joint", "joint_random"] = "frozen"
    generator_weight: float = Field(0.2, ge=0)
    generator_dropout: Literal["paper", "released"] = "paper"
    forbid_special_samples: bool = True
    decoder_layers: int = Field(2, ge=1)
    decoder_init: Literal["copy_last", "random"] = "copy_last"
    decoder_token_types: Literal["paper", "released"] = "paper"
    loss_mean: Literal["released", "paper"] = "released"
    init_seed: int = Field(0, ge=0)


class Simlm(Objective):
    """Recover the clean passage from replaced tokens: encoder from its own input, decoder through one vector."""

    settings_type: ClassVar[type[Settings]] = SimlmSettings
    needs_generator: ClassVar[bool] = True
    saved_beside: ClassVar[tuple[str, ...]] = ("decoder",)
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
        self.decoder = Decoder(model, settings.decoder_layers, settings.decoder_init, seed=settings.init_seed)
        ignored = torch.tensor(list(self.special.values()), device=model.device)
        self.register_buffer("ignored", ignored, persistent=False)
        kept, wanted = 1 - settings.encoder_rate, settings.decoder_rate - settings.encoder_rate
        self.second_rate = max(0.0, wanted / kept) if kept else 0.0

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Encoder loss + decoder loss (+ weighted generator loss where it learns), eq. 2."""
        chosen, rate = self.settings, self.settings.encoder_rate
        encoder_mask = masking.whole_word(batch, rate, generator, budget=chosen.budget)
        decoder_mask = masking.superset(
            batch, encoder_mask, chosen.decoder_rate, generator, encoder_rate=rate, budget=chosen.budget
        )
        encoder_ids, learned = self.replace(batch, encoder_mask, generator, (rate,), chosen.generator != "frozen")
        decoder_ids, _ = self.replace(batch, decoder_mask, generator, (rate, self.second_rate))

        hidden = hidden_states(self.model, batch, encoder_ids)
        types = batch.token_type_ids if chosen.decoder_token_types == "paper" else None
        decoded = self.decoder(embed(self.model, decoder_ids, types), hidden[:, 0], batch)

        labels = labels_at(batch.input_ids, self.predictable(batch))
        by_passage = chosen.loss_mean == "paper"
        encoder_loss, encoder_accuracy = predict_tokens(self.model, hidden, labels, by_passage=by_passage)
        decoder_loss, decoder_accuracy = predict_tokens(self.model, decoded, labels, by_passage=by_passage)
        loss = encoder_loss + decoder_loss
        if learned:
            loss = loss + chosen.generator_weight * learned["generator_loss"]
        return {
            "loss": loss,
            "encoder_loss": encoder_loss.detach(),
            "decoder_loss": decoder_loss.detach(),
            "encoder_accuracy": encoder_accuracy,
            "decoder_accuracy": decoder_accuracy,
            "encoder_replaced": replaced_share(batch, encoder_ids),
            "decoder_replaced": replaced_share(batch, decoder_ids),
            **{name: value.detach() for name, value in learned.items()},
        }

    def replace(
        self, batch: TokenBatch, mask: Tensor, generator: torch.Generator, rates: tuple[float, ...], learn: bool = False
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Ids with the masked positions re-sampled; where the generator learns, its masked-LM loss as well."""
        masked_ids = masking.hide(
            batch, mask, self.special["mask"], self.model.config.vocab_size, generator,
            policy=self.settings.mask_policy, special_ids=tuple(self.special.values()),
        )  # fmt: skip
        bound = most_masked(mask, *rates)
        if not learn:
            return self.generator.sample(batch, masked_ids, mask, generator, bound), {}
        hidden = hidden_states(self.generator.model, batch, masked_ids)
        ids = self.generator.fill(hidden, batch, mask, generator, bound)
        loss, accuracy = predict_tokens(self.generator.model, hidden, labels_at(batch.input_ids, mask), bound)
        return ids, {"generator_loss": loss, "generator_accuracy": accuracy}

    def predictable(self, batch: TokenBatch) -> Tensor:
        """`[batch, length]` True at every token with a target: all but special ids, [UNK] and [MASK] among them."""
        return ~torch.isin(batch.input_ids, self.ignored)


def replaced_share(batch: TokenBatch, ids: Tensor) -> Tensor:
    """Share of non-padding positions whose token really changed."""
    return (ids != batch.input_ids).sum() / batch.attention_mask.sum()
