"""Stages of a cross-encoder: its training, a re-ranked run, and its scores of the training passages for distillation.

SimLM Figure 2 (re-ranker and teacher), PAIR section 3.3 (scorer of pseudo-labels). Page: ideas/distillation.
"""

from functools import partial
from pathlib import Path

from dr_lib import retrieval
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.lab import stages
from dr_lib.lab.builds import Inputs, encoding_budget, examples
from dr_lib.lab.cost import bert_work
from dr_lib.lab.means import Means
from dr_lib.lab.opening import Origin, open_origin
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.stage import Stage
from dr_lib.models import CrossEncoder
from dr_lib.pairs import CrossedBatches
from dr_lib.tokens import Crossing, TokenStore
from dr_lib.training import Reranker, runtime, train
from dr_lib.training.reranker import Loss


def cross_encoder(
    means: Means, negatives: Stage | None, retriever: Stage, *, loss: Loss = "listwise", seed: int | None = None
) -> Stage:  # fmt: skip
    """A cross-encoder trained on the queries of the split train; its folder has `model/` and `log.json`.

    Args:
        means: the recipe's `makers.cross_encoder` says how it is trained and from what.
        negatives: the stage of the hard negatives, of BM25 or mined; None draws passages at random.
        retriever: the stage whose encoder it starts from, where the recipe says so.
        loss: "listwise" for a re-ranker and teacher, "pointwise" where scores must be probabilities.
        seed: of head and training; None takes the recipe's.

    Raises:
        InputError: fewer training queries than a batch takes, or a model that cannot be opened.
    """
    recipe, reader, settings = means.recipe, reader_of(means), means.recipe.makers.cross_encoder
    queries = stages.labelled_queries(recipe, means.collection)
    if queries < settings.batch_queries:
        problem = f"{queries} training queries cannot fill a batch of {settings.batch_queries}"
        raise InputError(problem, where="makers.cross_encoder.batch_queries", fix="Make its batches smaller.")
    seed = recipe.seed if seed is None else seed
    identity = {name: value for name, value in settings.identity().items() if name != "model"}
    params = {
        "training": identity, "loss": loss, "title": recipe.title != "none", "dropout": recipe.dropout, "seed": seed,
        **reader.params("reader"), **stages.few_shot_params(recipe),
    }  # fmt: skip
    inputs = {**tokens(means, "train"), **({"negatives": negatives} if negatives else {})}
    inputs |= {"start": retriever} if settings.start else reader.inputs("reader")
    build = partial(
        build_cross_encoder, recipe=recipe, collection=means.collection, reader=reader, loss=loss, seed=seed
    )
    pairs = settings.steps * settings.accumulation * settings.batch_queries * (settings.negatives + 1)
    family = f"{reader.shape.layers}x{reader.shape.hidden}"
    cost = 3 * scoring_cost(means, pairs)
    return Stage("cross_encoder", 1, params, build, inputs, resumable=True, cost=cost, family=family)


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
    listed = means.recipe.negatives.depth + means.recipe.negatives.random_negatives + 1
    cost = scoring_cost(means, listed * len(means.collection.qrels("train")))
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
    folder: Path, inputs: Inputs, *, recipe: Recipe, collection: Collection, reader: Origin, loss: Loss, seed: int
) -> None:
    """`model/`: the cross-encoder; `log.json`."""
    settings = recipe.makers.cross_encoder
    start = inputs["start"] / "model" if settings.start else reader.path(inputs, "reader")
    encoder = CrossEncoder.from_pretrained(
        start, dropout=recipe.dropout, device=runtime.device(), seed=seed,
        length=settings.length, title=recipe.title != "none",
    )  # fmt: skip
    batches = CrossedBatches(
        crossing_of(encoder, inputs), examples(collection, inputs, recipe), batch_queries=settings.batch_queries,
        passages_per_query=settings.negatives + 1, seed=seed,
    )  # fmt: skip
    module = Reranker(
        encoder, passages_per_query=settings.negatives + 1, loss=loss, gradient=settings.gradient,
        r_drop=settings.r_drop,
    )  # fmt: skip
    train(module, batches.batch, settings.settings(seed), folder, title="cross-encoder")
    encoder.save(folder / "model")


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


def open_scorer(inputs: Inputs) -> tuple[CrossEncoder, Crossing]:
    """The cross-encoder of stage `scorer` on this machine's device, and the pairs it reads."""
    encoder = CrossEncoder.from_pretrained(inputs["scorer"] / "model", device=runtime.device())
    return encoder, crossing_of(encoder, inputs)


def crossing_of(encoder: CrossEncoder, inputs: Inputs) -> Crossing:
    """Queries and passages of the stages `queries` and `passages`."""
    queries, passages = (TokenStore.open(inputs[name] / "store") for name in ("queries", "passages"))
    return encoder.crossing(queries, passages)
