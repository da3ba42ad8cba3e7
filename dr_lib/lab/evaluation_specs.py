"""The part of a recipe that says what is measured: a search, here or on another collection, or another protocol.

Page of the book: ideas/evaluation. `on`, `nlu` and `dialogue` change what a run is measured on and nothing before it.
"""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from dr_lib.lab.specs import CollectionSpec, Count, Spec


class NluSpec(Spec):
    """Fine-tune the pre-trained encoder on a task of language understanding (MASTER, Table 7).

    Args:
        task: a name in `evaluation.TASKS`: "cola", "mrpc", "stsb", "qqp", "sick-relatedness", "sick-entailment".
        folder: holds `<split>.tsv`: a path, or a name under ``DR_DATA``, such as "glue-cola".
        train, split: the files trained on and measured on; the test files of GLUE come without answers.
        train_rows: only the first so many training rows; None takes all.
        epochs, batch_rows, learning_rate, warmup, weight_decay: of the training. BERT's: 2 to 4 epochs, batches of 16
            or 32, rates of 2e-5 to 5e-5.
        length: longest sequence in pieces.
        dropout: of the head; that of the encoder is the recipe's.
    """

    task: str
    folder: str
    train: str = "train"
    split: str = "dev"
    train_rows: int | None = Count
    epochs: float = Field(default=3.0, gt=0)
    batch_rows: int = Field(default=32, gt=0)
    learning_rate: float = Field(default=2e-5, gt=0)
    warmup: float = Field(default=0.1, ge=0, le=1)
    weight_decay: float = Field(default=0.01, ge=0)
    length: int = Field(default=128, gt=3)
    dropout: float = Field(default=0.1, ge=0, le=1)


class DialogueSpec(Spec):
    """Rank each dialogue's own candidates with the retriever (DPR-PAQ, Table 3).

    Args:
        folder: as `collections.dialogue.load_candidates` takes it, such as "topical-chat".
        split: "dev" or "test".
        limit: only the first so many contexts; None takes all.
        context_length: longest context in pieces (DPR-PAQ: 256).
        side: the end that a long context loses.
    """

    folder: str
    split: str = "test"
    limit: int | None = Count
    context_length: int = Field(default=256, gt=3)
    side: Literal["left", "right"] = "left"


class EvaluationSpec(Spec):
    """What is measured.

    Args:
        split: the queries.
        measures: names as `evaluation.evaluate` takes them.
        depth: passages searched per query.
        vector_type: number type of the stored passage vectors.
        on: another collection to search with the same retriever (zero-shot); None searches the one trained on.
        nlu: in place of a search, a task of language understanding.
        dialogue: in place of a search, response selection.
    """

    split: str = "test"
    measures: tuple[str, ...] = ("MRR@10", "R@50", "R@100", "R@1000", "nDCG@10")
    depth: int = Field(default=1000, gt=0)
    vector_type: Literal["float32", "float16"] = "float32"
    on: CollectionSpec | None = None
    nlu: NluSpec | None = None
    dialogue: DialogueSpec | None = None

    @field_validator("measures")
    @classmethod
    def _some(cls, measures: tuple[str, ...]) -> tuple[str, ...]:
        if not measures:
            raise ValueError("no measure named")
        return measures

    @model_validator(mode="after")
    def _one_protocol(self) -> "EvaluationSpec":
        if sum(given is not None for given in (self.on, self.nlu, self.dialogue)) > 1:
            raise ValueError("give one of on, nlu and dialogue: each is a run of its own")
        return self
