"""The one training loop, for pre-training and fine-tuning alike.

Learning rate and random draws are functions of the step alone (`schedule.py`), so a resumed run
needs no saved state for either. Weights, gradients and moments are fp32; with bf16, autocast covers
the forward pass only. Pages: ideas/bottleneck, practice/troubleshooting.
"""

import math
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from tqdm import tqdm

from dr_lib.errors import InputError, first_line
from dr_lib.files import remove_drafts
from dr_lib.models import compile_layers
from dr_lib.stages import TimeIsUpError, time_is_up
from dr_lib.tokens.store import to_device, widest_float
from dr_lib.training import machine
from dr_lib.training.checkpoint import (
    TrainLog,
    host_copies,
    module_tensors,
    resume,
    save_checkpoint,
    trained_parameters,
)
from dr_lib.training.schedule import TrainSettings, learning_rate, seed_step
from dr_lib.training.watch import WATCHERS, profiling

AHEAD = 2  # batches prepared while a GPU computes
WARM = 2  # eager steps of a shape before its graph is recorded; the first of a run may count FLOPs
MOST_GRAPHS = 64
WITHOUT_PEAK = ("cpu",)  # a few threads' share of a processor's peak says little


class TrainingError(RuntimeError):
    """Training cannot continue: a loss, a gradient norm or a validation score is not finite."""


@dataclass(frozen=True)
class Validation:
    """How to validate a model while it is trained (DPR-PAQ, section 3.3). Page of the book:
    ideas/evaluation.

    Attributes:
        score: module -> a number, higher is better. It may leave the module in eval mode; it must
            not draw random numbers.
        every: updates between validations; the last update is always validated.
        keep: "best" ends with the weights of the highest score (the first on ties), "last" with
            those of the last update.
    """

    score: Callable[[nn.Module], float]
    every: int
    keep: Literal["best", "last"] = "best"


