"""Inputs of a recipe: its opened collections and models, and their tokens as stages.

Nothing is built here. Page of the book: ideas/pipeline.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import safe_open
from transformers import AutoConfig

from dr_lib import collections, models, objectives, places, retrieval, tokens
from dr_lib.collections import Collection
from dr_lib.errors import InputError, first_line
from dr_lib.files import folder_digest, read_json, state_of
from dr_lib.lab.base import BaseRecipe, allowed_rows, base_stage, others_left_out
from dr_lib.lab.recipe import Recipe, is_place, open_sample
from dr_lib.models import check_kind, check_tokenizer, longest
from dr_lib.places import check_model_folder, find_model
from dr_lib.stages import Data, Part, Stage, stage
from dr_lib.tokens import load_tokenizer, tokenizer_digest
from dr_lib.training import Training, bert_work

TUNING = "dev"  # the split that the weight of a fusion is chosen on
TOKENISING, BM25_INDEX, BM25_SEARCH = 3.1e-4, 1.0e-4, 7.9e-9
"""Seconds of a core: a passage in pieces, a passage in BM25's index, a passage for each query that
BM25 searches (`benchmarks/growth.py`)."""


MODEL_FILES = (
    "config.json",
    "model*.safetensors",
    "extra.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)
"""Files that determine a model: a large model's weights are in several files, a projection in
`extra.safetensors`.
"""


TAKEN_OVER = "Transformer", "Pooling", "Normalize", "Dropout"
"""Modules of sentence-transformers whose weights are kept by trainings."""


class Shape(NamedTuple):
    """The size of a model."""

    layers: int
    hidden: int
    vocabulary: int
    positions: int

    def work(self, length: int, *, predicted: float = 0.0) -> float:
        """Operations of a training step per token of sequences of a given length; `predicted`:
        share of positions with logits.
        """
        return bert_work(self.layers, self.hidden, self.vocabulary, predicted, length)

    def encoding(self, length: int) -> float:
        """Operations of encoding one passage of a given length: the forward pass, a third of a
        training step.
        """
        return self.work(length) / 3 * length


@dataclass(frozen=True)
class Checkpoint:
    """A model to start from or to generate with.

    Attributes:
        name: its name in a record, never a path.
        shape: its layers, hidden size, vocabulary and maximum length.
        model: what stages depend on and load: a folder or hub name with its digest, or part of a
            stage that makes it.
        tokenizer: the same for its tokenizer alone, on which tokens depend.
        public: whether it has a tokenizer of its own, rather than having been trained here.
        pooling: its pooling, if it is a sentence-transformers model that declares one, else None.
        fresh_head: whether its masked-LM head is newly initialised, because it came without
            one.
    """

    name: str
    shape: Shape
    model: Data | Part
    tokenizer: Data | Part
    public: bool = True
    pooling: str | None = None
    fresh_head: bool = False

    def facts(self) -> dict[str, Any]:
        """The facts that a record keeps."""
        made = isinstance(self.model, Part)
        digests = (
            {"key": self.model.stage.key}
            if made
            else {"digest": self.model.digest, "tokenizer": self.tokenizer.digest}
        )
        return {"name": self.name, **digests, "shape": self.shape._asdict()}


class Inputs:
    """The collections and models of a recipe.

    Args:
        recipe: the configuration.

    Attributes:
        collection: what the recipe trains on.
        searched: what it is evaluated on: the same collection except in zero-shot runs.
        corpus: what is pre-trained on, also by materials: the same collection unless
            `pretraining.collection` is set, without the documents of
            `pretraining.without_documents_of`.
        base: the masked LM that every training starts from.

    Raises:
        InputError: a collection or model that cannot be opened.
    """

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        check_within_reach(recipe)
        elsewhere, corpus = recipe.evaluation.on, recipe.pretraining.collection
        itself = recipe.evaluation.own_passage
        self.collection = open_sample(recipe.collection).with_own_passage(itself)
        self.searched = self.collection
        if elsewhere:
            self.searched = open_sample(elsewhere).with_own_passage(itself)
        elif not recipe.retriever and recipe.evaluation.kind != "bm25":
            read = {"train", recipe.evaluation.split} & {*self.collection.splits}
            for split in read:  # loads lazily read splits
                self.collection.qrels(split)
            self.searched = self.collection = self.collection.without_tested()
        self.corpus = open_sample(corpus) if corpus else self.collection
        if unread := recipe.pretraining.without_documents_of:
            rows, documents = allowed_rows(self.corpus, sorted(unread))
            if recipe.pretraining.others:
                count = len(self.corpus.passages)
                rows = others_left_out(count, rows, documents, recipe.seed)
            self.corpus = self.corpus.part(rows)
        self.base = open_checkpoint(recipe.base)

    @cached_property
    def generator(self) -> Checkpoint | None:
        """The masked LM that proposes replacements, for methods that need one."""
        needed = objectives.method(self.recipe.objective.name).needs_generator
        return open_checkpoint(self.recipe.generator or self.recipe.base) if needed else None

    @cached_property
    def reader(self) -> Checkpoint:
        """The cross-encoder's starting point: a model of its own, or the recipe's base."""
        name = self.recipe.auxiliary.cross_encoder.model
        return open_checkpoint(name) if name else self.base

    @cached_property
    def most_relevant(self) -> int:
        """The largest number of judged passages of a training query, by which rankings for
        negatives must be deeper.
        """
        return max(len(grades) for grades in self.collection.qrels("train").values())

    @cached_property
    def labelled_queries(self) -> int:
        """The number of training queries with a relevant passage that the recipe may learn from."""
        judged = [*self.collection.qrels("train").values()]
        if (
            self.recipe.negatives.answers != "positive"
        ):  # else an answer may make a passage positive
            judged = [grades for grades in judged if max(grades.values()) > 0]
        return round(len(judged) * (self.recipe.few_shot or 1))

    @property
    def reading(self) -> dict[str, Any]:
        """Arguments of every training: layout, dropout and seed."""
        recipe = self.recipe
        return {"layout": recipe.layout, "dropout": recipe.dropout, "seed": recipe.seed}

    # Texts ----------------------------------------------------------------------------------------

    def passages(self, collection: Collection | None = None, by: Checkpoint | None = None) -> Stage:
        """Tokens of the passages of a collection (default the recipe's) for a model (default the
        base).
        """
        read = collection or self.collection
        made = tokens.passage_tokens(read, (by or self.base).tokenizer)
        return made.costs(core_seconds=TOKENISING * len(read.passages))

    def queries(
        self, split: str, collection: Collection | None = None, by: Checkpoint | None = None
    ) -> Stage:
        """Tokens of the queries of a split of a collection (default the recipe's) for a model
        (default the base).
        """
        collection, by = collection or self.collection, by or self.base
        return tokens.query_tokens(collection, by.tokenizer, split=split)

    def pairs(
        self, split: str, collection: Collection, other: str | None = None
    ) -> tuple[Stage, Stage]:
        """Tokens of queries and passages for the cross-encoder; those of the base model if the
        tokenizers agree.

        Another scorer (`other`, as in `reranking.by`) starts from the base model.
        """
        by = self.base if other or self.reader.tokenizer == self.base.tokenizer else self.reader
        return self.queries(split, collection, by), self.passages(collection, by)

    def bm25_index(
        self,
        collection: Collection | None = None,
        *,
        cut: bool = False,
        weights: tuple[float, float] | None = None,
    ) -> Stage:
        """BM25 over the passages, with titles if the recipe reads them; whole, or truncated as for
        the encoder; with the default k1 and b, or others.
        """
        limits = {"tokenizer": self.base.tokenizer, "layout": self.recipe.layout} if cut else {}
        searched, title = collection or self.collection, self.recipe.title != "none"
        if weights:
            k1, b = weights
            made = retrieval.weighted_bm25_index(searched, title=title, k1=k1, b=b)
        else:
            made = retrieval.bm25_index(searched, title=title, **limits)
        return made.costs(core_seconds=BM25_INDEX * len(searched.passages))

    def bm25_run(
        self, split: str, depth: int, collection: Collection | None = None, **how: Any
    ) -> Stage:
        """BM25's ranking for the queries of a split; `how` as for `bm25_index`."""
        collection = collection or self.collection
        index = self.bm25_index(collection, **how)
        made = retrieval.bm25_run(index, collection, split=split, depth=depth)
        pairs = len(collection.passages) * len(collection.qrels(split))
        return made.costs(core_seconds=BM25_SEARCH * pairs)

    # Work, in operations: what a run costs, told beforehand ---------------------------------------

    def work_a_token(self) -> float:
        """Operations of a training step per token, for a model of the base's size that predicts at
        all positions.
        """
        return self.base.shape.work(self.recipe.passage_length, predicted=1.0)

    def writing_work(self, options: Training) -> float:
        """Operations of a whole training of such a model."""
        read = options.steps * options.accumulation * options.tokens_per_batch
        return read * self.work_a_token()

    def scoring_work(self, pairs: int) -> float:
        """Operations of scoring this many pairs with the cross-encoder."""
        length = self.recipe.auxiliary.cross_encoder.length
        return pairs * length * self.reader.shape.work(length) / 3


def check_within_reach(recipe: Recipe) -> None:
    """Refuse, before anything is downloaded, collections that are not fully available."""
    options, trains = recipe.evaluation, not recipe.retriever and recipe.final != "pretrained"
    trainings = (recipe.finetuning, recipe.finetuning2, recipe.distillation)
    read = {options.split} if options.on is None else set()
    if trains and options.kind != "bm25":
        read |= {"train"}
        read |= {chosen.validation.split for chosen in trainings if chosen and chosen.validation}
    for settings, splits in ((recipe.collection, read), (options.on, {options.split})):
        if settings:
            collections.check_within_reach(settings.name, sorted(splits), settings.splits)


# Models -------------------------------------------------------------------------------------------


def encoding_work(encoder: Data, length: int) -> float:
    """Operations of encoding one passage of a length by an encoder that is used as it comes,
    roughly; 0 where its configuration names no layers and units.
    """
    files = (Path(encoder.place) / name / "config.json" for name in ("", "0_Transformer"))
    config = next((read_json(file) for file in files if file.is_file()), {})
    layers, hidden = (config.get(name) for name in ("num_hidden_layers", "hidden_size"))
    if not (isinstance(layers, int) and isinstance(hidden, int)):
        return 0.0
    return Shape(layers, hidden, 0, 0).encoding(length)


def in_shards(make: Callable[..., Stage], passages: int, each: float = 0.0) -> list[Stage]:
    """The stages that encode this many passages, one per shard: `make` takes `rows`, `each` is the
    cost of a passage.
    """
    return [
        make(rows=(first, end)).costs(each * (end - first))
        for first, end in tokens.shards(passages)
    ]


def open_checkpoint(name: str) -> Checkpoint:
    """Find a masked LM by its name in a recipe.

    Args:
        name: "embedded", a local folder, a hub name, a name of `places.PACKAGED`, or the YAML file
            of a base recipe. A model of sentence-transformers, which has no masked-LM head, gets a
            fresh one.

    Raises:
        InputError: there is nothing usable under that name.
    """
    if name.endswith((".yaml", ".yml")):
        # relative to the current folder, else to the project's root: a notebook may run anywhere
        path = Path(name).expanduser()
        recipe = BaseRecipe.load(path if path.exists() else places.project_root() / path)
        shape = Shape(recipe.layers, recipe.hidden, recipe.vocabulary, recipe.positions)
        made = base_stage(recipe)
        return Checkpoint(recipe.name, shape, made / "model", made / "model", public=False)
    folder = find_model(name, ["config.json"])
    return _open_checkpoint(folder, name_of(name, folder), state_of(folder))


def name_of(name: str, folder: Path) -> str:
    """A model's name in a record: its name, or the last part of a path."""
    return folder.name if name == "embedded" or is_place(name) else name


def open_writer(name: str) -> Checkpoint:
    """Find a trained question generator or causal LM by its name in a recipe; its tokenizer may be
    of any kind.

    Args:
        name: "embedded", the question generator of the book; a local folder; a hub name.

    Raises:
        InputError: there is nothing usable under that name.
    """
    # it reads tokens, as in its training; a public model reads texts
    embedded = name == "embedded"
    folder = places.embedded_writer() if embedded else find_model(name, ["config.json"])
    model = Data(str(folder), folder_digest(folder))  # model types differ in their files
    tokenizer = Data(str(folder), tokenizer_digest(load_tokenizer(folder))) if embedded else model
    shown, unknown = name_of(name, folder), Shape(0, 0, 0, 0)
    return Checkpoint(shown, unknown, model, tokenizer, public=not embedded)


def model_digest(folder: Path) -> str:
    """SHA-256 (hex) of the files of a model's folder that decide how it encodes."""
    return folder_digest(folder, {path.name for name in MODEL_FILES for path in folder.glob(name)})


@lru_cache(maxsize=8)
def _open_checkpoint(folder: Path, name: str, _: str) -> Checkpoint:
    model = Data(str(folder), model_digest(folder))
    check_model_folder(folder)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        sizes = (config.num_hidden_layers, config.hidden_size, config.vocab_size, longest(config))
    except Exception as error:  # it asks to run code of its own, is not an encoder, or is absurd
        fix = 'Give a folder with the config.json of a BERT or ELECTRA, a hub name, or "embedded".'
        raise InputError(
            f"its configuration cannot be used ({first_line(error)})", where=folder, fix=fix
        ) from error
    check_kind(config, folder)
    opened = load_tokenizer(folder)
    check_tokenizer(config, opened, role=str(folder))
    tokenizer = Data(str(folder), tokenizer_digest(opened))
    pooling = pooling_of(folder)
    if fresh := pooling is not None and not has_head(folder):
        model = with_head(model) / "model"
    return Checkpoint(name, Shape(*sizes), model, tokenizer, pooling=pooling, fresh_head=fresh)


def pooling_of(folder: Path) -> str | None:
    """The pooling of a sentence-transformers model, "cls" or "mean"; None for any other folder.

    Raises:
        InputError: another pooling, or a module, such as a projection, that a training would drop.
    """
    modules = read_json(folder / "modules.json") if (folder / "modules.json").is_file() else []
    for kind in (module["type"].rpartition(".")[2] for module in modules):
        if kind not in TAKEN_OVER:
            problem = f"has a module {kind}, which trainings from it would leave out"
            raise InputError(problem, where=folder, fix="Use it as it comes (key retriever).")
    for path in (
        folder / module["path"] / "config.json"
        for module in modules
        if module["type"].endswith(".Pooling")
    ):
        config = read_json(path)
        for name, key in (("cls", "pooling_mode_cls_token"), ("mean", "pooling_mode_mean_tokens")):
            if config.get(key) or config.get("pooling_mode") == name:
                return name
        raise InputError(
            "pools neither by cls nor by mean",
            where=path,
            fix="Use it as it comes (key retriever).",
        )
    return None


def has_head(folder: Path) -> bool:
    """Whether the weights of a folder include a masked-LM head."""
    names: list[str] = []
    for path in folder.glob("model*.safetensors"):  # a large model has several files
        with safe_open(path, "pt") as weights:
            names += weights.keys()
    return any(name.startswith(("cls.predictions", "generator_predictions")) for name in names)


@stage()
def with_head(folder: Path, start: Path) -> None:
    """`model/`: an encoder without a masked-LM head with a new one, for further pre-training."""
    model = models.with_fresh_head(start)
    models.save_masked_lm(model, load_tokenizer(start), folder / "model")
