"""Body first selection: which passage is from the document whose lead holds this sentence (Chang et al. 2020).

The query is a random sentence of a document's first passage, the positive a random other passage of that document.
DPR-PAQ (section 1) tells it the other way round, a sentence of the document that finds its first passage. Page:
ideas/pairs.
"""

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field

from dr_lib.objectives.base import Settings
from dr_lib.objectives.contrastive import Contrastive, ContrastiveSettings
from dr_lib.objectives.source import Source
from dr_lib.pairs.spans import Sentences, spans_alone
from dr_lib.pairs.visits import Documents, Visits, pairs_at_once
from dr_lib.training import RetrievalBatch, hash64


class BfsSettings(ContrastiveSettings):
    """Parameters of body first selection.

    Attributes:
        shortest: pieces of the shortest sentence that is drawn where the first passage has longer ones.
    """

    shortest: int = Field(4, ge=1)


class Bfs(Contrastive):
    """Find a passage of the document that a lead sentence begins."""

    settings_type: ClassVar[type[Settings]] = BfsSettings

    @classmethod
    def batches(cls, settings: BfsSettings, source: Source) -> Callable[[int], RetrievalBatch]:
        """Sentences of first passages, and other passages of the same documents."""
        return BfsBatches(settings, source).batch


class BfsBatches:
    """Micro-step -> lead sentences and passages; each document once an epoch, so that no other passage is right too.

    Documents of one passage are left out. Where a collection holds some passages of a document only, the first that it
    holds, and that has a body, leads.

    Args:
        settings: the method's parameters.
        source: tokens of the passages and their order in documents, lengths, token budget, seed and tokenizer.

    Raises:
        InputError: no document has two passages, or the budget holds no two pairs.
    """

    def __init__(self, settings: BfsSettings, source: Source):
        self.source, self.store = source, source.store
        self.layout = {"max_length": source.max_length, "title": source.title}
        self.sentences = Sentences.find(self.store, source.tokenizer, **self.layout, shortest=settings.shortest)
        self.documents = Documents.of(source.documents, source.positions, self.sentences.counts > 0)
        tokens = source.query_length + source.max_length
        pairs = pairs_at_once(settings.batch_pairs, source.tokens_per_batch, tokens, len(self.documents))
        self.visits = Visits(np.arange(len(self.documents)), pairs, source.seed)

    def batch(self, step: int) -> RetrievalBatch:
        """The batch of a step, counted from 0 over all epochs; `passage_rows` are numbers of documents."""
        epoch, chosen = self.visits.of(step)
        lots = [hash64(self.source.seed, epoch, chosen, which) for which in (0, 1)]
        asked = self.sentences.draw(self.documents.first(chosen), lots[0])
        passages = self.documents.another(chosen, lots[1])
        return RetrievalBatch(
            spans_alone(self.store, asked, max_length=self.source.query_length),
            self.store.batch(passages, **self.layout, pad_to_multiple=16),
            torch.from_numpy(chosen),
        )
