"""What MASTER's five tasks read: passages with keyword weights, their neighbours, questions and continuations.

MASTER section 4.2; the released code makes its neighbours by halving a passage. Page: papers/master.
"""

from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from dr_lib.errors import InputError
from dr_lib.objectives.source import Source
from dr_lib.tokens import TokenBatch, TokenStore, TokenValues, halves, join_texts, joined_lengths
from dr_lib.training import hash64

MULTIPLE = 16  # of all padded lengths: five texts a passage would make many shapes


@dataclass(frozen=True)
class MasterBatch:
    """Texts of one step; what no chosen task reads is None. Row i of every part belongs to passage i.

    Attributes:
        passages: what the encoder reads; `values` are keyword weights.
        halves: first halves of the passages, which the encoder reads before a decoder recovers the second ones; None
            where the neighbours are real.
        neighbours: the next passage of the document or the second half, `values` are keyword weights. A passage
            without a next one has no token to recover here.
        questions: the generated questions of each passage, a [SEP] after each.
        continuations: what a language model wrote on; the passage itself where it wrote nothing.
        longest_word: pieces of the longest word in any of these.
    """

    passages: TokenBatch
    halves: TokenBatch | None
    neighbours: TokenBatch | None
    questions: TokenBatch | None
    continuations: TokenBatch | None
    longest_word: int

    def to(self, device: torch.device | str) -> "MasterBatch":
        """The same batch on another device."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return MasterBatch(**{name: part.to(device) if is_dataclass(part) else part for name, part in parts.items()})

    def __len__(self) -> int:
        return len(self.passages)


class MasterBatches:
    """Micro-step -> `MasterBatch`; the same number, the same batch.

    A batch has as many passages as the token budget holds at the longest of all their texts.

    Args:
        tasks: names of the tasks.
        neighbour: "paper" takes the next passage of the document where the collection knows any, else halves the
            passage; "released" always halves it.
        source: tokens, order of the documents, and the materials `keyword_weights`, `questions` and `continuations` as
            far as the tasks read them.

    Raises:
        InputError: a material is missing or belongs to other passages.
    """

    def __init__(self, tasks: tuple[str, ...], neighbour: str, source: Source):
        self.source, self.store = source, source.store
        self.layout: dict[str, Any] = {
            "max_length": source.max_length, "title": source.title, "pad_to_multiple": MULTIPLE,
        }  # fmt: skip
        weighted = {"mkp", "npr"} & set(tasks)
        self.weights = TokenValues.open(source.material("keyword_weights") / "values", self.store) if weighted else None
        self.questions = _texts(source, "questions") if "dor" in tasks else None
        self.continuations = _texts(source, "continuations") if "gor" in tasks else None
        follows = next_passages(source.documents, source.positions)
        self.halved = "npr" in tasks and (neighbour == "released" or not (follows >= 0).any())
        self.follows = follows if "npr" in tasks and not self.halved else None
        self.stream = source.stream(beside=self._longest(), pad_to_multiple=MULTIPLE)

    def batch(self, step: int) -> MasterBatch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, _ = self.stream.locate(step)
        passages = self._weighted(self.stream.batch(step))
        parts = {
            **self._neighbours(passages),
            "questions": self.questions and self._joined(self.questions, passages, epoch),
            "continuations": self.continuations and self._continued(passages, epoch),
        }
        longest = max(longest_word(part) for part in (passages, *parts.values()) if part)
        return MasterBatch(passages=passages, **parts, longest_word=longest)

    def _longest(self) -> np.ndarray:
        """Length of the longest text that goes with each passage."""
        longest = np.zeros(len(self.store), np.int64)
        for texts in (self.questions, self.continuations):
            if texts:
                longest = np.maximum(longest, joined_lengths(texts.store, texts.offsets))
        if self.follows is not None:
            lengths = self.store.lengths(self.source.max_length, self.source.title)
            longest = np.maximum(longest, np.where(self.follows >= 0, lengths[self.follows], 0))
        return longest

    def _weighted(self, batch: TokenBatch) -> TokenBatch:
        return batch if self.weights is None else self.weights.attach(batch, **self.layout)

    def _neighbours(self, passages: TokenBatch) -> dict[str, TokenBatch | None]:
        if self.halved:
            first, second = halves(passages, self.store.special["pad"], pad_to_multiple=MULTIPLE)
            return {"halves": first, "neighbours": second}
        if self.follows is None:
            return {"halves": None, "neighbours": None}
        rows = passages.rows.numpy()
        after = self.follows[rows]
        next_ones = self._weighted(self.store.batch(np.where(after >= 0, after, rows), **self.layout))
        return {"halves": None, "neighbours": _blank(next_ones, torch.from_numpy(after < 0))}

    def _joined(self, texts: "PassageTexts", passages: TokenBatch, epoch: int) -> TokenBatch:
        """The texts of each passage in an order of their own in this epoch, long ones cut to a random window."""
        owners, seed = passages.rows.numpy(), self.source.seed
        counts = texts.offsets[owners + 1] - texts.offsets[owners]
        rows = np.repeat(texts.offsets[owners] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        order = np.lexsort((hash64(seed, epoch, rows), np.repeat(np.arange(len(owners)), counts)))
        return join_texts(
            texts.store, rows[order], counts, owners, max_length=self.source.max_length,
            lots=hash64(seed, epoch, owners, 1), pad_to_multiple=MULTIPLE,
        )  # fmt: skip

    def _continued(self, passages: TokenBatch, epoch: int) -> TokenBatch:
        assert self.continuations is not None
        written = self._joined(self.continuations, passages, epoch)
        return _filled(written, passages, written.special.all(1), self.store.special["pad"])


@dataclass(frozen=True)
class PassageTexts:
    """Texts written about passages: those of passage p are the rows offsets[p] to offsets[p + 1] of the store."""

    store: TokenStore
    offsets: np.ndarray


def _texts(source: Source, name: str) -> PassageTexts:
    folder: Path = source.material(name)
    store, offsets = TokenStore.open(folder / "store"), np.load(folder / "offsets.npy", allow_pickle=False)
    if len(offsets) != len(source.store) + 1 or offsets[-1] != len(store) or store.tokenizer != source.store.tokenizer:
        sizes = f"{len(store)} texts of {len(offsets) - 1} passages, not of {len(source.store)}"
        problem = f"written about other passages or in other tokens ({sizes})"
        raise InputError(problem, where=folder, fix="Make the material again.")
    return PassageTexts(store, offsets)


def next_passages(documents: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The passage that follows each one in its document, `[passages]` int64, -1 behind the last.

    Where a collection holds some passages of a document only, the next one that it holds.

    Args:
        documents: `[passages]` int64, number of the document.
        positions: `[passages]` int64, order inside the document.

    Example:
        >>> next_passages(np.array([7, 3, 7, 7]), np.array([1, 0, 0, 5])).tolist()
        [3, -1, 0, -1]
    """
    order = np.lexsort((positions, documents))
    same = documents[order][1:] == documents[order][:-1]
    follows = np.full(len(documents), -1, np.int64)
    follows[order[:-1][same]] = order[1:][same]
    return follows


