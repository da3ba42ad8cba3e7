"""The interface of a pre-training method: a module that turns a batch of passages into a loss.

A new method is one file: a `Settings` class with its parameters, an `Objective` class with
`forward`, and one line in `objectives/__init__.py`. Whatever else it needs (importances of words,
generated questions, pseudo-labelled pairs) is a material, made beforehand by a stage of its own:
the method names it in `Settings.materials` and reads it in `Objective.batches`. Page:
practice/adding-an-objective.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import NonNegativeInt
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import losses, masking, models, settings
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.models import lm_head, masked_positions, max_masked, named_parts
from dr_lib.stages import stage
from dr_lib.tokens import BatchStream, Layout, TokenBatch, TokenStore, load_tokenizer, special_ids
from dr_lib.training import Pretraining, machine, on_processes, train


class Settings(settings.Settings):
    """Parameters of a method: frozen, each with a default; unknown names are refused."""

    def materials(self) -> dict[str, dict[str, Any]]:
        """The materials to make before pre-training: name -> parameters set by the method."""
        return {}

    def depth(self, layers: int) -> int:
        """Number of layers whose activations a training step keeps for each position, for an
        encoder of `layers`; used to estimate memory (`lab.checks`).
        """
        return layers


class MaskedSettings(Settings):
    """Parameters of every method that hides tokens.

    Attributes:
        mask_unknown: treat [UNK] like any other word. False (as in the released code) makes it a
            special token: not counted by masking rates, never masked and never predicted.
    """

    mask_unknown: bool = False


class DrawnSettings(MaskedSettings):
    """Parameters of every method that hides tokens and adds newly initialised weights.

    Attributes:
        init_seed: of these weights; None takes the recipe's seed.
    """

    init_seed: NonNegativeInt | None = None


@dataclass(frozen=True)
class Source:
    """The data from which batches are made.

    Attributes:
        store: tokens of the collection's passages.
        layout: how passages and queries become sequences.
        tokens_per_batch: padded tokens per micro-batch, the same for every method.
        seed: of every draw.
        documents: `[passages]` int64, the document of each passage; a passage without one is its
            own document.
        positions: `[passages]` int64, order of the passages inside their document.
        materials: finished folders by the names in `Settings.materials`.
        tokenizer: the one that `store` was built with; None if a method does not need it.
    """

    store: TokenStore
    layout: Layout
    tokens_per_batch: int
    seed: int = 0
    documents: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    positions: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    materials: Mapping[str, Path] = field(default_factory=dict)
    tokenizer: PreTrainedTokenizerFast | None = None

    def stream(self, **changes: Any) -> BatchStream:
        """Batches of passages within the token budget; `changes` are further arguments of
        `BatchStream`.
        """
        budget = {"tokens_per_batch": self.tokens_per_batch, "seed": self.seed}
        return BatchStream(self.store, **budget, **self.layout.passages, **changes)


FAMILIES = (
    "one vector for a decoder",
    "pairs of texts",
    "masked words alone",
    "one vector, no decoder",
    "not pre-trained",
)
"""Families of methods, each with its own colour in figures."""


class Objective(nn.Module, ABC):
    """A masked LM, and what a method adds to pre-train it.

    Attributes:
        model: the masked LM being trained; fine-tuning keeps its encoder.
        passage_model: a second one, if passages have an encoder of their own, else None.
        settings: the method's parameters; a class declares their type by annotating this attribute.
        special: ids of [PAD], [UNK], [CLS], [SEP] and [MASK] by short name.
        pieces: vocabulary size of the tokenizer; the model may have unused rows above it.
    """

    settings: Settings
    settings_type: ClassVar[type[Settings]] = Settings
    """The type that `settings` is annotated with."""
    title: ClassVar[str]
    """The method's title on the book's pages."""
    family: ClassVar[str]
    """One of `FAMILIES`."""
    cites: ClassVar[tuple[str, ...]] = ()
    """The method's papers, as keys of `book/references.bib`."""
    needs_generator: ClassVar[bool] = False
    reads_queries: ClassVar[bool] = False
    """Whether its batches contain queries, so that the query length is part of the key."""
    shares_batches: ClassVar[bool] = False
    """Whether processes share every batch, as a loss that compares rows needs; otherwise each takes
    whole batches.
    """
    saved_beside: ClassVar[tuple[str, ...]] = ()
    """Sub-modules whose weights are saved with the model, so that pre-training can be continued.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.settings_type = cls.__annotations__.get("settings", cls.settings_type)

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: Settings
    ):
        super().__init__()
        self.model, self.settings, self.special = model, settings, special_ids(tokenizer)
        self.pieces = len(tokenizer)
        self.passage_model: PreTrainedModel | None = None

    @classmethod
    def batches(cls, settings: Settings, source: Source) -> Callable[[int], Any]:
        """Micro-step -> batch, the same step always giving the same batch; by default passages
        alone, as a `TokenBatch`.
        """
        return source.stream().batch

    @abstractmethod
    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """The loss of a batch.

        Args:
            batch: clean passages, on the model's device.
            generator: source of all randomness except dropout, on the same device.

        Returns:
            ``loss`` (scalar with gradient) and detached scalars to log. Must not synchronise with
            the device.
        """

    def extra_tensors(self) -> dict[str, Tensor]:
        """Weights to save with the model, by name."""
        return named_parts(self.state_dict(), self.saved_beside)


class MaskedObjective(Objective):
    """A method that hides tokens."""

    settings: MaskedSettings

    def maskable(self, batch: TokenBatch) -> TokenBatch:
        """The batch with [UNK] as a special position, unless the settings treat it as a word."""
        if self.settings.mask_unknown:
            return batch
        unknown = batch.input_ids == self.special["unk"]
        return replace(
            batch, special=batch.special | unknown, word_start=batch.word_start & ~unknown
        )

    def hide(
        self,
        batch: TokenBatch,
        mask: Tensor,
        generator: torch.Generator,
        policy: masking.MaskPolicy = "mask",
    ) -> Tensor:
        """Ids `[batch, length]` with the masked pieces hidden (`masking.hide`); random pieces are
        never special tokens.
        """
        # A random [CLS] or [PAD] in mid-passage never occurs in real input.
        special = tuple(self.special.values())
        return masking.hide(
            batch, mask, self.special["mask"], self.pieces, generator, policy, special
        )


class NoObjective(Objective):
    """No pre-training: the base model is fine-tuned directly, the first row of most tables."""

    cites = ("karpukhin2020",)
    title, family = "no pre-training", "not pre-trained"

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Refuse: there is nothing to train."""
        raise InputError(
            '"none" trains nothing', where="objective", fix="Skip the pre-training stage."
        )


