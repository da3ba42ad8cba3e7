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
from dr_lib.tokens.batch import TokenBatch

LONGEST = 4096
"""Bound on the pieces of a sequence: the number of a word shares one integer with its random priority."""


def words_of(batch: TokenBatch) -> Tensor:
    """Number of the word that each piece belongs to, `[batch, length]` int64 from 1 (0 before the first word)."""
    return batch.word_start.cumsum(1)


def first_pieces(batch: TokenBatch) -> Tensor:
    """Column of the first piece of each piece's word, `[batch, length]` int64 (0 before the first word)."""
    column = torch.arange(batch.word_start.shape[1], device=batch.word_start.device)
    return (column * batch.word_start).cummax(1).values


def random_keys(words: Tensor, special: Tensor, generator: torch.Generator) -> Tensor:
    """Keys for `take_words` that put the words in random order.

    A key is 31 bits, the word's number the low ones. What is left is random, 23 bits for passages below 256 pieces: two
    of 100 words draw the same bits in one passage of 1,700, and then the left one comes first.

    Args:
        words: `[batch, length]` int64 word numbers.
        special: `[batch, length]` bool, True where nothing may be taken.
        generator: on the same device.
    """
    rows, length = words.shape
    lots = torch.empty((rows, length + 1), dtype=torch.int32, device=words.device).random_(generator=generator)
    lots.bitwise_and_(-1 << _bits(words))
    return lots.gather(1, words).bitwise_or_(words.int()).masked_fill_(special, _last(lots.dtype))


def ranked_keys(scores: Tensor, words: Tensor, special: Tensor) -> Tensor:
    """Keys for `take_words` that put the words with the highest score first, equal ones from the left.

    Args:
        scores: `[batch, length]` float32 without NaN, equal for all pieces of a word.
        words: `[batch, length]` int64 word numbers below the length, rising from the left.
        special: `[batch, length]` bool, True where nothing may be taken.
    """
    as_integers = (-scores.float() + 0.0).view(torch.int32)
    # The bits of a negative float grow with its size: turn those over, so that the integers are in the floats' order.
    ordered = torch.where(as_integers < 0, as_integers ^ torch.iinfo(torch.int32).max, as_integers).long()
    return (ordered << _bits(words) | words).masked_fill_(special, _last(torch.int64))


def take_words(keys: Tensor, budget: Tensor) -> Tensor:
    """Take whole words, lowest key first, as long as they fit the budget.

    Args:
        keys: `[batch, length]` int32 or int64 from `random_keys` or `ranked_keys`: one value a word.
        budget: `[batch]` int64, most pieces to take.

    Returns:
        `[batch, length]` bool, True at the pieces taken.
    """
    # Pieces of a word are neighbours once sorted: all words before the one that crosses the budget are taken at once.
    last, length = _last(keys.dtype), keys.shape[1]
    ranked, order = sort_rows(keys)
    crossing = ranked.gather(1, budget.clamp(max=length - 1)[:, None])
    crossing.masked_fill_(budget[:, None] >= length, last)
    taken = keys < crossing
    left = (budget - taken.sum(1)).masked_fill_(crossing[:, 0] == last, 0)
    if order is None:
        take_shorter_on_cpu(taken, keys, ranked, crossing, left)
    else:
        take_shorter_on_device(taken, ranked, order, crossing, left)
    return taken


def take_across(keys: Tensor, budget: Tensor) -> Tensor:
    """Take whole words, lowest key first, until the budget is reached; the last one may pass it (MASTER's rule).

    Args and result as for `take_words`.
    """
    ranked, _ = sort_rows(keys)
    crossing = ranked.gather(1, (budget[:, None] - 1).clamp(max=keys.shape[1] - 1))
    return (keys <= crossing) & (keys != _last(keys.dtype))


def _bits(words: Tensor) -> int:
    """Bits that hold any word number of these sequences, with all ones to spare."""
    length = words.shape[1]
    if length >= LONGEST:
        raise InputError(f"{length} pieces in a sequence", where="batch", fix=f"Cut passages below {LONGEST} pieces.")
    return (length + 1).bit_length()


def _last(dtype: torch.dtype) -> int:
    """The key of special positions, above all others."""
    return torch.iinfo(dtype).max


def sort_rows(keys: Tensor) -> tuple[Tensor, Tensor | None]:
    """Sort each row, with the order on a GPU; on a CPU numpy's vectorised sort is ten times as fast as torch's."""
    if keys.device.type == "cpu":
        return torch.from_numpy(np.sort(keys.numpy(), axis=1)), None
    return keys.sort(dim=1)
