"""What a masked piece becomes: always [MASK], or BERT's 80/10/10 rule. Page: ideas/masking."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from dr_lib.tokens import TokenBatch
from dr_lib.tokens.layout import finest

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
