"""The draw that all masks share: take words in a given order until a budget of pieces is used up.

The rule of the whole-word collator behind SimLM, RetroMAE, Condenser and MASTER: a word that would overshoot the budget
is skipped, later and shorter ones may still be taken. Here it is worked out for a whole batch at once.
Page: ideas/masking.
"""

import math

import numpy as np
import torch
from torch import Tensor

from dr_lib.errors import InputError
from dr_lib.tokens.batch import TokenBatch

BITS = 12
"""Bits of a sort key that hold a word's number or a piece's column, so sequences are shorter than 4,096 pieces."""
LAST = torch.iinfo(torch.int64).max


def words_of(batch: TokenBatch) -> Tensor:
    """Number of the word that each piece belongs to, `[batch, length]` int64 from 0, without meaning at special ones.

    A piece that opens a stretch of text opens a word even if it continues one by its spelling.
    """
    opens = batch.word_start | batch.special.roll(1, dims=1)
    return (opens & ~batch.special).cumsum(1).sub_(1).clamp_(min=0)


def random_priorities(like: Tensor, generator: torch.Generator) -> Tensor:
    """Independent uniform 39-bit integers, one per position of `like`, int64."""
    return torch.empty_like(like, dtype=torch.int64).random_(generator=generator) >> 2 * BITS


def take_words(priorities: Tensor, words: Tensor, special: Tensor, budget: Tensor) -> Tensor:
    """Take whole words, lowest priority value first, as long as they fit the budget.

    Args:
        priorities: `[batch, length]` int64 of at most 39 bits, equal for all pieces of a word.
        words: `[batch, length]` int64 word numbers, which also settle ties (lower first).
        special: `[batch, length]` bool, True where nothing may be taken.
        budget: `[batch]` int64, most pieces to take.

    Returns:
        `[batch, length]` bool, True at the pieces taken.

    Raises:
        InputError: the sequences are too long for the keys.
    """
    length = words.shape[1]
    if length >= 2**BITS:
        raise InputError(f"{length} pieces in a sequence", where="batch", fix=f"Cut passages below {2**BITS} pieces.")
    column = torch.arange(length, device=words.device)
    keys = ((priorities << BITS | words) << BITS | column).masked_fill_(special, LAST)
    ranked = _sort_rows(keys)

    # Pieces of a word are neighbours in `ranked`: everything before the word that crosses the budget is taken at once.
    maskable = length - special.sum(1)
    crossing = ranked.gather(1, budget.clamp(max=length - 1)[:, None]) >> BITS << BITS
    taken = keys < torch.where((budget < maskable)[:, None], crossing, LAST)
    left = torch.where(budget < maskable, budget - taken.sum(1), 0)
    return _take_shorter(taken, ranked, left)


def _take_shorter(taken: Tensor, ranked: Tensor, left: Tensor) -> Tensor:
    """Fill what is left of each budget with later words that still fit."""
    rows = slice(None)
    if left.device.type == "cpu":  # reading a GPU's tensor would stall it, so there all rows go on
        rows = left.nonzero()[:, 0]
        if not len(rows):
            return taken
    ranked, left = ranked[rows], left[rows]
    columns = (ranked & (2**BITS - 1)).clamp(max=ranked.shape[1] - 1)
    size, to_end = _word_sizes(ranked >> BITS)
    free = ~taken[rows].gather(1, columns) & (ranked != LAST)
    added = torch.zeros_like(free)
    # Each round ends at a word that overshoots; those words are ever shorter, and with what lies between they fill the
    # sequence, hence the bound.
    for _ in range(math.isqrt(2 * ranked.shape[1]) + 1):
        fits = free & (size <= left[:, None])
        now = fits & (fits.cumsum(1) + to_end <= left[:, None])
        added |= now
        free = fits & ~now
        left = left - now.sum(1)
        if left.device.type == "cpu" and not bool(left.any() and free.any()):
            break
    taken[rows] |= torch.zeros_like(added).scatter_(1, columns, added)
    return taken


def _word_sizes(words: Tensor) -> tuple[Tensor, Tensor]:
    """Pieces of the word at each place of rows where words lie together, and how many of them are still to come."""
    length = words.shape[1]
    index = torch.arange(length, device=words.device).expand_as(words)
    changes = words[:, 1:] != words[:, :-1]
    first, last = index.clone(), index.clone()
    first[:, 1:].masked_fill_(~changes, 0)
    last[:, :-1].masked_fill_(~changes, length - 1)
    start = first.cummax(1).values
    end = last.flip(1).cummin(1).values.flip(1)
    return end - start + 1, end - index


def _sort_rows(keys: Tensor) -> Tensor:
    """Sort each row; on a CPU numpy's vectorised sort is some ten times as fast as torch's."""
    if keys.device.type == "cpu":
        return torch.from_numpy(np.sort(keys.numpy(), axis=1))
    return keys.sort(dim=1).values
