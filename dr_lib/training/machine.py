"""Capabilities of the machine: threads, processes, devices, precision, and facts for records.

No fact names a user, host or folder. Page: reference/status.
"""

import copy
import os
import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from queue import Queue
from typing import Any, Literal

import psutil
import torch
from torch import nn

from dr_lib.errors import InputError
from dr_lib.stages import versions

try:
    import resource
except ImportError:  # Windows
    resource = None


def threads() -> int:
    """Number of threads for torch: `DR_THREADS`, else `OMP_NUM_THREADS`, else the physical cores
    available to this process.

    Raises:
        InputError: the variable is not a whole number above 0.
    """
    if number := _number_in("DR_THREADS") or _number_in("OMP_NUM_THREADS"):
        return number
    allowed = allowed_cores()
    return max(1, min(psutil.cpu_count(logical=False) or allowed, allowed))


def processes() -> int:
    """Number of processes that train together: `DR_PROCESSES`, else 1.

    Raises:
        InputError: the variable is not a whole number above 0, or there are fewer GPUs.
    """
    wanted = _number_in("DR_PROCESSES") or 1
    room = {"cpu": wanted, "cuda": torch.cuda.device_count(), "mps": 1}[device().type]
    if wanted > room:
        problem = f"{wanted} processes, but {room} {device().type.upper()} device(s)"
        raise InputError(problem, where="DR_PROCESSES", fix="Each process needs one of its own.")
    return wanted


def _number_in(variable: str) -> int | None:
    """The positive integer in an environment variable; None if it is not set."""
    text = os.environ.get(variable)
    if text and (not text.isdecimal() or int(text) < 1):
        raise InputError(
            f"{text!r} is not a whole number above 0", where=variable, fix="Give 1 or more."
        )
    return int(text) if text else None


