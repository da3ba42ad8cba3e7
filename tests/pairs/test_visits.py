"""Who is visited at which step, and how many at once."""

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.pairs.visits import Documents, Visits, pairs_at_once

DOCUMENTS, POSITIONS = np.array([3, 1, 3, 2, 1, 3, 0, 4, 4]), np.array([5, 1, 0, 0, 0, 2, 0, 1, 0])


def test_an_epoch_visits_each_thing_at_most_once_and_the_next_in_another_order():
    visits = Visits(np.arange(100, 111), 3, seed=5)
    epochs = [[visits.of(step) for step in range(first, first + 3)] for first in (0, 3)]
    for number, epoch in enumerate(epochs):
        rows = np.concatenate([chosen for _, chosen in epoch])
        assert {found for found, _ in epoch} == {number}
        assert len(set(rows)) == 9 and set(rows) <= set(range(100, 111))
    assert not np.array_equal(epochs[0][0][1], epochs[1][0][1])


def test_a_step_is_the_same_whenever_it_is_asked_for():
    forward = [Visits(np.arange(11), 3, seed=5).of(step)[1].tolist() for step in range(9)]
    visits = Visits(np.arange(11), 3, seed=5)
    assert [visits.of(step)[1].tolist() for step in reversed(range(9))] == forward[::-1]
    assert Visits(np.arange(11), 3, seed=6).of(0)[1].tolist() != forward[0]


def test_documents_keep_their_order_and_lose_those_of_one_passage():
    found = Documents.of(DOCUMENTS, POSITIONS, np.ones(9, bool))
    groups = [found.rows[a:b].tolist() for a, b in zip(found.offsets, found.offsets[1:], strict=False)]
    assert groups == [[4, 1], [2, 5, 0], [8, 7]]
    assert found.first(np.array([2, 0])).tolist() == [8, 4]


def test_passages_that_cannot_be_used_are_passed_over():
    usable = np.ones(9, bool)
    usable[[2, 8]] = False
    found = Documents.of(DOCUMENTS, POSITIONS, usable)
    groups = [found.rows[a:b].tolist() for a, b in zip(found.offsets, found.offsets[1:], strict=False)]
    assert groups == [[4, 1], [5, 0]]


def test_two_passages_of_a_document_are_distinct_and_every_pair_comes_up():
    found = Documents.of(DOCUMENTS, POSITIONS, np.ones(9, bool))
    rng = np.random.default_rng(0)
    lots = [rng.integers(0, 2**63, 3000).astype(np.uint64) for _ in range(2)]
    pairs, counts = np.unique(np.stack(found.two(np.full(3000, 1), *lots), 1), axis=0, return_counts=True)
    assert {tuple(pair) for pair in pairs.tolist()} == {(a, b) for a in (0, 2, 5) for b in (0, 2, 5) if a != b}
    assert abs(counts - 500).max() < 6 * np.sqrt(500)


def test_another_passage_is_never_the_first():
    found = Documents.of(DOCUMENTS, POSITIONS, np.ones(9, bool))
    assert set(found.another(np.full(100, 1), np.arange(100, dtype=np.uint64)).tolist()) == {5, 0}


def test_a_collection_without_documents_is_refused():
    with pytest.raises(InputError, match="no document of this collection has two passages"):
        Documents.of(np.arange(5), np.zeros(5, int), np.ones(5, bool))


@pytest.mark.parametrize(
    ("values", "expected"), [((None, 1000, 100, 99), 10), ((None, 1000, 100, 7), 7), ((12, 1000, 100, 99), 12)]
)
def test_a_batch_fills_the_budget_or_is_what_was_asked_for(values, expected):
    assert pairs_at_once(*values) == expected


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ((None, 150, 100, 99), "a batch of 150 tokens holds 1 pairs of 100, and 99 are there"),
        ((None, 1000, 100, 1), "holds 10 pairs of 100, and 1 are there"),
        ((8, 1000, 100, 7), "7 pairs do not fill a batch of 8"),
    ],
)
def test_too_few_pairs_are_refused(values, told):
    with pytest.raises(InputError, match=told):
        pairs_at_once(*values)