def train(
    module: nn.Module,
    batches: Callable[[int], Any],
    settings: TrainSettings,
    folder: Path,
    *,
    title: str,
    progress: bool = True,
    validation: Validation | None = None,
    together: bool = False,
) -> TrainLog:
    """Train `module` in place, from the newest checkpoint in `folder` if there is one.

    A run that is interrupted anywhere and restarted ends with the same weights, bit for bit, as an
    uninterrupted one on the same processor with the same number of threads; on a GPU up to the
    order of floating-point sums. Several processes together do what one would do, up to rounding
    (and, where `together`, dropout, masks and coCondenser's mean over masked tokens, which are per
    process); if `DR_PROCESSES` started them, only the first returns.

    Args:
        module: `module(batch, generator)` returns a dict with `loss` (a scalar with gradient, a
            mean over the micro-batch, weighted by its `share` when accumulated) and any other
            scalars to log. Frozen parameters are neither trained nor saved. If it has a method
            `before_update(settings, step)`, that is called before each update.
        batches: micro-step -> micro-batch; the same step must always give the same batch.
        settings: steps, learning rate, precision, seed and so on.
        folder: the run's own folder, for checkpoints and `log.json`.
        title: what is trained, for the progress bar and the log.
        progress: show a bar on stderr.
        validation: how to score the model during training, and whether the best or the last weights
            are kept; None does neither.
        together: all processes share every micro-batch, and `batches` gives each its own rows (as
            `EpochSampler` does), because rows are compared across processes. Otherwise whole
            micro-batches are dealt out to the processes.

    Returns:
        The log, earlier parts of the run included. `module` is left in eval mode; torch's global
        generator is left as after the last step.

    Raises:
        InputError: nothing to train, the checkpoint in `folder` was made with other settings or
            another model, or the micro-batches of an update cannot be divided evenly among the
            processes.
        TrainingError: a loss, gradient or validation score is NaN or infinite; the message names
            step and rows.
        TimeIsUpError: the stage's time is up (`stages.until`); there is a checkpoint of the last
            step.

    Example:
        >>> import tempfile, torch
        >>> class Line(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.slope = nn.Parameter(torch.zeros(()))
        ...
        ...     def forward(self, batch, generator):
        ...         return {"loss": (self.slope * batch - 2 * batch).square().mean()}
        >>> line, settings = Line(), TrainSettings(steps=120, learning_rate=0.1, precision="fp32")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = train(
        ...         line,
        ...         lambda step: torch.ones(4),
        ...         settings,
        ...         Path(folder),
        ...         title="line",
        ...         progress=False,
        ...     )
        >>> log.finished, round(line.slope.item(), 1)
        (True, 2.0)
    """
    started = time.perf_counter()
    torch.set_num_threads(machine.threads())
    accelerator = Accelerator(
        # Accelerate would fix one precision for the whole process; a notebook may use several
        mixed_precision="no",
        cpu=machine.device().type == "cpu",
        # A head that an objective does not use must not keep the processes from averaging
        # gradients.
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
    )
    device, is_main = accelerator.device, accelerator.is_main_process
    micro_steps = MicroSteps.of(settings, accelerator, together)
    accelerator.gradient_accumulation_steps = micro_steps.own
    precision = machine.precision(settings.precision, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)  # not that of earlier trainings
    module.to(device).train()
    trained = trained_parameters(module)
    optimizer = make_optimizer(trained, settings)
    meter = Meter(accelerator, TrainLog(title=title, steps=settings.last), noted=started)

    # What a resumed run must agree with.
    identity = {**settings.identity(), "precision": precision, "processes": micro_steps.processes}
    if validation:
        identity["validation"] = {"every": validation.every, "keep": validation.keep}
    if is_main:
        remove_drafts(folder, "checkpoint-*")
        remove_drafts(folder, "log.json")
    earlier, best = resume(folder, module, optimizer, identity)
    if earlier:
        meter.restore(earlier)
    log = meter.log
    if earlier and is_main and device.type == "cpu":
        warn_of_threads(log)
    log.precision, log.device = precision, machine.device_name(device)
    log.processes, log.threads = micro_steps.processes, torch.get_num_threads()
    log.compiled = compiles(settings, device)
    if log.compiled:
        compile_layers(module)
    graphs = replays(settings, device) and not together and micro_steps.processes == 1
    # On one device these are the module and the optimiser unchanged.
    model, stepper = accelerator.prepare(module, optimizer)
    generator = torch.Generator(device)

    def forward_backward(batch: Any, share: float) -> dict[str, Tensor | float]:
        """Accumulate the gradients of a micro-batch; return its scalars."""
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            parts = model(batch, generator)
        # `backward` divides by the accumulation, so that gradients add up to their mean
        accelerator.backward(parts["loss"] if share == 1 else share * parts["loss"])
        # drop the autograd graph of the step
        return {
            name: part.detach() if isinstance(part, Tensor) else part
            for name, part in parts.items()
        }

    micro_step = Graphs(forward_backward, generator) if graphs else forward_backward
    steps = range(log.step + 1, settings.last + 1)
    ready = feed(batches, (index for step in steps for index in micro_steps.at(step)), device)
    shown, asked = progress and is_main, os.environ.get("DR_PROFILE")
    counts = shown and device.type not in WITHOUT_PEAK
    with (
        profiling(asked, title, device) if asked else nullcontext() as profile,
        tqdm(
            total=settings.last, initial=log.step, desc=title, disable=not shown, mininterval=0.5
        ) as bar,
    ):
        for step in steps:
            if profile:
                profile(step)
            rate = learning_rate(settings, step)
            for group in optimizer.param_groups:
                group["lr"] = rate
            if hasattr(module, "before_update"):
                module.before_update(settings, step)
            shares = 0.0
            for _ in micro_steps.at(step):
                index, batch, tokens = next(ready)
                # an incomplete micro-batch is weighted by its share of a full one
                share = share_of(batch) if settings.accumulation > 1 else 1.0
                shares += share
                # dropout, masks and samples do not depend on earlier steps
                seed_step(settings.seed, micro_steps.draw(index), generator)
                with accelerator.accumulate(model), meter.counting(tokens if counts else 0):
                    try:
                        parts = micro_step(batch, share)
                    except torch.OutOfMemoryError as error:
                        raise out_of_memory(title, batch, settings, error) from None
                meter.add(index, parts | {"tokens": tokens})
            if settings.accumulation > 1:
                weigh_gradients(accelerator, trained.values(), shares, micro_steps)
            norm = accelerator.clip_grad_norm_(trained.values(), settings.clip or float("inf"))
            meter.add(index, {"grad_norm": norm})

            is_last = step == settings.last
            ends_row = is_last or step % settings.log_every == 0
            validates = validation is not None and (is_last or step % validation.every == 0)
            saves = is_last or step % settings.checkpoint_every == 0
            # Losses are fetched before the weights change: a bad step leaves every checkpoint
            # untouched, and on a CPU, where every step is checked, the weights too.
            stops = False
            if ends_row or saves or validates or step % fetch_every(device, settings) == 0:
                meter.fetch(partial(not_finite, title, batches, micro_steps))
                bar.set_postfix_str(meter.progress_text(rate), refresh=False)
                stops = out_of_time(accelerator)
            stepper.step()
            stepper.zero_grad(set_to_none=not graphs)
            log.step = step
            if ends_row:
                meter.close_row(step, rate)
                for watch in WATCHERS if is_main else ():
                    watch(log)
            if validates:
                if validate(module, validation, log):
                    best = host_copies(module_tensors(module))
                meter.pause()
            if saves or stops:
                meter.note_totals()
                if is_main:
                    save_checkpoint(
                        folder,
                        step,
                        module,
                        optimizer,
                        settings=identity,
                        progress=meter.state(),
                        best=best,
                    )
                    log.save(folder / "log.json")
                accelerator.wait_for_everyone()
                meter.pause()
            bar.update()
            if stops and not is_last:
                raise TimeIsUpError(
                    f"{title} was stopped after {step:,} of {settings.last:,} steps"
                )
    if is_main:
        # again: a run killed between checkpoint and log has no log
        log.save(folder / "log.json")
    if best and log.finished:
        with torch.no_grad():
            for name, tensor in module_tensors(module).items():
                tensor.copy_(best[name])
    if machine.processes() > 1 and not is_main:
        raise SystemExit  # what follows training, such as saving, is the first process's job
    module.eval()
    return log


