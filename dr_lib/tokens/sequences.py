"""Sequences of several texts: a query with a passage, the questions of a passage, halves of a
passage.

SimLM's cross-encoder (section 3.2) reads [CLS] query [SEP] title: body [SEP]; MASTER (section 4.2)
recovers all generated questions of a passage as one text, and its released code takes two halves of
a passage for two neighbouring passages. Pages: ideas/distillation, ideas/bottleneck.
"""

from copy import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from dr_lib.tokens.layout import (
    COARSE,
    MULTIPLE,
    Side,
    Slice,
    Truncated,
    concat_runs,
    padded_length,
    run_places,
    truncate,
)
from dr_lib.tokens.store import TokenBatch, TokenStore, to_batch


class QueryPassagePairs:
    """Queries and passages of two stores as single sequences, the input of a cross-encoder.

    Args:
        queries: their texts; titles are not read.
        passages: titles and texts.
        tokenizer: the one that both stores were built with.
        max_length: maximum length of a pair, special tokens included, at least 4; pairs are
            truncated longest-first.
        title: put `"title: "` before the body if there is a title.

    Raises:
        InputError: a store built with another tokenizer.
    """

    def __init__(
        self,
        queries: TokenStore,
        passages: TokenStore,
        tokenizer: PreTrainedTokenizerFast,
        *,
        max_length: int = 192,
        title: bool = True,
    ):
        for store in (queries, passages):
            store.check_tokenizer(tokenizer)
        self.queries, self.passages = queries, passages
        self.max_length, self.title = max_length, title
        self._colon = tokenizer.convert_tokens_to_ids(":")

    def lengths(self, query_rows: np.ndarray, passage_rows: np.ndarray) -> np.ndarray:
        """Lengths `[pairs]` int64 after truncation, special tokens included."""
        return self._cut(query_rows, passage_rows)[0].lengths

    def batch(self, query_rows: np.ndarray, passage_rows: np.ndarray) -> TokenBatch:
        """Lay out some pairs; `TokenBatch.rows` are those of the passages.

        Args:
            query_rows, passage_rows: `[pairs]` integers, rows of the two stores, in any order,
                repeats allowed.
        """
        store, rows = self.queries, np.asarray(passage_rows).astype(np.int64)
        left, title = self._cut(query_rows, rows)
        width = int(padded_length(left.lengths.max(), MULTIPLE, self.max_length))
        texts = self._passage_pieces(rows, title, left.body)
        cut = Slice(
            rows, left, store.text_offsets[query_rows], np.cumsum(left.body) - left.body, width
        )
        return to_batch(
            cut, store.text_ids, texts, special=store.special, continuation=store.continuation
        )

    def _cut(
        self, query_rows: np.ndarray, passage_rows: np.ndarray
    ) -> tuple[Truncated, np.ndarray]:
        """What is kept of each query (as the title) and passage (as the body), and the number of
        pieces of its title.
        """
        queries, passages = self.queries, self.passages
        query = queries.text_offsets[query_rows + 1] - queries.text_offsets[query_rows]
        title = (
            passages.title_offsets[passage_rows + 1] - passages.title_offsets[passage_rows]
        ) * self.title
        body = passages.text_offsets[passage_rows + 1] - passages.text_offsets[passage_rows]
        return (
            truncate(query, title + (title > 0) + body, max_length=self.max_length, mode="pair"),
            title,
        )

    def _passage_pieces(self, rows: np.ndarray, title: np.ndarray, count: np.ndarray) -> np.ndarray:
        """The first `count` pieces of title, colon and body of each passage, concatenated."""
        titles = np.minimum(title, count)
        colons = np.minimum(title > 0, count - titles)
        bodies = count - titles - colons
        place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        in_title = place < np.repeat(titles, count)
        in_body = place >= np.repeat(titles + colons, count)
        pieces = np.full(len(place), self._colon, np.int64)
        store = self.passages
        pieces[in_title] = concat_runs(store.title_ids, store.title_offsets[rows], titles)
        pieces[in_body] = concat_runs(store.text_ids, store.text_offsets[rows], bodies)
        return pieces


def shortened(store: TokenStore, pieces: int, side: Side) -> TokenStore:
    """The same texts with at most `pieces` pieces each, held in memory; titles stay whole.

    Args:
        store: the texts.
        pieces: maximum number of pieces, without special tokens.
        side: the side from which longer texts are truncated; "left" keeps the last turns of a
            dialogue.
    """
    view, lengths = copy(store), np.diff(store.text_offsets)
    left = np.minimum(lengths, pieces)
    starts = store.text_offsets[:-1] + (lengths - left) * (side == "left")
    view.text_ids = concat_runs(store.text_ids, starts, left)
    view.text_offsets = np.append(0, np.cumsum(left))
    return view


