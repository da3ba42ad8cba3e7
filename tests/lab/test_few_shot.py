"""A share of the training queries: nested draws, what re-runs, what stays; and sweeps of recipes."""

from itertools import pairwise

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.lab import Recipe, few_shot_sweep, hard_negative_sweep
from dr_lib.lab.builds import examples, nested_share
from dr_lib.lab.opening import open_sample
from dr_lib.lab.way import unfold


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))


def test_smaller_shares_lie_inside_larger_ones_and_come_from_everywhere():
    rows = np.arange(100, 1100)
    drawn = [set(nested_share(rows, share, seed=3).tolist()) for share in (0.05, 0.1, 0.2, 0.5)]
    assert [len(one) for one in drawn] == [50, 100, 200, 500]
    assert all(smaller < larger for smaller, larger in pairwise(drawn))
    assert abs(np.mean(list(drawn[0])) - rows.mean()) < 4 * rows.std() / np.sqrt(50)


def test_the_draw_depends_on_its_seed_alone():
    rows = np.arange(1000)
    assert np.array_equal(nested_share(rows, 0.1, seed=0), nested_share(rows, 0.1, seed=0))
    assert not np.array_equal(nested_share(rows, 0.1, seed=0), nested_share(rows, 0.1, seed=1))
    assert len(nested_share(rows[:3], 0.05, seed=0)) == 1


def test_examples_of_a_few_shot_recipe_are_some_of_all(tiny_recipe):
    collection = open_sample(tiny_recipe.collection)
    whole, few = (examples(collection, {}, recipe) for recipe in (tiny_recipe, tiny_recipe.with_(few_shot=0.5)))
    assert (len(whole), len(few)) == (12, 6)
    assert set(few.query_rows.tolist()) < set(whole.query_rows.tolist())
    places = np.searchsorted(whole.query_rows, few.query_rows)
    assert np.array_equal(whole.positives_of(places)[0], few.positives)


def test_few_labels_change_the_retriever_and_nothing_before_it(tiny_recipe):
    whole, few = (unfold(recipe) for recipe in (tiny_recipe, tiny_recipe.with_(few_shot=0.5)))
    assert few.pretrained.key == whole.pretrained.key
    assert few.negatives.key == whole.negatives.key
    assert few.retriever.key != whole.retriever.key
    other = unfold(tiny_recipe.with_(few_shot=0.5, seed=1))
    assert other.retriever.params["draw"] == few.retriever.params["draw"] == 0


def test_the_re_ranker_learns_from_the_same_few_labels(tiny_recipe):
    recipe = tiny_recipe.with_(final="distilled", makers__cross_encoder={"batch_queries": 4, "length": 48})
    whole, few = (unfold(one).retriever.inputs["teacher"] for one in (recipe, recipe.with_(few_shot=0.5)))
    assert few.inputs["scorer"].params["few_shot"] == 0.5
    assert "few_shot" not in whole.inputs["scorer"].params


@pytest.mark.parametrize("name", ["paq", "pair", "master"])
def test_what_pre_training_is_made_from_is_not_cut(tiny_recipe, name):
    cross_encoder = {"batch_queries": 4, "length": 48}
    recipe = tiny_recipe.with_(objective=name, makers__cross_encoder=cross_encoder)
    assert unfold(recipe).pretrained.key == unfold(recipe.with_(few_shot=0.5)).pretrained.key


def test_too_few_labels_for_a_batch_are_refused_before_anything_runs(tiny_recipe):
    with pytest.raises(InputError, match="batch_queries"):
        unfold(tiny_recipe.with_(few_shot=0.1))


@pytest.mark.parametrize("share", [0, 1.5])
def test_shares_lie_between_0_and_1(share):
    with pytest.raises(InputError, match="few_shot"):
        Recipe(few_shot=share)


def test_a_key_that_is_not_used_leaves_the_digest_as_it_was():
    assert "few_shot" not in Recipe().portable()
    assert Recipe(few_shot=0.5).portable()["few_shot"] == 0.5
    assert Recipe(few_shot=0.5).digest != Recipe().digest
    assert Recipe(**Recipe().portable()) == Recipe()


def test_the_whole_set_of_a_few_shot_sweep_is_the_plain_recipe():
    sweep = few_shot_sweep(Recipe(), [0.025, 0.1, 1.0])
    assert [(label, one.few_shot) for label, one in sweep.items()] == [("2.500%", 0.025), ("10%", 0.1), ("100%", None)]


def test_hard_negatives_grow_at_an_equal_total():
    start = Recipe(finetuning={"steps": 32, "batch_queries": 64, "negatives": 31})
    for hold in ("epochs", "steps"):
        sweep = hard_negative_sweep(start, [1, 7, 31, 63], hold=hold)
        options = [one.finetuning for one in sweep.values()]
        assert {one.batch_queries * (one.negatives + 1) for one in options} == {2048}
        assert {one.blocks for one in options} == {"query_passage"}
        queries = [one.steps * one.batch_queries for one in options]
        assert len(set(queries if hold == "epochs" else [one.steps for one in options])) == 1


@pytest.mark.parametrize("number", [2, 127, 5000])
def test_a_number_of_hard_negatives_that_does_not_fit_is_refused(number):
    with pytest.raises(InputError, match="one less than a divisor"):
        hard_negative_sweep(Recipe(finetuning={"batch_queries": 64, "negatives": 1}), [number])
