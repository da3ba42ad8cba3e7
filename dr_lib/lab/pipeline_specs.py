"""The parts of a recipe that come after the first retriever: mining, second retriever, re-ranker, distillation.

Page of the book: ideas/pipeline. Defaults are SimLM's (Table 13 and its released scripts).
"""

from typing import Literal

from pydantic import Field, model_validator

from dr_lib.lab.specs import Finetuning, Spec

Final = Literal["pretrained", "retriever1", "retriever2", "reranker", "distilled"]
"""Where the pipeline ends; what comes before is built as far as it is needed. "pretrained" is not fine-tuned at all."""


class MiningSpec(Spec):
    """Hard negatives found by a retriever itself (SimLM Figure 2: retriever 1 mines for retriever 2).

    Args:
        depth: first passages of the ranking to draw from.
        random_negatives: passages from anywhere added to each list.
        seed: seed of the shuffle.
        rounds: how often a retriever is trained on what the one before it has mined; retriever 2 is the last one.
        with_bm25: train on the BM25 negatives too, both lists put together (Tevatron's recipe of coCondenser).
        answers: passages that hold an accepted answer: "keep" them as negatives, or "drop" them (open-domain QA).
    """

    depth: int = Field(default=200, gt=0)
    random_negatives: int = Field(default=10, ge=0)
    seed: int = Field(default=0, ge=0)
    rounds: int = Field(default=1, gt=0)
    with_bm25: bool = False
    answers: Literal["keep", "drop"] = "keep"


class RerankingSpec(Spec):
    """How the re-ranker is used once it is trained (`makers.cross_encoder` trains it).

    Args:
        depth: passages of retriever 2's ranking that are scored anew; the others keep their order below (SimLM: 200).
    """

    depth: int = Field(default=200, gt=0)


class Distillation(Finetuning):
    """Fine-tuning on the re-ranker's scores (SimLM Table 13: 23 negatives, rate 3e-5, contrastive weight 0.2).

    Args:
        contrastive_weight: weight of the contrastive loss beside the KL divergence.
        teacher_temperature: teacher scores are divided by it.
        mean: reduction of the KL divergence, see `losses.distillation`.
        listed: negatives of each query that the teacher reads, drawn from retriever 2's first `mining.depth` and the
            random ones; None takes all, which is many pairs to score.
    """

    negatives: int = Field(default=23, gt=0)
    learning_rate: float = Field(default=3e-5, gt=0)
    contrastive_weight: float = Field(default=0.2, ge=0)
    teacher_temperature: float = Field(default=1.0, gt=0)
    mean: Literal["query", "element"] = "query"
    listed: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _reads_what_the_teacher_read(self) -> "Distillation":
        if self.pseudo_labels:
            raise ValueError("a teacher's scores stand beside the given labels alone (key pseudo_labels)")
        return self
