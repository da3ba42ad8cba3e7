"""Cost of each step as a collection grows, for practice/from-thousands-to-a-billion.

First every step on real passages, with half of them and with all: seconds, bytes on disk, both per
million passages, and whether twice the passages cost twice the time. Then approximate search on
synthetic vectors: recall and speed of faiss' IVF-PQ and HNSW against exact search, at growing
sizes, until the next one would not fit into `--seconds`.

Seconds are processor time on one thread, so that other programs matter little (they still share
caches and clock). The vectors have two levels of clusters and a low effective dimension, as a
trained encoder's have: unstructured vectors would be harder for every index, and unrepresentative.

    python benchmarks/growth.py [--collection squad --passages 20000 --seconds 120 --save
    growth.json]
"""

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import faiss
import numpy as np
import psutil
import torch
from bench_ngrams import folder_size
from material import default_collection, repeated

from dr_lib import collections, models, retrieval, tokens
from dr_lib.files import write_json
from dr_lib.lab import commit
from dr_lib.materials import count_ngrams
from dr_lib.training import machine

TOP, QUERIES, AGAIN = 10, 200, 100
"""Passages wanted, queries, and candidates that are re-ranked after IVF-PQ."""
WARM = 200  # passages of a warm-up round: libraries load, kernels are built
CENTRES, INNER, OUTER = 4096, 24, 0.35
"""Centres of the synthetic vectors, effective dimension, and the spread around a centre."""
LINKS, PART_BYTES, POINTS = 16, 4, 64
"""HNSW's links per vector; how many numbers IVF-PQ encodes in a byte, and its training vectors per
centre.
"""
BLAS_FROM = 20
"""Number of queries from which faiss uses matrix products, as it did before; recent versions hardly
ever do, and are slower.
"""
WANTED = 0.95
"""Recall at which indexes are compared."""
MILLION = 1e6


