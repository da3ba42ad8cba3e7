"""Re-rankers and teachers besides the cross-encoder: late interaction, a weighted sum, and BM25 as
a control.
"""

import json

import numpy as np
import pytest

from dr_book import export, search
from dr_lib import lab
from dr_lib.errors import InputError
from dr_lib.lab import pipeline
from dr_lib.lab.trainings import dense_run
from dr_lib.models import LateInteraction, new_bert, save_masked_lm
from dr_lib.retrieval import Bm25, Ranking
from dr_lib.stages import Cache
from dr_lib.tokens import train_wordpiece


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return Cache(tmp_path_factory.mktemp("cache"))


def test_one_late_interaction_model_serves_all_methods(tiny_recipe):
    keys = {
        pipeline(
            tiny_recipe.with_(objective=name, final="reranker", reranking__by="late_interaction")
        ).reranker.key
        for name in ("none", "mlm", "simlm")
    }
    assert len(keys) == 1


def test_late_interaction_reads_the_tokens_of_the_base_whatever_a_cross_encoder_would_read(
    tiny_recipe, tmp_path
):
    other = train_wordpiece(lab.open_sample(tiny_recipe.collection).passages["text"], 120)
    save_masked_lm(
        new_bert(len(other), layers=1, hidden=32, max_positions=64), other, tmp_path / "reader"
    )
    model = {"auxiliary__cross_encoder__model": str(tmp_path / "reader")}
    for final in ("reranker", "distilled"):
        late = tiny_recipe.with_(final=final, reranking__by="late_interaction")
        assert pipeline(late.with_(**model)).end.key == pipeline(late).end.key
        crossed = pipeline(tiny_recipe.with_(final=final, **model))
        scored = crossed.run if final == "reranker" else crossed.teacher_scores
        assert scored.arguments["queries"].arguments["tokenizer"] == crossed.inputs.reader.tokenizer


UNREAD = [
    {"normalise": False},
    {"chunk": 4},
    {"validation": {"every": 2}},
    {"pseudo_labels": True},
    {"projection": True},
]


@pytest.mark.parametrize("change", [*UNREAD, {"shared": False}], ids=str)
def test_late_interaction_refuses_settings_that_it_does_not_read(tiny_recipe, change):
    changes = {f"finetuning__{name}": value for name, value in change.items()}
    plain = tiny_recipe.with_(**changes, reranking__by="late_interaction")  # trains none
    for final in ("reranker", "distilled"):
        with pytest.raises(InputError, match=f"late interaction .* without {next(iter(change))}"):
            plain.with_(final=final)
        assert plain.with_(final=final, reranking__by=None)


def test_late_interaction_re_ranks_and_leaves_a_record_with_its_training(tiny_recipe, cache):
    recipe = tiny_recipe.with_(objective="none", final="reranker", reranking__by="late_interaction")
    record = lab.execute(lab.Run("own", "late", "smoke", recipe), cache)
    assert record.training["late_interaction"]["steps"] == recipe.finetuning.steps
    model = lab.models_of(record, cache)["re-ranker"]
    assert LateInteraction.from_pretrained(model).settings.passage_length == recipe.passage_length
    plan = pipeline(recipe)
    before = Ranking.open(
        cache.get(dense_run(plan.inputs, plan.retriever2, "test", recipe.evaluation.depth))
        / "ranking"
    )
    after = Ranking.open(cache.get(plan.run) / "ranking")
    for old, new in zip(before.rows, after.rows, strict=True):
        assert set(old[: recipe.reranking.depth]) == set(new[: recipe.reranking.depth])
        assert old[recipe.reranking.depth :].tolist() == new[recipe.reranking.depth :].tolist()


def test_a_late_interaction_model_re_ranks_a_search_and_is_not_exported_as_what_it_is_not(
    tiny_recipe, cache, tmp_path
):
    recipe = tiny_recipe.with_(objective="none", final="reranker", reranking__by="late_interaction")
    folder = cache.get(pipeline(recipe).reranker) / "model"
    with pytest.raises(
        InputError, match="late-interaction model, which sentence-transformers cannot open"
    ):
        export.export(folder, tmp_path / "out")
    collection = lab.open_sample(recipe.collection)
    searcher = search.open_searcher(collection, reranker=folder, cache=cache)
    asked = collection.queries("test")[0]["text"]
    plain, better = (
        [hit.id for hit in hits] for hits in searcher.search([asked], 40)[0].hits.values()
    )
    assert set(plain) == set(better)


def test_a_weighted_sum_is_no_worse_than_the_retriever_where_its_weight_was_chosen(
    tiny_recipe, cache
):
    recipe = tiny_recipe.with_(
        objective="none",
        final="reranker",
        reranking__by="late_interaction",
        reranking__weighted=True,
    )
    chosen = json.loads((cache.get(pipeline(recipe).run) / "fusion.json").read_text())
    assert (
        chosen["scored"][str(chosen["weight"])]
        == max(chosen["scored"].values())
        >= chosen["scored"]["0.0"]
    )


def test_what_a_re_ranker_has_not_scored_is_not_weighed_against_bm25(tiny_recipe):
    """Below the scored passages, ranks replace scores: with nine hundred of them, all logits would
    be scaled to about 1.
    """
    recipe = tiny_recipe.with_(final="reranker", reranking__by="late_interaction")
    by = {
        way: pipeline(recipe.with_(evaluation__fusion=way)).run.arguments
        for way in ("rank", "weight")
    }
    assert [by["rank"]["runs"][1].arguments["rest"], *by["rank"]["tuning"]] == [True]
    assert [by["weight"][name][1].arguments["rest"] for name in ("runs", "tuning")] == [
        False,
        False,
    ]


def test_bm25_teaches_with_its_own_scores(tiny_recipe, cache):
    recipe = tiny_recipe.with_(objective="none", final="distilled", reranking__by="bm25")
    plan = pipeline(recipe)
    folder, index = (
        cache.get(plan.teacher_scores),
        Bm25.open(cache.get(plan.inputs.bm25_index()) / "index"),
    )
    negatives = np.load(cache.get(plan.teacher_negatives) / "negatives.npy")
    scores, asked = (
        np.load(folder / "negatives.npy"),
        plan.inputs.collection.queries("train")["text"][:],
    )
    whole = index.search(asked, k=len(plan.inputs.collection.passages))
    found = [
        dict(zip(rows, points, strict=True))
        for rows, points in zip(whole.rows, whole.scores, strict=True)
    ]
    for query, (rows, own) in enumerate(zip(negatives, scores, strict=True)):
        for row, score in zip(rows, own, strict=True):
            assert (
                np.isnan(score)
                if row < 0
                else score == pytest.approx(found[query].get(row, 0), rel=1e-5)
            )
    record = lab.execute(lab.Run("own", "taught", "smoke", recipe), cache)
    assert "cross_encoder" not in record.keys and record.means


def test_a_weight_is_not_chosen_by_the_queries_that_are_reported(tiny_recipe):
    recipe = tiny_recipe.with_(final="reranker", reranking__weighted=True, evaluation__split="dev")
    with pytest.raises(
        InputError,
        match=r"reranking\.weighted: its weight would be chosen by queries of the split 'dev'",
    ):
        pipeline(recipe)


def test_bm25_is_no_re_ranker(tiny_recipe):
    with pytest.raises(InputError, match="BM25 teaches"):
        tiny_recipe.with_(final="reranker", reranking__by="bm25")
