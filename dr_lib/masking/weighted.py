"""Masks weighted by importance: CDMAE's importances, MASTER's keyword weights. Page:
ideas/masking.
"""

from typing import Literal

import torch
from torch import Tensor

from dr_lib.losses.checks import check_name, check_shapes
from dr_lib.masking.words import (
    check_rate,
    first_pieces,
    piece_budget,
    ranked_keys,
    take_across,
    take_words,
)
from dr_lib.tokens import TokenBatch
from dr_lib.tokens.store import widest_float


def importance(
    batch: TokenBatch,
    importances: Tensor,
    rate: float,
    generator: torch.Generator,
    *,
    noise: float = 1.0,
    noise_scale: Literal["absolute", "relative"] = "absolute",
    unit: Literal["word", "piece"] = "word",
) -> Tensor:
    """Hide the `max(1, floor(rate x pieces))` most important pieces, after adding noise (CDMAE,
    Algorithm 1).

    Args:
        batch: passages; only `special` and `word_start` are read.
        importances: `[batch, length]` float, the AMI of each piece's word; not modified. With
            `unit="word"` a word's first piece counts.
        rate: share of the maskable pieces to hide, in [0, 1]; 0 hides nothing.
        generator: on the batch's device; the same state gives the same mask.
        noise: standard deviation of the noise, 0 or more; 0 is deterministic, with ties broken from
            the left.
        noise_scale: `"absolute"`, in the unit of the importances (CDMAE: variance 1); `"relative"`,
            in standard deviations of the passage's own importances.
        unit: `"word"` draws noise once per word and hides whole words, skipping those that would
            exceed the budget; `"piece"` is Algorithm 1 literally.

    Returns:
        `[batch, length]` bool, True at hidden pieces, never at special ones; a passage without
        pieces has none.

    Paper and code: CDMAE has no public code; its equations speak of words, its algorithm of tokens,
    hence `unit`.

    Example:
        >>> import torch
        >>> from dr_lib.masking import importance
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 13, 14, 3]])
        >>> special, ones, zeros = ids < 5, torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> values = torch.tensor([[9.0, 0.1, 5.0, 0.2, 6.0, 9.0]])
        >>> importance(batch, values, 0.5, torch.Generator(), noise=0.0).long().tolist()
        [[0, 0, 1, 0, 1, 0]]
    """
    check_rate(rate)
    check_name("noise_scale", noise_scale, ("absolute", "relative"))
    check_name("unit", unit, ("word", "piece"))
    check_shapes(
        batch=(batch.special, "[rows, length]"), importances=(importances, "[rows, length]")
    )
    if rate == 0:
        return torch.zeros_like(batch.special)
    words = (
        first_pieces(batch)
        if unit == "word"
        else torch.arange(batch.special.shape[1], device=importances.device)
    )
    words = words.expand(batch.special.shape)
    scores = importances.float()
    if noise:
        draws = torch.randn(scores.shape, generator=generator, device=scores.device).mul_(noise)
        counted = batch.word_start if unit == "word" else ~batch.special
        scores = scores + (
            draws if noise_scale == "absolute" else draws.mul_(_spread(scores, counted))
        )
    keys = ranked_keys(scores.gather(1, words), words, batch.special)
    # The small constant corrects products such as 0.29 x 100 = 28.999...
    limit = (
        ((~batch.special).sum(1, dtype=widest_float(words.device)) * rate + 1e-9)
        .floor()
        .long()
        .clamp(min=1)
    )
    return take_words(keys, limit)


def _spread(values: Tensor, counted: Tensor) -> Tensor:
    """Standard deviation of the counted values of each row, `[batch, 1]`; 0 if there are none."""
    number = counted.sum(1, keepdim=True).clamp(min=1)
    mean = values.where(counted, 0).sum(1, keepdim=True) / number
    return ((values - mean).where(counted, 0).square().sum(1, keepdim=True) / number).sqrt()


def keyword(batch: TokenBatch, weights: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Draw a whole-word mask per passage, word after word with probability proportional to its
    weight.

    Sampling without replacement is the order of `log(weight)` plus Gumbel noise: one sort instead
    of a loop (MASTER, masked keywords prediction).

    Args:
        batch: passages; only `special`, `word_start` and `attention_mask` are read.
        weights: `[batch, length]` float, 0 or more; a word's first piece counts, other positions
            are not read. Words of weight 0 come last.
        rate: share of the maskable pieces to hide, in [0, 1]; 0 hides nothing.
        generator: on the batch's device; the same state gives the same mask.

    Returns:
        `[batch, length]` bool, True at hidden pieces, never at special ones. The word that reaches
        the budget is hidden whole even if it exceeds it, as in the released code.

    Paper and code: MASTER's code weighs each occurrence of a word by 1 / its count in the corpus,
    unknown words by 1.

    Example:
        >>> import torch
        >>> from dr_lib.masking import keyword
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 13, 3]])
        >>> special, ones, zeros = ids < 5, torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> keyword(
        ...     batch, (ids == 12).float(), 0.3, torch.Generator().manual_seed(0)
        ... ).long().tolist()
        [[0, 0, 1, 0, 0]]
    """
    check_shapes(batch=(batch.special, "[rows, length]"), weights=(weights, "[rows, length]"))
    limit = piece_budget(batch, rate)
    if rate == 0:
        return torch.zeros_like(batch.special)
    words = first_pieces(batch)
    draws = torch.rand(words.shape, generator=generator, device=words.device)
    # exponential; its -log is Gumbel noise
    waiting = draws.clamp_(min=torch.finfo(torch.float32).tiny).log_().neg_()
    scores = weights.float().log() - waiting.log_()
    return take_across(ranked_keys(scores.gather(1, words), words, batch.special), limit)
