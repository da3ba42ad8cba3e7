"""The last pieces of a mask's budget: later words that are short enough for what a too long word has left over.

One rule, two ways to work it out: few rows and an early end on a CPU, a fixed number of steps that never waits for the
result on a GPU. Both change `taken` in place. Page: ideas/masking.
"""

import math

import numpy as np
import torch
from torch import Tensor


def take_shorter_on_cpu(taken: Tensor, keys: Tensor, ranked: Tensor, crossing: Tensor, left: Tensor) -> None:
    """Give each open row its next word that fits, until none does: fewer rounds than the longest word has pieces.

    Args:
        taken: `[batch, length]` bool, the words before the crossing one; more are added.
        keys: `[batch, length]`, one value a word.
        ranked: `keys` sorted along each row.
        crossing: `[batch, 1]`, key of the word that overshoots.
        left: `[batch]`, what the words taken have left of the budget; 0 where the row is done.
    """
    rows = left.numpy().nonzero()[0]
    if not len(rows):
        return
    keys, ranked, crossing, left = (t.numpy()[rows] for t in (keys, ranked, crossing, left))
    sizes = _sizes_where_words_begin(ranked)
    too_long = ranked.shape[1] + 1
    sizes[(ranked <= crossing) | (ranked == np.iinfo(ranked.dtype).max)] = too_long
    added, every = np.zeros(keys.shape, bool), np.arange(len(rows))
    while True:
        fits = sizes <= left[:, None]
        place = fits.argmax(1)
        found = fits[every, place]
        if not found.any():
            break
        left -= np.where(found, sizes[every, place], 0)
        added |= (keys == ranked[every, place, None]) & found[:, None]
        sizes[every, place] = too_long
    taken.numpy()[rows] |= added


def _sizes_where_words_begin(ranked: np.ndarray) -> np.ndarray:
    """Pieces of the word that begins at each place of rows where words lie together; elsewhere more than fit a row."""
    begins = np.ones(ranked.shape, bool)
    np.not_equal(ranked[:, 1:], ranked[:, :-1], out=begins[:, 1:])
    places = np.flatnonzero(begins)
    sizes = np.full(ranked.shape, ranked.shape[1] + 1, np.int16)
    sizes.ravel()[places] = np.diff(places, append=ranked.size)
    return sizes


def take_shorter_on_device(taken: Tensor, ranked: Tensor, order: Tensor, crossing: Tensor, left: Tensor) -> None:
    """The same without reading a result: in each round all words up to the next one that overshoots.

    The words that overshoot are ever shorter, and with what lies between them they fill the sequence, which bounds the
    rounds by the root of twice its length.

    Args:
        taken, ranked, crossing, left: as for `take_shorter_on_cpu`.
        order: `[batch, length]` int64, the column that each place of `ranked` came from.
    """
    free = (ranked > crossing) & (ranked != torch.iinfo(ranked.dtype).max)
    added = torch.zeros_like(free)
    size, to_come = word_sizes(ranked)
    for _ in range(math.isqrt(2 * ranked.shape[1]) + 1):
        fits = free & (size <= left[:, None])
        now = fits & (fits.cumsum(1) + to_come <= left[:, None])
        added |= now
        free = fits & ~now
        left = left - now.sum(1)
    taken |= torch.zeros_like(taken).scatter_(1, order, added)


def word_sizes(ranked: Tensor) -> tuple[Tensor, Tensor]:
    """Pieces of the word at each place of rows where words lie together, and how many of them are still to come."""
    length = ranked.shape[1]
    index = torch.arange(length, device=ranked.device).expand(ranked.shape)
    changes = ranked[:, 1:] != ranked[:, :-1]
    first, last = index.clone(), index.clone()
    first[:, 1:].masked_fill_(~changes, 0)
    last[:, :-1].masked_fill_(~changes, length - 1)
    start = first.cummax(1).values
    end = last.flip(1).cummin(1).values.flip(1)
    return end - start + 1, end - index
