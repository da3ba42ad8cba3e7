"""Small base models, trained from scratch on plain text.

Page of the book: practice/own-corpus. The embedded base model is notebooks/scales/base-2x128.yaml.
Training takes three stages, so that models of other sizes share vocabulary and tokens.
"""

import math
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveInt

from dr_lib import models, objectives
from dr_lib.collections import Collection, rows_of
from dr_lib.errors import InputError
from dr_lib.files import check_replaceable, fresh_folder, json_digest, read_json, write_json
from dr_lib.lab.recipe import ObjectiveSettings, Pretraining, open_collection, without_places
from dr_lib.lab.records import commit, training_log
from dr_lib.settings import Settings
from dr_lib.stages import Cache, Stage, stage
from dr_lib.tokens import BatchStream, TokenStore, load_tokenizer, train_wordpiece
from dr_lib.training import bert_work, machine, on_processes, train

COLUMNS = ["title", "text"]


class TextSource(Settings):
    """A collection whose passages are read as plain text.

    Args:
        name: as `collections.load` takes it.
        without_documents_of: splits whose judged documents are left out as a whole, so that no test
            text is seen.
    """

    name: str
    without_documents_of: tuple[str, ...] = ()


class BaseRecipe(Settings):
    """A small BERT trained from scratch by masked LM on some collections.

    Args:
        name: the model's name.
        sources: the text.
        vocabulary: number of WordPiece pieces, special tokens included.
        layers, hidden, heads: size; the feed-forward part has 4 x `hidden` units.
        positions: the model's maximum sequence length.
        length: maximum sequence length in training, special tokens included.
        title: how title and body become a sequence.
        objective: a method without generator or materials, normally "mlm".
        training: steps, rate, batch.
        held_out: share of the documents held out from training and evaluated at the end, in (0,
            0.5].
        weights: number type of the saved weights.
        seed: of weights, order and masks.

    Example:
        >>> BaseRecipe(name="tiny", sources=[{"name": "squad"}], layers=1, hidden=64).heads
        2
    """

    name: str
    sources: tuple[TextSource, ...] = Field(min_length=1)
    vocabulary: int = Field(8192, gt=5)
    layers: PositiveInt = 2
    hidden: PositiveInt = 128
    heads: PositiveInt = 2
    positions: int = Field(512, gt=8)
    length: int = Field(144, gt=8)
    title: Literal["pair", "joined", "none"] = "pair"
    objective: ObjectiveSettings = ObjectiveSettings(name="mlm")
    training: Pretraining = Pretraining()
    held_out: float = Field(0.01, gt=0, le=0.5)
    weights: Literal["float32", "float16"] = "float32"
    seed: NonNegativeInt = 0

    def portable(self) -> dict[str, Any]:
        """All keys as plain JSON values, with paths cut to their last part."""
        return without_places(self.model_dump(mode="json"))


def base_stage(recipe: BaseRecipe) -> Stage:
    """The trained base model of a recipe: `model/`, `log.json` and `held_out.json`."""
    texts = [open_collection(source.name) for source in recipe.sources]
    left_out = [sorted(source.without_documents_of) for source in recipe.sources]
    split = {"left_out": left_out, "held_out": recipe.held_out, "seed": recipe.seed}
    words = vocabulary(texts, size=recipe.vocabulary, **split)
    tokens = base_tokens(texts, words / "tokenizer", **split)
    name, params = recipe.objective.name, recipe.objective.params
    learned = {
        "method": objectives.method(name),
        "settings": objectives.parameters(name, **params),
        "training": recipe.training,
    }
    size = {
        "layers": recipe.layers,
        "hidden": recipe.hidden,
        "heads": recipe.heads,
        "max_positions": recipe.positions,
    }
    read = recipe.model_dump(include={"length", "title", "weights", "seed"})
    made = base(tokens, words / "tokenizer", **learned, size=size, **read)
    work = bert_work(recipe.layers, recipe.hidden, recipe.vocabulary, share_predicted=0.15)
    return made.costs(
        work
        * recipe.training.steps
        * recipe.training.accumulation
        * recipe.training.tokens_per_batch
    )


