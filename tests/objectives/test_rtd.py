"""Replaced token detection against a binary cross-entropy in numpy, and what it leaves alone."""

import numpy as np
import pytest
import torch


def test_the_loss_is_the_binary_cross_entropy_of_every_real_token(
    make_loud, batch, seeded, monkeypatch
):
    objective = make_loud("rtd", rate=0.4)
    seen, sample = [], objective.generator.sample
    monkeypatch.setattr(
        objective.generator, "sample", lambda *given: seen.append(sample(*given)) or seen[-1]
    )
    result = objective(batch, seeded())
    states = objective.model.bert(**batch.with_ids(seen[0]).model_inputs()).last_hidden_state
    logits, real = objective.detector(states).detach().double().numpy(), ~batch.special.numpy()
    replaced = (seen[0] != batch.input_ids).numpy()
    assert replaced.any() and not replaced[~real].any()
    expected = np.logaddexp(0, np.where(replaced, -logits, logits))[real].mean()
    assert result["loss"].item() == pytest.approx(expected, abs=1e-5)
    assert result["encoder_accuracy"].item() == pytest.approx(
        ((logits > 0) == replaced)[real].mean()
    )


def test_generator_and_masked_lm_head_are_left_as_they_were(make, batch, seeded):
    objective = make("rtd")
    objective(batch, seeded())["loss"].backward()
    reached = {
        name
        for name, weight in objective.named_parameters()
        if weight.grad is not None and weight.grad.any()
    }
    assert not [name for name in reached if name.startswith(("generator.", "model.cls."))]
    assert {
        "detector.dense.weight",
        "model.bert.encoder.layer.0.attention.self.query.weight",
    } <= reached


def test_a_model_may_be_its_own_generator(tiny_bert, make, batch, seeded):
    model = tiny_bert(seed=0)
    objective = make("rtd", model, generator_model=model)
    assert all(weight.requires_grad for weight in objective.model.parameters())
    assert torch.isfinite(objective(batch, seeded())["loss"])
