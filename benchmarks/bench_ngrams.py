"""Cost of counting n-grams: seconds and memory for growing synthetic collections and MS MARCO.

Words have a Zipf-Mandelbrot distribution; on average every second word is a fixed follower of the
word before, so that n-grams repeat as in text. Words outside the 25,000 most frequent have two
pieces. Counting and importances run on one thread. The cost for 8.8 million passages is
extrapolated from the last two sizes.

    python benchmarks/bench_ngrams.py [--passages 30000 100000 --words 60 --min-count 5]
"""

import argparse
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from dr_lib.materials import count_ngrams, write_importances
from dr_lib.materials.ngrams import BUCKET
from dr_lib.training import machine

MARCO = 8_841_823
KNOWN, WHOLE, VOCABULARY = 4_000_000, 25_000, 30_522
GIB = 2**30


class MadeUpStore:
    """The part of `TokenStore` that counting words needs: pieces on disk, without titles."""

    def __init__(self, folder: Path, passages: int, words: int):
        folder.mkdir()
        self.digest = self.tokenizer = "made up"
        self.vocab_size = VOCABULARY
        self.continuation = np.arange(VOCABULARY) >= WHOLE
        self.title_ids = np.zeros(0, np.uint16)
        self.title_offsets = np.zeros(passages + 1, np.int64)
        random = np.random.default_rng(0)
        draw = zipf(random)
        follower = draw(KNOWN)
        lengths = [np.zeros(1, np.int64)]
        with (folder / "pieces.bin").open("wb") as file:
            for first in range(0, passages, 50_000):
                sizes = random.integers(
                    words // 2, 3 * words // 2 + 1, min(50_000, passages - first)
                )
                drawn = draw(sizes.sum())
                follow_on(drawn, follower, random.random(len(drawn)) < 0.5)
                pieces = 1 + (drawn >= WHOLE)
                ids = np.repeat(drawn % WHOLE, pieces)
                ids[np.cumsum(pieces)[pieces == 2] - 1] = WHOLE + drawn[pieces == 2] // WHOLE
                ids.astype(np.uint16).tofile(file)
                lengths.append(np.add.reduceat(pieces, np.cumsum(sizes) - sizes))
        self.text_ids = np.memmap(folder / "pieces.bin", np.uint16, mode="r")
        self.text_offsets = np.cumsum(np.concatenate(lengths))

    def __len__(self) -> int:
        return len(self.text_offsets) - 1


def zipf(random: np.random.Generator) -> Callable[[int], np.ndarray]:
    """Draw this many words, the word of rank r with a share of 1 / (r + 2.7)."""
    shares = np.cumsum(1 / (np.arange(KNOWN) + 2.7))
    return lambda count: np.searchsorted(shares, random.random(count) * shares[-1])


def follow_on(words: np.ndarray, follower: np.ndarray, follows: np.ndarray) -> None:
    """Replace the words where `follows` is True by the follower of the word before."""
    follows[0] = False
    place = np.arange(len(words))
    since = place - np.maximum.accumulate(np.where(follows, 0, place))
    for step in range(1, since.max() + 1):
        here = np.flatnonzero(since == step)
        words[here] = follower[words[here - 1]]


class Cost(NamedTuple):
    """Wall and processor seconds of a step, and its peak of additional memory."""

    wall: float
    processor: float
    memory: int


def own_memory() -> int:
    """Bytes of this process; on Linux without file pages, which the system can reclaim."""
    memory = psutil.Process().memory_info()
    return memory.rss - getattr(memory, "shared", 0)


def cost_of(step: Callable[[], object]) -> Cost:
    """Run a step, sampling memory every 20 ms."""
    done, most = threading.Event(), [own_memory()]

    def watch() -> None:
        while not done.wait(0.02):
            most[0] = max(most[0], own_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    wall, processor = time.perf_counter(), time.process_time()
    try:
        step()
        return Cost(time.perf_counter() - wall, time.process_time() - processor, most[0])
    finally:
        done.set()
        watcher.join()


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(place: Path, passages: int, words: int, least: int) -> tuple[Cost, Cost]:
    """Count one collection and print the cost."""
    store = MadeUpStore(place / "store", passages, words)
    found = []
    counting = cost_of(lambda: found.append(count_ngrams(store, place / "ngrams", min_count=least)))
    weighing = cost_of(lambda: write_importances(found[0], store, place / "values"))
    print(
        f"{passages:,} passages, {found[0].totals[0]:,} words; tables"
        f" {folder_size(place / 'ngrams') / GIB:.2f} GiB"
    )
    for name, cost in (("counting", counting), ("importances", weighing)):
        print(
            f"  {name:12}{cost.wall:8.0f} s   processor {cost.processor:7.1f} s   memory"
            f" {cost.memory / GIB:.2f} GiB"
        )
    return counting, weighing


def main() -> None:
    """Measure every size and print the extrapolation to MS MARCO."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", type=int, nargs="+", default=[30_000, 100_000])
    parser.add_argument("--words", type=int, default=60, help="mean length of a passage")
    parser.add_argument("--min-count", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where temporary files go")
    options = parser.parse_args()
    sizes, costs = sorted(options.passages), []
    print(f"{machine.machine_facts()['cpu']}, one thread, numpy {np.__version__}")
    for passages in sizes:
        place = Path(tempfile.mkdtemp(dir=options.folder))
        try:
            costs.append(measure(place, passages, options.words, options.min_count))
        finally:
            shutil.rmtree(place)
    if len(sizes) > 1:
        more = (MARCO - sizes[-1]) / (sizes[-1] - sizes[-2])
        print(f"{MARCO:,} passages at that slope")
        for name, before, last in zip(("counting", "importances"), *costs[-2:], strict=True):
            wall, processor, memory = (
                end + (end - start) * more for start, end in zip(before, last, strict=True)
            )
            # Until a collection fills the buffers, memory grows with them and says nothing of
            # larger ones.
            needs = (
                f"   memory {memory / GIB:.1f} GiB" if sizes[-2] * options.words > BUCKET else ""
            )
            print(f"  {name:12}{wall:8.0f} s   processor {processor:7.0f} s{needs}")


if __name__ == "__main__":
    main()
