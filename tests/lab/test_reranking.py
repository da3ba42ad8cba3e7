"""The cross-encoder's stages on forty passages: trained, re-ranking, teaching, and what their keys depend on."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dr_lib.errors import InputError
from dr_lib.evaluation import Scores
from dr_lib.lab import reranking, stages
from dr_lib.lab.builds import examples
from dr_lib.lab.way import open_means, unfold
from dr_lib.models import CrossEncoder
from dr_lib.retrieval import Ranking
from dr_lib.training import Examples, TeacherScores


@pytest.fixture
def recipe(tiny_recipe):
    maker = {"steps": 2, "batch_queries": 4, "negatives": 3, "length": 40, "precision": "fp32", "learning_rate": 1e-3}
    return tiny_recipe.with_(objective="none", **{f"makers__cross_encoder__{name}": one for name, one in maker.items()})


@pytest.fixture
def means(recipe):
    return open_means(recipe)


def scorer_of(means, negatives, **options):
    return reranking.cross_encoder(means, negatives, means.first_retriever, **options)


def test_a_run_is_re_ranked_and_evaluated_like_any_other(recipe, means, cache):
    way, options = unfold(recipe), recipe.evaluation
    scorer = scorer_of(means, means.negatives)
    again = reranking.reranked(means, scorer, way.run, options.split, 5)
    old, new = (Ranking.open(cache.get(stage) / "ranking") for stage in (way.run, again))
    assert new.query_ids == old.query_ids and new.depth == old.depth
    assert (np.sort(new.rows[:, :5]) == np.sort(old.rows[:, :5])).all()
    assert (new.rows[:, 5:] == old.rows[:, 5:]).all()
    evaluation = stages.evaluation(means.collection, options.split, options.measures, again)
    assert 0 <= Scores.load(cache.get(evaluation) / "scores.json").mean("MRR@10") <= 1
    assert CrossEncoder.from_pretrained(cache.get(scorer) / "model").settings.length == 40


def test_a_teacher_scores_the_examples_that_the_retriever_learns_from(means, cache):
    scorer = scorer_of(means, means.negatives)
    stage = reranking.teacher_scores(means, scorer, means.negatives)
    teacher = TeacherScores.open(cache.get(stage))
    listed = examples(means.collection, {"negatives": cache.get(means.negatives)})
    assert teacher.positives.shape == listed.positives.shape and teacher.negatives.shape == listed.negatives.shape
    assert np.isfinite(teacher.positives).all() and (np.isnan(teacher.negatives) == (listed.negatives < 0)).all()
    known = teacher.of(listed, np.array([0]), listed.positives[None, :1])
    assert known[0, 0] == teacher.positives[0]


def test_the_key_of_a_cross_encoder_is_made_of_what_can_change_it(recipe, means):
    key = scorer_of(means, means.negatives).key
    assert scorer_of(open_means(recipe.with_(finetuning__temperature=0.5)), means.negatives).key == key
    assert scorer_of(open_means(recipe.with_(seed=4)), means.negatives, seed=0).key == key
    others = [
        scorer_of(means, None),
        scorer_of(means, means.negatives, loss="pointwise"),
        scorer_of(means, means.negatives, seed=1),
        scorer_of(open_means(recipe.with_(makers__cross_encoder__r_drop=True)), means.negatives),
        scorer_of(open_means(recipe.with_(makers__cross_encoder__negatives=2)), means.negatives),
    ]
    assert len({stage.key for stage in others} | {key}) == 6


def test_another_reader_has_tokens_of_its_own_only_where_its_tokenizer_differs(recipe, means):
    own = open_means(recipe.with_(makers__cross_encoder__model="embedded"))
    assert reranking.tokens(own, "train")["passages"].key != means.passages.key
    assert reranking.tokens(means, "train")["passages"].key == means.passages.key
    assert reranking.tokens(means, "train")["queries"].key == means.train_queries.key


def test_too_few_queries_are_refused_before_anything_runs(recipe):
    means = open_means(recipe.with_(makers__cross_encoder__batch_queries=100))
    with pytest.raises(InputError, match=r"makers\.cross_encoder\.batch_queries: 12 training queries"):
        scorer_of(means, means.negatives)


def test_pairs_that_the_model_cannot_read_are_refused_before_anything_runs(recipe):
    means = open_means(recipe.with_(makers__cross_encoder__length=65))
    with pytest.raises(InputError, match=r"makers\.cross_encoder\.length: sequences of 65 pieces, but base reads 64"):
        scorer_of(means, means.negatives)


def test_it_may_start_from_the_retriever(recipe, cache):
    hardly = recipe.with_(makers__cross_encoder__start="retriever", makers__cross_encoder__learning_rate=1e-9)
    means = open_means(hardly)
    stage = scorer_of(means, means.negatives)
    assert stage.key != scorer_of(open_means(hardly.with_(makers__cross_encoder__start=None)), means.negatives).key
    assert stage.inputs["start"].key == means.first_retriever.key
    trained = load_file(cache.get(stage) / "model" / "model.safetensors")
    retriever = load_file(cache.get(means.first_retriever) / "model" / "model.safetensors")
    shared = [name for name in retriever if f"bert.{name}" in trained]
    assert len(shared) > 30
    for name in shared:
        torch.testing.assert_close(trained[f"bert.{name}"], retriever[name], rtol=0, atol=1e-7)


def test_it_may_start_from_a_model_that_has_learnt_to_find_words(recipe, cache):
    spans = {"makers__cross_encoder__start": "spans", "makers__cross_encoder__span_steps": 5}
    hardly = recipe.with_(**spans, makers__cross_encoder__learning_rate=1e-9)
    stage = scorer_of(open_means(hardly), None)
    learnt = stage.inputs["start"]
    assert {name: one.kind for name, one in learnt.inputs.items() if name != "base"} == {
        "passages": "tokens",
        "queries": "span_queries",
    }  # no label
    trained, before = (load_file(cache.get(one) / "model" / "model.safetensors") for one in (stage, learnt))
    assert trained.keys() == before.keys()  # the head too is learnt
    for name, weight in before.items():
        torch.testing.assert_close(trained[name], weight, rtol=0, atol=1e-7)
    examples = Examples.open(cache.get(learnt.inputs["queries"]) / "examples")
    assert len(examples) == 5 * hardly.makers.cross_encoder.batch_queries
    more = open_means(hardly.with_(makers__cross_encoder__span_steps=6))
    assert scorer_of(more, None).key != stage.key
    assert scorer_of(open_means(hardly.with_(seed=3)), None).inputs["start"].key == learnt.key
    assert json.loads((cache.folder(learnt) / "log.json").read_text())["steps"] == 5


def test_one_word_says_where_it_starts(recipe):
    with pytest.raises(InputError, match="needs span_steps"):
        recipe.with_(makers__cross_encoder__start="spans")
    spans = recipe.with_(makers__cross_encoder__start="spans", makers__cross_encoder__span_steps=5)
    for other in ("retriever", None):
        means = [open_means(one.with_(makers__cross_encoder__start=other)) for one in (spans, recipe)]
        assert len({scorer_of(one, means[0].negatives).key for one in means}) == 1


def test_it_starts_from_one_model_only(recipe):
    with pytest.raises(InputError, match="either model or start"):
        recipe.with_(makers__cross_encoder__start="retriever", makers__cross_encoder__model="embedded")
