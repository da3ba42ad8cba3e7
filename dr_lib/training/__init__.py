"""Training: the loop with checkpoints, examples and their batches, dual encoder and re-rankers."""

from dr_lib.training import machine
from dr_lib.training.batches import (
    EpochSampler,
    PairBatches,
    RetrievalBatch,
    RetrievalBatches,
    gather_batch,
)
from dr_lib.training.bi_encoder import (
    BiEncoder,
    DistilledBiEncoder,
    ValidationPool,
    pool_mrr,
    retriever,
    untuned,
)
from dr_lib.training.checkpoint import TrainLog
from dr_lib.training.examples import (
    Examples,
    TeacherScores,
    hash64,
    text_hash,
    training_examples,
    training_set,
)
from dr_lib.training.launch import on_processes
from dr_lib.training.loop import TrainingError, Validation, train
from dr_lib.training.machine import bert_work
from dr_lib.training.reranker import (
    LateInteractionTrainer,
    Reranker,
    cross_encoder,
    dialogue_cross_encoder,
    late_interaction,
)
from dr_lib.training.schedule import (
    CrossEncoderTraining,
    Distillation,
    Finetuning,
    GeneratorTraining,
    Pretraining,
    Training,
    TrainSettings,
    ValidationSettings,
)
from dr_lib.training.watch import watching