@stage()
def vocabulary(
    folder: Path, texts: list[Collection], *, size: int, left_out: list, held_out: float, seed: int
) -> None:
    """`tokenizer/`: WordPiece learned from the training part of the text."""
    rows = base_text(texts, left_out, held_out, seed)[0]
    pieces = train_wordpiece([text for name in COLUMNS for text in rows[name]], size)
    pieces.save_pretrained(folder / "tokenizer")


@stage()
def base_tokens(
    folder: Path,
    texts: list[Collection],
    tokenizer: Path,
    *,
    left_out: list,
    held_out: float,
    seed: int,
) -> None:
    """`train/` and `held_out/`: token stores of both parts of the text."""
    words = load_tokenizer(tokenizer)
    for name, rows in zip(
        ("train", "held_out"), base_text(texts, left_out, held_out, seed), strict=True
    ):
        TokenStore.build(rows, words, folder / name)


@stage(resumable=True, gpu=True)
@on_processes
def base(
    folder: Path,
    tokens: Path,
    tokenizer: Path,
    *,
    method: type[objectives.Objective],
    settings: Any,
    training: Pretraining,
    size: dict[str, int],
    length: int,
    title: str,
    weights: str,
    seed: int,
) -> None:
    """`model/`: a masked LM trained from scratch; `log.json`; `held_out.json`, its losses on unseen
    documents.
    """
    words = load_tokenizer(tokenizer)
    model = models.new_bert(len(words), **size, seed=seed, device=machine.device())
    objective = objectives.assemble(method, settings, model, words, seed=seed)
    options = {
        "tokens_per_batch": training.tokens_per_batch,
        "max_length": length,
        "title": title,
        "seed": seed,
    }
    batches = BatchStream(TokenStore.open(tokens / "train"), **options)
    train(objective, batches.batch, training.with_seed(seed), folder, title="base model")
    unseen = BatchStream(TokenStore.open(tokens / "held_out"), **options)
    write_json(folder / "held_out.json", measure(objective, unseen, seed))
    model.to("cpu", torch.float16 if weights == "float16" else torch.float32)
    models.save_masked_lm(model, words, folder / "model")


@torch.no_grad()
def measure(objective: objectives.Objective, batches: BatchStream, seed: int) -> dict[str, float]:
    """Token-weighted means of an objective's scalars over one epoch of held-out text.

    Args:
        objective: left in eval mode; the same `seed` gives the same masks.
        batches: the text.
        seed: of the masks.

    Returns:
        `loss` and the other scalars by name, `perplexity` (exp of `loss`) and the number of
        `tokens`.
    """
    generator = torch.Generator(device := next(objective.parameters()).device).manual_seed(seed)
    objective.eval()
    sums: Counter[str] = Counter()
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step).to(device)
        tokens = int(batch.attention_mask.sum())
        sums.update(
            {name: tokens * float(value) for name, value in objective(batch, generator).items()},
            tokens=tokens,
        )
    total = sums.pop("tokens")
    means = {name: value / total for name, value in sums.items()}
    return means | {"perplexity": math.exp(means["loss"]), "tokens": total}


def base_text(
    texts: Sequence[Collection], left_out: Sequence[Sequence[str]], held_out: float, seed: int
) -> tuple[datasets.Dataset, datasets.Dataset]:
    """The passages to train on and those of the documents held out, columns title and text."""
    parts: tuple[list, list] = ([], [])
    for collection, splits in zip(texts, left_out, strict=True):
        rows, documents = allowed_rows(collection, splits)
        outside = is_held_out(documents, held_out, seed)
        for part, chosen in zip(parts, (rows[~outside], rows[outside]), strict=True):
            part.append(collection.passages.select(chosen).select_columns(COLUMNS))
    train_part, unseen = (
        datasets.concatenate_datasets([dataset for dataset in part if len(dataset)])
        for part in parts
    )
    return train_part, unseen


