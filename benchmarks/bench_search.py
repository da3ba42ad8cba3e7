"""Exact search against brute force in float64 and against `faiss.IndexFlatIP`, in one run.

The same queries and vectors on the same threads. Every rank must have the same passage as brute
force in float64, with equal scores ordered by row; otherwise the run fails. faiss computes in
float32 and may order near ties differently. It runs with default settings, and again with matrix
products for small batches too, which recent versions no longer use: with
`distance_compute_blas_threshold` at its former value of 20.

    python benchmarks/bench_search.py [--passages 100000 --queries 500 --hidden 128 --repeats 3
    --threads 1]
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
from timing import alternate, bandwidth, keep, multiply_adds, show, start

from dr_lib.retrieval import search

LIMIT = 1.1
OURS, PLAIN, TUNED = "this project", "faiss IndexFlatIP", "faiss IndexFlatIP, BLAS"
BLAS_FROM = 20


def unit_vectors(count: int, hidden: int) -> np.ndarray:
    """Random unit vectors."""
    vectors = np.random.default_rng(0).standard_normal((count, hidden), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def brute_force(queries: np.ndarray, passages: np.ndarray, k: int) -> np.ndarray:
    """Rows `[queries, k]` by score (in float64, rounded to float32) descending, then row
    ascending.
    """
    passages, rows = passages.astype(np.float64), []
    for query in queries.astype(np.float64):
        scores = np.vecdot(passages, query).astype(np.float32)
        rows.append(np.argsort(-scores, kind="stable")[:k])
    return np.stack(rows)


def ways_of(queries: np.ndarray, passages: np.ndarray, k: int) -> dict[str, Callable]:
    """Ours and both variants of faiss; each returns scores and rows."""
    index, usual = faiss.IndexFlatIP(passages.shape[1]), faiss.cvar.distance_compute_blas_threshold
    index.add(passages)

    def theirs(threshold: int) -> tuple[np.ndarray, np.ndarray]:
        faiss.cvar.distance_compute_blas_threshold = threshold
        try:
            return index.search(queries, k)
        finally:
            faiss.cvar.distance_compute_blas_threshold = usual

    return {
        OURS: lambda: search(queries, passages, k),
        PLAIN: lambda: theirs(usual),
        TUNED: lambda: theirs(BLAS_FROM),
    }


def main() -> None:
    """Top 100 and top 1,000 of random unit vectors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = {"passages": 100_000, "queries": 500, "hidden": 128, "repeats": 3, "threads": 1}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--top", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    start(chosen.threads)
    faiss.omp_set_num_threads(chosen.threads)
    vectors = unit_vectors(chosen.passages + chosen.queries, chosen.hidden)
    queries, passages = np.split(vectors, [chosen.queries])
    expected = brute_force(queries, passages, max(chosen.top))
    for k in chosen.top:
        ways = ways_of(queries, passages, k)
        wrong = np.count_nonzero(ways[OURS]()[1] != expected[:, :k])
        if wrong:
            sys.exit(f"{wrong} of {len(queries) * k} ranks differ from brute force in float64")
        same = np.mean(ways[PLAIN]()[1] == expected[:, :k])
        timings = alternate(ways, chosen.repeats, warm=1)
        size = f"{chosen.passages} x {chosen.hidden}, top {k}"
        title = (
            f"search, {chosen.queries} queries, {size}; of the ranks by brute force we have all,"
            f" faiss {same:.5f}"
        )
        show(title, timings, PLAIN)
        for peer in (PLAIN, TUNED):
            label = "search" if peer == PLAIN else "search (faiss with BLAS)"
            least = max(
                queries.size * len(passages) / multiply_adds(), passages.nbytes / bandwidth()
            )
            keep(chosen.save, f"{label}, {size}", LIMIT, timings, OURS, peer, ways[OURS], least)


if __name__ == "__main__":
    main()
