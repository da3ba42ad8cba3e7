"""Stages that measure something else than a search: language understanding, and response selection.

MASTER, Table 7 (the pre-trained encoder is fine-tuned on CoLA, MRPC, STS-B, ...); DPR-PAQ, Table 3 (the retriever ranks
each dialogue's candidates). Both end in `scores.json`, one value a row or context. Page of the book: ideas/evaluation.
"""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

from dr_lib import models
from dr_lib.collections.dialogue import file_of as dialogue_file
from dr_lib.collections.dialogue import load_candidates
from dr_lib.errors import InputError
from dr_lib.evaluation import evaluate_candidates, finetune_nlu, load_nlu, nlu_file, steps_for, task_of
from dr_lib.files import file_digest, json_digest
from dr_lib.lab.builds import Inputs, encoding_budget, open_encoder
from dr_lib.lab.evaluation_specs import DialogueSpec, NluSpec
from dr_lib.lab.opening import Origin
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.stage import Stage
from dr_lib.tokens import load_tokenizer
from dr_lib.training import TrainSettings, machine


def measured(recipe: Recipe, base: Origin, pretrained: Stage | None, retriever: Stage) -> Stage | None:
    """The stage that the recipe's `evaluation.nlu` or `evaluation.dialogue` asks for; None where it is a search."""
    options = recipe.evaluation
    if options.nlu:
        return nlu(recipe, options.nlu, base, pretrained)
    return dialogue(recipe, options.dialogue, base, retriever) if options.dialogue else None


def nlu(recipe: Recipe, spec: NluSpec, base: Origin, pretrained: Stage | None) -> Stage:
    """The pre-trained (or base) encoder fine-tuned on a task; `predicted` and `actual` of every row."""
    check_length(spec.length, base, "evaluation.nlu.length")
    task_of(spec.task)
    params = {
        "data": nlu_digest(spec), "task": spec.task, **spec.model_dump(mode="json", exclude={"folder", "task"}),
        "encoder_dropout": recipe.dropout, "seed": recipe.seed, **({} if pretrained else base.params("base")),
    }  # fmt: skip
    inputs = {"pretrained": pretrained} if pretrained else base.inputs("base")
    build = partial(build_nlu, recipe=recipe, spec=spec, base=base)
    return Stage("nlu", 1, params, build, inputs, resumable=True)


def dialogue(recipe: Recipe, spec: DialogueSpec, base: Origin, retriever: Stage) -> Stage:
    """R@1 and MRR of every context among its own candidates."""
    if recipe.final == "reranker":
        raise InputError("candidates are ranked by a retriever", where="final", fix='Give "retriever2" or "distilled".')
    check_length(spec.context_length, base, "evaluation.dialogue.context_length")
    params = {"data": dialogue_digest(spec), **spec.model_dump(mode="json", exclude={"folder"})}
    build = partial(build_dialogue, spec=spec)
    return Stage("dialogue", 1, params, build, {"retriever": retriever})


def check_length(length: int, base: Origin, where: str) -> None:
    """Refuse sequences that the model cannot read."""
    if length > base.shape.positions:
        problem = f"sequences of {length} pieces, but {base.name} reads {base.shape.positions}"
        raise InputError(problem, where=where, fix="Shorten the sequences or take another base model.")


def build_nlu(folder: Path, inputs: Inputs, *, recipe: Recipe, spec: NluSpec, base: Origin) -> None:
    """`scores.json`: a row's class or score as predicted and as it is, and for classes whether it is right; `log.json`.

    Tokens and checkpoints lie in a folder that is dropped once the stage is finished.
    """
    start = inputs["pretrained"] / "model" if "pretrained" in inputs else base.path(inputs, "base")
    encoder = models.load_masked_lm(start, dropout=recipe.dropout, device=machine.device())
    train, test = load_nlu(spec.task, spec.folder, spec.train), load_nlu(spec.task, spec.folder, spec.split)
    train = train.first(spec.train_rows)
    settings = TrainSettings(
        steps=steps_for(len(train), spec.batch_rows, spec.epochs), learning_rate=spec.learning_rate,
        warmup=spec.warmup, weight_decay=spec.weight_decay, seed=recipe.seed,
    )  # fmt: skip
    scores = finetune_nlu(
        encoder, load_tokenizer(start), train, test, settings, folder / "checkpoint-work", batch_rows=spec.batch_rows,
        max_length=spec.length, dropout=spec.dropout,
    )  # fmt: skip
    shutil.copy(folder / "checkpoint-work" / "training" / "log.json", folder / "log.json")
    scores.save(folder / "scores.json")


def build_dialogue(folder: Path, inputs: Inputs, *, spec: DialogueSpec) -> None:
    """`scores.json`: "R@1" and "MRR" of every context."""
    second = inputs["retriever"] / "passage_model"
    reader = open_encoder(inputs["retriever"] / "model")
    scores = evaluate_candidates(
        open_encoder(second) if second.is_dir() else reader, load_candidates(spec.folder, spec.split, limit=spec.limit),
        context_encoder=reader, context_length=spec.context_length, side=spec.side, tokens_per_batch=encoding_budget(),
    )  # fmt: skip
    scores.save(folder / "scores.json")


def facts(recipe: Recipe) -> dict[str, Any] | None:
    """What a record tells of the data of these protocols: name, digest and split; None where it is a search."""
    options = recipe.evaluation
    if options.nlu:
        return {"name": Path(options.nlu.folder).name, "digest": nlu_digest(options.nlu), "task": options.nlu.task}
    if options.dialogue:
        return {"name": Path(options.dialogue.folder).name, "digest": dialogue_digest(options.dialogue)}
    return None


def nlu_digest(spec: NluSpec) -> str:
    """SHA-256 (hex) over the two files of a task."""
    return json_digest([file_digest(nlu_file(spec.folder, split)) for split in (spec.train, spec.split)])


def dialogue_digest(spec: DialogueSpec) -> str:
    """SHA-256 (hex) of the file of dialogues."""
    return file_digest(dialogue_file(spec.folder, spec.split))
