"""The stages of a run, one function each: what it is made from and exactly what it depends on.

Page of the book: practice/own-corpus. A changed decoder rate re-runs pre-training and what follows; a changed batch
of fine-tuning keeps the pre-trained model; configurations of a study share tokens, ranking and negatives.
"""

from collections.abc import Mapping
from functools import partial

from dr_lib import objectives
from dr_lib.collections import Collection
from dr_lib.lab import builds
from dr_lib.lab.cost import bert_work
from dr_lib.lab.opening import Origin
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.specs import Finetuning
from dr_lib.lab.stage import Stage


def passage_tokens(collection: Collection, base: Origin) -> Stage:
    """Passages as token ids; the same for all recipes whose base models share a tokenizer."""
    params = {"collection": collection.digest, "part": "passages", **tokenizer_params(base)}
    build = partial(builds.build_passage_tokens, collection=collection, base=base)
    return Stage("tokens", 1, params, build, base.inputs("base"), cost=len(collection.passages))


def query_tokens(collection: Collection, base: Origin, split: str) -> Stage:
    """The queries of a split as token ids."""
    params = {"collection": collection.digest, "part": f"queries of {split}", **tokenizer_params(base)}
    build = partial(builds.build_query_tokens, collection=collection, split=split, base=base)
    return Stage("tokens", 1, params, build, base.inputs("base"), cost=len(collection.qrels(split)))


def tokenizer_params(base: Origin) -> dict[str, str]:
    """What stands for the base model's tokenizer in the parameters of a stage that tokenises."""
    return {"tokenizer": base.tokenizer} if base.tokenizer else {}


def pretraining(
    recipe: Recipe, collection: Collection, base: Origin, generator: Origin | None, passages: Stage,
    materials: Mapping[str, Stage],
) -> Stage:  # fmt: skip
    """The base model pre-trained on the collection's own passages, with the materials that the method needs."""
    settings, shape = recipe.pretraining, base.shape
    params = {
        "objective": recipe.objective.identity(),
        "training": settings.identity(),
        "title": recipe.title,
        "length": recipe.passage_length,
        "dropout": recipe.dropout,
        "seed": recipe.seed,
        **base.params("base"),
    }
    inputs = {"tokens": passages, **base.inputs("base"), **materials}
    if objectives.method(recipe.objective.name).reads_queries:
        params |= {"query_length": recipe.query_length}
    if generator:
        params |= generator.params("generator")
        inputs |= generator.inputs("generator")
    tokens = settings.steps * settings.accumulation * settings.tokens_per_batch
    work = bert_work(shape.layers, shape.hidden, shape.vocabulary, length=recipe.passage_length)
    build = partial(
        builds.build_pretrained, recipe=recipe, collection=collection, base=base, generator=generator,
        materials=tuple(materials),
    )  # fmt: skip
    family = f"{recipe.objective.name} {shape.layers}x{shape.hidden}"
    return Stage("pretrained", 2, params, build, inputs, resumable=True, cost=tokens * work, family=family)


def bm25_index(collection: Collection, title: bool) -> Stage:
    """BM25 over the passages, titles included or not."""
    params = {"collection": collection.digest, "title": title}
    build = partial(builds.build_bm25, collection=collection, title=title)
    return Stage("bm25", 1, params, build, cost=len(collection.passages))


def bm25_ranking(collection: Collection, split: str, depth: int, title: bool = True) -> Stage:
    """What BM25 finds for the queries of a split."""
    build = partial(builds.build_bm25_ranking, collection=collection, split=split, depth=depth)
    cost = len(collection.qrels(split)) * len(collection.passages)
    index = {"index": bm25_index(collection, title)}
    return Stage("bm25_ranking", 1, {"split": split, "depth": depth}, build, index, cost=cost)


def bm25_negatives(recipe: Recipe, collection: Collection) -> Stage:
    """Hard negatives of the training queries."""
    options = recipe.negatives.model_dump(mode="json", exclude={"source"}, exclude_none=True)
    most = max(len(grades) for grades in collection.qrels("train").values())
    ranking = bm25_ranking(collection, "train", recipe.negatives.depth + most, title=recipe.title != "none")
    build = partial(builds.build_negatives, collection=collection, split="train", options=options)
    return Stage("negatives", 1, {"split": "train", **options}, build, {"ranking": ranking})


