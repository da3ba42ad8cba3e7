"""The one training loop, for pre-training and fine-tuning alike, with all that it needs.

Rate and randomness are exact functions of the step, so a resumed run needs no saved state for either. Weights,
gradients and moments are fp32; with bf16 only the forward pass runs in autocast. Book: ideas/bottleneck shows it at
work, practice/troubleshooting explains its messages.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from torch import Tensor, nn
from tqdm import tqdm

from dr_lib.training import machine
from dr_lib.training.checkpoint import (
    best_so_far,
    check_matches,
    host_copies,
    load_checkpoint,
    module_tensors,
    newest_checkpoint,
    remove_drafts,
    save_checkpoint,
    trained_parameters,
)
from dr_lib.training.log import TrainLog
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


def make_optimizer(trained: dict[str, nn.Parameter], settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW with decay on matrices only; one fused kernel on the devices that have it."""
    matrices = [parameter for parameter in trained.values() if parameter.ndim >= 2]
    vectors = [parameter for parameter in trained.values() if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    fused = next(iter(trained.values())).device.type in ("cpu", "cuda")
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        fused=fused,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Let the next update of every group run at `rate`."""
    for group in optimizer.param_groups:
        group["lr"] = rate


AHEAD = 2


def feed(batches: Callable[[int], Any], indices: Iterable[int], device: torch.device) -> Iterator[tuple[int, Any, int]]:
    """Yield `(index, batch on device, real tokens)` for each index, in order.

    On CUDA a thread makes the next batches while the device computes; on a CPU that would only take cores away from
    the computation. An exception of `batches` surfaces where its batch was due.

    Args:
        batches: gives the micro-batch of an index.
        indices: numbers of the micro-steps.
        device: where the batch goes, if it has a `.to`.
    """

    def load(index: int) -> tuple[int, Any, int]:
        batch = batches(index)
        tokens = real_tokens(batch)
        return index, batch.to(device) if hasattr(batch, "to") else batch, tokens

    if device.type == "cpu":
        yield from map(load, indices)
        return
    with ThreadPoolExecutor(max_workers=1) as pool:
        due: deque[Any] = deque()
        for index in indices:
            due.append(pool.submit(load, index))
            if len(due) > AHEAD:
                yield due.popleft().result()
        while due:
            yield due.popleft().result()


def real_tokens(batch: Any) -> int:
    """Tokens of a batch that are not padding: the sum of every attention mask in it."""
    if hasattr(batch, "attention_mask"):
        return int(batch.attention_mask.sum())
    if is_dataclass(batch):
        return sum(real_tokens(getattr(batch, field.name)) for field in fields(batch))
    return 0


def describe_rows(batch: Any, limit: int = 64) -> str:
    """The rows of a batch in words: `rows 3, 17, 4`, or one such list for each part of the batch."""
    rows = getattr(batch, "rows", None)
    if isinstance(rows, Tensor):
        numbers = rows.tolist()
        shown = ", ".join(map(str, numbers[:limit]))
        return f"rows {shown}" + (f" ... ({len(numbers)} in all)" if len(numbers) > limit else "")
    if is_dataclass(batch):
        named = {field.name: describe_rows(getattr(batch, field.name), limit) for field in fields(batch)}
        return "; ".join(f"{name} {told}" for name, told in named.items() if told)
    return ""


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
        for kind, most in machine.peak_memory().items():
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
    torch.set_num_threads(machine.threads())
    accelerator = Accelerator(
        mixed_precision="no",
        cpu=machine.device().type == "cpu",
        gradient_accumulation_steps=settings.accumulation,
        # A head that an objective leaves out must not stop several processes from agreeing on gradients.
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
    )
    precision = machine.precision(settings.precision, accelerator.device)
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
