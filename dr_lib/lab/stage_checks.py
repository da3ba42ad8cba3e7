"""The stage that looks back on a finished pipeline: was what each training learned from any good?

Page of the book: ideas/pipeline. Its values are kept like those of any run, one a training query, so that tables,
intervals and records work for them as for measures.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from dr_lib import evaluation as checks
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores, evaluate
from dr_lib.lab.builds import Inputs, document_order, examples
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.stage import Stage
from dr_lib.lab.way import Way, unfold
from dr_lib.retrieval import Ranking, holds_answer
from dr_lib.training import TeacherScores

QUERIES = 5_000


def unfold_checks(recipe: Recipe) -> Way:
    """The way of a recipe with `final="distilled"`, gone on to the values of `build_stage_checks`.

    Raises:
        InputError: another end, whose pipeline has no teacher.
    """
    if recipe.final != "distilled":
        fix = 'Give the recipe with final="distilled".'
        raise InputError(f"a pipeline that ends with {recipe.final!r} has no teacher to check", where="final", fix=fix)
    way = unfold(recipe)
    teacher = way.retriever.inputs["teacher"]
    taught = teacher.inputs["negatives"]
    mined = taught.inputs["ranking"].inputs["retriever"].inputs["negatives"]
    first = mined.inputs["ranking"]
    inputs = {
        "mined": mined, "taught": taught, "teacher": teacher, "first": first, "second": taught.inputs["ranking"]
    }  # fmt: skip
    bm25 = first.inputs["retriever"].inputs.get("negatives")
    inputs |= {"bm25": bm25} if bm25 else {}
    params = {"collection": way.collection.digest, "queries": QUERIES}
    build = partial(build_stage_checks, collection=way.collection, recipe=recipe, queries=QUERIES)
    return replace(way, evaluation=Stage("stage_checks", 1, params, build, inputs))


def build_stage_checks(
    folder: Path, inputs: Inputs, *, collection: Collection, recipe: Recipe, queries: int
) -> None:  # fmt: skip
    """`scores.json`: the checks of at most so many training queries, drawn evenly by a fixed seed.

    The measures are "retriever 1: MRR@10" and "retriever 2: MRR@10" (on the training queries themselves); of the mined
    negatives, the shares that BM25 had listed too, that come from a positive's document, and (where queries have
    answers) that hold one; and on the lists that the teacher reads, who puts a positive first and how many negatives
    the teacher puts above it.
    """
    listed = examples(collection, {"negatives": inputs["taught"]}, recipe)
    chosen = np.sort(np.random.default_rng(0).permutation(len(listed))[:queries])
    rankings = {name: Ranking.open(inputs[name] / "ranking") for name in ("first", "second")}
    values = mined_values(inputs, collection, listed.query_rows[chosen])
    for number, ranking in enumerate(rankings.values(), 1):
        values[f"retriever {number}: MRR@10"] = training_mrr(ranking, collection, listed.query_rows[chosen])
    teacher = checks.teacher_on_lists(TeacherScores.open(inputs["teacher"]), listed, chosen)
    retriever = checks.ranking_on_lists(rankings["second"], listed, chosen)
    values["lists: retriever 2 puts a positive first"] = checks.positive_first(*retriever)
    values["lists: teacher puts a positive first"] = checks.positive_first(*teacher)
    values["lists: negatives that the teacher puts above"] = checks.share_above(*teacher)
    ids = collection.queries("train")["id"][:]
    Scores([ids[row] for row in listed.query_rows[chosen]], values).save(folder / "scores.json")


def mined_values(inputs: Inputs, collection: Collection, rows: np.ndarray) -> dict[str, np.ndarray]:
    """What the mined negatives of certain training queries are: measure -> `[queries]` shares."""
    mined = np.load(inputs["mined"] / "negatives.npy")[rows]
    documents, _ = document_order(collection)
    own = examples(collection, inputs={})
    places = np.searchsorted(own.query_rows, rows)
    sources = [documents[own.positives[own.offsets[place] : own.offsets[place + 1]]] for place in places]
    found = {"mined: from a positive's document": checks.also_in(documents[mined], sources)}
    if "bm25" in inputs:
        found["mined: BM25 lists them too"] = checks.also_in(mined, np.load(inputs["bm25"] / "negatives.npy")[rows])
    answers = collection.queries("train")[rows]["answers"]
    if any(answers):
        found["mined: hold an answer"] = holds_answer(mined, collection.passages, answers)
    return {name: checks.share_marked(mined, marked) for name, marked in found.items()}


def training_mrr(ranking: Ranking, collection: Collection, rows: np.ndarray) -> np.ndarray:
    """MRR@10 `[queries]` of a ranking of all training queries for some of them: how well a retriever knows them."""
    ids = [ranking.query_ids[row] for row in rows]
    judged = collection.qrels("train")
    part = Ranking(ids, np.asarray(ranking.rows[rows]), np.asarray(ranking.scores[rows]))
    scores = evaluate(part, {query: judged[query] for query in ids}, collection.passages["id"], ["MRR@10"])
    return scores.per_query("MRR@10")
