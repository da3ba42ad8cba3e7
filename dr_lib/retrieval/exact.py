"""Exact search by inner product, with the same order on every machine: score descending, then row
ascending.

The last bits of a matrix product depend on the library, the processor and the blocking, so ties and
near ties would be broken differently elsewhere. Fast products (faiss on a CPU, faiss or torch on a
GPU) therefore only propose candidates. Whatever may be among the first is scored again, pair by
pair in float64, rounded to float32, and these scores decide. Sums in float64 differ between
machines in their last bits too; rounding hides that, except where terms cancel almost completely.

Why no passage is missed. Let fast scores be off by at most e (`_Bounds`). Then k passages with fast
scores of at least f have true scores of at least f - e, and every passage of the true top k has a
fast score of at least f - 2e. A list is proven complete if its last fast score is below that, or if
it holds all passages. Queries whose lists are not (many passages with nearly equal scores) are
searched again with longer lists.

Brute force as in SimLM (appendix B), whose released code fails if a shard has fewer passages than
`k`: here all are returned. Page of the book: ideas/evaluation.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from dr_lib.errors import InputError
from dr_lib.losses.checks import check_rows, check_vectors
from dr_lib.training import machine

BLOCK_ROWS, BLOCK_BYTES = 1 << 18, 1 << 28
"""Most passages in memory at a time, and most bytes of their vectors in float32."""
MARGIN = 32
"""Candidates kept per query in addition to `k`."""
WIDER = 8
"""Factor by which a query's list grows if the previous one did not prove its top k."""
CANDIDATES = 1 << 26
"""Candidates kept at a time, over all queries."""
DEVICE_SCORES = 1 << 28
"""Fast scores in a GPU's memory at a time."""
BLAS_FROM = 20
"""Number of queries from which faiss uses matrix products. Its current default is rarely reached,
which makes a search several times slower.
"""
FAISS_DEPTH = 2048
"""The longest list that faiss makes on a GPU."""
PAIRS = 512
"""Vectors re-scored at a time: they fit into a processor's cache."""

Vectors = np.ndarray | Tensor


