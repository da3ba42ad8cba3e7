"""The best passages of a few queries, gathered from one tile of fast scores after the other, in whole arrays.

Nearly all scores of a collection are too low to matter, so each query has a threshold, and only what lies above it is
looked at: one comparison a score. What is above goes into a pool; now and then the pool's scores are computed again in
float64, the best passages stay, and the threshold rises to what is surely below the last of them. Page of the book:
ideas/evaluation.
"""

import numpy as np
import torch
from torch import Tensor

from dr_lib.retrieval.exact import keys, opened, pair_scores

POOL = 4
"""How many times the passages wanted may be in the pool."""


class TooRoughError(ArithmeticError):
    """A fast score was further from the true one than is possible where sums are made in float32."""


class Reservoir:
    """The best passages so far of some queries.

    Args:
        queries: `[queries, hidden]` float32.
        k: passages wanted.
        rounding: largest relative change of a fast score when it is rounded to its type.

    Attributes:
        best: `[queries, up to k]` int64, the best passages in order as `exact.keys` writes them.
    """

    def __init__(self, queries: np.ndarray, k: int, rounding: float):
        self.queries, self.k, self.rounding = queries.astype(np.float64), k, rounding
        self.best = np.empty((len(queries), 0), np.int64)
        self.last = np.full(len(queries), -np.inf)
        self.guess = np.full(len(queries), -np.inf)
        self._reach = np.zeros(len(queries))
        self._pool: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def expect(self, scores: Tensor, reach: np.ndarray, share: float) -> None:
        """Guess a first threshold that a few more than `k` passages will pass; `short` tells where it was too high.

        Args:
            scores: `[queries, passages]`, of passages drawn from everywhere.
            reach: `[queries]`, see `Products.columns`.
            share: of the passages in this sample.
        """
        mean, width = self.k * share, scores.shape[1]
        rank = int(mean + 3 * np.sqrt(mean) + 3)
        if rank < width:
            lowest = np.partition(scores.float().cpu().numpy(), width - rank, axis=1)[:, width - rank]
            self.guess = self._surely_below(lowest.astype(np.float64), 2 * reach)

    def add(self, scores: Tensor, reach: np.ndarray, first: int, step: int) -> None:
        """Take in the fast scores `[queries, passages]` of the passages `first`, `first + step`, ... ."""
        places = _above(scores, np.maximum(self.guess, self._surely_below(self.last, reach)))
        ends = np.searchsorted(places, np.arange(0, scores.numel() + 1, scores.shape[1]))
        fast = scores.reshape(-1).index_select(0, torch.from_numpy(places).to(scores.device))
        begin = np.repeat(np.arange(len(scores)) * scores.shape[1], np.diff(ends))
        rows = (places - begin).astype(np.int32) * np.int32(step) + np.int32(first)
        self._pool.append((ends, rows, fast.float().cpu().numpy()))
        self._reach = np.maximum(self._reach, reach)

    @property
    def full(self) -> bool:
        """Whether the pool should be emptied."""
        return sum(len(rows) for _, rows, _ in self._pool) > POOL * self.k * len(self.queries)

    def cut(self, vectors: np.ndarray, start: int) -> None:
        """Give the passages of the pool their true scores, and keep the best.

        Args:
            vectors: `[passages, hidden]` float32, the block that the pool's passages are from.
            start: row of the first of them in the collection.

        Raises:
            TooRoughError: the bound on fast scores does not hold.
        """
        counts, rows, fast = self._hopeful(*self._joined())
        true = pair_scores(self.queries, vectors, rows, counts)
        off = 1.1 * np.repeat(self._reach, counts) + 1.1 * self.rounding * np.abs(true)
        if (np.abs(fast - true) > off).any():
            raise TooRoughError
        new = np.full((len(counts), counts.max(initial=0)), np.iinfo(np.int64).max)
        new[np.arange(new.shape[1]) < counts[:, None]] = keys(true.astype(np.float32), rows.astype(np.int64) + start)
        self.best = np.sort(np.concatenate([self.best, new], axis=1), axis=1)[:, : self.k]
        if self.best.shape[1] == self.k:
            self.last = opened(self.best[:, -1])[0].astype(np.float64)
        self._pool = []

    def _joined(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows int32 and fast scores of the pool, each `[queries, most of a query]`; -inf fills up."""
        found = np.array([np.diff(ends) for ends, _, _ in self._pool])
        width = int(found.sum(axis=0).max(initial=0))
        rows = np.empty((len(self.queries), width), np.int32)
        fast = np.full(rows.shape, -np.inf, np.float32)
        before = np.cumsum(found, axis=0) - found + np.arange(len(rows)) * width
        for (ends, places, values), counts, begin in zip(self._pool, found, before, strict=True):
            target = np.repeat(begin - ends[:-1], counts) + np.arange(len(values))
            rows.ravel()[target], fast.ravel()[target] = places, values
        return rows, fast

    def _hopeful(self, rows: np.ndarray, fast: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How many of each query may be among its best, and their rows and fast scores one after the other."""
        width, least = fast.shape[1], np.full(len(fast), -np.inf)
        if width > self.k:
            last = np.partition(fast, width - self.k, axis=1)[:, width - self.k].astype(np.float64)
            least = np.maximum(least, self._surely_below(last, 2 * self._reach))
        places = np.flatnonzero(fast > np.nextafter(least.astype(np.float32), np.float32(-np.inf))[:, None])
        counts = np.diff(np.searchsorted(places, np.arange(len(fast) + 1) * width))
        return counts, rows.ravel()[places], fast.ravel()[places]

    def short(self) -> np.ndarray:
        """Queries whose guessed threshold was too high: what it kept out may belong to their best."""
        return np.flatnonzero(self.guess > self._surely_below(self.last, self._reach))

    def replace(self, lines: np.ndarray, best: np.ndarray) -> None:
        """Give some queries the best passages of another search of the same ones."""
        self.best[lines], self.last[lines], self.guess[lines] = best, opened(best[:, -1])[0], -np.inf

    def _surely_below(self, true: np.ndarray, reach: np.ndarray) -> np.ndarray:
        """Fast scores `[queries]` float64: what has this one or a lower one has a true score below `true`."""
        left = true - reach
        return left - np.abs(left) * self.rounding


def _above(scores: Tensor, threshold: np.ndarray) -> np.ndarray:
    """Flat places, ascending, of the scores above each line's threshold; a few below it may be among them."""
    floor = np.nextafter(threshold.astype(np.float32), np.float32(-np.inf))[:, None]
    if scores.device.type != "cpu":
        return (scores > torch.from_numpy(floor).to(scores.device)).reshape(-1).nonzero()[:, 0].cpu().numpy()
    if scores.dtype == torch.bfloat16 and floor.min() >= 0:
        # Read as whole numbers, bfloat16 scores from 0 on are in order, and below 0 lower than any of these.
        return np.flatnonzero(scores.view(torch.int16).numpy() > (floor.view(np.int32) >> 16).astype(np.int16))
    return np.flatnonzero(scores.float().numpy() > floor)