@dataclass(frozen=True)
class MicroSteps:
    """The micro-steps of an update, and which of them belong to this process.

    Attributes:
        accumulation: their number over all processes.
        processes, process: how many processes train, and the rank of this one.
        together: all processes share each micro-batch, with rows of their own; otherwise each takes
            whole ones. The number of processes changes who reads a batch, not which batches are
            read.
    """

    accumulation: int
    processes: int
    process: int
    together: bool

    @classmethod
    def of(cls, settings: TrainSettings, accelerator: Accelerator, together: bool) -> Self:
        """The micro-steps of a training; `InputError` if they cannot be divided evenly."""
        processes = accelerator.num_processes
        if not together and settings.accumulation % processes:
            problem = (
                f"{processes} processes cannot share {settings.accumulation} micro-batches of an"
                " update evenly"
            )
            fix = (
                "Make accumulation a multiple of DR_PROCESSES (and tokens_per_batch smaller by as"
                " much)."
            )
            raise InputError(problem, where="accumulation", fix=fix)
        return cls(settings.accumulation, processes, accelerator.process_index, together)

    @property
    def own(self) -> int:
        """How many micro-steps of an update this process has."""
        return len(self.at(1))

    def at(self, step: int) -> range:
        """Numbers of this process's micro-steps in update `step`."""
        first, behind = (step - 1) * self.accumulation, step * self.accumulation
        if self.together:
            return range(first, behind)
        return range(first + self.process, behind, self.processes)

    def draw(self, index: int) -> int:
        """The number that seeds this process's random draws in a micro-step."""
        return index * self.processes + self.process if self.together else index


