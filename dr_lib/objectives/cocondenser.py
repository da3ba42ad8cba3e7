"""coCondenser: Condenser, and spans of one document nearer to each other than to any other span (Gao and Callan 2022).

Two distinct passages of a document are masked and read; beside Condenser's masked-LM losses the last layer's [CLS] of
each has to find its sibling in the batch. Page: ideas/pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from dr_lib import losses
from dr_lib.losses import gather
from dr_lib.objectives.base import Settings
from dr_lib.objectives.condenser import Condenser, CondenserSettings
from dr_lib.objectives.source import Source
from dr_lib.pairs.visits import Documents, Visits, pairs_at_once
from dr_lib.tokens import TokenBatch
from dr_lib.training import hash64


@dataclass(frozen=True)
class Siblings:
    """Spans in pairs: 2 i and 2 i + 1 are from one document.

    Attributes:
        spans: `2 * pairs` sequences.
        documents: `[2 * pairs]` int64, number of each span's document.
    """

    spans: TokenBatch
    documents: Tensor

    def to(self, device: torch.device | str) -> "Siblings":
        """The same batch on another device."""
        return Siblings(self.spans.to(device), self.documents.to(device, non_blocking=True))

    def __len__(self) -> int:
        return len(self.spans)


class CocondenserSettings(CondenserSettings):
    """Parameters of coCondenser, beside those of Condenser.

    Attributes:
        batch_pairs: documents of a micro-batch, two spans of each; None takes as many as the token budget holds at full
            length (published: about 2,000 on all devices together).
        chunk: spans encoded at a time, for batches that do not fit in memory (`models.encode_in_chunks`). The loss is
            the same; in the released code masked LM counts twice in its chunked path.
    """

    batch_pairs: int | None = Field(None, ge=2)
    chunk: int | None = Field(None, ge=1)


class Cocondenser(Condenser):
    """Predict masked tokens from early states and the late [CLS], which must also know its document."""

    settings_type: ClassVar[type[Settings]] = CocondenserSettings
    settings: CocondenserSettings

    @classmethod
    def batches(cls, settings: CocondenserSettings, source: Source) -> Callable[[int], Siblings]:
        """Pairs of spans."""
        return SiblingBatches(settings, source).batch

    def forward(self, batch: Siblings, generator: torch.Generator) -> dict[str, Tensor]:
        """Condenser's loss + contrastive loss over the spans of all processes, each with weight 1."""
        parts, vectors = self.condense(batch.spans, generator, self.settings.chunk)
        vectors, documents = gather(vectors.float()), gather(batch.documents)
        apart = losses.siblings(vectors, documents)
        accuracy = losses.in_batch_accuracy(vectors[::2], vectors[1::2], normalise=False, passage_ids=documents[::2])
        return {
            **parts, "loss": parts["loss"] + apart, "contrastive_loss": apart.detach(), "in_batch_accuracy": accuracy
        }  # fmt: skip


class SiblingBatches:
    """Micro-step -> two distinct passages of each of some documents; each document once an epoch.

    Args:
        settings: the method's parameters.
        source: tokens of the passages and their documents, lengths, token budget and seed.

    Raises:
        InputError: no document has two passages, or the budget holds no two pairs.
    """

    def __init__(self, settings: CocondenserSettings, source: Source):
        self.source = source
        every = np.ones(len(source.documents), bool)
        self.documents = Documents.of(source.documents, source.positions, every)
        tokens, available = 2 * source.max_length, len(self.documents)
        pairs = pairs_at_once(settings.batch_pairs, source.tokens_per_batch, tokens, available)
        self.visits = Visits(np.arange(available), pairs, source.seed)

    def batch(self, step: int) -> Siblings:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, chosen = self.visits.of(step)
        lots = [hash64(self.source.seed, epoch, chosen, which) for which in (0, 1)]
        rows = np.stack(self.documents.two(chosen, *lots), axis=1).reshape(-1)
        spans = self.source.store.batch(
            rows, max_length=self.source.max_length, title=self.source.title, pad_to_multiple=16
        )
        return Siblings(spans, torch.from_numpy(np.repeat(chosen, 2)))
