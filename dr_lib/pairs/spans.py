"""Sentences of passages, found once on the token level: alone as queries, or taken out of the passage they stand in.

What the inverse cloze task (Lee et al. 2019) and body first selection (Chang et al. 2020) ask with. Page: ideas/pairs.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerFast

from dr_lib.tokens import Slice, Title, TokenBatch, TokenStore, concat_runs, padded_length, to_batch, truncate

ENDS = (".", "!", "?")
BLOCK = 1 << 24


class Spans(NamedTuple):
    """One piece of text a passage: `rows` of the store, and where each `begin`s and `end`s in its `text_ids`, int64."""

    rows: np.ndarray
    begin: np.ndarray
    end: np.ndarray


@dataclass(frozen=True)
class Sentences:
    """The sentences of all passages of a store, as far as a batch of `max_length` reads their bodies.

    A sentence ends behind a piece ".", "!" or "?". Pieces do not tell an abbreviation or a dotted name from an end, so
    sentences of fewer than `shortest` pieces are not drawn, unless a passage has no other.

    Attributes:
        begin, end: `[sentences]` int64, places in `text_ids` of the sentences that may be drawn.
        offsets: `[passages + 1]` int64, those of passage p are number `offsets[p]` to `offsets[p + 1]`.
        counts: `[passages]` int64, sentences of each passage, the short ones too; 0 without a body.
        limits: `[passages]` int64, place in `text_ids` behind the last piece of each body that is read.
    """

    begin: np.ndarray
    end: np.ndarray
    offsets: np.ndarray
    counts: np.ndarray
    limits: np.ndarray

    @classmethod
    def find(
        cls,
        store: TokenStore,
        tokenizer: PreTrainedTokenizerFast,
        *,
        max_length: int,
        title: Title = "pair",
        shortest: int = 4,
    ) -> "Sentences":
        """Find all sentences.

        Args:
            store: tokens of the passages; titles have no sentences.
            tokenizer: the one that the store was built with.
            max_length, title: as in `TokenStore.batch`.
            shortest: pieces of the shortest sentence that is drawn where a passage has longer ones.

        Raises:
            InputError: a store built with another tokenizer.
        """
        store.check_tokenizer(tokenizer)
        titles, bodies = np.diff(store.title_offsets), np.diff(store.text_offsets)
        limits = store.text_offsets[:-1] + truncate(titles, bodies, max_length=max_length, mode=title).body
        begin = _beginnings(store, tokenizer)
        owner = np.searchsorted(store.text_offsets, begin, side="right") - 1
        end = np.minimum(np.append(begin[1:], len(store.text_ids)), limits[owner])
        inside = begin < end
        begin, end, owner = begin[inside], end[inside], owner[inside]
        long = end - begin >= shortest
        drawn = long | (np.bincount(owner[long], minlength=len(store)) == 0)[owner]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owner[drawn], minlength=len(store)))])
        return cls(begin[drawn], end[drawn], offsets, np.bincount(owner, minlength=len(store)), limits)

    def draw(self, rows: np.ndarray, lots: np.ndarray) -> Spans:
        """One sentence of each passage.

        Args:
            rows: `[batch]` integers, passages with at least one sentence.
            lots: `[batch]` whole numbers; each sentence of a passage is equally likely.
        """
        counts = (self.offsets[rows + 1] - self.offsets[rows]).astype(np.uint64)
        number = self.offsets[rows] + (lots % counts).astype(np.int64)
        return Spans(rows, self.begin[number], self.end[number])


def random_runs(rows: np.ndarray, begin: np.ndarray, end: np.ndarray, lots: np.ndarray, longest: int) -> Spans:
    """A run of pieces from each stretch of text: half of it, but at most `longest`; every place equally likely.

    Args:
        rows: `[batch]` integers, rows of the store.
        begin, end: `[batch]` int64, places in `text_ids`, at least two pieces apart.
        lots: `[batch]` whole numbers.
        longest: most pieces of a run.
    """
    pieces = np.minimum((end - begin) // 2, longest)
    start = begin + (lots % (end - begin - pieces + 1).astype(np.uint64)).astype(np.int64)
    return Spans(rows, start, start + pieces)


def spans_alone(store: TokenStore, spans: Spans, *, max_length: int, pad_to_multiple: int = 8) -> TokenBatch:
    """Each span as a text of its own, [CLS] pieces [SEP], cut at `max_length`; `TokenBatch.rows` are the passages."""
    nothing = np.zeros_like(spans.begin)
    kept = truncate(nothing, spans.end - spans.begin, max_length=max_length, mode="none")
    width = int(padded_length(kept.lengths.max(), pad_to_multiple, max_length))
    cut = Slice(spans.rows, kept, nothing, spans.begin, width)
    return to_batch(cut, store.title_ids, store.text_ids, special=store.special, continuation=store.continuation)


def passages_without(
    store: TokenStore,
    spans: Spans,
    limits: np.ndarray,
    *,
    max_length: int,
    title: Title = "pair",
    pad_to_multiple: int = 16,
) -> TokenBatch:
    """Passages less a span of each, the text before it and the text behind it put together.

    Args:
        store: titles and texts.
        spans: what is left out; an empty span leaves its passage whole.
        limits: `[batch]` int64, place in `text_ids` where each body ends.
        max_length, title, pad_to_multiple: as in `TokenStore.batch`.
    """
    rows, start = spans.rows, store.text_offsets[spans.rows]
    before, behind = spans.begin - start, limits - spans.end
    parts = np.stack([start, spans.end], axis=1), np.stack([before, behind], axis=1)
    text, pieces = concat_runs(store.text_ids, *(part.reshape(-1) for part in parts)), before + behind
    title_from = store.title_offsets[rows]
    kept = truncate(store.title_offsets[rows + 1] - title_from, pieces, max_length=max_length, mode=title)
    width = int(padded_length(kept.lengths.max(), pad_to_multiple, max_length))
    cut = Slice(rows, kept, title_from, np.cumsum(pieces) - pieces, width)
    return to_batch(cut, store.title_ids, text, special=store.special, continuation=store.continuation)


def _beginnings(store: TokenStore, tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Places in `text_ids` where a passage or a sentence begins, rising; a row of end marks ends one sentence."""
    vocabulary, marks = tokenizer.get_vocab(), np.zeros(store.vocab_size, bool)
    marks[[vocabulary[mark] for mark in ENDS if mark in vocabulary]] = True
    behind = []
    for block in range(0, len(store.text_ids), BLOCK):  # in blocks: flags of a whole web collection would fill memory
        ends = marks[store.text_ids[block : block + BLOCK + 1]]
        behind.append(block + 1 + np.flatnonzero(ends[:BLOCK] & ~np.append(ends[1:], False)[:BLOCK]))
    found = np.unique(np.concatenate([store.text_offsets[:-1], *behind]))
    return found[found < len(store.text_ids)]
