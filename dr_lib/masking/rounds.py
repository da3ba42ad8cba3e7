"""Many whole-word draws from one shuffle: each starts at another word of it and goes round (for RetroMAE's rows).

A rotated random order is a random order, so each draw has the law of `whole_word`; draws of one passage overlap as
their starts lie. On a GPU each row is a draw of its own; on a CPU a row's mask is the difference of two prefixes of the
shuffle, kept as bits. Page: ideas/masking.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dr_lib.masking.words import random_keys, take_on_device, words_of
from dr_lib.tokens import TokenBatch


def go_round(batch: TokenBatch, limit: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a mask for each row of each passage.

    Args:
        batch: passages of fewer than 4,096 pieces.
        limit: `[batch]` int64, most pieces to take.
        generator: on the batch's device.

    Returns:
        `[batch, length, length]` bool, True at the pieces taken, at padding and at each row's own place.
    """
    keys = random_keys(batch.special, generator, words_of(batch))
    lots = torch.rand(keys.shape, generator=generator, device=keys.device)
    padding = batch.attention_mask == 0
    if keys.device.type == "cpu":
        return torch.from_numpy(rounds_on_cpu(*(t.numpy() for t in (keys, limit, lots, padding))))
    return rounds_on_device(keys, limit, lots, padding)


def never_seen(hidden: Tensor, padding: Tensor) -> Tensor:
    """`hidden` `[batch, length, length]` with `padding` `[batch, length]` and each row's own place, in place."""
    hidden |= padding[:, None]
    hidden.diagonal(dim1=1, dim2=2).fill_(True)
    return hidden


def rounds_on_device(keys: Tensor, limit: Tensor, lots: Tensor, padding: Tensor) -> Tensor:
    """Take whole words for each row, in the order of the keys from the row's start on, without waiting for a result.

    Args:
        keys: `[batch, length]` int32 from `random_keys`.
        limit: `[batch]` int64, most pieces to take.
        lots: `[batch, length]` float32 in [0, 1), the start of each row as a share of the words.
        padding: `[batch, length]` bool, columns that no row may see.

    Returns:
        As `go_round`.
    """
    last, length = torch.iinfo(keys.dtype).max, keys.shape[1]
    ranked, order = keys.sort(dim=1)
    rank = torch.zeros_like(keys)
    rank[:, 1:] = (ranked[:, 1:] != ranked[:, :-1]).cumsum(1)
    rank = torch.empty_like(rank).scatter_(1, order, rank).masked_fill_(keys == last, -1)
    words = rank.amax(1, keepdim=True) + 1
    begin = (lots * words).int()
    turned = (rank[:, None] - begin[:, :, None]) % words.clamp(min=1)[:, :, None]
    turned.masked_fill_((keys == last)[:, None], last)
    taken = take_on_device(turned.flatten(0, 1), limit.repeat_interleave(length)).view(turned.shape)
    return never_seen(taken, padding)


@dataclass(frozen=True)
class Shuffle:
    """The words of all passages in random order, laid end to end; a passage's special pieces are one word at its end.

    Attributes:
        column: `[batch, length]` int64, the column of the piece at each place.
        pieces: `[batch]` int64, maskable pieces.
        first, count: `[batch]` int64, number of the first word and how many words there are, special ones aside.
        word: `[batch * length]` int64, number of the word at each place.
        owner, start, size, following: `[words]` int64, the word's passage, the place of its first piece, its pieces,
            and the word behind it, which for the last one of a passage is the first.
    """

    column: np.ndarray
    pieces: np.ndarray
    first: np.ndarray
    count: np.ndarray
    word: np.ndarray
    owner: np.ndarray
    start: np.ndarray
    size: np.ndarray
    following: np.ndarray


def rounds_on_cpu(keys: np.ndarray, limit: np.ndarray, lots: np.ndarray, padding: np.ndarray) -> np.ndarray:
    """The same as `rounds_on_device`: one mask for each word that a row may start at, of which each row picks one."""
    shuffle, length = _shuffled(keys), keys.shape[1]
    masks = _masks_by_start(shuffle, limit)
    begin = shuffle.first[:, None] + (lots * shuffle.count[:, None].astype(np.float32)).astype(np.int64)
    bits = masks.take(begin, 0)
    bits |= _packed(padding)[:, None]
    bits |= _packed(np.eye(length, dtype=bool))
    return np.unpackbits(bits.view(np.uint8), axis=-1, count=length, bitorder="little").view(bool)


