"""Lay pieces out as padded sequences: ids, masks, token types and word borders of a whole batch without a loop.

Explained in the book's chapter on your own corpus.
"""

from collections.abc import Mapping

import numpy as np
import torch

from dr_lib.tokens.batch import TokenBatch
from dr_lib.tokens.layout import Kept


def assemble(
    rows: np.ndarray,
    kept: Kept,
    title_pieces: np.ndarray,
    body_pieces: np.ndarray,
    *,
    width: int,
    special: Mapping[str, int],
    continuation: np.ndarray,
) -> TokenBatch:
    """Put the pieces of all titles and bodies in their places.

    Args:
        rows: `[batch]` int64, handed through.
        kept: how many pieces of each title and body there are.
        title_pieces, body_pieces: the kept pieces of all rows, end to end.
        width: padded length.
        special: ids by name.
        continuation: `[vocab]` bool, True for pieces that continue a word.
    """
    position = np.arange(width)[None, :]
    title_end = 1 + kept.title[:, None]
    body_start = title_end + kept.separate[:, None]
    end = kept.lengths[:, None]
    real = position < end
    in_title = (position >= 1) & (position < title_end)
    in_body = (position >= body_start) & (position < end - 1)
    content = in_title | in_body
    second = real & kept.separate[:, None] & (position >= body_start)

    ids = np.where(real, special["sep"], special["pad"]).astype(np.int64)
    ids[:, 0] = special["cls"]
    ids[in_title] = title_pieces
    ids[in_body] = body_pieces
    # A piece that truncation cut off from the start of its word counts as a word, as in the papers' mask draw.
    first = (position == 1) | (position == body_start)
    return TokenBatch(
        input_ids=torch.from_numpy(ids),
        attention_mask=torch.from_numpy(real.astype(np.int64)),
        token_type_ids=torch.from_numpy(second.astype(np.int64)),
        special=torch.from_numpy(~content),
        word_start=torch.from_numpy(content & (first | ~continuation[ids])),
        rows=torch.from_numpy(rows),
    )


def gather(ids: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate `ids[start : start + count]` over all rows.

    Example:
        >>> gather(np.arange(10, 20), starts=np.array([7, 0]), counts=np.array([2, 3]))
        array([17, 18, 10, 11, 12])
    """
    shift = starts - (np.cumsum(counts) - counts)
    return ids[np.repeat(shift, counts) + np.arange(counts.sum())]
