"""Late interaction: a text keeps a vector for each word piece, and a query's pieces each look for their best match.

The score of a passage is the mean, over the pieces of the query, of the highest cosine with any piece of the passage,
divided by a temperature (Khattab and Zaharia 2020, ColBERT, which sums, fills queries up with [MASK] and marks the two
sides with tokens of their own). It reads query and passage apart, as a dual encoder does, and yet finds a word wherever
it stands: here it re-ranks and teaches. Page of the book: notebooks/methods/rerankers.
"""

from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib.models.bert import fresh_linear, hidden_states
from dr_lib.models.text_model import TextModel
from dr_lib.tokens import Layout, TokenBatch, TokenStore


class LateInteractionSettings(Layout):
    """How texts become vectors of pieces, and how these are compared.

    Args:
        title, passage_length, query_length, query_side: how texts become sequences, see `tokens.Layout`.
        width: of the vectors (ColBERT: 128).
        temperature: scores are divided by it.
    """

    width: int = Field(default=64, gt=0)
    temperature: float = Field(default=0.02, gt=0)


class Pieces(NamedTuple):
    """The vectors of some texts.

    Attributes:
        vectors: `[texts, length, width]` float32 of length 1.
        read: `[texts, length]` bool, False at special tokens and padding, whose vectors are never compared.
    """

    vectors: Tensor
    read: Tensor


class TextPairs(NamedTuple):
    """Queries and passages that are read apart: their tokens, and how they become sequences."""

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
        self, encoder: PreTrainedModel, settings: LateInteractionSettings, tokenizer: PreTrainedTokenizerFast, *, seed: int = 0
    ):
        super().__init__(encoder, settings, tokenizer)
        source = torch.Generator().manual_seed(seed)
        self.head = fresh_linear(encoder.config.hidden_size, settings.width, source).to(encoder.device)

    def forward(self, batch: TokenBatch) -> Pieces:
        """A vector for each piece of each text."""
        vectors = self.head(hidden_states(self.encoder, batch)).float()
        return Pieces(nn.functional.normalize(vectors, dim=2), ~batch.special)

    def crossing(self, queries: TokenStore, passages: TokenStore) -> TextPairs:
        """Queries and passages of two stores, laid out as this model reads them; `InputError` for another tokenizer's."""
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
    best = cosines.masked_fill(~offering, -1.0).amax(3)  # [Q, length, P]; nothing is less alike than -1
    return (best * asking[:, :, None]).sum(1) / asking.sum(1).clamp(min=1)[:, None]


def best_matches_of_pairs(queries: Pieces, passages: Pieces) -> Tensor:
    """`best_matches` of query i with passage i alone: `[pairs]` float32."""
    cosines = (queries.vectors @ passages.vectors.mT).masked_fill(~passages.read[:, None], -1.0)
    return (cosines.amax(2) * queries.read).sum(1) / queries.read.sum(1).clamp(min=1)
