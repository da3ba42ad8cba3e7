"""Exact search by inner product, with one order for every engine: score descending, then row ascending.

A matrix product in float32 gives a score whose last bits depend on the shapes of the blocks it is cut into, so ties
and near-ties would fall differently on faiss, on a GPU, or with another block size. So the fast pass only proposes
some more passages than asked for; their scores are then computed again one by one in float64 and rounded to float32,
and the order is made from those. A bound on the rounding error proves that nothing outside the proposal belongs into
the result; a query for which the proof fails (many near-equal passages) is searched again with a larger proposal.

Brute force as in SimLM (section 4.1), whose released code stops where a shard has fewer passages than `k`: here all
come back. Page of the book: ideas/evaluation.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import faiss
import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from dr_lib.errors import InputError
from dr_lib.training.runtime import threads

BLOCK_BYTES = 1 << 28
STATE_BYTES = 1 << 29

Proposal = tuple[Tensor, Tensor]
Engine = Callable[[np.ndarray, int], Proposal]


def search(
    queries: np.ndarray | Tensor,
    passages: np.ndarray | Tensor,
    k: int,
    *,
    device: torch.device | str = "cpu",
    engine: str = "auto",
    block: int | None = None,
    progress: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The `k` passages of highest inner product with each query.

    Args:
        queries: `[queries, hidden]` float.
        passages: `[passages, hidden]` float16 or float32; may be memory-mapped and larger than memory.
        k: passages wanted, at least 1; with fewer in the collection all of them come back.
        device: where the product is computed.
        engine: "faiss" (the kernel of `IndexFlatIP`, CPU only), "matmul" (chunked product and top-k in torch), or
            "auto": faiss on CPU, matmul elsewhere. The result does not depend on it.
        block: passages in memory at a time, by default 256 MB of float32. The result does not depend on it.
        progress: show a bar over the blocks.

    Returns:
        Scores `[queries, min(k, passages)]` float32 and rows of the same shape int64. A score is the inner product
        in float64, rounded to float32.

    Raises:
        InputError: sizes that do not fit, `k` below 1, or a vector that is not finite.

    Example:
        >>> vectors = np.eye(3, dtype=np.float32)
        >>> scores, rows = search(vectors[:1], vectors, k=2)
        >>> rows.tolist(), scores.tolist()
        ([[0, 1]], [[1.0, 0.0]])
    """
    queries = np.ascontiguousarray(_as_array(queries), dtype=np.float32)
    passages = _as_array(passages)
    _check(queries, passages, k)
    k = min(k, len(passages))
    scores, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    start = _faiss_engine if _which(engine, device) == "faiss" else _matmul_engine
    todo, keep = np.arange(len(queries)), min(len(passages), k + max(32, k // 10))
    while k and len(todo):
        group, open_queries = max(1, STATE_BYTES // (36 * keep)), []
        for part in (todo[i : i + group] for i in range(0, len(todo), group)):
            proposed, reach = _propose(queries[part], passages, keep, start(queries[part], device), block, progress)
            exact = exact_scores(queries[part], passages, proposed[1].numpy())
            scores[part], rows[part] = _order(exact, proposed[1].numpy(), k)
            if keep < len(passages):
                outside = np.float32(proposed[0].min(dim=1).values.numpy().astype(np.float64) + reach)
                open_queries.append(part[outside >= scores[part, -1]])
        todo, keep = np.concatenate([todo[:0], *open_queries]), min(len(passages), 4 * keep)
    return scores, rows


def exact_scores(queries: np.ndarray, passages: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Inner products of each query with its own rows, summed in float64 and rounded to float32.

    Each pair is summed alone, so its score depends on nothing but its two vectors. Pairs are visited in row order:
    a memory-mapped collection is read from front to back.

    Args:
        queries: `[queries, hidden]` float32.
        passages: `[passages, hidden]` float16 or float32.
        rows: `[queries, depth]` int64.

    Returns:
        `[queries, depth]` float32.
    """
    scores = np.empty(rows.size, np.float32)
    # Whole numbers sort many times faster than an argsort finds their places: row in front, place of the pair behind.
    order = np.sort((rows.ravel() << 32) | np.arange(rows.size))
    for i in range(0, rows.size, 1024):
        part = order[i : i + 1024]
        pairs = part & 0xFFFFFFFF
        left, right = passages[part >> 32].astype(np.float32, copy=False), queries[pairs // rows.shape[1]]
        scores[pairs] = np.einsum("ph,ph->p", left, right, dtype=np.float64)
    return scores.reshape(rows.shape)


def _order(scores: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `k` of each line: score descending, then row ascending.

    Both go into one whole number, whose order is theirs: the bits of a float32, read as an integer, are in order once
    those of negative numbers are flipped.
    """
    bits = (scores + np.float32(0)).view(np.int32)
    rank = ~(bits ^ ((bits >> 31) & 0x7FFFFFFF))
    keys = np.sort((rank.astype(np.int64) << 32) | rows, axis=1)[:, :k]
    rank = ~(keys >> 32).astype(np.int32)
    return (rank ^ ((rank >> 31) & 0x7FFFFFFF)).view(np.float32), keys & 0xFFFFFFFF


def _propose(
    queries: np.ndarray, passages: np.ndarray, keep: int, engine: Engine, block: int | None, progress: bool
) -> tuple[Proposal, np.ndarray]:
    """The `keep` best passages by fast score, unordered, and how far a fast score may be from the true one."""
    longest, best = 0.0, None
    for start, vectors in _blocks(passages, block, progress):
        longest = max(longest, _longest(vectors, start))
        scores, rows = engine(vectors, min(keep, len(vectors)))
        rows = rows + start
        if best is not None:
            scores, rows = torch.cat([best[0], scores], dim=1), torch.cat([best[1], rows], dim=1)
        if scores.shape[1] > keep:
            scores, places = scores.topk(keep, dim=1, sorted=False)
            rows = rows.gather(1, places)
        best = scores, rows
    assert best is not None
    hidden, unit = queries.shape[1], 2.0**-24
    error = (hidden + 2) * unit / (1 - (hidden + 2) * unit)
    reach = error * np.linalg.norm(queries.astype(np.float64), axis=1) * longest + 1e-37
    return (best[0].cpu(), best[1].cpu()), reach


def _blocks(passages: np.ndarray, block: int | None, progress: bool) -> Iterator[tuple[int, np.ndarray]]:
    size = block or max(1, BLOCK_BYTES // (4 * max(1, passages.shape[1])))
    starts = tqdm(range(0, len(passages), size), desc="search", unit="block", disable=not progress)
    for start in starts:
        yield start, np.ascontiguousarray(passages[start : start + size], dtype=np.float32)


def _longest(vectors: np.ndarray, start: int) -> float:
    squares = np.einsum("ph,ph->p", vectors, vectors, dtype=np.float64)
    if not np.isfinite(squares.sum()):
        row = start + int((~np.isfinite(squares)).argmax())
        raise InputError("vector is not finite", where=f"passages row {row}", fix="Encode the passages again.")
    return float(np.sqrt(squares.max()))


def _faiss_engine(queries: np.ndarray, device: torch.device | str) -> Engine:
    faiss.omp_set_num_threads(threads())

    def nearest(vectors: np.ndarray, keep: int) -> Proposal:
        scores, rows = faiss.knn(queries, vectors, keep, metric=faiss.METRIC_INNER_PRODUCT)
        return torch.from_numpy(scores), torch.from_numpy(rows)

    return nearest


def _matmul_engine(queries: np.ndarray, device: torch.device | str) -> Engine:
    on_device = torch.from_numpy(queries).to(device)

    def nearest(vectors: np.ndarray, keep: int) -> Proposal:
        columns = torch.from_numpy(np.require(vectors, requirements="W")).to(device).T
        size = max(1, BLOCK_BYTES // (4 * columns.shape[1]))
        with _full_float32(), torch.inference_mode():
            parts = [(part @ columns).topk(keep, dim=1, sorted=False) for part in on_device.split(size)]
        return torch.cat([part.values for part in parts]), torch.cat([part.indices for part in parts])

    return nearest


@contextmanager
def _full_float32() -> Iterator[None]:
    """No TF32 or bf16 inside a float32 product: the bound on the error counts on 24 bits."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _as_array(vectors: np.ndarray | Tensor) -> np.ndarray:
    array = vectors.detach().cpu().numpy() if isinstance(vectors, Tensor) else vectors
    return np.asarray(array)


def _which(engine: str, device: torch.device | str) -> str:
    on_cpu = torch.device(device).type == "cpu"
    if engine not in ("auto", "faiss", "matmul") or (engine == "faiss" and not on_cpu):
        fix = 'Use "auto", "matmul", or "faiss" with device "cpu".'
        raise InputError(f"no engine {engine!r} on {device}", where="engine", fix=fix)
    return ("faiss" if on_cpu else "matmul") if engine == "auto" else engine


def _check(queries: np.ndarray, passages: np.ndarray, k: int) -> None:
    if queries.ndim != 2 or passages.ndim != 2 or queries.shape[1] != passages.shape[1]:
        problem = f"queries {queries.shape} and passages {passages.shape} do not fit"
        raise InputError(problem, where="search", fix="Give [queries, hidden] and [passages, hidden].")
    if passages.dtype not in (np.float16, np.float32):
        raise InputError(f"passages are {passages.dtype}", where="search", fix="Give float16 or float32 vectors.")
    if k < 1:
        raise InputError(f"k is {k}", where="k", fix="Ask for at least one passage.")
    if not np.isfinite(queries).all():
        row = int((~np.isfinite(queries).all(axis=1)).argmax())
        raise InputError("vector is not finite", where=f"queries row {row}", fix="Encode the queries again.")
