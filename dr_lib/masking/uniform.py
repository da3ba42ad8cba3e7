"""Hide single pieces, each as likely as any other (BERT's first masks; CDMAE's encoder). Page: ideas/masking."""

import torch
from torch import Tensor

from dr_lib.masking.budget import Budget, piece_budget
from dr_lib.masking.words import random_keys, take_words
from dr_lib.tokens import TokenBatch


def uniform(batch: TokenBatch, rate: float, generator: torch.Generator, *, budget: Budget = "maskable") -> Tensor:
    """Draw exactly `max(1, round(rate x pieces))` pieces of each passage, without regard to words.

    Args:
        batch: passages; only `special` and `attention_mask` are read.
        rate: share of pieces to hide, in [0, 1]; 0 hides nothing, 1 everything but special positions.
        generator: on the batch's device; the same state gives the same mask.
        budget: the pieces that the rate refers to, `"maskable"` ones or `"all"`.

    Returns:
        `[batch, length]` bool, True at hidden pieces, never at special ones; a passage without pieces has none.

    Raises:
        InputError: the rate is outside [0, 1], or `budget` is unknown.

    Example:
        >>> import torch
        >>> from dr_lib.masking import uniform
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 13, 14, 3]])
        >>> special = (ids == 2) | (ids == 3)
        >>> ones, zeros = torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> uniform(batch, 0.5, torch.Generator().manual_seed(0)).sum().item()
        2
    """
    limit = piece_budget(batch, rate, budget)
    if rate == 0:
        return torch.zeros_like(batch.special)
    return take_words(random_keys(batch.special, generator), limit)
