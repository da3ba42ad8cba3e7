"""MASTER's complementary mask: the decoder loses exactly what the encoder was left with. Page: ideas/masking."""

from torch import Tensor

from dr_lib.tokens import TokenBatch


def complementary(batch: TokenBatch, mask: Tensor) -> Tensor:
    """Every maskable piece that `mask` left visible (MASTER, complementary mask prediction).

    Args:
        batch: passages; only `special` is read.
        mask: `[batch, length]` bool, the encoder's mask.

    Returns:
        `[batch, length]` bool; with `mask` it covers all but the special positions, and shares none with it.

    Example:
        >>> import torch
        >>> from dr_lib.masking import complementary
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 13, 3]])
        >>> special, ones, zeros = ids < 5, torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> complementary(batch, ids == 12).long().tolist()
        [[0, 1, 0, 1, 0]]
    """
    return ~(mask | batch.special)