def not_finite(
    title: str,
    batches: Callable[[int], Any],
    micro_steps: MicroSteps,
    index: int,
    name: str,
    process: int,
) -> str:
    """The message for a number that is not finite: the step and its rows, for which the batch is
    made again.

    Args:
        title: what is trained.
        batches: micro-step -> micro-batch.
        micro_steps: how they are shared out.
        index: micro-step of this process at which `process` had the number.
        name: "loss" or "grad_norm".
        process: the process that has it.
    """
    step, apart = index // micro_steps.accumulation + 1, process - micro_steps.process
    what = "gradient"
    guilty = range((step - 1) * micro_steps.accumulation, step * micro_steps.accumulation)
    if name == "loss":
        what, guilty = "loss", [index if micro_steps.together else index + apart]
    # which only that process can make
    unknown = f"rows of process {process}" if micro_steps.together and apart else ""
    rows = "; ".join(
        f"micro-step {number}: {unknown or describe_rows(batches(number)) or 'rows unknown'}"
        for number in guilty
    )
    way_out = "Lower the learning rate, or look at these rows; the last checkpoint is untouched."
    return f"{title}: the {what} of step {step} is not finite ({rows}). {way_out}"


def warn_of_threads(log: TrainLog) -> None:
    """Warn if a run on a CPU is resumed with another number of threads."""
    threads = torch.get_num_threads()
    if log.threads != threads:
        begun = f"{log.title} goes on with {threads} threads and was begun with {log.threads}"
        result = "its weights will differ in the last digits from an unbroken run's"
        fix = f"For the same bits set DR_THREADS={log.threads}."
        warnings.warn(f"{begun}: {result}. {fix}", RuntimeWarning, stacklevel=3)


def validate(module: nn.Module, validation: Validation, log: TrainLog) -> bool:
    """Log a module's score; return whether its weights are the best so far and to be kept.

    Raises:
        TrainingError: the score is not a finite number.
    """
    score = float(validation.score(module))
    module.train()
    if not math.isfinite(score):
        raise TrainingError(f"{log.title}: the validation score after step {log.step} is {score}")
    is_best = all(score > row["score"] for row in log.validation)
    log.validation.append({"step": log.step, "score": score})
    return validation.keep == "best" and is_best


def out_of_memory(title: str, batch: Any, settings: TrainSettings, error: Exception) -> InputError:
    """The error for a micro-batch that does not fit into memory, with what to change."""
    tokens, accumulation = real_tokens(batch), settings.accumulation
    problem = f"out of memory at a micro-batch of {tokens:,} tokens ({first_line(error)[:160]})"
    fix = (
        f"Make micro-batches half as large (tokens_per_batch {tokens // 2}, or half of"
        f" batch_queries where queries are not compared with each other) and set accumulation to"
        f" {2 * accumulation}; contrastive trainings: set chunk (practice/gpu). The last"
        " checkpoint is untouched."
    )
    return InputError(problem, where=title, fix=fix)


def out_of_time(accelerator: Accelerator) -> bool:
    """Whether time is up for any of the processes: all have to stop after the same step."""
    if accelerator.num_processes == 1:  # no other process to ask, and asking would wait for the GPU
        return time_is_up()
    return bool(
        accelerator.gather(
            torch.tensor([time_is_up()], dtype=torch.int32, device=accelerator.device)
        ).any()
    )


