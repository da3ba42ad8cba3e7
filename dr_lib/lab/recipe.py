"""A recipe: everything that can change a number, frozen, validated, in and out of YAML.

Page of the book: practice/own-corpus. `portable` and `digest` leave out where things lie on this machine; what lies
there enters the keys of stages by its content.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from dr_lib.errors import InputError
from dr_lib.files import json_digest, read_yaml, write_text
from dr_lib.lab.evaluation_specs import EvaluationSpec
from dr_lib.lab.maker_specs import YOUNGER_OF_CROSS_ENCODER, MakersSpec
from dr_lib.lab.pipeline_specs import Distillation, Final, MiningSpec, RerankingSpec
from dr_lib.lab.specs import (
    CollectionSpec,
    Finetuning,
    NegativesSpec,
    ObjectiveSpec,
    Pretraining,
    Spec,
    explain,
    is_place,
    keys_at,
)

YOUNGER = (
    ("few_shot",), ("query_side",), ("evaluation", "on"), ("evaluation", "nlu"), ("evaluation", "dialogue"),
    ("finetuning", "validation"), ("second", "validation"), ("distillation", "validation"),
    *(("makers", "cross_encoder", name) for name in YOUNGER_OF_CROSS_ENCODER), ("makers", "pseudo_labels", "labels"),
    ("makers", "pseudo_labels", "file"), ("negatives", "answers"),
    *(
        (stage, name)
        for stage in ("finetuning", "second", "distillation")
        for name in ("projection", "alpha", "pseudo_labels")
    ),
)  # fmt: skip
"""Keys that have come since the first records, None by default."""

PROTOCOL_PLACES = (("on", "name"), ("nlu", "folder"), ("dialogue", "folder"))


class Recipe(Spec):
    """One configuration of the whole way from a collection to its scores.

    Args:
        collection: what is searched, see `CollectionSpec`; a bare name will do.
        base: the masked LM to start from: "embedded" (the book's own), a local folder, a hub name, or the YAML file
            of a base recipe, which is then trained first.
        generator: the masked LM that replaces tokens, for objectives that need one; None takes `base`.
        title: how a passage becomes a sequence: "pair", "joined" or "none".
        passage_length, query_length: longest sequences in pieces, special tokens included.
        query_side: "left" cuts a long query at its beginning, so that a dialogue keeps its last turns (DPR-PAQ section
            3.3); None cuts at the end.
        pooling: the vector of a sequence: "cls" or "mean".
        dropout: in both trainings, in [0, 1]; None keeps what the base model says.
        objective: pre-training method and its parameters; "none" fine-tunes the base model directly.
        pretraining, finetuning: settings of the two trainings.
        negatives: where hard negatives come from.
        makers: the trainings that make materials, for methods that need some, and the re-ranker.
        final: where the pipeline ends and what is evaluated: retriever 1, retriever 2 (on mined negatives), the
            re-ranker over retriever 2's candidates, or the retriever distilled from it.
        mining, second, reranking, distillation: settings of the later stages; without `second`, retriever 2 is trained
            like retriever 1.
        evaluation: what is measured.
        few_shot: share of the training queries, in (0, 1], whose labels retrievers and re-ranker may learn from; None
            takes all. Pre-training, and what it is made from, stays as it is (MASTER, Figure 3). Draws are nested, and
            their seed is that of `collection`.
        seed: seed of both trainings.

    Raises:
        InputError: an unknown key (the valid ones are listed) or a value out of range.

    Example:
        >>> recipe = Recipe(collection="pydocs", objective={"name": "mlm"})
        >>> recipe.with_(pretraining__steps=500, seed=1).pretraining.steps
        500
        >>> recipe.with_(pretraining__step=500)
        Traceback (most recent call last):
        dr_lib.errors.InputError: pretraining.step: unknown key. Valid keys here: steps, learning_rate, ...
    """

    collection: CollectionSpec = Field(default_factory=CollectionSpec)
    base: str = "embedded"
    generator: str | None = None
    title: Literal["pair", "joined", "none"] = "pair"
    passage_length: int = Field(default=144, gt=3)
    query_length: int = Field(default=32, gt=2)
    query_side: Literal["left"] | None = None
    pooling: Literal["cls", "mean"] = "cls"
    dropout: float | None = Field(default=None, ge=0, le=1)
    objective: ObjectiveSpec = Field(default_factory=ObjectiveSpec)
    pretraining: Pretraining = Field(default_factory=Pretraining)
    finetuning: Finetuning = Field(default_factory=Finetuning)
    negatives: NegativesSpec = Field(default_factory=NegativesSpec)
    makers: MakersSpec = Field(default_factory=MakersSpec)
    final: Final = "retriever1"
    mining: MiningSpec = Field(default_factory=MiningSpec)
    second: Finetuning | None = None
    reranking: RerankingSpec = Field(default_factory=RerankingSpec)
    distillation: Distillation = Field(default_factory=Distillation)
    evaluation: EvaluationSpec = Field(default_factory=EvaluationSpec)
    few_shot: float | None = Field(default=None, gt=0, le=1)
    seed: int = Field(default=0, ge=0)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise explain(error, type(self)) from None

    @model_validator(mode="after")
    def _one_sequence_fits(self) -> "Recipe":
        if self.pretraining.tokens_per_batch < self.passage_length:
            raise ValueError("pretraining.tokens_per_batch cannot hold one sequence of passage_length")
        return self

    def with_(self, **changes: Any) -> "Recipe":
        """The same recipe with some keys changed; a double underscore goes one level down.

        `objective="mlm"` changes the method (and drops the parameters of another one), `collection="squad"` the
        collection, keeping the sizes; a key below `objective` that is not `name` is one of the method's parameters.

        Raises:
            InputError: an unknown key or a value out of range.
        """
        values = self.model_dump(mode="json")
        for path, value in changes.items():
            _put(values, path.split("__"), value)
        return type(self)(**values)

    def portable(self) -> dict[str, Any]:
        """All keys as plain JSON values, with the last part in place of a path: what a record holds.

        Keys that came after the first records are left out where they are not used, so that digests stay.
        """
        values = self.model_dump(mode="json") | {"objective": self.objective.identity()}
        for path in YOUNGER:
            _drop_unset(values, path)
        places = [(values["collection"], "name"), (values, "base"), (values, "generator")]
        makers = [(maker, key) for maker in values["makers"].values() for key in ("model", "file") if key in maker]
        protocols = [(values["evaluation"].get(name), key) for name, key in PROTOCOL_PLACES]
        for holder, key in [*places, *makers, *protocols]:
            if holder and holder[key] and is_place(holder[key]):
                holder[key] = Path(holder[key]).expanduser().resolve().name
        return values

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of `portable`."""
        return json_digest(self.portable())

    def to_yaml(self) -> str:
        """The recipe as YAML text, every key spelled out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    def save(self, path: Path) -> None:
        """Write `to_yaml` to a file."""
        write_text(path, self.to_yaml())

    @classmethod
    def load(cls, path: Path) -> "Recipe":
        """Read a recipe from a YAML file; what it leaves out gets its default."""
        return cls(**read_yaml(path))


def recipe_for(overrides: Mapping[str, Any] | None = None, collection: str | None = None) -> Recipe:
    """The recipe of a notebook: its scale's overrides, and the collection it was given.

    Args:
        overrides: nested mapping, the key `recipe` of a scale file.
        collection: name or path; None keeps that of `overrides` (else the default).

    Example:
        >>> recipe_for({"pretraining": {"steps": 10}, "collection": {"passages": 300}}, "pydocs").collection.passages
        300
    """
    recipe = Recipe(**dict(overrides or {}))
    return recipe.with_(collection=str(collection)) if collection else recipe


def _put(values: dict[str, Any], path: list[str], value: Any) -> None:
    """Set one key of a dumped recipe, in place."""
    head = path[0]
    if head == "collection" and len(path) == 1 and isinstance(value, str):
        values["collection"]["name"] = value
    elif head == "objective" and len(path) == 1 and isinstance(value, str):
        if values["objective"]["name"] != value:
            values["objective"] = {"name": value, "params": {}}
    elif head == "objective" and len(path) == 2 and path[1] not in ("name", "params"):
        values["objective"]["params"][path[1]] = value
    else:
        _descend(values, path)[path[-1]] = value


def _drop_unset(values: dict[str, Any], path: Sequence[str]) -> None:
    """Take a key that is None out of a dumped recipe, in place."""
    holder: dict[str, Any] | None = values
    for part in path[:-1]:
        holder = (holder or {}).get(part)
    if holder is not None and holder[path[-1]] is None:
        del holder[path[-1]]


def _descend(values: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """The mapping that holds the last key of `path`."""
    for depth, part in enumerate(path[:-1]):
        if not isinstance(values.get(part), dict):
            known = ", ".join(keys_at(Recipe, path[:depth]))
            fix = f"Valid keys here: {known}." if known else "Nothing lies below it."
            raise InputError("unknown key", where=".".join(path), fix=fix)
        values = values[part]
    return values
