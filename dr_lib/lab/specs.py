"""The parts of a recipe: what can be said about each step of a run.

Page of the book: practice/own-corpus. Defaults are SimLM's published settings (Tables 11 and 13) wherever they fit
any machine; a scale file (notebooks/scales) overrides what a smaller one needs.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dr_lib import objectives
from dr_lib.errors import InputError
from dr_lib.training import TrainSettings

Count = Field(default=None, gt=0)
YOUNGER_PARAMS = ("separate",)  # parameters of methods that have come since the first records, None by default


class Spec(BaseModel):
    """A frozen part of a recipe; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CollectionSpec(Spec):
    """Which collection, and how much of it.

    Args:
        name: as `collections.load` takes it.
        passages: number of passages to keep; None keeps all, as for the other three.
        train_queries, dev_queries, test_queries: number of queries to draw from a split.
        seed: seed of the draw. It is not the seed of the run: all seeds of a study see the same collection.
        allow_duplicates: keep passages that repeat title and text of another one, instead of refusing the folder.
    """

    name: str = "pydocs"
    passages: int | None = Count
    train_queries: int | None = Count
    dev_queries: int | None = Count
    test_queries: int | None = Count
    seed: int = Field(default=0, ge=0)
    allow_duplicates: bool = False

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        return {"name": str(values)} if isinstance(values, str | Path) else values

    def sample_sizes(self) -> dict[str, int]:
        """Arguments for `Collection.sample`; empty if the whole collection is meant."""
        sizes = self.model_dump(exclude={"name", "seed", "allow_duplicates"}, exclude_none=True)
        return sizes | {"seed": self.seed} if sizes else {}


class ObjectiveSpec(Spec):
    """Which pre-training method, with all its parameters.

    Args:
        name: one of `objectives.names()`.
        params: the method's parameters; they may also stand beside `name`. What is left out gets its default.

    Example:
        >>> ObjectiveSpec(name="none").params
        {}
    """

    name: str = "simlm"
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _flatten(cls, values: Any) -> Any:
        if isinstance(values, str):
            return {"name": values}
        if isinstance(values, dict):
            beside = {key: value for key, value in values.items() if key not in ("name", "params")}
            kept = {key: values[key] for key in ("name",) if key in values}
            return kept | {"params": {**(values.get("params") or {}), **beside}}
        return values

    def identity(self) -> dict[str, Any]:
        """Name and parameters, those left out that have come since the first records and are not used."""
        params = {key: value for key, value in self.params.items() if key not in YOUNGER_PARAMS or value is not None}
        return {"name": self.name, "params": params}

    @model_validator(mode="after")
    def _complete(self) -> "ObjectiveSpec":
        object.__setattr__(self, "params", objectives.parameters(self.name, **self.params).model_dump(mode="json"))
        return self


class Training(TrainSettings):
    """Settings of one training stage. The seed is the recipe's, so it cannot be set here."""

    seed: int = Field(default=0, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _no_seed(cls, values: Any) -> Any:
        if isinstance(values, dict) and "seed" in values:
            raise ValueError("the seed is set once for the whole recipe (key seed)")
        return values

    def settings(self, seed: int) -> TrainSettings:
        """The plain training settings, with the recipe's seed."""
        names = set(TrainSettings.model_fields) - {"seed"}
        return TrainSettings(**self.model_dump(include=names), seed=seed)

    def identity(self) -> dict[str, Any]:
        """Everything that can change a weight, for the key of a stage."""
        return {name: value for name, value in super().identity().items() if name != "seed"}


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


class ValidationSpec(Spec):
    """Looks at a retriever while it is trained: MRR over a small pool in memory (DPR-PAQ, section 3.3).

    The pool holds the relevant passages of some queries and what BM25 finds for them (`evaluation.ProxyPool`).

    Args:
        every: updates between two looks.
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
        chunk: texts encoded at a time, where a batch does not fit in memory (`models.encode_in_chunks`).
        validation: looks at dev queries on the way, and which weights are kept; None trains to the end unseen.
        projection: Linear and LayerNorm over the vector (DPR-PAQ for RoBERTa), going on from those of pre-training
            where it had some; None has none.
        alpha: weight of PAIR's passage-centric loss; None leaves it to pre-training, as the paper does.
        pseudo_labels: learn from pseudo-labels of the training queries beside the given ones (PAIR section 3.4), made
            as `makers.pseudo_labels` says.
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
    chunk: int | None = Count
    validation: ValidationSpec | None = None
    projection: Literal[True] | None = None
    alpha: float | None = Field(default=None, ge=0, le=1)
    pseudo_labels: bool | None = None

    def identity(self) -> dict[str, Any]:
        """Everything that can change a weight; some keys only where set, `chunk` too, since chunks round differently.

        Pseudo-labels are an input of the stage, which is enough to tell it from one without.
        """
        unset = [name for name in ("chunk", "validation", "projection", "alpha") if getattr(self, name) is None]
        return {name: value for name, value in super().identity().items() if name not in [*unset, "pseudo_labels"]}


class NegativesSpec(Spec):
    """Where hard negatives come from (reference: SimLM's own preparation of MS MARCO).

    Args:
        source: "bm25".
        depth: first passages of the ranking to draw from.
        random_negatives: passages from anywhere added to each list.
        seed: seed of the shuffle; the same for all seeds of a study, whose runs walk through the lists differently.
        answers: "drop" leaves out passages that hold an accepted answer (DPR, for questions with answers); None keeps
            them.
    """

    source: Literal["bm25"] = "bm25"
    depth: int = Field(default=200, gt=0)
    random_negatives: int = Field(default=10, ge=0)
    seed: int = Field(default=0, ge=0)
    answers: Literal["drop"] | None = None


def explain(error: ValidationError, model: type[BaseModel]) -> InputError:
    """Turn the first complaint of pydantic about a (nested) model into our error, naming the valid keys."""
    first = error.errors()[0]
    cause = (first.get("ctx") or {}).get("error")
    path = [part for part in first["loc"] if isinstance(part, str)]
    where = ".".join(path) or model.__name__
    if isinstance(cause, InputError):
        return InputError(cause.problem, where=f"{where}.{cause.where}", fix=cause.fix)
    if first["type"] == "extra_forbidden":
        return InputError("unknown key", where=where, fix=f"Valid keys here: {', '.join(keys_at(model, path[:-1]))}.")
    problem = first["msg"].removeprefix("Value error, ").rstrip(".")
    given = "" if first["type"] in ("value_error", "missing") else f" (got {first['input']!r})"
    return InputError(problem + given, where=where, fix="Correct this key.")


def keys_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """Names of the fields of the model that `path` leads to.

    Example:
        >>> keys_at(NegativesSpec, [])
        ['source', 'depth', 'random_negatives', 'seed', 'answers']
    """
    for part in path:
        field = model.model_fields.get(part)
        if field is None or not isinstance(field.annotation, type) or not issubclass(field.annotation, BaseModel):
            return []
        model = field.annotation
    return [name for name, field in model.model_fields.items() if not field.exclude]


def is_place(name: str) -> bool:
    """Whether a name is a path on this machine, which no record may hold.

    Example:
        >>> is_place("squad"), is_place("../shared/data/squad"), is_place("google/electra-base-generator")
        (False, True, False)
    """
    return Path(name).expanduser().exists() or name.startswith((".", "/", "~"))
