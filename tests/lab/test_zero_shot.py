"""One retriever on several collections: what is trained, what is shared, and what the records
contain.
"""

import shutil

import numpy as np
import pytest

from dr_lib import lab
from dr_lib.errors import InputError
from dr_lib.evaluation import evaluate
from dr_lib.lab import pipeline
from dr_lib.lab.trainings import vectors
from dr_lib.retrieval import Ranking


@pytest.fixture
def other(tmp_path, beir_folder):
    """A collection with test queries only, in which a passage occurs twice."""
    folder = tmp_path / "other"
    beir_folder(folder, passages=30, queries=12)
    for split in ("train", "dev"):
        (folder / "qrels" / f"{split}.tsv").unlink()
    lines = (folder / "corpus.jsonl").read_text().splitlines(keepends=True)
    (folder / "corpus.jsonl").write_text("".join([*lines, lines[20].replace("p20", "twin")]))
    return folder


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe.with_(objective="none")


@pytest.fixture
def options(cache, tmp_path):
    return {"scale": "smoke", "cache": cache, "records": tmp_path / "records", "depth": 100}


def sent_to(recipe, place):
    return recipe.with_(evaluation__on={"name": str(place), "allow_duplicates": True})


def test_every_collection_gets_a_record_of_every_retriever_and_of_bm25(
    recipe, other, tmp_path, options, cache
):
    own = recipe.collection.name
    recipes = {"first": recipe, "second": recipe.with_(finetuning__temperature=0.05)}
    runs = lab.zero_shot(recipes, [own, other], **options).by_collection()
    labels = {"BM25", "first", "second"}
    assert {name: set(found) for name, found in runs.items()} == {"tiny": labels, "other": labels}
    built = [name.rsplit("-", 1)[0] for name in cache.built]
    assert built.count("retriever") == 2  # trained once, for all collections
    assert built.count("vectors") == 4
    (record,) = runs["other"]["first"]
    assert (record.data["collection"]["name"], record.data["collection"]["passages"]) == (
        "other",
        31,
    )
    assert record.data["trained_on"]["name"] == "tiny"
    assert set(record.means) == {"nDCG@10", "R@100"}
    assert str(tmp_path) not in record.model_dump_json() and own not in record.model_dump_json()
    assert "retriever" not in runs["other"]["BM25"][0].keys
    built = len(cache.built)
    again = lab.zero_shot(recipes, [own, other], **options)
    assert again.by_collection() == runs and len(cache.built) == built


def test_bm25_is_the_same_run_whatever_is_compared_with_it(recipe, other, options, shared):
    compared = recipe.with_(objective="mlm", pretraining__steps=1, final="pretrained")
    runs = lab.zero_shot({"mlm": compared}, [other], **options | {"cache": shared}).by_collection()
    none = lab.zero_shot(
        {"none": compared.with_(objective="none")}, [other], **options | {"cache": shared}
    ).by_collection()
    assert runs["other"]["BM25"] == none["other"]["BM25"]


def test_scores_are_those_of_the_ranking_over_the_other_collection(recipe, other, shared):
    plan = pipeline(sent_to(recipe, other).with_(evaluation__measures=["nDCG@10"]))
    record = lab.execute(lab.Run("t", "row", "smoke", plan.inputs.recipe), shared)
    ranking = Ranking.open(shared.get(plan.run) / "ranking")
    there = plan.inputs.searched
    again = evaluate(ranking, there.qrels("test"), there.passages["id"], ("nDCG@10",))
    assert np.array_equal(record.per_query("nDCG@10"), again.per_query("nDCG@10"))
    assert np.asarray(ranking.rows).max() < 31


def test_another_collection_shares_the_retriever(tiny_recipe, other):
    here, there = pipeline(tiny_recipe), pipeline(sent_to(tiny_recipe, other))
    assert there.retriever.key == here.retriever.key and there.end.key != here.end.key


def test_its_own_collection_gives_the_very_stages_of_a_plain_run(tiny_recipe):
    plain, there = (
        pipeline(tiny_recipe),
        pipeline(tiny_recipe.with_(evaluation__on=tiny_recipe.collection.name)),
    )
    assert there.end.key == plain.end.key


def test_a_re_ranker_can_be_sent_elsewhere_too(tiny_recipe, other):
    recipe = tiny_recipe.with_(final="reranker")
    here, there = pipeline(recipe), pipeline(sent_to(recipe, other))
    assert there.run.arguments["scorer"].key == here.run.arguments["scorer"].key
    passages = there.run.arguments["passages"].key
    assert passages == there.inputs.passages(there.inputs.searched).key
    assert passages != here.inputs.passages().key
    assert there.run.cost == here.run.cost / 2 > 0  # three queries in place of six


def test_similarities_can_be_measured_elsewhere_too(recipe, other):
    plan = pipeline(sent_to(recipe, other).with_(evaluation__kind="similarity"))
    assert [one.key for one in plan.end.arguments["vectors"]] == [
        one.key for one in vectors(plan.inputs, plan.retriever, plan.inputs.searched)
    ]


def test_a_sample_goes_under_a_name_of_its_own(recipe, options, shared):
    collections = {
        "all": recipe.collection.name,
        "few": {"name": recipe.collection.name, "passages": 30},
    }
    runs = lab.zero_shot(
        recipe, collections, bm25=False, **options | {"cache": shared}
    ).by_collection()
    assert list(runs["all"]) == ["none"]  # one recipe is called by its method's name
    assert [runs[name]["none"][0].data["collection"]["passages"] for name in ("all", "few")] == [
        40,
        30,
    ]


def test_the_only_split_of_a_collection_is_taken(recipe, other, options, shared):
    shutil.move(other / "qrels" / "test.tsv", other / "qrels" / "judged.tsv")
    found = lab.zero_shot(
        recipe, [other], bm25=False, grades={"other": 1}, **options | {"cache": shared}
    )
    (record,) = found.by_collection()["other"]["none"]
    assert record.recipe["evaluation"]["split"] == "judged"


def test_grades_are_counted_from_where_a_collection_says(recipe, other, options, shared):
    runs = lab.zero_shot(
        recipe, [other], grades={"other": 2}, **options | {"cache": shared}
    ).by_collection()
    (record,) = runs["other"]["BM25"]
    # all judgements are of grade 1; nDCG keeps them
    assert record.means["R@100"] == 0 < record.means["nDCG@10"]


def test_a_collection_that_cannot_be_opened_stops_all_before_anything_runs(
    recipe, other, options, cache
):
    with pytest.raises(InputError, match="nowhere"):
        lab.zero_shot(recipe, [other, "/nowhere/at/all"], **options)
    assert cache.built == []


@pytest.mark.parametrize("collections", [[], "scifact"])
def test_a_list_of_collections_is_expected(recipe, collections, options):
    with pytest.raises(InputError):
        lab.zero_shot(recipe, collections, **options)


def test_without_time_everything_is_pending(recipe, other, options, tmp_path):
    """BM25 once, with the first seed; each collection with its own grade."""
    there, again = [recipe.collection.name, other], options | {"minutes": 0, "seeds": (3, 4)}
    found = lab.zero_shot(recipe, there, grades={"other": 2}, **again)
    assert [
        (run.searched, run.recipe.evaluation.grade, run.label, run.recipe.seed)
        for run in found.pending
    ] == [
        (place, grade, label, seed)
        for place, grade in (("tiny", 1), ("other", 2))
        for label, seed in (("BM25", 3), ("none", 3), ("none", 4))
    ]
    assert lab.load_records(tmp_path / "records") == []
