"""MASTER: one encoder, a shallow decoder for each of five tasks (Zhou et al. 2023, section 4, eq.
3-5).

Three groups of tasks: about the passage itself (keywords, and what the encoder saw), its neighbour,
and texts that other language models wrote about it. Every decoder is connected to the encoder by
one vector. Page: papers/master.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt, field_validator
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import masking
from dr_lib.files import open_array
from dr_lib.models import Decoder, embed, hidden_states
from dr_lib.objectives.base import (
    DrawnSettings,
    MaskedObjective,
    Prediction,
    Source,
    predict_tokens,
    report,
)
from dr_lib.settings import Share
from dr_lib.tokens import (
    COARSE,
    MULTIPLE,
    TokenBatch,
    TokenStore,
    TokenValues,
    Window,
    halves,
    join_texts,
    joined_lengths,
    run_places,
)
from dr_lib.training import hash64

Task = Literal["mkp", "cmp", "npr", "dor", "gor"]
TASKS: tuple[Task, ...] = ("mkp", "cmp", "npr", "dor", "gor")
SHARED = "shared"


class MasterSettings(DrawnSettings):
    """Parameters of MASTER. Where paper and released code differ, `paper` and `released` are the
    two values.

    Attributes:
        tasks: mkp (masked keywords), cmp (complementary mask), npr (neighbouring passage), dor
            (doc2query's questions) and gor (a language model's continuation). The paper's groups
            are CPR = mkp and cmp, RPR = npr, POR = dor and gor. An unused task needs no decoder and
            no material.
        shared_decoder: one decoder for all tasks (the last variant of Table 6).
        encoder_rate, decoder_rate: share of tokens hidden on each side.
        complement: the encoder of cmp has its own mask of `complement_rate` (released), or shares
            the mask of `encoder_rate` (paper), whose complement is much larger.
        complement_rate: share of tokens hidden from the encoder of cmp, if it has a mask of its
            own.
        neighbour: the next passage of the document if the collection has documents, else halves of
            one passage (paper); always halves (released).
        window: what is read of a passage that is too long: its beginning, or a new random window of
            its body in each epoch (released).
        weighting: of words for keyword masks, 1 / count in the collection (released) or TF-IDF
            (paper).
        questions: generated questions per passage (the public sample has 10, the paper says only
            k).
        mask_policy: what replaces a hidden token.
        decoder_layers: depth of each decoder; weights are newly drawn, N(0, 0.02).
        passage_weight, complement_weight, half_weight: of the encoder's own masked-LM loss in each
            of its passes; with the last two at 0 there is one such loss, as in the paper's eq. 5
            (released: three, each of weight 1).
        init_seed: of the decoders; None takes the recipe's seed.
    """

    tasks: tuple[Task, ...] = Field(TASKS, min_length=1)
    shared_decoder: bool = False
    encoder_rate: Share = 0.3
    decoder_rate: Share = 0.5
    complement: Literal["released", "paper"] = "released"
    complement_rate: Share = 0.5
    neighbour: Literal["paper", "released"] = "paper"
    window: Window = "first"
    weighting: Literal["inverse_count", "tfidf"] = "inverse_count"
    questions: PositiveInt = 10
    mask_policy: masking.MaskPolicy = "80_10_10"
    decoder_layers: PositiveInt = 2
    passage_weight: NonNegativeFloat = 1.0
    complement_weight: NonNegativeFloat = 1.0
    half_weight: NonNegativeFloat = 1.0

    @field_validator("tasks")
    @classmethod
    def _each_once(cls, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        if len(set(tasks)) < len(tasks):
            raise ValueError("a task is named twice")
        return tuple(task for task in TASKS if task in tasks)

    def depth(self, layers: int) -> int:
        """The encoder, a second pass with its embedding, and a decoder for each task."""
        second = "cmp" in self.tasks and self.complement == "released"
        return layers + second * (layers + 1) + len(self.tasks) * self.decoder_layers

    def materials(self) -> dict[str, dict[str, Any]]:
        """Keyword weights, questions and continuations, each if a chosen task reads it."""
        named = {
            "keyword_weights": ({"mkp", "npr"}, {"weighting": self.weighting}),
            "questions": ({"dor"}, {"per_passage": self.questions}),
            "continuations": ({"gor"}, {}),
        }
        return {
            name: params for name, (readers, params) in named.items() if readers & set(self.tasks)
        }


@dataclass(frozen=True)
class MasterBatch:
    """Texts of one step; parts that no chosen task reads are None. Row i of every part belongs to
    passage i.

    Attributes:
        passages: what the encoder reads; `values` are keyword weights.
        halves: first halves of the passages, from whose vectors a decoder recovers the second
            halves; None if the neighbours are real.
        neighbours: the next passage of the document or the second half, `values` are keyword
            weights. A passage without a next one has nothing to recover here.
        questions: the generated questions of each passage, a [SEP] after each.
        continuations: a language model's continuation of the passage; the passage itself if there
            is none.
        longest_word: a bound on the pieces of a word in any of these.
    """

    passages: TokenBatch
    halves: TokenBatch | None
    neighbours: TokenBatch | None
    questions: TokenBatch | None
    continuations: TokenBatch | None
    longest_word: int

    def __len__(self) -> int:
        return len(self.passages)


class Reading(NamedTuple):
    """One pass of the encoder: clean text, its mask, and its last-layer states."""

    text: TokenBatch
    mask: Tensor
    hidden: Tensor


class Master(MaskedObjective):
    """Recover hidden tokens of five kinds of text, each with a shallow decoder that sees the
    encoder through one vector.
    """

    cites = ("master",)
    title, family = "MASTER", "one vector for a decoder"
    saved_beside = ("decoders",)
    settings: MasterSettings

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: MasterSettings
    ):
        super().__init__(model, tokenizer, settings)
        # A decoder's seed depends on its task, so that dropping a task changes no other decoder.
        seeds = {task: settings.init_seed * len(TASKS) + place for place, task in enumerate(TASKS)}
        names = (
            {SHARED: seeds["mkp"]}
            if settings.shared_decoder
            else {task: seeds[task] for task in settings.tasks}
        )
        self.decoders = nn.ModuleDict(
            {
                name: Decoder(model, settings.decoder_layers, "random", seed=seed)
                for name, seed in names.items()
            }
        )

    @classmethod
    def batches(cls, settings: MasterSettings, source: Source) -> Callable[[int], MasterBatch]:
        """Passages with the texts that the chosen tasks read."""
        return MasterBatches(settings, source).batch

    def forward(self, batch: MasterBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Sum of the decoders' losses and of the encoder's weighted masked-LM losses (eq. 5).

        A passage without questions contributes nothing to dor, one without a neighbour nothing to
        npr.
        """
        texts = {
            name: self.maskable(part)
            for name, part in vars(batch).items()
            if isinstance(part, TokenBatch)
        }
        batch = replace(batch, **texts)
        readings = self.read(batch, generator)
        parts, total = {}, torch.zeros((), device=batch.passages.input_ids.device)
        for name, (text, mask, states) in readings.items():
            prefix = "encoder" if name == "passage" else f"{name}_encoder"
            if weight := getattr(self.settings, f"{name}_weight"):
                parts[prefix] = predict_tokens(
                    self.model, states, text.input_ids, mask, self.rate_of(name)
                )
                total = total + weight * parts[prefix].loss
        for task in self.settings.tasks:
            parts[task] = self.decode(task, batch, readings, generator)
            total = total + parts[task].loss
        return report(total, **parts)

    def read(self, batch: MasterBatch, generator: torch.Generator) -> dict[str, Reading]:
        """The encoder's passes: over the passages, over them with the mask of cmp, and over first
        halves.

        The first two go through the encoder as one batch.
        """
        # Only the passes that are needed: they are the most expensive part of a step.
        names = ["passage"] if self.needs_passage(batch) else []
        names += (
            ["complement"]
            if "cmp" in self.settings.tasks and self.settings.complement == "released"
            else []
        )
        readings = self.encode(names, batch.passages, generator) if names else {}
        if batch.halves is not None:
            readings |= self.encode(["half"], batch.halves, generator)
        return readings

    def encode(
        self, names: list[str], text: TokenBatch, generator: torch.Generator
    ) -> dict[str, Reading]:
        """One pass over several masked copies of a text."""
        masks = [masking.whole_word(text, self.rate_of(name), generator) for name in names]
        ids = [self.hide(text, mask, generator, self.settings.mask_policy) for mask in masks]
        # Both masked copies of a passage go through as one batch of twice the rows, which uses the
        # device better.
        copies = text.take(torch.arange(len(text), device=text.rows.device).repeat(len(names)))
        hidden = hidden_states(self.model, copies, torch.cat(ids)).chunk(len(names))
        return {
            name: Reading(text, mask, part)
            for name, mask, part in zip(names, masks, hidden, strict=True)
        }

    def decode(
        self,
        task: Task,
        batch: MasterBatch,
        readings: dict[str, Reading],
        generator: torch.Generator,
    ) -> Prediction:
        """Loss and accuracy of one task."""
        reading = readings[self.vector_of(task, batch)]
        text, mask, rate = self.target(task, batch, reading, generator)
        ids = self.hide(text, mask, generator, self.settings.mask_policy)
        decoder = self.decoders[SHARED if self.settings.shared_decoder else task]
        decoded = decoder(embed(self.model, ids, text.token_type_ids), reading.hidden[:, 0], text)
        # A keyword mask may exceed its budget by a word, and the encoder's mask may stay below it
        # by one.
        slack = 0 if task in ("dor", "gor") else len(mask) * batch.longest_word
        return predict_tokens(self.model, decoded, text.input_ids, mask, rate, slack=slack)

    def target(
        self, task: Task, batch: MasterBatch, reading: Reading, generator: torch.Generator
    ) -> tuple[TokenBatch, Tensor, float]:
        """What the decoder of a task recovers: the text, its mask, and the rate."""
        rate = self.settings.decoder_rate
        if task in ("mkp", "npr"):
            text = batch.passages if task == "mkp" else batch.neighbours
            return text, masking.keyword(text, text.values, rate, generator), rate
        if task == "cmp":
            seen = 1 - self.rate_of(self.vector_of(task, batch))
            return reading.text, masking.complementary(reading.text, reading.mask), seen
        text = batch.questions if task == "dor" else batch.continuations
        return text, masking.whole_word(text, rate, generator), rate

    def rate_of(self, name: str) -> float:
        """Share of tokens hidden from the encoder in one of its passes."""
        return self.settings.complement_rate if name == "complement" else self.settings.encoder_rate

    def vector_of(self, task: Task, batch: MasterBatch) -> str:
        """The encoder pass whose vector a task's decoder receives."""
        if task == "cmp" and self.settings.complement == "released":
            return "complement"
        return "half" if task == "npr" and batch.halves is not None else "passage"

    def needs_passage(self, batch: MasterBatch) -> bool:
        """Whether the plain pass over the passages has a loss of its own, or a decoder that reads
        its vector.
        """
        read = {self.vector_of(task, batch) for task in self.settings.tasks}
        return self.settings.passage_weight > 0 or "passage" in read