def make_optimizer(trained: dict[str, nn.Parameter], settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019) with decay on matrices only, as in BERT's own training."""
    # Decay pulls weights towards zero, where a norm's scale or a bias need not be.
    matrices = [parameter for parameter in trained.values() if parameter.ndim >= 2]
    vectors = [parameter for parameter in trained.values() if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    # a single kernel, on devices that have it
    fused = next(iter(trained.values())).device.type in ("cpu", "cuda")
    options = {
        "lr": settings.learning_rate,
        "betas": settings.betas,
        "eps": settings.epsilon,
        "fused": fused,
    }
    return torch.optim.AdamW([group for group in groups if group["params"]], **options)


def compiles(settings: TrainSettings, device: torch.device) -> bool:
    """Whether layers are compiled on a device."""
    return settings.compile if isinstance(settings.compile, bool) else device.type == "cuda"


def replays(settings: TrainSettings, device: torch.device) -> bool:
    """Whether micro-steps on a device are CUDA graphs."""
    return settings.compile == "graphs" and device.type == "cuda"


def record(
    step: Callable[[], dict[str, Any]], generator: torch.Generator, pool: Any
) -> tuple[torch.cuda.CUDAGraph, dict[str, Any]]:
    """A CUDA graph of `step`, recorded without running it, and the scalars that each replay fills.

    Args:
        step: reads tensors that are at the same address at each replay.
        generator: draws from it besides the device's default one; each replay draws as both are
            seeded then.
        pool: memory pool shared with other graphs; None makes one.
    """
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    # thread-local: another thread pins the next batches meanwhile
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        scalars = step()
    return graph, scalars


class Graphs:
    """Micro-steps on a GPU as CUDA graphs, one per batch shape: a replay launches all kernels of a
    step at once, forward and backward, so the device does not wait for the host.

    The first `WARM` steps of a shape run as usual: kernels are compiled, and gradients are
    allocated, whose addresses must not change (`zero_grad(set_to_none=False)`). Then the step is
    recorded, and later batches of this shape are copied into the recorded batch. A replay repeats
    what the host decided while recording, so a recorded batch has no host arrays
    (`TokenBatch.lengths`). Shapes beyond `MOST_GRAPHS` run as usual. Page: reference/speed.

    Args:
        step: `step(batch, share)` accumulates gradients and returns scalars without gradient.
        generator: what it draws from.
    """

    def __init__(
        self, step: Callable[[Any, float], dict[str, Any]], generator: torch.Generator
    ) -> None:
        self.step, self.generator, self.pool = step, generator, None
        self.seen: Counter[Any] = Counter()
        self.graphs: dict[Any, tuple[Any, torch.cuda.CUDAGraph, dict[str, Any]]] = {}

    def __call__(self, batch: Any, share: float) -> dict[str, Any]:
        """The scalars of `step(batch, share)`."""
        shape = tuple(
            (part.shape, part.dtype) if isinstance(part, Tensor) else part for part in leaves(batch)
        )
        self.seen[shape] += 1
        if shape not in self.graphs:
            if self.seen[shape] <= WARM or len(self.graphs) == MOST_GRAPHS:
                return self.step(batch, share)
            place = copied(batch)
            graph, scalars = record(lambda: self.step(place, share), self.generator, self.pool)
            self.pool = graph.pool()
            self.graphs[shape] = place, graph, scalars
        place, graph, scalars = self.graphs[shape]
        for target, part in zip(leaves(place), leaves(batch), strict=True):
            if isinstance(part, Tensor):
                target.copy_(part)
        graph.replay()
        # the next replay overwrites its results
        return {
            name: part.clone() if isinstance(part, Tensor) else part
            for name, part in scalars.items()
        }


def leaves(batch: Any) -> Iterator[Any]:
    """Tensors and values of a batch and of nested batches; None in place of host arrays."""
    if is_dataclass(batch):
        for part in fields(batch):
            yield from leaves(getattr(batch, part.name))
    else:
        yield None if isinstance(batch, np.ndarray) else batch


def copied(batch: Any) -> Any:
    """A copy of a batch on its device, without host arrays."""
    if is_dataclass(batch):
        return replace(batch, **{p.name: copied(getattr(batch, p.name)) for p in fields(batch)})
    return batch.clone() if isinstance(batch, Tensor) else next(leaves(batch))


def fetch_every(device: torch.device, settings: TrainSettings) -> int:
    """Updates between two checks of the losses: 1 on a CPU; on a GPU every check is a
    synchronisation.
    """
    return 1 if device.type == "cpu" else settings.log_every


def feed(
    batches: Callable[[int], Any], indices: Iterable[int], device: torch.device
) -> Iterator[tuple[int, Any, int]]:
    """Yield `(index, batch on device, real tokens)` for each index, in order.

    For a GPU, a thread prepares the next batches meanwhile; on a CPU it would only take cores from
    the computation, and Apple's GPUs accept work from one thread only. An exception in `batches`
    surfaces where its batch was due.

    Args:
        batches: index -> micro-batch.
        indices: numbers of the micro-steps.
        device: where the tensors of a batch go.
    """

    def load(index: int) -> tuple[int, Any, int]:
        batch = batches(index)
        tokens = real_tokens(batch)
        return index, to_device(batch, device), tokens

    if device.type in ("cpu", "mps"):
        yield from map(load, indices)
        return
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield from machine.in_order(pool, load, indices, AHEAD)


def real_tokens(batch: Any) -> int:
    """Tokens of a batch that are not padding: the sum of every attention mask in it."""
    if hasattr(batch, "attention_mask"):
        return int(batch.attention_mask.sum())
    return (
        sum(real_tokens(getattr(batch, part.name)) for part in fields(batch))
        if is_dataclass(batch)
        else 0
    )


def share_of(batch: Any) -> float:
    """A batch's share of a full micro-batch, 1 if it does not say."""
    if hasattr(batch, "share"):
        return batch.share
    parts = [getattr(batch, part.name) for part in fields(batch)] if is_dataclass(batch) else []
    return min(map(share_of, parts), default=1.0)


def weigh_gradients(
    accelerator: Accelerator,
    trained: Iterable[nn.Parameter],
    shares: float,
    micro_steps: MicroSteps,
) -> None:
    """Turn gradients that were summed with shares, and divided by the number of micro-batches, into
    the mean weighted by shares. If all micro-batches are full, nothing changes.

    Args:
        accelerator: of this training.
        trained: parameters with gradients.
        shares: sum over this process's micro-batches of the update.
        micro_steps: how they are divided among processes.
    """
    factor: Tensor | float = micro_steps.own / shares
    if micro_steps.processes > 1 and not micro_steps.together:
        # gradients are the mean over processes, each of which has shares of its own
        summed = torch.tensor(shares, dtype=torch.float32, device=accelerator.device)
        factor = micro_steps.own / accelerator.reduce(summed, reduction="mean")
    elif factor == 1:
        return
    for parameter in trained:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)


