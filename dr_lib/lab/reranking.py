"""Stages of a cross-encoder: its training, a re-ranked run, and its scores of the training passages for distillation.

SimLM Figure 2 (re-ranker and teacher), PAIR section 3.3 (scorer of pseudo-labels). Page: ideas/distillation.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dr_lib import retrieval
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.lab import stages
from dr_lib.lab.builds import Inputs, document_order, encoding_budget, examples
from dr_lib.lab.cost import bert_work
from dr_lib.lab.maker_specs import CrossEncoderTraining
from dr_lib.lab.means import Means
from dr_lib.lab.opening import Origin, open_origin
from dr_lib.lab.protocols import check_length
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.stage import Stage
from dr_lib.materials.span_pairs import store_spans
from dr_lib.models import CrossEncoder
from dr_lib.tokens import QueryPassagePairs, TokenStore, load_tokenizer
from dr_lib.training import Examples, PairBatches, Reranker, RerankerLoss, TrainSettings, machine, train

SPAN_SEED = 0


def cross_encoder(
    means: Means, negatives: Stage | None, retriever: Stage, *, loss: RerankerLoss = "listwise", seed: int | None = None
) -> Stage:  # fmt: skip
    """A cross-encoder trained on the queries of the split train; its folder has `model/` and `log.json`.

    Args:
        means: the recipe's `makers.cross_encoder` says how it is trained and from what.
        negatives: the stage of the hard negatives, of BM25 or mined; None draws passages at random.
        retriever: the stage whose encoder it starts from, where the recipe says so.
        loss: "listwise" for a re-ranker and teacher, "pointwise" where scores must be probabilities.
        seed: of head and training; None takes the recipe's.

    Raises:
        InputError: fewer training queries than a batch takes, pairs longer than the model reads, or a model that cannot
            be opened.
    """
    recipe, reader, settings = means.recipe, reader_of(means), means.recipe.makers.cross_encoder
    queries = stages.labelled_queries(recipe, means.collection)
    if queries < settings.batch_queries:
        problem = f"{queries} training queries cannot fill a batch of {settings.batch_queries}"
        raise InputError(problem, where="makers.cross_encoder.batch_queries", fix="Make its batches smaller.")
    check_length(settings.length, reader, "makers.cross_encoder.length")
    seed = recipe.seed if seed is None else seed
    params = training_params(means, settings, seed) | {"loss": loss, **stages.few_shot_params(recipe)}
    inputs = {**tokens(means, "train"), **({"negatives": negatives} if negatives else {})}
    if settings.start:
        inputs["start"] = retriever if settings.start == "retriever" else span_matcher(means)
    else:
        inputs |= reader.inputs("reader")
    build = partial(
        build_cross_encoder, recipe=recipe, collection=means.collection, reader=reader, loss=loss, seed=seed
    )
    return Stage("cross_encoder", 1, params, build, inputs, resumable=True, **training_cost(means, settings))


def span_matcher(means: Means) -> Stage:
    """A cross-encoder that has learnt which passage some words stand in; `model/` and `log.json`. It needs no label.

    Its seed is a parameter of its own, as that of materials: the runs of a study start from the same.
    """
    reader, settings = reader_of(means), means.recipe.makers.cross_encoder.on_spans()
    passages = {"passages": tokens(means, "train")["passages"]}
    inputs = passages | {"queries": span_queries(means)} | reader.inputs("reader")
    build = partial(build_span_matcher, recipe=means.recipe, reader=reader)
    params, cost = training_params(means, settings, SPAN_SEED), training_cost(means, settings)
    return Stage("span_matcher", 1, params, build, inputs, resumable=True, **cost)


def span_queries(means: Means) -> Stage:
    """A query a step and place of the batch: some words of a passage; `store/` and `examples/`."""
    settings, collection = means.recipe.makers.cross_encoder.on_spans(), means.collection
    count = settings.steps * settings.accumulation * settings.batch_queries
    params = {"count": count, "collection": collection.digest, "seed": SPAN_SEED}
    inputs = {"passages": tokens(means, "train")["passages"], **reader_of(means).inputs("reader")}
    build = partial(build_span_queries, collection=collection, reader=reader_of(means), count=count)
    return Stage("span_queries", 1, params, build, inputs, cost=count)


def training_params(means: Means, settings: CrossEncoderTraining, seed: int) -> dict[str, Any]:
    """What every training of a cross-encoder depends on, beside what it reads."""
    recipe, identity = means.recipe, {name: value for name, value in settings.identity().items() if name != "model"}
    return {
        "training": identity, "title": recipe.title != "none", "dropout": recipe.dropout, "seed": seed,
        **reader_of(means).params("reader"),
    }  # fmt: skip


def training_cost(means: Means, settings: CrossEncoderTraining) -> dict[str, Any]:
    """Operations of a training, and the size of the model; arguments of a `Stage`."""
    shape = reader_of(means).shape
    pairs = settings.steps * settings.accumulation * settings.batch_queries * (settings.negatives + 1)
    return {"cost": 3 * scoring_cost(means, pairs), "family": f"{shape.layers}x{shape.hidden}"}


def reranked(means: Means, scorer: Stage, run: Stage, split: str, depth: int) -> Stage:
    """A run whose first passages are ordered by a cross-encoder; `ranking/`, to be evaluated like any run.

    Args:
        means: collection and recipe.
        scorer: the stage of the cross-encoder.
        run: the run to re-rank, of the queries of `split`.
        split: name of the split.
        depth: passages scored a query; the others keep their order below.
    """
    inputs = {"run": run, "scorer": scorer, **tokens(means, split)}
    cost = scoring_cost(means, depth * len(means.collection.qrels(split)))
    return Stage(
        "reranked", 1, {"split": split, "depth": depth}, partial(build_reranked, depth=depth), inputs, cost=cost
    )


def teacher_scores(means: Means, scorer: Stage, negatives: Stage) -> Stage:
    """Scores of every positive and negative of the training queries: `TeacherScores` beside `builds.examples`.

    Args:
        means: collection and recipe.
        scorer: the stage of the cross-encoder.
        negatives: the stage of the negatives that the distilled retriever will learn from.
    """
    inputs = {"negatives": negatives, "scorer": scorer, **tokens(means, "train")}
    build = partial(build_teacher_scores, recipe=means.recipe, collection=means.collection)
    mining = means.recipe.mining
    listed = means.recipe.distillation.listed or mining.depth + mining.random_negatives
    cost = scoring_cost(means, (listed + 1) * stages.labelled_queries(means.recipe, means.collection))
    return Stage("teacher_scores", 1, {}, build, inputs, cost=cost)


def reader_of(means: Means) -> Origin:
    """What the cross-encoder starts from: a model of its own, or the recipe's base."""
    name = means.recipe.makers.cross_encoder.model
    return open_origin(name) if name else means.base


