"""Hide whole words, chosen at random: the mask of SimLM, RetroMAE, Condenser and MASTER. Page: ideas/masking."""

import torch
from torch import Tensor

from dr_lib.masking.budget import Budget, piece_budget
from dr_lib.masking.words import random_keys, take_words, words_of
from dr_lib.tokens import TokenBatch


def whole_word(batch: TokenBatch, rate: float, generator: torch.Generator, *, budget: Budget = "maskable") -> Tensor:
    """Draw one mask of whole words per passage.

    Words are taken in random order until `max(1, round(rate x pieces))` pieces are hidden. A word that would overshoot
    is skipped and a later, shorter one may be taken, so the count is never above the budget, and below it only where
    nothing more fits: a passage whose every word is longer than the budget keeps an empty mask, as in the released
    codes.

    Args:
        batch: passages; only `special`, `word_start` and `attention_mask` are read.
        rate: share of pieces to hide, in [0, 1]; 0 hides nothing.
        generator: on the batch's device; the same state gives the same mask.
        budget: the pieces that the rate refers to, `"maskable"` ones or `"all"`.

    Returns:
        `[batch, length]` bool, True at hidden pieces, never at special ones.

    Raises:
        InputError: the rate is outside [0, 1], or `budget` is unknown.

    Paper and code: SimLM's and RetroMAE's code counts [CLS] and [SEP] in the budget (`"all"`), so that their 30 % is 31
    to 32 % of the maskable pieces of a passage; Condenser's and MASTER's does not. All cap the budget at 512 pieces,
    which only longer passages could notice; here there is no cap.

    Example:
        >>> import torch
        >>> from dr_lib.masking import whole_word
        >>> from dr_lib.tokens import TokenBatch
        >>> special = torch.tensor([[True, False, False, False, False, True]])
        >>> starts = torch.tensor([[False, True, True, False, True, False]])
        >>> ids = torch.tensor([[2, 11, 12, 13, 14, 3]])
        >>> ones, zeros = torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=starts, rows=torch.arange(1))
        >>> whole_word(batch, 0.25, torch.Generator().manual_seed(0)).sum().item()
        1
    """
    limit = piece_budget(batch, rate, budget)
    if rate == 0:
        return torch.zeros_like(batch.special)
    return take_words(random_keys(batch.special, generator, words_of(batch)), limit)
