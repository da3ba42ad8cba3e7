"""Many whole-word draws from one shuffle: each starts at another word of it and goes round (for RetroMAE's rows).

A rotated random order is a random order, so each draw has the law of `whole_word`; draws of one passage overlap as
their starts lie. Page: ideas/masking.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dr_lib.masking.shorter import word_sizes
from dr_lib.masking.words import random_keys, sort_rows, words_of
from dr_lib.tokens.batch import TokenBatch

RING = 2**16
"""Places of a passage are stretched to a ring of this size, on which 16-bit integers subtract without overflow."""
CACHED = 2**18
"""Pairs of row and column that a CPU works on at a time."""


@dataclass(frozen=True)
class Shuffle:
    """The pieces of each passage in random order of their words, laid out twice so that a round needs no wrapping.

    Attributes:
        pieces: `[batch, 1]` int64, maskable pieces.
        place: `[batch, length]` int64, where each column's piece went (any number at special columns).
        column: `[batch, 2 * length + 1]` int64, the column of the piece at each place.
        start: `[batch, 2 * length + 1]` int64, place of the first piece of the word at each place.
        size: `[batch, 2 * length + 1]` int64, pieces of the word at each place.
        words: `[batch, length]` int64, place of each word's first piece, in order.
        count: `[batch, 1]` int64, words.
    """

    pieces: Tensor
    place: Tensor
    column: Tensor
    start: Tensor
    size: Tensor
    words: Tensor
    count: Tensor


def go_round(batch: TokenBatch, limit: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a mask for each row of each passage.

    Args:
        batch: passages of fewer than 4,096 pieces.
        limit: `[batch]` int64, most pieces to take.
        generator: on the batch's device, whose results are waited for.

    Returns:
        `[batch, length, length]` bool, True at the pieces taken.
    """
    shuffle = _shuffle(batch, generator)
    lots = torch.rand(batch.special.shape, generator=generator, device=limit.device)
    begin = shuffle.words.gather(1, lots.mul_(shuffle.count).long())
    most = torch.minimum(limit[:, None], shuffle.pieces)
    # All words before the one that crosses the budget.
    crossing = shuffle.start.gather(1, begin + most)
    taken = _between(shuffle, begin, crossing, ~batch.special)
    _take_shorter(taken, shuffle, begin + shuffle.pieces, crossing, begin + most - crossing)
    return taken


def _shuffle(batch: TokenBatch, generator: torch.Generator) -> Shuffle:
    rows, length = batch.special.shape
    index = torch.arange(length, device=batch.special.device)
    keys = random_keys(batch.special, generator, words_of(batch)).long().bitwise_left_shift_(12).bitwise_or_(index)
    ranked = sort_rows(keys)[0]
    column = ranked & 0xFFF
    size, to_come = word_sizes(ranked >> 12)
    start = index + 1 + to_come - size
    pieces = length - batch.special.sum(1, keepdim=True)
    order = (start == index).cumsum(1)
    # Special pieces lie behind the others and count as one word more, which is cut off where there are others.
    words = torch.zeros(rows, length + 1, dtype=torch.int64, device=index.device).scatter_(1, order, start)[:, 1:]
    twice = torch.arange(2 * length + 1, device=index.device)
    shift = (twice >= pieces) * pieces
    back = (twice - shift).clamp_(max=length - 1)
    return Shuffle(
        pieces=pieces,
        place=torch.empty_like(column).scatter_(1, column, index.expand(rows, length)),
        column=column.gather(1, back),
        start=start.gather(1, back).add_(shift),
        size=size.gather(1, back),
        words=words,
        count=order[:, -1:] - (pieces < length).long(),
    )


def _between(shuffle: Shuffle, begin: Tensor, end: Tensor, maskable: Tensor) -> Tensor:
    """`[batch, length, length]` bool, True at maskable columns whose place is in the row's `[begin, end)`."""
    pieces = shuffle.pieces.clamp(min=1)

    def on_ring(places: Tensor) -> Tensor:
        return (places * RING).div(pieces, rounding_mode="floor")

    # Distance from `begin`, going round, lowered by half the ring so that signed integers compare like unsigned ones.
    first = on_ring(begin)
    reach = (on_ring(end) - first).clamp_(max=RING - 1).sub_(RING // 2).short()[:, :, None]
    first, place = first.add_(RING // 2).short()[:, :, None], on_ring(shuffle.place).short()[:, None]
    if begin.device.type != "cpu":
        return (place - first < reach).logical_and_(maskable[:, None])
    # numpy compares 16-bit integers several at a time, torch one by one.
    places, firsts, reaches, allowed = (t.numpy() for t in (place, first, reach, maskable[:, None]))
    taken = np.empty((*begin.shape, begin.shape[1]), bool)
    step = max(1, CACHED // taken[0].size)
    for some in (slice(start, start + step) for start in range(0, len(taken), step)):
        np.less(places[some] - firsts[some], reaches[some], out=taken[some])
        taken[some] &= allowed[some]
    return torch.from_numpy(taken)


def _take_shorter(taken: Tensor, shuffle: Shuffle, last: Tensor, crossing: Tensor, left: Tensor) -> None:
    """Add to each row the next words behind the crossing one, before `last`, that fit what is left of its budget."""
    length, width = taken.shape[1], shuffle.size.shape[1]
    sizes, columns, taken = shuffle.size.flatten(), shuffle.column.flatten(), taken.flatten()
    row = left.flatten().nonzero()[:, 0]
    left, last, here = (t.flatten()[row] for t in (left, last, crossing))
    offset = row // length * width
    here = here + sizes[offset + here]
    while len(row):
        size = sizes[offset + here]
        fits = (size <= left) & (here < last)
        size_taken = size.where(fits, 0)
        for piece in range(int(size_taken.max())):
            some = (size_taken > piece).nonzero()[:, 0]
            taken[row[some] * length + columns[offset[some] + here[some] + piece]] = True
        left, here = left - size_taken, here + size
        going = ((left > 0) & (here < last)).nonzero()[:, 0]
        row, offset, left, last, here = (t[going] for t in (row, offset, left, last, here))