def tokens(means: Means, split: str) -> dict[str, Stage]:
    """Passages and queries of a split in the cross-encoder's tokens: the base model's where both tokenizers agree."""
    reader, collection = reader_of(means), means.collection
    return {
        "passages": stages.passage_tokens(collection, reader),
        "queries": stages.query_tokens(collection, reader, split),
    }


def scoring_cost(means: Means, pairs: int) -> float:
    """Operations that it takes to score so many pairs."""
    length, shape = means.recipe.makers.cross_encoder.length, reader_of(means).shape
    return pairs * length * bert_work(shape.layers, shape.hidden, shape.vocabulary, 0.0, length) / 3


def build_cross_encoder(
    folder: Path,
    inputs: Inputs,
    *,
    recipe: Recipe,
    collection: Collection,
    reader: Origin,
    loss: RerankerLoss,
    seed: int,
) -> None:
    """`model/`: the cross-encoder; `log.json`."""
    start = inputs["start"] / "model" if "start" in inputs else reader.path(inputs, "reader")
    listed, settings = examples(collection, inputs, recipe), recipe.makers.cross_encoder.settings(seed)
    fit(start, folder, inputs, listed, settings, recipe=recipe, loss=loss, title="cross-encoder")


def build_span_matcher(folder: Path, inputs: Inputs, *, recipe: Recipe, reader: Origin) -> None:
    """`model/`: the cross-encoder; `log.json`."""
    settings = recipe.makers.cross_encoder.on_spans().settings(SPAN_SEED)
    start, listed = reader.path(inputs, "reader"), Examples.open(inputs["queries"] / "examples")
    fit(start, folder, inputs, listed, settings, recipe=recipe, loss="listwise", title="finding words in passages")


