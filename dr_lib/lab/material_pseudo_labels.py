"""Stages of PAIR's pseudo-labels: queries whose labels nobody looks at, what is retrieved for them, how sure the
cross-encoder is, and the pairs above and below the thresholds.

PAIR section 3.3. Other thresholds make other pairs from the same scores, so Table 5 scores once. Page of the book:
ideas/passage-centric.
"""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dr_lib import retrieval
from dr_lib.collections import Collection
from dr_lib.files import write_json
from dr_lib.lab import reranking, stages
from dr_lib.lab.builds import Inputs, encoding_budget, examples, open_encoder, positives_of
from dr_lib.lab.maker_specs import PseudoLabelsSpec
from dr_lib.lab.material_texts import questions
from dr_lib.lab.means import Means
from dr_lib.lab.opening import Origin
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.stage import Stage
from dr_lib.lab.unlabelled import queries_in, unlabelled_queries
from dr_lib.materials import PAPERS_THRESHOLDS, Probability, Texts, count_labels, label, probabilities
from dr_lib.tokens import TokenStore, load_tokenizer
from dr_lib.training import RerankerLoss, machine

TRAINED: dict[Probability, RerankerLoss] = {"sigmoid": "pointwise", "softmax": "listwise"}
"""How the scorer is trained: a sigmoid says something of logits that were trained pair by pair only."""


def pseudo_labels(means: Means, *, seed: int = 0) -> Stage:
    """Pairs in the folder format of all pairs: `queries/`, `examples/`, and `counts.json`.

    Args:
        means: the recipe's `makers.pseudo_labels` says which pairs are wanted, its `makers.cross_encoder` how the
            scorer is trained, on the labelled queries of the split train with BM25 negatives.
        seed: of the scorer and of generated questions.
    """
    chosen = means.recipe.makers.pseudo_labels
    if chosen.labels == "given":
        return given_labels(means)
    asked = queries_of_pool(means, seed)
    found = candidates(means, asked)
    scores = candidate_scores(means, asked, found, seed)
    params = chosen.model_dump(mode="json", include={"pool", "s_pos", "s_neg", "probability"})
    build = partial(build_pseudo_labels, collection=means.collection, chosen=chosen)
    inputs = {"queries": asked, "candidates": found, "scores": scores}
    return Stage("pseudo_labels", 1, params, build, inputs)


def queries_of_pool(means: Means, seed: int) -> Stage:
    """Whose queries are labelled: tokens of the training queries, or texts that have their tokens beside them."""
    chosen = means.recipe.makers.pseudo_labels
    if chosen.pool == "questions":
        return questions(means, per_passage=chosen.per_passage, seed=seed)
    return unlabelled_queries(means, chosen.file) if chosen.file else means.train_queries


def given_labels(means: Means) -> Stage:
    """The labelled training queries as they are, with BM25 negatives, in the folder format of all pairs."""
    inputs = {"queries": means.train_queries, **({"negatives": means.negatives} if means.negatives else {})}
    return Stage("given_labels", 1, {}, partial(build_given_labels, collection=means.collection), inputs)


def candidates(means: Means, asked: Stage) -> Stage:
    """What the first retriever finds for each query of the pool `asked`; `ranking/`."""
    recipe, collection, chosen = means.recipe, means.collection, means.recipe.makers.pseudo_labels
    params: dict[str, Any] = chosen.model_dump(mode="json", include={"pool", "first", "depth"})
    if chosen.first == "bm25":
        inputs = {"queries": asked, "index": stages.bm25_index(collection, recipe.title != "none")}
        build = partial(build_bm25_candidates, collection=collection, chosen=chosen)
    else:
        inputs = {"queries": asked, "retriever": means.first_retriever, "vectors": means.first_vectors}
        build = partial(build_dense_candidates, recipe=recipe)
        params |= {"query_length": recipe.query_length}
    cost = float(pool_size(means) * len(collection.passages))
    return Stage("candidates", 1, params, build, inputs, cost=cost)


def candidate_scores(means: Means, asked: Stage, found: Stage, seed: int) -> Stage:
    """The cross-encoder's score of each candidate; `scores.npy` `[queries, depth]` float32, -inf for none."""
    chosen = means.recipe.makers.pseudo_labels
    scorer = reranking.cross_encoder(
        means, means.negatives, means.first_retriever, loss=TRAINED[chosen.probability], seed=seed
    )
    inputs = reranking.tokens(means, "train") | {"candidates": found, "scorer": scorer}
    if chosen.pool != "train":
        inputs["queries"] = in_tokens_of(reranking.reader_of(means), means, asked)
    cost = reranking.scoring_cost(means, pool_size(means) * chosen.depth)
    return Stage("candidate_scores", 1, {}, build_candidate_scores, inputs, cost=cost)


