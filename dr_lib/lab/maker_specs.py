"""How materials are made: trainings of the models that write and judge, and which of their judgements count.

Page of the book: practice/adding-an-objective. A part of a recipe; a scale file (notebooks/scales) overrides it.
"""

from typing import Any, Literal

from pydantic import Field, model_validator

from dr_lib.lab.specs import Spec, Training

YOUNGER_OF_CROSS_ENCODER = ("start", "span_steps", "span_learning_rate")
"""Keys of a cross-encoder's training that have come since the first records."""


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


class CrossEncoderTraining(Training):
    """Training of the cross-encoder: re-ranker, teacher, scorer of pseudo-labels (SimLM Table 13: group 64, rate 3e-5).

    Args:
        model: name or folder of the encoder it starts from; None starts from the recipe's base model.
        start: what it starts from in place of the base model. "retriever": the trained encoder that found the
            candidates. "spans": the base model after it has learnt, without labels, to find the passage that some words
            stand in; a small model learns passages by heart else and cannot judge new ones.
        span_steps, span_learning_rate: of that learning, with the other settings as here; read only where it starts
            from "spans", which needs the steps. Without a rate of its own it takes the same.
        batch_queries: queries of one step.
        negatives: hard negatives scored beside each positive.
        length: longest pair of query and passage in pieces (SimLM: 192).
        gradient: through all scored passages (paper), or through the hardest quarter only (released).
        r_drop: score each pair twice and ask for agreement, as the released code does; the paper does not.
    """

    model: str | None = None
    start: Literal["retriever", "spans"] | None = None
    span_steps: int | None = Field(default=None, gt=0)
    span_learning_rate: float | None = Field(default=None, gt=0)
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
        if self.start == "spans" and self.span_steps is None:
            raise ValueError('start "spans" needs span_steps')
        return self

    def identity(self) -> dict[str, Any]:
        """Everything that can change a weight; a younger key is named where it is used, so that older keys stay."""
        unused = () if self.start == "spans" else ("span_steps", "span_learning_rate")
        unset = [name for name in YOUNGER_OF_CROSS_ENCODER if getattr(self, name) is None]
        return {name: value for name, value in super().identity().items() if name not in (*unused, *unset)}

    def on_spans(self) -> "CrossEncoderTraining":
        """The settings of the learning on spans, as those of a training of their own."""
        own = {"steps": self.span_steps, "learning_rate": self.span_learning_rate or self.learning_rate}
        return self.model_copy(update={**own, **dict.fromkeys(YOUNGER_OF_CROSS_ENCODER)})


class PseudoLabelsSpec(Spec):
    """PAIR's pseudo-labels (section 3.3 and Table 5).

    Args:
        pool: whose queries are labelled: those of the split train, their own labels hidden (the scorer has been trained
            on them, though), questions generated about the passages, or those of `file`.
        first: who retrieves the candidates: BM25, or the base model fine-tuned without pre-training (PAIR: DPR), which
            alone depends on the recipe's seed.
        depth: candidates a query (PAIR's helper: 50).
        s_pos, s_neg: a candidate above the first is a positive, one below the second a hard negative.
        probability: "sigmoid" of a scorer that is trained pair by pair (PAIR, after RocketQA), or "softmax" over a
            query's candidates of one that is trained listwise, whose scores have no absolute level.
        per_passage: questions generated a passage, for the pool "questions".
        labels: "given" takes the labels of the split train as they are, with BM25 negatives, and asks no cross-encoder
            (PAIR Table 3, "w/o KD"); None makes pseudo-labels.
        file: for the pool "file", queries that nobody has labelled (the paper: 1.8 million): a file with the lines of a
            queries.jsonl, or its name under DR_DATA.
    """

    pool: Literal["train", "questions", "file"] = "train"
    first: Literal["bm25", "dense"] = "bm25"
    depth: int = Field(default=50, gt=0)
    s_pos: float = Field(default=0.9, ge=0, le=1)
    s_neg: float = Field(default=0.1, ge=0, le=1)
    probability: Literal["sigmoid", "softmax"] = "sigmoid"
    per_passage: int = Field(default=1, gt=0)
    labels: Literal["given"] | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _in_order(self) -> "PseudoLabelsSpec":
        if self.s_neg >= self.s_pos:
            raise ValueError(f"s_neg {self.s_neg} is not below s_pos {self.s_pos}")
        if (self.pool == "file") is not bool(self.file):
            raise ValueError('the pool "file" and a file go together')
        return self


class PaqPairsSpec(Spec):
    """DPR-PAQ's questions (section 3.1.1 and "Data preparation"): made here as PAQ was, or read from its file.

    Args:
        file: a published file (PAQ.dpr.train.neg1.jsonl and the like), or its name under DR_DATA; None generates
            questions with `questions` above.
        limit: rows to draw from the file, as in the paper's Figure 2; None takes all.
        per_passage: questions generated a passage.
        filter: "global" keeps a question that leads back to its passage in the whole collection, "local" one that does
            so inside the passage's document, "none" all; see `materials.consistent`.
        top_k: the passage must be among so many.
        filter_by: who is asked: BM25, or the base model fine-tuned without pre-training, which alone depends on the
            recipe's seed.
        negatives: who finds hard negatives (the paper: a dense retriever); "none" leaves random ones. A file brings
            its own.
        depth: hard negatives a question to choose from.
    """

    file: str | None = None
    limit: int | None = Field(default=None, gt=0)
    per_passage: int = Field(default=5, gt=0)
    filter: Literal["none", "local", "global"] = "global"
    top_k: int = Field(default=1, gt=0)
    filter_by: Literal["bm25", "dense"] = "bm25"
    negatives: Literal["none", "bm25", "dense"] = "bm25"
    depth: int = Field(default=20, gt=0)


class RedditPairsSpec(Spec):
    """Pairs that people wrote (Oguz et al. section 3.1.2).

    Args:
        file: a file of posts and comments, or its name under DR_DATA; None pairs the titles of the collection's own
            passages with their bodies.
        limit: rows to draw from the file; None takes all.
    """

    file: str | None = None
    limit: int | None = Field(default=None, gt=0)


class MakersSpec(Spec):
    """How materials are made: what some pre-training methods read beside the passages.

    Args:
        questions: question generator (passage to query).
        continuations: causal LM that goes on where a passage ends.
        cross_encoder: re-ranker, teacher and scorer of PAIR's pseudo-labels.
        pseudo_labels: which pairs that scorer is sure of.
        paq_pairs: questions with the passages they were made from.
        reddit_pairs: posts with comments, or titles with bodies.
    """

    questions: GeneratorTraining = Field(default_factory=GeneratorTraining)
    continuations: GeneratorTraining = Field(default_factory=GeneratorTraining)
    cross_encoder: CrossEncoderTraining = Field(default_factory=CrossEncoderTraining)
    pseudo_labels: PseudoLabelsSpec = Field(default_factory=PseudoLabelsSpec)
    paq_pairs: PaqPairsSpec = Field(default_factory=PaqPairsSpec)
    reddit_pairs: RedditPairsSpec = Field(default_factory=RedditPairsSpec)
