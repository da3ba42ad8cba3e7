"""One retriever over several collections: what is trained, what is shared, and what the records tell."""

import shutil

import numpy as np
import pytest

from dr_lib import lab
from dr_lib.errors import InputError
from dr_lib.evaluation import evaluate
from dr_lib.lab.job import Job, run_job
from dr_lib.lab.records import load_records
from dr_lib.lab.way import unfold
from dr_lib.retrieval import Ranking


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))


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
    return {"scale": "smoke", "cache": cache, "records": tmp_path / "records", "progress": False, "depth": 10}


def test_every_collection_gets_a_record_of_every_retriever_and_of_bm25(recipe, other, tmp_path, options, cache):
    recipes = {"first": recipe, "second": recipe.with_(finetuning__temperature=0.05)}
    found = lab.zero_shot(recipes, [tmp_path / "tiny", other], **options)
    runs = found.runs()
    assert {name: set(labels) for name, labels in runs.items()} == {
        name: {"BM25", "first", "second"} for name in ("tiny", "other")
    }
    built = [name.rsplit("-", 1)[0] for name in cache.built]
    assert built.count("retriever") == 2  # trained once, for all collections
    assert built.count("vectors") == 4
    (record,) = runs["other"]["first"]
    assert record.data["collection"]["name"] == "other"
    assert record.data["collection"]["passages"] == 31
    assert record.data["trained_on"]["name"] == "tiny"
    assert set(record.means) == {"nDCG@10", "R@100"}
    assert str(tmp_path) not in record.model_dump_json()
    assert "retriever" not in runs["other"]["BM25"][0].keys


def test_scores_are_those_of_the_ranking_over_the_other_collection(recipe, other, cache):
    spec = {"name": str(other), "allow_duplicates": True}
    way = unfold(recipe.with_(evaluation__on=spec, evaluation__measures=["nDCG@10"]))
    record = run_job(Job("t", "row", "smoke", way.recipe), cache)
    ranking = Ranking.open(cache.get(way.run) / "ranking")
    again = evaluate(ranking, way.searched.qrels("test"), way.searched.passages["id"], ("nDCG@10",))
    assert np.array_equal(record.per_query("nDCG@10"), again.per_query("nDCG@10"))
    assert np.asarray(ranking.rows).max() < 31


def test_its_own_collection_gives_the_very_stages_of_a_plain_run(tiny_recipe, tmp_path):
    plain, there = unfold(tiny_recipe), unfold(tiny_recipe.with_(evaluation__on=str(tmp_path / "tiny")))
    assert there.evaluation.key == plain.evaluation.key


def test_a_later_stage_can_be_sent_elsewhere_too(tiny_recipe, other):
    makers = {"batch_queries": 4, "length": 48}
    recipe = tiny_recipe.with_(final="reranker", makers__cross_encoder=makers, mining__depth=5)
    spec = {"name": str(other), "allow_duplicates": True}
    here, there = unfold(recipe), unfold(recipe.with_(evaluation__on=spec))
    assert there.run.inputs["scorer"].key == here.run.inputs["scorer"].key
    assert there.run.inputs["passages"].key == there.passages.key != here.passages.key


def test_what_was_measured_is_not_measured_again(recipe, other, options, cache):
    first = lab.zero_shot(recipe, [other], **options)
    built = len(cache.built)
    assert lab.zero_shot(recipe, [other], **options).runs() == first.runs()
    assert len(cache.built) == built
    assert list(first.runs()["other"]) == ["BM25", "none"]


def test_a_sample_goes_under_a_name_of_its_own(recipe, tmp_path, options):
    collections = {"all": tmp_path / "tiny", "few": {"name": str(tmp_path / "tiny"), "passages": 30}}
    runs = lab.zero_shot(recipe, collections, bm25=False, **options).runs()
    assert [runs[name]["none"][0].data["collection"]["passages"] for name in ("all", "few")] == [40, 30]


def test_the_only_split_of_a_collection_is_taken(recipe, other, options):
    shutil.move(other / "qrels" / "test.tsv", other / "qrels" / "judged.tsv")
    (record,) = lab.zero_shot(recipe, [other], bm25=False, **options).runs()["other"]["none"]
    assert record.recipe["evaluation"]["split"] == "judged"


def test_a_collection_that_cannot_be_opened_stops_all_before_anything_runs(recipe, other, options, cache):
    with pytest.raises(InputError, match="nowhere"):
        lab.zero_shot(recipe, [other, "/nowhere/at/all"], **options)
    assert cache.built == []


@pytest.mark.parametrize("collections", [[], "scifact"])
def test_a_list_of_collections_is_expected(recipe, collections, options):
    with pytest.raises(InputError):
        lab.zero_shot(recipe, collections, **options)


def test_without_time_everything_is_pending(recipe, other, options, tmp_path):
    found = lab.zero_shot(recipe, [other], minutes=0, **options)
    assert [(name, label) for name, label, _ in found.pending] == [("other", "BM25"), ("other", "none")]
    assert load_records(tmp_path / "records") == []
