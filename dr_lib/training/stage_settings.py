"""The settings of each training of a pipeline: pre-training, fine-tuning, distillation, re-ranker, writers.

The defaults are SimLM's (Tables 11 and 13). Pages of the book: ideas/pipeline, practice/gpu.
"""

from typing import Literal

from pydantic import Field, model_validator

from dr_lib.settings import Settings
from dr_lib.training.examples import Positive
from dr_lib.training.schedule import Training


class Pretraining(Training):
    """Pre-training (SimLM Table 11: batch 2048 passages, 4,000 warm-up steps of 80,000, rate 3e-4).

    Args:
        tokens_per_batch: padded tokens of one micro-batch.
    """

    steps: int = Field(default=80_000, gt=0)
    learning_rate: float = Field(default=3e-4, gt=0)
    warmup: float = Field(default=0.05, ge=0, le=1)
    weight_decay: float = Field(default=0.0, ge=0)
    tokens_per_batch: int = Field(default=16_384, gt=0)


class GeneratorTraining(Training):
    """Training of the question generator or of the continuation model, where no public checkpoint is named.

    Args:
        model: name or folder of a ready model with its own tokenizer; None trains one here from the base model.
        tokens_per_batch: padded tokens of one micro-batch, of passage and question together.
    """

    model: str | None = None
    steps: int = Field(default=20_000, gt=0)
    learning_rate: float = Field(default=5e-4, gt=0)
    tokens_per_batch: int = Field(default=16_384, gt=0)


class ValidationSettings(Settings):
    """Validation of a retriever while it is trained: MRR over a small pool in memory (DPR-PAQ, section 3.3).

    The pool holds the relevant passages of some queries and what BM25 finds for them (`ValidationPool`).

    Args:
        every: updates between two validations.
        queries: number of queries, drawn from `split`.
        per_query: first passages of BM25's ranking that each query brings (the paper: up to 50).
        keep: the weights that the training ends with, "best" or "last".
        split: where the queries come from, never the split that is reported.
        seed: of the draw, the same for all seeds of a study.
    """

    every: int = Field(default=200, gt=0)
    queries: int = Field(default=500, gt=0)
    per_query: int = Field(default=50, gt=0)
    keep: Literal["best", "last"] = "best"
    split: str = "dev"
    seed: int = Field(default=0, ge=0)


class Finetuning(Training):
    """Fine-tuning with hard negatives (SimLM Table 13).

    Args:
        batch_queries: queries of one step.
        negatives: hard negatives per query.
        temperature: tau, by which cosine similarities are divided.
        temperature_warmup: 1 / tau grows to its value while the learning rate does (SimLM's scripts for NQ).
        positive: which of its positives a query trains with: another one each epoch (SimLM), or always the first, which
            is the annotated one (DPR for NQ).
        mask_positives: a passage that is relevant for a query is no negative of it where another query brings it;
            the released codes contrast the two all the same.
        normalise: compare unit vectors (cosine) instead of raw inner products.
        blocks: which terms the denominator has, see `losses.contrastive`.
        shared: one encoder for queries and passages, or two that start equal.
        chunk: texts encoded at a time, where a batch does not fit in memory (`models.encode_in_chunks`); chunks round
            differently, so it is part of the key.
        validation: looks at dev queries on the way, and which weights are kept; None trains to the end unseen.
        projection: Linear and LayerNorm over the vector (DPR-PAQ for RoBERTa), going on from those of pre-training
            where it had some; None has none.
        alpha: weight of PAIR's passage-centric loss; None leaves it to pre-training, as the paper does.
        pseudo_labels: learn from pseudo-labels of the training queries beside the given ones (PAIR section 3.4), made
            as `auxiliary.pseudo_labels` says.
    """

    steps: int = Field(default=20_000, gt=0)
    learning_rate: float = Field(default=2e-5, gt=0)
    warmup: float = Field(default=0.05, ge=0, le=1)
    weight_decay: float = Field(default=0.0, ge=0)
    batch_queries: int = Field(default=64, gt=1)
    negatives: int = Field(default=15, ge=0)
    temperature: float = Field(default=0.02, gt=0)
    temperature_warmup: bool = False
    positive: Positive = "rotate"
    mask_positives: bool = True
    normalise: bool = True
    blocks: Literal["released", "paper", "query_passage"] = "released"
    shared: bool = True
    chunk: int | None = Field(default=None, gt=0)
    validation: ValidationSettings | None = None
    projection: Literal[True] | None = None
    alpha: float | None = Field(default=None, ge=0, le=1)
    pseudo_labels: bool | None = None


class Distillation(Finetuning):
    """Fine-tuning on the re-ranker's scores (SimLM Table 13: 23 negatives, rate 3e-5, contrastive weight 0.2).

    Args:
        contrastive_weight: weight of the contrastive loss beside the KL divergence.
        teacher_temperature: teacher scores are divided by it.
        mean: reduction of the KL divergence, see `losses.distillation`.
        own_negatives: a query's own hard negatives count in its contrastive loss too, beside the teacher's judgement of
            them (SimLM's scripts; its code leaves them out unless it is told otherwise).
        teacher_negatives: negatives of each query that the teacher reads, drawn from retriever 2's first `mining.depth`
            alone; random ones only fill up where there are fewer. None takes all, with `mining.random_negatives` random
            ones and, where `mining.with_bm25` says so, BM25's, which is many pairs to score.
    """

    negatives: int = Field(default=23, gt=0)
    learning_rate: float = Field(default=3e-5, gt=0)
    contrastive_weight: float = Field(default=0.2, ge=0)
    teacher_temperature: float = Field(default=1.0, gt=0)
    mean: Literal["query", "element"] = "query"
    own_negatives: bool = True
    teacher_negatives: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _given_labels_alone(self) -> "Distillation":
        if self.pseudo_labels:
            raise ValueError("a teacher's scores stand beside the given labels alone (key pseudo_labels)")
        return self


class CrossEncoderTraining(Training):
    """Training of the cross-encoder: re-ranker, teacher, scorer of pseudo-labels (SimLM Table 13: group 64, rate 3e-5).

    Args:
        model: name or folder of the encoder it starts from; None starts from the recipe's base model.
        start: "retriever" starts from the trained encoder that found the candidates; the name of a pre-training method
            from the encoder that it makes of the passages (SimLM Table 5).
        batch_queries: queries of one step.
        negatives: hard negatives scored beside each positive.
        length: longest pair of query and passage in pieces (SimLM: 192).
        gradient: through all scored passages (paper), or through the hardest quarter only (released).
        r_drop: score each pair twice and reward agreement, as the released code does; the paper does not.
    """

    model: str | None = None
    start: str | None = None
    steps: int = Field(default=20_000, gt=0)
    learning_rate: float = Field(default=3e-5, gt=0)
    batch_queries: int = Field(default=64, gt=0)
    negatives: int = Field(default=63, gt=0)
    length: int = Field(default=192, gt=4)
    gradient: Literal["paper", "released"] = "paper"
    r_drop: bool = False

    @model_validator(mode="after")
    def _one_start(self) -> "CrossEncoderTraining":
        if self.model and self.start:
            raise ValueError("either model or start says where it begins")
        return self
