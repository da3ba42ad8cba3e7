"""Recipes: frozen, validated, the same in and out of YAML, without places in what a record keeps."""

import pytest
from pydantic import ValidationError

from dr_lib.errors import InputError
from dr_lib.lab.base_recipe import BaseRecipe
from dr_lib.lab.recipe import Recipe, recipe_for


def test_yaml_gives_the_same_recipe_back(tmp_path):
    recipe = Recipe(collection="squad", objective={"name": "simlm", "decoder_rate": 0.6}, seed=2)
    recipe.save(tmp_path / "recipe.yaml")
    again = Recipe.load(tmp_path / "recipe.yaml")
    assert again == recipe
    assert again.digest == recipe.digest


def test_a_recipe_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Recipe().seed = 3


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"finetunning": {}}, r"finetunning: unknown key.*finetuning"),
        ({"collection": {"pasages": 3}}, r"collection\.pasages: unknown key.*passages"),
        ({"pretraining": {"step": 3}}, r"pretraining\.step: unknown key.*steps"),
        ({"objective": {"name": "simlm", "encoder_rat": 0.3}}, r"objective.*encoder_rat.*encoder_rate"),
        ({"objective": "similm"}, r"similm.*simlm"),
        ({"objective": {"name": "simlm", "encoder_rate": 1.5}}, r"encoder_rate"),
        ({"pretraining": {"steps": 0}}, r"pretraining\.steps.*greater than 0"),
        ({"pretraining": {"seed": 3}}, r"seed is set once"),
        ({"collection": {"passages": 0}}, r"collection\.passages"),
        ({"evaluation": {"measures": []}}, r"no measure"),
        ({"title": "both"}, r"title.*pair"),
        ({"pretraining": {"tokens_per_batch": 100}}, r"tokens_per_batch"),
    ],
)
def test_a_wrong_key_or_value_is_refused_by_name(values, said):
    with pytest.raises(InputError, match=said):
        Recipe(**values)


def test_with_changes_keys_at_every_depth():
    recipe = Recipe(collection={"name": "pydocs", "passages": 300})
    changed = recipe.with_(collection="squad", objective="mlm", pretraining__steps=7, seed=4)
    assert (changed.collection.name, changed.collection.passages) == ("squad", 300)
    assert (changed.objective.name, changed.pretraining.steps, changed.seed) == ("mlm", 7, 4)
    assert recipe.objective.name == "simlm"


def test_with_sets_parameters_of_the_method_by_name():
    recipe = Recipe().with_(objective__encoder_rate=0.15, objective__decoder_rate=0.3)
    assert recipe.objective.params["encoder_rate"] == 0.15
    kept = recipe.with_(objective="simlm", objective__decoder_rate=1.0)
    assert (kept.objective.params["encoder_rate"], kept.objective.params["decoder_rate"]) == (0.15, 1.0)
    assert "encoder_rate" not in recipe.with_(objective="mlm").objective.params


@pytest.mark.parametrize("path", ["stepz", "pretraining__step", "pretrain__steps", "seed__value", "objective__ratee"])
def test_with_refuses_an_unknown_key(path):
    with pytest.raises(InputError):
        Recipe().with_(**{path: 3})


def test_defaults_spelled_out_do_not_change_the_digest():
    assert Recipe(objective={"name": "simlm", "encoder_rate": 0.3}).digest == Recipe(objective="simlm").digest


def test_chunks_belong_to_the_identity_of_a_training_where_they_are_set():
    plain, cut = Recipe().finetuning.identity(), Recipe(finetuning={"chunk": 8}).finetuning.identity()
    assert "chunk" not in plain
    assert cut == plain | {"chunk": 8}


def test_what_a_record_keeps_has_no_path(tmp_path):
    folder = tmp_path / "squad"
    folder.mkdir()
    recipe = Recipe(collection=str(folder), base=str(tmp_path))
    assert recipe.portable()["collection"]["name"] == "squad"
    assert str(tmp_path) not in str(recipe.portable())
    assert recipe.with_(base="embedded").digest == Recipe(collection="squad").digest


def test_a_scale_gives_overrides_and_the_notebook_the_collection():
    recipe = recipe_for({"collection": {"passages": 300}, "pretraining": {"steps": 9}}, "squad")
    assert (recipe.collection.name, recipe.collection.passages, recipe.pretraining.steps) == ("squad", 300, 9)


def test_broken_yaml_is_refused_with_its_line(tmp_path):
    (tmp_path / "broken.yaml").write_text("seed: 1\nbase: [\n")
    with pytest.raises(InputError, match=r"broken\.yaml line"):
        Recipe.load(tmp_path / "broken.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(InputError, match="mapping"):
        Recipe.load(tmp_path / "list.yaml")
    with pytest.raises(InputError, match="no such file"):
        Recipe.load(tmp_path / "missing.yaml")


def test_a_base_recipe_refuses_unknown_keys_too():
    with pytest.raises(InputError, match=r"sources\.documents.*without_documents_of|sources"):
        BaseRecipe(name="tiny", sources=[{"name": "squad", "documents": "train"}])
    with pytest.raises(InputError, match="sources"):
        BaseRecipe(name="tiny", sources=[])
