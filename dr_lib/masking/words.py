"""Masks that choose by chance: of pieces, of whole words, one that holds another, its complement,
one for each row; and what a masked piece becomes: always [MASK], or by BERT's 80/10/10 rule.

SimLM, RetroMAE, Condenser and MASTER all hide a fixed number of pieces of each passage, not each
piece with a probability. Their code counts differently: `budget`. Page: ideas/masking.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dr_lib.masking.draw import random_keys, take_words, words_of
from dr_lib.tokens import TokenBatch
from dr_lib.tokens.layout import finest

Budget = Literal["maskable", "all"]

SMALLEST_EXTRA_RATE = 1e-4
AT_ONCE = 2**18
"""Pieces that a CPU draws for at a time, where each row has a mask of its own: they lie in a core's
own cache.
"""


def piece_budget(batch: TokenBatch, rate: float, budget: Budget = "maskable") -> Tensor:
    """Most pieces to hide in each passage, `[batch]` int64: max(1, round(rate x pieces)), halves
    rounded to even.

    Args:
        batch: the passages.
        rate: share of the pieces, in [0, 1]; 0 gives 0 everywhere, any other rate at least 1.
        budget: `"maskable"` counts the pieces that are not special (Condenser and MASTER), `"all"`
            counts [CLS] and [SEP] too (SimLM and RetroMAE, whose 30 % is 31 to 32 % of the maskable
            pieces of a passage).
    """
    if rate == 0:
        return torch.zeros(len(batch), dtype=torch.int64, device=batch.special.device)
    counted = (
        batch.special.shape[1] - batch.special.sum(1)
        if budget == "maskable"
        else batch.attention_mask.sum(1)
    )
    if counted.device.type == "cpu":  # of arrays this small numpy makes shorter work
        return torch.from_numpy(np.maximum(np.rint(counted.numpy() * rate), 1).astype(np.int64))
    return counted.to(finest(counted.device)).mul_(rate).round_().clamp_(min=1).long()


def uniform(
    batch: TokenBatch, rate: float, generator: torch.Generator, *, budget: Budget = "maskable"
) -> Tensor:
    """Draw exactly `max(1, round(rate x pieces))` pieces of each passage, without regard to words.

    BERT's first masks, and those of CDMAE's encoder.

    Args:
        batch: passages; only `special` and `attention_mask` are read.
        rate: share of pieces to hide, in [0, 1]; 0 hides nothing, 1 everything but special
            positions.
        generator: on the batch's device; the same state gives the same mask.
        budget: the pieces that the rate refers to, `"maskable"` ones or `"all"`.

    Returns:
        `[batch, length]` bool, True at hidden pieces, never at special ones; a passage without
        pieces has none.

    Example:
        >>> import torch
        >>> from dr_lib.masking import uniform
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 13, 14, 3]])
        >>> special, ones, zeros = ids < 5, torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> uniform(batch, 0.5, torch.Generator().manual_seed(0)).sum().item()
        2
    """
    limit = piece_budget(batch, rate, budget)
    return (
        take_words(random_keys(batch.special, generator), limit)
        if rate
        else torch.zeros_like(batch.special)
    )


def whole_word(
    batch: TokenBatch, rate: float, generator: torch.Generator, *, budget: Budget = "maskable"
) -> Tensor:
    """Draw one mask of whole words per passage: the mask of SimLM, RetroMAE, Condenser and MASTER.

    Words are taken in random order until `max(1, round(rate x pieces))` pieces are hidden. A word
    that would overshoot is skipped and a later, shorter one may be taken, so the count is never
    above the budget, and below it only where nothing more fits: a passage whose every word is
    longer than the budget keeps an empty mask, as in the released code.

    Args:
        batch: passages; only `special`, `word_start` and `attention_mask` are read.
        rate: share of pieces to hide, in [0, 1]; 0 hides nothing.
        generator: on the batch's device; the same state gives the same mask.
        budget: the pieces that the rate refers to, `"maskable"` ones or `"all"`.

    Returns:
        `[batch, length]` bool, True at hidden pieces, never at special ones.

    Paper and code: every released code caps the budget at 512 pieces, which only longer passages
    could notice; here is no cap.

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


def superset(
    batch: TokenBatch,
    mask: Tensor,
    rate: float,
    generator: torch.Generator,
    *,
    encoder_rate: float,
    budget: Budget = "maskable",
) -> Tensor:
    """Join a mask with a second whole-word draw, so that about `rate` of the pieces are hidden in
    all (SimLM, 3.1).

    The second draw is over all words, those already hidden included, at `extra_rate(encoder_rate,
    rate)`: the union holds the first mask always and the share `rate` in expectation, not exactly
    in each passage.

    Args:
        batch: passages.
        mask: `[batch, length]` bool, the encoder's mask.
        rate: the decoder's rate, in [0, 1].
        generator: on the batch's device.
        encoder_rate: the rate at which `mask` was drawn.
        budget: as for `whole_word`.

    Returns:
        `[batch, length]` bool that contains `mask`; `mask` itself where `rate` is not above
        `encoder_rate`, as in the released code.

    Example:
        >>> import torch
        >>> from dr_lib.masking import superset, whole_word
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 13, 14, 3]])
        >>> special, ones, zeros = ids < 5, torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> source = torch.Generator().manual_seed(0)
        >>> mask = whole_word(batch, 0.3, source)
        >>> bool((superset(batch, mask, 0.5, source, encoder_rate=0.3) >= mask).all())
        True
    """
    extra = extra_rate(encoder_rate, rate)
    return mask | whole_word(batch, extra, generator, budget=budget) if extra else mask


