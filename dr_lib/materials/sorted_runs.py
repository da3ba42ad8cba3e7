"""Count how often each of many int64 keys occurs, however many there are: sort what fits, merge what was sorted.

A full buffer is sorted in place, equal keys become one key and a count, and the run goes to disk. In the end the runs
are merged range by range: limits between ranges come from evenly spaced keys of all runs, so that no range is larger
than half a buffer, however unevenly the keys are spread. Page: ideas/masking.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

COUNT = np.uint32


class SortedRuns:
    """Takes keys in any order, gives them back sorted, each once, with its count.

    Args:
        folder: where the runs lie until `discard`.
        buffer: keys held in memory; the peak is some 40 bytes for each.

    Example:
        >>> import tempfile
        >>> runs = SortedRuns(Path(tempfile.mkdtemp()), buffer=6)
        >>> runs.add(np.array([7, 5, 7, 7])); runs.add(np.array([5, 5, 5]))
        >>> [(keys.tolist(), counts.tolist()) for keys, counts in runs.merged()]
        [([5, 7], [4, 3])]
    """

    def __init__(self, folder: Path, buffer: int):
        self.folder, self._buffer, self._held = folder, np.empty(buffer, np.int64), 0
        self._files: list[tuple[Path, Path]] = []

    def add(self, keys: np.ndarray) -> None:
        """Count some keys."""
        while len(keys):
            taken = keys[: len(self._buffer) - self._held]
            self._buffer[self._held : self._held + len(taken)] = taken
            self._held += len(taken)
            keys = keys[len(taken) :]
            if self._held == len(self._buffer):
                self._spill()

    def merged(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Keys int64 and counts uint32 in rising order of keys, in parts that follow each other; no more is added."""
        self._spill()
        room, self._buffer = len(self._buffer) // 2, np.zeros(0, np.int64)
        runs = [tuple(np.load(path, mmap_mode="r") for path in pair) for pair in self._files]
        bounds = _bounds([keys for keys, _ in runs], room)
        cuts = [np.concatenate([[0], np.searchsorted(keys, bounds), [len(keys)]]) for keys, _ in runs]
        for part in range(len(bounds) + 1):
            spans = [slice(cut[part], cut[part + 1]) for cut in cuts]
            keys = np.concatenate([run[0][span] for run, span in zip(runs, spans, strict=True)] or [self._buffer])
            counts = np.concatenate([run[1][span] for run, span in zip(runs, spans, strict=True)] or [self._buffer])
            if len(keys):
                yield _summed(keys, counts)

    def discard(self) -> None:
        """Remove the runs."""
        for pair in self._files:
            for path in pair:
                path.unlink()
        self._files = []

    def _spill(self) -> None:
        held = self._buffer[: self._held]
        if not len(held):
            return
        held.sort()
        starts = first_of_equals(held)
        pair = tuple(self.folder / f"run{len(self._files)}.{part}.npy" for part in ("keys", "counts"))
        np.save(pair[0], held[starts])
        np.save(pair[1], np.diff(starts, append=len(held)).astype(COUNT))
        self._files.append(pair)
        self._held = 0


def first_of_equals(keys: np.ndarray) -> np.ndarray:
    """Where each stretch of equal keys begins in a sorted array that is not empty.

    Example:
        >>> first_of_equals(np.array([4, 4, 9])).tolist()
        [0, 2]
    """
    return np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))


def _bounds(runs: list[np.ndarray], room: int) -> np.ndarray:
    """Keys that cut all runs together into ranges of at most `room` entries (a single entry of each run apart)."""
    if sum(map(len, runs)) <= room:
        return np.zeros(0, np.int64)
    step = max(1, room // (2 * len(runs)))
    samples = np.sort(np.concatenate([run[::step] for run in runs]))
    return np.unique(samples[:: max(1, room // (2 * step))])


def _summed(keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort the keys and add up the counts of equal ones."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = first_of_equals(keys)
    return keys[starts], np.add.reduceat(counts[order], starts, dtype=COUNT)
