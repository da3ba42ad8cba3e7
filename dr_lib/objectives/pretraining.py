"""The stage that pre-trains a base model with any of the methods. Page of the book:
ideas/bottleneck.
"""

from collections.abc import Mapping
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import models
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.objectives.base import Objective, Settings, Source
from dr_lib.stages import stage
from dr_lib.tokens import Layout, TokenStore, load_tokenizer
from dr_lib.training import Pretraining, machine, on_processes, train


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
            where they are not those of `method`, its own are drawn. The optimiser starts anew.
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
    title = f"pre-training {method.__name__}"
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
