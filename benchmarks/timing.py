"""Time several ways of doing one thing in one run, turn by turn, so that a busy machine slows all of them alike."""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

Way = Callable[[], Any]


class Timing(NamedTuple):
    """Wall seconds of one way over all rounds."""

    median: float
    quickest: float


def alternate(ways: dict[str, Way], repeats: int, device: str = "cpu") -> dict[str, Timing]:
    """Time each way over `repeats` rounds, after two rounds that do not count."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 2):
        for name, way in ways.items():
            wait()
            start = time.perf_counter()
            way()
            wait()
            seconds[name].append(time.perf_counter() - start)
    return {name: Timing(statistics.median(found[2:]), min(found[2:])) for name, found in seconds.items()}


def show(title: str, timings: dict[str, Timing], peer: str) -> None:
    """Print milliseconds of each way, median and quickest, and the medians as shares of the peer's."""
    print(f"\n{title}\n  {'':44} median ms  quickest  of {peer}")
    for name, found in timings.items():
        share = found.median / timings[peer].median
        print(f"  {name:44} {1e3 * found.median:9.3f} {1e3 * found.quickest:9.3f}  {share:.3f}")


def start(threads: int) -> None:
    """Fix the threads and the seed, and say what runs."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {threads} thread{'s' * (threads > 1)}")
