"""Open what a recipe names, once per process: collections, and masked LMs to start from.

Page of the book: practice/own-corpus. Data and models enter the keys of stages by their content, never by name.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from transformers import AutoConfig

from dr_lib import collections, places
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.files import file_digest, json_digest
from dr_lib.lab.specs import CollectionSpec, is_place
from dr_lib.lab.stage import Stage
from dr_lib.models import locate
from dr_lib.tokens import load_tokenizer, tokenizer_digest

MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt")


@lru_cache(maxsize=8)
def open_collection(name: str, allow_duplicates: bool = False) -> Collection:
    """Load a collection; the second call in a process gives the same object."""
    return collections.load(name, allow_duplicates=allow_duplicates)


@lru_cache(maxsize=8)
def open_sample(spec: CollectionSpec) -> Collection:
    """The collection of a recipe, cut to the sizes it asks for."""
    collection, sizes = open_collection(spec.name, spec.allow_duplicates), spec.sample_sizes()
    return collection.sample(**sizes) if sizes else collection


class Shape(NamedTuple):
    """How large a model is."""

    layers: int
    hidden: int
    vocabulary: int
    positions: int


@dataclass(frozen=True)
class Origin:
    """A masked LM to start from: a folder or hub name, or a stage that makes it.

    Attributes:
        name: how a record calls it, never a path.
        shape: its layers, hidden size, vocabulary and longest sequence.
        place: local folder or hub name; None where a stage makes it.
        digest: of the model's files; None where a stage makes it.
        tokenizer: digest of its tokenizer; None where a stage makes it.
        stage: the stage whose folder `model` holds it.
    """

    name: str
    shape: Shape
    place: str | None = None
    digest: str | None = None
    tokenizer: str | None = None
    stage: Stage | None = field(default=None, compare=False)

    def params(self, role: str) -> dict[str, str]:
        """What stands for the model in the parameters of a stage that reads it."""
        return {role: self.digest} if self.digest else {}

    def inputs(self, role: str) -> dict[str, Stage]:
        """What stands for the model among the inputs of a stage that reads it."""
        return {role: self.stage} if self.stage else {}

    def path(self, inputs: dict[str, Path], role: str) -> str:
        """Where to load it from, inside the build of a stage that declared `inputs(role)`."""
        return self.place or str(inputs[role] / "model")


@lru_cache(maxsize=8)
def open_origin(name: str) -> Origin:
    """Find a masked LM by the name in a recipe.

    Args:
        name: "embedded", a local folder, a hub name, or the YAML file of a base recipe.

    Raises:
        InputError: there is nothing usable under that name.
    """
    if name.endswith((".yaml", ".yml")):
        from dr_lib.lab.base import base_stage
        from dr_lib.lab.base_recipe import BaseRecipe

        recipe = BaseRecipe.load(_recipe_file(name))
        shape = Shape(recipe.layers, recipe.hidden, recipe.vocabulary, recipe.positions)
        return Origin(recipe.name, shape, stage=base_stage(recipe))
    place = locate(name)
    shown = Path(place).name if is_place(place) else place
    digests = model_digest(place), tokenizer_digest(load_tokenizer(place))
    return Origin(shown, model_shape(place), place, *digests)


def open_writer(name: str) -> Origin:
    """Find a ready question generator or causal LM by its name in a recipe; its tokenizer may be of any kind.

    Raises:
        InputError: there is nothing usable under that name.
    """
    place = locate(name)
    shown = Path(place).name if is_place(place) else place
    files = sorted(path for path in Path(place).glob("*") if path.is_file())  # of whatever names: kinds differ
    digest = json_digest({path.name: file_digest(path) for path in files}) if files else model_digest(place)
    return Origin(shown, Shape(0, 0, 0, 0), place, digest)


def find_pairs(name: str) -> Path:
    """Find a file of pairs by its name in a recipe.

    Args:
        name: a file; a folder with `pairs/train.jsonl` or `.jsonl.gz`; or the name of either under `DR_DATA`.

    Raises:
        InputError: there is no such file, saying where it was looked for.
    """
    return _find_file(name, "pairs/train.jsonl", "pairs")


def find_queries(name: str) -> Path:
    """Find a file of queries by its name in a recipe, as `find_pairs`; in a folder it is `queries.jsonl` or `.gz`."""
    return _find_file(name, "queries.jsonl", "queries")


def _find_file(name: str, inside: str, what: str) -> Path:
    root = places.data_root()
    looked = [Path(name).expanduser(), *([root / name] if root else [])]
    for path in looked:
        found = next((file for file in (path, path / inside, path / f"{inside}.gz") if file.is_file()), None)
        if found:
            return found.resolve()
    fix = f"Give a file, or a folder with {inside}; or set DR_DATA to the folder that has it."
    raise InputError(f"no file of {what}", where=" or ".join(map(str, looked)), fix=fix)


def file_content(path: Path) -> str:
    """SHA-256 (hex) of a file of pairs or queries; the second call for an unchanged file is free."""
    facts = path.stat()
    return _digest_once(path, facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=32)
def _digest_once(path: Path, size: int, changed: int) -> str:
    return file_digest(path)


def _recipe_file(name: str) -> Path:
    """A base recipe as seen from here, else from the project's root (a notebook may run anywhere)."""
    path = Path(name).expanduser()
    return path if path.exists() else places.project_root() / path


def model_shape(place: str) -> Shape:
    """The size of a model, from its configuration alone."""
    config = AutoConfig.from_pretrained(place)
    return Shape(config.num_hidden_layers, config.hidden_size, config.vocab_size, config.max_position_embeddings)


def model_digest(place: str) -> str:
    """SHA-256 (hex) of a model: of its files in a folder, of name and revision on the hub."""
    folder = Path(place)
    if folder.is_dir():
        return json_digest({name: file_digest(folder / name) for name in MODEL_FILES if (folder / name).is_file()})
    return json_digest({"hub": place, "revision": _hub_revision(place)})


def _hub_revision(name: str) -> str:
    """The commit of a hub model, from the network or from what was fetched before."""
    from huggingface_hub import snapshot_download

    for local_only in (False, True):
        try:
            return Path(snapshot_download(name, allow_patterns=["config.json"], local_files_only=local_only)).name
        except (OSError, ValueError):
            continue
    raise InputError(
        "no such model on the hub, and none fetched before",
        where=name,
        fix='Go online once, or name a local folder or "embedded".',
    )
