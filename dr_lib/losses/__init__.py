"""Losses as pure functions of tensors."""

from dr_lib.losses.accuracy import in_batch_accuracy
from dr_lib.losses.contrastive import contrastive
from dr_lib.losses.cross_entropy import chunked_cross_entropy
from dr_lib.losses.distillation import distillation
from dr_lib.losses.listwise import listwise
from dr_lib.losses.pair import pair
from dr_lib.losses.passage_centric import passage_centric
from dr_lib.losses.pointwise import pointwise
from dr_lib.losses.r_drop import r_drop
from dr_lib.losses.siblings import siblings

__all__ = [
    "chunked_cross_entropy",
    "contrastive",
    "distillation",
    "in_batch_accuracy",
    "listwise",
    "pair",
    "passage_centric",
    "pointwise",
    "r_drop",
    "siblings",
]
