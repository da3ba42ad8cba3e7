"""A smaller collection drawn from a larger one, always the same for the same arguments.

Draws are nested: a larger number of queries or passages contains what a smaller number gives. Book: ideas/evaluation.
"""

from collections.abc import Mapping

import datasets
import numpy as np

from dr_lib.collections.collection import Collection
from dr_lib.errors import InputError
from dr_lib.files import json_digest


def draw_sample(parent: Collection, passages: int | None, queries: Mapping[str, int], seed: int) -> Collection:
    """Draw queries per split, keep all their positives, and fill up with other passages, whole documents at a time.

    Args:
        parent: where to draw from.
        passages: number of passages, None for all; at least as many as the drawn queries have positives.
        queries: at most so many queries, by split; splits not named are kept whole, splits that do not exist are ignored.
        seed: of every draw.

    Returns:
        A collection whose passages and queries keep their order; judgements of left-out passages and queries are gone.

    Raises:
        InputError: a size below 1, or positives that do not fit.
    """
    for name, size in {"passages": passages, **queries}.items():
        if size is not None and size < 1:
            raise InputError(
                f"a sample of {size} is empty", where=name, fix="Give a number of at least 1, or leave it out."
            )
    drawn = {split: _draw_queries(parent, split, queries.get(split), seed) for split in parent.splits}
    ids = parent.passages["id"][:]
    row_of = {id_: row for row, id_ in enumerate(ids)}
    positives = {
        row_of[passage]
        for split in drawn.values()
        for judged in split.values()
        for passage, grade in judged.items()
        if grade > 0
    }
    rows = _fill(parent.passages, positives, passages, seed)
    kept = {ids[row] for row in rows.tolist()}
    judgements = {split: _table(judged, kept) for split, judged in drawn.items()}
    asked = {query for split in drawn.values() for query in split}
    query_rows = [row for row, id_ in enumerate(parent.queries()["id"]) if id_ in asked]
    arguments = {"passages": passages, "queries": dict(queries), "seed": seed}
    info = {**parent.info, "sample": {**arguments, "of": parent.digest}}
    return Collection(
        parent.name,
        json_digest([parent.digest, arguments]),
        info,
        parent.passages.select(rows),
        parent.queries().select(query_rows),
        {split: table for split, table in judgements.items() if len(table)},
    )


def _draw_queries(parent: Collection, split: str, size: int | None, seed: int) -> dict[str, dict[str, int]]:
    """Judgements of the drawn queries of a split; queries without a positive are never drawn."""
    grades = parent.qrels(split)
    able = [query for query, judged in grades.items() if max(judged.values()) > 0]
    if size is None or size >= len(able):
        return grades if size is None else {query: grades[query] for query in able}
    order = np.random.default_rng([seed, *split.encode()]).permutation(len(able))
    return {able[row]: grades[able[row]] for row in np.sort(order[:size])}


def _fill(passages: datasets.Dataset, needed: set[int], size: int | None, seed: int) -> np.ndarray:
    """Rows of the sample in order: the needed ones, then documents in random order until `size` is reached."""
    if size is None or size >= len(passages):
        return np.arange(len(passages))
    if len(needed) > size:
        raise InputError(
            f"{size} passages cannot hold the {len(needed)} positives of the drawn queries",
            where="passages",
            fix=f"Ask for at least {len(needed)} passages, or for fewer queries.",
        )
    docs = passages["doc"][:]
    groups = np.unique([doc or f"\0{row}" for row, doc in enumerate(docs)], return_inverse=True)[1]
    rank = np.random.default_rng([seed, 1]).permutation(groups.max() + 1)
    order = np.argsort(rank[groups], kind="stable")
    others = order[~np.isin(order, np.fromiter(needed, dtype=np.int64, count=len(needed)))]
    return np.sort(np.concatenate([np.array(sorted(needed), dtype=np.int64), others[: size - len(needed)]]))


def _table(judged: Mapping[str, Mapping[str, int]], kept: set[str]) -> datasets.Dataset:
    rows = [
        (query, passage, grade)
        for query, grades in judged.items()
        for passage, grade in grades.items()
        if passage in kept
    ]
    queries, found, grades = zip(*rows, strict=True) if rows else ((), (), ())
    features = datasets.Features(
        {"query": datasets.Value("string"), "passage": datasets.Value("string"), "grade": datasets.Value("int64")}
    )
    return datasets.Dataset.from_dict({"query": queries, "passage": found, "grade": grades}, features=features)
