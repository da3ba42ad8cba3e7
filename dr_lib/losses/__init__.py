"""Losses as pure functions of tensors."""

from dr_lib.losses.contrastive import contrastive
from dr_lib.losses.cross_entropy import chunked_cross_entropy

__all__ = ["chunked_cross_entropy", "contrastive"]