def spent(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of some work, and its result."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


# Steps on real passages ---------------------------------------------------------------------------


def steps(
    texts: datasets.Dataset, queries: list[str], folder: Path
) -> Iterator[tuple[str, float, int]]:
    """Name, seconds and bytes of every step on some passages; a search has 1,000 queries and no
    bytes.
    """
    encoder = models.DenseEncoder.from_pretrained("embedded", title="none")
    words, layout = encoder.tokenizer, encoder.settings.passages

    def build() -> tokens.TokenStore:
        return tokens.TokenStore.build(texts, words, folder / "store", columns=("text",))

    seconds, store = spent(build)
    yield "tokenise", seconds, folder_size(folder / "store")
    seconds, _ = spent(lambda: count_ngrams(store, folder / "ngrams"))
    yield "count n-grams", seconds, folder_size(folder / "ngrams")
    seconds, bm25 = spent(lambda: retrieval.Bm25.build(texts, folder / "bm25", title=False))
    yield "BM25: index", seconds, folder_size(folder / "bm25")
    seconds, _ = spent(lambda: bm25.search(queries, TOP))
    yield "BM25: search", 1000 * seconds / len(queries), 0
    seconds, vectors = spent(
        lambda: retrieval.encode(encoder, store, folder / "vectors.npy", **layout)
    )
    yield "encode", seconds, (folder / "vectors.npy").stat().st_size
    asked = encoder.encode(queries, queries=True)
    seconds, _ = spent(lambda: retrieval.search(asked, vectors, TOP))
    yield "exact search", 1000 * seconds / len(queries), 0


def measure_steps(texts: datasets.Dataset, queries: list[str]) -> dict[str, dict[str, float]]:
    """Each step with half of the passages and with all."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        list(steps(texts.select(range(min(WARM, len(texts)))), queries, Path(name)))
    for rows in (len(texts) // 2, len(texts)):
        with tempfile.TemporaryDirectory() as name:
            for step, seconds, size in steps(texts.select(range(rows)), queries, Path(name)):
                before = found.get(step, {}).get("seconds")
                found[step] = {
                    "passages": rows,
                    "seconds": seconds,
                    "seconds a million": seconds * MILLION / rows,
                }
                if before:
                    found[step]["twice the passages"] = seconds / before
                if size:
                    found[step] |= {"bytes": size, "bytes a million": size * MILLION / rows}
                print(f"{step:14} {rows:9,} passages {seconds:9.2f} s {size:14,} bytes", flush=True)
    return found


# Approximate search on synthetic vectors ----------------------------------------------------------


def made_up(count: int, hidden: int, seed: int) -> np.ndarray:
    """Unit vectors `[count, hidden]` float32; queries and passages of the same size have the same
    centres.
    """
    shared, own = np.random.default_rng(0), np.random.default_rng([1, seed])
    basis = shared.standard_normal((INNER, hidden), dtype=np.float32)
    centres = shared.standard_normal((CENTRES, INNER), dtype=np.float32)
    found = np.empty((count, hidden), np.float32)
    for start in range(0, count, 1 << 16):
        part = found[start : start + (1 << 16)]
        inner = centres[own.integers(0, CENTRES, len(part))] + OUTER * own.standard_normal(
            (len(part), INNER), dtype=np.float32
        )
        np.matmul(inner, basis, out=part)
        part += 0.5 * own.standard_normal(part.shape, dtype=np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def ivf_pq(vectors: np.ndarray) -> tuple[faiss.Index, list[int]]:
    """An index with lists of vectors near a centre, each vector in `hidden / PART_BYTES` bytes; and
    the numbers of lists to search.

    np: without ordering the codes for Hamming distances, which are unused here and whose training
    takes half a minute.
    """
    count, hidden = vectors.shape
    lists = max(16, round(4 * count**0.5))
    index = faiss.index_factory(
        hidden, f"IVF{lists},PQ{hidden // PART_BYTES}np", faiss.METRIC_INNER_PRODUCT
    )
    for training in (index.cp, index.pq.cp):
        training.niter = 10
        training.max_points_per_centroid = POINTS
        training.min_points_per_centroid = 1
    index.train(vectors[np.random.default_rng(0).permutation(count)[: POINTS * lists]])
    index.add(vectors)
    return index, [1, 2, 4, 8, 16, 32, 64, 128]


def hnsw(vectors: np.ndarray) -> tuple[faiss.Index, list[int]]:
    """A graph whose edges lead to ever nearer vectors; and the numbers of candidates to keep."""
    index = faiss.IndexHNSWFlat(vectors.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 100
    index.add(vectors)
    return index, [16, 32, 64, 128, 256, 512]


INDEXES = {"IVF-PQ": (ivf_pq, "nprobe"), "HNSW": (hnsw, "efSearch")}


def measure_index(
    name: str, vectors: np.ndarray, queries: np.ndarray, exact: np.ndarray
) -> dict[str, Any]:
    """Build an index and search it with growing effort; IVF-PQ's candidates are re-ranked by exact
    scores, as in practice.
    """
    make, effort = INDEXES[name]
    seconds, (index, levels) = spent(lambda: make(vectors))
    size, tried = len(faiss.serialize_index(index)), []
    for level in levels:
        faiss.ParameterSpace().set_index_parameter(index, effort, level)

        def search() -> np.ndarray:
            if name == "HNSW":
                return index.search(queries, TOP)[1]
            rows = index.search(queries, AGAIN)[1]
            scores = retrieval.exact_scores(queries, vectors, np.maximum(rows, 0))
            scores[rows < 0] = -np.inf
            return np.take_along_axis(
                rows, np.argsort(-scores, axis=1, kind="stable")[:, :TOP], axis=1
            )

        took, rows = spent(search)
        recall = np.mean(
            [len(np.intersect1d(*both)) / TOP for both in zip(rows, exact, strict=True)]
        )
        tried.append(
            {
                effort: level,
                "recall": float(recall),
                "milliseconds a query": 1000 * took / len(queries),
            }
        )
        if recall >= 0.995:
            break
    enough = [one for one in tried if one["recall"] >= WANTED]
    chosen = (
        min(enough, key=lambda one: one["milliseconds a query"])
        if enough
        else max(tried, key=lambda one: one["recall"])
    )
    # Re-ranking also reads the vectors themselves, perhaps from disk: they are not counted here.
    return {
        "build seconds": seconds,
        "bytes a vector": size / len(vectors),
        "tried": tried,
        "chosen": chosen,
    }


def measure_search(sizes: list[int], hidden: int, budget: float) -> list[dict[str, Any]]:
    """Exact and approximate search at growing sizes, as far as the budget allows."""
    found, used, last = [], 0.0, 0.0
    for before, size in itertools.pairwise([0, *sizes]):
        # the cost of indexes grows slightly faster than their size
        if before and used + last * 1.3 * size / before > budget:
            print(f"{size:,} vectors would not fit into {budget:.0f} s", flush=True)
            break
        start = time.process_time()
        vectors, queries = made_up(size, hidden, 0), made_up(QUERIES, hidden, 1)
        took, (_, exact) = spent(
            lambda vectors=vectors, queries=queries: retrieval.search(queries, vectors, TOP)
        )
        row = {
            "vectors": size,
            "exact": {"milliseconds a query": 1000 * took / QUERIES, "bytes a vector": 4 * hidden},
        }
        row |= {name: measure_index(name, vectors, queries, exact) for name in INDEXES}
        found.append(row)
        last = time.process_time() - start
        used += last
        shown = {name: row[name]["chosen"] for name in INDEXES}
        print(
            f"{size:,} vectors, {last:.0f} s: exact {row['exact']['milliseconds a query']:.2f} ms;"
            f" {shown}",
            flush=True,
        )
    return found


def limits(search: list[dict[str, Any]], memory: float, patience: float) -> dict[str, Any]:
    """How many vectors each method is suited for, extrapolated from the largest measured size.

    Args:
        search: the measurements.
        memory: bytes.
        patience: milliseconds for a query on one thread.
    """
    last = search[-1]
    exact = last["exact"]["milliseconds a query"] / last["vectors"]
    found = {
        "exact, by time": patience / exact,
        "exact, by memory": memory / last["exact"]["bytes a vector"],
    }
    return found | {f"{name}, by memory": memory / last[name]["bytes a vector"] for name in INDEXES}


def main() -> None:
    """Measure everything, print it, and write the file that the page reads."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--collection", default=default_collection())
    parser.add_argument("--passages", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000],
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=120,
        help="of the processor, for the search on made-up vectors",
    )
    parser.add_argument(
        "--memory", type=float, default=64e9, help="bytes that an index may take, for the limits"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=100,
        help="milliseconds that a query may take, for the limits",
    )
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    faiss.cvar.distance_compute_blas_threshold = BLAS_FROM
    datasets.disable_progress_bars()
    whole = collections.load(chosen.collection)
    drawn = whole.sample(
        chosen.passages, train_queries=chosen.queries, dev_queries=1, test_queries=1
    )
    texts, queries = repeated(drawn.passages, chosen.passages), drawn.queries("train")["text"][:]
    found: dict[str, Any] = {"steps": measure_steps(texts, queries)}
    found["search"] = measure_search(chosen.sizes, chosen.hidden, chosen.seconds)
    found["limits"] = limits(found["search"], chosen.memory, chosen.patience)
    facts = {
        "cpu": machine.machine_facts()["cpu"],
        "load": round(psutil.getloadavg()[0], 1),
        "date": time.strftime("%Y-%m-%d"),
    }
    settings = {name: value for name, value in vars(chosen).items() if name != "save"}
    settings["memory in gigabytes"] = chosen.memory / 1e9
    found["billion"] = {"bytes": 4e9 * chosen.hidden, "bytes at 768": 4e9 * 768}
    found |= {"machine": facts, "settings": settings, "wanted": WANTED, "commit": commit()}
    print(json.dumps(found["limits"], indent=1))
    if chosen.save:
        write_json(chosen.save, found)


if __name__ == "__main__":
    main()
