"""Training: one visible loop with checkpoints, examples and their batches, dual encoder and re-ranker."""

from dr_lib.training import machine
from dr_lib.training.batches import PairBatches, RetrievalBatch, RetrievalBatches, gather_batch
from dr_lib.training.bi_encoder import BiEncoder, DistilledBiEncoder
from dr_lib.training.checkpoint import Checkpoint, load_weights, newest_checkpoint
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
from dr_lib.training.machine import bert_work
from dr_lib.training.reranker import Reranker, RerankerLoss, cross_encoder
from dr_lib.training.retriever import retriever, training_examples, untuned
from dr_lib.training.stage_settings import (
    CrossEncoderTraining,
    Distillation,
    Finetuning,
    GeneratorTraining,
    Pretraining,
    Training,
    TrainSettings,
    ValidationSettings,
)
from dr_lib.training.validation import PoolValidation, ValidationPool, pool_ranks

__all__ = [
    "BiEncoder",
    "Checkpoint",
    "CrossEncoderTraining",
    "Distillation",
    "DistilledBiEncoder",
    "Examples",
    "Finetuning",
    "GeneratorTraining",
    "PairBatches",
    "PoolValidation",
    "Pretraining",
    "Reranker",
    "RerankerLoss",
    "RetrievalBatch",
    "RetrievalBatches",
    "TeacherScores",
    "TrainLog",
    "TrainSettings",
    "Training",
    "TrainingError",
    "Validation",
    "ValidationPool",
    "ValidationSettings",
    "bert_work",
    "cross_encoder",
    "distinct_rows",
    "gather_batch",
    "group_examples",
    "hash64",
    "load_weights",
    "machine",
    "merge_examples",
    "newest_checkpoint",
    "pool_ranks",
    "retriever",
    "text_hash",
    "train",
    "training_examples",
    "untuned",
]
