"""MASTER's keyword mask: words are drawn in proportion to a weight, rare ones first of all. Page: ideas/masking."""

import torch
from torch import Tensor

from dr_lib.errors import InputError
from dr_lib.masking.budget import Budget, piece_budget
from dr_lib.masking.words import first_pieces, ranked_keys, take_across
from dr_lib.tokens import TokenBatch


def keyword(
    batch: TokenBatch,
    weights: Tensor,
    rate: float,
    generator: torch.Generator,
    *,
    budget: Budget = "maskable",
) -> Tensor:
    """Draw one mask of whole words per passage, one word after the other with probability in proportion to its weight.

    Each draw is among the words not yet taken, which is the order of `log(weight)` plus Gumbel noise: one sort instead
    of a loop (MASTER, masked keywords prediction).

    Args:
        batch: passages; only `special`, `word_start` and `attention_mask` are read.
        weights: `[batch, length]` float, 0 or more; that of a word's first piece counts, other places are not read. A
            word of weight 0 comes after all others.
        rate: share of pieces to hide, in [0, 1]; 0 hides nothing.
        generator: on the batch's device; the same state gives the same mask.
        budget: the pieces that the rate refers to, `"maskable"` ones (as MASTER does) or `"all"`.

    Returns:
        `[batch, length]` bool, True at hidden pieces, never at special ones. The word that reaches the budget is hidden
        whole even where it passes it, as in the released code.

    Raises:
        InputError: the rate is outside [0, 1], `budget` is unknown, or the weights do not fit the batch.

    Paper and code: MASTER's code weighs each occurrence of a word by 1 / its count in the corpus, unknown words by 1.

    Example:
        >>> import torch
        >>> from dr_lib.masking import keyword
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 13, 3]])
        >>> special, ones, zeros = ids < 5, torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> keyword(batch, (ids == 12).float(), 0.3, torch.Generator().manual_seed(0)).long().tolist()
        [[0, 0, 1, 0, 0]]
    """
    limit = piece_budget(batch, rate, budget)
    if weights.shape != batch.special.shape:
        raise InputError(
            f"{tuple(weights.shape)} weights for {tuple(batch.special.shape)} pieces",
            where="weights",
            fix="Give one each.",
        )
    if rate == 0:
        return torch.zeros_like(batch.special)
    words = first_pieces(batch)
    lots = torch.rand(words.shape, generator=generator, device=words.device)
    waiting = lots.clamp_(min=torch.finfo(torch.float32).tiny).log_().neg_()  # exponential; its -log is Gumbel noise
    scores = weights.float().log() - waiting.log_()
    return take_across(ranked_keys(scores.gather(1, words), words, batch.special), limit)
