import numpy as np
import pytest
import torch
from torch import nn

from dr_lib.training import TrainingError, TrainSettings, train
from dr_lib.training import loop as loop_module


class Poisoned(nn.Module):
    """Its loss (or its gradient alone) is NaN for the batch whose first row is 33."""

    def __init__(self, what: str):
        super().__init__()
        self.what, self.weight = what, nn.Parameter(torch.ones(2))

    def forward(self, batch, generator):
        bad = 33 in batch.rows.tolist()
        loss = self.weight.square().sum() + (float("nan") if bad and self.what == "loss" else 0.0)
        if bad and self.what == "gradient":
            loss = (
                loss
                + (self.weight[0] - 1).abs().sqrt() * 0
                + (self.weight - self.weight.detach()).sqrt().sum()
            )
        return {"loss": loss}


@pytest.fixture
def numbered(make_token_batch):
    """Micro-batch i holds rows 3i, 3i + 1, 3i + 2."""
    return lambda index: make_token_batch(np.array([[2, 5, 3]] * 3), 3 * index + np.arange(3))


def run(module, batches, folder, **values):
    settings = TrainSettings(
        steps=20, learning_rate=1e-3, accumulation=2, checkpoint_every=4, **values
    )
    return train(module, batches, settings, folder, title="poisoned", progress=False)


def test_a_loss_that_is_not_a_number_stops_and_names_step_and_rows(tmp_path, numbered):
    with pytest.raises(
        TrainingError, match=r"poisoned: the loss of step 6 .*micro-step 11: rows 33, 34, 35\)"
    ):
        run(Poisoned("loss"), numbered, tmp_path)


def test_a_gradient_that_is_not_finite_stops_and_names_all_rows_of_the_step(tmp_path, numbered):
    with pytest.raises(
        TrainingError, match=r"gradient of step 6 .*rows 30, 31, 32; micro-step 11: rows 33, 34, 35"
    ):
        run(Poisoned("gradient"), numbered, tmp_path)


def test_weights_and_last_checkpoint_are_untouched_by_the_bad_step(tmp_path, numbered):
    module = Poisoned("loss")
    with pytest.raises(TrainingError):
        run(module, numbered, tmp_path)
    assert torch.isfinite(module.weight).all()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-4"]


def test_the_right_step_is_named_even_when_losses_are_fetched_late(tmp_path, numbered, monkeypatch):
    """As on a GPU, where scalars wait on the device until a row of the log is full."""
    monkeypatch.setattr(loop_module, "fetch_every", lambda device, settings: settings.log_every)
    with pytest.raises(TrainingError, match=r"loss of step 6 .*micro-step 11: rows 33, 34, 35\)"):
        run(Poisoned("loss"), numbered, tmp_path, log_every=15)