def describe_rows(batch: Any, limit: int = 64) -> str:
    """The rows of a batch in words: `rows 3, 17, 4`, or one such list for each part of the
    batch.
    """
    rows = getattr(batch, "rows", None)
    if isinstance(rows, Tensor):
        more = f" ... ({len(rows)} in all)" if len(rows) > limit else ""
        return f"rows {', '.join(map(str, rows[:limit].tolist()))}{more}"
    if is_dataclass(batch):
        named = {
            part.name: describe_rows(getattr(batch, part.name), limit) for part in fields(batch)
        }
        return "; ".join(f"{name} {text}" for name, text in named.items() if text)
    return ""


class Operations(TorchDispatchMode):
    """Counts the floating-point operations of matrix products, with torch's formulas."""

    total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if count := flop_registry.get(func.overloadpacket):
            self.total += count(*args, **(kwargs or {}), out_val=result)
        return result


@dataclass
class Meter:
    """Losses on their way to the log, and the check that they are finite.

    Scalars stay on the device until they are fetched, so a GPU is not synchronised at every step;
    they are kept step by step, so that an error names the first bad step and not the one where it
    was noticed.

    Attributes:
        row: name -> its values in the micro-steps since the last row of the log.
        tokens: real tokens since the last row, all processes.
        seconds: seconds of training since the last row.
        operations: floating-point operations per token, of the first batch that was counted.
        noted: time up to which the log's wall time is counted.
    """

    accelerator: Accelerator
    log: TrainLog
    noted: float
    row: dict[str, list[float]] = field(default_factory=dict)
    tokens: int = 0
    seconds: float = 0.0
    operations: float = 0.0
    _waiting: list[tuple[int, str, Tensor]] = field(default_factory=list)
    _mark: float = field(default_factory=time.perf_counter)

    @contextmanager
    def counting(self, tokens: int) -> Iterator[None]:
        """Count the operations of a batch of this many tokens, forward and backward, if none was
        counted yet.
        """
        if self.operations or not tokens:
            yield
            return
        # Compiled code is not counted, and what stays eager in such a mode is never compiled.
        with torch.compiler.set_stance("force_eager"), Operations() as counted:
            yield
        self.operations = counted.total / tokens

    def add(self, index: int, scalars: dict[str, Tensor | float]) -> None:
        """Note the scalars of micro-step `index`."""
        device = self.accelerator.device
        wide = widest_float(device)
        for name, value in scalars.items():
            if isinstance(value, Tensor):
                scalar = value.detach().to(wide)
            else:  # filled on the device: a copy from the host would synchronise a GPU
                scalar = torch.full((), value, dtype=wide, device=device)
            self._waiting.append((index, name, scalar))

    def fetch(self, explain: Callable[[int, str, int], str]) -> None:
        """Bring all waiting scalars to the host, as means over the processes, and add them to the
        open row.

        Args:
            explain: micro-step and name of a value that is not finite, and its process -> the
                message.

        Raises:
            TrainingError: a loss or gradient norm is NaN or infinite.
        """
        # One stack (a row per process), one transfer: fetching scalars one by one would synchronise
        # a GPU for each.
        of_each = self.accelerator.gather(
            torch.stack([value for _, _, value in self._waiting])[None]
        ).tolist()
        for (index, name, _), *values in zip(self._waiting, *of_each, strict=True):
            value = sum(values) / len(values)
            if name in ("loss", "grad_norm") and not math.isfinite(value):
                raise TrainingError(
                    explain(index, name, [math.isfinite(number) for number in values].index(False))
                )
            if name == "tokens":
                self.tokens += round(sum(values))
            else:
                self.row.setdefault(name, []).append(value)
        self._waiting.clear()
        now = time.perf_counter()
        self.seconds, self._mark = self.seconds + now - self._mark, now

    def rate(self) -> float:
        """Real tokens per second in the open row."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    def progress_text(self, lr: float) -> str:
        """The open row in a few words, for a progress bar."""
        losses = self.row["loss"]
        text = f"loss {sum(losses) / len(losses):.3f}, lr {lr:.1e}, {self.rate():,.0f} tokens/s"
        if not self.operations:
            return text
        most = (
            machine.most_operations(self.accelerator.device, self.log.precision)
            * self.accelerator.num_processes
        )
        self.pause()  # the peak was measured, once
        return f"{text}, MFU {self.rate() * self.operations / most:.0%}"

    def close_row(self, step: int, lr: float) -> None:
        """End the open row at update `step` and append it to the log."""
        means = {name: sum(values) / len(values) for name, values in self.row.items()}
        self.log.rows.append({"step": step, **means, "lr": lr, "tokens_per_second": self.rate()})
        self.log.tokens += self.tokens
        self.log.train_seconds += self.seconds
        self.row, self.tokens, self.seconds = {}, 0, 0.0

    def pause(self) -> None:
        """Exclude what was done since the last fetch from the seconds of training."""
        self._mark = time.perf_counter()

    def note_totals(self) -> None:
        """Bring the log's wall time and peak memory up to now."""
        now = time.perf_counter()
        self.log.wall_seconds, self.noted = self.log.wall_seconds + now - self.noted, now
        for kind, most in machine.peak_memory().items():
            self.log.peak_memory[kind] = max(most, self.log.peak_memory.get(kind, 0))

    def state(self) -> dict[str, Any]:
        """Log and open row as plain JSON, for a checkpoint."""
        open_row = {"row": self.row, "tokens": self.tokens, "seconds": self.seconds}
        return {"log": self.log.as_dict(), "open_row": open_row}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the log and the open row of a checkpoint."""
        self.log, row = TrainLog.from_dict(state["log"]), state["open_row"]
        self.row, self.tokens, self.seconds = row["row"], row["tokens"], row["seconds"]
        if not self.log.finished:
            self.log.resumed_at.append(self.log.step)
