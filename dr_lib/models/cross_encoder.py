"""The cross-encoder: query and passage read together, one score (SimLM section 3.2, PAIR's teacher).

The layout is that of Hugging Face's sequence classification with one label, so that a saved one opens there and in
sentence-transformers, and public re-rankers open here. Page: ideas/distillation.
"""

from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    BertForSequenceClassification,
    ElectraForSequenceClassification,
    PreTrainedModel,
)

from dr_lib.models.bert import attention_bias, first_states, is_head, read_pretrained
from dr_lib.models.text_model import TextModel
from dr_lib.settings import Settings
from dr_lib.tokens import QueryPassagePairs, Side, TokenBatch, TokenStore, shortened


class CrossEncoderSettings(Settings):
    """How query and passage become one sequence.

    Args:
        length: longest pair in tokens, special tokens included (SimLM: 192, for NQ 224).
        title: put "title: " before the passage where it has one (SimLM's released code).
    """

    length: int = Field(default=192, ge=4)
    title: bool = True


class CrossEncoder(TextModel):
    """An encoder with a head of one logit, both in `encoder`: a BERT or ELECTRA for sequence classification."""

    settings: CrossEncoderSettings
    settings_type = CrossEncoderSettings
    settings_file = "cross_encoder.json"

    @classmethod
    def load_encoder(cls, name_or_path: str | Path, *, is_saved: bool, **options: Any) -> PreTrainedModel:
        """A checkpoint with a head of one logit; a fresh one where it was not saved as a cross-encoder."""

        def fresh(model: PreTrainedModel, name: str) -> bool:
            """The head, and BERT's pooler below it, which a checkpoint without a ranking head may lack."""
            return not is_saved and (is_head(model, name) or ".pooler." in name)

        return read_pretrained(AutoModelForSequenceClassification, name_or_path, fresh=fresh, num_labels=1, **options)

    def forward(self, batch: TokenBatch) -> Tensor:
        """Scores `[pairs]` float32 of pairs from `QueryPassagePairs`: logits, higher for a better passage."""
        encoder, kinds = self.encoder, (BertForSequenceClassification, ElectraForSequenceClassification)
        states = first_states(encoder, batch)[:, None].float() if isinstance(encoder, kinds) else None
        # The head computes in float32: of a score in bf16 eight bits are left, and passages that are about as good get one.
        with torch.autocast(batch.input_ids.device.type, enabled=False):
            if isinstance(encoder, BertForSequenceClassification):
                logits = encoder.classifier(encoder.dropout(encoder.bert.pooler(states)))
            elif isinstance(encoder, ElectraForSequenceClassification):
                logits = encoder.classifier(states)
            else:
                logits = encoder(**batch.model_inputs() | {"attention_mask": attention_bias(batch)}).logits
        return logits[:, 0].float()

    def crossing(self, queries: TokenStore, passages: TokenStore) -> QueryPassagePairs:
        """The pairs of two stores, laid out as this cross-encoder reads them."""
        layout = {"max_length": self.settings.length, "title": self.settings.title}
        return QueryPassagePairs(queries, passages, self.tokenizer, **layout)


def response_pairs(
    encoder: CrossEncoder, contexts: TokenStore, responses: TokenStore, *, context_length: int, side: Side
) -> QueryPassagePairs:
    """Contexts with responses as a cross-encoder reads them: [CLS] context [SEP] response [SEP].

    `CrossEncoder.crossing` cuts what is too long at its end, which in a context is what the response answers. So each
    text is cut by itself before: a context as a dual encoder reads it, a response to the room that is always left.

    Args:
        encoder: whose `length` is that of a pair, at least `context_length` and two.
        contexts, responses: their tokens; titles are not read.
        context_length: longest context in pieces, [CLS] and its [SEP] included (DPR-PAQ: 256).
        side: the end that a longer context loses. A longer response keeps its first `length - context_length - 1` pieces.
    """
    room = encoder.settings.length - context_length - 1
    return encoder.crossing(shortened(contexts, context_length - 2, side), shortened(responses, room, "right"))
