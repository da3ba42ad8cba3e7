"""How each stage of a run is made: thin glue between the parts of the library, one function a stage.

Every function writes into `folder` and reads from `inputs`, the finished folders of the stages it was given. What it
finds in `folder` was left by a killed build of the same stage. Page of the book: practice/own-corpus.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from dr_lib import models, objectives, retrieval
from dr_lib.collections import Collection
from dr_lib.evaluation import evaluate_split
from dr_lib.lab.opening import Origin
from dr_lib.lab.pipeline_specs import Distillation
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.specs import Finetuning
from dr_lib.models import DenseEncoder
from dr_lib.retrieval import holds_answer
from dr_lib.tokens import Layout, TokenStore, load_tokenizer
from dr_lib.training import (
    BiEncoder,
    DistilledBiEncoder,
    Examples,
    PoolValidation,
    RetrievalBatches,
    TeacherScores,
    Validation,
    ValidationPool,
    load_weights,
    machine,
    merge_examples,
    newest_checkpoint,
    train,
)

Inputs = dict[str, Path]
LOOKS = 0x1D  # sets the draw of dev queries apart from others with the same seed
FEW_SHOT = 0x5A  # sets the draw of training queries apart from others with the same seed


def build_passage_tokens(folder: Path, inputs: Inputs, *, collection: Collection, base: Origin) -> None:
    """`store/`: titles and texts of the passages as token ids of the base model's tokenizer."""
    tokenizer = load_tokenizer(base.path(inputs, "base"))
    TokenStore.build(collection.passages, tokenizer, folder / "store", columns=("title", "text"))


def build_query_tokens(folder: Path, inputs: Inputs, *, collection: Collection, split: str, base: Origin) -> None:
    """`store/`: the queries of a split as token ids of the base model's tokenizer."""
    tokenizer = load_tokenizer(base.path(inputs, "base"))
    TokenStore.build(collection.queries(split), tokenizer, folder / "store", columns=("text",))


def open_pretraining(
    inputs: Inputs, *, recipe: Recipe, collection: Collection, base: Origin, generator: Origin | None,
    materials: tuple[str, ...],
) -> tuple[objectives.Objective, PreTrainedTokenizerFast, Callable[[int], Any]]:  # fmt: skip
    """The method on its base model, the tokenizer, and the batches of a pre-training."""
    device, start = machine.device(), base.path(inputs, "base")
    tokenizer = load_tokenizer(start)
    model = models.load_masked_lm(start, dropout=recipe.dropout, device=device)
    helper = models.load_masked_lm(generator.path(inputs, "generator"), device=device) if generator else None
    objective = objectives.create(
        recipe.objective.name, model, tokenizer, generator_model=helper, **recipe.objective.params
    )
    documents, positions = document_order(collection)
    source = objectives.Source(
        TokenStore.open(inputs["tokens"] / "store"), recipe.pretraining.tokens_per_batch, recipe.passage_length,
        recipe.query_length, recipe.title, recipe.seed, documents, positions,
        {name: inputs[name] for name in materials}, tokenizer,
    )  # fmt: skip
    return objective, tokenizer, objective.batches(objective.settings, source)


def build_pretrained(folder: Path, inputs: Inputs, *, recipe: Recipe, **means: Any) -> None:
    """`model/`: the masked LM after pre-training (decoder beside it); `log.json`."""
    objective, tokenizer, batches = open_pretraining(inputs, recipe=recipe, **means)
    title = f"pre-training {recipe.objective.name}"
    train(objective, batches, recipe.pretraining.settings(recipe.seed), folder, title=title)
    models.save_masked_lm(objective.model, tokenizer, folder / "model", objective.extra_tensors())
    if objective.passage_model is not None:
        models.save_masked_lm(objective.passage_model, tokenizer, folder / "passage_model", objective.extra_tensors())


def document_order(collection: Collection) -> tuple[np.ndarray, np.ndarray]:
    """Number of each passage's document and its place there, `[passages]` int64; without a document it is its own."""
    names, positions = np.asarray(collection.passages["doc"][:], dtype=object), collection.passages["position"][:]
    own = np.array([name or f"\0{row}" for row, name in enumerate(names)], dtype=object)
    return np.unique(own.astype(str), return_inverse=True)[1].astype(np.int64), np.asarray(positions, np.int64)


def build_bm25(folder: Path, inputs: Inputs, *, collection: Collection, title: bool) -> None:
    """`index/`: BM25 over the passages."""
    retrieval.Bm25.build(collection.passages, folder / "index", title=title)


def build_bm25_ranking(folder: Path, inputs: Inputs, *, collection: Collection, split: str, depth: int) -> None:
    """`ranking/`: the first passages of BM25 for the queries of a split."""
    queries = collection.queries(split)
    index = retrieval.Bm25.open(inputs["index"] / "index")
    index.search(queries["text"][:], depth, query_ids=queries["id"][:], progress=True).save(folder / "ranking")


