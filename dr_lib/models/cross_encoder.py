"""The cross-encoder: query and passage read together, one score (SimLM section 3.2, PAIR's
teacher).

The format is Hugging Face's sequence classification with one label, so that saved models open there
and in sentence-transformers, and public re-rankers open here. Page: ideas/distillation.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from transformers import (
    AutoModelForSequenceClassification,
    BertForSequenceClassification,
    ElectraForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from dr_lib.models.bert import (
    TextModel,
    first_states,
    fresh_linear,
    hidden_states,
    is_head,
    model_inputs,
    read_pretrained,
)
from dr_lib.settings import Settings
from dr_lib.tokens import Layout, QueryPassagePairs, Side, TokenBatch, TokenStore, shortened


class CrossEncoderSettings(Settings):
    """How query and passage become one sequence.

    Args:
        length: maximum length of a pair in tokens, special tokens included (SimLM: 192, for NQ
            224).
        title: put "title: " before the passage if it has one (SimLM's released code).
    """

    length: int = Field(192, ge=4)
    title: bool = True


class CrossEncoder(TextModel):
    """An encoder with a head of one logit, both in `encoder`: a BERT or ELECTRA for sequence
    classification.
    """

    settings: CrossEncoderSettings
    settings_type = CrossEncoderSettings
    settings_file = "cross_encoder.json"

    @classmethod
    def load_encoder(
        cls, name_or_path: str | Path, *, is_saved: bool, **options: Any
    ) -> PreTrainedModel:
        """A checkpoint with a one-logit head, a new one if it was saved without."""

        def fresh(model: PreTrainedModel, name: str) -> bool:
            """The head and BERT's pooler below it may be missing in a checkpoint without a ranking
            head.
            """
            return not is_saved and (is_head(model, name) or ".pooler." in name)

        return read_pretrained(
            AutoModelForSequenceClassification, name_or_path, fresh=fresh, num_labels=1, **options
        )

    def forward(self, batch: TokenBatch) -> Tensor:
        """Scores `[pairs]` float32 of pairs from `QueryPassagePairs`: logits, higher for a better
        passage.
        """
        encoder = self.encoder
        kinds = (BertForSequenceClassification, ElectraForSequenceClassification)
        states = (
            first_states(encoder, batch)[:, None].float() if isinstance(encoder, kinds) else None
        )
        # The head computes in float32: a bf16 score has eight bits, and similar passages would tie.
        with torch.autocast(batch.input_ids.device.type, enabled=False):
            if isinstance(encoder, BertForSequenceClassification):
                logits = encoder.classifier(encoder.dropout(encoder.bert.pooler(states)))
            elif isinstance(encoder, ElectraForSequenceClassification):
                logits = encoder.classifier(states)
            else:
                logits = encoder(**model_inputs(encoder, batch)).logits
        return logits[:, 0].float()

    def crossing(self, queries: TokenStore, passages: TokenStore) -> QueryPassagePairs:
        """The pairs of two stores, laid out as this cross-encoder reads them."""
        layout = {"max_length": self.settings.length, "title": self.settings.title}
        return QueryPassagePairs(queries, passages, self.tokenizer, **layout)


def response_pairs(
    encoder: CrossEncoder,
    contexts: TokenStore,
    responses: TokenStore,
    *,
    context_length: int,
    side: Side,
) -> QueryPassagePairs:
    """Contexts with responses as a cross-encoder reads them: [CLS] context [SEP] response [SEP].

    `CrossEncoder.crossing` truncates at the end, which in a context is what the response answers.
    So each text is truncated beforehand: a context as for a dual encoder, a response to the
    remaining length.

    Args:
        encoder: with `length` for a pair, at least `context_length` plus two.
        contexts, responses: their tokens; titles are not read.
        context_length: maximum context length in pieces, [CLS] and its [SEP] included (DPR-PAQ:
            256).
        side: the side from which a longer context is truncated. A longer response keeps its first
            `length - context_length - 1` pieces.
    """
    room = encoder.settings.length - context_length - 1
    return encoder.crossing(
        shortened(contexts, context_length - 2, side), shortened(responses, room, "right")
    )


# Late interaction ---------------------------------------------------------------------------------
# A text has a vector per word piece, and each piece of a query is matched with its best piece of
# the passage. The score is the mean, over the pieces of the query, of the highest cosine with any
# piece of the passage, divided by a temperature (Khattab and Zaharia 2020; ColBERT sums, pads
# queries with [MASK] and marks queries and passages with special tokens). Like a dual encoder it
# encodes query and passage separately, but it can match single words: here it re-ranks and teaches.
# Page of the book: notebooks/methods/rerankers.


class LateInteractionSettings(Layout):
    """How texts become token vectors, and how these are compared.

    Args:
        title, passage_length, query_length, query_side: how texts become sequences, see
            `tokens.Layout`.
        width: of the vectors (ColBERT: 128).
        temperature: divides the scores.
    """

    width: PositiveInt = 64
    temperature: PositiveFloat = 0.02


class Pieces(NamedTuple):
    """Token vectors of some texts.

    Attributes:
        vectors: `[texts, length, width]` float32, normalised.
        read: `[texts, length]` bool, False at special tokens and padding, whose vectors are never
            compared.
    """

    vectors: Tensor
    read: Tensor


class TextPairs(NamedTuple):
    """Queries and passages that are encoded separately: their tokens, and how they become
    sequences.
    """

    queries: TokenStore
    passages: TokenStore
    layout: Layout


class LateInteraction(TextModel):
    """One encoder for queries and passages, with a linear head over every state.

    Args:
        encoder: the model without any head.
        settings: how its vectors are made and compared.
        tokenizer: saved beside the weights.
        seed: of a fresh head.
    """

    settings: LateInteractionSettings
    settings_type = LateInteractionSettings
    settings_file = "late_interaction.json"
    saved_beside = ("head",)

    def __init__(
        self,
        encoder: PreTrainedModel,
        settings: LateInteractionSettings,
        tokenizer: PreTrainedTokenizerFast,
        *,
        seed: int = 0,
    ):
        super().__init__(encoder, settings, tokenizer)
        source = torch.Generator().manual_seed(seed)
        self.head = fresh_linear(encoder.config.hidden_size, settings.width, source).to(
            encoder.device
        )

    def forward(self, batch: TokenBatch) -> Pieces:
        """A vector for each piece of each text."""
        vectors = self.head(hidden_states(self.encoder, batch)).float()
        return Pieces(nn.functional.normalize(vectors, dim=2), ~batch.special)

    def crossing(self, queries: TokenStore, passages: TokenStore) -> TextPairs:
        """Queries and passages of two stores, in this model's layout; `InputError` if built with
        another tokenizer.
        """
        for store in (queries, passages):
            store.check_tokenizer(self.tokenizer)
        return TextPairs(queries, passages, self.settings)


def best_matches(queries: Pieces, passages: Pieces) -> Tensor:
    """Mean over the pieces of each query of the highest cosine with a piece of each passage.

    Args:
        queries: of `Q` texts; one without a piece to read scores 0.
        passages: of `P` texts.

    Returns:
        `[Q, P]` float32 in [-1, 1].

    Example:
        >>> both = Pieces(torch.eye(2)[None], torch.tensor([[True, True]]))
        >>> best_matches(both, Pieces(torch.eye(2)[None], torch.tensor([[True, False]]))).item()
        0.5
    """
    (asked, asking), (offered, offering) = queries, passages
    cosines = (asked.flatten(0, 1) @ offered.flatten(0, 1).T).view(*asking.shape, *offering.shape)
    # [Q, length, P]; -1 is the smallest cosine
    best = cosines.masked_fill(~offering, -1.0).amax(3)
    return (best * asking[:, :, None]).sum(1) / asking.sum(1).clamp(min=1)[:, None]


def best_matches_of_pairs(queries: Pieces, passages: Pieces) -> Tensor:
    """`best_matches` of query i with passage i alone: `[pairs]` float32."""
    cosines = (queries.vectors @ passages.vectors.mT).masked_fill(~passages.read[:, None], -1.0)
    return (cosines.amax(2) * queries.read).sum(1) / queries.read.sum(1).clamp(min=1)
