"""Lay pieces out as padded sequences: ids, masks, token types and word borders of a whole batch without a loop.

Explained in the book's chapter on your own corpus.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dr_lib.tokens.batch import TokenBatch
from dr_lib.tokens.layout import Kept


@dataclass(frozen=True)
class Cut:
    """Which pieces of some rows stay, and where each lands.

    Attributes:
        rows: `[batch]` int64, rows of the store.
        kept: how many pieces of each title and body stay.
        title_from, body_from: `[batch]` int64, where they begin in the flat arrays of the store.
        width: padded length.
    """

    rows: np.ndarray
    kept: Kept
    title_from: np.ndarray
    body_from: np.ndarray
    width: int

    def take(self, titles: np.ndarray, bodies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What stays of two flat arrays that run beside the store's pieces, all rows end to end."""
        return gather(titles, self.title_from, self.kept.title), gather(bodies, self.body_from, self.kept.body)

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """`[batch, width]` bool twice: positions of title pieces, and of body pieces."""
        position = np.arange(self.width)[None, :]
        title_end = 1 + self.kept.title[:, None]
        body_start = title_end + self.kept.separate[:, None]
        in_title = (position >= 1) & (position < title_end)
        return in_title, (position >= body_start) & (position < self.kept.lengths[:, None] - 1)


def assemble(
    cut: Cut, titles: np.ndarray, bodies: np.ndarray, *, special: Mapping[str, int], continuation: np.ndarray
) -> TokenBatch:
    """Put the pieces of all titles and bodies in their places.

    Args:
        cut: what stays of which rows.
        titles, bodies: the pieces of all rows of the store, end to end.
        special: ids by name.
        continuation: `[vocab]` bool, True for pieces that continue a word.
    """
    kept, position = cut.kept, np.arange(cut.width)[None, :]
    body_start = 1 + kept.title[:, None] + kept.separate[:, None]
    real = position < kept.lengths[:, None]
    in_title, in_body = cut.places()
    content = in_title | in_body
    second = real & kept.separate[:, None] & (position >= body_start)

    ids = np.where(real, special["sep"], special["pad"]).astype(np.int64)
    ids[:, 0] = special["cls"]
    ids[in_title], ids[in_body] = cut.take(titles, bodies)
    # A piece that truncation cut off from the start of its word counts as a word, as in the papers' mask draw.
    first = (position == 1) | (position == body_start)
    return TokenBatch(
        input_ids=torch.from_numpy(ids),
        attention_mask=torch.from_numpy(real.astype(np.int64)),
        token_type_ids=torch.from_numpy(second.astype(np.int64)),
        special=torch.from_numpy(~content),
        word_start=torch.from_numpy(content & (first | ~continuation[ids])),
        rows=torch.from_numpy(cut.rows),
    )


def spread(cut: Cut, titles: np.ndarray, bodies: np.ndarray) -> Tensor:
    """Numbers that run beside the pieces, laid out as `assemble` lays out the pieces, 0 elsewhere.

    Args:
        cut: what stays of which rows.
        titles, bodies: a number for each piece of the store, end to end.

    Returns:
        `[batch, width]` float32.
    """
    values = np.zeros((len(cut.rows), cut.width), np.float32)
    in_title, in_body = cut.places()
    values[in_title], values[in_body] = cut.take(titles, bodies)
    return torch.from_numpy(values)


def gather(ids: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate `ids[start : start + count]` over all rows.

    Example:
        >>> gather(np.arange(10, 20), starts=np.array([7, 0]), counts=np.array([2, 3]))
        array([17, 18, 10, 11, 12])
    """
    shift = starts - (np.cumsum(counts) - counts)
    return ids[np.repeat(shift, counts) + np.arange(counts.sum())]
