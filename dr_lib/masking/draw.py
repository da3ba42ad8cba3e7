"""The draw that all masks share: take words in a given order until a budget of pieces is used up.

The rule of the whole-word collator behind SimLM, RetroMAE, Condenser and MASTER: a word that would
overshoot the budget is skipped, later and shorter ones may still be taken. Here it is worked out
for a whole batch at once, in two ways that give the same: on a CPU with few rows and an early end,
on a GPU in a fixed number of steps that never waits for a result. Page: ideas/masking.
"""

import math

import numpy as np
import torch
from torch import Tensor

from dr_lib.tokens import TokenBatch

AHEAD = np.arange(6)[:, None]
"""Words that a CPU looks at before it drops the rows that are full."""


def words_of(batch: TokenBatch) -> Tensor:
    """Number of the word that each piece belongs to, `[batch, length]` int64 from 1 (0 before the
    first word).
    """
    return batch.word_start.cumsum(1)


def first_pieces(batch: TokenBatch) -> Tensor:
    """Column of the first piece of each piece's word, `[batch, length]` int64 (0 before the first
    word).
    """
    column = torch.arange(batch.word_start.shape[1], device=batch.word_start.device)
    return (column * batch.word_start).cummax(1).values


def random_keys(
    special: Tensor, generator: torch.Generator, words: Tensor | None = None, draws: int = 1
) -> Tensor:
    """Keys for `take_words` that put the words in random order.

    A key is 31 random bits: two of 100 words draw the same in one passage of 400,000, and are then
    taken as one.

    Args:
        special: `[batch, length]` bool, True where nothing may be taken.
        generator: on the same device.
        words: `[batch, length]` int64, number of each piece's word; None for pieces that are words
            of their own.
        draws: orders to draw for each passage.

    Returns:
        `[batch * draws, length]` int32, those of one passage together.
    """
    (rows, length), device = special.shape, special.device
    if device.type == "cpu":  # each random number of 64 bits serves two words
        lots = torch.empty((rows, draws, length // 2 + 1), dtype=torch.int64)
        lots = (
            lots.random_(-(2**63), None, generator=generator)
            .view(torch.int32)
            .bitwise_right_shift_(1)
        )
    else:  # Apple's GPUs draw no more than 32
        lots = torch.empty((rows, draws, length + 1), dtype=torch.int32, device=device)
        lots.random_(torch.iinfo(torch.int32).max, generator=generator)
    keys = (
        lots[..., :length]
        if words is None
        else lots.gather(2, words[:, None].expand(rows, draws, length))
    )
    return _put_last(keys, special[:, None]).reshape(rows * draws, length)


def ranked_keys(scores: Tensor, words: Tensor, special: Tensor) -> Tensor:
    """Keys for `take_words` that put the words with the highest score first, equal ones from the
    left.

    Args:
        scores: `[batch, length]` float32 without NaN, equal for all pieces of a word.
        words: `[batch, length]` int64 word numbers below the length, rising from the left.
        special: `[batch, length]` bool, True where nothing may be taken.

    Returns:
        `[batch, length]` int64.
    """
    bits = (-scores.float() + 0.0).view(torch.int32)
    # The bits of a negative float grow with its size: turn those over, so that the integers are in
    # the floats' order.
    ordered = (bits ^ ((bits >> 31) & torch.iinfo(torch.int32).max)).long()
    room = (words.shape[1] + 1).bit_length()  # for any word number, all ones to spare
    return _put_last(ordered.bitwise_left_shift_(room).bitwise_or_(words), special)


def take_words(keys: Tensor, budget: Tensor) -> Tensor:
    """Take whole words, lowest key first, as long as they fit the budget.

    Args:
        keys: `[batch, length]` int32 or int64 from `random_keys` or `ranked_keys`: one value per
            word.
        budget: `[batch]` int64, most pieces to take, 1 or more where there are any.

    Returns:
        `[batch, length]` bool, True at the pieces taken.
    """
    # numpy works on several integers at a time where torch goes one by one
    if keys.device.type == "cpu":
        return torch.from_numpy(_take_on_cpu(keys.numpy(), budget.numpy()))
    return take_on_device(keys, budget)


def take_across(keys: Tensor, budget: Tensor) -> Tensor:
    """Take whole words, lowest key first, until the budget is reached; the last one may pass it
    (MASTER's rule).

    Args and result as for `take_words`.
    """
    last, length = torch.iinfo(keys.dtype).max, keys.shape[1]
    ranked = (
        torch.from_numpy(np.sort(keys.numpy(), axis=1))
        if keys.device.type == "cpu"
        else keys.sort(dim=1).values
    )
    crossing = ranked.gather(1, (budget[:, None] - 1).clamp_(max=length - 1))
    return keys < crossing.clamp_(max=last - 1).add_(1)


def _put_last(keys: Tensor, special: Tensor) -> Tensor:
    """`keys`, above all others where nothing may be taken; changed in place."""
    last = torch.iinfo(keys.dtype).max
    if keys.device.type == "cpu":
        np.copyto(keys.numpy(), last, where=special.numpy())
        return keys
    return keys.masked_fill_(special, last)


def _take_on_cpu(keys: np.ndarray, budget: np.ndarray) -> np.ndarray:
    length, last, every = keys.shape[1], np.iinfo(keys.dtype).max, np.arange(len(keys))
    ranked = np.sort(keys, axis=1)
    # Pieces of a word are neighbours once sorted: all words before the one that crosses the budget
    # are taken at once.
    crossing = np.where(budget < length, ranked[every, np.minimum(budget, length - 1)], last)
    taken = keys < crossing[:, None]
    open_rows = ((crossing == ranked[every, budget - 1]) & (crossing != last)).nonzero()[0]
    if len(open_rows):
        _take_shorter_on_cpu(taken, keys, ranked, budget, open_rows)
    return taken


def _take_shorter_on_cpu(
    taken: np.ndarray, keys: np.ndarray, ranked: np.ndarray, budget: np.ndarray, rows: np.ndarray
) -> None:
    """Go through the words behind the one that overshoots, in the open rows only, until each is
    full or at its end.

    Args:
        taken: `[batch, length]` bool, the words before the one at the place `budget`; more are
            added.
        keys: `[batch, length]`, one value per word.
        ranked: `[batch, length]`, `keys` sorted along each row.
        budget: `[batch]`, most pieces to take.
        rows: the open rows: a word lies on both sides of the place `budget`.
    """
    budget, before = budget[rows], int(budget[rows].min()) - 1
    left = budget - taken.take(rows, 0).sum(1)
    starts, sizes, names, end = _words_in_line(ranked[rows, before:])
    word = starts.searchsorted(
        budget - before + np.arange(len(rows)) * (ranked.shape[1] - before + 1)
    )
    added = []
    while len(rows):
        # A few words of every open row at once, then the rows that are full or at their end are
        # dropped.
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
    rows, names = map(np.concatenate, zip(*added, strict=True))
    some, columns = np.divmod(
        (keys.take(rows, 0) == names[:, None]).ravel().nonzero()[0], keys.shape[1]
    )
    taken[rows[some], columns] = True


def _words_in_line(ranked: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Words of rows laid end to end, but for the first: where they begin, their pieces and their
    keys.

    Each row ends with a special word that is too long for any budget; last, the numbers of these
    words.
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


def take_on_device(keys: Tensor, budget: Tensor) -> Tensor:
    """`take_words` without waiting for a result, for a GPU."""
    length, last = keys.shape[1], torch.iinfo(keys.dtype).max
    ranked, order = keys.sort(dim=1)
    crossing = ranked.gather(1, budget.clamp(max=length - 1)[:, None])
    crossing.masked_fill_(budget[:, None] >= length, last)
    taken = keys < crossing
    left = (budget - taken.sum(1)).masked_fill_(crossing[:, 0] == last, 0)
    free = (ranked > crossing) & (ranked != last)
    added = torch.zeros_like(free)
    size, to_come = _word_sizes(ranked)
    # Each round takes all words up to the next one that overshoots. Those are ever shorter, and
    # with what lies between them they fill the sequence, which bounds the rounds by the root of
    # twice its length.
    for _ in range(math.isqrt(2 * length) + 1):
        fits = free & (size <= left[:, None])
        now = fits & (fits.cumsum(1) + to_come <= left[:, None])
        added |= now
        free = fits & ~now
        left = left - now.sum(1)
    return taken | torch.zeros_like(taken).scatter_(1, order, added)


def _word_sizes(ranked: Tensor) -> tuple[Tensor, Tensor]:
    """Pieces of the word at each place of rows where words lie together, and how many of them are
    still to come.
    """
    length = ranked.shape[1]
    index = torch.arange(length, device=ranked.device).expand(ranked.shape)
    changes = ranked[:, 1:] != ranked[:, :-1]
    first, last = index.clone(), index.clone()
    first[:, 1:].masked_fill_(~changes, 0)
    last[:, :-1].masked_fill_(~changes, length - 1)
    start = first.cummax(1).values
    end = last.flip(1).cummin(1).values.flip(1)
    return end - start + 1, end - index
