"""Masked language modelling against the library's own loss."""

import pytest
import torch
from torch.nn import functional

from dr_lib import masking


@pytest.mark.parametrize(
    "values",
    [{}, {"rate": 0.4, "mask_policy": "mask"}, {"unit": "piece", "budget": "all"}, {"rate": 1.0}],
)
def test_loss_and_gradient_are_those_of_full_logits(make, batch, seeded, values, monkeypatch):
    objective, seen, hide = make("mlm", **values), {}, masking.hide
    monkeypatch.setattr(masking, "hide", lambda *a, **k: seen.setdefault("ids", hide(*a, **k)))
    draw = masking.uniform if values.get("unit") == "piece" else masking.whole_word
    mask = draw(batch, objective.settings.rate, seeded(), budget=objective.settings.budget)
    result = objective(batch, seeded())
    inputs = batch.with_ids(seen["ids"]).model_inputs()
    logits = objective.model(**inputs).logits
    expected = functional.cross_entropy(logits[mask], batch.input_ids[mask])
    assert torch.allclose(result["loss"], expected, atol=1e-5)
    assert result["encoder_accuracy"] == pytest.approx(
        (logits[mask].argmax(-1) == batch.input_ids[mask]).float().mean()
    )
    weights = list(objective.model.parameters())
    for found, wanted in zip(
        *(torch.autograd.grad(x, weights) for x in (result["loss"], expected)), strict=True
    ):
        assert torch.allclose(found, wanted, atol=1e-5)


def test_nothing_masked_is_a_loss_of_zero_without_gradient(make, batch, seeded):
    objective = make("mlm", rate=0.0)
    result = objective(batch, seeded())
    result["loss"].backward()
    assert result["loss"] == 0 and result["encoder_accuracy"] == 0
    assert not any(
        weight.grad is not None and weight.grad.any() for weight in objective.parameters()
    )
