"""Data of two explorers: spreads between recorded runs, and cosines of real queries and passages.

Their scripts are in `book/extra/explorers`, and follow `dr_book.statistics.Estimate.detectable`
and `losses.contrastive`. Pages: ideas/queries-explorer, ideas/temperature-explorer.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from search_page import METHODS, from_axes, small_queries, small_vectors, trained

from dr_book.measured import per_seed, recorded
from dr_book.tables import named
from dr_lib import collections, tokens
from dr_lib.collections import judged_rows
from dr_lib.files import write_text
from dr_lib.lab import Cache, Data, Record, open_checkpoint

FOLDER = "extra/explorers"
WRITTEN = ("test-sets-data.js", "temperature-data.js")
MEASURE = "MRR@10"
COMPARED = "methods/equal-budgets"
"""A study with one run per method."""
EXAMPLE = {
    "name": "two systems that each answer a fifth of the queries alone",
    "spread": round(100 * 0.4**0.5, 2),
}
"""Used if nothing is recorded: differences of 1, -1 and 0."""
BATCH, WORDS = 64, 14
"""Queries of the largest batch, and displayed words of each passage."""


def write_explorers(to: Path) -> list[Path]:
    """Write the data of both into the staged source of the book."""
    texts = {
        "testSetsData": {"measure": MEASURE, "pairs": spreads(recorded(COMPARED))},
        "temperatureData": batch(),
    }
    for file, (name, data) in zip(WRITTEN, texts.items(), strict=True):
        write_text(
            to / FOLDER / file, f"window.{name} = {json.dumps(data, separators=(',', ':'))};\n"
        )
    return [to / FOLDER / file for file in WRITTEN]


def spreads(runs: Mapping[str, Sequence[Record]]) -> list[dict[str, Any]]:
    """Standard deviation over queries of the difference between two systems, in points, seeds
    averaged first.
    """
    names = {key: named(key) for key in ("BM25", "none", "mlm", "simlm")}
    wanted = (("simlm", "none"), ("simlm", "mlm"), ("simlm", "BM25"))
    pairs = [(one, other) for one, other in wanted if one in runs and other in runs]
    found = []
    for one, other in pairs:
        of_one = per_seed(runs[one], MEASURE).mean(0)
        gaps = of_one - per_seed(runs[other], MEASURE, like=runs[one][0]).mean(0)
        spread = gaps.std(ddof=1)
        found.append(
            {"name": f"{names[one]} and {names[other]}", "spread": round(float(spread), 2)}
        )
    return found or [EXAMPLE]


def batch(name: str = "primer", cache: Cache | None = None) -> dict[str, Any]:
    """Cosines `[queries, passages]` of a batch of test queries with their relevant passages, by the
    first retriever of the search page.
    """
    collection, cache = collections.load(name), cache or Cache(announce=lambda line: None)
    tokenizer = open_checkpoint("embedded").tokenizer
    weights = Data.file(trained(METHODS[0], name, cache).weights)
    asked = (
        cache.get(small_queries(weights, tokens.query_tokens(collection, tokenizer, split="test")))
        / "queries.npy"
    )
    stored = load_file(
        cache.get(small_vectors(weights, tokens.passage_tokens(collection, tokenizer)))
        / "vectors.safetensors"
    )
    queries = collection.queries("test")
    relevant = judged_rows(collection.qrels("test"), queries["id"][:], collection.passages["id"])
    # one question per passage: otherwise a negative could be a positive
    chosen: dict[int, int] = {}
    for i in np.random.default_rng(0).permutation(len(relevant)).tolist():
        if len(relevant[i]) == 1:
            chosen.setdefault(int(relevant[i][0]), i)
    rows, asking = [*chosen][:BATCH], [*chosen.values()][:BATCH]
    vectors = from_axes(stored)[rows]
    passages = collection.passages[rows]
    shown = zip(passages["title"], passages["text"], strict=True)
    return {
        "cosines": np.round((np.load(asked)[asking] @ vectors.T).astype(float), 3).tolist(),
        "queries": queries[asking]["text"],
        "passages": [f"{title}: {' '.join(text.split()[:WORDS])} …" for title, text in shown],
    }
