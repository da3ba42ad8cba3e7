"""Training: one visible loop with checkpoints, examples and their batches, dual encoder and re-ranker."""

from dr_lib.training import machine
from dr_lib.training.batches import PairBatches, RetrievalBatch, RetrievalBatches, gather_batch
from dr_lib.training.bi_encoder import BiEncoder, DistilledBiEncoder
from dr_lib.training.checkpoint import load_weights, newest_checkpoint
from dr_lib.training.examples import (
    Examples,
    TeacherScores,
    distinct_rows,
    group_examples,
    hash64,
    merge_examples,
    text_hash,
)
from dr_lib.training.log import TrainLog
from dr_lib.training.loop import TrainingError, Validation, train
from dr_lib.training.reranker import Reranker, RerankerLoss
from dr_lib.training.settings import TrainSettings

__all__ = [
    "BiEncoder",
    "DistilledBiEncoder",
    "Examples",
    "PairBatches",
    "Reranker",
    "RerankerLoss",
    "RetrievalBatch",
    "RetrievalBatches",
    "TeacherScores",
    "TrainLog",
    "TrainSettings",
    "TrainingError",
    "Validation",
    "distinct_rows",
    "gather_batch",
    "group_examples",
    "hash64",
    "load_weights",
    "machine",
    "merge_examples",
    "newest_checkpoint",
    "text_hash",
    "train",
]
