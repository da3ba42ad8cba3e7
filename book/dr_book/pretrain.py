"""A masked LM pre-trained on your own passages, for this and other libraries: `dr-lib pretrain`.

The folder opens unchanged in transformers (`AutoModel`, `AutoModelForMaskedLM`) and
sentence-transformers; decoder and heads are saved beside the weights, so that pre-training can
continue. Page of the book: notebooks/pretrain.
"""

import shutil
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard

from dr_book.export import made_on, references, write_card, write_modules
from dr_book.systems import check_outside
from dr_lib import objectives
from dr_lib.errors import InputError
from dr_lib.files import check_replaceable, fresh_folder, write_text
from dr_lib.lab import Cache, Inputs, Recipe, commit
from dr_lib.lab.checks import check_length
from dr_lib.lab.records import sides
from dr_lib.lab.study import how_far, outlook
from dr_lib.lab.trainings import pretrained
from dr_lib.models import EXTRA_FILE, DenseEncoder
from dr_lib.stages import TimeIsUpError
from dr_lib.training import TrainLog, machine

READ = (
    "collection",
    "base",
    "generator",
    "title",
    "passage_length",
    "dropout",
    "objective",
    "pretraining",
    "seed",
)
TEMPLATE = Path(__file__).with_name("pretrained.md")
PRETRAINED = "pre-trained model"


def pretrain(
    recipe: Recipe, to: Path | str, *, minutes: float | None = None, cache: Cache | None = None
) -> list[Path]:
    """Pre-train a recipe's base model on its collection, in a format that other toolkits open.

    Args:
        recipe: collection (without queries, unless the method reads some), base, objective and
            pre-training.
        to: the new folder; one that an earlier call wrote is replaced. If a method trains two
            encoders, each gets a subfolder.
        minutes: time budget; a later call with the same recipe continues where this one stopped.
        cache: where the stages are kept. It first announces what else will be trained, and about
            how long that takes.

    Returns:
        The folders written.

    Raises:
        InputError: there is nothing to train, a base or collection cannot be opened, or `to` is
            inside the collection or contains something else.
        TimeIsUpError: the training is not finished; the message says how far it is.
    """
    target, cache = Path(to).expanduser(), cache or Cache()
    check_replaceable(target, PRETRAINED)
    check_outside(target, recipe.collection.name)
    inputs = Inputs(recipe)
    check_length(recipe.passage_length, inputs.base, "passage_length")
    made = pretrained(inputs)
    if made is None:
        raise InputError('"none" trains nothing', where="objective", fix="Name a method.")
    if work := outlook([made], cache):
        cache.announce(f"{recipe.objective.name}: {work}")
    try:
        done = cache.within(minutes).get(made)
    except TimeIsUpError:
        begun = how_far(made, cache) or f"0 of {recipe.pretraining.last:,} steps of pre-training"
        raise TimeIsUpError(f"time is up after {begun}: the same command continues") from None
    models, log = sides(done), TrainLog.load(done / "log.json")
    inside = {side: side if len(models) > 1 else "" for side in models}
    with fresh_folder(target, PRETRAINED) as draft:
        for side, model in models.items():
            _write(model, draft / inside[side], inputs, log)
    return [target / place for place in inside.values()]


def _write(model: Path, folder: Path, inputs: Inputs, log: TrainLog) -> None:
    """Write model, modules of sentence-transformers, log, recipe and card."""
    recipe = inputs.recipe
    shutil.copytree(model, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
    write_modules(
        DenseEncoder.from_pretrained(model, **recipe.layout.model_dump(), pooling=recipe.pooling),
        folder,
    )
    log.save(folder / "log.json")
    read = _part(recipe)
    write_text(folder / "recipe.yaml", yaml.safe_dump(read, sort_keys=False, allow_unicode=True))
    _card(inputs, log, read, (model / EXTRA_FILE).is_file()).save(folder / "README.md")


def _part(recipe: Recipe) -> dict[str, Any]:
    """The keys of a recipe that pre-training reads: all, if the method has materials, which other
    models may make.
    """
    values = recipe.portable()
    chosen = objectives.parameters(recipe.objective.name, **recipe.objective.params)
    return (
        values
        if chosen.materials()
        else {key: value for key, value in values.items() if key in READ}
    )


def _card(inputs: Inputs, log: TrainLog, recipe: dict[str, Any], beside: bool) -> ModelCard:
    method, base, corpus = inputs.recipe.objective.name, inputs.base, inputs.corpus
    facts = {
        "pre-training": method,
        "base model": base.name,
        "collection": corpus.name,
        "digest of the collection": corpus.digest,
        "passages": len(corpus.passages),
        "steps": log.step,
        "tokens read": log.tokens,
        "loss in the last row of the log": round(log.rows[-1]["loss"], 4),
        "seed": inputs.recipe.seed,
        **made_on(machine.machine_facts(), commit()),
    }
    about = {"library_name": "transformers", "pipeline_tag": "fill-mask", "tags": ["pre-training"]}
    values = {
        "name": f"{base.name}, pre-trained by {method} on {corpus.name}",
        "method": method,
        "facts": facts,
        "recipe": recipe,
        "references": references(method),
        "licence": corpus.licence,
        "beside": EXTRA_FILE if beside else "",
    }
    return write_card(TEMPLATE, about, values)
