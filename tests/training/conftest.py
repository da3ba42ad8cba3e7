"""Small modules and batches for the loop, and a token store made of plain arithmetic."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dr_lib.tokens.batch import TokenBatch


class Regression(nn.Module):
    """Learns a fixed linear map; dropout and drawn noise make the loss depend on both sources of randomness."""

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


def token_batch(ids: np.ndarray, rows: np.ndarray) -> TokenBatch:
    """A batch of rows padded with 0, [CLS] = 2 first and [SEP] = 3 last."""
    input_ids = torch.from_numpy(ids.astype(np.int64))
    special = torch.isin(input_ids, torch.tensor([0, 2, 3]))
    return TokenBatch(
        input_ids,
        (input_ids != 0).long(),
        torch.zeros_like(input_ids),
        special,
        ~special,
        torch.from_numpy(rows.astype(np.int64)),
    )


class CountedStore:
    """Row r is [CLS], a word that stands for r, some filler, [SEP]; lengths differ from row to row."""

    def __init__(self, rows: int, words: int):
        self.rows, self.words = rows, words

    def __len__(self) -> int:
        return self.rows

    def batch(self, rows, *, max_length, title="pair", pad_to_multiple=8, side="right") -> TokenBatch:
        lengths = np.minimum(4 + rows % 3, max_length)
        width = -(-lengths.max() // pad_to_multiple) * pad_to_multiple
        ids = np.zeros((len(rows), width), np.int64)
        position = np.arange(width)[None, :]
        ids[position < lengths[:, None]] = 4
        ids[:, 0], ids[:, 1] = 2, 5 + rows % self.words
        ids[np.arange(len(rows)), lengths - 1] = 3
        return token_batch(ids, rows)


@pytest.fixture
def regression() -> type[Regression]:
    return Regression


@pytest.fixture
def gaussian_batches():
    return gaussian_batch


@pytest.fixture
def counted_store() -> type[CountedStore]:
    return CountedStore


@pytest.fixture
def make_token_batch():
    return token_batch


@pytest.fixture(scope="session")
def killable() -> ModuleType:
    """The script `killable.py` as a module, for what is to run in this process."""
    spec = importlib.util.spec_from_file_location("killable", Path(__file__).with_name("killable.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
