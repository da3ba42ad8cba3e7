"""Exact search by inner product, with one order for every machine: score descending, then row ascending.

A matrix product gives a score whose last bits depend on its number type and on the blocks it is cut into, so ties and
near-ties would fall differently with another block size, on a GPU, or in bfloat16. So fast products only choose who may
be among the first; the scores of these are then computed again one by one in float64 and rounded to float32, and the
order is made from those. A bound on the error of the fast products proves that nobody else belongs into the result.

Brute force as in SimLM (section 4.1), whose released code stops where a shard has fewer passages than `k`: here all
come back. Page of the book: ideas/evaluation.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from dr_lib.errors import InputError
from dr_lib.retrieval.exact import exact_scores, opened
from dr_lib.retrieval.products import Precision, Products, blocks, choose, full_float32
from dr_lib.retrieval.reservoir import POOL, Reservoir, TooRoughError
from dr_lib.training.machine import threads

__all__ = ["exact_scores", "search"]

BLOCK_BYTES = 1 << 28
STATE_BYTES = 1 << 29
TILE_QUERIES, TILE_PASSAGES = 512, 4_096
SHARE = 128


def search(
    queries: np.ndarray | Tensor,
    passages: np.ndarray | Tensor,
    k: int,
    *,
    device: torch.device | str = "cpu",
    precision: Precision = "auto",
    block: int | None = None,
    progress: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The `k` passages of highest inner product with each query.

    Args:
        queries: `[queries, hidden]` float.
        passages: `[passages, hidden]` float16 or float32; may be memory-mapped and larger than memory.
        k: passages wanted, at least 1; with fewer in the collection all of them come back.
        device: where the fast products are computed.
        precision: of the fast products, "bf16" (CPU only), "fp32", or "auto": bf16 where that is quicker. The result
            does not depend on it.
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
    queries = np.require(_as_array(queries), np.float32, ["C", "W"])
    passages = _as_array(passages)
    _check(queries, passages, k, precision, device)
    k, size = min(k, len(passages)), block or max(1, BLOCK_BYTES // (4 * max(1, passages.shape[1])))
    group = max(1, STATE_BYTES // (8 * (1 + 3 * POOL) * max(1, k)))
    parts = [queries[i : i + group] for i in range(0, len(queries), group)] if k else []
    found = [np.empty((0 if k else len(queries), k), np.int64)]
    with tqdm(total=len(parts) * -(-len(passages) // size), desc="search", unit="block", disable=not progress) as bar:
        for part in parts:
            how = choose(precision, part, passages[:size], k, device)
            try:
                found.append(_nearest(part, passages, k, Products(part, TYPES[how], device), size, bar))
            except TooRoughError:
                found.append(_nearest(part, passages, k, Products(part, torch.float32, device), size, bar))
    return opened(np.concatenate(found))


TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def _nearest(queries: np.ndarray, passages: np.ndarray, k: int, products: Products, size: int, bar: tqdm) -> np.ndarray:
    """The `k` best passages of each query, `[queries, k]` int64 as `exact.keys` writes them."""
    with ThreadPoolExecutor(threads()) as pool, full_float32(), torch.inference_mode():
        tiles, share_out = _tiles(queries, k, products), pool.map if threads() > 1 else map
        for start, vectors, longest in blocks(passages, size):
            block = _Block(vectors, start, longest)
            _read(tiles, products, block, share_out, guess=start == 0)
            if start == 0:
                _mend(tiles, products, block, k, share_out)
            bar.update()
    return np.concatenate([reservoir.best for _, reservoirs in tiles for reservoir in reservoirs])


class _Block(NamedTuple):
    """Consecutive passages in memory: vectors, row of the first, length of the longest."""

    vectors: np.ndarray
    start: int
    longest: float


Tiles = list[tuple[slice, list[Reservoir]]]


def _tiles(queries: np.ndarray, k: int, products: Products) -> Tiles:
    """Queries that are multiplied together, and among them those that one thread looks after."""
    share = min(SHARE, -(-TILE_QUERIES // threads()))
    tiles = []
    for start in range(0, len(queries), TILE_QUERIES):
        tile = queries[start : start + TILE_QUERIES]
        reservoirs = [Reservoir(tile[i : i + share], k, products.rounding) for i in range(0, len(tile), share)]
        tiles.append((slice(start, start + TILE_QUERIES), reservoirs))
    return tiles


def _read(tiles: Tiles, products: Products, block: _Block, share_out: Callable, *, guess: bool) -> None:
    """Look at the passages of one block, every so-manieth together, so that the first lot is a sample of the block."""
    steps, reach = -(-len(block.vectors) // TILE_PASSAGES), products.reach(block.longest)
    for step in range(steps):
        columns = products.columns(block.vectors[step::steps])

        def take(reservoir: Reservoir, scores: Tensor, reach: np.ndarray, step: int = step) -> None:
            if guess and step == 0:
                reservoir.expect(scores[:, ::2], reach, 0.5 * scores.shape[1] / len(block.vectors))
            reservoir.add(scores, reach, step, steps)
            if reservoir.full or step == steps - 1:
                reservoir.cut(block.vectors, block.start)

        for lines, reservoirs in tiles:
            scores, share = products.queries[lines] @ columns, len(reservoirs[0].queries)
            reaches = np.split(reach[lines], range(share, len(scores), share))
            list(share_out(take, reservoirs, scores.split(share), reaches))


def _mend(tiles: Tiles, products: Products, block: _Block, k: int, share_out: Callable) -> None:
    """Search the first block again for queries whose guessed threshold was too high, now without a guess."""
    for _, reservoirs in tiles:
        for reservoir in reservoirs:
            short = reservoir.short()
            if len(short):
                queries = reservoir.queries[short].astype(np.float32)
                again = Products(queries, products.dtype, products.device)
                fresh = _tiles(queries, k, again)
                _read(fresh, again, block, share_out, guess=False)
                reservoir.replace(short, np.concatenate([one.best for _, some in fresh for one in some]))


def _as_array(vectors: np.ndarray | Tensor) -> np.ndarray:
    array = vectors.detach().cpu().numpy() if isinstance(vectors, Tensor) else vectors
    return np.asarray(array)


def _check(
    queries: np.ndarray, passages: np.ndarray, k: int, precision: str, device: torch.device | str
) -> None:  # fmt: skip
    if queries.ndim != 2 or passages.ndim != 2 or queries.shape[1] != passages.shape[1]:
        problem = f"queries {queries.shape} and passages {passages.shape} do not fit"
        raise InputError(problem, where="search", fix="Give [queries, hidden] and [passages, hidden].")
    if passages.dtype not in (np.float16, np.float32):
        raise InputError(f"passages are {passages.dtype}", where="search", fix="Give float16 or float32 vectors.")
    if k < 1:
        raise InputError(f"k is {k}", where="k", fix="Ask for at least one passage.")
    if precision not in ("auto", *TYPES) or (precision == "bf16" and torch.device(device).type != "cpu"):
        fix = 'Use "auto", "fp32", or "bf16" with device "cpu".'
        raise InputError(f"no precision {precision!r} on {device}", where="precision", fix=fix)
    if not np.isfinite(queries).all():
        row = int((~np.isfinite(queries).all(axis=1)).argmax())
        raise InputError("vector is not finite", where=f"queries row {row}", fix="Encode the queries again.")
