"""The zero-shot page's average over collections, as its own cell computes it."""

from typing import Any

import nbformat
import numpy as np
import pytest
from check_pages import ROOT

from dr_book.statistics import bootstrap_interval

CELLS = {
    cell.id: cell.source
    for cell in nbformat.read(ROOT / "notebooks/evaluation/zero_shot.ipynb", as_version=4).cells
}


@pytest.fixture(scope="module")
def average() -> Any:
    space: dict[str, Any] = {}
    exec(CELLS["average"], space)
    return space["average"]


def test_one_training_counts_once_however_many_collections_it_is_measured_on(average):
    """Nine collections share the three seeds: the average is as uncertain as one of them."""
    seeds = np.array([-1.0, 0.0, 1.0])[:, None] + np.zeros(30)
    one, nine = (average({str(n): seeds for n in range(times)})[0] for times in (1, 9))
    assert (nine.low, nine.high) == pytest.approx(
        (one.low, one.high), abs=1e-9
    ) and one.high - one.low > 3


def test_an_average_varies_as_its_collections_do(average):
    rng = np.random.default_rng(1)
    values = {name: rng.random(n) for name, n in zip("abc", (400, 100, 50), strict=True)}
    mean, each, without = average(values)
    errors = {name: own.std() / np.sqrt(len(own)) for name, own in values.items()}
    together = np.sqrt(sum(error**2 for error in errors.values())) / 3
    assert mean.mean == pytest.approx(np.mean([own.mean() for own in values.values()]))
    assert (mean.high - mean.low) == pytest.approx(2 * 1.96 * together, rel=0.05)
    rest = np.sqrt(errors["a"] ** 2 + errors["c"] ** 2) / 2
    assert (without["b"].high - without["b"].low) == pytest.approx(2 * 1.96 * rest, rel=0.05)
    assert each["a"] == bootstrap_interval(values["a"]) and each["b"].mean == pytest.approx(
        values["b"].mean()
    )


def test_collections_of_one_size_do_not_share_their_draws(average):
    own = np.random.default_rng(2).random(60)
    (one, _, none), (both, _, _) = average({"a": own}), average({"a": own, "b": own})
    assert none == {}
    assert one == bootstrap_interval(own)
    assert (both.high - both.low) == pytest.approx((one.high - one.low) / np.sqrt(2), rel=0.05)


def test_seeds_that_agree_average_as_one(average):
    own, other = np.random.default_rng(0).random((2, 40))
    one, three = (average({"a": given, "b": other[:20]})[0] for given in (own, np.stack([own] * 3)))
    assert (three.mean, three.low, three.high) == pytest.approx(
        (one.mean, one.low, one.high), abs=1e-12
    )
