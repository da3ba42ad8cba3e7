"""What a base model is made from: text, vocabulary, size and training, in one small YAML file.

Page of the book: practice/own-corpus. The embedded base model is notebooks/scales/base-2x128.yaml.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from dr_lib.files import json_digest, read_yaml
from dr_lib.lab.specs import ObjectiveSpec, Pretraining, Spec, explain, is_place


class TextSource(Spec):
    """A collection whose passages are read as plain text.

    Args:
        name: as `collections.load` takes it.
        without_documents_of: splits whose judged documents are left out whole, so that no test text is seen.
    """

    name: str
    without_documents_of: tuple[str, ...] = ()


class BaseRecipe(Spec):
    """A small BERT trained by masked LM on some collections, from nothing.

    Args:
        name: what the model is called.
        sources: the text.
        vocabulary: number of WordPiece pieces, special tokens included.
        layers, hidden, heads: size; the feed-forward part has 4 x `hidden` units.
        positions: longest sequence that the model can ever read.
        length: longest sequence in training, special tokens included.
        title: how a passage becomes a sequence.
        objective: a method that needs no generator, normally "mlm".
        training: steps, rate, batch.
        held_out: share of the documents that are not trained on but measured at the end, in (0, 0.5].
        weights: number type of the saved weights.
        seed: of weights, order and masks.

    Example:
        >>> BaseRecipe(name="tiny", sources=[{"name": "pydocs"}], layers=1, hidden=64).heads
        2
    """

    name: str
    sources: tuple[TextSource, ...] = Field(min_length=1)
    vocabulary: int = Field(default=8192, gt=5)
    layers: int = Field(default=2, gt=0)
    hidden: int = Field(default=128, gt=0)
    heads: int = Field(default=2, gt=0)
    positions: int = Field(default=512, gt=8)
    length: int = Field(default=144, gt=8)
    title: Literal["pair", "joined", "none"] = "pair"
    objective: ObjectiveSpec = Field(default_factory=lambda: ObjectiveSpec(name="mlm"))
    training: Pretraining = Field(default_factory=Pretraining)
    held_out: float = Field(default=0.01, gt=0, le=0.5)
    weights: Literal["float32", "float16"] = "float32"
    seed: int = Field(default=0, ge=0)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise explain(error, type(self)) from None

    @classmethod
    def load(cls, path: Path) -> "BaseRecipe":
        """Read a base recipe from a YAML file."""
        return cls(**read_yaml(path))

    def portable(self) -> dict[str, Any]:
        """All keys as plain JSON values, with the last part in place of a path."""
        values = self.model_dump(mode="json")
        for source in values["sources"]:
            if is_place(source["name"]):
                source["name"] = Path(source["name"]).expanduser().resolve().name
        return values

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of `portable`."""
        return json_digest(self.portable())
