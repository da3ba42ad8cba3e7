"""The stages that count words: what they share, what they hold, and CDMAE from end to end."""

import numpy as np
import pytest
from dr_lib.lab.materials import material, needed
from dr_lib.lab.stage import Stage
from dr_lib.lab.way import open_means, unfold

from dr_lib.lab.recipe import Recipe
from dr_lib.materials import count_ngrams, word_blocks, write_importances
from dr_lib.tokens import TokenStore, TokenValues


@pytest.fixture
def recipe(tiny_recipe) -> Recipe:
    return tiny_recipe.with_(objective="cdmae")


def importances_of(recipe: Recipe) -> Stage:
    return needed(open_means(recipe))["importances"]


def counts_of(stage: Stage) -> str:
    return stage.inputs["ngrams"].key


def test_importances_are_those_of_the_passages_tokens(recipe, cache, tmp_path):
    stage = importances_of(recipe.with_(objective__pmi="minseg", objective__window=3))
    folder = cache.get(stage)
    store = TokenStore.open(cache.get(stage.inputs["passages"]) / "store")
    assert np.diff(store.title_offsets).max() > 0
    counts = count_ngrams(store, tmp_path / "counts", order=3, progress=False)
    expected = write_importances(counts, store, tmp_path / "values", window=3, pmi="minseg", progress=False)
    found = TokenValues.open(folder / "values", store)
    assert np.array_equal(found.title, expected.title) and np.array_equal(found.text, expected.text)


def test_what_decides_only_the_mask_makes_no_new_importances(recipe):
    stage = importances_of(recipe)
    for change in ({"decoder_rate": 0.4}, {"noise": 0.0}, {"projection": False}, {"mask_policy": "mask"}):
        assert importances_of(recipe.with_(**{f"objective__{k}": v for k, v in change.items()})).key == stage.key
    assert importances_of(recipe.with_(seed=3, passage_length=16)).key == stage.key


@pytest.mark.parametrize(
    ("change", "same_counts"),
    [({"pmi": "minseg"}, True), ({"window": 2}, True), ({"edges": "zero"}, True), ({"floor": 0.5}, True),
     ({"window": 5}, False), ({"min_count": 2}, False), ({"unit": "piece"}, False)],
    ids=str,
)  # fmt: skip
def test_variants_of_the_importance_share_the_counts(recipe, change, same_counts):
    first, second = (
        importances_of(recipe),
        importances_of(recipe.with_(**{f"objective__{k}": v for k, v in change.items()})),
    )
    assert first.key != second.key
    assert (counts_of(first) == counts_of(second)) is same_counts


def test_a_uniform_mask_needs_no_importances(recipe):
    kinds = {stage.kind for stage in unfold(recipe.with_(objective__decoder_masking="uniform")).evaluation.walk()}
    assert not kinds & {"importances", "ngrams"}
    assert {"importances", "ngrams"} <= {stage.kind for stage in unfold(recipe).evaluation.walk()}


def test_keyword_weights_lie_beside_the_tokens(recipe, cache):
    stage = material("keyword_weights", open_means(recipe))
    assert stage.key != material("keyword_weights", open_means(recipe), weighting="tfidf").key
    store = TokenStore.open(cache.get(stage.inputs["passages"]) / "store")
    values = TokenValues.open(cache.get(stage) / "values", store)
    [block] = word_blocks(store)
    of_words = np.concatenate([values.title, values.text])[block.starts].astype(np.float64)
    ids = block.pieces[block.starts[block.sizes == 1]]
    assert np.allclose(of_words[block.sizes == 1], 1 / np.bincount(ids)[ids])


def test_cdmae_trains_from_end_to_end(recipe, cache):
    way = unfold(recipe)
    folder = cache.get(way.pretrained)
    assert (folder / "model" / "model.safetensors").is_file() and (folder / "model" / "extra.safetensors").is_file()
    assert {manifest["kind"] for manifest in cache.manifests()} >= {"ngrams", "importances", "pretrained"}
