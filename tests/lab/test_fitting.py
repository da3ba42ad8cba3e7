"""A recipe that is cut to a GPU keeps its updates, and fits."""

import pytest
import torch

from dr_lib import lab
from dr_lib.lab.checks import Step, check_memory, fitted, steps_of, tried, try_step
from dr_lib.lab.inputs import Inputs

GIB = 2**30


def nothing(step, length):
    pass


@pytest.fixture
def recipe():
    large = {"tokens_per_batch": 400_000, "accumulation": 3}
    tuned = {"batch_queries": 4096, "negatives": 7}
    crossed = {"batch_queries": 1024, "negatives": 15}
    changes = {"pretraining": large, "finetuning": tuned, "final": "reranker"}
    return lab.recipe_at("smoke", changes | {"auxiliary": {"cross_encoder": crossed}})


@pytest.mark.parametrize("gib", [2, 4, 8])
def test_every_training_fits_and_every_update_is_the_same(recipe, gib):
    smaller = fitted(recipe, gib * GIB, nothing)
    check_memory(Inputs(smaller), gib * GIB)  # refuses nothing
    was, now = recipe.pretraining, smaller.pretraining
    tokens = now.tokens_per_batch * now.accumulation
    assert tokens == pytest.approx(was.tokens_per_batch * was.accumulation, rel=1e-3)
    assert now.accumulation % was.accumulation == 0
    assert smaller.finetuning.batch_queries == recipe.finetuning.batch_queries
    if gib == 2:
        assert smaller.pretraining.accumulation > 3 and smaller.finetuning.chunk
        assert smaller.auxiliary.cross_encoder.chunk


def test_a_method_that_compares_texts_keeps_its_batches(recipe):
    compared = recipe.with_(objective="cocondenser")
    smaller = fitted(compared, 2 * GIB, nothing)
    assert smaller.pretraining == compared.pretraining
    assert smaller.objective.params["chunk"] > 0
    check_memory(Inputs(smaller), 2 * GIB)


def test_what_fits_is_left_as_it_is(recipe):
    assert fitted(recipe, 10_000 * GIB, nothing) == recipe
    assert fitted(recipe) == recipe  # no GPU here


def test_what_the_table_promises_too_much_is_halved_until_it_runs(recipe):
    asked = []

    def trial(step, length):
        asked.append((step.layers, step.positions))
        if step.positions > 50_000:
            raise torch.OutOfMemoryError("CUDA out of memory")

    smaller = fitted(recipe, 10_000 * GIB, trial)
    assert all(step.positions <= 50_000 for step in steps_of(Inputs(smaller)).values())
    assert smaller.pretraining.tokens_per_batch * smaller.pretraining.accumulation >= 3 * 400_000
    assert asked[0][1] == 400_000 and asked[1][1] == 200_000


def test_one_sequence_that_does_not_fit_is_an_error():
    def trial(step, length):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        tried(Step(1000, 2, 64, 10), 128, 1000, trial)


def test_a_step_is_tried_at_its_size(monkeypatch):
    seen = []

    def states(model, batch):
        seen.append((len(model.bert.encoder.layer), batch.input_ids.shape))
        return model.bert.embeddings(batch.input_ids)

    monkeypatch.setattr("dr_lib.lab.checks.hidden_states", states)
    try_step(Step(96, 3, 32, 100), 24)
    assert seen == [(3, (4, 24))]
    monkeypatch.undo()
    try_step(Step(96, 2, 32, 100), 24)
