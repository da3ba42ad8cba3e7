"""A smaller collection drawn from a larger one, always the same for the same arguments.

Draws are nested: a larger number of queries or passages contains what a smaller number gives. Book: ideas/evaluation.
"""

from collections.abc import Mapping

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_lib.collections.collection import Collection
from dr_lib.errors import InputError
from dr_lib.files import json_digest

Grades = dict[str, dict[str, int]]
JUDGEMENT = datasets.Features(
    {"query": datasets.Value("string"), "passage": datasets.Value("string"), "grade": datasets.Value("int64")}
)


def draw_sample(parent: Collection, passages: int | None, limits: Mapping[str, int | None], seed: int) -> Collection:
    """Draw queries per split, keep their positives, fill up with other passages (see `Collection.sample`).

    Args:
        parent: where to draw from.
        passages: number of passages, None for all.
        limits: at most so many queries, by split, None for all; other splits keep what fits.
        seed: of every draw.

    Raises:
        InputError: a number below 1, or positives that do not fit.
    """
    for name, size in {"passages": passages, **limits}.items():
        if size is not None and size < 1:
            raise InputError(f"a sample of {size} is empty", where=name, fix="Give a number from 1, or leave it out.")
    drawn = {split: _draw_queries(parent, split, limits[split], seed) for split in parent.splits if split in limits}
    positives = {
        id_ for split in drawn.values() for judged in split.values() for id_, grade in judged.items() if grade > 0
    }
    rows = _fill(parent, positives, passages, seed)
    kept = set(_column(parent.passages, "id").take(pa.array(rows)).to_pylist())
    for split in parent.splits:
        drawn.setdefault(split, _whole_queries(parent, split, kept))
    drawn = {split: _restricted(drawn[split], kept) for split in parent.splits}
    asked = {query for split in drawn.values() for query in split}
    query_rows = [row for row, id_ in enumerate(_column(parent.queries(), "id").to_pylist()) if id_ in asked]
    arguments = {"passages": passages, "queries": dict(limits), "seed": seed}
    return Collection(
        parent.name,
        json_digest([parent.digest, arguments]),
        {**parent.info, "sample": {**arguments, "of": parent.digest}},
        parent.passages.select(rows),
        parent.queries().select(query_rows),
        {split: _table(judged) for split, judged in drawn.items() if judged},
    )


def _draw_queries(parent: Collection, split: str, size: int | None, seed: int) -> Grades:
    """Judgements of the drawn queries of a split; queries without a positive are never drawn."""
    grades = parent.qrels(split)
    if size is None:
        return grades
    able = [query for query, judged in grades.items() if max(judged.values()) > 0]
    order = np.random.default_rng([seed, *split.encode()]).permutation(len(able))
    return {able[row]: grades[able[row]] for row in np.sort(order[:size])}


def _whole_queries(parent: Collection, split: str, kept: set[str]) -> Grades:
    """Judgements of the queries of a split that have positives, all of them kept."""
    found = {}
    for query, judged in parent.qrels(split).items():
        positives = [id_ for id_, grade in judged.items() if grade > 0]
        if positives and kept.issuperset(positives):
            found[query] = judged
    return found


def _restricted(grades: Grades, kept: set[str]) -> Grades:
    """Judgements of kept passages only; a query that has none left is dropped."""
    cut = {query: {id_: grade for id_, grade in judged.items() if id_ in kept} for query, judged in grades.items()}
    return {query: judged for query, judged in cut.items() if judged}


def _fill(parent: Collection, positives: set[str], size: int | None, seed: int) -> np.ndarray:
    """Rows of the sample in order: the positives, then documents in random order until `size` is reached."""
    total = len(parent.passages)
    if size is None or size >= total:
        return np.arange(total)
    if len(positives) > size:
        problem = f"{size} passages cannot hold the {len(positives)} positives of the drawn queries"
        fix = f"Ask for at least {len(positives)} passages, or for fewer queries."
        raise InputError(problem, where="passages", fix=fix)
    wanted = pa.array(sorted(positives), pa.string())
    needed = pc.is_in(_column(parent.passages, "id"), value_set=wanted).to_numpy()
    order = np.argsort(_document_ranks(parent.passages, seed), kind="stable")
    others = order[~needed[order]][: size - int(needed.sum())]
    return np.sort(np.concatenate([np.flatnonzero(needed), others]))


def _document_ranks(passages: datasets.Dataset, seed: int) -> np.ndarray:
    """For every passage the place of its document in a random order; one without a document stands alone."""
    docs = _column(passages, "doc").combine_chunks().dictionary_encode()
    groups = docs.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    alone = np.flatnonzero(pc.equal(_column(passages, "doc"), "").to_numpy())
    groups[alone] = len(docs.dictionary) + np.arange(len(alone))
    return np.random.default_rng([seed, 1]).permutation(len(docs.dictionary) + len(alone))[groups]


def _column(dataset: datasets.Dataset, name: str) -> pa.ChunkedArray:
    return dataset.select_columns([name]).with_format("arrow")[:][name]


def _table(judged: Grades) -> datasets.Dataset:
    rows = [(query, id_, grade) for query, grades in judged.items() for id_, grade in grades.items()]
    columns = zip(*rows, strict=True)
    return datasets.Dataset.from_dict(dict(zip(JUDGEMENT, columns, strict=True)), features=JUDGEMENT)
