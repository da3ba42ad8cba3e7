"""Time several implementations in one run, in turn, so that a busy machine slows all of them alike.

One CPU thread is timed in processor seconds, so that other programs matter little; several threads
and GPUs in wall seconds.

`python benchmarks/timing.py _build/speed.json` prints the comparisons saved by a run.
"""

import argparse
import cProfile
import io
import json
import os
import pstats
import statistics
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

from dr_lib.files import write_json
from dr_lib.lab import commit
from dr_lib.training import machine

Way = Callable[[], Any]
HOTTEST = 12  # functions of a profile
HEADING = "time as a share of the peer's"


class Timing(NamedTuple):
    """Seconds of one implementation over all rounds."""

    median: float
    quickest: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Timing":
        """Seconds of the rounds after the warm-up."""
        return cls(statistics.median(seconds), min(seconds))


def clock(device: str = "cpu") -> Callable[[], float]:
    """The clock: processor time for one CPU thread, else wall time."""
    return (
        time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    )


def alternate(
    ways: dict[str, Way], repeats: int, device: str = "cpu", warm: int = 2
) -> dict[str, Timing]:
    """Time each implementation over `repeats` rounds, after `warm` warm-up rounds."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    now, seconds = clock(device), {name: [] for name in ways}
    for _ in range(repeats + warm):
        for name, way in ways.items():
            wait()
            start = now()
            way()
            wait()
            seconds[name].append(now() - start)
    return {name: Timing.of(found[warm:]) for name, found in seconds.items()}


def show(title: str, timings: dict[str, Timing], peer: str) -> None:
    """Print milliseconds of each implementation, median and minimum, and the medians as shares of
    the peer's.
    """
    print(f"\n{title}\n  {'':44} median ms  quickest  of {peer}")
    for name, found in timings.items():
        share = found.median / timings[peer].median
        print(
            f"  {name:44} {1e3 * found.median:9.3f} {1e3 * found.quickest:9.3f}  {share:.3f}",
            flush=True,
        )


def quickest_of(timings: dict[str, Timing], start: str) -> str:
    """The implementation with the smallest median among those whose name begins with `start`."""
    return min(
        (name for name in timings if name.startswith(start)), key=lambda name: timings[name].median
    )


def missed(limit: float, timings: dict[str, Timing], ours: str, peer: str) -> bool:
    """Whether ours takes a larger share of the peer's time than the target."""
    return timings[ours].median > limit * timings[peer].median


def print_profile(way: Way) -> None:
    """Print the hottest functions of one more round, by their own time."""
    profile = cProfile.Profile()
    profile.runcall(way)
    told = io.StringIO()
    pstats.Stats(profile, stream=told).strip_dirs().sort_stats("tottime").print_stats(HOTTEST)
    print(told.getvalue()[told.getvalue().find("   ncalls") :].rstrip(), flush=True)


def seconds_of(way: Way, repeats: int = 7) -> float:
    """Seconds of the fastest of some rounds."""
    return alternate({"": way}, repeats, warm=1)[""].quickest


@cache
def multiply_adds(bf16: bool = True) -> float:
    """Multiply-adds per second, measured on a product of square matrices, in bfloat16 on request
    if that is faster.
    """
    size = 1024
    kinds = [torch.float32, torch.bfloat16][: 1 + (bf16 and machine.has_bf16(torch.device("cpu")))]
    squares = [torch.randn(size, size).to(kind) for kind in kinds]
    return size**3 / min(seconds_of(lambda square=square: square @ square) for square in squares)


@cache
def bandwidth() -> float:
    """Bytes read per second, measured on more data than fit into a processor's caches."""
    numbers = torch.zeros(2**25)
    return 4 * len(numbers) / seconds_of(numbers.max)


@cache
def draws() -> float:
    """Random numbers of 64 bits per second."""
    numbers, source = torch.empty(2**18, dtype=torch.int64), torch.Generator()
    return len(numbers) / seconds_of(lambda: numbers.random_(-(2**63), None, generator=source))