def join_texts(
    store: TokenStore,
    rows: np.ndarray,
    counts: np.ndarray,
    owners: np.ndarray,
    *,
    max_length: int,
    random_ints: np.ndarray | None = None,
) -> TokenBatch:
    """Lay out [CLS] text [SEP] text [SEP] ... for each sequence, truncated to a window if too long.

    Args:
        store: the texts; titles are not read.
        rows: `[texts]` integers, rows of the store, those of the first sequence first.
        counts: `[batch]` integers, number of texts of each sequence; one without texts is [CLS]
            [SEP].
        owners: `[batch]` integers, becomes `TokenBatch.rows`.
        max_length: longest sequence, special tokens included, at least 4.
        random_ints: `[batch]` random integers that choose the window of a long sequence, uniformly;
            None keeps its beginning.

    Paper and code: MASTER's code closes the last question twice (its own [SEP] and that of the
    sequence), here once.
    """
    flat, lengths = _separated(store, np.asarray(rows, np.int64), np.asarray(counts, np.int64))
    none, random_ints = (
        np.zeros_like(lengths),
        None if random_ints is None else np.asarray(random_ints, np.uint64),
    )
    left = truncate(none, lengths, max_length=max_length, mode="none", random_ints=random_ints)
    begin = np.cumsum(lengths + 1) - lengths - 1 + left.body_start
    width = int(padded_length(left.lengths.max(), COARSE, max_length))
    cut = Slice(np.asarray(owners, np.int64), left, none, begin, width)
    batch = to_batch(cut, flat[:0], flat, special=store.special, continuation=store.continuation)
    inner = batch.input_ids == store.special["sep"]
    return replace(batch, special=batch.special | inner, word_start=batch.word_start & ~inner)


def joined_lengths(store: TokenStore, offsets: np.ndarray) -> np.ndarray:
    """Lengths `[groups]` int64 before truncation, special tokens included, where group g has the
    rows offsets[g : g + 2].

    Args:
        store: the texts.
        offsets: `[groups + 1]` int64, ascending, at most the number of texts.
    """
    counts = np.diff(offsets)
    return np.diff(store.text_offsets[offsets]) + 2 + np.maximum(counts - 1, 0)


def _separated(
    store: TokenStore, rows: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """All pieces, with a [SEP] after each text and one for each empty sequence; and the length of
    each sequence without the last [SEP].
    """
    pieces = store.text_offsets[rows + 1] - store.text_offsets[rows]
    owner = np.repeat(np.arange(len(counts)), counts)
    lengths = np.maximum(np.bincount(owner, pieces + 1, len(counts)).astype(np.int64), 1) - 1
    # Each text is followed by its separator; an empty sequence is a single separator, which the
    # closing [SEP] replaces.
    ends = np.cumsum(pieces + 1) + np.cumsum(counts == 0)[owner] - 1
    flat = np.full(int(lengths.sum() + len(counts)), store.special["sep"], np.int64)
    is_piece = np.zeros(len(flat), bool)
    is_piece[run_places(ends - pieces, pieces)] = True
    flat[is_piece] = concat_runs(store.text_ids, store.text_offsets[rows], pieces)
    return flat, lengths


def halves(batch: TokenBatch, pad_id: int) -> tuple[TokenBatch, TokenBatch]:
    """The first floor(n / 2) pieces of each sequence and the rest, each as [CLS] pieces [SEP],
    token types 0.

    The separator between title and body is dropped; a word may be split, and its second part then
    counts as a word. The first half of a single piece is empty.

    Args:
        batch: sequences; `values`, if any, go along.
        pad_id: id of [PAD].

    Returns:
        Two batches of one padded length, at most that of `batch`, and the rows of `batch`.

    Example:
        >>> ids = torch.tensor([[2, 11, 12, 13, 3]])
        >>> ones, special = torch.ones_like(ids), ids < 5
        >>> one = TokenBatch(
        ...     ids, ones, ones - 1, special, word_start=~special, rows=torch.arange(1)
        ... )
        >>> [half.input_ids.tolist() for half in halves(one, 0)]
        [[[2, 11, 3, 0, 0]], [[2, 12, 13, 3, 0]]]
    """
    count = (~batch.special).sum(1)
    longest = int((count - count // 2).max()) + 2
    length = int(padded_length(longest, COARSE, max(longest, batch.input_ids.shape[1])))
    # A stable sort by "special" moves the pieces of each sequence to the front, in their order.
    pieces = torch.argsort(batch.special.to(torch.int8), dim=1, stable=True)
    first = _part(batch, pieces, torch.zeros_like(count), count // 2, length, pad_id)
    return first, _part(batch, pieces, count // 2, count - count // 2, length, pad_id)


def _part(
    batch: TokenBatch, pieces: Tensor, begin: Tensor, count: Tensor, length: int, pad_id: int
) -> TokenBatch:
    """New sequences from some pieces of each; `pieces` `[batch, length]` are their columns, in
    order.
    """
    place = torch.arange(length, device=count.device)[None, :]
    inside = (place > 0) & (place <= count[:, None])
    real = place < count[:, None] + 2
    source = pieces.gather(1, (begin[:, None] + place - 1).clamp(0, pieces.shape[1] - 1))
    closing = batch.input_ids.gather(1, (batch.attention_mask.sum(1) - 1)[:, None])
    ids = torch.where(real, closing, pad_id)
    ids = torch.where(inside, batch.input_ids.gather(1, source), ids)
    ids[:, 0] = batch.input_ids[:, 0]
    starts = batch.word_start.gather(1, source) | (place == 1)
    values = None if batch.values is None else batch.values.gather(1, source).where(inside, 0.0)
    return TokenBatch(
        ids, real.long(), torch.zeros_like(ids), ~inside, starts & inside, batch.rows, values
    )
