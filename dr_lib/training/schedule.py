"""Training settings; learning rate, temperature and seeds as functions of the step; and the
settings of each training of a pipeline, with SimLM's values as defaults (Tables 11 and 13).

The defaults follow the common ground of the released code (linear warm-up and decay, AdamW,
clipping at 1). Since everything is a function of the step, a resumed run needs no saved state.
Book: practice/gpu says which settings to change first.
"""

import math
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from dr_lib.settings import Settings, Share
from dr_lib.training.examples import Positive


class Training(Settings):
    """Settings of one training stage of a recipe; the seed is the recipe's.

    Args:
        steps: updates of the weights over which the schedule runs, at least 1.
        learning_rate: peak learning rate, above 0.
        warmup: share of the steps in which the rate rises to its peak, in [0, 1].
        warmup_shape: how it grows: `"linear"` (the papers), or `"logarithmic"`, the default of
            DeepSpeed's scheduler and hence of SimLM's released script.
        stop_at: last update, if the run ends before its schedule (CDMAE: 80,000 of 86,300); None
            runs to the end.
        weight_decay: AdamW's decay of matrices; biases, norms and other vectors are never decayed.
        clip: maximum gradient norm over all parameters; None does not clip.
        accumulation: micro-batches per update, whose gradients are averaged; an incomplete one at
            the end of an epoch is weighted by its share of a full one.
        precision: `"bf16"` (autocast; weights, optimiser and losses stay fp32), `"fp32"`, or
            `"auto"`: bf16 where the machine computes it natively.
        betas: AdamW's decay rates of the two moments, each in [0, 1).
        epsilon: AdamW's epsilon.
        checkpoint_every: updates between two checkpoints.
        schedule: `"linear"` decays to zero after the warm-up, `"constant"` stays at the peak.
        compile: compile the model's layers with `torch.compile`, for fewer passes over a GPU's
            memory; "auto" does so on a GPU only. Page: reference/speed.
        log_every: updates per row of the log, which averages over them.

    Raises:
        InputError: a value out of range or an unknown name.
    """

    # A public model, if named, is a separate argument of the stage.
    unkeyed: ClassVar[frozenset[str]] = frozenset({"checkpoint_every", "log_every", "model"})

    steps: PositiveInt
    learning_rate: PositiveFloat
    warmup: Share = 0.1
    warmup_shape: Literal["linear", "logarithmic"] = "linear"
    stop_at: PositiveInt | None = None
    weight_decay: NonNegativeFloat = 0.01
    clip: PositiveFloat | None = 1.0
    accumulation: PositiveInt = 1
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: PositiveFloat = 1e-8
    checkpoint_every: PositiveInt = 500
    schedule: Literal["linear", "constant"] = "linear"
    compile: Literal["auto"] | bool = False
    log_every: PositiveInt = 10

    @model_validator(mode="after")
    def _check(self) -> "Training":
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas {self.betas} are not both in [0, 1)")
        if self.stop_at and self.stop_at > self.steps:
            raise ValueError(f"stop_at {self.stop_at} lies behind the last of {self.steps} steps")
        return self

    @property
    def last(self) -> int:
        """Number of the last update."""
        return self.stop_at or self.steps

    @property
    def warmup_steps(self) -> int:
        """The first update at the peak rate, at least 1: no update is wasted at rate zero."""
        return max(1, round(self.warmup * self.steps))

    def with_seed(self, seed: int) -> "TrainSettings":
        """The settings for one call of `train`."""
        return TrainSettings(**self.model_dump(include=set(Training.model_fields)), seed=seed)


class TrainSettings(Training):
    """Settings of one call of `train`.

    Args:
        compile: as in `Pretraining`.
        seed: every random draw of the run depends on it and the micro-step.

    Example:
        >>> TrainSettings(steps=100, learning_rate=3e-4).warmup_steps
        10
        >>> TrainSettings(steps=0, learning_rate=3e-4)
        Traceback (most recent call last):
        dr_lib.errors.InputError: steps: Input should be greater than 0 (got 0). Correct this key.
    """

    compile: Literal["auto", "graphs"] | bool = False
    seed: int = Field(0, ge=0, lt=2**63)

    def identity(self) -> dict[str, Any]:
        """The settings that can change a weight, as plain JSON; a checkpoint can only be resumed
        with equal ones.
        """
        return self.model_dump(mode="json", exclude=set(self.unkeyed))


