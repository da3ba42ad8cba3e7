"""The draw that all masks share: take words in a given order until a budget of pieces is used up.

The rule of the whole-word collator behind SimLM, RetroMAE, Condenser and MASTER: a word that would overshoot the budget
is skipped, later and shorter ones may still be taken. Here it is worked out for a whole batch at once.
Page: ideas/masking.
"""

import numpy as np
import torch
from torch import Tensor

from dr_lib.errors import InputError
from dr_lib.masking.shorter import take_shorter_on_cpu, take_shorter_on_device
from dr_lib.tokens import TokenBatch

LONGEST = 4096
"""Bound on the pieces of a sequence: the number of a word shares one integer with its random priority."""


def words_of(batch: TokenBatch) -> Tensor:
    """Number of the word that each piece belongs to, `[batch, length]` int64 from 1 (0 before the first word)."""
    return batch.word_start.cumsum(1)


def first_pieces(batch: TokenBatch) -> Tensor:
    """Column of the first piece of each piece's word, `[batch, length]` int64 (0 before the first word)."""
    column = torch.arange(batch.word_start.shape[1], device=batch.word_start.device)
    return (column * batch.word_start).cummax(1).values


def random_keys(special: Tensor, generator: torch.Generator, words: Tensor | None = None) -> Tensor:
    """Keys for `take_words` that put the words in random order.

    A key is 31 random bits: two of 100 words draw the same in one passage of 400,000, and are then taken as one.

    Args:
        special: `[batch, length]` bool, True where nothing may be taken.
        generator: on the same device.
        words: `[batch, length]` int64, number of each piece's word; None for pieces that are words of their own.

    Returns:
        `[batch, length]` int32.
    """
    rows, length = special.shape
    # Each random number of 64 bits serves two words.
    lots = torch.empty((rows, length // 2 + 1), dtype=torch.int64, device=special.device)
    lots = lots.random_(-(2**63), None, generator=generator).view(torch.int32).bitwise_right_shift_(1)
    return _closed(lots[:, :length] if words is None else lots.gather(1, words), special)


def ranked_keys(scores: Tensor, words: Tensor, special: Tensor) -> Tensor:
    """Keys for `take_words` that put the words with the highest score first, equal ones from the left.

    Args:
        scores: `[batch, length]` float32 without NaN, equal for all pieces of a word.
        words: `[batch, length]` int64 word numbers below the length, rising from the left.
        special: `[batch, length]` bool, True where nothing may be taken.
    """
    bits = (-scores.float() + 0.0).view(torch.int32)
    # The bits of a negative float grow with its size: turn those over, so that the integers are in the floats' order.
    ordered = (bits ^ ((bits >> 31) & torch.iinfo(torch.int32).max)).long()
    return _closed(ordered.bitwise_left_shift_(_bits(words)).bitwise_or_(words), special)


def take_words(keys: Tensor, budget: Tensor) -> Tensor:
    """Take whole words, lowest key first, as long as they fit the budget.

    Args:
        keys: `[batch, length]` int32 or int64 from `random_keys` or `ranked_keys`: one value a word.
        budget: `[batch]` int64, most pieces to take, 1 or more where there are any.

    Returns:
        `[batch, length]` bool, True at the pieces taken.
    """
    if keys.device.type == "cpu":
        return torch.from_numpy(_take_on_cpu(keys.numpy(), budget.numpy()))
    return take_on_device(keys, budget)


def _take_on_cpu(keys: np.ndarray, budget: np.ndarray) -> np.ndarray:
    """`take_words` in numpy, which works on several integers at a time where torch goes one by one."""
    length, last, every = keys.shape[1], np.iinfo(keys.dtype).max, np.arange(len(keys))
    ranked = np.sort(keys, axis=1)
    # Pieces of a word are neighbours once sorted: all words before the one that crosses the budget are taken at once.
    crossing = np.where(budget < length, ranked[every, np.minimum(budget, length - 1)], last)
    taken = keys < crossing[:, None]
    cut = ((crossing == ranked[every, budget - 1]) & (crossing != last)).nonzero()[0]
    if len(cut):
        take_shorter_on_cpu(taken, keys, ranked, budget, cut)
    return taken


def take_on_device(keys: Tensor, budget: Tensor) -> Tensor:
    """`take_words` without waiting for a result."""
    length, last = keys.shape[1], _last(keys.dtype)
    ranked, order = keys.sort(dim=1)
    crossing = ranked.gather(1, budget.clamp(max=length - 1)[:, None])
    crossing.masked_fill_(budget[:, None] >= length, last)
    taken = keys < crossing
    left = (budget - taken.sum(1)).masked_fill_(crossing[:, 0] == last, 0)
    take_shorter_on_device(taken, ranked, order, crossing, left)
    return taken


def take_across(keys: Tensor, budget: Tensor) -> Tensor:
    """Take whole words, lowest key first, until the budget is reached; the last one may pass it (MASTER's rule).

    Args and result as for `take_words`.
    """
    crossing = _sorted(keys).gather(1, (budget[:, None] - 1).clamp_(max=keys.shape[1] - 1))
    return _below(keys, crossing.clamp_(max=_last(keys.dtype) - 1).add_(1))


def _below(keys: Tensor, bound: Tensor) -> Tensor:
    """`keys < bound`; numpy compares several integers at a time, torch one by one on a CPU."""
    if keys.device.type == "cpu":
        return torch.from_numpy(keys.numpy() < bound.numpy())
    return keys < bound


def _closed(keys: Tensor, special: Tensor) -> Tensor:
    """`keys`, put last where nothing may be taken; changed in place."""
    if keys.device.type == "cpu":
        np.copyto(keys.numpy(), _last(keys.dtype), where=special.numpy())
        return keys
    return keys.masked_fill_(special, _last(keys.dtype))


def _bits(words: Tensor) -> int:
    """Bits that hold any word number of these sequences, with all ones to spare."""
    length = words.shape[1]
    if length >= LONGEST:
        raise InputError(f"{length} pieces in a sequence", where="batch", fix=f"Cut passages below {LONGEST} pieces.")
    return (length + 1).bit_length()


def _last(dtype: torch.dtype) -> int:
    """The key of special positions, above all others."""
    return torch.iinfo(dtype).max


def _sorted(keys: Tensor) -> Tensor:
    """Each row sorted; on a CPU numpy's vectorised sort is ten times as fast as torch's."""
    if keys.device.type == "cpu":
        return torch.from_numpy(np.sort(keys.numpy(), axis=1))
    return keys.sort(dim=1).values
