"""Learning rate and randomness as exact functions of the step, so that a resumed run needs no saved state for either.

The papers warm up linearly and decay linearly to zero; SimLM's released script inherits a logarithmic warm-up from
DeepSpeed's scheduler (reference: unilm, simlm/ds_config.json). We keep to the papers. Book: practice/gpu.
"""

import numpy as np
import torch

from dr_lib.training.settings import TrainSettings


def learning_rate(settings: TrainSettings, update: int) -> float:
    """Rate of the `update`-th change of the weights, counted from 1.

    Linear from `peak / warmup_steps` up to the peak at update `warmup_steps`, then down the line that would reach zero
    one update after the last, so that every update moves the weights.

    Args:
        settings: gives `learning_rate`, `warmup_steps`, `steps` and `schedule`.
        update: in [1, settings.steps].

    Example:
        >>> settings = TrainSettings(steps=6, learning_rate=1.0, warmup=0.5)
        >>> [round(learning_rate(settings, update), 3) for update in range(1, 7)]
        [0.333, 0.667, 1.0, 0.75, 0.5, 0.25]
    """
    warm, last = settings.warmup_steps, settings.steps
    if update <= warm:
        return settings.learning_rate * update / warm
    if settings.schedule == "constant":
        return settings.learning_rate
    return settings.learning_rate * (last + 1 - update) / (last + 1 - warm)


def step_seed(seed: int, micro_step: int, stream: int) -> int:
    """A 63-bit seed that depends on all three numbers; neighbouring steps share no pattern.

    Example:
        >>> step_seed(0, 5, 0) == step_seed(0, 5, 0), step_seed(0, 5, 0) == step_seed(0, 6, 0)
        (True, False)
    """
    return int(np.random.SeedSequence([seed, micro_step, stream]).generate_state(1, np.uint64)[0] >> 1)


def seed_step(seed: int, micro_step: int, generator: torch.Generator) -> None:
    """Seed the global generators of CPU and device (dropout) and the step's own `generator` (masks, samples).

    `torch.manual_seed` would do the first, but notes a stack trace for each kind of absent accelerator, at every step.
    """
    torch.default_generator.manual_seed(step_seed(seed, micro_step, 0))
    if generator.device.type == "cuda":
        torch.cuda.manual_seed(step_seed(seed, micro_step, 0))
    generator.manual_seed(step_seed(seed, micro_step, 1))
