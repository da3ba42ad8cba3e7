"""What a recipe starts from: its collections and models, opened, and their texts as stages.

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
"""What decides how a folder encodes: a large model's weights lie in several files, a projection in
`extra.safetensors`.
"""


TAKEN_OVER = "Transformer", "Pooling", "Normalize", "Dropout"
"""Modules of sentence-transformers of which a training that starts from them loses no weight."""


class Shape(NamedTuple):
    """The size of a model."""

    layers: int
    hidden: int
    vocabulary: int
    positions: int

    def work(self, length: int, *, predicted: float = 0.0) -> float:
        """Operations of a training step for each token of sequences of a length; `predicted`: share
        with logits.
        """
        return bert_work(self.layers, self.hidden, self.vocabulary, predicted, length)

    def encoding(self, length: int) -> float:
        """Operations of encoding one passage of a length: of the three parts of a training step the
        forward one.
        """
        return self.work(length) / 3 * length


@dataclass(frozen=True)
class Checkpoint:
    """A model to start from or to write with.

    Attributes:
        name: its name in a record, never a path.
        shape: its layers, hidden size, vocabulary and longest sequence.
        model: what stages depend on and load: a folder or hub name with its digest, or part of a
            stage that makes it.
        tokenizer: the same for its tokenizer alone, which tokens depend on.
        public: whether it brings a tokenizer of its own kind, rather than having been trained here.
        pooling: how it makes a vector, where it is a model of sentence-transformers; None where it
            does not say.
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
        searched: what it is evaluated on: the same one but for zero-shot runs.
        corpus: what is pre-trained on, and what pairs for it are made of: the same one unless
            `pretraining.collection` is set, without what `pretraining.without_documents_of` says.
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
            for split in read:  # of what is read when it is asked for
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
        """What the cross-encoder starts from: a model of its own, or the recipe's base."""
        name = self.recipe.auxiliary.cross_encoder.model
        return open_checkpoint(name) if name else self.base

    @cached_property
    def most_relevant(self) -> int:
        """The largest number of passages judged for a training query: a ranking to draw negatives
        from must be deeper by this number.
        """
        return max(len(grades) for grades in self.collection.qrels("train").values())

    @cached_property
    def labelled_queries(self) -> int:
        """The number of training queries with a relevant passage that the recipe may learn from."""
        judged = [*self.collection.qrels("train").values()]
        if self.recipe.negatives.answers != "positive":  # by which others may get one
            judged = [grades for grades in judged if max(grades.values()) > 0]
        return round(len(judged) * (self.recipe.few_shot or 1))

    @property
    def reading(self) -> dict[str, Any]:
        """How sequences are made in every training, and its random draws."""
        recipe = self.recipe
        return {"layout": recipe.layout, "dropout": recipe.dropout, "seed": recipe.seed}

    # Texts ----------------------------------------------------------------------------------------

    def passages(self, collection: Collection | None = None, by: Checkpoint | None = None) -> Stage:
        """The passages of a collection (default the recipe's) in the tokens of a model (default the
        base).
        """
        read = collection or self.collection
        made = tokens.passage_tokens(read, (by or self.base).tokenizer)
        return made.costs(core_seconds=TOKENISING * len(read.passages))

    def queries(
        self, split: str, collection: Collection | None = None, by: Checkpoint | None = None
    ) -> Stage:
        """The queries of a split of a collection (default the recipe's) in the tokens of a model
        (default the base).
        """
        collection, by = collection or self.collection, by or self.base
        return tokens.query_tokens(collection, by.tokenizer, split=split)

    def pairs(
        self, split: str, collection: Collection, other: str | None = None
    ) -> tuple[Stage, Stage]:
        """Queries and passages in the cross-encoder's tokens; the base model's where both
        tokenizers agree.

        What scores in the cross-encoder's place (`other`, as in `reranking.by`) starts from the
        base model.
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
        """BM25 over the passages, titles included where the recipe reads them; whole, or cut as the
        encoder reads them; with the usual weights, or with other k1 and b.
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
        """BM25's ranking for the queries of a split; `how` as of `bm25_index`."""
        collection = collection or self.collection
        index = self.bm25_index(collection, **how)
        made = retrieval.bm25_run(index, collection, split=split, depth=depth)
        pairs = len(collection.passages) * len(collection.qrels(split))
        return made.costs(core_seconds=BM25_SEARCH * pairs)

    # Work, in operations: what a run costs, told beforehand ---------------------------------------

    def work_a_token(self) -> float:
        """Of a training step for one token of a model of the base's size that predicts at all
        positions.
        """
        return self.base.shape.work(self.recipe.passage_length, predicted=1.0)

    def writing_work(self, options: Training) -> float:
        """Of a whole training of such a model."""
        read = options.steps * options.accumulation * options.tokens_per_batch
        return read * self.work_a_token()

    def scoring_work(self, pairs: int) -> float:
        """Operations of scoring this many pairs with the cross-encoder."""
        length = self.recipe.auxiliary.cross_encoder.length
        return pairs * length * self.reader.shape.work(length) / 3


def check_within_reach(recipe: Recipe) -> None:
    """Refuse, before anything is fetched, collections of which something cannot be had."""
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
    """The stages that encode this many passages, one per shard: `make` takes its `rows`, `each` is
    the cost of a passage.
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
        # as seen from here, else from the project's root: a notebook may run anywhere
        path = Path(name).expanduser()
        recipe = BaseRecipe.load(path if path.exists() else places.project_root() / path)
        shape = Shape(recipe.layers, recipe.hidden, recipe.vocabulary, recipe.positions)
        made = base_stage(recipe)
        return Checkpoint(recipe.name, shape, made / "model", made / "model", public=False)
    folder = find_model(name, ["config.json"])
    return _open_checkpoint(folder, name_of(name, folder), state_of(folder))


def name_of(name: str, folder: Path) -> str:
    """What a record calls a model: its name, or of a path the last part."""
    return folder.name if name == "embedded" or is_place(name) else name


def open_writer(name: str) -> Checkpoint:
    """Find a ready question generator or causal LM by its name in a recipe; its tokenizer may be of
    any kind.

    Args:
        name: "embedded", the question generator of the book; a local folder; a hub name.

    Raises:
        InputError: there is nothing usable under that name.
    """
    # it reads tokens, as it was trained, where a public model reads texts
    embedded = name == "embedded"
    folder = places.embedded_writer() if embedded else find_model(name, ["config.json"])
    model = Data(str(folder), folder_digest(folder))  # kinds differ in their files
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
    """How a model of sentence-transformers makes a vector of its states, "cls" or "mean"; None for
    any other folder.

    Raises:
        InputError: it pools in another way, or has a module, such as a projection, that a training
            would not take over.
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
    for path in folder.glob("model*.safetensors"):  # a large model's lie in several files
        with safe_open(path, "pt") as weights:
            names += weights.keys()
    return any(name.startswith(("cls.predictions", "generator_predictions")) for name in names)


@stage()
def with_head(folder: Path, start: Path) -> None:
    """`model/`: an encoder that has no masked-LM head with a fresh one, to pre-train it further."""
    model = models.with_fresh_head(start)
    models.save_masked_lm(model, load_tokenizer(start), folder / "model")
