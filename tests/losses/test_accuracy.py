"""The share of queries that find their own positive in the batch."""

import pytest
import torch

from dr_lib import losses

QUERIES = torch.eye(3)
PASSAGES = torch.tensor([[3.0, 0, 0], [4, 1, 0], [0, 1, 0], [0, 2, 0], [0, 0, 1], [0, 0, 0]])


def test_it_counts_queries_whose_positive_is_first():
    known = torch.zeros(3, 6, dtype=torch.bool)
    known[0, 1] = True
    one = losses.in_batch_accuracy(QUERIES, PASSAGES, normalise=False)
    two = losses.in_batch_accuracy(QUERIES, PASSAGES, normalise=False, known_positives=known)
    assert (one.item(), two.item()) == (pytest.approx(1 / 3), pytest.approx(2 / 3))


def test_a_copy_of_the_positive_is_no_competitor():
    queries, passages = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.5], [0.0, 3.0]])
    found = [
        losses.in_batch_accuracy(queries, passages, normalise=False, passage_ids=torch.tensor(ids)).item()
        for ids in ([0, 1, 2, 2], [0, 1, 2, 3])
    ]
    assert found == [1.0, 0.5]


def test_equal_vectors_are_no_success():
    assert losses.in_batch_accuracy(torch.ones(4, 2), torch.ones(8, 2), normalise=True).item() == 0


def test_scores_stay_fp32_under_autocast():
    queries, passages = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.001, 0.0], [1.0, 0.0]])
    with torch.autocast("cpu", torch.bfloat16):
        assert losses.in_batch_accuracy(queries, passages, normalise=False).item() == 1
