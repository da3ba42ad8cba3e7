"""Questions for a collection that has none: written, filtered, split, and kept as an ordinary folder in BEIR layout.

A generator that learnt on another collection's queries (or a public doc2query model) asks about every passage; a
question stays if it was written once only and BM25 finds its passage again (`materials.consistent`). Splits that people
have judged are kept: with a test split of one's own, only training queries are written. Page: practice/own-corpus.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dr_lib import retrieval
from dr_lib.collections import Collection
from dr_lib.collections.beir import GENERATED
from dr_lib.collections.source import Judgement, Query
from dr_lib.collections.writing import write_folder
from dr_lib.files import read_json, write_json
from dr_lib.lab import stages
from dr_lib.lab.builds import Inputs, document_order
from dr_lib.lab.cache import Cache
from dr_lib.lab.finished import WRITTEN
from dr_lib.lab.material_texts import question_generator, questions_by
from dr_lib.lab.opening import Origin, open_collection, open_origin, open_sample, open_writer
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.stage import Stage
from dr_lib.lab.way import open_means
from dr_lib.materials import ByWords, Texts, asked_once, consistent, draw_splits, first_of_each, shared_words

SHARES = {"train": 0.75, "dev": 0.05, "test": 0.2}
"""Parts of the documents by split; of those that are not judged already."""


@dataclass(frozen=True)
class Asked:
    """A collection with generated questions.

    Attributes:
        recipe: the recipe that was given, on the new collection; it measures "test" where the split is unknown.
        folder: the collection in BEIR layout; copy it to keep, correct or extend it.
        counts: what was left after each step, and `shared_words`, the mean share of a question's words in its passage.
    """

    recipe: Recipe
    folder: Path
    counts: dict[str, Any]


def ask(
    recipe: Recipe,
    *,
    learn_from: str = "pydocs",
    use_judgements: bool = True,
    per_passage: int = 3,
    top_k: int = 100,
    seed: int = 0,
    cache: Cache | None = None,
) -> Asked:
    """Write the queries that a recipe's collection lacks.

    Args:
        recipe: says which collection and how much of it, the base model, and in `makers.questions` how the generator is
            trained, or which public one (a doc2query model) is used instead.
        learn_from: the collection whose training queries the generator learns to write; not used with a public one.
        use_judgements: keep the queries of the splits that the collection has, and write the others; False writes all.
        per_passage: questions written about a passage. Training takes all that pass, dev and test one a passage, since
            several would not be independent of each other.
        top_k: BM25 must find the passage among so many. A small number would keep what BM25 is best at.
        seed: of the generator, its draws and the splits.
        cache: where the stages are kept.

    Raises:
        InputError: `learn_from` has no training queries, or too few questions passed.
    """
    stage = question_collection(
        recipe, learn_from=learn_from, use_judgements=use_judgements, per_passage=per_passage, top_k=top_k, seed=seed
    )
    place, collection = (cache or Cache()).get(stage), open_sample(recipe.collection)
    folder, split = place / folder_name(collection), recipe.evaluation.split
    known = {*SHARES, *(collection.splits if use_judgements else ())}
    changed = recipe.with_(collection=str(folder), evaluation__split=split if split in known else "test")
    return Asked(changed, folder, read_json(place / "counts.json"))


def folder_name(collection: Collection) -> str:
    """What a collection with generated questions is called."""
    return f"{collection.name}-questions"


def question_collection(
    recipe: Recipe, *, learn_from: str, use_judgements: bool, per_passage: int, top_k: int, seed: int
) -> Stage:
    """The stage of `ask`: a folder in BEIR layout, and `counts.json`."""
    collection, base = open_sample(recipe.collection), open_origin(recipe.base)
    judged = collection.splits if use_judgements else ()
    writer = generator_for(recipe, base, learn_from, seed)
    written = questions_by(
        writer, recipe, collection, base, stages.passage_tokens(collection, base), per_passage=per_passage, top_k=10,
        seed=seed,
    )  # fmt: skip
    params = {"collection": collection.digest, "judged": list(judged), "shares": SHARES, "top_k": top_k, "seed": seed}
    told = writer.name if writer.place else f"a model trained on the queries of {open_collection(learn_from).name}"
    params = {
        "collection": collection.digest, "judged": list(judged), "shares": SHARES, "top_k": top_k, "seed": seed,
        "name": folder_name(collection), "readme": readme(collection, judged, told),
    }  # fmt: skip
    build = partial(
        build_question_collection, collection=collection, judged=judged, top_k=top_k, seed=seed, told=told,
    )  # fmt: skip
    inputs = {"questions": written, "index": stages.bm25_index(collection, recipe.title != "none")}
    cost = float(per_passage * len(collection.passages) ** 2)
    return Stage(WRITTEN, 1, params, build, inputs, cost=cost)


def generator_for(recipe: Recipe, base: Origin, learn_from: str, seed: int) -> Origin:
    """The public generator that the recipe names, or one trained on another collection, cut to the recipe's sizes."""
    if recipe.makers.questions.model:
        return open_writer(recipe.makers.questions.model)
    open_collection(learn_from).qrels("train")  # complains in the collection's own words
    return question_generator(open_means(recipe.with_(collection=learn_from), base=base), seed)