def encoder_work(
    layers: int, hidden: int, lengths: Iterable[int], one_position: bool = False
) -> float:
    """Multiply-adds of a BERT's layers over sequences of some lengths; if only one position is
    read, the last layer counts for that one.
    """
    work = 0.0
    for length in lengths:
        whole = length * (12 * hidden**2 + 2 * length * hidden)
        last = length * 2 * hidden**2 if one_position else whole  # keys and values
        work += (layers - 1) * whole + last
    return work


def keep(
    path: Path | None,
    what: str,
    limit: float,
    timings: dict[str, Timing],
    ours: str,
    peer: str,
    way: Way | None = None,
    least: float | None = None,
) -> None:
    """Add one comparison to a file that `main` prints: name, target, measured share, and the two
    implementations.

    If the target is missed, the profile of ours is printed.

    Args:
        path: the file, created if missing; None keeps nothing.
        what: name of the row.
        limit: target: the largest share of the peer's time.
        timings: of all implementations.
        ours, peer: the two that are compared.
        way: our implementation, run again for the profile; None prints none.
        least: seconds of the bare work at the measured speed of multiply-adds, memory or random
            numbers.
    """
    if path is None:
        return
    if way and missed(limit, timings, ours, peer):
        print(f"{what}: more than {limit} of {peer}; where {ours} spends its time:")
        print_profile(way)
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    shares = {
        f"by_{name}": getattr(timings[ours], name) / getattr(timings[peer], name)
        for name in Timing._fields
    }
    row = {"what": what, "wanted": limit, **shares, "ours": ours, "peer": peer}
    row |= {} if least is None else {"at_least": least / timings[peer].median}
    seconds = {name: found._asdict() for name, found in timings.items()}
    host = {name: fact for name, fact in machine.machine_facts().items() if name != "gpus"}
    facts = {
        "date": time.strftime("%Y-%m-%d"),
        "load": round(psutil.getloadavg()[0], 1),
        "commit": commit(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [other for other in rows if other["what"] != what] + [row | {"seconds": seconds} | facts]
    write_json(path, {"machine": host, "threads": torch.get_num_threads(), "rows": rows})


def start(threads: int) -> None:
    """Set threads and seed, and print what runs."""
    os.environ["DR_THREADS"] = str(threads)  # a training uses this number
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {threads} thread{'s' * (threads > 1)}")


def table(found: dict) -> str:
    """One comparison per line: shares of the peer's time by medians and by fastest rounds, and
    whether the target is met.

    "At least" is the time of the bare work at the speed of this machine: multiply-adds, memory, or
    random numbers.
    """
    rows, machine = found["rows"], found["machine"]
    dates, loads = sorted({row["date"] for row in rows}), [row["load"] for row in rows]
    width = max(len(row["what"]) for row in rows)
    lines = [
        (
            f"{machine['cpu']}, {found['threads']} thread(s), torch {machine['versions']['torch']};"
            f" {' to '.join(dates)}"
        ),
        f"load average of the machine during the run: {min(loads)} to {max(loads)}",
        "",
        f"{HEADING:{width}}  wanted  median  quickest  at least",
    ]
    for row in rows:
        bound = f"{row['at_least']:.3f}" if "at_least" in row else ""
        enough = "met" if row["by_median"] <= row["wanted"] else "not met"
        lines.append(
            f"{row['what']:{width}}  {row['wanted']:6.2f}  {row['by_median']:6.2f} "
            f" {row['by_quickest']:8.2f}  {bound:>8}  {enough}"
        )
        lines.append(f"{'':{width}}  {row['ours']} / {row['peer']}")
    return "\n".join(lines)


def main() -> None:
    """Print the table of targets and results."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("file", type=Path)
    print(table(json.loads(parser.parse_args().file.read_text())))


if __name__ == "__main__":
    main()