def search(
    queries: Vectors,
    passages: Vectors | Sequence[Vectors],
    k: int,
    *,
    device: torch.device | str = "cpu",
    devices: Sequence[torch.device] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The `k` passages of highest inner product with each query.

    Args:
        queries: `[queries, hidden]` float.
        passages: `[passages, hidden]` float16 or float32, or a list of such arrays, whose rows are
            numbered consecutively; may be memory-mapped and larger than memory.
        k: passages per query, at least 1; if the collection has fewer, all are returned.
        device: where the fast products are computed. The result does not depend on it.
        devices: GPUs that share the queries; None takes `machine.available_devices` if `device` is
            a GPU.

    Returns:
        Scores `[queries, min(k, passages)]` float32 and rows of the same shape int64. A score is
        the inner product in float64, rounded to float32.

    Raises:
        InputError: a vector is not finite, queries or passages are not `[n, hidden]` or differ in
            width, or `k` is below 1.

    Example:
        >>> vectors = np.eye(3, dtype=np.float32)
        >>> scores, rows = search(vectors[:1], vectors, k=2)
        >>> rows.tolist(), scores.tolist()
        ([[0, 1]], [[1.0, 0.0]])
    """
    check_vectors(queries=queries, passages=passages)
    if torch.device(device).type != "cuda":
        # the error bound has not been verified for products on Apple's GPUs
        device = "cpu"
    queries = np.require(_array(queries), np.float32, ["C", "W"])
    shards = _arrays(passages)
    _lengths(queries, "queries")
    if k < 1 or any(shard.shape[1] != queries.shape[1] for shard in shards):
        problem = f"{k} passages of {[shard.shape for shard in shards]} for {queries.shape}"
        fix = "Ask for at least one, and encode queries and passages with one model."
        raise InputError(problem, where="search", fix=fix)
    total = sum(map(len, shards))
    wanted = min(k, total)
    best = np.zeros((len(queries), wanted), np.int64)
    devices = devices or (machine.available_devices() if device != "cpu" else [torch.device("cpu")])
    left, depth = np.arange(len(queries) if wanted else 0), wanted + MARGIN
    with _full_precision():
        while len(left):
            depth = min(depth, total)
            groups = np.array_split(left, -(-len(left) * depth // CANDIDATES))
            unproven = []
            for group in filter(len, groups):
                best[group], proven = _proposed(queries[group], shards, wanted, depth, devices)
                unproven.append(group[~proven])
            left, depth = np.concatenate(unproven), WIDER * depth
    return _opened(best)


def _proposed(
    queries: np.ndarray,
    shards: list[np.ndarray],
    k: int,
    depth: int,
    devices: Sequence[torch.device],
) -> tuple[np.ndarray, np.ndarray]:
    """The top k from lists of `depth` candidates, with queries divided among devices: `[queries,
    k]` int64 as written by `_keys`, and `[queries]` bool, which of them are proven.
    """
    parts = [part for part in np.array_split(np.arange(len(queries)), len(devices)) if len(part)]
    with ThreadPoolExecutor(len(parts)) as pool:
        lists = list(
            pool.map(
                lambda part, place: _fast_lists(queries[part], shards, depth, place), parts, devices
            )
        )
    fast, rows = (
        np.concatenate(pieces) for pieces in zip(*(some[:2] for some in lists), strict=True)
    )
    bounds = _Bounds.of(queries, lists[0][2])
    least = bounds.surely(bounds.surely(fast[:, k - 1]))
    # all passages left out are below the last one kept
    proven = (fast[:, -1] < least) | (depth == sum(map(len, shards)))
    best, workers = np.zeros((len(queries), k), np.int64), machine.threads()

    def decide(share: int) -> None:
        for query in np.flatnonzero(proven)[share::workers]:
            chosen = rows[query, fast[query] >= least[query]]
            scores = _true_scores(queries[query], shards, chosen)
            best[query] = np.sort(_keys(scores, chosen))[:k]

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(decide, range(workers)))
    return best, proven


def _fast_lists(
    queries: np.ndarray, shards: list[np.ndarray], depth: int, place: torch.device
) -> tuple[np.ndarray, np.ndarray, float]:
    """The highest fast scores of some queries, `[queries, depth]` float32 descending, their rows
    int64, and the largest norm of a passage vector.
    """
    if place.type == "cpu":
        lists = _OnProcessor(queries, depth)
    else:
        lists = _OnGpu(queries, depth, place)
    longest = 0.0
    with tqdm(total=sum(map(len, shards)), desc="search", unit="passage", delay=1) as bar:
        for block in _blocks(shards):
            longest = max(longest, block.longest)
            lists.add(block)
            bar.update(len(block.vectors))
    return *lists.finish(), longest


class _OnProcessor:
    """Candidate lists on a CPU, by faiss."""

    def __init__(self, queries: np.ndarray, depth: int):
        self._faiss, self._queries, self._depth = _faiss(), queries, depth
        self._fast = np.empty((len(queries), 0), np.float32)
        self._rows = np.empty((len(queries), 0), np.int64)

    def add(self, block: "_Block") -> None:
        """Take what a block has."""
        faiss, most = self._faiss, min(self._depth, len(block.vectors))
        before = faiss.cvar.distance_compute_blas_threshold, faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(machine.threads())
        faiss.cvar.distance_compute_blas_threshold = BLAS_FROM
        try:
            fast, rows = faiss.knn(
                self._queries, block.vectors, most, metric=faiss.METRIC_INNER_PRODUCT
            )
        finally:
            faiss.cvar.distance_compute_blas_threshold = before[0]
            faiss.omp_set_num_threads(before[1])
        self._fast = np.concatenate([self._fast, fast], 1)
        self._rows = np.concatenate([self._rows, rows + block.start], 1)
        if self._fast.shape[1] > most:
            lists = faiss.ResultHeap(
                len(fast), min(self._depth, self._fast.shape[1]), keep_max=True
            )
            lists.add_result(self._fast, self._rows)
            lists.finalize()
            self._fast, self._rows = lists.D, lists.I

    def finish(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores descending, and rows."""
        return self._fast, self._rows


class _OnGpu:
    """Candidate lists that stay on a GPU from block to block, by faiss if it is built for GPUs,
    else by torch.
    """

    def __init__(self, queries: np.ndarray, depth: int, place: torch.device):
        self._queries, self._depth = torch.from_numpy(queries).to(place), depth
        self._fast = torch.full((len(queries), depth), -torch.inf, device=place)
        self._rows = torch.zeros(len(queries), depth, dtype=torch.int64, device=place)
        self._faiss = _faiss_for_gpus() if depth <= FAISS_DEPTH else None
        if self._faiss:
            self._resources = self._faiss.StandardGpuResources()

    def add(self, block: "_Block") -> None:
        """Merge the candidates of a block; the host waits only for the copy."""
        vectors = torch.from_numpy(block.vectors).to(self._queries.device)
        most = min(self._depth, len(vectors))
        tile = max(1, DEVICE_SCORES // len(vectors))
        for start in range(0, len(self._queries), tile):
            part = slice(start, start + tile)
            fast, rows = self._nearest(self._queries[part], vectors, most)
            fast = torch.cat([self._fast[part], fast], 1)
            rows = torch.cat([self._rows[part], rows + block.start], 1)
            self._fast[part], order = fast.topk(self._depth)
            self._rows[part] = rows.gather(1, order)

    def _nearest(self, queries: Tensor, vectors: Tensor, most: int) -> tuple[Tensor, Tensor]:
        if self._faiss is None:
            return (queries @ vectors.T).topk(most)
        return self._faiss.knn_gpu(
            self._resources,
            queries,
            vectors,
            most,
            metric=self._faiss.METRIC_INNER_PRODUCT,
            device=queries.device.index,
        )

    def finish(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores descending, and rows, on the host."""
        return self._fast.cpu().numpy(), self._rows.cpu().numpy()


def _faiss():
    """Imported lazily: most importers of this package do not search."""
    try:
        import faiss
    except ImportError:
        fix = "pip install faiss-cpu, or faiss-gpu on Linux with an Nvidia GPU."
        raise InputError("faiss is not installed", where="search", fix=fix) from None
    return faiss


def _faiss_for_gpus():
    """Faiss with support for torch tensors, or None if it sees no GPU."""
    try:
        faiss = _faiss()
    except InputError:  # torch does as well
        return None
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        return None
    import faiss.contrib.torch_utils

    return faiss


@contextmanager
def _full_precision() -> Iterator[None]:
    """No TF32 or bfloat16 in products of float32: the error bound assumes 24 bits."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def vectors_at(passages: Vectors | Sequence[Vectors], rows: np.ndarray) -> np.ndarray:
    """Vectors `[n, hidden]` of some rows `[n]` of an array, or of a list of arrays with rows
    numbered consecutively.

    Raises:
        InputError: a row that does not exist.

    Example:
        >>> vectors_at([np.array([[1.0], [2.0]]), np.array([[3.0]])], np.array([2, 0])).tolist()
        [[3.0], [1.0]]
    """
    shards = _arrays(passages)
    check_rows(sum(map(len, shards)), rows=rows)
    if len(shards) == 1:
        return shards[0].take(rows, axis=0)
    starts = np.cumsum([0, *map(len, shards)])
    shard = np.searchsorted(starts, rows, side="right") - 1
    vectors = np.empty((len(rows), shards[0].shape[1]), shards[0].dtype)
    for number in np.unique(shard):
        here = shard == number
        vectors[here] = shards[number][rows[here] - starts[number]]
    return vectors


def exact_scores(
    queries: np.ndarray, passages: np.ndarray | Sequence[np.ndarray], rows: np.ndarray
) -> np.ndarray:
    """Inner products of each query with its own rows, summed in float64 and rounded to float32.

    Args:
        queries: `[queries, hidden]` float32.
        passages: as in `search`.
        rows: `[queries, depth]` integers, all of them rows of the passages.

    Returns:
        `[queries, depth]` float32.

    Raises:
        InputError: a row that does not exist.
    """
    shards, scores = _arrays(passages), np.empty(rows.shape, np.float32)
    total = sum(map(len, shards))
    if rows.size and not (rows.min() >= 0 and rows.max() < total):
        fix = "Leave out what fills up a list."
        problem = f"rows {rows.min()} to {rows.max()} of {total} passages"
        raise InputError(problem, where="exact scores", fix=fix)
    for query, places, line in zip(queries, rows, scores, strict=True):
        line[:] = _true_scores(query, shards, places)
    return scores


def _true_scores(query: np.ndarray, shards: list[np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Each pair is summed on its own, so that only its two vectors matter: duplicates get the same
    score.
    """
    query, scores = query.astype(np.float64), np.empty(len(rows))
    for start in range(0, len(rows), PAIRS):
        part = slice(start, start + PAIRS)
        vectors = vectors_at(shards, rows[part]).astype(np.float32, copy=False)
        np.vecdot(vectors, query, out=scores[part])
    return scores.astype(np.float32)


class _Block(NamedTuple):
    """Consecutive passages in memory: vectors `[passages, hidden]` float32, row of the first,
    largest norm.
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


class _Bounds(NamedTuple):
    """Bounds on the error of products in float32.

    Attributes:
        off: `[queries]` float64, the largest error for each query.
    """

    off: np.ndarray

    @classmethod
    def of(cls, queries: np.ndarray, longest: float) -> "_Bounds":
        """For passages of norm at most `longest`, summed in any order."""
        length = np.linalg.norm(queries.astype(np.float64), axis=1)
        # 8: covers rounding of the true scores
        return cls(1.02 * (queries.shape[1] + 8) * 2.0**-23 * length * longest + 1e-35)

    def surely(self, scores: np.ndarray) -> np.ndarray:
        """The smallest true score behind a fast score of at least `scores`, `[queries]`; and,
        applied again, the smallest fast score of such a passage.
        """
        left = scores.astype(np.float64) - self.off
        return left - 2.1 * 2.0**-24 * np.abs(left)


def _keys(scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Score and row as one integer, whose order is score descending, then row ascending.

    The bits of a float32, read as an integer, are ordered once those of negative numbers are
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
    if not isinstance(vectors, Tensor):
        return np.asarray(vectors)
    # numpy has no bfloat16
    return (vectors.float() if vectors.dtype == torch.bfloat16 else vectors).detach().cpu().numpy()


def _lengths(vectors: np.ndarray, what: str, start: int = 0) -> np.ndarray:
    """Norm of each vector `[vectors]` float32; refuses vectors that are not finite."""
    lengths = torch.linalg.vector_norm(torch.from_numpy(vectors), dim=1).numpy()
    usable = lengths < 1e18  # beyond that, products overflow; false for NaN too
    if not usable.all():
        row = start + int((~usable).argmax())
        raise InputError(
            "vector is not finite, or longer than 1e18",
            where=f"{what} row {row}",
            fix=f"Encode the {what} again.",
        )
    return lengths