def build_question_collection(
    folder: Path, inputs: Inputs, *, collection: Collection, judged: tuple[str, ...], top_k: int, seed: int, told: str
) -> None:
    """Filter and split the questions, and write the folder."""
    texts = Texts.open(inputs["questions"])
    strings, sources = texts.strings["text"][:], texts.owners()
    once, documents = asked_once(strings), document_order(collection)[0]
    retriever = ByWords(retrieval.Bm25.open(inputs["index"] / "index"), texts.strings)
    kept = np.flatnonzero(once & consistent(retriever, sources, documents, top_k=top_k))
    shares = {split: share for split, share in SHARES.items() if split not in judged}
    drawn = draw_splits(documents, sources[kept], shares, held=judged_rows(collection, judged), seed=seed)
    chosen = choose(sources, kept, drawn, list(shares))
    ids, names = collection.passages["id"][:], {row: f"asked-{row}" for rows in chosen.values() for row in rows}
    judgements = {split: collection_judgements(collection, split) for split in judged}
    judgements |= {
        split: [Judgement(names[row], ids[int(sources[row])], 1) for row in rows] for split, rows in chosen.items()
    }
    queries = [*judged_queries(collection, judged), *(Query(name, strings[row]) for row, name in names.items())]
    counts = read_json(inputs["questions"] / "counts.json")
    passages = collection.passages.select(sources[list(names)])["text"]
    counts = {
        "passages": counts["passages"], "written": counts["drawn"], "distinct": counts["kept"],
        "asked_once": int(once.sum()), "found_again": len(kept),
        "queries": {split: len(rows) for split, rows in chosen.items()},
        "shared_words": shared_words([strings[row] for row in names], passages),
    }  # fmt: skip
    write_folder(
        folder / folder_name(collection), collection.passages, queries, judgements, readme(collection, judged, told)
    )
    write_json(folder / "counts.json", counts)


def judged_rows(collection: Collection, judged: tuple[str, ...]) -> np.ndarray:
    """Rows of the passages that are relevant in splits that people have judged."""
    relevant = {
        passage for split in judged for grades in collection.qrels(split).values() for passage in grades
        if grades[passage] > 0
    }  # fmt: skip
    return np.flatnonzero([name in relevant for name in collection.passages["id"][:]])


def choose(sources: np.ndarray, kept: np.ndarray, drawn: np.ndarray, splits: list[str]) -> dict[str, list[int]]:
    """Rows of the questions of each split: all of a training passage, the first of another."""
    chosen = {}
    for number, split in enumerate(splits):
        rows = kept[drawn[sources[kept]] == number]
        chosen[split] = (rows if split == "train" else rows[first_of_each(sources[rows])]).tolist()
    return chosen


def judged_queries(collection: Collection, judged: tuple[str, ...]) -> Iterator[Query]:
    """The queries of the splits that people have judged, each once."""
    wanted = {query for split in judged for query in collection.qrels(split)}
    for row in collection.queries() if wanted else ():
        if row["id"] in wanted:
            yield Query(row["id"], row["text"], tuple(row["answers"]))


def collection_judgements(collection: Collection, split: str) -> Iterable[Judgement]:
    """The judgements of one split."""
    grades: Mapping[str, Mapping[str, int]] = collection.qrels(split)
    return [Judgement(query, passage, grade) for query, own in grades.items() for passage, grade in own.items()]


def readme(collection: Collection, judged: tuple[str, ...], told: str) -> str:
    """What the folder says of itself."""
    by_people = f"Judged by people: {', '.join(judged)}." if judged else "No query was judged by people."
    return (
        f"# {collection.name}, with generated questions\n\n- Source: the passages of {collection.name} (digest"
        f" {collection.digest[:16]}).\n- {GENERATED}: written by {told}. {by_people}\n- Licence: {collection.licence}\n"
    )
