"""Stages that make pairs of a query and a passage: DPR-PAQ's questions, and posts with comments or titles with bodies.

Page of the book: ideas/generators. Folder of each: `queries/`, `examples/`, `counts.json`, and `passages/` where the
pairs bring their own.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dr_lib import retrieval
from dr_lib.collections import Collection
from dr_lib.files import read_json, write_json
from dr_lib.lab import stages
from dr_lib.lab.builds import Inputs, document_order, encoding_budget, open_encoder
from dr_lib.lab.maker_specs import PaqPairsSpec
from dr_lib.lab.material_texts import questions
from dr_lib.lab.means import Means
from dr_lib.lab.opening import Origin, file_content, find_pairs
from dr_lib.lab.stage import Stage
from dr_lib.materials import (
    ByVectors,
    ByWords,
    Retriever,
    Texts,
    consistent,
    pairs_of,
    store_pairs,
    store_questions,
    store_titles,
)
from dr_lib.tokens import TokenStore, load_tokenizer
from dr_lib.training import machine


def paq_pairs(means: Means, *, seed: int = 0) -> Stage:
    """Questions with the passages that they were made from, and hard negatives; as `makers.paq_pairs` says.

    Args:
        means: what they are made from.
        seed: of the question generator, of the draws and of the order of negatives.
    """
    chosen = means.recipe.makers.paq_pairs
    if chosen.file:
        return pairs_of_file(means, "paq_pairs", chosen.file, chosen.limit, seed, depth=chosen.depth)
    params = chosen.model_dump(mode="json", include={"filter", "top_k", "filter_by", "negatives", "depth"})
    inputs = {"questions": questions(means, per_passage=chosen.per_passage, seed=seed), **means.base.inputs("base")}
    asked = askers(chosen)
    if "bm25" in asked:
        inputs["index"] = stages.bm25_index(means.collection, means.recipe.title != "none")
    if "dense" in asked:
        inputs |= {"retriever": means.first_retriever, "vectors": means.first_vectors}
        params["query_length"] = means.recipe.query_length
    build = partial(
        build_generated_pairs, collection=means.collection, base=means.base, chosen=chosen, seed=seed,
        query_length=means.recipe.query_length,
    )  # fmt: skip
    cost = float(len(asked) * chosen.per_passage * len(means.collection.passages) ** 2)
    return Stage("paq_pairs", 1, params | {"seed": seed}, build, inputs, resumable=True, cost=cost)


def reddit_pairs(means: Means, *, seed: int = 0) -> Stage:
    """Pairs that people wrote: of the file that `makers.reddit_pairs` names, else the collection's titles and bodies.

    Args:
        means: what they are made from.
        seed: of the rows drawn from a file.
    """
    chosen = means.recipe.makers.reddit_pairs
    if chosen.file:
        return pairs_of_file(means, "reddit_pairs", chosen.file, chosen.limit, seed, depth=0)
    params = {"collection": means.collection.digest, **stages.tokenizer_params(means.base)}
    build = partial(build_title_pairs, collection=means.collection, base=means.base)
    cost = float(len(means.collection.passages))
    return Stage("title_pairs", 1, params, build, means.base.inputs("base"), cost=cost)


def pairs_of_file(means: Means, kind: str, name: str, limit: int | None, seed: int, depth: int) -> Stage:
    """The pairs of a published file with their own passages; the file counts by its content."""
    path = find_pairs(name)
    params: dict[str, Any] = {"file": file_content(path), "depth": depth, **stages.tokenizer_params(means.base)}
    params |= {"limit": limit, "seed": seed} if limit else {}
    build = partial(build_file_pairs, path=path, base=means.base, limit=limit, seed=seed, depth=depth)
    return Stage(kind, 1, params, build, means.base.inputs("base"), cost=float(path.stat().st_size))


def askers(chosen: PaqPairsSpec) -> set[str]:
    """Who is needed to filter questions and to find their negatives: bm25, dense, both or nobody."""
    return ({chosen.filter_by} if chosen.filter != "none" else set()) | ({chosen.negatives} - {"none"})


def build_generated_pairs(
    folder: Path, inputs: Inputs, *, collection: Collection, base: Origin, chosen: PaqPairsSpec, query_length: int,
    seed: int,
) -> None:  # fmt: skip
    """The generated questions that pass the filter, with negatives."""
    texts = Texts.open(inputs["questions"])
    sources, documents = texts.owners(), document_order(collection)[0]
    open_one = {
        "bm25": lambda: ByWords(retrieval.Bm25.open(inputs["index"] / "index"), texts.strings),
        "dense": lambda: by_vectors(folder, inputs, texts.store, query_length),
    }
    asked: dict[str, Retriever] = {name: open_one[name]() for name in askers(chosen)}
    kept = consistent(asked.get(chosen.filter_by), sources, documents, how=chosen.filter, top_k=chosen.top_k)
    counts = store_questions(
        texts.strings, sources, kept, folder, load_tokenizer(base.path(inputs, "base")),
        passages=len(collection.passages), retriever=asked.get(chosen.negatives), depth=chosen.depth, seed=seed,
    )  # fmt: skip
    drawn = read_json(inputs["questions"] / "counts.json")
    write_json(folder / "counts.json", {"generated": drawn["drawn"], "deduplicated": drawn["kept"], **counts})


def by_vectors(folder: Path, inputs: Inputs, questions: TokenStore, query_length: int) -> ByVectors:
    """The first retriever with the vectors of all questions."""
    encoder = open_encoder(inputs["retriever"] / "model")
    vectors = retrieval.encode(
        encoder, questions, folder / "checkpoint-vectors" / "questions.npy", max_length=query_length, title="none",
        tokens_per_batch=encoding_budget(), normalise=encoder.settings.normalise,
    )  # fmt: skip
    passages = np.load(inputs["vectors"] / "vectors.npy", mmap_mode="r")
    return ByVectors(vectors, passages, machine.device())


def build_file_pairs(
    folder: Path, inputs: Inputs, *, path: Path, base: Origin, limit: int | None, seed: int, depth: int
) -> None:
    """The pairs of a file."""
    tokenizer = load_tokenizer(base.path(inputs, "base"))
    write_json(folder / "counts.json", store_pairs(pairs_of(path, limit, seed), folder, tokenizer, depth=depth))


def build_title_pairs(folder: Path, inputs: Inputs, *, collection: Collection, base: Origin) -> None:
    """The titles of a collection with their bodies."""
    tokenizer = load_tokenizer(base.path(inputs, "base"))
    write_json(folder / "counts.json", store_titles(collection.passages, folder, tokenizer))
