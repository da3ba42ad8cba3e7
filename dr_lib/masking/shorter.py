"""The last pieces of a mask's budget: later words that are short enough for what a too long word has left over.

One rule, two ways to work it out: few rows and an early end on a CPU, a fixed number of steps that never waits for the
result on a GPU. Both change `taken` in place. Page: ideas/masking.
"""

import math

import numpy as np
import torch
from torch import Tensor

AHEAD = np.arange(6)[:, None]
"""Words that a CPU looks at before it drops the rows that are full."""


def take_shorter_on_cpu(
    taken: np.ndarray, keys: np.ndarray, ranked: np.ndarray, budget: np.ndarray, rows: np.ndarray
) -> None:
    """Go through the words behind the one that overshoots, in the open rows only, until each is full or at its end.

    Args:
        taken: `[batch, length]` bool, the words before the one at the place `budget`; more are added.
        keys: `[batch, length]`, one value a word.
        ranked: `[batch, length]`, `keys` sorted along each row.
        budget: `[batch]`, most pieces to take.
        rows: the open rows: a word lies on both sides of the place `budget`.
    """
    budget, before = budget[rows], int(budget[rows].min()) - 1
    left = budget - taken.take(rows, 0).sum(1)
    starts, sizes, names, end = _words_in_line(ranked[rows, before:])
    word = starts.searchsorted(budget - before + np.arange(len(rows)) * (ranked.shape[1] - before + 1))
    added = []
    while len(rows):
        coming = np.minimum(word + AHEAD, end)
        fits = np.empty(coming.shape, bool)
        for size, fit in zip(sizes.take(coming), fits, strict=True):
            np.less_equal(size, left, out=fit)
            left -= size * fit
        step, some = fits.nonzero()
        added.append((rows[some], names[coming[step, some]]))
        word += len(AHEAD)
        going = ((left > 0) & (word < end)).nonzero()[0]
        rows, left, word, end = rows[going], left[going], word[going], end[going]
    rows, names = added[0] if len(added) == 1 else map(np.concatenate, zip(*added, strict=True))
    some, columns = np.divmod((keys.take(rows, 0) == names[:, None]).ravel().nonzero()[0], keys.shape[1])
    taken[rows[some], columns] = True


def _words_in_line(ranked: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Words of rows laid end to end, but for the first: where they begin, their pieces and their keys.

    Each row ends with a special word that is too long for any budget; last, the numbers of these words.
    """
    line = np.full((len(ranked), ranked.shape[1] + 1), np.iinfo(ranked.dtype).max, ranked.dtype)
    line[:, :-1] = ranked
    line = line.ravel()
    starts = (line[1:] != line[:-1]).nonzero()[0] + 1
    names = line.take(starts)
    end = (names == line[-1]).nonzero()[0]
    sizes = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=sizes[:-1])
    sizes[end] = line.size
    return starts, sizes, names, end


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
