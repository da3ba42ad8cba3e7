"""Two sets of examples put together, against sets of single queries."""

import numpy as np
import pytest

from dr_lib.training import Examples
from dr_lib.training.examples import merge_examples


def drawn(rng: np.random.Generator, rows: list[int], depth: int) -> Examples:
    """Random examples: one to three positives a query, negatives that are none of them, some
    missing.
    """
    orders = [rng.permutation(12) for _ in rows]
    positives = [order[: 1 + place % 3] for place, order in enumerate(orders)]
    negatives = np.stack([order[4 : 4 + depth] for order in orders])
    negatives[rng.random(negatives.shape) < 0.2] = -1
    return Examples.of(rows, positives, negatives, passages=12)


def known(examples: Examples) -> tuple[dict[int, set], dict[int, list]]:
    """Positives and negatives of each query by its row."""
    ends = zip(examples.offsets[:-1], examples.offsets[1:], strict=True)
    positives = [set(examples.positives[start:stop].tolist()) for start, stop in ends]
    negatives = [[row for row in rows if row >= 0] for rows in examples.negatives.tolist()]
    rows = examples.query_rows.tolist()
    return dict(zip(rows, positives, strict=True)), dict(zip(rows, negatives, strict=True))


@pytest.mark.parametrize("depths", [(4, 3), (0, 5), (5, 0)])
def test_positives_are_united_and_are_nobodys_negatives(depths):
    rng = np.random.default_rng(sum(depths))
    first, second = drawn(rng, [0, 2, 3, 8], depths[0]), drawn(rng, [1, 2, 8, 9], depths[1])
    (own, listed), (more, others), (found, kept) = (
        known(first),
        known(second),
        known(merge_examples(first, second)),
    )
    assert list(found) == [0, 1, 2, 3, 8, 9]
    for row, positives in found.items():
        assert positives == own.get(row, set()) | more.get(row, set())
        wanted = dict.fromkeys([*listed.get(row, []), *others.get(row, [])])
        assert kept[row] == [passage for passage in wanted if passage not in positives]
