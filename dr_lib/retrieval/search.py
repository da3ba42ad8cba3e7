"""Exact search by inner product, with one order for every machine: score descending, then row
ascending.

The last bits of a matrix product depend on its number type and on the blocks it is cut into, so
ties and near ties would fall differently with another block size, on a GPU, or in bfloat16. So fast
products only propose; the score of whatever may be among the first is computed again, pair by pair
in float64, rounded to float32, and decides.

Why no passage is missed. Let a fast score be off by at most e (`_Products` bounds it). Then k
passages whose fast scores are at least f have true scores of at least f - e, and whoever belongs
among the first k has a fast score of at least f - 2e. Everything above that is scored again,
however much it is: with ties and duplicates, if need be, all rows.

Brute force as in SimLM (section 4.1), whose released code stops where a shard has fewer passages
than `k`: here all come back. Page of the book: ideas/evaluation.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from dr_lib.errors import InputError
from dr_lib.training import machine

BLOCK_ROWS, BLOCK_BYTES = 1 << 18, 1 << 28
"""Most passages in memory at a time, and most bytes of their vectors in float32."""
SCORES = 1 << 24
"""Fast scores in memory at a time."""
GROUP = 16
"""Most passages that share one entry in the first look for high scores."""
RUNNING = ("cuda",)
"""Kinds of devices that keep the best fast scores of all queries to themselves until the end."""
MARGIN = 128
"""Fast scores kept there beside those wanted, at least."""
DEVICE_SCORES = 1 << 28
"""Fast scores in a device's memory at a time."""
PAIRS = 512
"""Vectors whose scores are computed again at a time: they fit into a processor's cache."""
SLICE = 1 << 20
"""Numbers rounded at a time."""
BF16_QUERIES, BF16_PASSAGES = 64, 16
"""From so many queries on, and passages for one that is wanted, rounding to bfloat16 pays on a CPU
that has it.
"""

Vectors = np.ndarray | Tensor


