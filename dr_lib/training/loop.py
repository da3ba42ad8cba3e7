"""The one training loop, for pre-training and fine-tuning alike.

What it calls is plain: `run` (beginning and saving), `schedule` (rate and seeds of a step), `feed` (batches), `meter`
(losses, bad numbers). Weights, gradients and moments are fp32; with bf16 only the forward pass runs in autocast.
Book: ideas/bottleneck shows it at work, practice/troubleshooting explains its messages.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from dr_lib.training.feed import feed
from dr_lib.training.log import TrainLog
from dr_lib.training.optimizer import set_learning_rate
from dr_lib.training.run import begin
from dr_lib.training.schedule import learning_rate, seed_step
from dr_lib.training.selection import Validation
from dr_lib.training.settings import TrainSettings


def train(
    module: nn.Module,
    batches: Callable[[int], Any],
    settings: TrainSettings,
    folder: Path,
    *,
    title: str,
    progress: bool = True,
    stop_after: int | None = None,
    validation: Validation | None = None,
) -> TrainLog:
    """Train `module` in place, from the newest checkpoint in `folder` if there is one.

    A run that is cut off anywhere and started again ends in the same weights, bit for bit, as an unbroken one on the
    same machine with the same number of threads. With several processes each takes its own micro-batches.

    Args:
        module: `module(batch, generator)` returns a dict with `loss` (a scalar with gradient, a mean over the
            micro-batch) and any other scalars to log. Frozen parameters are neither trained nor kept.
        batches: micro-step -> micro-batch; the same number must always give the same batch.
        settings: steps, rate, precision, seed and so on.
        folder: the run's own folder, for checkpoints and `log.json`.
        title: what is trained, for the bar and the log.
        progress: show a bar on stderr.
        stop_after: stop (with a checkpoint) once this many updates are done, counted from the very first.
        validation: how to score the model on the way, and whether the best or the last weights are kept; None does not.

    Returns:
        The log, earlier parts of the run included. `module` is left in eval mode, torch's global generator where the
        last step put it.

    Raises:
        InputError: nothing to train, or the checkpoint in `folder` was made with other settings or another model.
        TrainingError: loss, gradient or validation score became NaN or infinite; the message names step and rows.

    Example:
        >>> import tempfile, torch
        >>> class Line(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.slope = nn.Parameter(torch.zeros(()))
        ...     def forward(self, batch, generator):
        ...         return {"loss": (self.slope * batch - 2 * batch).square().mean()}
        >>> line, settings = Line(), TrainSettings(steps=120, learning_rate=0.1, precision="fp32")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = train(line, lambda step: torch.ones(4), settings, Path(folder), title="line", progress=False)
        >>> log.finished, round(line.slope.item(), 1)
        (True, 2.0)
    """
    run = begin(module, settings, folder, title, validation)
    log, meter, accelerator = run.log, run.meter, run.accelerator
    last = settings.steps if stop_after is None else min(settings.steps, stop_after)
    ready = feed(batches, run.micro_steps(last), run.device)
    looks = look_every(run.device, settings)
    shown = progress and accelerator.is_main_process
    with tqdm(total=settings.steps, initial=log.step, desc=title, disable=not shown, mininterval=0.5) as bar:
        for step in range(log.step + 1, last + 1):
            rate = learning_rate(settings, step)
            set_learning_rate(run.optimizer, rate)
            for _ in range(settings.accumulation):
                index, batch, tokens = next(ready)
                seed_step(settings.seed, index, run.generator)
                with accelerator.accumulate(run.model):
                    with run.autocast():
                        parts = run.model(batch, run.generator)
                    accelerator.backward(parts["loss"])
                meter.add(index, parts, tokens)
            norm = accelerator.clip_grad_norm_(run.trained.values(), settings.clip or float("inf"))
            meter.add_norm(index, norm)
            ends_row = step % settings.log_every == 0 or step == settings.steps
            validates = run.selection is not None and run.selection.due(step, settings.steps)
            saves = step % settings.checkpoint_every == 0 or step == last
            if ends_row or saves or validates or step % looks == 0:
                meter.fetch(lambda index, name: run.explain(batches, index, name))
                bar.set_postfix_str(meter.told(rate), refresh=False)
            run.stepper.step()
            run.stepper.zero_grad()
            log.step = step
            if ends_row:
                meter.close_row(step, rate)
            if validates:
                run.selection.look(module, step)
                meter.pause()
            if saves:
                run.save()
            bar.update()
    if run.selection and log.finished:
        run.selection.finish(module)
    module.eval()
    return log


def look_every(device: torch.device, settings: TrainSettings) -> int:
    """Updates between two looks at the losses: each on a CPU; a GPU would have to wait for every look."""
    return 1 if device.type == "cpu" else settings.log_every