class Prediction(NamedTuple):
    """Loss (scalar with gradient) and accuracy of a prediction."""

    loss: Tensor
    accuracy: Tensor


def predict_tokens(
    model: PreTrainedModel,
    states: Tensor,
    input_ids: Tensor,
    where: Tensor,
    *rates: float,
    slack: int = 0,
    by_passage: bool = False,
) -> Prediction:
    """Mean cross-entropy of the clean tokens at some positions under the model's own head, and the
    accuracy.

    Vocabulary logits are computed at those positions only, chunk by chunk.

    Args:
        model: the masked LM.
        states: `[batch, length, hidden]` last-layer states of encoder or decoder.
        input_ids: `[batch, length]` int64 clean ids.
        where: `[batch, length]` bool, the positions to predict.
        rates: masking rates of the draws whose union is `where`; they bound its size without
            reading it, which would synchronise a GPU. Without rates there is no bound.
        slack: how many positions the masks may hide beyond their rates, in all.
        by_passage: average within each passage first, then over passages; otherwise every token
            weighs the same.

    Returns:
        The loss (float32 scalar with gradient; 0 without positions) and the accuracy (detached).
    """
    # The head makes logits over the whole vocabulary for each position, so gather positions first.
    # On a GPU without a bound, take all positions.
    head, labels = lm_head(model), input_ids.masked_fill(~where, losses.IGNORED).flatten()
    hidden, weights = states.flatten(0, 1), None
    if by_passage:
        weights = (where / where.sum(1, keepdim=True).clamp(min=1)).flatten()
    if rates or where.device.type == "cpu":
        rows = masked_positions(where, max_masked(where, *rates) + slack if rates else None)
        hidden, labels = hidden[rows], labels[rows]
        weights = None if weights is None else weights[rows]
    hidden = head.transform(hidden)
    loss, correct = losses.chunked_cross_entropy(
        hidden, head.weight, head.bias, labels, weights=weights
    )
    return Prediction(loss, torch.as_tensor(correct) / where.sum().clamp(min=1))


