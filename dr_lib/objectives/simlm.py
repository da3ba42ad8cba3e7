"""SimLM: replaced language modelling with a representation bottleneck (Wang et al. 2023, section
3.1, eq. 1-2).

A generator replaces 30 % of the passage for the encoder and 50 % (the same tokens and more) for a
two-layer decoder, which sees the encoder only through its first state. Both sides recover the clean
passage. Page: papers/simlm. Below is `encdec_rtd`, SimLM's inputs with ELECTRA's task (section 5.1,
Table 7).
"""

import copy
from typing import Any, Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import masking
from dr_lib.models import Generator, ReplacedTokenHead, fresh_copy, hidden_states, max_masked
from dr_lib.objectives.base import Prediction, predict_tokens, report
from dr_lib.objectives.bottleneck import EncoderDecoder, EncoderDecoderSettings
from dr_lib.objectives.rtd import detect_replaced
from dr_lib.settings import Share
from dr_lib.tokens import TokenBatch


class SimlmSettings(EncoderDecoderSettings):
    """Parameters of SimLM. Where paper and released code differ, `paper` and `released` are the two
    values.

    Attributes:
        encoder_rate, decoder_rate: share of tokens replaced on each side. At or below the encoder's
            rate the decoder reuses the encoder's mask (with newly sampled tokens).
        budget: the rates count non-special tokens (recommended), or [CLS] and [SEP] too (released).
        mask_policy: what the generator reads at chosen positions; the released script always uses
            [MASK], its configuration defaults to BERT's 80/10/10.
        generator: frozen; joint, also trained by masked LM on the encoder's mask; joint_random, the
            same from random weights (SimLM Table 12).
        generator_weight: weight of the generator's loss, if it is trained.
        generator_dropout: off for a frozen generator (paper), or active (released code, by
            accident).
        forbid_special_samples: never sample [PAD], [CLS], [SEP] or [MASK]; the released code may.
        loss_mean: over all tokens of the batch (released), or within each passage, then over
            passages (paper, eq. 2).

    The decoder's parameters are those of `EncoderDecoderSettings`.
    """

    encoder_rate: Share = 0.3
    decoder_rate: Share = 0.5
    budget: masking.Budget = "maskable"
    mask_policy: masking.MaskPolicy = "mask"
    generator: Literal["frozen", "joint", "joint_random"] = "frozen"
    generator_weight: NonNegativeFloat = 0.2
    generator_dropout: Literal["paper", "released"] = "paper"
    forbid_special_samples: bool = True
    loss_mean: Literal["released", "paper"] = "released"

    def depth(self, layers: int) -> int:
        """A trained generator adds its layers, at most as many as the encoder has."""
        return super().depth(layers) + (layers + 1) * (self.generator != "frozen")


