"""The inverse cloze task: which passage is this sentence from (Lee et al. 2019; DPR-PAQ Table 4).

A random sentence of each passage is the query, the rest of the passage its positive. Now and then the sentence stays
in, so that shared words count too. Page: ideas/pairs.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from dr_lib.errors import InputError
from dr_lib.objectives.base import Settings
from dr_lib.objectives.contrastive import Contrastive, ContrastiveSettings
from dr_lib.objectives.source import Source
from dr_lib.pairs.spans import Sentences, Spans, passages_without, random_runs, spans_alone
from dr_lib.pairs.visits import Visits, pairs_at_once
from dr_lib.training import RetrievalBatch, hash64


class IctSettings(ContrastiveSettings):
    """Parameters of the inverse cloze task.

    Attributes:
        keep: chance that the sentence stays in its passage (Lee et al.: 0.1).
        shortest: pieces of the shortest sentence that is drawn where a passage has longer ones.
        one_sentence: leave out passages of one sentence, which would have no rest ("exclude"), or ask with a random run
            of their pieces, half of them at most ("span").
    """

    keep: float = Field(0.1, ge=0, le=1)
    shortest: int = Field(4, ge=1)
    one_sentence: Literal["exclude", "span"] = "exclude"


class Ict(Contrastive):
    """Find the passage that a sentence was taken from."""

    settings_type: ClassVar[type[Settings]] = IctSettings

    @classmethod
    def batches(cls, settings: IctSettings, source: Source) -> Callable[[int], RetrievalBatch]:
        """Sentences and the passages they were taken from."""
        return IctBatches(settings, source).batch


class IctBatches:
    """Micro-step -> sentences and passages; each passage once an epoch, with another sentence each time.

    Args:
        settings: the method's parameters.
        source: tokens of the passages, lengths, token budget, seed and tokenizer.

    Raises:
        InputError: no passage has a sentence to spare, or the budget holds no two pairs.
    """

    def __init__(self, settings: IctSettings, source: Source):
        self.settings, self.source, self.store = settings, source, source.store
        self.layout = {"max_length": source.max_length, "title": source.title}
        self.sentences = Sentences.find(self.store, source.tokenizer, **self.layout, shortest=settings.shortest)
        usable = np.flatnonzero(self._usable())
        if not len(usable):
            raise InputError(
                "no passage has two sentences", where="ict",
                fix='Set one_sentence to "span", take longer passages, or choose another method.',
            )  # fmt: skip
        tokens = source.query_length + source.max_length
        pairs = pairs_at_once(settings.batch_pairs, source.tokens_per_batch, tokens, len(usable))
        self.visits = Visits(usable, pairs, source.seed)

    def batch(self, step: int) -> RetrievalBatch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, rows = self.visits.of(step)
        asked, stays = self._asked(rows, epoch), self._lots(rows, epoch, 1) / 2.0**64 < self.settings.keep
        limits = self.sentences.limits[rows]
        left_out = Spans(rows, np.where(stays, limits, asked.begin), np.where(stays, limits, asked.end))
        return RetrievalBatch(
            spans_alone(self.store, asked, max_length=self.source.query_length),
            passages_without(self.store, left_out, limits, **self.layout),
            torch.from_numpy(rows),
        )

    def _usable(self) -> np.ndarray:
        if self.settings.one_sentence == "exclude":
            return self.sentences.counts > 1
        return self.sentences.limits - self.store.text_offsets[:-1] > 1

    def _asked(self, rows: np.ndarray, epoch: int) -> Spans:
        lots = self._lots(rows, epoch, 0)
        sentence = self.sentences.draw(rows, lots)
        begin, end = self.store.text_offsets[rows], self.sentences.limits[rows]
        run, alone = random_runs(rows, begin, end, lots, self.source.query_length - 2), self.sentences.counts[rows] == 1
        return Spans(rows, np.where(alone, run.begin, sentence.begin), np.where(alone, run.end, sentence.end))

    def _lots(self, rows: np.ndarray, epoch: int, which: int) -> np.ndarray:
        return hash64(self.source.seed, epoch, rows, which)
