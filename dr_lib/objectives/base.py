"""What a pre-training method is: a module that turns a batch of passages into a loss.

A new method is one file: a `Settings` class with its parameters, an `Objective` class with
`forward`, and one line in `objectives/__init__.py`. What it needs besides the passages (importances
of words, generated questions, pseudo-labelled pairs) is a material, made in advance as a stage of
its own: the method names it in `Settings.materials` and reads it in `Objective.batches`. Page:
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
    """Parameters of a method: frozen, each with a default, unknown names refused."""

    def materials(self) -> dict[str, dict[str, Any]]:
        """What has to be made before pre-training: name of each material -> the parameters that the
        method decides.
        """
        return {}

    def depth(self, layers: int) -> int:
        """Layers through which a training step sends each position of a batch, by the memory that
        it takes (`lab.checks`), for an encoder of `layers`.
        """
        return layers


class MaskedSettings(Settings):
    """Parameters of every method that hides tokens.

    Attributes:
        mask_unknown: treat [UNK] as a word like any other. Without it (as in the released code) it
            counts as a special token: it is not among the tokens that a rate refers to, never
            hidden, and never predicted.
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
    """All that batches are made from.

    Attributes:
        store: tokens of the collection's passages.
        layout: how passages and queries become sequences.
        tokens_per_batch: budget of padded tokens of one micro-batch, the same for every method.
        seed: of every draw.
        documents: `[passages]` int64, number of the document of each passage; one without a
            document is its own.
        positions: `[passages]` int64, order of the passages inside their document.
        materials: finished folders by the names that `Settings.materials` gave.
        tokenizer: the one that `store` was built with; None where a method does not ask about
            pieces.
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
        """Passages in batches of the token budget; `changes` are further arguments of
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
"""Kinds of methods; each has a colour of its own in figures that compare several."""


class Objective(nn.Module, ABC):
    """A masked LM and what a method adds to it in order to pre-train it.

    Attributes:
        model: the masked LM being trained; its encoder is what fine-tuning keeps.
        passage_model: a second one where passages have an encoder of their own, else None.
        settings: the method's parameters; its annotation in a class says of which type they are.
        special: ids of [PAD], [UNK], [CLS], [SEP] and [MASK] by short name.
        pieces: number of pieces of the tokenizer; a model may have spare rows above them, which no
            text contains.
    """

    settings: Settings
    settings_type: ClassVar[type[Settings]] = Settings
    """What `settings` is annotated with."""
    title: ClassVar[str]
    """What a page calls the method."""
    family: ClassVar[str]
    """What kind of method it is, one of `FAMILIES`."""
    cites: ClassVar[tuple[str, ...]] = ()
    """Keys of `book/references.bib`: the papers that the method comes from."""
    needs_generator: ClassVar[bool] = False
    reads_queries: ClassVar[bool] = False
    """Whether its batches hold queries, so that their longest length can change the result."""
    shares_batches: ClassVar[bool] = False
    """Whether several processes have a part of every batch each, as a loss that compares rows
    needs; else whole batches go round.
    """
    saved_beside: ClassVar[tuple[str, ...]] = ()
    """Sub-modules whose weights are saved beside the model, so that pre-training can be
    continued.
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
        """Micro-step -> batch, the same number always the same batch; here the passages alone, as a
        `TokenBatch`.
        """
        return source.stream().batch

    @abstractmethod
    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """The loss of a batch.

        Args:
            batch: clean passages, on the model's device.
            generator: source of every random draw but dropout, on the same device.

        Returns:
            ``loss`` (scalar with gradient) and detached scalars to log. Nothing here waits for the
            device.
        """

    def extra_tensors(self) -> dict[str, Tensor]:
        """Weights to save beside the model, by name."""
        return named_parts(self.state_dict(), self.saved_beside)


class MaskedObjective(Objective):
    """A method that hides tokens."""

    settings: MaskedSettings

    def maskable(self, batch: TokenBatch) -> TokenBatch:
        """The batch with [UNK] among the special positions, unless the settings treat it as a
        word.
        """
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
        """Ids `[batch, length]` with the masked pieces hidden (`masking.hide`); no random piece is
        a special one.
        """
        # A random [CLS] or [PAD] in mid-passage would teach something that no passage ever shows.
        special = tuple(self.special.values())
        return masking.hide(
            batch, mask, self.special["mask"], self.pieces, generator, policy, special
        )


class NoObjective(Objective):
    """No pre-training: the base model goes to fine-tuning as it is, the first row of most
    tables.
    """

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
    share it gets right.

    Vocabulary logits exist only at those positions, chunk by chunk.

    Args:
        model: the masked LM.
        states: `[batch, length, hidden]` last-layer states of encoder or decoder.
        input_ids: `[batch, length]` int64 clean ids.
        where: `[batch, length]` bool, what is to be predicted.
        rates: of the draws whose union `where` is: a bound on its size that is known without
            looking, which would stall a GPU. Without rates there is none.
        slack: what masks may hide beyond their rates, in all.
        by_passage: average within each passage first, then over passages; otherwise every token
            weighs the same.

    Returns:
        The loss (float32 scalar with gradient; 0 without positions) and the accuracy (detached).
    """
    # The head turns each position into a whole vocabulary of logits: gather first, so that most are
    # never made. Where a GPU knows no bound, it takes the batch as it lies.
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
    """What a step returns: the loss with its gradient, and detached scalars to log.

    Args:
        loss: the sum that is trained.
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
    """`model/` (`passage_model/` where there are two): the masked LM after pre-training, decoder
    beside it; `log.json`.

    Args:
        folder: where to write.
        start: the masked LM to start from.
        passages: tokens of the passages (`store/`).
        collection: their order in documents.
        generator: masked LM that proposes replacements, for methods that need one.
        materials: finished folders by the names that the method's settings gave.
        beside: file of the decoder and heads that an earlier pre-training left, to go on with;
            where they are not those of `method`, new ones are drawn. The optimiser starts afresh.
        method, settings: the method and its parameters.
        training: how it is trained.
        layout: how a passage becomes a sequence.
        dropout: None keeps what the start says.
        seed: of order, masks and fresh weights.
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
    """The method on its model, fresh weights drawn by `seed` unless the settings name one
    (`init_seed`).

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
