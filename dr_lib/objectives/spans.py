"""Pairs from the collection itself: the inverse cloze task and body first selection.

ICT (Lee et al. 2019; DPR-PAQ Table 4) finds the passage that a sentence was taken from: a random
sentence is the query and the rest of the passage its positive; sometimes the sentence stays in, so
that shared words count too. BFS (Chang et al. 2020) asks with a random sentence of a document's
first passage for a random other passage of that document; DPR-PAQ (section 1) describes the
reverse: a sentence of the document finds its first passage. Page: ideas/pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from pydantic import PositiveInt
from transformers import PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.objectives.base import Source
from dr_lib.objectives.contrastive import Contrastive, ContrastiveSettings, pairs_at_once
from dr_lib.settings import Share
from dr_lib.tokens import (
    COARSE,
    MULTIPLE,
    Slice,
    Title,
    TokenBatch,
    TokenStore,
    concat_runs,
    padded_length,
    to_batch,
    truncate,
)
from dr_lib.training import EpochSampler, RetrievalBatch, hash64
from dr_lib.words import FULL_STOPS

BLOCK = 1 << 24


class Spans(NamedTuple):
    """A span of text per passage: `rows` of the store, and where each span `begin`s and `end`s in
    `text_ids`, int64.
    """

    rows: np.ndarray
    begin: np.ndarray
    end: np.ndarray


class IctSettings(ContrastiveSettings):
    """Parameters of the inverse cloze task.

    Attributes:
        keep: probability that the sentence stays in its passage (Lee et al.: 0.1).
        shortest: fewest pieces of a sentence, unless a passage has no longer one.

    Passages of one sentence are left out, since nothing would be left of them.
    """

    keep: Share = 0.1
    shortest: PositiveInt = 4


class Ict(Contrastive):
    """Find the passage that a sentence was taken from.

    Passages are identified by row, as in the paper: another copy of a passage is a negative.
    """

    cites = ("lee2019",)
    title, family = "ICT", "pairs of texts"
    settings: IctSettings

    @classmethod
    def batches(cls, settings: IctSettings, source: Source) -> Callable[[int], RetrievalBatch]:
        """Sentences and the rest of their passages; each passage once per epoch, with another
        sentence each time.

        Raises:
            InputError: no passage has a sentence to spare, or the budget holds no two pairs.
        """
        store, layout = source.store, source.layout
        sentences = Sentences.find(source, settings.shortest)
        usable = np.flatnonzero(sentences.counts > 1)
        if not len(usable):
            fix = "Take longer passages, or choose another method."
            raise InputError("no passage has two sentences", where="ict", fix=fix)
        sampler = pair_sampler(
            usable, settings.batch_pairs, source, layout.query_length + layout.passage_length
        )

        def batch(step: int) -> RetrievalBatch:
            epoch, rows = sampler.of(step)
            random_ints = two_random_ints(source, epoch, rows)
            queries, limits = sentences.draw(rows, random_ints[0]), sentences.limits[rows]
            # Always removed, a sentence could be found by what is missing; always kept, by its
            # words.
            stays = random_ints[1] / 2.0**64 < settings.keep
            left_out = Spans(
                rows, np.where(stays, limits, queries.begin), np.where(stays, limits, queries.end)
            )
            return RetrievalBatch(
                spans_alone(store, queries, max_length=layout.query_length),
                passages_without(store, left_out, limits, **source.layout.passages),
                torch.from_numpy(rows),
            )

        return batch


class BfsSettings(ContrastiveSettings):
    """Parameters of body first selection.

    Attributes:
        shortest: fewest pieces of a sentence, unless the first passage has no longer one.
    """

    shortest: PositiveInt = 4


class Bfs(Contrastive):
    """Find a passage of the document that a lead sentence begins.

    Documents are identified by number: a copy of a passage in another document is a negative.
    """

    cites = ("chang2020",)
    title, family = "BFS", "pairs of texts"
    settings: BfsSettings

    @classmethod
    def batches(cls, settings: BfsSettings, source: Source) -> Callable[[int], RetrievalBatch]:
        """Lead sentences and other passages; each document once per epoch, so that no other passage
        of the batch is relevant.

        Documents of one passage are left out. If a collection holds only some passages of a
        document, the first one with a body leads. `passage_rows` are numbers of documents.

        Raises:
            InputError: no document has two passages, or the budget holds no two pairs.
        """
        store, layout = source.store, source.layout
        sentences = Sentences.find(source, settings.shortest)
        documents = Documents.of(source.documents, source.positions, sentences.counts > 0)
        every = np.arange(len(documents))
        sampler = pair_sampler(
            every, settings.batch_pairs, source, layout.query_length + layout.passage_length
        )

        def batch(step: int) -> RetrievalBatch:
            epoch, chosen = sampler.of(step)
            random_ints = two_random_ints(source, epoch, chosen)
            queries = sentences.draw(documents.first(chosen), random_ints[0])
            return RetrievalBatch(
                spans_alone(store, queries, max_length=layout.query_length),
                store.batch(
                    documents.another(chosen, random_ints[1]),
                    **source.layout.passages,
                    pad_to_multiple=COARSE,
                ),
                torch.from_numpy(chosen),
            )

        return batch


def pair_sampler(
    items: np.ndarray, wanted: int | None, source: Source, tokens: int
) -> EpochSampler:
    """A sampler of `wanted` items per step, or of as many pairs of `tokens` as fill the budget."""
    return EpochSampler(
        items, pairs_at_once(wanted, source.tokens_per_batch, tokens, len(items)), source.seed
    )


def two_random_ints(source: Source, epoch: int, items: np.ndarray) -> list[np.ndarray]:
    """Two random integers per item: hashes of seed, epoch and item, so that steps can be made in
    any order.
    """
    return [hash64(source.seed, epoch, items, which) for which in (0, 1)]


@dataclass(frozen=True)
class Documents:
    """Documents of at least two passages.

    Attributes:
        rows: passages, document after document, in document order, int64.
        offsets: `[documents + 1]` int64, where each document begins in `rows`.
    """

    rows: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, documents: np.ndarray, positions: np.ndarray, usable: np.ndarray) -> "Documents":
        """Group passages by document.

        Args:
            documents: `[passages]` int64, number of each passage's document.
            positions: `[passages]` int64, order inside the document.
            usable: `[passages]` bool, False for passages to skip.

        Raises:
            InputError: no document has two passages.

        Example:
            >>> found = Documents.of(
            ...     np.array([1, 0, 1, 1]), np.array([2, 0, 0, 1]), np.array([True] * 4)
            ... )
            >>> found.rows.tolist(), found.offsets.tolist()
            ([2, 3, 0], [0, 3])
        """
        # By document, then by position; unusable passages are dropped before documents are counted.
        order = np.lexsort((positions, documents))
        order = order[usable[order]]
        _, place, counts = np.unique(documents[order], return_inverse=True, return_counts=True)
        order, counts = order[counts[place] > 1], counts[counts > 1]
        if not len(counts):
            fix = (
                "Give the passages a document (doc and position), or choose a method that reads"
                " passages alone."
            )
            raise InputError(
                "no document of this collection has two passages", where="documents", fix=fix
            )
        return cls(order.astype(np.int64), np.append(0, np.cumsum(counts)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def first(self, chosen: np.ndarray) -> np.ndarray:
        """The first passage of each document."""
        return self.rows[self.offsets[chosen]]

    def another(self, chosen: np.ndarray, random_ints: np.ndarray) -> np.ndarray:
        """Any passage but the first of each document, chosen by `random_ints`."""
        return self.rows[self.offsets[chosen] + 1 + _below(random_ints, self._counts(chosen) - 1)]

    def two(
        self, chosen: np.ndarray, random_ints: np.ndarray, more_ints: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Two distinct passages of each document, every ordered pair equally likely."""
        counts, begin = self._counts(chosen), self.offsets[chosen]
        # The second lies at least one place after the first, cyclically, so the two are
        # distinct.
        first = _below(random_ints, counts)
        second = (first + 1 + _below(more_ints, counts - 1)) % counts
        return self.rows[begin + first], self.rows[begin + second]

    def _counts(self, chosen: np.ndarray) -> np.ndarray:
        return self.offsets[chosen + 1] - self.offsets[chosen]


