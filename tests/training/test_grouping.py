"""Pairs joined by query: no repeated text, no pair lost, no positive among the negatives."""

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.training.examples import distinct_rows, group_examples, text_hash


def test_equal_hashes_get_one_row_in_order_of_appearance():
    rows, first = distinct_rows(np.array([5, -2, 5, 9, -2, 5]))
    assert rows.tolist() == [0, 1, 0, 2, 1, 0]
    assert first.tolist() == [0, 1, 3]


def test_hashes_are_the_same_in_every_process_and_tell_parts_apart():
    assert text_hash("who?") == 1864739816212138401
    assert (
        len({text_hash("a", "b"), text_hash("ab", ""), text_hash("", "ab"), text_hash("a b")}) == 4
    )
    assert all(-(2**63) <= text_hash(str(number)) < 2**63 for number in range(50))


def test_pairs_are_grouped_as_a_dictionary_would_group_them():
    draw = np.random.default_rng(0)
    queries, passages = draw.integers(0, 30, 200), draw.integers(0, 50, 200)
    others, wrong = draw.integers(0, 35, 300), draw.integers(0, 50, 300)
    made = group_examples(queries, passages, others, wrong, passages=50, depth=4)
    positives: dict[int, set[int]] = {}
    for query, passage in zip(queries, passages, strict=True):
        positives.setdefault(int(query), set()).add(int(passage))
    negatives: dict[int, list[int]] = {}
    for query, passage in zip(others, wrong, strict=True):
        known = negatives.setdefault(int(query), [])
        if int(passage) not in known and passage not in positives.get(int(query), ()):
            known.append(int(passage))
    assert made.query_rows.tolist() == sorted(positives)
    for place, query in enumerate(made.query_rows.tolist()):
        assert made.positives[made.offsets[place] : made.offsets[place + 1]].tolist() == sorted(
            positives[query]
        )
        row = made.negatives[place]
        assert row[row >= 0].tolist() == negatives.get(query, [])[:4]
    assert made.negatives.shape == (len(positives), 4) and made.negatives.dtype == np.int32


def test_without_negatives_the_table_is_empty():
    made = group_examples(np.array([3]), np.array([1]), passages=4)
    assert made.negatives.shape == (1, 0)
    nothing = np.zeros(0, np.int64)
    assert group_examples(
        np.array([3]), np.array([1]), nothing, nothing, passages=4
    ).negatives.shape == (1, 0)


def test_a_row_outside_the_passages_is_refused():
    with pytest.raises(InputError, match="no training query"):
        group_examples(np.zeros(0, np.int64), np.zeros(0, np.int64), passages=4)
