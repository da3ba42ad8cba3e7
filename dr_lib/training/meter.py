"""Losses on their way to the log, and the guard against numbers that are none.

Scalars stay on the device until they are fetched, so a GPU is not made to wait at every step; what was not fetched yet
is kept step by step, so that the first bad step is named and not the one where it was noticed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from dr_lib.training.log import TrainLog


class TrainingError(RuntimeError):
    """Training cannot go on: the loss or the gradient of a step is not a finite number."""


@dataclass
class Meter:
    """Sums of the open row of the log.

    Attributes:
        row: name -> [sum, count] over the micro-steps since the last row.
        tokens: real tokens since the last row, all processes.
        seconds: seconds of training since the last row.
    """

    accelerator: Accelerator
    log: TrainLog
    row: dict[str, list[float]] = field(default_factory=dict)
    tokens: int = 0
    seconds: float = 0.0
    _waiting: list[tuple[int, str, Tensor]] = field(default_factory=list)
    _mark: float = field(default_factory=time.perf_counter)

    def add(self, index: int, parts: dict[str, Tensor | float], tokens: int) -> None:
        """Note the scalars of micro-step `index`."""
        device = parts["loss"].device
        for name, value in {**parts, "tokens": tokens}.items():
            if isinstance(value, Tensor):
                scalar = value.detach().to(torch.float64)
            else:  # filled on the device: a copy from the host would make a GPU wait
                scalar = torch.full((), value, dtype=torch.float64, device=device)
            self._waiting.append((index, name, scalar))

    def add_norm(self, index: int, norm: Tensor) -> None:
        """Note the gradient norm of the update that ends with micro-step `index`."""
        self._waiting.append((index, "grad_norm", norm.detach().to(torch.float64)))

    def fetch(self, describe: Callable[[int, str], str]) -> None:
        """Bring all waiting scalars to the host, as means over the processes, and add them to the open row.

        Args:
            describe: micro-step and name of a bad value -> what to tell about its batch.

        Raises:
            TrainingError: a loss or gradient norm is NaN or infinite.
        """
        values = self.accelerator.reduce(torch.stack([value for _, _, value in self._waiting]), "mean").tolist()
        for (index, name, _), value in zip(self._waiting, values, strict=True):
            if name in ("loss", "grad_norm") and not abs(value) < float("inf"):
                raise TrainingError(describe(index, name))
            if name == "tokens":
                self.tokens += round(value * self.accelerator.num_processes)
            else:
                total = self.row.setdefault(name, [0.0, 0])
                total[0], total[1] = total[0] + value, total[1] + 1
        self._waiting.clear()
        now = time.perf_counter()
        self.seconds, self._mark = self.seconds + now - self._mark, now

    def mean(self, name: str) -> float:
        """Mean of one scalar in the open row, NaN where it has none."""
        total, count = self.row.get(name, (0.0, 0))
        return total / count if count else float("nan")

    def rate(self) -> float:
        """Real tokens per second in the open row."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    def told(self, lr: float) -> str:
        """The open row in a few words, for a progress bar."""
        return f"loss {self.mean('loss'):.3f}, lr {lr:.1e}, {self.rate():,.0f} tokens/s"

    def close_row(self, step: int, lr: float) -> None:
        """End the open row at update `step` and append it to the log."""
        means = {name: self.mean(name) for name in self.row}
        self.log.rows.append({"step": step, **means, "lr": lr, "tokens_per_second": self.rate()})
        self.log.tokens += self.tokens
        self.log.train_seconds += self.seconds
        self.row, self.tokens, self.seconds = {}, 0, 0.0

    def pause(self) -> None:
        """Leave out of the seconds of training what was done since the last fetch."""
        self._mark = time.perf_counter()

    def state(self) -> dict[str, Any]:
        """The open row as plain JSON, for a checkpoint."""
        return {"row": self.row, "tokens": self.tokens, "seconds": self.seconds}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the open row of a checkpoint."""
        self.row, self.tokens, self.seconds = state["row"], state["tokens"], state["seconds"]
