"""The training of a tiny tied masked LM with dropout and drawn masks, in plain torch; some seconds
per batch make it slow enough to be killed.
"""

import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from dr_lib.stages import TimeIsUpError
from dr_lib.training import TrainLog, TrainSettings, loop, train

SETTINGS = TrainSettings(
    steps=24,
    learning_rate=1e-2,
    accumulation=2,
    checkpoint_every=5,
    log_every=4,
    precision="bf16",
    seed=3,
)


class Miniature(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.layer = nn.Embedding(30, 16), nn.Linear(16, 16)
        self.norm, self.dropout = nn.LayerNorm(16), nn.Dropout(0.3)
        self.head = nn.Linear(16, 30)
        self.head.weight = self.table.weight
        self.frozen = nn.Linear(16, 16).requires_grad_(False)

    def forward(self, ids: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        hidden = torch.rand(ids.shape, generator=generator) < 0.3
        states = self.table(ids.masked_fill(hidden, 1))
        states = self.norm(self.dropout(self.layer(states)).tanh() + self.frozen(states))
        logits = self.head(states + states.mean(1, keepdim=True)).float()
        return {
            "loss": nn.functional.cross_entropy(logits[hidden], ids[hidden]),
            "hidden": hidden.float().mean(),
        }


class Noted(Miniature):
    """Records the seed of each micro-step's draws."""

    def __init__(self):
        super().__init__()
        self.seeds: list[int] = []

    def forward(self, ids: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        self.seeds.append(generator.initial_seed())
        return super().forward(ids, generator)


def batch(index: int) -> Tensor:
    return torch.randint(2, 30, (8, 12), generator=torch.Generator().manual_seed(index))


def train_until(
    stop: int | None, module: nn.Module, batches: Any, settings: TrainSettings, folder: Path, **rest
) -> TrainLog:
    """Run `train` with its time up after update `stop` (None: never); return its log."""
    if stop is None:
        return train(module, batches, settings, folder, progress=False, **rest)
    updates, rate = [0], loop.learning_rate

    def noted_rate(settings: TrainSettings, update: int) -> float:
        updates.append(update)
        return rate(settings, update)

    with (
        patch.object(loop, "learning_rate", noted_rate),
        patch.object(loop, "time_is_up", lambda: updates[-1] == stop),
        pytest.raises(TimeIsUpError, match=f"stopped after {stop} of {settings.last} steps"),
    ):
        train(module, batches, settings, folder, progress=False, **rest)
    return TrainLog.load(folder / "log.json")


def run(
    module: nn.Module, folder: Path, seconds: float = 0.0, stop_after: int | None = None, **rest
) -> TrainLog:
    def slow_batch(index: int) -> Tensor:
        time.sleep(seconds)
        return batch(index)

    settings = rest.pop("settings", SETTINGS)
    return train_until(stop_after, module, slow_batch, settings, folder, title="killable", **rest)


def seeds_of_draws(folder: Path, together: bool) -> list[int]:
    """The seeds of this process's draws in all its micro-steps."""
    module = Noted()
    run(module, folder, together=together)
    return module.seeds
