"""Contrastive pre-training with in-batch negatives, shared by several methods.

One encoder for queries and passages, or two that start equal; the vector is the last layer's state
of [CLS], compared by inner product (DPR-PAQ section 2). Methods differ in the source of their
pairs. Page: ideas/pairs.
"""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import losses
from dr_lib.errors import InputError
from dr_lib.models import encode_in_chunks, first_states
from dr_lib.objectives.base import Objective, Settings, Source
from dr_lib.tokens import TokenBatch, TokenStore
from dr_lib.training import Examples, RetrievalBatch, RetrievalBatches, gather_batch


class ContrastiveSettings(Settings):
    """Parameters of contrastive pre-training.

    Attributes:
        batch_pairs: pairs per micro-batch, negatives of each other; None takes as many as the token
            budget holds at full length, so that all methods read equally many tokens per step.
        temperature: divides the scores; the papers use none, that is 1.
        normalise: compare by cosine; otherwise by inner product (papers).
        chunk: texts encoded at a time, for batches that do not fit in memory
            (`models.encode_in_chunks`); None encodes all at once.
        mask_positives: copies of a query's positive, and its other known positives, are not used as
            its negatives; False uses them, as the released code does.
        separate: two encoders that start equal, one for queries and one for passages (DPR-PAQ for
            BERT; PAIR Table 3, "w/o SP"); None has one for both. Fine-tuning must then have two as
            well.
    """

    batch_pairs: int | None = Field(None, ge=2)
    temperature: PositiveFloat = 1.0
    normalise: bool = False
    chunk: PositiveInt | None = None
    mask_positives: bool = True
    separate: Literal[True] | None = None

    def depth(self, layers: int) -> int:
        """Of the last layer little more than keys and values is computed (`first_states`)."""
        return layers - 1


class Contrastive(Objective):
    """Find each query's own passage among all passages of the batch.

    Attributes:
        model: encodes queries, and passages if they have no encoder of their own.
        passage_model: encodes passages, or None.
    """

    reads_queries = True
    shares_batches = True
    settings: ContrastiveSettings

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        settings: ContrastiveSettings,
    ):
        super().__init__(model, tokenizer, settings)
        self.passage_model = copy.deepcopy(model) if settings.separate else None

    @classmethod
    def batches(
        cls, settings: ContrastiveSettings, source: Source
    ) -> Callable[[int], RetrievalBatch]:
        """Queries, each with its passage and `negatives` others, from the method's one material."""
        (name,) = settings.materials()
        *stores, examples = stored_pairs(source, source.materials[name])
        layout, count = source.layout, 1 + settings.negatives
        # Counted at full length: the number of pairs decides the loss, so it must not depend on the
        # lengths of texts.
        longest = layout.query_length + count * layout.passage_length
        pairs = pairs_at_once(settings.batch_pairs, source.tokens_per_batch, longest, len(examples))
        sizes = {"batch_queries": pairs, "passages_per_query": count}
        return RetrievalBatches(*stores, examples, **sizes, layout=layout, seed=source.seed).batch

    def forward(self, batch: RetrievalBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss over the pairs of all processes, and the share of queries whose own passage scores
        highest.
        """
        queries = encode_in_chunks(
            partial(self.encode, self.model), batch.queries, self.settings.chunk
        )
        passages = encode_in_chunks(
            partial(self.encode, self.passage_model or self.model),
            batch.passages,
            self.settings.chunk,
        )
        # over all processes: more negatives for every query
        compared = gather_batch(batch, queries, passages)
        if not self.settings.mask_positives:
            compared |= {"passage_ids": None, "known_positives": None}
        loss, accuracy = self.compare(compared)
        return {"loss": loss, "in_batch_accuracy": accuracy}

    def encode(self, model: PreTrainedModel, texts: TokenBatch) -> Tensor:
        """Vectors `[batch, hidden]` of queries or passages, not normalised."""
        return self.project(first_states(model, texts))

    def project(self, vectors: Tensor) -> Tensor:
        """Applied to the vectors before they are compared; the identity by default."""
        return vectors

    def compare(self, compared: dict[str, Tensor | None]) -> tuple[Tensor, Tensor]:
        """The loss of what `gather_batch` returns, each query against every passage, and the share
        of queries whose own passage scores highest.
        """
        return losses.contrastive_and_accuracy(**compared, **self.scale, blocks="query_passage")

    @property
    def scale(self) -> dict[str, Any]:
        """How scores are computed."""
        return self.settings.model_dump(include={"temperature", "normalise"})


def stored_pairs(source: Source, folder: Path) -> tuple[TokenStore, TokenStore, Examples]:
    """Queries and passages of a material of pairs, and their examples.

    Args:
        source: its passages are used if the material has none.
        folder: `queries/` (token store), `examples/` (see `Examples`) and optionally `passages/`.

    Raises:
        InputError: the pairs were made from other passages than those of the store.
    """
    examples, passages = Examples.open(folder / "examples"), folder / "passages"
    store = TokenStore.open(passages) if passages.is_dir() else source.store
    if examples.passages != len(store):
        problem = f"its pairs count {examples.passages} passages, and {len(store)} are there"
        raise InputError(
            problem, where=folder, fix="Make the pairs of the passages that are pre-trained on."
        )
    return TokenStore.open(folder / "queries"), store, examples


def pairs_at_once(wanted: int | None, budget: int, tokens: int, available: int) -> int:
    """Pairs per batch: the number asked for, or as many as fit the token budget and exist.

    Args:
        wanted: `batch_pairs` of a method; None fills the budget.
        budget: padded tokens per micro-batch.
        tokens: of the longest pair.
        available: pairs per epoch.

    Raises:
        InputError: fewer than two, so that there are no negatives.

    Example:
        >>> pairs_at_once(None, 4096, 32 + 128, 1000)
        25
    """
    pairs = min(budget // tokens, available) if wanted is None else wanted
    if pairs < 2:
        problem = (
            f"a batch of {budget} tokens holds {budget // tokens} pairs of {tokens}, and"
            f" {available} are there"
        )
        raise InputError(
            problem,
            where="batch_pairs",
            fix="Two are needed: raise tokens_per_batch or shorten texts.",
        )
    if pairs > available:
        problem = f"{available} pairs do not fill a batch of {pairs}"
        raise InputError(
            problem, where="batch_pairs", fix="Make batches smaller or take a larger collection."
        )
    return pairs