def build_negatives(
    folder: Path, inputs: Inputs, *, collection: Collection, split: str, options: dict[str, Any]
) -> None:
    """`negatives.npy`: `[queries, depth]` int32 hard negatives of each query of a split."""
    ranking, how = retrieval.Ranking.open(inputs["ranking"] / "ranking"), dict(options)
    right = right_ones(ranking, collection, split, answers=how.pop("answers", None))
    np.save(
        folder / "negatives.npy", retrieval.mine_negatives(ranking, right, passages=len(collection.passages), **how)
    )


def right_ones(
    ranking: retrieval.Ranking, collection: Collection, split: str, *, answers: str | None
) -> list[np.ndarray]:
    """Rows that are no negatives of each query of a split: its positives and, for `answers="drop"`, what holds one."""
    positives = positives_of(collection, split)
    if answers != "drop":
        return positives
    held = holds_answer(ranking.rows, collection.passages, collection.queries(split)["answers"][:])
    holding = (np.asarray(ranking.rows[query])[found] for query, found in enumerate(held))
    return [np.union1d(*both).astype(np.int64) for both in zip(positives, holding, strict=True)]


def positives_of(collection: Collection, split: str) -> list[np.ndarray]:
    """Rows of the relevant passages of each query of a split."""
    return retrieval.judged_rows(collection.qrels(split), collection.queries(split)["id"][:], collection.passages["id"])


def build_retriever(
    folder: Path, inputs: Inputs, *, recipe: Recipe, base: Origin, collection: Collection, options: Finetuning
) -> None:
    """`model/` (and `passage_model/` where the encoders are two): the retriever; `log.json`.

    Where the best weights are kept, those of the last update lie in `last/` as they do here.
    """
    encoder = start_encoder(inputs, recipe, base, options)
    second = None if options.shared else start_encoder(inputs, recipe, base, options, of="passage_model")
    module = BiEncoder(
        encoder, temperature=options.temperature, blocks=options.blocks, normalise=options.normalise,
        passage_encoder=second, chunk=options.chunk, alpha=options.alpha or 0.0,
    )  # fmt: skip
    batches = RetrievalBatches(
        TokenStore.open(inputs["queries"] / "store"), TokenStore.open(inputs["passages"] / "store"),
        examples(collection, inputs, recipe), batch_queries=options.batch_queries,
        passages_per_query=options.negatives + 1,
        query_length=recipe.query_length, passage_length=recipe.passage_length, title=recipe.title, seed=recipe.seed,
        query_side=recipe.query_side or "right",
        teacher=TeacherScores.open(inputs["teacher"]) if isinstance(options, Distillation) else None,
    )  # fmt: skip
    if isinstance(options, Distillation):
        module = DistilledBiEncoder(
            module, contrastive_weight=options.contrastive_weight, teacher_temperature=options.teacher_temperature,
            mean=options.mean,
        )  # fmt: skip
    train(
        module, batches.batch, options.settings(recipe.seed), folder, title="fine-tuning",
        validation=validation_of(inputs, recipe, collection, options, encoder, second),
    )  # fmt: skip
    save_encoders(folder, encoder, second)
    if options.validation and options.validation.keep == "best":
        load_weights(newest_checkpoint(folder), module)
        save_encoders(folder / "last", encoder, second)


def save_encoders(folder: Path, encoder: DenseEncoder, passage_encoder: DenseEncoder | None) -> None:
    """`model/`, and `passage_model/` where the encoders are two."""
    encoder.save(folder / "model")
    if passage_encoder is not None:
        passage_encoder.save(folder / "passage_model")


def validation_of(
    inputs: Inputs, recipe: Recipe, collection: Collection, options: Finetuning, encoder: DenseEncoder,
    passage_encoder: DenseEncoder | None,
) -> Validation | None:  # fmt: skip
    """The looks at dev queries that the options of a training ask for; None where they ask for none."""
    spec = options.validation
    if spec is None:
        return None
    positives = positives_of(collection, spec.split)
    able = np.array([row for row, found in enumerate(positives) if len(found)])
    chosen = np.sort(np.random.default_rng([spec.seed, LOOKS]).permutation(able)[: spec.queries])
    ranking = retrieval.Ranking.open(inputs["asked_ranking"] / "ranking")
    pool = ValidationPool.of(chosen, [positives[row] for row in chosen], np.asarray(ranking.rows)[chosen])
    look = PoolValidation(
        pool, TokenStore.open(inputs["asked"] / "store"), TokenStore.open(inputs["passages"] / "store"),
        layout=Layout(
            query_length=recipe.query_length, passage_length=recipe.passage_length, title=recipe.title,
            query_side=recipe.query_side or "right",
        ),
        normalise=options.normalise, tokens_per_batch=encoding_budget(), precision=options.precision,
    )  # fmt: skip
    return Validation(lambda _: look(encoder, passage_encoder)["MRR"].mean(), spec.every, spec.keep)


