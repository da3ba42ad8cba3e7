"""Material of the comparisons with other libraries: real passages and questions, and a model, both
on disk.

Passages and questions are SQuAD's if available, else Primer's repeated, so the lengths are those of
real text. The model is the embedded base model (2 layers of 128), or a fresh BERT of another size
with the same tokenizer.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import datasets
import numpy as np
from transformers import logging

from dr_lib import collections, models, places, tokens

PASSAGE_LENGTH, QUERY_LENGTH = 144, 32


class Material(NamedTuple):
    """Texts, their tokens, and a saved dense encoder.

    Attributes:
        queries, passages: texts.
        positives: `[queries]` a passage that answers each query.
        query_store, passage_store: their tokens.
        model: folder of the encoder, written by `models.DenseEncoder.save`; sentence-transformers
            reads it too.
        hidden: size of its vectors.
        folder: for other temporary files; deleted afterwards.
    """

    queries: list[str]
    passages: list[str]
    positives: np.ndarray
    query_store: tokens.TokenStore
    passage_store: tokens.TokenStore
    model: Path
    hidden: int
    folder: Path


def default_collection() -> str:
    """SQuAD if available, else the built-in collection."""
    return "squad" if places.find_data("squad") else "primer"


def repeated(rows: datasets.Dataset, count: int) -> datasets.Dataset:
    """The first `count` rows; a smaller table is repeated."""
    return rows.select(np.resize(np.arange(len(rows)), count))


@contextmanager
def material(
    passages: int,
    queries: int,
    layers: int | None = None,
    hidden: int = 128,
    collection: str | None = None,
) -> Iterator[Material]:
    """The material, in a temporary folder; `layers` None takes the embedded base model."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    logging.set_verbosity_error()
    datasets.disable_progress_bars()
    found = collections.load(collection or default_collection()).sample(
        passages, train_queries=queries, dev_queries=1, test_queries=1
    )
    place = {name: row for row, name in enumerate(found.passages["id"][:])}
    read, asked = repeated(found.passages, passages), repeated(found.queries("train"), queries)
    qrels = found.qrels("train")
    positives = np.array([place[next(iter(qrels[name]))] for name in asked["id"][:]])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder = _encoder(folder, layers, hidden)
        stores = [
            tokens.TokenStore.build(texts, encoder.tokenizer, folder / kind, columns=("text",))
            for kind, texts in (("queries", asked), ("passages", read))
        ]
        encoder.save(folder / "model")
        texts, size = ((asked["text"][:], read["text"][:]), encoder.encoder.config.hidden_size)
        yield Material(*texts, positives, *stores, folder / "model", size, folder)


def _encoder(folder: Path, layers: int | None, hidden: int) -> models.DenseEncoder:
    source: Path | str = "embedded"
    if layers is not None:
        source, tokenizer = folder / "lm", tokens.load_tokenizer("embedded")
        models.save_masked_lm(
            models.new_bert(len(tokenizer), layers=layers, hidden=hidden), tokenizer, source
        )
    return models.DenseEncoder.from_pretrained(source, title="none")