class MasterBatches:
    """Micro-step -> `MasterBatch`; the same step always gives the same batch.

    A batch has as many passages as the token budget holds, counting the longest of all their texts.

    Args:
        settings: the tasks, and which texts are neighbours: "paper" takes the next passage of the
            document where the collection has any, else halves the passage; "released" always halves
            it.
        source: tokens, order of the documents, and the materials `keyword_weights`, `questions` and
            `continuations` as far as the tasks read them.
    """

    def __init__(self, settings: MasterSettings, source: Source):
        self.source, self.store, tasks = source, source.store, settings.tasks
        self.layout = source.layout.passages | {"pad_to_multiple": COARSE}
        weighted = {"mkp", "npr"} & set(tasks)
        self.weights = (
            TokenValues(source.materials["keyword_weights"] / "values", self.store)
            if weighted
            else None
        )
        self.questions = _texts(source, "questions") if "dor" in tasks else None
        self.continuations = _texts(source, "continuations") if "gor" in tasks else None
        follows = next_passages(source.documents, source.positions)
        self.halved = "npr" in tasks and (
            settings.neighbour == "released" or not (follows >= 0).any()
        )
        self.follows = follows if "npr" in tasks and not self.halved else None
        options = {"beside": self._longest(), "pad_to_multiple": COARSE, "window": settings.window}
        self.stream = source.stream(values=self.weights, **options)

    def batch(self, step: int) -> MasterBatch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, _ = self.stream.locate(step)
        passages = self.stream.batch(step)
        parts = {
            **self._neighbours(passages),
            "questions": self.questions and self._joined(self.questions, passages, epoch),
            "continuations": self.continuations and self._continued(passages, epoch),
        }
        longest = max(longest_word(part) for part in (passages, *parts.values()) if part)
        # rounded up, since shapes on a GPU and its CUDA graphs depend on it
        return MasterBatch(passages, **parts, longest_word=-(-longest // MULTIPLE) * MULTIPLE)

    def _longest(self) -> np.ndarray:
        """Length of the longest text that goes with each passage."""
        # Batches are planned by the longest of a passage's texts, so that none exceeds the token
        # budget.
        longest = np.zeros(len(self.store), np.int64)
        for texts in (self.questions, self.continuations):
            if texts:
                longest = np.maximum(longest, joined_lengths(texts.store, texts.offsets))
        if self.follows is not None:
            lengths = self.store.lengths(**self.source.layout.passages)
            longest = np.maximum(longest, np.where(self.follows >= 0, lengths[self.follows], 0))
        return longest

    def _neighbours(self, passages: TokenBatch) -> dict[str, TokenBatch | None]:
        if self.halved:
            first, second = halves(passages, self.store.special["pad"])
            return {"halves": first, "neighbours": second}
        if self.follows is None:
            return {"halves": None, "neighbours": None}
        rows = passages.rows.numpy()
        after = self.follows[rows]
        # A passage without a next one is replaced by itself, blanked, so that the rows of all parts
        # match.
        next_ones = self.store.batch(np.where(after >= 0, after, rows), **self.layout)
        next_ones = self.weights.attach(next_ones, **self.layout)
        return {"halves": None, "neighbours": _blank(next_ones, torch.from_numpy(after < 0))}

    def _joined(self, texts: "PassageTexts", passages: TokenBatch, epoch: int) -> TokenBatch:
        """The texts of each passage, shuffled anew in each epoch; long sequences are cut to a
        random window.
        """
        owners, seed = passages.rows.numpy(), self.source.seed
        counts = texts.offsets[owners + 1] - texts.offsets[owners]
        rows = run_places(texts.offsets[owners], counts)
        # Sorted by owner, then by a hash that changes with the epoch: shuffled within each passage
        # only.
        order = np.lexsort((hash64(seed, epoch, rows), np.repeat(np.arange(len(owners)), counts)))
        return join_texts(
            texts.store,
            rows[order],
            counts,
            owners,
            max_length=self.source.layout.passage_length,
            random_ints=hash64(seed, epoch, owners, 1),
        )

    def _continued(self, passages: TokenBatch, epoch: int) -> TokenBatch:
        written = self._joined(self.continuations, passages, epoch)
        return _filled(written, passages, written.special.all(1), self.store.special["pad"])


@dataclass(frozen=True)
class PassageTexts:
    """Texts written about passages: those of passage p are the rows offsets[p] to offsets[p + 1] of
    the store.
    """

    store: TokenStore
    offsets: np.ndarray


def _texts(source: Source, name: str) -> PassageTexts:
    folder = source.materials[name]
    return PassageTexts(TokenStore.open(folder / "store"), open_array(folder / "offsets.npy"))


def next_passages(documents: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The passage that follows each one in its document, `[passages]` int64, -1 behind the last.

    If a collection holds only some passages of a document, the next one that it holds.

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
    return int((column - masking.first_pieces(batch) + 1).where(~batch.special, 0).max())


def _blank(batch: TokenBatch, rows: Tensor) -> TokenBatch:
    """Some rows reduced to [CLS], with nothing to mask."""
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
    fill = {
        "input_ids": pad_id,
        "attention_mask": 0,
        "token_type_ids": 0,
        "special": True,
        "word_start": False,
    }
    parts = {}
    for name, value in fill.items():
        both = (getattr(tensors, name) for tensors in (other, batch))
        parts[name] = torch.where(
            rows[:, None],
            *(pad(tensors, (0, width - tensors.shape[1]), value=value) for tensors in both),
        )
    return TokenBatch(**parts, rows=batch.rows)