def learning_rate(settings: TrainSettings, update: int) -> float:
    """Learning rate of the `update`-th update, counted from 1.

    It rises to the peak at update `warmup_steps`, then decays linearly so as to reach zero one
    update after the last of `steps`: every update moves the weights.

    Args:
        settings: gives `learning_rate`, `warmup_steps`, `warmup_shape`, `steps` and `schedule`.
        update: in [1, settings.steps].

    Paper and code: DeepSpeed's logarithmic warm-up is log(u) / log(w), which wastes the first
    update at rate zero; here it is log(1 + u) / log(1 + w).

    Example:
        >>> settings = TrainSettings(steps=6, learning_rate=1.0, warmup=0.5)
        >>> [round(learning_rate(settings, update), 3) for update in range(1, 7)]
        [0.333, 0.667, 1.0, 0.75, 0.5, 0.25]
    """
    warm, after_last = settings.warmup_steps, settings.steps + 1
    if update <= warm:
        linear = settings.warmup_shape == "linear"
        return settings.learning_rate * (
            update / warm if linear else math.log1p(update) / math.log1p(warm)
        )
    if settings.schedule == "constant":
        return settings.learning_rate
    return settings.learning_rate * (after_last - update) / (after_last - warm)


def warm_temperature(temperature: float, settings: TrainSettings, update: int) -> float:
    """Temperature of an update if the factor 1 / temperature grows with the rate's warm-up, never
    below 1.

    From SimLM's released scripts for Natural Questions; not in the paper.

    Args:
        temperature: at and after update `warmup_steps`, above 0.
        settings: gives `warmup_steps`.
        update: in [1, settings.steps].

    Example:
        >>> settings = TrainSettings(steps=8, learning_rate=1.0, warmup=0.5)
        >>> [round(warm_temperature(0.1, settings, update), 3) for update in (1, 2, 4, 8)]
        [0.4, 0.2, 0.1, 0.1]
    """
    return (
        1 / max(1.0, min(1.0, update / settings.warmup_steps) / temperature)
        if temperature < 1
        else temperature
    )


def step_seed(seed: int, micro_step: int, stream: int) -> int:
    """A 63-bit seed that depends on all three numbers; neighbouring steps are unrelated.

    Example:
        >>> step_seed(0, 5, 0) == step_seed(0, 5, 0), step_seed(0, 5, 0) == step_seed(0, 6, 0)
        (True, False)
    """
    return int(
        np.random.SeedSequence([seed, micro_step, stream]).generate_state(1, np.uint64)[0] >> 1
    )


def seed_step(seed: int, micro_step: int, generator: torch.Generator) -> None:
    """Seed the global generators of CPU and device (dropout) and the step's own `generator` (masks,
    samples).

    `torch.manual_seed` would do the first, but notes a stack trace for each kind of absent
    accelerator, at every step.
    """
    torch.default_generator.manual_seed(step_seed(seed, micro_step, 0))
    if generator.device.type != "cpu":
        getattr(torch, generator.device.type).manual_seed(step_seed(seed, micro_step, 0))
    generator.manual_seed(step_seed(seed, micro_step, 1))


# The trainings of a pipeline ----------------------------------------------------------------------


class Pretraining(Training):
    """Pre-training (SimLM Table 11: batch 2048 passages, 4,000 warm-up steps of 80,000, rate 3e-4).

    Args:
        compile: "graphs" is "auto" and also replays a GPU's steps as CUDA graphs, if a single
            process trains and the method does not compare rows of a batch.
        tokens_per_batch: padded tokens of one micro-batch.
    """

    compile: Literal["auto", "graphs"] | bool = False
    steps: PositiveInt = 80_000
    learning_rate: PositiveFloat = 3e-4
    warmup: Share = 0.05
    weight_decay: NonNegativeFloat = 0.0
    tokens_per_batch: PositiveInt = 16_384


class GeneratorTraining(Training):
    """Training of the question generator or of the continuation model, unless a public checkpoint
    is named.

    Args:
        model: name or folder of a trained model with its own tokenizer; None trains one from the
            base model.
        tokens_per_batch: padded tokens of one micro-batch, passages and questions together.
    """

    model: str | None = None
    steps: PositiveInt = 20_000
    learning_rate: PositiveFloat = 5e-4
    tokens_per_batch: PositiveInt = 16_384


class ValidationSettings(Settings):
    """Validation of a retriever while it is trained: MRR over a small pool in memory (DPR-PAQ,
    section 3.3).

    The pool holds the relevant passages of some queries and BM25's results for them
    (`ValidationPool`).

    Args:
        every: updates between two validations.
        queries: number of queries, drawn from `split`.
        per_query: top passages of BM25's ranking that each query adds (the paper: up to 50).
        keep: the weights at the end, "best" or "last".
        split: where the queries come from, never the reported split.
        seed: of the draw, the same for all seeds of a study.
    """

    every: PositiveInt = 200
    queries: PositiveInt = 500
    per_query: PositiveInt = 50
    keep: Literal["best", "last"] = "best"
    split: str = "dev"
    seed: NonNegativeInt = 0


