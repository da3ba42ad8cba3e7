"""Small modules and batches for the loop, and a token store made of plain arithmetic."""

import importlib
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn


class Regression(nn.Module):
    """Learns a fixed linear map; through dropout and drawn noise the loss depends on both sources
    of randomness.
    """

    def __init__(self, dropout: float = 0.0, noise: float = 0.0):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 16), nn.Linear(16, 4)
        self.norm, self.dropout = nn.LayerNorm(16), nn.Dropout(dropout)
        self.noise = noise

    def forward(self, batch: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        noisy = batch + self.noise * torch.randn(batch.shape, generator=generator)
        predicted = self.second(self.dropout(self.norm(self.first(noisy)).tanh()))
        loss = (predicted.float() - 3 * batch).square().mean()
        return {"loss": loss, "mean_input": batch.mean()}


def gaussian_batch(index: int, rows: int = 8) -> Tensor:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(index))


@pytest.fixture
def regression() -> type[Regression]:
    return Regression


@pytest.fixture
def gaussian_batches():
    return gaussian_batch


@pytest.fixture(scope="session")
def killable() -> ModuleType:
    """A training that a separate process may run."""
    return importlib.import_module("tests.training.killable")


@pytest.fixture(scope="session")
def fine_tuned() -> ModuleType:
    """One step of every kind of fine-tuning, which a separate process may run."""
    return importlib.import_module("tests.training.fine_tuned")
