"""Losses over a batch against sums written out in numpy: contrastive, coCondenser's, and the
accuracy; two processes with half of the batch each have the gradient of one.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional

from dr_lib import losses
from dr_lib.losses import gather
from tests.child import side_by_side
from tests.losses.side_by_side import apart

RELEASED = ("query_passage", "positive_query", "query_query", "positive_positive")
PAPER = ("query_passage", "positive_passage")
CHOICES = {"released": RELEASED, "paper": PAPER, "query_passage": ("query_passage",)}


def written_out(queries, passages, tau, normalise, blocks, relevant=None, own_negatives=True):
    """Mean loss in float64, one exponential at a time. `relevant[i][c]`: passage c is not a
    negative of query i.
    """
    batch, n = len(queries), len(passages) // len(queries)
    if normalise:
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        passages = passages / np.linalg.norm(passages, axis=1, keepdims=True)
    relevant = np.zeros((batch, batch * n), bool) if relevant is None else relevant
    total = 0.0
    for i in range(batch):
        positive = passages[i * n]
        strangers = [j for j in range(batch) if j != i and not relevant[j, i * n]]
        unrelated = [j for j in strangers if not relevant[i, j * n]]
        columns = [
            c
            for c in range(batch * n)
            if c != i * n and not relevant[i, c] and (own_negatives or c // n != i)
        ]
        target = queries[i] @ positive / tau
        terms = [target, *(queries[i] @ passages[c] / tau for c in columns)]
        if "positive_query" in blocks:
            terms += [positive @ queries[j] / tau for j in strangers]
        if "query_query" in blocks:
            terms += [queries[i] @ queries[j] / tau for j in unrelated]
        if "positive_positive" in blocks:
            terms += [positive @ passages[j * n] / tau for j in unrelated]
        if "positive_passage" in blocks:
            # As between positives, the relation counts both ways: that of query j is left out where
            # this one's is relevant for j.
            terms += [
                positive @ passages[c] / tau
                for c in columns
                if c % n or not relevant[c // n, i * n]
            ]
        highest = max(terms)
        total += highest + np.log(sum(np.exp(t - highest) for t in terms)) - target
    return total / batch


def slopes(function, array, step=1e-6):
    """Central finite differences."""
    result = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        moved = array.copy()
        moved[place] += step
        above = function(moved)
        moved[place] -= 2 * step
        result[place] = (above - function(moved)) / (2 * step)
    return result


def vectors(batch, n, hidden=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(batch, hidden)), rng.normal(size=(batch * n, hidden))


def as_tensors(*arrays):
    return [torch.tensor(a, dtype=torch.float32, requires_grad=True) for a in arrays]


@pytest.mark.parametrize("blocks", CHOICES)
@pytest.mark.parametrize(("batch", "n"), [(4, 3), (3, 1), (1, 4), (2, 2)])
@pytest.mark.parametrize(("tau", "normalise"), [(0.05, True), (1.0, False)])
def test_value_and_gradients_are_those_written_out(blocks, batch, n, tau, normalise):
    q, p = vectors(batch, n)
    queries, passages = as_tensors(q, p)
    loss = losses.contrastive(
        queries, passages, temperature=tau, normalise=normalise, blocks=blocks
    )
    loss.backward()
    names = CHOICES[blocks]
    np.testing.assert_allclose(
        loss.item(), written_out(q, p, tau, normalise, names), rtol=2e-5, atol=1e-6
    )
    to_queries = slopes(lambda moved: written_out(moved, p, tau, normalise, names), q)
    to_passages = slopes(lambda moved: written_out(q, moved, tau, normalise, names), p)
    np.testing.assert_allclose(queries.grad, to_queries, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(passages.grad, to_passages, rtol=1e-3, atol=1e-4)


def test_two_queries_of_two_passages_make_a_softmax_over_seven_terms():
    q, p = vectors(2, 2)
    e = lambda a, b: np.exp(a @ b)  # noqa: E731
    first = e(q[0], p[0]) / (
        e(q[0], p[0])
        + e(q[0], p[1])
        + e(q[0], p[2])
        + e(q[0], p[3])
        + e(p[0], q[1])
        + e(q[0], q[1])
        + e(p[0], p[2])
    )
    second = e(q[1], p[2]) / (
        e(q[1], p[0])
        + e(q[1], p[1])
        + e(q[1], p[2])
        + e(q[1], p[3])
        + e(p[2], q[0])
        + e(q[1], q[0])
        + e(p[2], p[0])
    )
    loss = losses.contrastive(
        *as_tensors(q, p), temperature=1.0, normalise=False, blocks="released"
    )
    np.testing.assert_allclose(loss.item(), -(np.log(first) + np.log(second)) / 2, rtol=1e-5)


@pytest.mark.parametrize("name", CHOICES)
def test_a_preset_is_the_tuple_of_its_blocks_in_any_order(name):
    tensors = as_tensors(*vectors(4, 2))
    for blocks in (CHOICES[name], CHOICES[name][::-1], CHOICES[name][1:]):
        torch.testing.assert_close(
            losses.contrastive(*tensors, blocks=name), losses.contrastive(*tensors, blocks=blocks)
        )


@pytest.mark.parametrize("blocks", CHOICES)
def test_copies_of_the_positive_are_no_negatives(blocks):
    q, p = vectors(4, 2)
    # query 1 shares the positive; rows 5 and 7 copy positives
    ids = torch.tensor([7, 1, 7, 2, 3, 7, 4, 3])
    relevant = (ids[::2, None] == ids).numpy()
    for query in range(4):
        relevant[query, 2 * query] = False
    loss = losses.contrastive(*as_tensors(q, p), temperature=0.1, blocks=blocks, passage_ids=ids)
    np.testing.assert_allclose(
        loss.item(), written_out(q, p, 0.1, True, CHOICES[blocks], relevant), rtol=1e-5
    )
    assert loss < losses.contrastive(*as_tensors(q, p), temperature=0.1, blocks=blocks)


@pytest.mark.parametrize("blocks", CHOICES)
def test_known_positives_are_no_negatives_but_the_own_one_stays(blocks):
    q, p = vectors(4, 2)
    known = torch.zeros(4, 8, dtype=torch.bool)
    known[0, 0] = known[0, 3] = known[1, 6] = known[2, 4] = True
    relevant = known.numpy().copy()
    relevant[0, 0] = relevant[2, 4] = False
    loss = losses.contrastive(
        *as_tensors(q, p), temperature=0.1, blocks=blocks, known_positives=known
    )
    np.testing.assert_allclose(
        loss.item(), written_out(q, p, 0.1, True, CHOICES[blocks], relevant), rtol=1e-5
    )


@pytest.mark.parametrize("blocks", CHOICES)
def test_random_batches_with_copies_known_positives_and_own_negatives_left_out(blocks):
    for seed in range(200):
        rng = np.random.default_rng(seed)
        batch, n = int(rng.integers(1, 6)), int(rng.integers(1, 5))
        q, p = vectors(batch, n, seed=seed)
        ids, known = (
            rng.integers(0, 3 * batch, batch * n),
            rng.random((batch, batch * n)) < rng.choice([0, 0.2]),
        )
        relevant = (ids[::n, None] == ids) | known
        relevant[np.arange(batch), n * np.arange(batch)] = False
        normalise, own = bool(seed % 2), bool(rng.integers(2))
        loss = losses.contrastive(
            *as_tensors(q, p),
            temperature=0.3,
            normalise=normalise,
            blocks=blocks,
            passage_ids=torch.from_numpy(ids),
            known_positives=torch.from_numpy(known),
            own_negatives=own,
        )
        expected = written_out(q, p, 0.3, normalise, CHOICES[blocks], relevant, own)
        np.testing.assert_allclose(
            loss.item(), expected, rtol=1e-4, atol=1e-6, err_msg=f"seed {seed}"
        )


def test_a_batch_of_one_passage_repeated_has_no_negatives_and_finite_gradients():
    queries, passages = as_tensors(*vectors(3, 2))
    loss = losses.contrastive(queries, passages, passage_ids=torch.zeros(6, dtype=torch.int64))
    loss.backward()
    assert loss == 0
    assert not queries.grad.any() and not passages.grad.any()


def test_one_query_with_one_passage_has_loss_zero():
    queries, passages = as_tensors(*vectors(1, 1))
    loss = losses.contrastive(queries, passages)
    loss.backward()
    assert loss == 0 and not queries.grad.any()


def test_masked_passages_get_no_gradient():
    queries, passages = as_tensors(*vectors(2, 2))
    known = torch.zeros(2, 4, dtype=torch.bool)
    known[:, 3] = True
    losses.contrastive(queries, passages, known_positives=known, blocks="query_passage").backward()
    assert not passages.grad[3].any() and passages.grad[1].any()


def test_inputs_in_bf16_are_worked_out_in_float32():
    q, p = vectors(4, 3)
    queries, passages = (torch.tensor(a).bfloat16().requires_grad_() for a in (q, p))
    with torch.autocast("cpu", torch.bfloat16):
        loss = losses.contrastive(queries, passages)
    loss.backward()
    exact = written_out(
        queries.detach().double().numpy(), passages.detach().double().numpy(), 0.02, True, RELEASED
    )
    assert loss.dtype == torch.float32 and queries.grad.dtype == torch.bfloat16
    np.testing.assert_allclose(loss.item(), exact, rtol=1e-5)


def test_extreme_scores_stay_finite():
    queries, passages = as_tensors(*(1e4 * a for a in vectors(4, 2)))
    losses.contrastive(queries, passages, temperature=0.001, normalise=False).backward()
    assert torch.isfinite(queries.grad).all() and torch.isfinite(passages.grad).all()


def siblings_written_out(spans: np.ndarray, documents: list[int] | None = None) -> float:
    total = 0.0
    for i, own in enumerate(spans):
        sibling = i + 1 if i % 2 == 0 else i - 1
        others = [
            j for j in range(len(spans))
            if j != i and (j == sibling or documents is None or documents[j] != documents[i])
        ]  # fmt: skip
        total += np.log(sum(np.exp(own @ spans[j]) for j in others)) - own @ spans[sibling]
    return total / len(spans)


@pytest.fixture
def spans() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(8, 5))


def test_the_loss_of_siblings_is_the_sum_written_out_and_its_gradient_that_of_finite_differences(
    spans,
):
    tensor = torch.tensor(spans, dtype=torch.float64).float().requires_grad_()
    loss = losses.siblings(tensor)
    loss.backward()
    assert loss.item() == pytest.approx(siblings_written_out(spans), rel=1e-5)
    for place in [(0, 0), (3, 4), (7, 2)]:
        moved = [spans.copy(), spans.copy()]
        moved[0][place] += 1e-5
        moved[1][place] -= 1e-5
        slope = (siblings_written_out(moved[0]) - siblings_written_out(moved[1])) / 2e-5
        assert tensor.grad[place].item() == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_a_span_is_not_compared_with_itself():
    apart = 10 * torch.eye(4)[[0, 0, 1, 1]]
    assert losses.siblings(apart).item() == pytest.approx(0, abs=1e-6)


def test_siblings_know_no_temperature(spans):
    tensor = torch.tensor(spans, dtype=torch.float32)
    assert losses.siblings(2 * tensor).item() == pytest.approx(
        siblings_written_out(2 * spans), rel=1e-5
    )


def test_other_spans_of_the_same_document_are_no_negatives(spans):
    documents = [4, 4, 1, 1, 4, 4, 2, 2]
    found = losses.siblings(torch.tensor(spans, dtype=torch.float32), torch.tensor(documents))
    assert found.item() == pytest.approx(siblings_written_out(spans, documents), rel=1e-5)


def test_siblings_are_scored_in_fp32_under_autocast(spans):
    tensor = torch.tensor(spans, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = losses.siblings(tensor)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(siblings_written_out(spans), rel=1e-5)


QUERIES = torch.eye(3)
PASSAGES = torch.tensor([[3.0, 0, 0], [4, 1, 0], [0, 1, 0], [0, 2, 0], [0, 0, 1], [0, 0, 0]])


def share_of_hits(queries, passages, passage_ids=None, known_positives=None):
    return losses.contrastive_and_accuracy(
        queries,
        passages,
        temperature=0.5,
        normalise=False,
        blocks="query_passage",
        passage_ids=passage_ids,
        known_positives=known_positives,
    )[1]


def test_the_share_of_hits_counts_queries_whose_positive_is_first():
    known = torch.zeros(3, 6, dtype=torch.bool)
    known[0, 1] = True
    one, two = share_of_hits(QUERIES, PASSAGES), share_of_hits(QUERIES, PASSAGES, None, known)
    assert (one.item(), two.item()) == (pytest.approx(1 / 3), pytest.approx(2 / 3))


def test_a_copy_of_the_positive_is_no_competitor():
    queries, passages = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.5], [0.0, 3.0]])
    found = [
        share_of_hits(queries, passages, torch.tensor(ids)).item()
        for ids in ([0, 1, 2, 2], [0, 1, 2, 3])
    ]
    assert found == [1.0, 0.5]


def test_cosines_know_no_length_however_short_a_vector_is():
    queries, passages = torch.randn(4, 8), torch.randn(8, 8)
    short = losses.contrastive(1e-9 * queries, 1e-9 * passages)
    assert short.item() == pytest.approx(losses.contrastive(queries, passages).item(), rel=1e-5)


def test_equal_vectors_are_no_hit():
    assert share_of_hits(torch.ones(4, 2), torch.ones(8, 2)).item() == 0


def test_a_row_whose_target_is_above_all_others_is_a_hit_and_a_tie_is_none():
    scores = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0], [3.0, -1.0]], requires_grad=True)
    found = losses.share_first(scores, torch.zeros(4, dtype=torch.int64))
    assert found.item() == 0.5 and not found.requires_grad


@pytest.mark.parametrize("blocks", CHOICES)
@pytest.mark.parametrize("own_negatives", [True, False])
def test_the_loss_masks_what_it_is_told_and_the_accuracy_all_that_is_known(blocks, own_negatives):
    torch.manual_seed(4)
    for _ in range(20):
        queries, passages = torch.randn(6, 4), torch.randn(18, 4)
        known = torch.rand(6, 18) < 0.2
        known[torch.arange(6), 3 * torch.arange(6)] = False
        given = {"passage_ids": torch.randint(9, (18,)), "known_positives": known}
        scale = {"temperature": 0.3, "normalise": True}
        how = {"blocks": blocks, "own_negatives": own_negatives}
        same = given["passage_ids"][::3, None] == given["passage_ids"]
        cosines = functional.normalize(queries) @ functional.normalize(passages).T
        others = cosines.masked_fill(known | same, -torch.inf).amax(1)
        accuracy = (cosines[:, ::3].diagonal() > others).float().mean()
        for masked, counted in ((True, given), (False, {})):
            found = losses.contrastive_and_accuracy(
                queries, passages, **scale, **how, **given, mask_positives=masked
            )
            expected = losses.contrastive(queries, passages, **scale, **how, **counted)
            assert torch.equal(found[0], expected) and torch.equal(found[1], accuracy)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_hits_are_counted_in_fp32_under_autocast_and_of_bf16_vectors(dtype):
    queries, passages = (
        torch.ones(1, 2, dtype=dtype),
        torch.tensor([[1.0, 2**-9], [1.0, 0.0]], dtype=dtype),
    )
    with torch.autocast("cpu", torch.bfloat16):  # 1 + 2**-9 is 1 in bfloat16, hence a tie
        assert share_of_hits(queries, passages).item() == 1


def test_two_processes_have_the_gradient_of_one_with_the_whole_batch():
    for found in side_by_side(apart):
        assert set(found) == {"released", "pair", "siblings"}
        assert max(found.values()) < 1e-5


def test_alone_nothing_is_gathered():
    rows = torch.ones(2, 3)
    assert gather(rows) is rows