def in_tokens_of(reader: Origin, means: Means, asked: Stage) -> Stage:
    """Queries that are texts in the cross-encoder's tokens: as they are, where the tokenizers agree."""
    if reader is means.base or (reader.tokenizer and reader.tokenizer == means.base.tokenizer):
        return asked
    params = {"tokenizer": reader.tokenizer} if reader.tokenizer else {}
    inputs = {"texts": asked, **reader.inputs("reader")}
    return Stage("tokens", 1, {"part": "questions", **params}, partial(build_question_tokens, reader=reader), inputs)


def pool_size(means: Means) -> int:
    """About how many queries there are to label."""
    chosen, collection = means.recipe.makers.pseudo_labels, means.collection
    if chosen.file:
        return queries_in(chosen.file)
    return len(collection.qrels("train")) if chosen.pool == "train" else chosen.per_passage * len(collection.passages)


def build_question_tokens(folder: Path, inputs: Inputs, *, reader: Origin) -> None:
    """`store/`: queries that are texts as token ids of the cross-encoder's tokenizer."""
    tokenizer = load_tokenizer(reader.path(inputs, "reader"))
    TokenStore.build(Texts.open(inputs["texts"]).strings, tokenizer, folder / "store", columns=("text",))


def build_bm25_candidates(folder: Path, inputs: Inputs, *, collection: Collection, chosen: PseudoLabelsSpec) -> None:
    """`ranking/`: the first passages of BM25 for each query of the pool."""
    asked = collection.queries("train") if chosen.pool == "train" else Texts.open(inputs["queries"]).strings
    index = retrieval.Bm25.open(inputs["index"] / "index")
    index.search(asked["text"][:], chosen.depth, progress=True).save(folder / "ranking")


def build_dense_candidates(folder: Path, inputs: Inputs, *, recipe: Recipe) -> None:
    """`ranking/`: the passages nearest to each query of the pool."""
    encoder = open_encoder(inputs["retriever"] / "model")
    asked = retrieval.encode(
        encoder, TokenStore.open(inputs["queries"] / "store"), folder / "queries.npy", max_length=recipe.query_length,
        title="none", side=encoder.settings.query_side, tokens_per_batch=encoding_budget(),
        normalise=encoder.settings.normalise,
    )  # fmt: skip
    passages = np.load(inputs["vectors"] / "vectors.npy", mmap_mode="r")
    depth = recipe.makers.pseudo_labels.depth
    scores, rows = retrieval.search(asked, passages, depth, device=machine.device(), progress=True)
    retrieval.Ranking([str(row) for row in range(len(asked))], rows, scores).save(folder / "ranking")


def build_candidate_scores(folder: Path, inputs: Inputs) -> None:
    """`scores.npy`: the cross-encoder's logit of each candidate."""
    encoder, crossing = reranking.open_scorer(inputs)
    rows = np.array(retrieval.Ranking.open(inputs["candidates"] / "ranking").rows)
    scores = retrieval.score_candidates(
        encoder, crossing, np.arange(len(rows)), rows, tokens_per_batch=encoding_budget(), title="score candidates"
    )
    np.save(folder / "scores.npy", scores)


def build_pseudo_labels(folder: Path, inputs: Inputs, *, collection: Collection, chosen: PseudoLabelsSpec) -> None:
    """`queries/` and `examples/`; `counts.json` for the thresholds chosen and for those of PAIR's Table 5."""
    rows = np.array(retrieval.Ranking.open(inputs["candidates"] / "ranking").rows)
    chances = probabilities(np.load(inputs["scores"] / "scores.npy"), chosen.probability)
    known = known_passages(inputs, collection, chosen.pool)
    table = [count_labels(rows, chances, *thresholds, known) for thresholds in PAPERS_THRESHOLDS]
    counts = count_labels(rows, chances, chosen.s_pos, chosen.s_neg, known)
    found = label(rows, chances, s_pos=chosen.s_pos, s_neg=chosen.s_neg, passages=len(collection.passages))
    found.save(folder / "examples")
    shutil.copytree(inputs["queries"] / "store", folder / "queries")
    write_json(folder / "counts.json", {"chosen": counts, "thresholds": table})


def build_given_labels(folder: Path, inputs: Inputs, *, collection: Collection) -> None:
    """`queries/` and `examples/` of the labelled training queries."""
    examples(collection, inputs).save(folder / "examples")
    shutil.copytree(inputs["queries"] / "store", folder / "queries")


def known_passages(inputs: Inputs, collection: Collection, pool: str) -> list[np.ndarray]:
    """What the labelling does not see: the judged passages of a training query, or the one a question was made from.

    Of the queries of a file nothing is known.
    """
    if pool == "train":
        return positives_of(collection, "train")
    owners = Texts.open(inputs["queries"]).owners()[:, None]
    return list(owners if pool == "questions" else owners[:, :0])