class Simlm(EncoderDecoder):
    """Recover the clean passage from replaced tokens: the encoder from its own input, the decoder
    with the help of one vector.
    """

    cites = ("simlm",)
    title, family = "SimLM", "one vector for a decoder"
    needs_generator = True
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
            generator_model,
            self.special,
            frozen=settings.generator == "frozen",
            dropout_active=settings.generator_dropout == "released",
            forbid_special=settings.forbid_special_samples,
            pieces=self.pieces,
        )

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Encoder loss + decoder loss (+ weighted generator loss, if it is trained), eq. 2."""
        batch = self.maskable(batch)
        encoder_ids, decoder_ids, learned = self.replaced_inputs(batch, generator)
        encoded, decoded = self.states(batch, encoder_ids, decoder_ids)
        encoder = self.side_loss(batch, encoder_ids, encoded)
        decoder = self.side_loss(batch, decoder_ids, decoded)
        loss = encoder.loss + decoder.loss
        if learned:
            loss = loss + self.settings.generator_weight * learned["generator"].loss
        # Fewer than were masked: the sampled token is often the original one.
        sides, real = {"encoder": encoder_ids, "decoder": decoder_ids}, batch.attention_mask.sum()
        shares = {
            f"{side}_replaced": (ids != batch.input_ids).sum() / real for side, ids in sides.items()
        }
        return report(loss, encoder=encoder, decoder=decoder, **shares, **learned)

    def side_loss(self, batch: TokenBatch, ids: Tensor, states: Tensor) -> Prediction:
        """One side's loss and accuracy: the clean token at every position.

        Args:
            batch: clean passages.
            ids: `[batch, length]` input of the side.
            states: `[batch, length, hidden]` its output.
        """
        by_passage = self.settings.loss_mean == "paper"
        return predict_tokens(
            self.model, states, batch.input_ids, ~batch.special, by_passage=by_passage
        )

    def replaced_inputs(
        self, batch: TokenBatch, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, dict[str, Prediction]]:
        """Ids `[batch, length]` that encoder and decoder read (eq. 1), and the masked-LM prediction
        of a trained generator.
        """
        chosen, rate = self.settings, self.settings.encoder_rate
        # The decoder loses the same words and more: it is not told what the encoder had to guess.
        encoder_mask, decoder_mask = masking.nested(
            batch, rate, chosen.decoder_rate, generator, budget=chosen.budget
        )
        rates = (rate, masking.extra_rate(rate, chosen.decoder_rate))
        encoder_ids, learned = self.replace(
            batch, encoder_mask, generator, rates[:1], chosen.generator != "frozen"
        )
        return encoder_ids, self.replace(batch, decoder_mask, generator, rates)[0], learned

    def replace(
        self,
        batch: TokenBatch,
        mask: Tensor,
        generator: torch.Generator,
        rates: tuple[float, ...],
        learn: bool = False,
    ) -> tuple[Tensor, dict[str, Prediction]]:
        """Ids with the masked positions re-sampled; if the generator is trained, its masked-LM
        prediction as well.
        """
        masked_ids = self.hide(batch, mask, generator, self.settings.mask_policy)
        at_most = max_masked(mask, *rates)
        if not learn:
            return self.generator.sample(batch, masked_ids, mask, generator, at_most), {}
        # One pass serves the sample and the generator's own loss.
        states = hidden_states(self.generator.model, batch, masked_ids)
        ids = self.generator.fill(states, batch, mask, generator, at_most)
        return ids, {
            "generator": predict_tokens(self.generator.model, states, batch.input_ids, mask, *rates)
        }


class EncdecRtd(Simlm):
    """Detect replaced tokens: the encoder by itself, the decoder with the help of one vector.

    SimLM's paper says only that replaced token detection (Clark et al. 2020) takes the place of
    language modelling on both sides. Our choices: a sampled token that equals the original counts
    as original, as in ELECTRA; the loss is over all but special positions; encoder and decoder
    share one head of ELECTRA's shape, as they share a head in SimLM; both losses have weight 1. The
    masked-LM head is unchanged. The parameters are SimLM's.

    An accuracy below `1 - encoder_replaced` (or `decoder_replaced`) is worse than calling every
    token original.

    Attributes:
        detector: the head that both sides share; discarded after pre-training.
    """

    cites = ("simlm", "clark2020")
    title, family = "Enc-Dec RTD", "one vector for a decoder"
    saved_beside = ("decoder", "detector")

    def __init__(self, model: PreTrainedModel, *others: Any):
        super().__init__(model, *others)
        self.detector = ReplacedTokenHead(model.config.hidden_size, self.settings.init_seed).to(
            model.device
        )

    def side_loss(self, batch: TokenBatch, ids: Tensor, states: Tensor) -> Prediction:
        """One side's binary cross-entropy and accuracy of "replaced or original?"."""
        by_passage = self.settings.loss_mean == "paper"
        return detect_replaced(
            self.detector, states, ids != batch.input_ids, ~batch.special, by_passage
        )
