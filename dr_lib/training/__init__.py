"""Training: one visible loop with checkpoints, and the module of contrastive fine-tuning."""

from dr_lib.training.bi_encoder import BiEncoder
from dr_lib.training.distilled import DistilledBiEncoder
from dr_lib.training.log import TrainLog
from dr_lib.training.loop import train
from dr_lib.training.meter import TrainingError
from dr_lib.training.reranker import Reranker
from dr_lib.training.selection import Validation
from dr_lib.training.settings import TrainSettings

__all__ = [
    "BiEncoder",
    "DistilledBiEncoder",
    "Reranker",
    "TrainLog",
    "TrainSettings",
    "TrainingError",
    "Validation",
    "train",
]