def allowed_rows(collection: Collection, splits: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the passages whose document has no judged passage in the given splits, and their
    documents.
    """
    documents, _ = collection.documents()
    judged = set().union(
        *(grades for split in splits for grades in collection.qrels(split).values())
    )
    places = rows_of([*judged], collection.passages["id"])
    rows = np.flatnonzero(~np.isin(documents, documents[places[places >= 0]]))
    if not len(rows):
        raise InputError(
            "no passage is left", where=f"source {collection.name}", fix="Leave out fewer splits."
        )
    return rows, documents[rows]


def others_left_out(count: int, rows: np.ndarray, documents: np.ndarray, seed: int) -> np.ndarray:
    """All passages except as many as `rows` leave out, but from documents that are in `rows`:
    randomly drawn whole documents, and the first passages of the last one.

    Args:
        count: passages in all.
        rows: passages of whole documents, in order, `[rows]`.
        documents: the document of each of these, `[rows]`.
        seed: of the draw.

    Raises:
        InputError: `rows` leave out at least as much as they contain.

    Example:
        >>> others_left_out(6, np.array([0, 1, 5]), np.array([4, 4, 7]), seed=0)
        Traceback (most recent call last):
        dr_lib.errors.InputError: others: 3 passages to leave out of 3. Leave out fewer splits.
        >>> others_left_out(5, np.arange(4), np.array([4, 4, 9, 9]), seed=0).tolist()
        [1, 2, 3, 4]
    """
    wanted = count - len(rows)
    if wanted >= len(rows):
        problem = f"{wanted} passages to leave out of {len(rows)}"
        raise InputError(problem, where="others", fix="Leave out fewer splits.")
    distinct, inverse = np.unique(documents, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(distinct))[inverse]
    return np.delete(np.arange(count), rows[np.argsort(order, kind="stable")[:wanted]])


def is_held_out(documents: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Draw about `share` of the distinct documents, at least one; True at each row of a drawn
    document.

    Example:
        >>> is_held_out(np.array([4, 4, 9]), 0.5, seed=0).sum() in (1, 2)
        True
    """
    distinct, inverse = np.unique(documents, return_inverse=True)
    count = max(1, round(share * len(distinct)))
    drawn = np.random.default_rng(seed).permutation(len(distinct)) < count
    return drawn[inverse]


def build_base(recipe: BaseRecipe, cache: Cache | None = None, to: Path | None = None) -> Path:
    """Train a base model, unless it is cached, and copy it to a folder with a record of its
    training.

    Args:
        recipe: of the model.
        cache: where the stages are kept.
        to: new folder for model, tokenizer and `record.json`; one written by an earlier call is
            replaced. None leaves the model in the cache.

    Returns:
        The folder that holds the model.

    Raises:
        InputError: `to` contains something else.
    """
    if to is not None:
        check_replaceable(to, "base model")
    cache, last = cache or Cache(), base_stage(recipe)
    made = cache.get(last)
    if to is None:
        return made / "model"
    manifest, log, text = cache.manifest(last), training_log(made / "log.json"), []
    for source in recipe.sources:
        collection, splits = open_collection(source.name), list(source.without_documents_of)
        facts = {
            "name": collection.name,
            "digest": collection.digest,
            "without_documents_of": splits,
        }
        text.append(facts | {"passages": len(allowed_rows(collection, splits)[0])})
    record = {
        "recipe": recipe.portable(),
        "recipe_digest": json_digest(recipe.portable()),
        **{name: manifest[name] for name in ("key", "code", "created")},
        "text": text,
        "curve": log.pop("curve"),
        "held_out": read_json(made / "held_out.json"),
        "training": log,
        "machine": machine.machine_facts(),
        "commit": commit(),
    }
    with fresh_folder(to, "base model") as draft:
        # safetensors files are readable by their owner only
        shutil.copytree(made / "model", draft, dirs_exist_ok=True, copy_function=shutil.copyfile)
        write_json(draft / "record.json", record)
    return to
