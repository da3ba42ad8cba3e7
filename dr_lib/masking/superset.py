"""SimLM's decoder mask: the encoder's mask and a second draw beside it (SimLM, section 3.1). Page: ideas/masking."""

import torch
from torch import Tensor

from dr_lib.errors import check_share
from dr_lib.masking.budget import Budget
from dr_lib.masking.whole_word import whole_word
from dr_lib.tokens import TokenBatch

SMALLEST_EXTRA_RATE = 1e-4


def superset(
    batch: TokenBatch,
    mask: Tensor,
    rate: float,
    generator: torch.Generator,
    *,
    encoder_rate: float,
    budget: Budget = "maskable",
) -> Tensor:
    """Join a mask with a second whole-word draw, so that about `rate` of the pieces are hidden in all.

    The second draw is over all words, those already hidden included, at `(rate - encoder_rate) / (1 - encoder_rate)`:
    the union holds the first mask always and the share `rate` in expectation, not exactly in each passage.

    Args:
        batch: passages.
        mask: `[batch, length]` bool, the encoder's mask.
        rate: the decoder's rate, in [0, 1].
        generator: on the batch's device.
        encoder_rate: the rate at which `mask` was drawn.
        budget: as for `whole_word`.

    Returns:
        `[batch, length]` bool that contains `mask`; `mask` itself where `rate` is not above `encoder_rate`, as in the
        released code.

    Raises:
        InputError: a rate is outside [0, 1], or `budget` is unknown.

    Example:
        >>> import torch
        >>> from dr_lib.masking import superset, whole_word
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 13, 14, 3]])
        >>> special = (ids == 2) | (ids == 3)
        >>> ones, zeros = torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> source = torch.Generator().manual_seed(0)
        >>> mask = whole_word(batch, 0.3, source)
        >>> bool((superset(batch, mask, 0.5, source, encoder_rate=0.3) >= mask).all())
        True
    """
    check_share(rate, "rate")
    check_share(encoder_rate, "encoder_rate")
    extra = extra_rate(encoder_rate, rate)
    return mask | whole_word(batch, extra, generator, budget=budget) if extra else mask


def extra_rate(encoder_rate: float, rate: float) -> float:
    """Rate of the second draw: `(rate - encoder_rate) / (1 - encoder_rate)`, 0 where that is 1e-4 or less.

    Example:
        >>> extra_rate(0.5, 0.75), extra_rate(0.5, 0.5)
        (0.5, 0.0)
    """
    extra = (rate - encoder_rate) / (1 - encoder_rate) if encoder_rate < 1 else 0.0
    return extra if extra > SMALLEST_EXTRA_RATE else 0.0