def report(loss: Tensor, **parts: Prediction | Tensor) -> dict[str, Tensor]:
    """The result of a step: the loss with its gradient, and detached scalars to log.

    Args:
        loss: the sum to minimise.
        parts: scalars by name; a `Prediction` stands for ``<name>_loss`` and ``<name>_accuracy``.
    """
    logged: dict[str, Tensor] = {}
    for name, part in parts.items():
        pair = isinstance(part, Prediction)
        logged |= (
            {f"{name}_loss": part.loss, f"{name}_accuracy": part.accuracy} if pair else {name: part}
        )
    return {"loss": loss, **{name: value.detach() for name, value in logged.items()}}


@stage(resumable=True, gpu=True, reads=())
@on_processes
def pretrained(
    folder: Path,
    start: Path,
    passages: Path,
    collection: Collection,
    generator: Path | None = None,
    materials: Mapping[str, Path] | None = None,
    beside: Path | None = None,
    *,
    method: type[Objective],
    settings: Settings,
    training: Pretraining,
    layout: Layout,
    dropout: float | None,
    seed: int,
) -> None:
    """`model/` (and `passage_model/` if there are two): the masked LM after pre-training, with its
    decoder; `log.json`.

    Args:
        folder: where to write.
        start: the masked LM to start from.
        passages: tokens of the passages (`store/`).
        collection: for the order of passages in documents.
        generator: masked LM that proposes replacements, for methods that need one.
        materials: finished folders by the names in the method's settings.
        beside: file with the decoder and heads of an earlier pre-training, to continue with; if
            they are not those of `method`, new ones are drawn. The optimiser starts afresh.
        method, settings: the method and its parameters.
        training: how it is trained.
        layout: how a passage becomes a sequence.
        dropout: None keeps that of the start.
        seed: of order, masks and new weights.
    """
    tokenizer = load_tokenizer(start)
    model = models.load_masked_lm(start, dropout=dropout, device=machine.device())
    helper = models.load_masked_lm(generator, device=machine.device()) if generator else None
    objective = assemble(method, settings, model, tokenizer, helper, seed=seed)
    left = models.load_extra(beside.parent) if beside else {}
    if left.keys() == objective.extra_tensors().keys():
        objective.load_state_dict(left, strict=False)
    store, order = TokenStore.open(passages / "store"), collection.documents()
    source = Source(
        store, layout, training.tokens_per_batch, seed, *order, dict(materials or {}), tokenizer
    )
    batches = objective.batches(settings, source)
    title = f"pre-training {method.title}"
    train(
        objective,
        batches,
        training.with_seed(seed),
        folder,
        title=title,
        together=method.shares_batches,
    )
    models.save_masked_lm(objective.model, tokenizer, folder / "model", objective.extra_tensors())
    if objective.passage_model is not None:
        models.save_masked_lm(
            objective.passage_model, tokenizer, folder / "passage_model", objective.extra_tensors()
        )


def assemble(
    method: type[Objective],
    settings: Settings,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    generator_model: PreTrainedModel | None = None,
    *,
    seed: int = 0,
) -> Objective:
    """The method on its model; new weights are drawn from `seed` unless the settings have an
    `init_seed`.

    Raises:
        InputError: model, tokenizer and generator do not fit each other.
    """
    models.check_tokenizer(model.config, tokenizer)
    if getattr(settings, "init_seed", seed) is None:
        settings = settings.model_copy(update={"init_seed": seed})
    if not method.needs_generator:
        return method(model, tokenizer, settings)
    if generator_model is None:
        fix = "Pass `generator_model`: a masked LM of equal vocabulary."
        raise InputError("no generator given", where=method.__name__, fix=fix)
    models.check_tokenizer(generator_model.config, tokenizer, role="generator")
    return method(model, tokenizer, settings, generator_model)
