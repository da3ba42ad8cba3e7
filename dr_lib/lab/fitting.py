"""A recipe cut to the GPU that is there: smaller micro-batches and gradient caches, the same
updates. Page of the book: practice/gpu.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from dr_lib import objectives
from dr_lib.lab.checks import Step, steps_of
from dr_lib.lab.inputs import Inputs
from dr_lib.lab.recipe import Recipe
from dr_lib.models import hidden_states, new_bert
from dr_lib.tokens import TokenBatch
from dr_lib.training import machine

Trial = Callable[[Step, int], None]


def fitted(recipe: Recipe, memory: int | None = None, trial: Trial | None = None) -> Recipe:
    """The recipe, with every training cut to what fits the memory of a GPU.

    Pre-training that predicts tokens gets more micro-batches an update, of together as many tokens.
    Trainings that compare the texts of a batch keep it and get a gradient cache (`chunk`). How much
    fits is told by the table of `lab.checks`, then tried by one step at full length, and
    halved until that step runs. What fits already is left as it is.

    Args:
        recipe: any recipe whose models are at hand.
        memory: bytes; None takes the GPU that is here, and without one returns the recipe.
        trial: runs a step of sequences of a length, and raises `torch.OutOfMemoryError` where it
            does not fit; None takes `try_step` where there is a GPU, and tries nothing elsewhere.

    Returns:
        A recipe with a key of its own. Its numbers are those of the first up to rounding.

    Raises:
        torch.OutOfMemoryError: not even one sequence at a time fits.

    Example: ``lab.Study("mine/rates", {"paper": lab.fitted(recipe)}).run()``
    """
    memory = memory or machine.gpu_memory()
    if memory is None:
        return recipe
    if trial is None:
        trial = try_step if machine.device().type == "cuda" else lambda step, length: None
    changes: dict[str, Any] = {}
    for name, step in steps_of(Inputs(recipe)).items():
        place, settings = name.replace(".", "__"), _settings(recipe, name)
        length = getattr(settings, "length", None) or recipe.passage_length
        most = tried(step, length, min(step.positions, step.fitting(memory)), trial)
        if most >= step.positions:
            continue
        method = objectives.parameters(recipe.objective.name, **recipe.objective.params)
        if name == "pretraining" and "chunk" in type(method).model_fields:
            changes["objective__chunk"] = max(1, most // length)
        elif name == "pretraining":
            times = math.ceil(settings.tokens_per_batch / most)
            changes[f"{place}__accumulation"] = settings.accumulation * times
            changes[f"{place}__tokens_per_batch"] = math.ceil(settings.tokens_per_batch / times)
        else:
            changes[f"{place}__chunk"] = max(1, most // length)
    return recipe.with_(**changes) if changes else recipe


def _settings(recipe: Recipe, name: str) -> Any:
    """The settings of a training by their key, such as "auxiliary.cross_encoder"."""
    found: Any = recipe
    for part in name.split("."):
        found = getattr(found, part)
    return found


def tried(step: Step, length: int, positions: int, trial: Trial) -> int:
    """The positions with which a step runs: those given, else half as many, and so on."""
    while True:
        positions = max(positions, length)
        try:
            trial(step._replace(positions=positions), length)
            return positions
        except torch.OutOfMemoryError:
            if positions == length:
                raise
            positions //= 2


def try_step(step: Step, length: int) -> None:
    """One step of a fresh BERT of some size over full sequences, forward and backward, as a
    training computes it.

    Raises:
        torch.OutOfMemoryError: it does not fit beside the optimiser's two moments.
    """
    device = machine.device()
    heads = max(1, step.hidden // 64)
    model = new_bert(
        8, layers=step.layers, hidden=step.hidden, heads=heads, dropout=0.1, device=device
    )
    moments = torch.empty(2 * step.weights, device=device)
    ids = torch.ones(max(1, step.positions // length), length, dtype=torch.long, device=device)
    flags = torch.zeros_like(ids, dtype=torch.bool)
    batch = TokenBatch(ids, ids, ids - 1, flags, ~flags, ids[:, 0])
    enabled = machine.precision("auto", device) == "bf16"
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=enabled):
            states = hidden_states(model.train(), batch)
        states.float().square().mean().backward()
    finally:
        del model, moments, batch
        if device.type == "cuda":
            torch.cuda.empty_cache()