def search(
    queries: Vectors,
    passages: Vectors | Sequence[Vectors],
    k: int,
    *,
    device: torch.device | str = "cpu",
    places: Sequence[torch.device] | None = None,
    progress: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The `k` passages of highest inner product with each query.

    Args:
        queries: `[queries, hidden]` float.
        passages: `[passages, hidden]` float16 or float32, or a list of such arrays whose rows are
            counted on; may be memory-mapped and larger than memory.
        k: passages wanted, at least 1; with fewer in the collection all of them come back.
        device: where the fast products are computed. The result does not depend on it.
        places: several GPUs that share the queries; None takes `machine.devices` where `device` is
            a GPU.
        progress: show a bar over the passages.

    Returns:
        Scores `[queries, min(k, passages)]` float32 and rows of the same shape int64. A score is
        the inner product in float64, rounded to float32.

    Raises:
        InputError: a vector is not finite.

    Example:
        >>> vectors = np.eye(3, dtype=np.float32)
        >>> scores, rows = search(vectors[:1], vectors, k=2)
        >>> rows.tolist(), scores.tolist()
        ([[0, 1]], [[1.0, 0.0]])
    """
    # the bound on the error has not been held against products of Apple's GPUs
    if torch.device(device).type == "mps":
        device = "cpu"
    queries = np.require(_array(queries), np.float32, ["C", "W"])
    shards = _arrays(passages)
    _lengths(queries, "queries")
    total = sum(map(len, shards))
    best = np.full(
        (len(queries), min(k, total)), _keys(np.float32([-np.inf]), np.array([2**32 - 1]))
    )
    where = torch.device(device)
    before = torch.get_float32_matmul_precision()
    # no TF32 or bf16 in float32 products: the bound counts on 24 bits
    torch.set_float32_matmul_precision("highest")
    left = np.arange(len(queries))
    try:
        with torch.inference_mode():
            if where.type in RUNNING and best.size:
                places = places or (machine.devices() if where.type == "cuda" else [where])
                proven = _on_devices(queries, shards, best, places, progress)
                left = np.flatnonzero(~proven)
            if best.size and len(left):
                kinds = [torch.float32]
                many = len(left) >= BF16_QUERIES and total >= BF16_PASSAGES * k
                if many and where.type == "cpu" and machine.has_bf16(where):
                    kinds = [torch.bfloat16, torch.float32]
                asked, found = queries[left], best[left]
                with tqdm(total=total, desc="search", unit="passage", disable=not progress) as bar:
                    for block in _blocks(shards):
                        _take(asked, block, found, kinds, device)
                        bar.update(len(block.vectors))
                best[left] = found
    finally:
        torch.set_float32_matmul_precision(before)
    return _opened(best)


# On a GPU -----------------------------------------------------------------------------------------
# The best fast scores of each query stay on the device from block to block, some more of them than
# are wanted. At the end what may be among the first k is scored again on the host, once. A query
# whose list may have lost one of these (many passages of about one score) is searched anew.


def _on_devices(
    queries: np.ndarray,
    shards: list[np.ndarray],
    best: np.ndarray,
    places: Sequence[torch.device],
    progress: bool,
) -> np.ndarray:
    """Fill in the best of all queries that one pass over the passages can prove, each device with a
    part of the queries.

    Args:
        queries: `[queries, hidden]` float32.
        shards: the passages.
        best: `[queries, k]` int64, as `_keys` writes them; changed in place.
        places: where.
        progress: show a bar.

    Returns:
        `[queries]` bool, whose best are right.
    """
    parts = [part for part in np.array_split(np.arange(len(queries)), len(places)) if len(part)]
    show = [progress] + [False] * len(parts)
    work = [(queries[part], shards, best.shape[1]) for part in parts]
    with ThreadPoolExecutor(len(parts)) as pool:
        lists = list(pool.map(_running, work, places, show))
    proven, workers = np.zeros(len(queries), bool), machine.threads()
    for part, (fast, rows, longest) in zip(parts, lists, strict=True):
        bounds = _Bounds.of(queries[part], longest, torch.float32)
        least = bounds.surely(bounds.surely(fast[:, best.shape[1] - 1], slice(None)), slice(None))
        # all that were left out are below the last one that was kept
        whole = rows.shape[1] == sum(map(len, shards))
        proven[part] = whole or fast[:, -1] < least

        def decide(share: int, part=part, fast=fast, rows=rows, least=least) -> None:
            for place, query in [*enumerate(part)][share::workers]:
                if proven[query]:
                    chosen = rows[place, fast[place] >= least[place]]
                    passages = vectors_at(shards, chosen).astype(np.float32)
                    asked = queries[query].astype(np.float64)
                    scores = _true_scores(asked, passages, np.arange(len(chosen)))
                    best[query] = np.sort(_keys(scores, chosen))[: best.shape[1]]

        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(decide, range(workers)))
    return proven


def _running(
    work: tuple[np.ndarray, list[np.ndarray], int], place: torch.device, progress: bool
) -> tuple[np.ndarray, np.ndarray, float]:
    """The highest fast scores of some queries, `[queries, k + margin]` float32 descending, their
    rows int64, and the length of the longest passage.
    """
    queries, shards, k = work
    total, longest = sum(map(len, shards)), 0.0
    depth = min(total, k + max(MARGIN, k // 2))
    asked = torch.from_numpy(queries).to(place)
    fast = torch.full((len(queries), depth), -torch.inf, device=place)
    rows = torch.zeros(len(queries), depth, dtype=torch.int64, device=place)
    with (
        torch.inference_mode(),
        tqdm(total=total, desc="search", unit="passage", disable=not progress) as bar,
    ):
        for block in _blocks(shards):
            columns = torch.from_numpy(block.vectors).to(place).T
            longest = max(longest, block.longest)
            tile = max(1, DEVICE_SCORES // columns.shape[1])
            for start in range(0, len(queries), tile):
                part = slice(start, start + tile)
                scores, here = (asked[part] @ columns).topk(min(depth, columns.shape[1]))
                scores = torch.cat([fast[part], scores], 1)
                here = torch.cat([rows[part], here + block.start], 1)
                fast[part], order = scores.topk(depth)
                rows[part] = here.gather(1, order)
            bar.update(len(block.vectors))
    return fast.cpu().numpy(), rows.cpu().numpy(), longest


def vectors_at(passages: Vectors | Sequence[Vectors], rows: np.ndarray) -> np.ndarray:
    """Vectors `[n, hidden]` of some rows `[n]` of an array, or of a list of arrays over which they
    are counted on.

    Example:
        >>> vectors_at([np.array([[1.0], [2.0]]), np.array([[3.0]])], np.array([2, 0])).tolist()
        [[3.0], [1.0]]
    """
    shards = _arrays(passages)
    starts = np.cumsum([0, *map(len, shards)])
    shard = np.searchsorted(starts, rows, side="right") - 1
    found = np.empty((len(rows), shards[0].shape[1]), shards[0].dtype)
    for number in np.unique(shard):
        here = shard == number
        found[here] = shards[number][rows[here] - starts[number]]
    return found


def exact_scores(
    queries: np.ndarray, passages: np.ndarray | Sequence[np.ndarray], rows: np.ndarray
) -> np.ndarray:
    """Inner products of each query with its own rows, summed in float64 and rounded to float32.

    Args:
        queries: `[queries, hidden]` float32.
        passages: as in `search`.
        rows: `[queries, depth]` integers.

    Returns:
        `[queries, depth]` float32.
    """
    scores = np.empty(rows.shape, np.float32)
    for query, places, line in zip(queries.astype(np.float64), rows, scores, strict=True):
        line[:] = _true_scores(query, vectors_at(passages, places), np.arange(len(places)))
    return scores


def _true_scores(query: np.ndarray, passages: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Each pair is summed alone, so that nothing but its two vectors matters: duplicates get one
    score.
    """
    scores = np.empty(len(rows))
    for start in range(0, len(rows), PAIRS):
        part = slice(start, start + PAIRS)
        np.vecdot(passages.take(rows[part], axis=0), query, out=scores[part])
    return scores.astype(np.float32)


class _Block(NamedTuple):
    """Consecutive passages in memory: vectors `[passages, hidden]` float32, row of the first,
    length of the longest.
    """

    vectors: np.ndarray
    start: int
    longest: float


def _blocks(shards: list[np.ndarray]) -> Iterator[_Block]:
    start = 0
    for shard in shards:
        size = max(1, min(BLOCK_ROWS, BLOCK_BYTES // (4 * max(1, shard.shape[1]))))
        for i in range(0, len(shard), size):
            vectors = np.require(shard[i : i + size], np.float32, ["C", "W"])
            yield _Block(vectors, start, float(_lengths(vectors, "passages", start).max()))
            start += len(vectors)


def _take(
    queries: np.ndarray,
    block: _Block,
    best: np.ndarray,
    kinds: list[torch.dtype],
    device: torch.device | str,
) -> None:
    """Bring the best passages of all queries up to date with a block.

    Args:
        queries: `[queries, hidden]` float32.
        block: the passages.
        best: `[queries, k]` int64, the best so far as `_keys` writes them; changed in place.
        kinds: number types for fast scores; the first is dropped for good where it leaves too many
            candidates.
        device: where fast scores are computed.
    """
    k, workers = best.shape[1], machine.threads()
    products = _Products(queries, block, k, kinds[0], device)
    for start in range(0, len(queries), products.tile):
        tile = slice(start, min(start + products.tile, len(queries)))
        least = _opened(best[tile, -1])[0].astype(np.float64)
        found = products.candidates(tile, least)
        # Vectors of a model that has hardly learnt lie in one narrow cone: bfloat16 cannot tell
        # them apart.
        if len(kinds) > 1 and sum(len(rows) for rows, _ in found) > len(found) * (
            2 * k + len(block.vectors) // 64
        ):
            kinds.pop(0)
            products = _Products(queries, block, k, kinds[0], device, products.tile)
            found = products.candidates(tile, least)

        def decide(
            share: int, start: int = start, found: list = found, products: _Products = products
        ) -> None:
            for query, (rows, fast) in list(enumerate(found, start))[share::workers]:
                rows = products.hopeful(query, rows, fast)
                scores = _true_scores(queries[query].astype(np.float64), block.vectors, rows)
                both = np.concatenate([best[query], _keys(scores, rows + block.start)])
                both.sort()
                best[query] = both[:k]

        if workers == 1:
            decide(0)
        else:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(decide, range(workers)))


class _Bounds(NamedTuple):
    """How far fast scores may be from the true ones.

    Attributes:
        off: `[queries]` float64, of each query at most, before the result is rounded.
        rounding: of a result, relative.
    """

    off: np.ndarray
    rounding: float

    @classmethod
    def of(
        cls,
        queries: np.ndarray,
        longest: float,
        kind: torch.dtype,
        lost: np.ndarray | float = 0.0,
        lost_passage: float = 0.0,
    ) -> "_Bounds":
        """Of products with passages of a length of at most `longest`, from what rounding took from
        the queries and from any passage.
        """
        length = np.linalg.norm(queries.astype(np.float64), axis=1)
        # 8: rounding of the true scores, and more
        sums = (queries.shape[1] + 8) * 2.0**-23 * length * longest
        rounded = length * lost_passage + lost * (longest + lost_passage)
        return cls(1.02 * (rounded + sums) + 1e-35, torch.finfo(kind).eps / 2)

    def surely(self, score: np.ndarray, queries: slice | int) -> np.ndarray:
        """The least true score behind a fast one of at least `score`, and the least fast score for
        such a true one.
        """
        left = score.astype(np.float64) - self.off[queries]
        return left - 2.1 * self.rounding * np.abs(left)


class _Products:
    """Fast inner products of the queries with one block, and how far they may be from the true
    ones.

    With q~ and p~ for vectors rounded to bfloat16, q.p - q~.p~ = (q - q~).p~ + q.(p - p~). By
    Cauchy and Schwarz that is bounded by the lengths of what rounding took away. To that come the
    error of a sum in float32 and the rounding of the result.
    """

    def __init__(
        self,
        queries: np.ndarray,
        block: _Block,
        k: int,
        kind: torch.dtype,
        device: torch.device | str,
        tile: int = 256,
    ):
        self._queries, lost = _rounded(torch.from_numpy(queries), kind, device)
        passages, lost_passages = _rounded(torch.from_numpy(block.vectors), kind, device)
        self._columns, lost_passage = passages.T, float(lost_passages.max())
        bounds = _Bounds.of(queries, block.longest, kind, lost.numpy(), lost_passage)
        self._surely = bounds.surely
        # Passage i is in group i modulo `groups`, because that way the maxima are quickest to take.
        self.k, self.passages = k, len(block.vectors)
        self.group = max(1, min(GROUP, self.passages // (2 * k)))
        self.groups = -(-self.passages // self.group)
        self.tile = max(1, min(tile, len(queries), SCORES // self.passages))
        self._table = torch.full(
            (self.tile, self.group * self.groups), -torch.inf, dtype=kind, device=device
        )

    def candidates(self, tile: slice, least: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The passages that may be among the first `k` of each query of the tile, and few others:
        rows, fast scores.

        A group of passages is looked at by its highest score first. At least `k` passages reach the
        k-th highest of these, which gives a threshold, and only the groups above it are opened.

        Args:
            tile: of the queries.
            least: `[queries of the tile]` float64, a true score that has to be exceeded.
        """
        count = tile.stop - tile.start
        torch.matmul(self._queries[tile], self._columns, out=self._table[:count, : self.passages])
        grouped = self._table[:count].view(count, self.group, self.groups)
        highest = grouped.amax(1).float().cpu().numpy()
        # for a small k, the highest of several groups will do
        coarse = max(1, self.groups // (4 * self.k))
        few = highest[:, : self.groups // coarse * coarse].reshape(count, coarse, -1).max(1)
        if few.shape[1] >= self.k:
            kth = np.partition(few, few.shape[1] - self.k, axis=1)[:, few.shape[1] - self.k]
            least = np.maximum(least, self._surely(kth, tile))
        floor = np.nextafter(self._surely(least, tile).astype(np.float32), np.float32(-np.inf))
        lines, columns = _places(highest > floor[:, None])  # -inf fills up the last group
        fast = grouped[torch.from_numpy(lines), :, torch.from_numpy(columns)].float().cpu().numpy()
        opened, member = _places(fast > floor[lines, None])
        rows, fast = columns[opened] + self.groups * member, fast[opened, member]
        ends = np.searchsorted(lines[opened], np.arange(count + 1)).tolist()
        return [(rows[i:j], fast[i:j]) for i, j in pairwise(ends)]

    def hopeful(self, query: int, rows: np.ndarray, fast: np.ndarray) -> np.ndarray:
        """Those of one query's candidates that may be among its first `k`, by the k-th highest of
        their own scores.
        """
        if len(rows) <= self.k + PAIRS // 8:  # quicker to score them again than to look closer
            return rows
        kth = np.partition(fast, len(fast) - self.k)[len(fast) - self.k]
        return rows[fast >= self._surely(self._surely(kth, query), query)]


def _rounded(
    vectors: Tensor, kind: torch.dtype, device: torch.device | str
) -> tuple[Tensor, Tensor]:
    """Vectors of another type on a device, and the length of what each has lost by it."""
    if kind == torch.float32:
        return vectors.to(device), torch.zeros(1)
    rounded, lost = torch.empty_like(vectors, dtype=kind), torch.empty(len(vectors))
    # Slices that stay in a cache, yet so large that threads do not spend their time waiting for
    # each other.
    size = max(1, SLICE // max(1, vectors.shape[1]))
    back = torch.empty_like(vectors[:size])
    for part, low, length in zip(
        *(whole.split(size) for whole in (vectors, rounded, lost)), strict=True
    ):
        difference = back[: len(part)].copy_(low.copy_(part)).sub_(part)
        torch.linalg.vector_norm(difference, dim=1, out=length)
    return rounded.to(device), lost


def _places(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What `np.nonzero` gives for a matrix, several times as fast."""
    flat = np.flatnonzero(chosen)
    lines = flat // chosen.shape[1]
    return lines, flat - lines * chosen.shape[1]


def _keys(scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Score and row as one whole number, so that the order (score descending, then row ascending)
    is that of numbers.

    The bits of a float32, read as an integer, are in order once those of negative numbers are
    flipped.

    Example:
        >>> _opened(
        ...     np.sort(_keys(np.array([1.0, 2.0, 2.0, -3.0], np.float32), np.array([0, 9, 4, 1])))
        ... )[1].tolist()
        [4, 9, 0, 1]
    """
    bits = (scores + np.float32(0)).view(np.int32)  # + 0 turns -0 into 0
    return (~(bits ^ ((bits >> 31) & 0x7FFFFFFF))).astype(np.int64) << 32 | rows


def _opened(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores float32 and rows int64 of `_keys`."""
    rank = ~(keys >> 32).astype(np.int32)
    return (rank ^ ((rank >> 31) & 0x7FFFFFFF)).view(np.float32), keys & 0xFFFFFFFF


def _arrays(passages: Vectors | Sequence[Vectors]) -> list[np.ndarray]:
    return [
        _array(shard) for shard in (passages if isinstance(passages, list | tuple) else [passages])
    ]


def _array(vectors: Vectors) -> np.ndarray:
    return vectors.detach().cpu().numpy() if isinstance(vectors, Tensor) else np.asarray(vectors)


def _lengths(vectors: np.ndarray, what: str, start: int = 0) -> np.ndarray:
    """Length of each vector `[vectors]` float32, all of them finite."""
    lengths = torch.linalg.vector_norm(torch.from_numpy(vectors), dim=1).numpy()
    usable = lengths < 1e18  # beyond that, products overflow; false for NaN too
    if not usable.all():
        row = start + int((~usable).argmax())
        raise InputError(
            "vector is not finite", where=f"{what} row {row}", fix=f"Encode the {what} again."
        )
    return lengths