def allowed_cores() -> int:
    """Cores that the scheduler and a container's quota (Linux) grant to this process."""
    granted = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    quota = Path("/sys/fs/cgroup/cpu.max")
    if quota.is_file():
        share, period = quota.read_text().split()
        if share != "max":
            granted = min(granted, max(1, int(share) // int(period)))
    return granted


def device() -> torch.device:
    """The device to compute on: `DR_DEVICE` (`cpu`, `cuda` or `mps`), else CUDA if available, else
    the CPU.

    Apple's GPU (`mps`) is used only on request: it computes in float32, and is not faster than the
    CPU for small models.
    """
    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    wanted = os.environ.get("DR_DEVICE") or ("cuda" if present["cuda"] else "cpu")
    if wanted not in present:
        fix = "Give cpu, cuda or mps, or leave it out."
        raise InputError(f"unknown device {wanted!r}", where="DR_DEVICE", fix=fix)
    if not present[wanted]:
        fix = "Leave it out to compute on the CPU."
        raise InputError(f"torch sees no {wanted.upper()} device", where="DR_DEVICE", fix=fix)
    return torch.device(wanted)


def available_devices() -> list[torch.device]:
    """The devices for encoding, scoring and search: as many GPUs as processes train together
    (`processes`); in one of several processes, or without CUDA, its own device.
    """
    here = device()
    if here.type != "cuda" or "RANK" in os.environ:
        return [here]
    return [torch.device("cuda", number) for number in range(processes())]


def device_name(where: torch.device) -> str:
    """The name of a device in a log."""
    return torch.cuda.get_device_name(where) if where.type == "cuda" else where.type


@cache
def _cpu_facts() -> dict[str, str]:
    """Name and instruction sets of the CPU from /proc/cpuinfo; empty if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    return {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }


def _cpu_flags() -> set[str]:
    """Instruction sets of the CPU, called `Features` on Arm."""
    return set(f"{_cpu_facts().get('flags', '')} {_cpu_facts().get('Features', '')}".split())


def has_bf16(where: torch.device) -> bool:
    """True where bf16 products run in hardware: AVX-512 bf16, AMX, Arm's bf16, or a CUDA device
    that has them.
    """
    if where.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return where.type == "cpu" and bool(_cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"})


def precision(
    requested: Literal["auto", "bf16", "fp32"], where: torch.device
) -> Literal["bf16", "fp32"]:
    """The precision to compute in.

    Args:
        requested: `"auto"` means bf16 if the hardware supports it.
        where: the device of the computation.

    Raises:
        InputError: bf16 was requested on a CUDA device without it. (A CPU without it computes it
            slowly but correctly.)

    Example:
        >>> precision("fp32", torch.device("cpu"))
        'fp32'
    """
    if requested == "auto":
        return "bf16" if has_bf16(where) else "fp32"
    if requested == "bf16" and where.type == "cuda" and not has_bf16(where):
        raise InputError("this GPU has no bf16", where="precision", fix="Ask for fp32 or auto.")
    return requested


FROZEN = ("cuda",)
"""Device types on which models have bfloat16 weights for inference."""


def frozen_precision(
    requested: Literal["auto", "bf16", "bf16_weights", "fp32"], where: torch.device
) -> Literal["bf16", "bf16_weights", "fp32"]:
    """The precision for inference: as `precision`, but "auto" uses bfloat16 weights on a GPU, where
    autocast would cast states and weights in every layer.

    Example:
        >>> frozen_precision("bf16_weights", torch.device("cpu"))
        'bf16_weights'
    """
    if requested == "bf16_weights":
        return requested
    chosen = precision(requested, where)
    whole = requested == "auto" and chosen == "bf16" and where.type in FROZEN
    return "bf16_weights" if whole else chosen


def _device_of(model: nn.Module) -> torch.device:
    """The device of a model's weights; the CPU if it has none."""
    return next((weight.device for weight in model.parameters()), torch.device("cpu"))


@contextmanager
def evaluating(model: nn.Module, kind: str) -> Iterator[nn.Module]:
    """A model without gradients, in evaluation mode; the original's modes are restored afterwards.

    Args:
        model: its modules may be in any mode.
        kind: from `precision` or `frozen_precision`; for "bf16_weights" a copy is rounded, by its
            own method `rounded` if it has one. If that returns None, "bf16" is used.
    """
    device, modes = (_device_of(model), [(module, module.training) for module in model.modules()])
    twin = _rounded(model) if kind == "bf16_weights" else None
    halved = kind == "bf16" or (kind == "bf16_weights" and twin is None)
    autocast = torch.autocast(device.type, torch.bfloat16) if halved else nullcontext()
    try:
        with autocast, torch.inference_mode():
            yield (model if twin is None else twin).eval()
    finally:
        for module, training in modes:
            module.training = training


def _rounded(model: nn.Module) -> nn.Module | None:
    """A copy with weights in bfloat16; None if the model does not support it."""
    if hasattr(model, "rounded"):
        return model.rounded()
    return copy.deepcopy(model).to(torch.bfloat16)


@contextmanager
def spread(
    model: nn.Module, kind: str, devices: Sequence[torch.device] | None = None
) -> Iterator[Callable[[Callable[[nn.Module, Any], Any], Iterable[Any]], Iterator[Any]]]:
    """A model without gradients (`evaluating`) on several devices at once.

    Args:
        model: computes on its own device, or as a copy on each of several devices.
        kind: as in `evaluating`.
        devices: None takes `available_devices` if the model is on a GPU.

    Returns:
        `work(function, items)`: `function(model, item)` of each item, in order. Results do not
        depend on the number of copies.

    Example:
        >>> with spread(nn.Identity(), "fp32", [torch.device("cpu")] * 2) as work:
        ...     list(work(lambda model, item: model(item) + 1, [1, 2, 3]))
        [2, 3, 4]
    """
    here = _device_of(model)
    if devices is None:
        devices = available_devices() if here.type == "cuda" else [here]
    if len(devices) == 1:
        with evaluating(model, kind) as forward:
            yield lambda function, items: (function(forward, item) for item in items)
        return
    if kind == "bf16_weights":
        twin = _rounded(model)
        model, kind = (model, "bf16") if twin is None else (twin, "fp32")
    copies: Queue[nn.Module] = Queue()
    for place in devices:
        copies.put(copy.deepcopy(model).to(place))

    def call(function: Callable, item: Any) -> Any:
        mine = copies.get()
        place = _device_of(mine)
        current = torch.cuda.device(place) if place.type == "cuda" else nullcontext()
        try:
            with current, evaluating(mine, kind) as forward:
                return function(forward, item)
        finally:
            copies.put(mine)

    with ThreadPoolExecutor(len(devices)) as pool:
        yield lambda function, items: in_order(
            pool, partial(call, function), items, 2 * len(devices)
        )


def in_order(
    pool: ThreadPoolExecutor, function: Callable, items: Iterable[Any], ahead: int
) -> Iterator[Any]:
    """`function(item)` of each item, in order, computed by a pool up to `ahead` items in advance;
    an exception surfaces where its result was due.
    """
    due: deque[Future] = deque()
    for item in items:
        due.append(pool.submit(function, item))
        if len(due) > ahead:
            yield due.popleft().result()
    while due:
        yield due.popleft().result()


def machine_facts() -> dict[str, Any]:
    """Facts about the machine and its software for records; no host name, user name or path.

    Returns:
        `cpu`, `cores`, `threads`, `memory_gib`, `gpus` (names), `bf16`, `system`, and `versions` by
        package.
    """
    return {
        "cpu": _cpu_facts().get("model name") or platform.processor() or platform.machine(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count() or 1,
        "threads": threads(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "bf16": has_bf16(device()),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions(),
    }


def peak_memory() -> dict[str, int]:
    """Peak memory in bytes: `host`, of this process so far, and `gpu`, since the last reset, if
    CUDA was used.
    """
    if resource is None:
        peak = {"host": psutil.Process().memory_info().peak_wset}
    else:
        unit = 1 if platform.system() == "Darwin" else 1024
        peak = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        peak["gpu"] = torch.cuda.max_memory_allocated()
    return peak


def gpu_memory() -> int | None:
    """Memory of the GPU in bytes; None without a GPU."""
    return torch.cuda.get_device_properties(0).total_memory if device().type == "cuda" else None


def encoding_budget() -> int:
    """Tokens encoded at a time: what fits into a CPU's caches, or fills a GPU."""
    return 4_096 if device().type == "cpu" else 131_072


@cache
def most_operations(where: torch.device, kind: str) -> float:
    """Floating-point operations per second of a large matrix product, the best of three.

    An upper bound for training, whose share of it is the utilisation (MFU). Data sheets promise
    more.
    """
    size = 1024 if where.type == "cpu" else 8192
    # random numbers: with constant ones a GPU draws less power and is faster than on real data
    matrix = torch.randn(size, size, generator=torch.Generator(where).manual_seed(0), device=where)
    matrix = matrix.to(torch.bfloat16 if kind == "bf16" else torch.float32)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        (matrix @ matrix)[0, 0].item()  # synchronises
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def bert_work(
    layers: int, hidden: int, vocabulary: int, share_predicted: float = 1.0, length: int = 128
) -> float:
    """Floating-point operations of one training step per token (forward and backward) of a BERT
    with head.

    Kaplan et al. 2020, section 2.1: a forward pass takes about two operations per weight and token,
    a backward pass twice that. Attention scores and vocabulary logits are included, since they
    matter in small models.

    Args:
        layers, hidden, vocabulary: size; the feed-forward part has 4 x `hidden` units.
        share_predicted: share of the positions with vocabulary logits.
        length: sequence length, for the attention scores.

    Example:
        >>> f"{bert_work(12, 768, 30522):.2g}"
        '6.7e+08'
    """
    layer = 12 * hidden**2 + 2 * length * hidden
    head = share_predicted * (hidden**2 + hidden * vocabulary)
    return 6.0 * (layers * layer + head)
