"""The text a base model learns from: passages of several collections, some documents held out.

Page of the book: practice/own-corpus.
"""

from collections.abc import Sequence
from functools import cached_property

import datasets
import numpy as np

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.lab.base_recipe import BaseRecipe, TextSource
from dr_lib.lab.opening import open_collection

COLUMNS = ["title", "text"]


class BaseText:
    """Passages for training and for measuring, without the documents that are to stay unseen.

    Args:
        recipe: names the sources and the share that is held out.

    Raises:
        InputError: a collection that cannot be opened, or a split that it does not have.
    """

    def __init__(self, recipe: BaseRecipe):
        self.sources = recipe.sources
        self.held_out, self.seed = recipe.held_out, recipe.seed
        self.collections = [open_collection(source.name) for source in recipe.sources]

    def digests(self) -> list[dict[str, object]]:
        """What the text depends on, for the key of a stage."""
        return [
            {"digest": collection.digest, "without_documents_of": sorted(source.without_documents_of)}
            for source, collection in zip(self.sources, self.collections, strict=True)
        ]

    def facts(self) -> list[dict[str, object]]:
        """Name, digest and number of passages of each source, for the record."""
        return [
            {"name": collection.name, "passages": len(kept), "without_documents_of": list(source.without_documents_of)}
            | {"digest": collection.digest}
            for source, collection, kept in zip(self.sources, self.collections, self._kept, strict=True)
        ]

    @cached_property
    def _kept(self) -> list[np.ndarray]:
        return [
            allowed_rows(collection, source) for source, collection in zip(self.sources, self.collections, strict=True)
        ]

    def train(self) -> datasets.Dataset:
        """The passages to train on, columns title and text."""
        return self._part(held_out=False)

    def test(self) -> datasets.Dataset:
        """The passages of the documents held out, columns title and text."""
        return self._part(held_out=True)

    def _part(self, held_out: bool) -> datasets.Dataset:
        parts = []
        for collection, rows in zip(self.collections, self._kept, strict=True):
            outside = is_held_out(documents(collection, rows), self.held_out, self.seed)
            parts.append(collection.passages.select(rows[outside == held_out]).select_columns(COLUMNS))
        return datasets.concatenate_datasets([part for part in parts if len(part)])


def allowed_rows(collection: Collection, source: TextSource) -> np.ndarray:
    """Rows of the passages whose document has no judged passage in the splits to be left out."""
    ids = collection.passages.with_format("numpy")["id"][:] if source.without_documents_of else None
    rows = np.arange(len(collection.passages))
    if ids is None:
        return rows
    judged = {
        passage
        for split in source.without_documents_of
        for grades in collection.qrels(split).values()
        for passage in grades
    }
    named = documents(collection, rows)
    unseen = set(named[np.isin(ids, list(judged))])
    kept = rows[~np.isin(named, list(unseen))]
    if not len(kept):
        raise InputError("no passage is left", where=f"source {source.name}", fix="Leave out fewer splits.")
    return kept


def documents(collection: Collection, rows: np.ndarray) -> np.ndarray:
    """The document of each passage; a passage without one counts as a document of its own."""
    chosen = collection.passages.select(rows).with_format("numpy")
    docs, ids = chosen["doc"][:], chosen["id"][:]
    return np.where(docs == "", ids, docs)


def is_held_out(names: Sequence[str] | np.ndarray, share: float, seed: int) -> np.ndarray:
    """Draw about `share` of the distinct names, at least one; True at each row of a drawn one.

    Example:
        >>> is_held_out(["a", "a", "b"], 0.5, seed=0).sum() in (1, 2)
        True
    """
    distinct, inverse = np.unique(np.asarray(names), return_inverse=True)
    count = max(1, round(share * len(distinct)))
    drawn = np.random.default_rng(seed).permutation(len(distinct)) < count
    return drawn[inverse]