def _below(random_ints: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Random integers modulo their bounds, int64."""
    return (random_ints % bounds.astype(np.uint64)).astype(np.int64)


@dataclass(frozen=True)
class Sentences:
    """The sentences of all passages of a store, within the part of the bodies that batches read.

    A sentence ends after a piece ".", "!" or "?", or the full stop of another script
    (`words.FULL_STOPS`). Pieces do not distinguish an abbreviation from the end of a sentence, so
    sentences of fewer than `shortest` pieces are not drawn, unless a passage has no other.

    Attributes:
        begin, end: `[sentences]` int64, positions in `text_ids` of the sentences that may be drawn.
        offsets: `[passages + 1]` int64; those of passage p are `offsets[p]` to `offsets[p + 1]`.
        counts: `[passages]` int64, sentences of each passage, short ones included; 0 without a
            body.
        limits: `[passages]` int64, position in `text_ids` after the last piece of each body that is
            read.
    """

    begin: np.ndarray
    end: np.ndarray
    offsets: np.ndarray
    counts: np.ndarray
    limits: np.ndarray

    @classmethod
    def find(cls, source: Source, shortest: int) -> "Sentences":
        """Find all sentences.

        Args:
            source: with the tokens of the passages (titles have no sentences), their tokenizer and
                layout.
            shortest: fewest pieces of a sentence, unless a passage has no longer one.

        Raises:
            InputError: a store built with another tokenizer.
        """
        store, layout = source.store, source.layout
        store.check_tokenizer(source.tokenizer)
        bodies = truncate(
            np.diff(store.title_offsets),
            np.diff(store.text_offsets),
            max_length=layout.passage_length,
            mode=layout.title,
        ).body
        limits = store.text_offsets[:-1] + bodies
        begin = _beginnings(store, source.tokenizer)
        owner = np.searchsorted(store.text_offsets, begin, side="right") - 1
        # A sentence ends where the next one begins, or where the batch stops reading its passage.
        end = np.minimum(np.append(begin[1:], len(store.text_ids)), limits[owner])
        inside = begin < end
        begin, end, owner = begin[inside], end[inside], owner[inside]
        long = end - begin >= shortest
        # Short ones are mostly not sentences ("Fig.", "e.g."); they are used only if there are no
        # others.
        drawn = long | (np.bincount(owner[long], minlength=len(store)) == 0)[owner]
        offsets = np.append(0, np.cumsum(np.bincount(owner[drawn], minlength=len(store))))
        return cls(
            begin[drawn], end[drawn], offsets, np.bincount(owner, minlength=len(store)), limits
        )

    def draw(self, rows: np.ndarray, random_ints: np.ndarray) -> Spans:
        """One sentence of each passage.

        Args:
            rows: `[batch]` integers, passages with at least one sentence.
            random_ints: `[batch]` random integers; each sentence of a passage is equally likely.
        """
        number = self.offsets[rows] + _below(
            random_ints, self.offsets[rows + 1] - self.offsets[rows]
        )
        return Spans(rows, self.begin[number], self.end[number])


def spans_alone(store: TokenStore, spans: Spans, *, max_length: int) -> TokenBatch:
    """Each span as a text of its own, [CLS] pieces [SEP], cut at `max_length`; `TokenBatch.rows`
    are the passages.
    """
    nothing = np.zeros_like(spans.begin)
    left = truncate(nothing, spans.end - spans.begin, max_length=max_length, mode="none")
    width = int(padded_length(left.lengths.max(), MULTIPLE, max_length))
    cut = Slice(spans.rows, left, nothing, spans.begin, width)
    return to_batch(
        cut, store.title_ids, store.text_ids, special=store.special, continuation=store.continuation
    )


def passages_without(
    store: TokenStore, spans: Spans, limits: np.ndarray, *, max_length: int, title: Title = "pair"
) -> TokenBatch:
    """Passages without a span of each: the text before it and the text after it, concatenated.

    Args:
        store: titles and texts.
        spans: what is left out; an empty span leaves its passage whole.
        limits: `[batch]` int64, position in `text_ids` where each body ends.
        max_length, title: as in `TokenStore.batch`.
    """
    # Two runs of each body, before and after the span, are concatenated, then truncated as usual.
    rows, start = spans.rows, store.text_offsets[spans.rows]
    before, behind = spans.begin - start, limits - spans.end
    parts = np.stack([start, spans.end], axis=1), np.stack([before, behind], axis=1)
    text = concat_runs(store.text_ids, *(part.reshape(-1) for part in parts))
    pieces = before + behind
    title_from = store.title_offsets[rows]
    left = truncate(
        store.title_offsets[rows + 1] - title_from, pieces, max_length=max_length, mode=title
    )
    width = int(padded_length(left.lengths.max(), COARSE, max_length))
    cut = Slice(rows, left, title_from, np.cumsum(pieces) - pieces, width)
    return to_batch(
        cut, store.title_ids, text, special=store.special, continuation=store.continuation
    )


def _beginnings(store: TokenStore, tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Places in `text_ids` where a passage or a sentence begins, rising; a row of end marks ends
    one sentence.
    """
    vocabulary, marks = tokenizer.get_vocab(), np.zeros(store.vocab_size, bool)
    marks[[vocabulary[mark] for mark in FULL_STOPS if mark in vocabulary]] = True
    behind = []
    # in blocks: flags for a whole web collection would fill memory
    for block in range(0, len(store.text_ids), BLOCK):
        ends = marks[store.text_ids[block : block + BLOCK + 1]]
        behind.append(
            block + 1 + np.flatnonzero(ends[:BLOCK] & ~np.append(ends[1:], False)[:BLOCK])
        )
    starts = np.unique(np.concatenate([store.text_offsets[:-1], *behind]))
    return starts[starts < len(store.text_ids)]
