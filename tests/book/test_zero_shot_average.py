"""The zero-shot page's average over collections, as its own cell computes it."""

from types import SimpleNamespace
from typing import Any

import nbformat
import numpy as np
import pytest
from check_pages import ROOT

from dr_book import measured
from dr_lib.evaluation import Clusters, Scores

CELLS = {
    cell.id: cell.source
    for cell in nbformat.read(ROOT / "notebooks/evaluation/zero_shot.ipynb", as_version=4).cells
}


@pytest.fixture(scope="module")
def average() -> Any:
    space: dict[str, Any] = {"measured": measured, "measure": "nDCG@10"}
    exec(CELLS["average"], space)
    return space["average"]


def record(place: str, values: np.ndarray) -> Any:
    """What the cell reads of a run of a model that was used as it came."""
    ids = [f"{place}{number}" for number in range(len(values))]
    scores = Scores(ids, {"nDCG@10": values})
    return SimpleNamespace(
        label="a",
        study="s",
        seed=0,
        scale="laptop",
        keys={"evaluation": place},
        recipe={"retriever": "public"},
        data={"collection": {"name": place, "digest": place}},
        measured=scores,
        means={"nDCG@10": scores.mean("nDCG@10")},
        query_ids=ids,
        clusters=Clusters.alone(len(ids)),
        epoch=None,
        per_query=scores.per_query,
    )


def test_an_average_varies_as_its_collections_do(average):
    rng = np.random.default_rng(1)
    values = {name: rng.random(n) for name, n in zip("abc", (400, 100, 50), strict=True)}
    mean, each, without = average(
        {name: [(1.0, [record(name, own)])] for name, own in values.items()}
    )
    errors = {name: 100 * own.std(ddof=1) / np.sqrt(len(own)) for name, own in values.items()}
    together = np.sqrt(sum(error**2 for error in errors.values())) / 3
    assert mean.mean == pytest.approx(100 * np.mean([own.mean() for own in values.values()]))
    assert (mean.high - mean.low) == pytest.approx(2 * 1.96 * together, rel=0.05)
    rest = np.sqrt(errors["a"] ** 2 + errors["c"] ** 2) / 2
    assert (without["b"].high - without["b"].low) == pytest.approx(2 * 1.96 * rest, rel=0.05)
    assert each["b"].mean == pytest.approx(100 * values["b"].mean())


def test_differences_are_paired_in_each_collection(average):
    rng = np.random.default_rng(2)
    base = rng.random(60)
    pair = [(1.0, [record("a", base)]), (-1.0, [record("a", base - 0.1)])]
    mean, each, without = average({"a": pair})
    assert without == {} and mean == each["a"]
    assert (mean.mean, mean.low, mean.high) == pytest.approx((10.0, 10.0, 10.0), abs=1e-4)