def fit(
    start: Path, folder: Path, inputs: Inputs, listed: Examples, settings: TrainSettings, *, recipe: Recipe,
    loss: RerankerLoss, title: str,
) -> None:  # fmt: skip
    """Train a cross-encoder from a saved model or a masked LM on queries with positives and negatives; `model/`."""
    chosen, seed = recipe.makers.cross_encoder, settings.seed
    encoder = CrossEncoder.from_pretrained(
        start, dropout=recipe.dropout, device=machine.device(), seed=seed,
        length=chosen.length, title=recipe.title != "none",
    )  # fmt: skip
    batches = PairBatches(
        crossing_of(encoder, inputs), listed, batch_queries=chosen.batch_queries,
        passages_per_query=chosen.negatives + 1, seed=seed,
    )  # fmt: skip
    module = Reranker(
        encoder, passages_per_query=chosen.negatives + 1, loss=loss, gradient=chosen.gradient, r_drop=chosen.r_drop
    )
    train(module, batches.batch, settings, folder, title=title)
    encoder.save(folder / "model")


def build_span_queries(folder: Path, inputs: Inputs, *, collection: Collection, reader: Origin, count: int) -> None:
    """`store/` and `examples/` of `materials.span_pairs`."""
    documents, positions = document_order(collection)
    tokenizer = load_tokenizer(reader.path(inputs, "reader"))
    store_spans(
        TokenStore.open(inputs["passages"] / "store"), np.lexsort((positions, documents)), folder, tokenizer,
        count=count, seed=SPAN_SEED,
    )  # fmt: skip


def build_reranked(folder: Path, inputs: Inputs, *, depth: int) -> None:
    """`ranking/`: the run with its first passages in the cross-encoder's order."""
    encoder, crossing = open_scorer(inputs)
    run = retrieval.Ranking.open(inputs["run"] / "ranking")
    retrieval.rerank(encoder, run, crossing, top=depth, tokens_per_batch=encoding_budget()).save(folder / "ranking")


def build_teacher_scores(folder: Path, inputs: Inputs, *, recipe: Recipe, collection: Collection) -> None:
    """`positives.npy` and `negatives.npy`: raw scores beside the training examples."""
    encoder, crossing = open_scorer(inputs)
    listed = examples(collection, inputs, recipe)
    retrieval.score_examples(encoder, crossing, listed, tokens_per_batch=encoding_budget()).save(folder)


def open_scorer(inputs: Inputs) -> tuple[CrossEncoder, QueryPassagePairs]:
    """The cross-encoder of stage `scorer` on this machine's device, and the pairs it reads."""
    encoder = CrossEncoder.from_pretrained(inputs["scorer"] / "model", device=machine.device())
    return encoder, crossing_of(encoder, inputs)


def crossing_of(encoder: CrossEncoder, inputs: Inputs) -> QueryPassagePairs:
    """Queries and passages of the stages `queries` and `passages`."""
    queries, passages = (TokenStore.open(inputs[name] / "store") for name in ("queries", "passages"))
    return encoder.crossing(queries, passages)
