"""PAIR's losses against sums written out in numpy."""

import numpy as np
import pytest
import torch

from dr_lib import losses

CANDIDATES = ("released", "paper", "positives")


def vectors(batch=3, n=2, hidden=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(batch, hidden)), rng.normal(size=(batch * n, hidden))


def as_tensors(*arrays):
    return [torch.tensor(a, dtype=torch.float32, requires_grad=True) for a in arrays]


def written_out(queries, passages, candidates="released", banned=()):
    """The positive against its query, the other queries, and all hard negatives; `banned` are
    (query, passage).
    """
    batch, n = len(queries), len(passages) // len(queries)
    total = 0.0
    for i in range(batch):
        positive = passages[i * n]
        target = positive @ queries[i]
        terms = [target]
        if candidates != "paper":
            terms += [
                positive @ queries[j] for j in range(batch) if j != i and (j, i * n) not in banned
            ]
        others = [
            c for c in range(batch * n) if c != i * n and (c % n or candidates == "positives")
        ]
        # Of another query's positive it matters, too, whether this one answers that query.
        related = [c for c in others if c % n == 0 and (c // n, i * n) in banned]
        terms += [
            positive @ passages[c] for c in others if (i, c) not in banned and c not in related
        ]
        total += np.log(np.sum(np.exp(terms))) - target
    return total / batch


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("candidates", CANDIDATES)
def test_the_passage_centric_loss_is_the_sum_written_out(n, candidates):
    q, p = vectors(n=n)
    loss = losses.passage_centric(*as_tensors(q, p), candidates=candidates)
    np.testing.assert_allclose(loss.item(), written_out(q, p, candidates), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("candidates", CANDIDATES)
def test_random_batches_with_copies_and_known_positives(candidates):
    for seed in range(200):
        rng = np.random.default_rng(seed)
        batch, n = int(rng.integers(1, 6)), int(rng.integers(1, 5))
        q, p = vectors(batch, n, seed=seed)
        ids, known = rng.integers(0, 3 * batch, batch * n), rng.random((batch, batch * n)) < 0.2
        banned = set(zip(*np.nonzero((ids[::n, None] == ids) | known), strict=True))
        options = {"passage_ids": torch.from_numpy(ids), "known_positives": torch.from_numpy(known)}
        loss = losses.passage_centric(*as_tensors(q, p), candidates=candidates, **options)
        np.testing.assert_allclose(
            loss.item(),
            written_out(q, p, candidates, banned),
            rtol=1e-4,
            atol=1e-6,
            err_msg=f"seed {seed}",
        )


def test_positives_of_other_queries_are_not_in_the_denominator_but_other_queries_are():
    queries, passages = as_tensors(*vectors(batch=2, n=2))
    n = 2

    def first_row(q, p):
        pair_loss = losses.passage_centric(q, p) * 2
        anchored_by_second = torch.logsumexp(p[n] @ torch.cat([q, p[1::n]]).T, 0) - p[n] @ q[1]
        return pair_loss - anchored_by_second  # the term whose anchor is the first positive

    to_queries, to_passages = torch.autograd.grad(first_row(queries, passages), (queries, passages))
    assert to_passages[n].abs().max() < 1e-6
    assert to_queries[1].abs().max() > 1e-3


def test_gradients_are_those_of_finite_differences():
    q, p = vectors(n=3)
    queries, passages = as_tensors(q, p)
    losses.passage_centric(queries, passages).backward()
    for array, gradient, function in (
        (q, queries.grad, lambda moved: written_out(moved, p)),
        (p, passages.grad, lambda moved: written_out(q, moved)),
    ):
        expected = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            step = np.zeros_like(array)
            step[place] = 1e-6
            expected[place] = (function(array + step) - function(array - step)) / 2e-6
        np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_known_positives_and_copies_are_no_negatives():
    q, p = vectors(n=2)
    known = torch.zeros(3, 6, dtype=torch.bool)
    known[0, 3] = known[2, 0] = True
    loss = losses.passage_centric(*as_tensors(q, p), known_positives=known)
    np.testing.assert_allclose(loss.item(), written_out(q, p, banned={(0, 3), (2, 0)}), rtol=1e-5)
    loss = losses.passage_centric(*as_tensors(q, p), passage_ids=torch.tensor([5, 1, 2, 5, 4, 3]))
    np.testing.assert_allclose(loss.item(), written_out(q, p, banned={(0, 3)}), rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
def test_pair_is_the_weighted_sum_of_its_parts(alpha):
    queries, passages = as_tensors(*vectors())
    about_queries = losses.contrastive(
        queries, passages, blocks="query_passage", temperature=1.0, normalise=False
    )
    about_passages = losses.passage_centric(queries, passages)
    expected = (1 - alpha) * about_queries + alpha * about_passages
    torch.testing.assert_close(losses.pair(queries, passages, alpha=alpha), expected)


@pytest.mark.parametrize("masked", [True, False])
def test_both_parts_contrast_known_positives_or_neither_does(masked):
    queries, passages = as_tensors(*vectors(n=2))
    known = torch.zeros(3, 6, dtype=torch.bool)
    known[0, 3] = True
    how = {"alpha": 0.4, "temperature": 1.0, "normalise": False, "blocks": "query_passage"}
    found, _ = losses.pair_and_accuracy(
        queries, passages, **how, known_positives=known, mask_positives=masked
    )
    expected = losses.pair(queries, passages, alpha=0.4, known_positives=known if masked else None)
    torch.testing.assert_close(found, expected)


def test_bf16_inputs_are_worked_out_in_float32():
    queries, passages = (t.bfloat16() for t in as_tensors(*vectors()))
    with torch.autocast("cpu", torch.bfloat16):
        found = losses.pair(queries, passages)
    torch.testing.assert_close(found, losses.pair(queries.float(), passages.float()))