def finetuning(
    recipe: Recipe, collection: Collection, base: Origin, pretrained: Stage | None, passages: Stage,
    queries: Stage, negatives: Stage | None, options: Finetuning | None = None, teacher: Stage | None = None,
    pseudo_labels: Stage | None = None,
) -> Stage:  # fmt: skip
    """A retriever: the pre-trained (or base) encoder fine-tuned on queries, positives and hard negatives.

    `options` are the recipe's own by default; with a `teacher` they must be those of a distillation. Pseudo-labels, of
    the pool "train", are learned beside the given labels.
    """
    settings, shape = options or recipe.finetuning, base.shape
    params = {
        "training": settings.identity(),
        "title": recipe.title,
        "lengths": [recipe.query_length, recipe.passage_length],
        "pooling": recipe.pooling,
        "dropout": recipe.dropout,
        "seed": recipe.seed,
        **few_shot_params(recipe),
        **side_params(recipe),
    }
    inputs = {"passages": passages, "queries": queries}
    inputs |= {"pretrained": pretrained} if pretrained else base.inputs("base")
    inputs |= {"negatives": negatives} if negatives else {}
    inputs |= {"teacher": teacher} if teacher else {}
    inputs |= {"pseudo_labels": pseudo_labels} if pseudo_labels else {}
    inputs |= validation_inputs(recipe, collection, base, settings)
    params |= {} if pretrained else base.params("base")
    per_query = recipe.query_length + (settings.negatives + 1) * recipe.passage_length
    tokens = settings.steps * settings.accumulation * settings.batch_queries * per_query
    work = bert_work(shape.layers, shape.hidden, shape.vocabulary, 0.0, recipe.passage_length)
    build = partial(builds.build_retriever, recipe=recipe, base=base, collection=collection, options=settings)
    family = f"{shape.layers}x{shape.hidden}"
    return Stage("retriever", 1, params, build, inputs, resumable=True, cost=tokens * work, family=family)


def validation_inputs(recipe: Recipe, collection: Collection, base: Origin, options: Finetuning) -> dict[str, Stage]:
    """What a training with validation reads beside its examples: queries to look at, and BM25's ranking for them."""
    spec = options.validation
    if spec is None:
        return {}
    ranking = bm25_ranking(collection, spec.split, spec.per_query, title=recipe.title != "none")
    return {"asked": query_tokens(collection, base, spec.split), "asked_ranking": ranking}


def side_params(recipe: Recipe) -> dict[str, str]:
    """What stands for the end that a long query loses, where it is not the usual one."""
    return {"query_side": recipe.query_side} if recipe.query_side else {}


def few_shot_params(recipe: Recipe) -> dict[str, float]:
    """What stands for the drawn share of training queries in the parameters of a stage that learns from them."""
    return {} if recipe.few_shot is None else {"few_shot": recipe.few_shot, "draw": recipe.collection.seed}


def labelled_queries(recipe: Recipe, collection: Collection) -> int:
    """How many training queries a recipe may learn from."""
    return round(len(collection.qrels("train")) * (recipe.few_shot or 1))


def untuned(recipe: Recipe, base: Origin, pretrained: Stage | None) -> Stage:
    """A retriever that was never fine-tuned: the encoder as pre-training (or the base model) left it."""
    params = {
        "title": recipe.title, "lengths": [recipe.query_length, recipe.passage_length], "pooling": recipe.pooling,
        "normalise": recipe.finetuning.normalise, **({} if pretrained else base.params("base")), **side_params(recipe),
        **({"projection": True} if recipe.finetuning.projection else {}),
    }  # fmt: skip
    inputs = {"pretrained": pretrained} if pretrained else base.inputs("base")
    return Stage("untuned", 1, params, partial(builds.build_untuned, recipe=recipe, base=base), inputs)


def passage_vectors(
    recipe: Recipe, collection: Collection, base: Origin, retriever: Stage, passages: Stage
) -> Stage:  # fmt: skip
    """Every passage as a vector."""
    inputs = {"retriever": retriever, "passages": passages}
    work = bert_work(*base.shape[:3], 0.0, recipe.passage_length) / 3
    cost = work * recipe.passage_length * len(collection.passages)
    params = {"type": recipe.evaluation.vector_type}
    build = partial(builds.build_vectors, recipe=recipe)
    return Stage("vectors", 1, params, build, inputs, resumable=True, cost=cost)


def dense_run(
    recipe: Recipe, collection: Collection, retriever: Stage, vectors: Stage, queries: Stage, split: str, depth: int
) -> Stage:
    """The `depth` nearest passages of each query of a split."""
    params = {"split": split, "depth": depth}
    inputs = {"retriever": retriever, "vectors": vectors, "queries": queries}
    cost = float(len(collection.passages) * len(collection.qrels(split)))
    build = partial(builds.build_run, recipe=recipe, collection=collection, split=split, depth=depth)
    return Stage("run", 1, params, build, inputs, cost=cost)


def evaluation(collection: Collection, split: str, measures: tuple[str, ...], run: Stage) -> Stage:
    """The score of every query in a run, dense or BM25."""
    params = {"collection": collection.digest, "split": split, "measures": list(measures)}
    build = partial(builds.build_evaluation, collection=collection, split=split, measures=measures)
    return Stage("evaluation", 1, params, build, {"run": run})
