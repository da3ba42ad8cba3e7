"""Replaced token detection, by an encoder and by a decoder, against a binary cross-entropy in
numpy, and what it does not change.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional


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


def with_gradient(objective: nn.Module, loss: torch.Tensor) -> set[str]:
    """Names of the parameters that a loss reaches."""
    loss.backward()
    return {
        name
        for name, weight in objective.named_parameters()
        if weight.grad is not None and weight.grad.any()
    }


def test_generator_and_masked_lm_head_are_left_as_they_were(make, batch, seeded):
    objective = make("rtd")
    reached = with_gradient(objective, objective(batch, seeded())["loss"])
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


@pytest.fixture
def sides(monkeypatch):
    """Record the inputs of each side: ids and states, encoder first."""

    def watch(objective) -> list[tuple[torch.Tensor, torch.Tensor]]:
        seen, inner = [], objective.side_loss

        def remember(batch, ids, states):
            seen.append((ids, states))
            return inner(batch, ids, states)

        monkeypatch.setattr(objective, "side_loss", remember)
        return seen

    return watch


@pytest.mark.parametrize("loss_mean", ["released", "paper"])
def test_losses_are_the_binary_cross_entropy_of_every_real_token(
    loss_mean, make_loud, batch, seeded, sides
):
    objective = make_loud("encdec_rtd", loss_mean=loss_mean)
    seen = sides(objective)
    result = objective(batch, seeded())
    real = ~batch.special.numpy()
    for name, (ids, states) in zip(("encoder", "decoder"), seen, strict=True):
        logits = objective.detector(states).detach().double().numpy()
        replaced = (ids != batch.input_ids).numpy()
        losses = np.logaddexp(0, np.where(replaced, -logits, logits))
        by_passage = np.mean([row[kept].mean() for row, kept in zip(losses, real, strict=True)])
        expected = by_passage if loss_mean == "paper" else losses[real].mean()
        assert result[f"{name}_loss"].item() == pytest.approx(expected, abs=1e-5)
        assert result[f"{name}_accuracy"].item() == pytest.approx(
            ((logits > 0) == replaced)[real].mean()
        )


def test_gradients_are_those_of_states_made_by_hand(
    make_loud, batch, seeded, sides, decoded_by_hand, same_gradients
):
    objective = make_loud("encdec_rtd")
    seen = sides(objective)
    result = objective(batch, seeded())
    (encoder_ids, _), (decoder_ids, _) = seen
    encoded = objective.model.bert(**batch.with_ids(encoder_ids).model_inputs()).last_hidden_state
    decoded = decoded_by_hand(
        objective.decoder.layers, objective.model, batch, encoded[:, 0], decoder_ids
    )
    expected = sum(
        functional.binary_cross_entropy_with_logits(
            objective.detector(states)[~batch.special],
            (ids != batch.input_ids)[~batch.special].float(),
        )
        for ids, states in ((encoder_ids, encoded), (decoder_ids, decoded))
    )
    assert same_gradients(objective, result["loss"], expected, atol=1e-6)


def test_a_token_sampled_again_is_original_where_it_equals_the_original(make, batch, seeded, sides):
    objective = make("encdec_rtd")
    seen = sides(objective)
    objective.generator.sample = lambda batch, *rest: batch.input_ids
    result = objective(batch, seeded())
    for name, (_, states) in zip(("encoder", "decoder"), seen, strict=True):
        expected = functional.softplus(objective.detector(states)[~batch.special]).mean()
        assert torch.allclose(result[f"{name}_loss"], expected, atol=1e-6)
        assert result[f"{name}_replaced"] == 0


def test_special_positions_carry_no_loss(make, batch):
    objective = make("encdec_rtd")
    states = torch.randn(*batch.input_ids.shape, 32, requires_grad=True)
    objective.side_loss(batch, batch.input_ids, states)[0].backward()
    assert torch.equal(states.grad.any(-1), ~batch.special)


def test_encdec_rtd_leaves_generator_and_masked_lm_head_as_they_were(make, batch, seeded):
    objective = make("encdec_rtd")
    reached = with_gradient(objective, objective(batch, seeded())["loss"])
    assert not [name for name in reached if name.startswith(("generator.", "model.cls."))]
    for part in (
        "model.bert.encoder.layer.0.",
        "model.bert.encoder.layer.1.",
        "decoder.layers.1.",
        "detector.dense",
    ):
        assert any(name.startswith(part) for name in reached), part


def test_a_joint_generator_learns_beside_it(make, batch, seeded):
    objective = make("encdec_rtd", generator="joint", generator_weight=0.5)
    result = objective(batch, seeded())
    sides = result["encoder_loss"] + result["decoder_loss"]
    assert torch.allclose(result["loss"], sides + 0.5 * result["generator_loss"], atol=1e-5)
