"""Losses as pure functions of tensors."""

from dr_lib.losses.contrastive import (
    Block,
    Preset,
    contrastive,
    contrastive_and_accuracy,
    gather,
    relevant_passages,
    share_first,
    siblings,
    world_size,
)
from dr_lib.losses.cross_entropy import IGNORED, chunked_cross_entropy
from dr_lib.losses.distillation import Mean, distillation, listwise, pointwise, r_drop
from dr_lib.losses.passage_centric import Candidates, pair, pair_and_accuracy, passage_centric
