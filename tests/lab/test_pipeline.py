"""The stages after the first retriever: what each is made from, and that they run on forty passages."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores
from dr_lib.lab.builds import build_negatives
from dr_lib.lab.job import Job, run_job
from dr_lib.lab.pipeline_builds import build_mined, joined_lists
from dr_lib.lab.records import load_record
from dr_lib.lab.stage_checks import mined_values, unfold_checks
from dr_lib.lab.way import unfold, unfold_bm25
from dr_lib.retrieval import Ranking


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe.with_(objective="mlm", mining__depth=5, mining__random_negatives=1)


def test_the_second_retriever_learns_from_what_the_first_one_found(recipe, cache):
    first, second = unfold(recipe), unfold(recipe.with_(final="retriever2"))
    assert second.negatives.kind == "mined"
    ranking = second.negatives.inputs["ranking"]
    assert ranking.inputs["retriever"].key == first.retriever.key
    assert second.retriever.inputs["pretrained"].key == first.pretrained.key
    assert second.retriever.key != first.retriever.key
    scores = Scores.load(cache.get(second.evaluation) / "scores.json")
    assert 0 <= scores.mean("MRR@10") <= 1


def test_a_pipeline_that_ends_before_fine_tuning_has_the_pre_trained_weights(recipe, cache):
    way = unfold(recipe.with_(final="pretrained"))
    trained, used = (cache.get(stage) / "model" / "model.safetensors" for stage in (way.pretrained, way.retriever))
    before, after = load_file(trained), load_file(used)
    name = "encoder.layer.0.attention.self.query.weight"
    assert torch.equal(before[f"bert.{name}"], after[name])
    record = run_job(Job("t", "untuned", "smoke", way.recipe), cache)
    assert list(record.training) == ["pretrained"]


def test_mined_negatives_hold_no_positive_and_come_from_the_ranking(recipe, cache):
    way = unfold(recipe.with_(final="retriever2", mining__random_negatives=0))
    drawn = np.load(cache.get(way.negatives) / "negatives.npy")
    ranking = Ranking.open(cache.get(way.negatives.inputs["ranking"]) / "ranking")
    for query, (listed, found) in enumerate(zip(drawn, np.asarray(ranking.rows), strict=True)):
        assert query not in listed
        assert set(listed[listed >= 0]) <= set(found.tolist())


def test_another_round_mines_with_the_retriever_of_the_round_before(recipe):
    one, two = (unfold(recipe.with_(final="retriever2", mining__rounds=rounds)) for rounds in (1, 2))
    assert two.negatives.inputs["ranking"].inputs["retriever"].key == one.retriever.key


def test_the_second_retriever_can_have_settings_of_its_own(recipe):
    plain = recipe.with_(final="retriever2")
    other = plain.with_(second=plain.finetuning.model_dump() | {"learning_rate": 1e-5})
    assert unfold(plain).retriever.key != unfold(other).retriever.key
    assert unfold(plain).negatives.key == unfold(other).negatives.key


def test_bm25_negatives_can_be_put_behind_the_mined_ones(recipe, cache):
    way = unfold(recipe.with_(final="retriever2", mining__with_bm25=True))
    both = np.load(cache.get(way.negatives) / "negatives.npy")
    assert both.shape[1] == 6 + 6
    for listed in both:
        kept = listed[listed >= 0]
        assert len(set(kept.tolist())) == len(kept)


def test_joined_lists_keep_each_passage_once():
    joined = joined_lists(np.array([[4, 7], [1, -1]]), np.array([[7, 9], [2, 1]]))
    assert joined.tolist() == [[4, 7, -1, 9], [1, -1, 2, -1]]


@pytest.mark.parametrize("build", [build_mined, build_negatives])
def test_passages_that_hold_the_answer_can_be_dropped(tmp_path, build):
    import datasets

    texts = ["In Paris.", "In Rome.", "paris again", "Berlin"]
    columns = {"id": list("abcd"), "title": [""] * 4, "text": texts, "doc": [""] * 4, "position": [0] * 4}
    queries = datasets.Dataset.from_dict({"id": ["q"], "text": ["where"], "answers": [["Paris"]]})
    judged = datasets.Dataset.from_dict({"query": ["q"], "passage": ["a"], "grade": [1]})
    collection = Collection("t", "0" * 64, {}, datasets.Dataset.from_dict(columns), queries, {"train": judged})
    rows, scores = np.array([[2, 0, 1, 3]]), np.array([[4.0, 3.0, 2.0, 1.0]])
    (tmp_path / "in").mkdir()
    Ranking(["q"], rows, scores).save(tmp_path / "in" / "ranking")
    options, found = {"depth": 3, "random_negatives": 0, "seed": 0}, {}
    for answers in ("keep", "drop"):
        folder = tmp_path / answers
        folder.mkdir()
        told = {"options": options, "answers": answers}
        if build is build_negatives:
            told = {"options": options | ({"answers": "drop"} if answers == "drop" else {}), "split": "train"}
        build(folder, {"ranking": tmp_path / "in"}, collection=collection, **told)
        found[answers] = set(np.load(folder / "negatives.npy")[0].tolist())
    assert found == {"keep": {1, 2, 3}, "drop": {1, 3, -1}}


def test_dropping_answers_is_a_choice_of_its_own_for_either_kind_of_negatives(recipe, tmp_path):
    asked = [json.loads(line) for line in (tmp_path / "tiny" / "queries.jsonl").read_text().splitlines()]
    (tmp_path / "tiny" / "queries.jsonl").write_text("".join(json.dumps(q | {"answers": ["x"]}) + "\n" for q in asked))
    second = recipe.with_(final="retriever2")
    plain, bm25, mined = (
        unfold(second.with_(**change)).negatives
        for change in ({}, {"negatives__answers": "drop"}, {"mining__answers": "drop"})
    )
    assert "answers" not in plain.inputs["ranking"].inputs["retriever"].inputs["negatives"].params
    assert len({plain.key, bm25.key, mined.key}) == 3
    assert plain.params == bm25.params != mined.params


@pytest.mark.parametrize(("part", "final"), [("negatives", "retriever1"), ("mining", "retriever2")])
def test_answers_cannot_be_dropped_where_there_are_none(recipe, part, final):
    with pytest.raises(InputError, match=f"{part}.answers: no training query has an answer"):
        unfold(recipe.with_(final=final, **{f"{part}__answers": "drop"}))


@pytest.fixture
def whole(recipe):
    makers = {"steps": 2, "batch_queries": 4, "negatives": 2, "length": 48, "precision": "fp32"}
    student = {"steps": 2, "batch_queries": 4, "negatives": 2, "precision": "fp32", "listed": 3}
    return recipe.with_(makers__cross_encoder=makers, distillation=student, reranking__depth=6)


def test_the_re_ranked_run_keeps_the_passages_of_the_second_retriever(whole, cache):
    second, reranked = unfold(whole.with_(final="retriever2")), unfold(whole.with_(final="reranker"))
    assert reranked.run.inputs["run"].key == second.run.key
    before, after = (Ranking.open(cache.get(way.run) / "ranking") for way in (second, reranked))
    first, moved = np.asarray(before.rows), np.asarray(after.rows)
    np.testing.assert_array_equal(np.sort(first[:, :6]), np.sort(moved[:, :6]))
    np.testing.assert_array_equal(first[:, 6:], moved[:, 6:])


def test_the_distilled_retriever_learns_from_the_re_rankers_scores(whole, cache):
    way = unfold(whole.with_(final="distilled"))
    teacher = way.retriever.inputs["teacher"]
    assert teacher.inputs["negatives"].key == way.retriever.inputs["negatives"].key == way.negatives.key
    assert way.retriever.inputs["pretrained"].key == unfold(whole).pretrained.key
    listed = np.load(cache.get(way.negatives) / "negatives.npy")
    scored = np.load(cache.get(teacher) / "negatives.npy")
    assert listed.shape == scored.shape == (12, 3)
    assert np.isfinite(scored[listed >= 0]).all()
    assert (cache.get(way.retriever) / "model" / "model.safetensors").is_file()
    assert 0 <= Scores.load(cache.get(way.evaluation) / "scores.json").mean("MRR@10") <= 1


def test_an_unknown_end_is_refused_with_the_list(recipe):
    with pytest.raises(InputError, match="retriever1"):
        recipe.with_(final="retriever3")


def test_the_checks_of_a_pipeline_leave_a_record_like_a_run(whole, cache, tmp_path):
    job = Job("t", "distilled", "smoke", whole.with_(final="distilled"))
    record = run_job(job, cache, unfold_checks)
    found = load_record(record.save(tmp_path / "records"))
    assert len(found.query_ids) == 12
    assert found.keys["evaluation"] == unfold_checks(job.recipe).evaluation.key
    assert {"retriever 1: MRR@10", "mined: BM25 lists them too", "lists: teacher puts a positive first"} <= {
        *found.means
    }
    assert "mined: hold an answer" not in found.means  # these queries have none
    assert all(0 <= mean <= 1 for mean in found.means.values())


def test_mined_negatives_are_compared_with_documents_bm25_and_answers(tmp_path):
    import datasets

    columns = {"id": list("abcd"), "title": [""] * 4, "text": ["In Rome.", "Paris", "paris again", "Berlin"]}
    passages = datasets.Dataset.from_dict({**columns, "doc": ["x", "y", "x", ""], "position": [0, 0, 1, 0]})
    queries = datasets.Dataset.from_dict({"id": ["p", "q"], "text": ["?", "where"], "answers": [[], ["Paris"]]})
    judged = datasets.Dataset.from_dict({"query": ["p", "q"], "passage": ["d", "a"], "grade": [1, 1]})
    collection = Collection("t", "0" * 64, {}, passages, queries, {"train": judged})
    for name, lists in (("mined", [[0, 1], [2, 3]]), ("bm25", [[1, 2], [3, -1]])):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "negatives.npy", np.array(lists))
    found = mined_values({name: tmp_path / name for name in ("mined", "bm25")}, collection, np.array([1]))
    assert {name: values.tolist() for name, values in found.items()} == {
        "mined: from a positive's document": [0.5], "mined: BM25 lists them too": [0.5], "mined: hold an answer": [0.5]
    }  # fmt: skip


def test_only_a_distilled_pipeline_can_be_checked(whole):
    with pytest.raises(InputError, match="no teacher"):
        unfold_checks(whole)


def test_bm25_leaves_a_record_of_its_own(recipe, cache):
    record = run_job(Job("t", "BM25", "smoke", recipe.with_(objective="none")), cache, unfold_bm25)
    assert record.keys["evaluation"] == unfold_bm25(recipe).evaluation.key
    assert not record.training and record.means["MRR@10"] > 0.6
