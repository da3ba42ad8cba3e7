"""Validation inside a training, and which weights it ends with: the best so far, or the last.

DPR-PAQ, section 3.3, chooses checkpoints by the MRR over a small pool of dev queries (`evaluation.ProxyValidation`).
Page of the book: ideas/evaluation. The best weights so far are part of every checkpoint, so a run that was cut off
chooses what an unbroken one chooses.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dr_lib.training.checkpoint import host_copies, module_tensors
from dr_lib.training.log import TrainLog
from dr_lib.training.meter import TrainingError


@dataclass(frozen=True)
class Validation:
    """How to look at a model while it is trained.

    Attributes:
        score: module -> a number, more is better. It may leave the module in eval mode; it must not draw at random.
        every: updates between two looks; the last update is always looked at.
        keep: "best" ends the training with the weights of the highest score (the first of equal ones), "last" with
            those of the last update.
    """

    score: Callable[[nn.Module], float]
    every: int
    keep: Literal["best", "last"] = "best"

    def identity(self) -> dict[str, Any]:
        """What a continued run must agree with."""
        return {"validation": {"every": self.every, "keep": self.keep}}


@dataclass
class Selection:
    """The looks at one training.

    Attributes:
        validation: how to look.
        log: where the scores go.
        best: weights and buffers with the highest score so far, on the host; empty before the first look, and where the
            last ones are kept.
    """

    validation: Validation
    log: TrainLog
    best: dict[str, Tensor] = field(default_factory=dict)

    def due(self, step: int, steps: int) -> bool:
        """Whether update `step` of `steps` is looked at."""
        return step % self.validation.every == 0 or step == steps

    def look(self, module: nn.Module, step: int) -> None:
        """Score the weights after an update, and keep them if they are the best.

        Raises:
            TrainingError: the score is not a finite number.
        """
        score = float(self.validation.score(module))
        module.train()
        if not math.isfinite(score):
            raise TrainingError(f"{self.log.title}: the validation score after step {step} is {score}")
        earlier = [row["score"] for row in self.log.validation]
        self.log.validation.append({"step": step, "score": score})
        if self.validation.keep == "last":
            self.log.kept = step
        elif not earlier or score > max(earlier):
            self.log.kept, self.best = step, host_copies(module_tensors(module))

    @torch.no_grad()
    def finish(self, module: nn.Module) -> None:
        """Put the best weights into the module, where these are to be kept."""
        for name, tensor in module_tensors(module).items() if self.best else ():
            tensor.copy_(self.best[name])
