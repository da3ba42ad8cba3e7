"""The example of page practice/adding-an-objective does what the page says, from its loss to a word
in a recipe.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from dr_lib import objectives
from dr_lib.lab import Recipe

EXAMPLE = Path(__file__).resolve().parents[2] / "book" / "practice" / "examples" / "bag_of_words.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("bag_of_words", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def added(example, monkeypatch):
    monkeypatch.setitem(objectives.METHODS, "bag_of_words", example.BagOfWords)


def test_the_bag_loss_is_the_mean_log_probability_of_the_distinct_tokens(added, make, batch):
    method = make("bag_of_words")
    first = torch.randn(
        len(batch), method.model.config.hidden_size, generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        logits = method.model.cls(first).double().numpy()
        loss = method.bag_of_words(batch, first)
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    specials = set(method.special.values())
    expected = -np.mean(
        [
            log_p[row, sorted(set(ids.tolist()) - specials)].mean()
            for row, ids in enumerate(batch.input_ids)
        ]
    )
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_its_loss_is_the_sum_that_the_page_states_and_reaches_the_encoder(
    added, make, batch, seeded
):
    method = make("bag_of_words", weight=2.0)
    parts = method(batch, seeded())
    assert parts["loss"].item() == pytest.approx(
        (parts["encoder_loss"] + 2 * parts["bag_loss"]).item(), rel=1e-6
    )
    parts["loss"].backward()
    assert method.model.base_model.encoder.layer[0].attention.self.query.weight.grad.abs().sum() > 0


def test_a_passage_of_special_tokens_alone_has_no_bag(added, make, batch):
    method = make("bag_of_words")
    empty = batch.with_ids(torch.full_like(batch.input_ids, method.special["pad"]))
    assert (
        method.bag_of_words(empty, torch.randn(len(batch), method.model.config.hidden_size)).item()
        == 0
    )


def test_one_word_in_a_recipe_is_enough(added):
    recipe = Recipe(objective="mlm").with_(objective="bag_of_words", objective__weight=0.1)
    assert recipe.objective.params == {"mask_unknown": False, "rate": 0.3, "weight": 0.1}
