"""Several short texts as one sequence, a [SEP] after each: MASTER's generated questions of a passage.

MASTER, section 4.2 (doc2query outputs recovering). Page: ideas/bottleneck.
"""

from dataclasses import replace

import numpy as np

from dr_lib.errors import InputError
from dr_lib.tokens.assemble import Cut, assemble, gather
from dr_lib.tokens.batch import TokenBatch
from dr_lib.tokens.layout import Kept, check_layout, padded_length
from dr_lib.tokens.store import TokenStore, check_rows


def joined(
    store: TokenStore,
    rows: np.ndarray,
    counts: np.ndarray,
    owners: np.ndarray,
    *,
    max_length: int,
    lots: np.ndarray | None = None,
    pad_to_multiple: int = 8,
) -> TokenBatch:
    """Lay out [CLS] text [SEP] text [SEP] ... for each sequence, and cut one that is too long to a window.

    Args:
        store: the texts; titles are not read.
        rows: `[texts]` integers, rows of the store, those of the first sequence first.
        counts: `[batch]` integers, number of texts of each sequence; one without texts is [CLS] [SEP].
        owners: `[batch]` integers, becomes `TokenBatch.rows`.
        max_length: longest sequence, special tokens included, at least 4.
        lots: `[batch]` whole numbers of which the window of a long sequence is drawn, every place equally likely;
            None keeps its beginning.
        pad_to_multiple: the padded length is a multiple of this, but never more than `max_length`.

    Raises:
        InputError: counts that do not fit the rows, a row outside the store, or an argument outside its range.

    Paper and code: MASTER's code closes the last question twice (its own [SEP] and that of the sequence), here once.
    """
    check_layout(max_length, "none", multiple=pad_to_multiple)
    counts, owners = np.asarray(counts, np.int64), np.asarray(owners, np.int64)
    if counts.sum() != len(rows) or len(counts) != len(owners):
        problem = f"{len(rows)} rows, counts that sum to {counts.sum()}, {len(counts)} counts, {len(owners)} owners"
        raise InputError(problem, where="counts", fix="Give the number of rows of each sequence.")
    flat, lengths = _separated(store, np.asarray(rows), counts)
    kept = np.minimum(lengths, max_length - 2)
    surplus = (lengths - kept).astype(np.uint64)
    begin = np.zeros_like(kept) if lots is None else (np.asarray(lots, np.uint64) % (surplus + 1)).astype(np.int64)
    begin += np.cumsum(lengths + 1) - lengths - 1
    none, width = np.zeros_like(kept), int(padded_length(kept.max() + 2, pad_to_multiple, max_length))
    cut = Cut(owners, Kept(none, kept, none, none, none.astype(bool)), none, begin, width)
    batch = assemble(cut, flat[:0], flat, special=store.special, continuation=store.continuation)
    inner = batch.input_ids == store.special["sep"]
    return replace(batch, special=batch.special | inner, word_start=batch.word_start & ~inner)


def joined_lengths(store: TokenStore, offsets: np.ndarray) -> np.ndarray:
    """Lengths `[groups]` int64 before any cut, special tokens included, where group g has the rows offsets[g : g + 2].

    Args:
        store: the texts.
        offsets: `[groups + 1]` int64, rising, at most the number of texts.
    """
    counts = np.diff(offsets)
    return np.diff(store.text_offsets[offsets]) + 2 + np.maximum(counts - 1, 0)


def _separated(store: TokenStore, rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pieces, a [SEP] behind each text and one for each sequence without; pieces of each sequence less the last."""
    rows = check_rows(rows, len(store)) if len(rows) else np.zeros(0, np.int64)
    pieces = store.text_offsets[rows + 1] - store.text_offsets[rows]
    owner = np.repeat(np.arange(len(counts)), counts)
    lengths = np.maximum(np.bincount(owner, pieces + 1, len(counts)).astype(np.int64), 1) - 1
    # Behind each text comes its separator; a sequence without texts holds one alone, which the closing [SEP] replaces.
    ends = np.cumsum(pieces + 1) + np.cumsum(counts == 0)[owner] - 1
    flat = np.full(int(lengths.sum() + len(counts)), store.special["sep"], np.int64)
    is_piece = np.zeros(len(flat), bool)
    is_piece[np.repeat(ends - pieces - (np.cumsum(pieces) - pieces), pieces) + np.arange(pieces.sum())] = True
    flat[is_piece] = gather(store.text_ids, store.text_offsets[rows], pieces)
    return flat, lengths