class Finetuning(Training):
    """Fine-tuning with hard negatives (SimLM Table 13).

    Args:
        batch_queries: queries per step.
        negatives: hard negatives per query.
        temperature: tau, which divides cosine similarities.
        temperature_warmup: 1 / tau grows together with the learning rate (SimLM's scripts for NQ).
        positive: which positive a query uses: another one each epoch (SimLM), or always the first,
            the annotated one (DPR for NQ).
        mask_positives: a passage that is relevant to a query is not used as its negative where
            another query brings it; the released code contrasts the two all the same.
        normalise: compare unit vectors (cosine) instead of raw inner products.
        blocks: the terms of the denominator, see `losses.contrastive`.
        shared: one encoder for queries and passages, or two that start equal.
        chunk: texts encoded at a time, if a batch does not fit in memory
            (`models.encode_in_chunks`); chunks round differently, so it is part of the key.
        validation: how often to evaluate on dev queries, and which weights to keep; None does
            neither.
        projection: Linear and LayerNorm over the vector (DPR-PAQ for RoBERTa), continued from
            pre-training if it had them; None has none.
        alpha: weight of PAIR's passage-centric loss; None leaves it to pre-training, as in the
            paper.
        pseudo_labels: learn from pseudo-labels of the training queries besides the given labels
            (PAIR section 3.4), made with `auxiliary.pseudo_labels`.
    """

    steps: PositiveInt = 20_000
    learning_rate: PositiveFloat = 2e-5
    warmup: Share = 0.05
    weight_decay: NonNegativeFloat = 0.0
    batch_queries: int = Field(64, gt=1)
    negatives: NonNegativeInt = 15
    temperature: PositiveFloat = 0.02
    temperature_warmup: bool = False
    positive: Positive = "rotate"
    mask_positives: bool = True
    normalise: bool = True
    blocks: Literal["released", "paper", "query_passage"] = "released"
    shared: bool = True
    chunk: PositiveInt | None = None
    validation: ValidationSettings | None = None
    projection: Literal[True] | None = None
    alpha: Share | None = None
    pseudo_labels: bool | None = None


class Distillation(Finetuning):
    """Fine-tuning on the re-ranker's scores (SimLM Table 13: 23 negatives, rate 3e-5, contrastive
    weight 0.2).

    Args:
        contrastive_weight: weight of the contrastive loss, relative to the KL divergence.
        teacher_temperature: divides the teacher's scores.
        mean: reduction of the KL divergence, see `losses.distillation`.
        own_negatives: a query's own hard negatives are also in its contrastive loss (SimLM's
            scripts; by default its code leaves them to the teacher).
        teacher_negatives: negatives per query that the teacher scores, drawn from retriever 2's
            first `mining.depth`, filled up with random ones only if there are fewer. None takes all
            of them, `mining.random_negatives` random ones and, with `mining.with_bm25`, BM25's:
            many pairs to score.
    """

    negatives: PositiveInt = 23
    learning_rate: PositiveFloat = 3e-5
    contrastive_weight: NonNegativeFloat = 0.2
    teacher_temperature: PositiveFloat = 1.0
    mean: Literal["query", "element"] = "query"
    own_negatives: bool = True
    teacher_negatives: PositiveInt | None = None

    @model_validator(mode="after")
    def _given_labels_alone(self) -> "Distillation":
        if self.pseudo_labels:
            raise ValueError(
                "a teacher's scores stand beside the given labels alone (key pseudo_labels)"
            )
        return self


class CrossEncoderTraining(Training):
    """Training of the cross-encoder: re-ranker, teacher, scorer of pseudo-labels (SimLM Table 13:
    group 64, rate 3e-5).

    Args:
        model: name or folder of the encoder it starts from; None starts from the recipe's base
            model.
        start: "retriever" starts from the trained encoder that found the candidates; the name of a
            pre-training method, from the encoder pre-trained by it (SimLM Table 5).
        batch_queries: queries per step.
        negatives: hard negatives scored with each positive.
        length: longest pair of query and passage in pieces (SimLM: 192).
        gradient: through all scored passages (paper), or only through the hardest quarter
            (released).
        chunk: pairs scored at a time, for batches that do not fit in memory
            (`models.encode_in_chunks`).
        r_drop: score each pair twice and penalise disagreement, as in the released code; not in the
            paper.
        seed: of its head, data order and dropout; None takes the recipe's.
    """

    # the seed is a separate argument of the stage
    unkeyed: ClassVar[frozenset[str]] = Training.unkeyed | {"seed"}

    model: str | None = None
    start: str | None = None
    seed: NonNegativeInt | None = None
    steps: PositiveInt = 20_000
    learning_rate: PositiveFloat = 3e-5
    batch_queries: PositiveInt = 64
    negatives: PositiveInt = 63
    length: int = Field(192, gt=4)
    chunk: PositiveInt | None = None
    gradient: Literal["paper", "released"] = "paper"
    r_drop: bool = False

    @model_validator(mode="after")
    def _one_start(self) -> "CrossEncoderTraining":
        if self.model and self.start:
            raise ValueError("either model or start says where it begins")
        return self
