"""What a masked piece becomes: always [MASK], or BERT's 80/10/10 rule. Page: ideas/masking."""

from collections.abc import Iterable
from typing import Literal, get_args

import torch
from torch import Tensor

from dr_lib.errors import InputError
from dr_lib.tokens.batch import TokenBatch

Policy = Literal["mask", "80_10_10"]


def hide(
    batch: TokenBatch,
    mask: Tensor,
    mask_id: int,
    vocab_size: int,
    generator: torch.Generator,
    policy: Policy = "mask",
    special_ids: Iterable[int] = (),
) -> Tensor:
    """Ids of the batch with the masked pieces replaced.

    Args:
        batch: clean passages.
        mask: `[batch, length]` bool, the positions to replace.
        mask_id: id of [MASK].
        vocab_size: number of ids.
        generator: on the batch's device; unused with `"mask"`.
        policy: `"mask"` writes [MASK] everywhere (SimLM's script); `"80_10_10"` writes [MASK] with probability 0.8, a
            random id with 0.1, and leaves the piece with 0.1 (BERT, RetroMAE, Condenser, MASTER, CDMAE).
        special_ids: ids that a random replacement never takes. The collators of the released codes draw from the whole
            vocabulary, which an empty list reproduces.

    Returns:
        `[batch, length]` int64 ids.

    Raises:
        InputError: the policy is unknown, or no id is left to draw from.

    Example:
        >>> import torch
        >>> from dr_lib.masking import hide
        >>> from dr_lib.tokens.batch import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 3]])
        >>> special = (ids == 2) | (ids == 3)
        >>> ones, zeros = torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> hide(batch, ids == 12, 4, 20, torch.Generator()).tolist()
        [[2, 11, 4, 3]]
    """
    if policy not in get_args(Policy):
        raise InputError(
            f"unknown policy {policy!r}", where="policy", fix=f"Choose one of {', '.join(get_args(Policy))}."
        )
    ids = batch.input_ids
    if policy == "mask":
        return ids.masked_fill(mask, mask_id)
    lot = torch.rand(ids.shape, generator=generator, device=ids.device)
    replaced = torch.where(lot < 0.9, _random_ids(ids, vocab_size, special_ids, generator), ids)
    return torch.where(mask, replaced.masked_fill_(lot < 0.8, mask_id), ids)


def _random_ids(like: Tensor, vocab_size: int, special_ids: Iterable[int], generator: torch.Generator) -> Tensor:
    """Ids drawn evenly from the vocabulary without `special_ids`, in the shape of `like`."""
    banned = sorted({id_ for id_ in special_ids if 0 <= id_ < vocab_size})
    if vocab_size <= len(banned):
        raise InputError("no id left to draw from", where="special_ids", fix="Give fewer ids, or a larger vocabulary.")
    drawn = torch.randint(vocab_size - len(banned), like.shape, generator=generator, device=like.device)
    for id_ in banned:  # step over each banned id, smallest first
        drawn += drawn >= id_
    return drawn
