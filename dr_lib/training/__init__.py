"""Training: one visible loop with checkpoints, examples and their batches, dual encoder and re-ranker."""

from dr_lib.training import machine
from dr_lib.training.batches import RetrievalBatch, RetrievalBatches, gather_batch
from dr_lib.training.bi_encoder import BiEncoder, DistilledBiEncoder, retriever, untuned
from dr_lib.training.examples import (
    Examples,
    TeacherScores,
    distinct_rows,
    group_examples,
    hash64,
    text_hash,
    training_examples,
)
from dr_lib.training.log import TrainLog
from dr_lib.training.loop import TrainingError, Validation, train
from dr_lib.training.machine import bert_work
from dr_lib.training.reranker import Reranker, cross_encoder
from dr_lib.training.schedule import TrainSettings
from dr_lib.training.stage_settings import (
    CrossEncoderTraining,
    Distillation,
    Finetuning,
    GeneratorTraining,
    Pretraining,
    Training,
    ValidationSettings,
)
from dr_lib.training.validation import PoolValidation, ValidationPool

__all__ = [
    "BiEncoder",
    "CrossEncoderTraining",
    "Distillation",
    "DistilledBiEncoder",
    "Examples",
    "Finetuning",
    "GeneratorTraining",
    "PoolValidation",
    "Pretraining",
    "Reranker",
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
    "machine",
    "retriever",
    "text_hash",
    "train",
    "training_examples",
    "untuned",
]