def extra_rate(encoder_rate: float, rate: float) -> float:
    """Rate of `superset`'s second draw: `(rate - encoder_rate) / (1 - encoder_rate)`, 0 where that
    is 1e-4 or less.

    Example:
        >>> extra_rate(0.5, 0.75), extra_rate(0.5, 0.5)
        (0.5, 0.0)
    """
    extra = (rate - encoder_rate) / (1 - encoder_rate) if encoder_rate < 1 else 0.0
    return extra if extra > SMALLEST_EXTRA_RATE else 0.0


def complementary(batch: TokenBatch, mask: Tensor) -> Tensor:
    """Every maskable piece that `mask` left visible (MASTER, complementary mask prediction).

    Args:
        batch: passages; only `special` is read.
        mask: `[batch, length]` bool, the encoder's mask.

    Returns:
        `[batch, length]` bool; with `mask` it covers all but the special positions, and shares none
        with it.
    """
    return ~(mask | batch.special)


def per_row(
    batch: TokenBatch,
    rate: float,
    generator: torch.Generator,
    *,
    budget: Budget = "maskable",
    draws: int | None = None,
) -> Tensor:
    """Draw a whole-word mask for each row of the decoder's attention (RetroMAE, enhanced decoding).

    Args:
        batch: passages; only `special`, `word_start` and `attention_mask` are read.
        rate: share of pieces that a row may not see, in [0, 1].
        generator: on the batch's device; the same state gives the same masks.
        budget: the pieces that the rate refers to, `"maskable"` ones or `"all"` (the released
            code).
        draws: None draws anew for every row (the paper); a number draws that many masks a passage,
            at most one a position, of which each row picks one (the released code: 256).

    Returns:
        `[batch, length, length]` bool, True where row i may not see column j. A row sees neither
        its hidden pieces, nor itself, nor padding; [CLS] and [SEP] are seen by every row but their
        own.

    Example:
        >>> import torch
        >>> from dr_lib.masking import per_row
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 3]])
        >>> special, ones, zeros = ids < 5, torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> per_row(batch, 0.0, torch.Generator())[0].long().tolist()
        [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    """
    limit, (rows, length) = piece_budget(batch, rate, budget), batch.special.shape
    pool = length if draws is None else min(draws, length)
    hidden = torch.zeros(rows, pool, length, dtype=torch.bool, device=batch.special.device)
    words, step = (
        words_of(batch),
        rows if hidden.device.type != "cpu" else max(1, AT_ONCE // length**2),
    )
    for start in range(0, rows if rate else 0, step):
        some = slice(start, start + step)
        keys = random_keys(batch.special[some], generator, words[some], pool)
        hidden[some] = take_words(keys, limit[some].repeat_interleave(pool)).view(-1, pool, length)
    if draws is not None:
        picks = torch.randint(pool, (rows, length), generator=generator, device=hidden.device)
        hidden = hidden[torch.arange(rows, device=hidden.device)[:, None], picks]
    hidden |= (batch.attention_mask == 0)[:, None]
    hidden.diagonal(dim1=1, dim2=2).fill_(True)
    return hidden


MaskPolicy = Literal["mask", "80_10_10"]


def hide(
    batch: TokenBatch,
    mask: Tensor,
    mask_id: int,
    vocab_size: int,
    generator: torch.Generator,
    policy: MaskPolicy = "mask",
    special_ids: Iterable[int] = (),
) -> Tensor:
    """Ids of the batch with the masked pieces replaced.

    Args:
        batch: clean passages.
        mask: `[batch, length]` bool, the positions to replace.
        mask_id: id of [MASK].
        vocab_size: number of pieces that the tokenizer has; ids from there on are never drawn.
        generator: on the batch's device; unused with `"mask"`.
        policy: `"mask"` writes [MASK] everywhere (SimLM's script); `"80_10_10"` writes [MASK] with
            probability 0.8, a random id with 0.1, and leaves the piece with 0.1 (BERT, RetroMAE,
            Condenser, MASTER, CDMAE).
        special_ids: ids that a random replacement never takes. The collators of the released code
            draw from the whole vocabulary, which an empty list reproduces.

    Returns:
        `[batch, length]` int64 ids.

    Example:
        >>> import torch
        >>> from dr_lib.masking import hide
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 3]])
        >>> special = (ids == 2) | (ids == 3)
        >>> ones, zeros = torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> hide(batch, ids == 12, 4, 20, torch.Generator()).tolist()
        [[2, 11, 4, 3]]
    """
    ids = batch.input_ids
    if policy == "mask":
        return ids.masked_fill(mask, mask_id)
    allowed = _allowed(vocab_size, frozenset(special_ids), ids.device)
    # One draw decides both: below 8 [MASK], from 8 to 9 the id that lies that far into the
    # vocabulary, above 9 nothing.
    lot = torch.rand(
        ids.shape, generator=generator, device=ids.device, dtype=finest(ids.device)
    ).mul_(10)
    drawn = allowed.take(((lot - 8) * len(allowed)).long().clamp_(0, len(allowed) - 1))
    hidden = torch.where(lot < 8, mask_id, drawn)
    return torch.where(mask & (lot < 9), hidden, ids)


@lru_cache(maxsize=8)
def _allowed(vocab_size: int, special_ids: frozenset[int], device: torch.device) -> Tensor:
    """The ids that a random replacement may be, int64, rising; kept, since a GPU would wait for
    each new table.
    """
    return torch.tensor([id_ for id_ in range(vocab_size) if id_ not in special_ids], device=device)