def _packed(columns: np.ndarray) -> np.ndarray:
    """`[rows, length]` bool as bits, `[rows, length / 64]` uint64, the first column the lowest."""
    rows, length = columns.shape
    found = np.zeros((rows, -(-length // 64) * 8), np.uint8)
    found[:, : -(-length // 8)] = np.packbits(columns, axis=1, bitorder="little")
    return found.view("<u8")


def _shuffled(keys: np.ndarray) -> Shuffle:
    rows, length = keys.shape
    ranked = np.sort(keys.astype(np.int64) << 12 | np.arange(length), axis=1)
    begins = np.ones(keys.shape, bool)
    np.not_equal(ranked[:, 1:] >> 12, ranked[:, :-1] >> 12, out=begins[:, 1:])
    start = begins.ravel().nonzero()[0]
    size = np.diff(start, append=keys.size)
    word = np.repeat(np.arange(len(start)), size)
    origin, pieces = np.arange(rows) * length, (keys != np.iinfo(keys.dtype).max).sum(1)
    first, last = word[origin], word[origin + np.maximum(pieces, 1) - 1]
    following = np.arange(1, len(start) + 1)
    following[last] = first
    count = (last - first + 1) * (pieces > 0)
    return Shuffle(ranked & 0xFFF, pieces, first, count, word, start // length, start, size, following)


def _masks_by_start(shuffle: Shuffle, limit: np.ndarray) -> np.ndarray:
    """`[words, length / 64]` uint64: what a round from each word on takes, the columns as bits from the lowest."""
    owner, start, pieces = shuffle.owner, shuffle.start, shuffle.pieces
    rows, length = shuffle.column.shape
    prefixes = _prefixes(shuffle.column)
    before = prefixes.take(start + owner, 0)
    whole = prefixes[np.arange(rows) * (length + 1) + pieces].take(owner, 0)
    # The word that crosses the budget; a round that comes to the end of its passage goes on at the beginning.
    place = start + np.minimum(limit, pieces).take(owner)
    over = place >= (np.arange(rows) * length + pieces).take(owner)
    place -= over * pieces.take(owner)
    crossing = shuffle.word.take(place)
    masks = before ^ np.concatenate((before, before ^ whole)).take(crossing + over * len(start), 0)
    left = place - start.take(crossing)
    left[start - owner * length >= pieces.take(owner)] = 0
    _take_shorter(masks, shuffle, prefixes, crossing, left)
    return masks


def _prefixes(column: np.ndarray) -> np.ndarray:
    """`[batch * (length + 1), length / 64]` uint64: columns of each passage's first 0, 1, ... places as bits."""
    rows, length = column.shape
    single = _packed(np.eye(length, dtype=bool))
    prefixes = np.zeros((rows, length + 1, single.shape[1]), "<u8")
    np.bitwise_xor.accumulate(single.take(column, 0), axis=1, out=prefixes[:, 1:])
    return prefixes.reshape(-1, single.shape[1])


def _take_shorter(
    masks: np.ndarray, shuffle: Shuffle, prefixes: np.ndarray, crossing: np.ndarray, left: np.ndarray
) -> None:
    """Add to each round the next words behind the crossing one that fit what is left of its budget."""
    begin = left.nonzero()[0]
    left, here = left[begin], shuffle.following[crossing[begin]]
    while len(begin):
        size = shuffle.size.take(here)
        fits = ((size <= left) & (here != begin)).nonzero()[0]
        word, size = here[fits], size[fits]
        place = shuffle.start[word] + shuffle.owner[word]
        masks[begin[fits]] ^= prefixes.take(place, 0) ^ prefixes.take(place + size, 0)
        left[fits] -= size
        going = ((left > 0) & (here != begin)).nonzero()[0]
        begin, left, here = begin[going], left[going], shuffle.following[here[going]]
