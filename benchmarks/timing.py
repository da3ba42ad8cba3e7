"""Time several ways of doing one thing in one run, turn by turn, so that a busy machine slows all of them alike."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Way = Callable[[], Any]


def alternate(ways: dict[str, Way], repeats: int, device: str = "cpu") -> dict[str, float]:
    """Median wall seconds of each way over `repeats` rounds, after two rounds that do not count."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 2):
        for name, way in ways.items():
            wait()
            start = time.perf_counter()
            way()
            wait()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(found[2:]) for name, found in seconds.items()}


def show(title: str, seconds: dict[str, float], peer: str) -> None:
    """Print milliseconds of each way and its share of the peer's."""
    print(f"\n{title}")
    for name, found in seconds.items():
        print(f"  {name:44} {1e3 * found:9.3f} ms   {found / seconds[peer]:7.3f} of {peer}")


def start(threads: int) -> None:
    """Fix the threads and the seed, and say what runs."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {threads} thread{'s' * (threads > 1)}")
