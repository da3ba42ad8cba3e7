"""A teacher's scores find the passages of a batch, whatever window of the lists it has drawn."""

import numpy as np
import pytest

from dr_lib.training import Examples, RetrievalBatches, TeacherScores
from dr_lib.training.loop import to_device


@pytest.fixture
def examples() -> Examples:
    return Examples.of(
        [3, 1], positives=[[0, 5], [2]], negatives=[[7, 8, 9], [0, 9, -1]], passages=12
    )


@pytest.fixture
def teacher() -> TeacherScores:
    return TeacherScores(
        np.array([10.0, 15.0, 12.0]), np.array([[1.7, 1.8, 1.9], [2.0, 2.9, 99.0]])
    )


def by_hand(examples, teacher, query, row):
    start = examples.offsets[query]
    for place in range(start, examples.offsets[query + 1]):
        if examples.positives[place] == row:
            return teacher.positives[place]
    for column, listed in enumerate(examples.negatives[query]):
        if listed == row:
            return teacher.negatives[query, column]
    return np.nan


def test_every_pair_gets_its_own_score_and_others_none(examples, teacher):
    rows = np.array([[2, 9, 0, 11], [5, 9, 7, 4]])
    chosen = np.array([1, 0])
    expected = [
        [by_hand(examples, teacher, query, row) for row in line]
        for query, line in zip(chosen, rows, strict=True)
    ]
    np.testing.assert_allclose(teacher.of(examples, chosen, rows), np.array(expected, np.float32))


def test_saved_scores_are_the_same(teacher, tmp_path):
    teacher.save(tmp_path)
    again = TeacherScores.open(tmp_path)
    np.testing.assert_array_equal(again.negatives, teacher.negatives.astype(np.float32))
    np.testing.assert_array_equal(again.positives, teacher.positives.astype(np.float32))


def test_batches_carry_the_scores_of_their_own_passages(examples, teacher, counted_store):
    batches = RetrievalBatches(
        counted_store(12, 12),
        counted_store(12, 12),
        examples,
        batch_queries=2,
        passages_per_query=3,
        teacher=teacher,
    )
    for step in range(4):
        batch = batches.batch(step)
        rows = batch.passage_rows.reshape(2, 3).numpy()
        queries = [{3: 0, 1: 1}[row] for row in batch.queries.rows.tolist()]
        expected = [
            [by_hand(examples, teacher, query, row) for row in line]
            for query, line in zip(queries, rows, strict=True)
        ]
        np.testing.assert_allclose(batch.teacher_scores.numpy(), np.array(expected, np.float32))


def test_without_a_teacher_there_are_none(examples, counted_store):
    batches = RetrievalBatches(
        counted_store(12, 12), counted_store(12, 12), examples, batch_queries=2
    )
    assert batches.batch(0).teacher_scores is None
    assert to_device(batches.batch(0), "cpu").teacher_scores is None
