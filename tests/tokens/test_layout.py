"""Truncation in closed form against the truncation of the `tokenizers` library."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from dr_lib.tokens import padded_length, truncate


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    """A tokenizer of one piece per word, with the pair template of BERT."""
    tokenizer = Tokenizer(
        models.WordLevel({"[CLS]": 0, "[SEP]": 1, "t": 2, "b": 3}, unk_token="[SEP]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 0), ("[SEP]", 1)],
    )
    return tokenizer


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(4, 50))
@example(9, 9, 20)
@example(9, 9, 14)
@example(10, 9, 14)
@example(9, 10, 15)
@example(1, 40, 4)
@example(40, 1, 4)
def test_pairs_are_cut_as_the_library_cuts_them(words, title, body, max_length):
    words.enable_truncation(max_length, strategy="longest_first")
    ids = words.encode("t " * title, "b " * body).ids
    kept = truncate(np.array([title]), np.array([body]), max_length=max_length, mode="pair")
    assert (kept.title[0], kept.body[0], kept.lengths[0]) == (ids.count(2), ids.count(3), len(ids))


def test_many_pairs_at_once_are_cut_like_each_alone():
    random = np.random.default_rng(0)
    titles, bodies = random.integers(0, 30, 200), random.integers(0, 30, 200)
    together = truncate(titles, bodies, max_length=21, mode="pair")
    for index in range(200):
        alone = truncate(titles[[index]], bodies[[index]], max_length=21, mode="pair")
        assert (together.title[index], together.body[index]) == (alone.title[0], alone.body[0])


def test_one_segment_loses_its_end_on_the_right_and_its_beginning_on_the_left():
    right = truncate(np.array([6]), np.array([6]), max_length=10, mode="joined", side="right")
    left = truncate(np.array([6]), np.array([6]), max_length=10, mode="joined", side="left")
    assert (right.title[0], right.body[0], right.title_start[0], right.body_start[0]) == (
        6,
        2,
        0,
        0,
    )
    assert (left.title[0], left.body[0], left.title_start[0], left.body_start[0]) == (2, 6, 4, 0)


def test_a_passage_that_lacks_title_or_body_is_one_segment():
    kept = truncate(np.array([6, 0]), np.array([0, 6]), max_length=7, mode="pair")
    assert (kept.separate.any(), kept.lengths.tolist()) == (False, [7, 7])


def test_mode_none_ignores_the_title():
    kept = truncate(np.array([6]), np.array([3]), max_length=10, mode="none")
    assert (kept.title[0], kept.body[0], kept.lengths[0]) == (0, 3, 5)


def test_padded_length_is_the_next_multiple_within_the_limit():
    assert padded_length(np.array([1, 16, 17, 31]), 16, 100).tolist() == [16, 16, 32, 32]
    assert padded_length(np.array([1, 16, 17, 31]), 16, 31).tolist() == [16, 16, 31, 31]


def test_a_random_window_may_be_the_first_and_the_last_one():
    body, title = np.full(4, 30), np.zeros(4, np.int64)
    room, surplus = 10, 20
    lots = np.array([0, surplus, surplus + 1, 2 * surplus + 1], np.uint64)
    left = truncate(title, body, max_length=room + 2, mode="pair", lots=lots)
    assert left.body.tolist() == [room] * 4
    assert left.body_start.tolist() == [0, surplus, 0, surplus]
