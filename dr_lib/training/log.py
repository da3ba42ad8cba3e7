"""The log of a training: one row every few updates, and the totals of the whole run.

Book: reference/status shows run times that come from these logs.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dr_lib.files import read_json, write_json


@dataclass
class TrainLog:
    """The course of one training, summed over all resumes.

    Attributes:
        title: what was trained, in a few words.
        steps: updates that the settings ask for.
        step: updates done so far.
        rows: each a dict with `step`, `loss`, the objective's other scalars, `lr`, `grad_norm` and
            `tokens_per_second`; scalars are means over the updates since the row before.
        tokens: real tokens (padding not counted) seen so far, over all processes.
        train_seconds: seconds spent in updates.
        wall_seconds: seconds from first to last, checkpoints included, time between two resumes
            not.
        peak_memory: most bytes ever held, `host` and (on CUDA) `gpu`.
        validation: a dict with `step` and `score` for each look at dev queries
            (`training.Validation`).
        resumed_at: updates after which the run was taken up again.
        precision, device, processes, threads: how it was computed.

    Example:
        >>> log = TrainLog(
        ...     title="demo", steps=2, rows=[{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.5}]
        ... )
        >>> log.column("loss").tolist()
        [2.0, 1.5]
    """

    title: str
    steps: int
    step: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)
    tokens: int = 0
    train_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory: dict[str, int] = field(default_factory=dict)
    validation: list[dict[str, float]] = field(default_factory=list)
    resumed_at: list[int] = field(default_factory=list)
    precision: str = "fp32"
    device: str = "cpu"
    processes: int = 1
    threads: int = 1

    @property
    def finished(self) -> bool:
        """True when every update that was asked for is done."""
        return self.step >= self.steps

    @property
    def tokens_per_second(self) -> float:
        """Real tokens per second of training, over the whole run; 0 before the first update."""
        return self.tokens / self.train_seconds if self.train_seconds else 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, `step` first."""
        every = dict.fromkeys(name for row in self.rows for name in row)
        return ("step", *(name for name in every if name != "step"))

    def column(self, name: str) -> np.ndarray:
        """One column as float64 `[rows]`; NaN where a row does not have it."""
        return np.array([row.get(name, np.nan) for row in self.rows], dtype=np.float64)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON content of the log, its overall `tokens_per_second` included."""
        return {**asdict(self), "tokens_per_second": self.tokens_per_second}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainLog":
        """The log that `as_dict` described."""
        return cls(
            **{name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        )

    def save(self, path: Path) -> None:
        """Write the log as JSON, in one step."""
        write_json(path, self.as_dict())

    @classmethod
    def load(cls, path: Path) -> "TrainLog":
        """Read a log that `save` wrote; `InputError` if it is missing or broken."""
        return cls.from_dict(read_json(path))
