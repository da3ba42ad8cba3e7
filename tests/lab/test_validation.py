"""Validation as a key of a recipe: nothing changes without it, and no number is reported on the queries it chose by."""

import json

import numpy as np
import pytest
from safetensors.torch import load_file

from dr_lib.errors import InputError
from dr_lib.lab.builds import validation_of
from dr_lib.lab.opening import open_sample
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.way import unfold

LOOKS = {"every": 2, "queries": 5, "per_query": 3}


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe.with_(objective="none", finetuning__steps=6, finetuning__validation=LOOKS)


def test_without_the_key_nothing_is_looked_at_and_no_digest_changes(tiny_recipe):
    assert tiny_recipe.finetuning.validation is None
    assert "validation" not in tiny_recipe.finetuning.identity()
    assert "validation" not in tiny_recipe.portable()["finetuning"]
    assert set(unfold(tiny_recipe).retriever.inputs) == {"passages", "queries", "pretrained", "negatives"}


def test_the_looks_are_logged_and_the_best_of_them_is_kept(recipe, cache, monkeypatch):
    scores = iter([0.1, 0.9, 0.2])
    monkeypatch.setattr("dr_lib.lab.builds.PoolValidation.__call__", lambda *_: {"MRR": np.array([next(scores)])})
    way = unfold(recipe)
    folder = cache.get(way.retriever)
    log = json.loads((folder / "log.json").read_text())
    assert [(row["step"], row["score"]) for row in log["validation"]] == [(2, 0.1), (4, 0.9), (6, 0.2)]
    assert log["kept"] == 4
    scores = iter([0.1, 0.2, 0.9])
    last = load_file(cache.get(unfold(recipe.with_(seed=0, finetuning__validation=LOOKS | {"keep": "last"})).retriever)
                     / "model" / "model.safetensors")  # fmt: skip
    kept, beside = (load_file(folder / name / "model.safetensors") for name in ("model", "last/model"))
    assert any((kept[name] != last[name]).any() for name in kept)
    assert all((beside[name] == last[name]).all() for name in kept)


class Fixed:
    def __init__(self, value: float):
        self.value = value

    def mean(self, measure: str) -> float:
        assert measure == "MRR"
        return self.value


def test_the_pool_holds_dev_queries_their_passages_and_what_bm25_finds(recipe, cache):
    collection, way = open_sample(recipe.collection), unfold(recipe)
    inputs = {name: cache.get(stage) for name, stage in way.retriever.inputs.items()}
    validation = validation_of(inputs, recipe, collection, recipe.finetuning, None, None)
    pool = next(cell.cell_contents for cell in validation.score.__closure__ if hasattr(cell.cell_contents, "pool")).pool
    assert len(pool.query_rows) == 5
    dev = collection.queries("dev")["id"][:]
    relevant = {int(name[1:]) for row in pool.query_rows for name in collection.qrels("dev")[dev[row]]}
    assert relevant <= set(pool.passage_rows.tolist())
    assert len(relevant) < len(pool) <= 5 * (1 + 3)


@pytest.mark.parametrize(("change", "said"), [({"evaluation__split": "dev"}, "reported"), ({}, "trained on")])
def test_queries_that_are_reported_or_trained_on_choose_nothing(recipe, change, said):
    split = "dev" if change else "train"
    with pytest.raises(InputError, match=said):
        unfold(recipe.with_(**change, finetuning__validation=LOOKS | {"split": split}))


def test_dev_queries_may_choose_what_is_reported_on_another_collection(recipe, tmp_path, beir_folder):
    beir_folder(tmp_path / "other", passages=30)
    there = recipe.with_(evaluation__split="dev", evaluation__on=str(tmp_path / "other"))
    assert unfold(there).retriever.key == unfold(recipe).retriever.key


def test_a_training_with_looks_is_a_stage_of_its_own(tiny_recipe, recipe):
    keys = {
        unfold(one.with_(finetuning__steps=6, objective="none")).retriever.key
        for one in (tiny_recipe, recipe, recipe.with_(finetuning__validation=LOOKS | {"every": 3}))
    }
    assert len(keys) == 3


def test_an_unknown_key_is_named():
    with pytest.raises(InputError, match=r"finetuning\.validation\.evry"):
        Recipe(finetuning={"validation": {"evry": 3}})
