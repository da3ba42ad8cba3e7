"""Queries for a collection that has none: generated, filtered, split, and stored as an ordinary folder in BEIR layout.

The book's own generator, a public one (doc2query), or one that first learns on another collection's queries writes about
every passage; a question stays if it was written once only and BM25 finds its passage again (`materials.round_trip`).
Splits that people have judged are kept: with a test split of one's own, only training queries are written. Page:
practice/own-corpus.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dr_lib import materials
from dr_lib.errors import InputError
from dr_lib.files import read_json
from dr_lib.lab.base import open_collection, open_sample, open_writer
from dr_lib.lab.pipeline import Pipeline
from dr_lib.lab.recipe import Recipe
from dr_lib.stages import Cache

FEWEST_PASSAGES = 10


@dataclass(frozen=True)
class GeneratedQueries:
    """A collection with generated questions.

    Attributes:
        recipe: the given recipe on the new collection; it measures "test" if its own split is unknown.
        folder: the collection in BEIR layout; copy it to keep, correct or extend it.
        counts: the questions left after each step, and `shared_words`, the mean share of a question's words in its passage.
    """

    recipe: Recipe
    folder: Path
    counts: dict[str, Any]


def generate_queries(
    recipe: Recipe,
    *,
    learn_from: str | None = None,
    use_judgements: bool = True,
    per_passage: int = 3,
    top_k: int = 100,
    seed: int = 0,
    cache: Cache | None = None,
) -> GeneratedQueries:
    """Generate the queries that a recipe's collection lacks.

    Args:
        recipe: the collection and its sizes, the base model, and in `auxiliary.questions` how a generator is trained, or
            which ready one is used (a doc2query model).
        learn_from: the collection whose training queries a generator first learns to write, unless the recipe names a
            ready one. None: without such a name the one that comes with the book writes.
        use_judgements: keep the queries of the splits that the collection has, and write the others; False writes all.
        per_passage: questions written about a passage. Training takes all that pass, dev and test one per passage, since
            several would not be independent of each other.
        top_k: BM25 must find the passage among this many. A small number would favour the questions that BM25 answers best.
        seed: of the generator, its draws and the splits.
        cache: where the stages are kept.

    Raises:
        InputError: too few passages that are not judged, `learn_from` has no training queries, or too few questions passed.
    """
    collection = open_sample(recipe.collection)
    judged = list(collection.splits) if use_judgements else []
    held = {
        passage for split in judged for grades in collection.qrels(split).values() for passage, grade in grades.items() if grade > 0
    }
    if (free := len(collection) - len(held)) < FEWEST_PASSAGES:
        problem = f"{free} passage{'s' * (free != 1)} to write questions about, too few to train and to test"
        told = f" ({len(held)} are judged already, and kept for that)" if held else ""
        fix = f"Give text for {FEWEST_PASSAGES} or more passages."
        if (most := recipe.collection.passages) == len(collection):
            fix = f"Take a larger scale: at this one {most} passages are looked at, the judged ones first."
        raise InputError(problem + told, where=collection.name, fix=fix)
    writing = Pipeline(recipe, searches=False)
    if ready := recipe.auxiliary.questions.model or ("embedded" if learn_from is None else None):
        writer = open_writer(ready)
        written_by = f"the question generator {writer.name}"
    else:
        open_collection(learn_from).qrels("train")  # complains in the collection's own words
        writer = Pipeline(recipe.with_(collection=learn_from), searches=False).question_generator(seed)
        written_by = f"a model trained on the queries of {open_collection(learn_from).name}"
    questions = writing.questions_by(writer, per_passage=per_passage, top_k=10, seed=seed)
    made = materials.question_collection(
        questions, writing.bm25_index(), collection, judged=judged, top_k=top_k, seed=seed, written_by=written_by
    )
    place, split = (cache or Cache()).get(made), recipe.evaluation.split
    folder = place / materials.generated_name(collection)
    known = {*materials.GENERATED_SHARES, *judged}
    changed = recipe.with_(collection=str(folder), evaluation__split=split if split in known else "test")
    return GeneratedQueries(changed, folder, read_json(place / "counts.json"))
