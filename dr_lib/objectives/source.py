"""Where a pre-training method gets its batches from: the collection's tokens, its order, and finished materials.

A material is what a method needs beside the passages, made beforehand as a stage of its own: importances of words,
generated questions, pseudo-labelled pairs. Page: practice/adding-an-objective.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.tokens import BatchStream, Title, TokenStore


@dataclass(frozen=True)
class Source:
    """All that batches are made from.

    Attributes:
        store: tokens of the collection's passages.
        tokens_per_batch: budget of padded tokens of one micro-batch, the same for every method.
        max_length: longest passage, special tokens included.
        query_length: longest query, special tokens included.
        title: how a passage is packed, as in `TokenStore.batch`.
        seed: of every draw.
        documents: `[passages]` int64, number of the document of each passage; one without a document is its own.
        positions: `[passages]` int64, order of the passages inside their document.
        materials: finished folders by the names that `Settings.materials` gave.
        tokenizer: the one that `store` was built with; None where a method does not ask about pieces.
    """

    store: TokenStore
    tokens_per_batch: int
    max_length: int
    query_length: int = 32
    title: Title = "pair"
    seed: int = 0
    documents: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    positions: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    materials: Mapping[str, Path] = field(default_factory=dict)
    tokenizer: PreTrainedTokenizerFast | None = None

    def stream(self, **changes: Any) -> BatchStream:
        """Passages in batches of the token budget; `changes` are further arguments of `BatchStream`."""
        options = {
            "tokens_per_batch": self.tokens_per_batch, "max_length": self.max_length, "title": self.title,
            "seed": self.seed,
        }  # fmt: skip
        return BatchStream(self.store, **(options | changes))

    def material(self, name: str) -> Path:
        """The folder of a material; `InputError` where it was not made."""
        if name not in self.materials:
            known = ", ".join(self.materials) or "none"
            raise InputError(f"no material {name!r}", where="materials", fix=f"Make it first; there is {known}.")
        return self.materials[name]
