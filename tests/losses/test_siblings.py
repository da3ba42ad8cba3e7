"""coCondenser's contrastive loss against sums written out."""

import numpy as np
import pytest
import torch

from dr_lib import losses
from dr_lib.errors import InputError


def written_out(vectors: np.ndarray, documents: list[int] | None = None) -> float:
    total = 0.0
    for i, own in enumerate(vectors):
        sibling = i + 1 if i % 2 == 0 else i - 1
        others = [
            j for j in range(len(vectors))
            if j != i and (j == sibling or documents is None or documents[j] != documents[i])
        ]  # fmt: skip
        total += np.log(sum(np.exp(own @ vectors[j]) for j in others)) - own @ vectors[sibling]
    return total / len(vectors)


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(8, 5))


def test_the_loss_is_the_sum_written_out_and_its_gradient_that_of_finite_differences(vectors):
    tensor = torch.tensor(vectors, dtype=torch.float64).float().requires_grad_()
    loss = losses.siblings(tensor)
    loss.backward()
    assert loss.item() == pytest.approx(written_out(vectors), rel=1e-5)
    for place in [(0, 0), (3, 4), (7, 2)]:
        moved = [vectors.copy(), vectors.copy()]
        moved[0][place] += 1e-5
        moved[1][place] -= 1e-5
        slope = (written_out(moved[0]) - written_out(moved[1])) / 2e-5
        assert tensor.grad[place].item() == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_a_span_is_not_compared_with_itself():
    vectors = 10 * torch.eye(4)[[0, 0, 1, 1]]
    assert losses.siblings(vectors).item() == pytest.approx(0, abs=1e-6)


def test_there_is_no_temperature(vectors):
    tensor = torch.tensor(vectors, dtype=torch.float32)
    assert losses.siblings(2 * tensor).item() == pytest.approx(written_out(2 * vectors), rel=1e-5)


def test_other_spans_of_the_same_document_are_no_negatives(vectors):
    documents = [4, 4, 1, 1, 4, 4, 2, 2]
    found = losses.siblings(torch.tensor(vectors, dtype=torch.float32), torch.tensor(documents))
    assert found.item() == pytest.approx(written_out(vectors, documents), rel=1e-5)


def test_scores_are_fp32_under_autocast(vectors):
    tensor = torch.tensor(vectors, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = losses.siblings(tensor)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(written_out(vectors), rel=1e-5)


@pytest.mark.parametrize("shape", [(3, 4), (2, 4), (8,)])
def test_shapes_that_do_not_fit_are_refused(shape):
    with pytest.raises(InputError, match="siblings: shapes"):
        losses.siblings(torch.ones(shape))
    with pytest.raises(InputError, match="siblings: shapes"):
        losses.siblings(torch.ones(4, 2), torch.zeros(2, dtype=torch.int64))
