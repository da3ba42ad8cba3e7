"""Base models: what they may read, what is held out, how they land in the book with their record."""

import numpy as np
import pytest
import yaml
from dr_lib.lab.base_recipe import BaseRecipe, TextSource
from dr_lib.lab.base_text import BaseText, allowed_rows, documents, is_held_out
from dr_lib.lab.opening import open_collection
from dr_lib.lab.way import unfold

from dr_lib.errors import InputError
from dr_lib.files import read_json
from dr_lib.lab.base import base_stage, build_base
from dr_lib.models import load_masked_lm
from dr_lib.tokens import load_tokenizer


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def recipe(tmp_path, tiny_recipe) -> BaseRecipe:
    """One layer on the forty passages of `tiny_recipe`, without the documents of the test split."""
    source = {"name": tiny_recipe.collection.name, "without_documents_of": ["test"]}
    return BaseRecipe(
        name="tiny-base", sources=[source], vocabulary=120, layers=1, hidden=32, heads=2, positions=48, length=32,
        training={"steps": 6, "learning_rate": 1e-3, "tokens_per_batch": 256, "checkpoint_every": 2},
        held_out=0.2,
    )  # fmt: skip


def test_documents_of_a_left_out_split_are_never_read(recipe):
    collection = open_collection(recipe.sources[0].name)
    rows = allowed_rows(collection, recipe.sources[0])
    kept = set(documents(collection, rows).tolist())
    unseen = {f"d{row // 4}" for row in range(18, 24)}  # passages of the test queries, four to a document
    assert not kept & unseen
    assert kept | unseen == {f"d{number}" for number in range(10)}


def test_whole_documents_are_held_out_and_nothing_is_lost(recipe):
    text = BaseText(recipe)
    collection = open_collection(recipe.sources[0].name)
    rows = allowed_rows(collection, recipe.sources[0])
    names = documents(collection, rows)
    outside = is_held_out(names, recipe.held_out, recipe.seed)
    assert not set(names[outside]) & set(names[~outside])
    assert (len(text.train()), len(text.test())) == ((~outside).sum(), outside.sum())
    assert np.array_equal(outside, is_held_out(names, recipe.held_out, recipe.seed))


def test_leaving_everything_out_is_refused(recipe):
    with pytest.raises(InputError, match="no passage is left"):
        name, splits = recipe.sources[0].name, ("train", "dev", "test")
        collection = open_collection(name).sample(passages=24, seed=0)
        allowed_rows(collection, TextSource(name=name, without_documents_of=splits))


def test_a_base_model_lands_in_a_folder_with_its_record(recipe, cache, tmp_path):
    folder = build_base(recipe, cache, to=tmp_path / "weights")
    model, tokenizer = load_masked_lm(folder), load_tokenizer(folder)
    assert model.config.vocab_size == len(tokenizer)
    record = read_json(folder / "record.json")
    assert record["text"][0]["name"] == "tiny"
    assert record["training"]["steps"] == 6
    assert record["held_out"]["perplexity"] == pytest.approx(np.exp(record["held_out"]["loss"]), rel=1e-5)
    assert str(tmp_path) not in (folder / "record.json").read_text()
    built = len(cache.built)
    build_base(recipe, cache, to=tmp_path / "again")
    assert len(cache.built) == built
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_another_size_shares_vocabulary_and_tokens(recipe):
    first, second = base_stage(recipe), base_stage(recipe.model_copy(update={"layers": 2}))
    assert first.key != second.key
    assert {name: stage.key for name, stage in first.inputs.items()} == {
        name: stage.key for name, stage in second.inputs.items()
    }


def test_a_recipe_may_start_from_a_base_recipe(recipe, tiny_recipe, cache, tmp_path):
    (tmp_path / "tiny-base.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    way = unfold(tiny_recipe.with_(base=str(tmp_path / "tiny-base.yaml"), objective="mlm"))
    assert way.base.stage.key == base_stage(recipe).key
    cache.get(way.evaluation)
    kinds = [name.rsplit("-", 1)[0] for name in cache.built]
    assert kinds.count("base") == 1
    assert kinds.index("base") < kinds.index("pretrained")
