"""Distillation of a dual encoder, and the scores of its teacher, against a few lines of numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from dr_lib import losses
from dr_lib.training import (
    BiEncoder,
    Distillation,
    DistilledBiEncoder,
    Examples,
    RetrievalBatches,
    TeacherScores,
)
from dr_lib.training.loop import to_device


class Table(nn.Module):
    """A vector for each word."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(60, 8)

    def forward(self, batch):
        return self.words(batch.input_ids[:, 1])


@pytest.fixture
def batch(counted_store):
    examples = Examples.of(
        np.arange(6), [[row] for row in range(6)], np.arange(6, 30).reshape(6, 4), passages=30
    )
    batches = RetrievalBatches(
        counted_store(30, 40),
        counted_store(30, 40),
        examples,
        batch_queries=6,
        passages_per_query=4,
    )
    scores = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)) * 3
    return replace(batches.batch(0), teacher_scores=scores)


def by_hand(queries, passages, teacher, temperature):
    """Mean over queries of KL(teacher || student) over the passages that have a score."""
    total = 0.0
    for query, own, scores in zip(
        queries, passages.reshape(len(queries), -1, queries.shape[1]), teacher, strict=True
    ):
        read = ~np.isnan(scores)
        cosine = own @ query / np.linalg.norm(own, axis=1) / np.linalg.norm(query)
        student, expected = np.exp(cosine[read] / temperature), np.exp(scores[read])
        student, expected = student / student.sum(), expected / expected.sum()
        total += (expected * np.log(expected / student)).sum()
    return total / len(queries)


@pytest.mark.parametrize("unread", [0, 2])
def test_divergence_is_that_of_the_passages_the_teacher_has_read(batch, unread):
    teacher = batch.teacher_scores.clone()
    teacher[1, :unread] = torch.nan
    student = DistilledBiEncoder(Table(), Distillation(temperature=0.1))
    parts = student(replace(batch, teacher_scores=teacher), torch.Generator())
    queries, passages = (t.detach().double().numpy() for t in student.vectors(batch))
    expected = by_hand(queries, passages, teacher.double().numpy(), 0.1)
    assert parts["divergence_loss"].item() == pytest.approx(expected, rel=1e-5)
    student.temperature = 0.3  # in the warm-up
    warm = student.divergence(*student.vectors(batch), teacher).item()
    assert warm == pytest.approx(by_hand(queries, passages, teacher.double().numpy(), 0.3))
    student.temperature = 0.1
    student.settings = Distillation(temperature=0.1, mean="element")
    assert student(replace(batch, teacher_scores=teacher), torch.Generator())[
        "divergence_loss"
    ].item() == pytest.approx(expected / 4)


def test_the_contrastive_part_has_its_weight(batch):
    student = DistilledBiEncoder(Table(), Distillation(temperature=0.1, contrastive_weight=0.3))
    parts = student(batch, torch.Generator())
    plain = BiEncoder(student.encoder, student.settings)(batch, torch.Generator())["loss"]
    assert parts["loss"].item() == pytest.approx(
        (parts["divergence_loss"] + 0.3 * plain).item(), rel=1e-6
    )


def test_equal_scores_leave_nothing_to_learn(batch):
    student = DistilledBiEncoder(Table(), Distillation(temperature=0.5, contrastive_weight=0.0))
    queries, passages = (nn.functional.normalize(t, dim=1) for t in student.vectors(batch))
    own = (queries[:, None] * passages.unflatten(0, (6, -1))).sum(2).detach() / 0.5
    parts = student(replace(batch, teacher_scores=own), torch.Generator())
    parts["loss"].backward()
    assert parts["loss"].item() == pytest.approx(0, abs=1e-6)
    assert student.encoder.words.weight.grad.abs().max() < 1e-5


def test_inner_products_are_used_where_vectors_are_not_normalised(batch):
    student = DistilledBiEncoder(Table(), Distillation(temperature=1.0, normalise=False))
    queries, passages = student.vectors(batch)
    own = torch.stack(
        [passages[4 * row : 4 * row + 4] @ query for row, query in enumerate(queries)]
    )
    expected = losses.distillation(own, batch.teacher_scores)
    found = student.divergence(queries, passages, batch.teacher_scores)
    torch.testing.assert_close(found, expected)


def test_own_hard_negatives_are_left_to_the_teacher_where_that_is_asked_for(batch):
    student, both = BiEncoder(Table()), {}
    for own in (True, False):
        settings = Distillation(temperature=0.5, blocks="query_passage", own_negatives=own)
        both[own] = DistilledBiEncoder(student.encoder, settings)(batch, torch.Generator())[
            "contrastive_loss"
        ].item()
    queries, passages = (part.detach().double() for part in student.vectors(batch))
    scores = (
        torch.nn.functional.normalize(queries) @ torch.nn.functional.normalize(passages).T / 0.5
    )
    rows, n = batch.passage_rows, len(passages) // len(queries)
    for own, found in both.items():
        total = 0.0
        for i in range(len(queries)):
            out = [
                j
                for j in range(len(passages))
                if j != i * n and (rows[j] == rows[i * n] or batch.known_positives[i, j])
            ]
            out += [] if own else range(i * n + 1, (i + 1) * n)
            total += (
                torch.logsumexp(scores[i, [j for j in range(len(passages)) if j not in out]], 0)
                - scores[i, i * n]
            )
        assert found == pytest.approx(total.item() / len(queries), rel=1e-4)
    assert both[True] > both[False]


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


def score_by_hand(examples, teacher, query, row):
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
        [score_by_hand(examples, teacher, query, row) for row in line]
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
            [score_by_hand(examples, teacher, query, row) for row in line]
            for query, line in zip(queries, rows, strict=True)
        ]
        np.testing.assert_allclose(batch.teacher_scores.numpy(), np.array(expected, np.float32))


def test_without_a_teacher_there_are_none(examples, counted_store):
    batches = RetrievalBatches(
        counted_store(12, 12), counted_store(12, 12), examples, batch_queries=2
    )
    assert batches.batch(0).teacher_scores is None
    assert to_device(batches.batch(0), "cpu").teacher_scores is None
