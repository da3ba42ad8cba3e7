"""Observing a training without changing its results: callbacks that read its log, and a profiler.
Page: practice/gpu.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.profiler import ProfilerActivity, profile

from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.files import write_text
from dr_lib.training.checkpoint import TrainLog

Watcher = Callable[[TrainLog], None]
WATCHERS: list[Watcher] = []
LARGEST = 20  # rows of a profile's table


@contextmanager
def watching(watch: Watcher) -> Iterator[None]:
    """Call `watch(log)` after each row of the log of every training in a block, including those of
    stages and studies.

    The newest row is `log.rows[-1]`. An exception in `watch` ends the training, which a later call
    resumes. With several processes only the first one calls.

    Example:
        >>> import tempfile, torch
        >>> from pathlib import Path
        >>> from dr_lib.training import TrainSettings, train
        >>> class Line(torch.nn.Linear):
        ...     def forward(self, batch, generator):
        ...         return {"loss": super().forward(batch).square().mean()}
        >>> settings, seen = TrainSettings(steps=4, learning_rate=0.1, log_every=2), []
        >>> with tempfile.TemporaryDirectory() as name, watching(
        ...     lambda log: seen.append(log.step)
        ... ):
        ...     where = {"folder": Path(name), "title": "line", "progress": False}
        ...     _ = train(Line(2, 1), lambda step: torch.ones(1, 2), settings, **where)
        >>> seen
        [2, 4]
    """
    WATCHERS.append(watch)
    try:
        yield
    finally:
        WATCHERS.remove(watch)


@contextmanager
def profiling(asked: str, title: str, device: torch.device) -> Iterator[Callable[[int], None]]:
    """Profile the training steps given by `DR_PROFILE` as a slice: `10:13` is 10, 11 and 12.

    Writes `trace.json`, for Perfetto or chrome://tracing, and `table.txt`, with the most expensive
    operators, to `profiles/<title>-<steps>` in the cache. Profiled steps are slower.

    Returns:
        A function to call before each step with its number.

    Raises:
        InputError: the variable is not such a slice.
    """
    bounds = re.fullmatch(r"(\d+):(\d+)", asked)
    if not bounds or not 0 < int(bounds[1]) < int(bounds[2]):
        fix = "Give the first step and the one after the last, such as 10:13."
        raise InputError(f"{asked!r} is not a range of steps", where="DR_PROFILE", fix=fix)
    first, end = int(bounds[1]), int(bounds[2])
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    running: list[profile] = []

    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()
        (trace,) = running
        running.clear()
        trace.stop()
        words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        folder = places.cache_root() / "profiles" / f"{words}-{first}-{end}"
        folder.mkdir(parents=True, exist_ok=True)
        trace.export_chrome_trace(str(folder / "trace.json"))
        by = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
        table = trace.key_averages().table(sort_by=by, row_limit=LARGEST)
        write_text(folder / "table.txt", f"{title}, steps {first} to {end - 1}\n{table}\n")

    def at(step: int) -> None:
        if running and step >= end:
            finish()
        if step == first:
            running.append(profile(activities=kinds))
            running[0].start()

    try:
        yield at
    finally:
        if running:
            finish()
