"""All that one training holds while it runs, and the plain steps before, inside and after its loop."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from torch import nn

from dr_lib.training import runtime
from dr_lib.training.checkpoint import (
    best_so_far,
    check_matches,
    load_checkpoint,
    newest_checkpoint,
    remove_drafts,
    save_checkpoint,
)
from dr_lib.training.feed import describe_rows
from dr_lib.training.log import TrainLog
from dr_lib.training.meter import Meter
from dr_lib.training.optimizer import make_optimizer, trained_parameters
from dr_lib.training.selection import Selection, Validation
from dr_lib.training.settings import TrainSettings


@dataclass
class Run:
    """One training: what is trained, by what means, and how far it is.

    `model` and `stepper` are `module` and `optimizer` as `accelerate` prepared them; on one device they are the same.
    """

    module: nn.Module
    model: nn.Module
    trained: dict[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    stepper: torch.optim.Optimizer
    accelerator: Accelerator
    settings: TrainSettings
    precision: str
    generator: torch.Generator
    folder: Path
    log: TrainLog
    meter: Meter
    selection: Selection | None
    started: float

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        return self.accelerator.device

    def autocast(self) -> AbstractContextManager[None]:
        """The forward pass runs in bf16 inside this, if the run does.

        `Accelerator(mixed_precision=...)` would do the same, but fixes one precision for the life of the process, and
        a notebook may train in several.
        """
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def micro_steps(self, last: int) -> Iterator[int]:
        """Numbers of this process's micro-batches, from the next update to update `last`."""
        return (index for step in range(self.log.step + 1, last + 1) for index in self.micro_steps_of(step))

    def micro_steps_of(self, step: int) -> range:
        """Numbers of this process's micro-batches in update `step` (from 1)."""
        processes, rank = self.accelerator.num_processes, self.accelerator.process_index
        per_update = self.settings.accumulation * processes
        return range((step - 1) * per_update + rank, step * per_update, processes)

    def explain(self, batches: Callable[[int], Any], index: int, name: str) -> str:
        """What to tell about a loss or gradient that is not finite: step and rows, the batch being made once more."""
        step = index // (self.settings.accumulation * self.accelerator.num_processes) + 1
        guilty = [index] if name == "loss" else self.micro_steps_of(step)
        rows = "; ".join(f"micro-step {one}: {describe_rows(batches(one)) or 'rows unknown'}" for one in guilty)
        what = "loss" if name == "loss" else "gradient"
        way_out = "Lower the learning rate, or look at these rows; the last checkpoint is untouched."
        return f"{self.log.title}: the {what} of step {step} is not finite ({rows}). {way_out}"

    def save(self) -> None:
        """Write a checkpoint and the log, from the main process alone."""
        now = time.perf_counter()
        self.log.wall_seconds += now - self.started
        self.started = now
        for kind, most in runtime.peak_memory().items():
            self.log.peak_memory[kind] = max(most, self.log.peak_memory.get(kind, 0))
        if self.accelerator.is_main_process:
            progress = {"log": self.log.as_dict(), "open_row": self.meter.state()}
            validation = self.selection.validation if self.selection else None
            identity = _identity(self.settings, self.precision, self.accelerator, validation)
            best = self.selection.best if self.selection else None
            save_checkpoint(
                self.folder, self.log.step, self.module, self.optimizer, settings=identity, progress=progress, best=best
            )
            self.log.save(self.folder / "log.json")
        self.accelerator.wait_for_everyone()
        self.meter.pause()


def begin(
    module: nn.Module, settings: TrainSettings, folder: Path, title: str, validation: Validation | None = None
) -> Run:
    """Set threads, device and precision, prepare module and optimiser, and take up the newest checkpoint."""
    started = time.perf_counter()
    torch.set_num_threads(runtime.threads())
    accelerator = Accelerator(
        mixed_precision="no",
        cpu=runtime.device().type == "cpu",
        gradient_accumulation_steps=settings.accumulation,
        # A head that an objective leaves out must not stop several processes from agreeing on gradients.
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
    )
    precision = runtime.precision(settings.precision, accelerator.device)
    module.to(accelerator.device).train()
    trained = trained_parameters(module)
    optimizer = make_optimizer(trained, settings)
    log = TrainLog(title=title, steps=settings.steps)
    meter = Meter(accelerator, log)
    selection = Selection(validation, log) if validation else None
    _take_up(folder, module, optimizer, meter, _identity(settings, precision, accelerator, validation), selection)
    log.precision, log.device = precision, _device_name(accelerator.device)
    log.processes, log.threads = accelerator.num_processes, torch.get_num_threads()
    model = torch.compile(module) if settings.compile else module
    model, stepper = accelerator.prepare(model, optimizer)
    generator = torch.Generator(accelerator.device)
    return Run(
        module,
        model,
        trained,
        optimizer,
        stepper,
        accelerator,
        settings,
        precision,
        generator,
        folder,
        log,
        meter,
        selection,
        started,
    )


def _take_up(
    folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, meter: Meter, identity: dict[str, Any],
    selection: Selection | None,
) -> None:  # fmt: skip
    """Continue from the newest sound checkpoint, if there is one."""
    if meter.accelerator.is_main_process:
        remove_drafts(folder)
    found = newest_checkpoint(folder)
    if found is None:
        return
    check_matches(found, identity, module)
    load_checkpoint(found, module, optimizer)
    if selection:
        selection.best = best_so_far(found)
    meter.restore(found.progress["open_row"])
    earlier = TrainLog.from_dict(found.progress["log"])
    meter.log.__dict__.update(earlier.__dict__)
    if not earlier.finished:
        meter.log.resumed_at.append(earlier.step)


def _identity(
    settings: TrainSettings, precision: str, accelerator: Accelerator, validation: Validation | None
) -> dict[str, Any]:
    """What a continued run must agree with: settings, the precision they came to, and the number of processes."""
    looks = validation.identity() if validation else {}
    return {**settings.identity(), "precision": precision, "processes": accelerator.num_processes, **looks}


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