def start_encoder(
    inputs: Inputs, recipe: Recipe, base: Origin, options: Finetuning, of: str = "model"
) -> DenseEncoder:  # fmt: skip
    """The encoder that every retriever of a recipe starts from: the pre-trained one, or the base model's.

    `of="passage_model"` gives that of the passages, which is the same but where pre-training had two.
    """
    start = inputs["pretrained"] / "model" if "pretrained" in inputs else base.path(inputs, "base")
    if "pretrained" in inputs and (inputs["pretrained"] / of).is_dir():
        start = inputs["pretrained"] / of
    return DenseEncoder.from_pretrained(
        start, dropout=recipe.dropout, device=machine.device(), pooling=recipe.pooling, normalise=options.normalise,
        temperature=options.temperature, query_length=recipe.query_length, passage_length=recipe.passage_length,
        title=recipe.title, query_side=recipe.query_side or "right", projection=bool(options.projection),
        seed=recipe.seed,
    )  # fmt: skip


def build_untuned(folder: Path, inputs: Inputs, *, recipe: Recipe, base: Origin) -> None:
    """`model/`: the starting encoder as a retriever, as it is."""
    start_encoder(inputs, recipe, base, recipe.finetuning).save(folder / "model")
    if "pretrained" in inputs and (inputs["pretrained"] / "passage_model").is_dir():
        start_encoder(inputs, recipe, base, recipe.finetuning, of="passage_model").save(folder / "passage_model")


def examples(collection: Collection, inputs: Inputs, recipe: Recipe | None = None) -> Examples:
    """The training queries that have a positive (of a recipe's `few_shot`, its share of them), with their negatives.

    Pseudo-labels, where a stage was given some, are added.
    """
    positives = positives_of(collection, "train")
    usable = np.array([row for row, found in enumerate(positives) if len(found)])
    if recipe is not None and recipe.few_shot is not None:
        usable = nested_share(usable, recipe.few_shot, recipe.collection.seed)
    negatives = np.load(inputs["negatives"] / "negatives.npy")[usable] if "negatives" in inputs else None
    given = Examples.of(usable, [positives[row] for row in usable], negatives, passages=len(collection.passages))
    return (
        merge_examples(given, Examples.open(inputs["pseudo_labels"] / "examples"))
        if "pseudo_labels" in inputs
        else given
    )


def nested_share(rows: np.ndarray, share: float, seed: int) -> np.ndarray:
    """A share of some rows, in order and at least one: of the same seed, a larger share contains a smaller one.

    Example:
        >>> nested_share(np.arange(8), 0.25, seed=0).tolist(), nested_share(np.arange(8), 0.5, seed=0).tolist()
        ([1, 2], [0, 1, 2, 5])
    """
    drawn = np.random.default_rng([seed, FEW_SHOT]).permutation(rows)
    return np.sort(drawn[: max(1, round(share * len(rows)))])


def build_vectors(folder: Path, inputs: Inputs, *, recipe: Recipe) -> None:
    """`vectors.npy`: a vector for each passage."""
    second = inputs["retriever"] / "passage_model"
    encoder = open_encoder(second if second.is_dir() else inputs["retriever"] / "model")
    retrieval.encode(
        encoder, TokenStore.open(inputs["passages"] / "store"), folder / "vectors.npy",
        max_length=recipe.passage_length, title=recipe.title, tokens_per_batch=encoding_budget(),
        dtype=recipe.evaluation.vector_type, normalise=encoder.settings.normalise,
    )  # fmt: skip


def open_encoder(place: Path) -> DenseEncoder:
    """A saved encoder on the device of this machine."""
    return DenseEncoder.from_pretrained(place, device=machine.device())


def encoding_budget() -> int:
    """Tokens encoded at a time: what fits a processor's caches, or what fills a GPU."""
    return 4_096 if machine.device().type == "cpu" else 131_072


def build_run(
    folder: Path, inputs: Inputs, *, recipe: Recipe, collection: Collection, split: str, depth: int
) -> None:  # fmt: skip
    """`ranking/`: the passages nearest to each query of a split."""
    encoder = open_encoder(inputs["retriever"] / "model")
    vectors = retrieval.encode(
        encoder, TokenStore.open(inputs["queries"] / "store"),
        folder / "queries.npy", max_length=recipe.query_length, title="none", side=encoder.settings.query_side,
        tokens_per_batch=encoding_budget(), normalise=encoder.settings.normalise,
    )  # fmt: skip
    passages = np.load(inputs["vectors"] / "vectors.npy", mmap_mode="r")
    scores, rows = retrieval.search(vectors, passages, depth, device=machine.device())
    query_ids = collection.queries(split)["id"][:]
    retrieval.Ranking(query_ids, rows, scores).save(folder / "ranking")


def build_evaluation(
    folder: Path, inputs: Inputs, *, collection: Collection, split: str, measures: Sequence[str]
) -> None:
    """`scores.json`: the score of every query by measure."""
    ranking = retrieval.Ranking.open(inputs["run"] / "ranking")
    evaluate_split(ranking, collection, split, measures).save(folder / "scores.json")
