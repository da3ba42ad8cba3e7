"""Train a base model from plain text: vocabulary, tokens, masked LM, held-out loss; and put it into the book.

Page of the book: practice/own-corpus. Three stages, so that another size of model shares vocabulary and tokens.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dr_lib import models, objectives
from dr_lib.files import fresh_folder, read_json, write_json
from dr_lib.lab.base_recipe import BaseRecipe
from dr_lib.lab.base_text import COLUMNS, BaseText
from dr_lib.lab.cache import Cache
from dr_lib.lab.cost import bert_work
from dr_lib.lab.provenance import commit
from dr_lib.lab.records import thin
from dr_lib.lab.stage import Stage
from dr_lib.objectives import Objective
from dr_lib.tokens import BatchStream, TokenStore, load_tokenizer, train_wordpiece
from dr_lib.training import TrainLog, machine, train


def base_stage(recipe: BaseRecipe) -> Stage:
    """The trained base model; its folder has `model/`, `log.json` and `held_out.json`."""
    text = BaseText(recipe)
    source = {"text": text.digests(), "held_out": recipe.held_out, "seed": recipe.seed}
    vocabulary = Stage("vocabulary", 1, source | {"size": recipe.vocabulary}, _vocabulary(recipe, text), cost=1.0)
    tokens = Stage("base_tokens", 1, source, _tokens(text), {"vocabulary": vocabulary}, cost=1.0)
    training = recipe.training
    params = {
        "model": recipe.model_dump(mode="json", include={"layers", "hidden", "heads", "positions", "weights"}),
        "sequences": {"length": recipe.length, "title": recipe.title},
        "objective": recipe.objective.model_dump(mode="json"),
        "training": training.identity(),
        "seed": recipe.seed,
    }
    work = bert_work(recipe.layers, recipe.hidden, recipe.vocabulary, share_predicted=0.15)
    cost = work * training.steps * training.accumulation * training.tokens_per_batch
    return Stage(
        "base", 2, params, _model(recipe), {"vocabulary": vocabulary, "tokens": tokens}, resumable=True, cost=cost
    )


def _vocabulary(recipe: BaseRecipe, text: BaseText) -> Callable[[Path, dict[str, Path]], None]:
    def build(folder: Path, _: dict[str, Path]) -> None:
        rows = text.train()
        texts = [column for name in COLUMNS for column in rows[name]]
        train_wordpiece(texts, recipe.vocabulary).save_pretrained(folder / "tokenizer")

    return build


def _tokens(text: BaseText) -> Callable[[Path, dict[str, Path]], None]:
    def build(folder: Path, inputs: dict[str, Path]) -> None:
        tokenizer = load_tokenizer(inputs["vocabulary"] / "tokenizer")
        for name, rows in (("train", text.train()), ("held_out", text.test())):
            TokenStore.build(rows, tokenizer, folder / name)

    return build


def _model(recipe: BaseRecipe) -> Callable[[Path, dict[str, Path]], None]:
    def build(folder: Path, inputs: dict[str, Path]) -> None:
        tokenizer = load_tokenizer(inputs["vocabulary"] / "tokenizer")
        model = models.new_bert(
            len(tokenizer), layers=recipe.layers, hidden=recipe.hidden, heads=recipe.heads,
            max_positions=recipe.positions, seed=recipe.seed, device=machine.device(),
        )  # fmt: skip
        objective = objectives.create(recipe.objective.name, model, tokenizer, **recipe.objective.params)
        batches = stream(recipe, TokenStore.open(inputs["tokens"] / "train"))
        settings = recipe.training.settings(recipe.seed)
        train(objective, batches.batch, settings, folder, title=f"base model {recipe.name}")
        measured = measure(objective, stream(recipe, TokenStore.open(inputs["tokens"] / "held_out")), recipe.seed)
        write_json(folder / "held_out.json", measured)
        model.to("cpu", torch.float16 if recipe.weights == "float16" else torch.float32)
        models.save_masked_lm(model, tokenizer, folder / "model")

    return build


def stream(recipe: BaseRecipe, store: TokenStore) -> BatchStream:
    """The batches of a base model's training or of its held-out text."""
    return BatchStream(
        store, tokens_per_batch=recipe.training.tokens_per_batch, max_length=recipe.length, title=recipe.title,
        seed=recipe.seed,
    )  # fmt: skip


@torch.no_grad()
def measure(objective: Objective, batches: BatchStream, seed: int) -> dict[str, float]:
    """Mean of everything an objective reports over one epoch of held-out text, weighted by tokens.

    Args:
        objective: in eval mode afterwards; always gets the same masks for the same `seed`.
        batches: the text.
        seed: of the masks.

    Returns:
        `loss` and the other scalars by name, `perplexity` (exp of `loss`) and the number of `tokens` read.
    """
    device = next(objective.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    objective.eval()
    sums: dict[str, float] = {}
    total = 0
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step).to(device)
        tokens = int(batch.attention_mask.sum())
        total += tokens
        for name, value in objective(batch, generator).items():
            sums[name] = sums.get(name, 0.0) + tokens * float(value)
    means = {name: value / total for name, value in sums.items()}
    return means | {"perplexity": float(torch.exp(torch.tensor(means["loss"]))), "tokens": total}


def build_base(recipe: BaseRecipe, cache: Cache | None = None, to: Path | None = None) -> Path:
    """Train a base model, or find it trained, and copy it with its record to a folder.

    Args:
        recipe: what it is made from.
        cache: where the stages are kept.
        to: folder to put model, tokenizer and `record.json` into (replaced in one step); None leaves it in the cache.

    Returns:
        The folder that holds the model.
    """
    cache, stage = cache or Cache(), base_stage(recipe)
    made = cache.get(stage)
    if to is None:
        return made / "model"
    with fresh_folder(to) as draft:
        for file in (made / "model").iterdir():
            (draft / file.name).write_bytes(file.read_bytes())  # bytes alone: safetensors writes files for one user
        write_json(draft / "record.json", base_record(recipe, made, cache.manifest(stage)))
    return to


def base_record(recipe: BaseRecipe, made: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """How a base model was made: recipe, text with digests, loss curve, held-out loss, times, machine, commit."""
    log = TrainLog.load(made / "log.json")
    columns = {name: [round(float(value), 6) for value in log.column(name)] for name in log.names}
    return {
        "recipe": recipe.portable(),
        "recipe_digest": recipe.digest,
        "key": manifest["key"],
        "text": BaseText(recipe).facts(),
        "curve": thin(columns),
        "held_out": read_json(made / "held_out.json"),
        "training": summary(log),
        "machine": machine.machine_facts(),
        "commit": commit(),
        "created": manifest["created"],
    }


def summary(log: TrainLog) -> dict[str, Any]:
    """The totals of a training: everything the log holds but its rows."""
    return {name: value for name, value in log.as_dict().items() if name != "rows"}
