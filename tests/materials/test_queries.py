"""Splits of generated questions: no passage, no document and no question in two of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_lib.errors import InputError
from dr_lib.materials.questions import asked_once, draw_splits, first_of_each, shared_words

SHARES = {"train": 0.75, "dev": 0.05, "test": 0.2}
NONE_HELD = np.array([], np.int64)


def test_shares_are_met_by_document():
    documents = np.arange(2000) // 2
    found = draw_splits(documents, np.arange(2000), SHARES, held=NONE_HELD, seed=0)
    assert np.bincount(found).tolist() == [1500, 100, 400]
    assert (found[::2] == found[1::2]).all()


def test_few_documents_are_split_by_passage():
    found = draw_splits(np.zeros(100, np.int64), np.arange(100), SHARES, held=NONE_HELD, seed=0)
    assert np.bincount(found).tolist() == [75, 5, 20]


def test_a_passage_without_question_is_in_no_split():
    found = draw_splits(np.arange(100), np.arange(0, 100, 2), SHARES, held=NONE_HELD, seed=0)
    assert (found[1::2] == -1).all() and (found[::2] >= 0).all()


def test_judged_passages_are_left_out_and_their_neighbours_are_not():
    documents = np.arange(400) // 4
    found = draw_splits(
        documents, np.arange(400), {"train": 1.0}, held=np.array([9, 10, 400 - 1]), seed=0
    )
    assert np.flatnonzero(found == -1).tolist() == [9, 10, 399]


def test_draws_depend_on_the_seed_alone():
    one, two, other = (
        draw_splits(np.arange(90), np.arange(90), SHARES, held=NONE_HELD, seed=s) for s in (0, 0, 1)
    )
    assert (one == two).all() and (one != other).any()


def test_too_few_passages_are_refused():
    with pytest.raises(InputError, match="2 passages with questions make no 3 splits"):
        draw_splits(np.arange(5), np.array([1, 1, 4]), SHARES, held=NONE_HELD, seed=0)


@settings(max_examples=50, deadline=None)
@given(st.integers(3, 200), st.integers(1, 40), st.integers(0, 5))
def test_every_split_gets_a_passage(passages, per_document, seed):
    found = draw_splits(
        np.arange(passages) // per_document, np.arange(passages), SHARES, held=NONE_HELD, seed=seed
    )
    assert set(found.tolist()) == {0, 1, 2}


def test_a_question_of_two_passages_is_asked_of_neither():
    assert asked_once(["What is it?", "Who?", "WHAT IS IT?"]).tolist() == [False, True, False]


def test_the_first_question_of_each_passage_is_marked():
    assert first_of_each(np.array([0, 0, 0, 4, 7, 7])).tolist() == [
        True,
        False,
        False,
        True,
        True,
        False,
    ]


def test_words_are_shared_whatever_their_case_and_number():
    assert shared_words(["The tide, the tide!", "no word"], ["A Tide.", "else"]) == 0.25
    assert shared_words([], []) == 0.0
