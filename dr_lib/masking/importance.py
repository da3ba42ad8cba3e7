"""CDMAE's importance-aware mask: the pieces that carry most are hidden, with a little noise (Algorithm 1).

Page: ideas/masking.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from dr_lib.errors import InputError, check_share
from dr_lib.masking.words import first_pieces, ranked_keys, take_words
from dr_lib.tokens import TokenBatch

NoiseScale = Literal["absolute", "relative"]
Unit = Literal["word", "piece"]


def importance(
    batch: TokenBatch,
    importances: Tensor,
    rate: float,
    generator: torch.Generator,
    *,
    noise: float = 1.0,
    noise_scale: NoiseScale = "absolute",
    unit: Unit = "word",
) -> Tensor:
    """Hide the `max(1, floor(rate x pieces))` most important pieces after Gaussian noise was added to each importance.

    Args:
        batch: passages; only `special` and `word_start` are read.
        importances: `[batch, length]` float, the AMI of each piece's word; left as they are. With `unit="word"` that of
            a word's first piece counts.
        rate: share of the maskable pieces to hide, in [0, 1]; 0 hides nothing.
        generator: on the batch's device; the same state gives the same mask.
        noise: standard deviation of the noise, 0 or more; 0 gives the same mask always, equal values from the left.
        noise_scale: `"absolute"`, in the unit of the importances (CDMAE: variance 1); `"relative"`, in standard
            deviations of the passage's own importances.
        unit: `"word"` draws noise once a word and hides words whole, one that overshoots being skipped for shorter
            ones; `"piece"` is Algorithm 1 to the letter.

    Returns:
        `[batch, length]` bool, True at hidden pieces, never at special ones; a passage without pieces has none.

    Raises:
        InputError: the rate is outside [0, 1], the noise is negative, a choice is unknown, or the importances do not
            fit the batch.

    Paper and code: CDMAE has no public code; its equations speak of words, its algorithm of tokens, hence `unit`.

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
    _check(batch, importances, rate, noise, noise_scale, unit)
    if rate == 0:
        return torch.zeros_like(batch.special)
    words = first_pieces(batch) if unit == "word" else torch.arange(batch.special.shape[1], device=importances.device)
    words = words.expand(batch.special.shape)
    scores = importances.float()
    if noise:
        lots = torch.randn(scores.shape, generator=generator, device=scores.device).mul_(noise)
        counted = batch.word_start if unit == "word" else ~batch.special
        scores = scores + (lots if noise_scale == "absolute" else lots.mul_(_spread(scores, counted)))
    keys = ranked_keys(scores.gather(1, words), words, batch.special)
    # The tiny addition keeps products such as 0.29 x 100 = 28.999... on their side.
    limit = ((~batch.special).sum(1).double() * rate + 1e-9).floor().long().clamp(min=1)
    return take_words(keys, limit)


def _spread(values: Tensor, counted: Tensor) -> Tensor:
    """Standard deviation of the counted values of each row, `[batch, 1]`; 0 where there are none."""
    number = counted.sum(1, keepdim=True).clamp(min=1)
    mean = values.where(counted, 0).sum(1, keepdim=True) / number
    return ((values - mean).where(counted, 0).square().sum(1, keepdim=True) / number).sqrt()


def _check(batch: TokenBatch, importances: Tensor, rate: float, noise: float, noise_scale: str, unit: str) -> None:
    check_share(rate, "rate")
    if not noise >= 0:
        raise InputError(f"{noise} is negative", where="noise", fix="Give a standard deviation, 0 or more.")
    for name, value, valid in (("noise_scale", noise_scale, get_args(NoiseScale)), ("unit", unit, get_args(Unit))):
        if value not in valid:
            raise InputError(f"unknown value {value!r}", where=name, fix=f"Choose one of {', '.join(valid)}.")
    if importances.shape != batch.special.shape:
        raise InputError(
            f"{tuple(importances.shape)} values for {tuple(batch.special.shape)} pieces",
            where="importances",
            fix="Give one for each piece.",
        )
