"""A query and a passage as one sequence, what a cross-encoder reads: [CLS] query [SEP] title: body [SEP].

As SimLM's cross-encoder packs them (its section 3.2 and released code), cut longest-first. Page: ideas/distillation.
"""

import numpy as np
from transformers import PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.tokens.assemble import Cut, assemble, gather
from dr_lib.tokens.batch import TokenBatch
from dr_lib.tokens.layout import check_layout, padded_length, truncate
from dr_lib.tokens.store import TokenStore, check_rows

MULTIPLE = 8


class Crossing:
    """Queries and passages of two stores, put together pair by pair without a Python loop.

    Args:
        queries: their texts; titles are not read.
        passages: titles and texts.
        tokenizer: the one that both stores were built with.
        max_length: longest pair, special tokens included, at least 4.
        title: put "title: " before the body where there is a title.
        pad_to_multiple: padded lengths are multiples of this, but never more than `max_length`.

    Raises:
        InputError: a store built with another tokenizer, or an argument outside its range.
    """

    def __init__(
        self,
        queries: TokenStore,
        passages: TokenStore,
        tokenizer: PreTrainedTokenizerFast,
        *,
        max_length: int = 192,
        title: bool = True,
        pad_to_multiple: int = MULTIPLE,
    ):
        check_layout(max_length, "pair", multiple=pad_to_multiple)
        for store in (queries, passages):
            store.check_tokenizer(tokenizer)
        self.queries, self.passages = queries, passages
        self.max_length, self.title, self.pad_to_multiple = max_length, title, pad_to_multiple
        self._colon = tokenizer.convert_tokens_to_ids(":")

    def lengths(self, query_rows: np.ndarray, passage_rows: np.ndarray) -> np.ndarray:
        """Lengths `[pairs]` int64 after truncation, special tokens included."""
        asked, title, body = self._pieces(*self._checked(query_rows, passage_rows))
        both = truncate(asked, title + (title > 0) + body, max_length=self.max_length, mode="pair")
        return both.lengths

    def batch(self, query_rows: np.ndarray, passage_rows: np.ndarray) -> TokenBatch:
        """Lay out pair after pair; `TokenBatch.rows` are those of the passages.

        Args:
            query_rows, passage_rows: `[pairs]` integers, rows of the two stores, in any order, repeats allowed.

        Raises:
            InputError: no pair, numbers that differ, or a row outside its store.
        """
        query_rows, passage_rows = self._checked(query_rows, passage_rows)
        asked, title, body = self._pieces(query_rows, passage_rows)
        kept = truncate(asked, title + (title > 0) + body, max_length=self.max_length, mode="pair")
        width = int(padded_length(kept.lengths.max(), self.pad_to_multiple, self.max_length))
        texts, begin = self._passage_pieces(passage_rows, title, kept.body), np.cumsum(kept.body) - kept.body
        store = self.queries
        cut = Cut(passage_rows, kept, store.text_offsets[query_rows], begin, width)
        return assemble(cut, store.text_ids, texts, special=store.special, continuation=store.continuation)

    def _checked(self, query_rows: np.ndarray, passage_rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if len(query_rows) != len(passage_rows):
            problem = f"{len(query_rows)} queries for {len(passage_rows)} passages"
            raise InputError(problem, where="rows", fix="Give one query row for each passage row.")
        return check_rows(query_rows, len(self.queries)), check_rows(passage_rows, len(self.passages))

    def _pieces(self, query_rows: np.ndarray, passage_rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Number of pieces of each query, title and body."""
        queries, passages = self.queries, self.passages
        asked = queries.text_offsets[query_rows + 1] - queries.text_offsets[query_rows]
        title = passages.title_offsets[passage_rows + 1] - passages.title_offsets[passage_rows]
        body = passages.text_offsets[passage_rows + 1] - passages.text_offsets[passage_rows]
        return asked, title * self.title, body

    def _passage_pieces(self, rows: np.ndarray, title: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """The first `kept` pieces of title, colon and body of each passage, end to end."""
        titles = np.minimum(title, kept)
        colons = np.minimum(title > 0, kept - titles)
        bodies = kept - titles - colons
        place = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
        in_title, in_body = place < np.repeat(titles, kept), place >= np.repeat(titles + colons, kept)
        pieces = np.full(len(place), self._colon, np.int64)
        store = self.passages
        pieces[in_title] = gather(store.title_ids, store.title_offsets[rows], titles)
        pieces[in_body] = gather(store.text_ids, store.text_offsets[rows], bodies)
        return pieces
