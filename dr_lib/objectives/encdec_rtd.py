"""Enc-Dec RTD: SimLM's inputs and bottleneck, with ELECTRA's question (SimLM section 5.1, Table 7).

A generator replaces tokens on both sides as in SimLM; encoder and decoder say of each token whether it was replaced.
The paper says no more than that replaced token detection (Clark et al. 2020) takes the place of language modelling on
both sides. Settled here: a token that was sampled again but equals the original counts as original, as in ELECTRA;
every position but [CLS], [SEP] and padding carries a loss; encoder and decoder share one head of ELECTRA's shape, as
they share one head in SimLM; both losses weigh 1. The masked-LM head is left as it was. Page: ideas/bottleneck.
"""

from typing import ClassVar

from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib.models import ReplacedTokenHead
from dr_lib.objectives.base import Settings
from dr_lib.objectives.simlm import Simlm, SimlmSettings
from dr_lib.tokens import TokenBatch


class EncdecRtdSettings(SimlmSettings):
    """Parameters of replaced token detection through a bottleneck: those of `SimlmSettings`, with its defaults."""


class EncdecRtd(Simlm):
    """Tell replaced tokens from original ones: the encoder by itself, the decoder with one vector's help.

    Attributes:
        detector: the head that both sides share; thrown away after pre-training.

    An accuracy below `1 - encoder_replaced` (or `decoder_replaced`) is less than calling every token original gives.
    """

    settings_type: ClassVar[type[Settings]] = EncdecRtdSettings
    saved_beside: ClassVar[tuple[str, ...]] = ("decoder", "detector")
    settings: EncdecRtdSettings

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        settings: EncdecRtdSettings,
        generator_model: PreTrainedModel,
    ):
        super().__init__(model, tokenizer, settings, generator_model)
        self.detector = ReplacedTokenHead(model.config.hidden_size, settings.init_seed).to(model.device)

    def ask(self, batch: TokenBatch, ids: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """One side's binary cross-entropy and accuracy: does `ids` differ from the clean passage here?

        Args:
            batch: clean passages.
            ids: `[batch, length]` what the side has read.
            states: `[batch, length, hidden]` what it made of it.
        """
        logits, replaced = self.detector(states).float(), ids != batch.input_ids
        counted = (~batch.special).float()
        total = counted.sum().clamp(min=1)
        accuracy = (((logits > 0) == replaced) * counted).sum() / total
        if self.settings.loss_mean == "paper":
            counted = counted / counted.sum(1, keepdim=True).clamp(min=1)
            total = (~batch.special).any(1).sum().clamp(min=1)
        losses = functional.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
        return (losses * counted).sum() / total, accuracy
