"""Fast inner products of many vectors, and a proof of how far each may be from the true one.

With `q~` and `p~` for the rounded vectors, `q.p - q~.p~ = (q - q~).p~ + q.(p - p~)`, so by Cauchy and Schwarz what
rounding to bfloat16 can change is bounded by the lengths of what it took away: measured for the queries, at most 1/256
of its length for a passage. To that come the error of a sum in float32 and the rounding of the result. Page of the
book: ideas/evaluation.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dr_lib.errors import InputError
from dr_lib.training.machine import has_bf16

Precision = Literal["auto", "bf16", "fp32"]
ROUNDING = {torch.bfloat16: 2.0**-8 * 1.02, torch.float32: 2.0**-24 * 1.02}
"""Largest relative change of a number that is rounded to a type."""
SAMPLE_QUERIES, SAMPLE_PASSAGES = 64, 2_048


class Products:
    """Inner products of some queries with whatever passages come.

    Args:
        queries: `[queries, hidden]` float32.
        dtype: bfloat16 or float32.
        device: where the products are computed.
    """

    def __init__(self, queries: np.ndarray, dtype: torch.dtype, device: torch.device | str):
        self.dtype, self.device, self.rounding = dtype, torch.device(device), ROUNDING[dtype]
        self.queries = torch.from_numpy(queries).to(self.device, dtype)
        exact = torch.from_numpy(queries).double()
        self.length = torch.linalg.vector_norm(exact, dim=1).numpy()
        self.lost = torch.linalg.vector_norm(exact - exact.to(dtype).double(), dim=1).numpy()

    def reach(self, longest: float) -> np.ndarray:
        """How far a product with a passage of at most that length may be off, before it is rounded: `[queries]`."""
        lost = longest * self.rounding if self.dtype == torch.bfloat16 else 0.0
        sums = (self.queries.shape[1] + 4) * 2.0**-23 * self.length * longest
        return 1.01 * (self.lost * (longest + lost) + self.length * lost + sums) + 1e-35

    def columns(self, vectors: np.ndarray) -> Tensor:
        """Passages `[passages, hidden]` float32 in the form that is multiplied: `[hidden, passages]` on the device."""
        return torch.from_numpy(vectors).to(self.device, self.dtype).T


def choose(precision: Precision, queries: np.ndarray, vectors: np.ndarray, k: int, device: torch.device | str) -> str:
    """Whether products in bfloat16 pay: "bf16" or "fp32".

    They do where the processor has them, where there are queries enough to make up for rounding the passages, and where
    the scores of a sample lie so far apart that not too many passages are within the error of place `k`.

    Args:
        precision: "auto" asks; the others are taken at their word.
        queries: `[queries, hidden]` float32.
        vectors: `[passages, hidden]`, a large part of the collection.
        k: passages wanted.
        device: a GPU sums in float32 only when it multiplies in float32.
    """
    on_cpu = torch.device(device).type == "cpu"
    if precision != "auto":
        return precision
    if not on_cpu or len(queries) < SAMPLE_QUERIES or not has_bf16(torch.device("cpu")):
        return "fp32"
    some = queries[:: len(queries) // SAMPLE_QUERIES][:SAMPLE_QUERIES]
    sample = np.ascontiguousarray(vectors[:: -(-len(vectors) // SAMPLE_PASSAGES)], dtype=np.float32)
    rank = max(1, round(k * len(sample) / len(vectors)))
    if rank >= len(sample):
        return "fp32"
    reach = Products(some, torch.bfloat16, "cpu").reach(float(np.linalg.norm(sample, axis=1).max()))
    scores = some @ sample.T
    last = np.partition(scores, len(sample) - rank, axis=1)[:, len(sample) - rank]
    near = np.count_nonzero(scores > (last - 2 * reach)[:, None], axis=1).mean()
    return "bf16" if near <= 1.5 * rank + 4 else "fp32"


def blocks(passages: np.ndarray, size: int) -> Iterator[tuple[int, np.ndarray, float]]:
    """Consecutive passages as float32 in memory, with the row of the first and the length of the longest vector.

    Raises:
        InputError: a vector is not finite.
    """
    for start in range(0, len(passages), size):
        vectors = np.ascontiguousarray(passages[start : start + size], dtype=np.float32)
        squares = np.vecdot(vectors, vectors)
        if not np.isfinite(squares).all():
            row = start + int((~np.isfinite(vectors).all(axis=1)).argmax())
            raise InputError("vector is not finite", where=f"passages row {row}", fix="Encode the passages again.")
        yield start, np.require(vectors, requirements="W"), float(np.sqrt(squares.max()))


@contextmanager
def full_float32() -> Iterator[None]:
    """No TF32 or bf16 inside a float32 product: the bound on the error counts on 24 bits."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