def longest_word(batch: TokenBatch) -> int:
    """Pieces of the longest word of a batch, 0 without any."""
    column = torch.arange(batch.special.shape[1])
    start = (column * batch.word_start).cummax(1).values
    return int((column - start + 1).where(~batch.special, 0).max())


def _blank(batch: TokenBatch, rows: Tensor) -> TokenBatch:
    """Some rows without anything to read but [CLS], or to hide."""
    gone = rows[:, None]
    seen = batch.attention_mask.masked_fill(gone, 0)
    seen[:, 0] = 1
    free = {"special": batch.special | gone, "word_start": batch.word_start & ~gone}
    return replace(batch, attention_mask=seen, **free)


def _filled(batch: TokenBatch, other: TokenBatch, rows: Tensor, pad_id: int) -> TokenBatch:
    """Some rows of a batch replaced by those of another; the wider one sets the width."""
    if not rows.any():
        return batch
    width = max(batch.input_ids.shape[1], other.input_ids.shape[1])
    fill = {"input_ids": pad_id, "attention_mask": 0, "token_type_ids": 0, "special": True, "word_start": False}
    parts = {}
    for name, value in fill.items():
        both = (getattr(one, name) for one in (other, batch))
        parts[name] = torch.where(rows[:, None], *(pad(one, (0, width - one.shape[1]), value=value) for one in both))
    return TokenBatch(**parts, rows=batch.rows)
