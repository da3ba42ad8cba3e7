"""What a training can be told: one frozen, validated set of numbers for pre-training and fine-tuning alike.

The defaults follow the common ground of the released codes (linear warm-up and decay, AdamW, clipping at 1).
Book: practice/gpu explains which of them to change first.
"""

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from dr_lib.settings import Settings


class TrainSettings(Settings):
    """Numbers that steer one training run.

    Args:
        steps: updates of the weights, at least 1.
        learning_rate: peak learning rate, above 0.
        warmup: share of the steps in which the rate grows linearly to its peak, in [0, 1].
        weight_decay: AdamW's decay of matrices; biases, norms and other vectors are never decayed.
        clip: largest gradient norm over all parameters; None leaves gradients as they are.
        accumulation: micro-batches (per process) whose mean gradient makes one update.
        precision: `"bf16"` (autocast; weights, optimiser and losses stay fp32), `"fp32"`, or `"auto"`: bf16 where the
            machine computes it natively.
        betas: AdamW's decay rates of the two moments, each in [0, 1).
        epsilon: AdamW's epsilon.
        seed: every random draw of the run comes from it and the number of the micro-step.
        checkpoint_every: updates between two checkpoints.
        schedule: `"linear"` falls to zero after the warm-up, `"constant"` stays at the peak.
        compile: pass the module through `torch.compile` (worth it on GPUs and long runs).
        log_every: updates that one row of the log averages over.

    Raises:
        InputError: a value out of range or an unknown name.

    Example:
        >>> TrainSettings(steps=100, learning_rate=3e-4).warmup_steps
        10
        >>> TrainSettings(steps=0, learning_rate=3e-4)
        Traceback (most recent call last):
        dr_lib.errors.InputError: steps: Input should be greater than 0 (got 0). Correct this key.
    """

    unkeyed: ClassVar[frozenset[str]] = frozenset({"checkpoint_every", "log_every"})

    steps: int = Field(gt=0)
    learning_rate: float = Field(gt=0)
    warmup: float = Field(default=0.1, ge=0, le=1)
    weight_decay: float = Field(default=0.01, ge=0)
    clip: float | None = Field(default=1.0, gt=0)
    accumulation: int = Field(default=1, gt=0)
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = Field(default=1e-8, gt=0)
    seed: int = Field(default=0, ge=0, lt=2**63)
    checkpoint_every: int = Field(default=500, gt=0)
    schedule: Literal["linear", "constant"] = "linear"
    compile: bool = False
    log_every: int = Field(default=10, gt=0)

    @model_validator(mode="after")
    def _check_betas(self) -> "TrainSettings":
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas {self.betas} are not both in [0, 1)")
        return self

    @property
    def warmup_steps(self) -> int:
        """Number of the update that first runs at the peak rate; at least 1, so no update is wasted at rate zero."""
        return max(1, round(self.warmup * self.steps))

    def identity(self) -> dict[str, Any]:
        """The settings that can change a weight, as plain JSON; a checkpoint may only continue under equal ones."""
        return self.model_dump(mode="json", exclude=set(TrainSettings.unkeyed))


class Training(TrainSettings):
    """Settings of one training stage. The seed is the recipe's, so it cannot be set here.

    Keys hold neither the intervals of checkpoints and log lines nor the place of a public model, which is an argument.
    """

    unkeyed: ClassVar[frozenset[str]] = TrainSettings.unkeyed | {"seed", "model"}
    seed: int = Field(default=0, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _no_seed(cls, values: Any) -> Any:
        if isinstance(values, dict) and "seed" in values:
            raise ValueError("the seed is set once for the whole recipe (key seed)")
        return values

    def with_seed(self, seed: int) -> TrainSettings:
        """The plain training settings, with the recipe's seed."""
        names = set(TrainSettings.model_fields) - {"seed"}
        return TrainSettings(**self.model_dump(include=names), seed=seed)


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
        keep: the weights that the training ends with, "best" or "last"; with "best" the last ones are kept beside them.
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
        negatives: hard negatives a query.
        temperature: tau, by which cosine similarities are divided.
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
        teacher_negatives: negatives of each query that the teacher reads, drawn from retriever 2's first
            `mining.depth` and the random ones; None takes all, which is many pairs to score.
    """

    negatives: int = Field(default=23, gt=0)
    learning_rate: float = Field(default=3e-5, gt=0)
    contrastive_weight: float = Field(default=0.2, ge=0)
    teacher_temperature: float = Field(default=1.0, gt=0)
    mean: Literal["query", "element"] = "query"
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
        start: "retriever" starts from the trained encoder that found the candidates.
        batch_queries: queries of one step.
        negatives: hard negatives scored beside each positive.
        length: longest pair of query and passage in pieces (SimLM: 192).
        gradient: through all scored passages (paper), or through the hardest quarter only (released).
        r_drop: score each pair twice and reward agreement, as the released code does; the paper does not.
    """

    model: str | None = None
    start: Literal["retriever"] | None = None
    steps: int = Field(default=20_000, gt=0)
    learning_rate: float = Field(default=3e-5, gt=0)
    batch_queries: int = Field(default=64, gt=0)
    negatives: int = Field(default=63, gt=0)
    length: int = Field(default=192, gt=4)
    gradient: Literal["paper", "released"] = "paper"
    r_drop: bool = False

    @model_validator(mode="after")
    def _one_start(self) -> "CrossEncoderTraining":
        if self.model and self.start == "retriever":
            raise ValueError("either model or start says where it begins")
        return self
