"""MASTER: one encoder, a shallow decoder for each of five tasks (Zhou et al. 2023, section 4, eq. 1-5).

Three groups: the passage itself (keywords, and what the encoder saw), its neighbour, and what other language models
wrote about it. Every decoder knows the encoder through one vector. Page: papers/master.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import masking
from dr_lib.models import Decoder, embed, hidden_states, max_masked
from dr_lib.objectives.base import Objective, Settings
from dr_lib.objectives.master_batches import MasterBatch, MasterBatches
from dr_lib.objectives.predict import labels_at, predict_tokens
from dr_lib.objectives.source import Source
from dr_lib.tokens import TokenBatch

Task = Literal["mkp", "cmp", "npr", "dor", "gor"]
TASKS: tuple[Task, ...] = ("mkp", "cmp", "npr", "dor", "gor")
SHARED = "shared"


class MasterSettings(Settings):
    """Parameters of MASTER. Where paper and released code differ, `paper` and `released` are the two values.

    Attributes:
        tasks: mkp (masked keywords), cmp (complementary mask), npr (neighbouring passage), dor (doc2query's questions)
            and gor (a language model's continuation). The paper's groups are CPR = mkp and cmp, RPR = npr, POR = dor
            and gor. What is left out needs no decoder and no material.
        shared_decoder: one decoder for all tasks (the last variant of Table 6).
        encoder_rate, decoder_rate: share of tokens hidden on each side.
        complement: the encoder of cmp reads its own mask of `complement_rate` (released), or the one mask of
            `encoder_rate` (paper), whose complement is much larger.
        complement_rate: share of tokens that the encoder of cmp loses, where it has a mask of its own.
        neighbour: the next passage of the document where the collection keeps documents, else halves of one passage
            (paper); always halves (released).
        weighting: of words for keyword masks, 1 / count in the collection (released) or TF-IDF (paper).
        questions: generated questions of a passage (the public sample has 10, the paper says only k).
        mask_policy: what becomes of a hidden token.
        decoder_layers: depth of each decoder; weights are drawn anew, N(0, 0.02).
        passage_weight, complement_weight, half_weight: of the encoder's own masked-LM loss in each of its passes; with
            the last two at 0 there is one such loss, as in the paper's eq. 5 (released: three, each of weight 1).
        init_seed: of the decoders.
    """

    tasks: tuple[Task, ...] = Field(TASKS, min_length=1)
    shared_decoder: bool = False
    encoder_rate: float = Field(0.3, ge=0, le=1)
    decoder_rate: float = Field(0.5, ge=0, le=1)
    complement: Literal["released", "paper"] = "released"
    complement_rate: float = Field(0.5, ge=0, le=1)
    neighbour: Literal["paper", "released"] = "paper"
    weighting: Literal["inverse_count", "tfidf"] = "inverse_count"
    questions: int = Field(10, ge=1)
    mask_policy: Literal["mask", "80_10_10"] = "80_10_10"
    decoder_layers: int = Field(2, ge=1)
    passage_weight: float = Field(1.0, ge=0)
    complement_weight: float = Field(1.0, ge=0)
    half_weight: float = Field(1.0, ge=0)
    init_seed: int = Field(0, ge=0)

    @field_validator("tasks")
    @classmethod
    def _each_once(cls, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        if len(set(tasks)) < len(tasks):
            raise ValueError("a task is named twice")
        return tuple(task for task in TASKS if task in tasks)

    def materials(self) -> dict[str, dict[str, Any]]:
        """Keyword weights, questions and continuations, each where a chosen task reads it."""
        named = {
            "keyword_weights": ({"mkp", "npr"}, {"weighting": self.weighting}),
            "questions": ({"dor"}, {"per_passage": self.questions}),
            "continuations": ({"gor"}, {}),
        }
        return {name: params for name, (readers, params) in named.items() if readers & set(self.tasks)}


class Reading(NamedTuple):
    """One pass of the encoder: clean text, what is hidden of it, and its last-layer states."""

    text: TokenBatch
    mask: Tensor
    hidden: Tensor


class Master(Objective):
    """Recover hidden tokens of five kinds of text, each by a shallow decoder that sees the encoder as one vector."""

    settings_type: ClassVar[type[Settings]] = MasterSettings
    saved_beside: ClassVar[tuple[str, ...]] = ("decoders",)
    settings: MasterSettings

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: MasterSettings):
        super().__init__(model, tokenizer, settings)
        seeds = {task: settings.init_seed * len(TASKS) + place for place, task in enumerate(TASKS)}
        names = {SHARED: seeds["mkp"]} if settings.shared_decoder else {task: seeds[task] for task in settings.tasks}
        self.decoders = nn.ModuleDict(
            {name: Decoder(model, settings.decoder_layers, "random", seed=seed) for name, seed in names.items()}
        )

    @classmethod
    def batches(cls, settings: MasterSettings, source: Source) -> Callable[[int], MasterBatch]:
        """Passages with the texts that the chosen tasks read."""
        return MasterBatches(settings.tasks, settings.neighbour, source).batch

    def forward(self, batch: MasterBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Sum of the decoders' losses and of the encoder's weighted masked-LM losses (eq. 5).

        A passage without questions adds nothing to dor, one without a neighbour nothing to npr.
        """
        readings = self.read(batch, generator)
        results: dict[str, Tensor] = {}
        total = torch.zeros((), device=batch.passages.input_ids.device)
        weights = {name: getattr(self.settings, f"{name}_weight") for name in readings}
        for name in [name for name, weight in weights.items() if weight > 0]:
            reading, prefix = readings[name], "encoder" if name == "passage" else f"{name}_encoder"
            bound = max_masked(reading.mask, self.rate_of(name))
            loss, accuracy = self.recover(reading.hidden, reading.text, reading.mask, bound)
            total = total + weights[name] * loss
            results |= {f"{prefix}_loss": loss.detach(), f"{prefix}_accuracy": accuracy}
        for task in self.settings.tasks:
            loss, accuracy = self.decode(task, batch, readings, generator)
            total = total + loss
            results |= {f"{task}_loss": loss.detach(), f"{task}_accuracy": accuracy}
        return {"loss": total, **results}

    def read(self, batch: MasterBatch, generator: torch.Generator) -> dict[str, Reading]:
        """The encoder's passes: over the passages, over them with the mask of cmp, and over first halves.

        The first two go through the encoder as one batch.
        """
        names = ["passage"] if self.needs_passage(batch) else []
        names += ["complement"] if "cmp" in self.settings.tasks and self.settings.complement == "released" else []
        readings = self.encode(names, batch.passages, generator) if names else {}
        if batch.halves is not None:
            readings |= self.encode(["half"], batch.halves, generator)
        return readings

    def encode(self, names: list[str], text: TokenBatch, generator: torch.Generator) -> dict[str, Reading]:
        """One pass over several masked copies of a text."""
        masks = [masking.whole_word(text, self.rate_of(name), generator) for name in names]
        ids = [self.hide(text, mask, generator, self.settings.mask_policy) for mask in masks]
        copies = text.take(torch.arange(len(text), device=text.rows.device).repeat(len(names)))
        hidden = hidden_states(self.model, copies, torch.cat(ids)).chunk(len(names))
        return {name: Reading(text, mask, part) for name, mask, part in zip(names, masks, hidden, strict=True)}

    def decode(
        self, task: Task, batch: MasterBatch, readings: dict[str, Reading], generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Loss and accuracy of one task."""
        reading = readings[self.vector_of(task, batch)]
        text, mask, bound = self.target(task, batch, reading, generator)
        ids = self.hide(text, mask, generator, self.settings.mask_policy)
        decoder = self.decoders[SHARED if self.settings.shared_decoder else task]
        decoded = decoder(embed(self.model, ids, text.token_type_ids), reading.hidden[:, 0], text)
        return self.recover(decoded, text, mask, bound)

    def target(
        self, task: Task, batch: MasterBatch, reading: Reading, generator: torch.Generator
    ) -> tuple[TokenBatch, Tensor, int]:
        """What the decoder of a task recovers: the text, what is hidden of it, and a bound on their number."""
        rate = self.settings.decoder_rate
        if task in ("mkp", "npr"):
            text = batch.passages if task == "mkp" else batch.neighbours
            mask = masking.keyword(text, text.values, rate, generator)
            return text, mask, max_masked(mask, rate) + len(mask) * batch.longest_word
        if task == "cmp":
            seen = 1 - self.rate_of(self.vector_of(task, batch))
            mask = masking.complementary(reading.text, reading.mask)
            return reading.text, mask, max_masked(mask, seen) + len(mask) * batch.longest_word
        text = batch.questions if task == "dor" else batch.continuations
        mask = masking.whole_word(text, rate, generator)
        return text, mask, max_masked(mask, rate)

    def recover(self, states: Tensor, text: TokenBatch, mask: Tensor, bound: int) -> tuple[Tensor, Tensor]:
        """Loss and accuracy at the hidden positions; [UNK] is no target."""
        labels = labels_at(text.input_ids, mask & (text.input_ids != self.special["unk"]))
        return predict_tokens(self.model, states, labels, bound)

    def rate_of(self, name: str) -> float:
        """Share of tokens that the encoder loses in one of its passes."""
        return self.settings.complement_rate if name == "complement" else self.settings.encoder_rate

    def vector_of(self, task: Task, batch: MasterBatch) -> str:
        """The pass of the encoder whose vector a task's decoder gets."""
        if task == "cmp" and self.settings.complement == "released":
            return "complement"
        return "half" if task == "npr" and batch.halves is not None else "passage"

    def needs_passage(self, batch: MasterBatch) -> bool:
        """Whether the plain pass over the passages has a loss of its own or a decoder that reads its vector."""
        read = {self.vector_of(task, batch) for task in self.settings.tasks}
        return self.settings.passage_weight > 0 or "passage" in read
