"""coCondenser: pairs of spans, and the sum of Condenser's loss and the contrastive one."""

import pytest
import torch

from dr_lib import losses
from dr_lib.models import layer_states

DOCUMENTS = [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 5]


def test_spans_are_distinct_passages_of_one_document_side_by_side(batches_of):
    of, seen = batches_of("cocondenser", batch_pairs=2), set()
    for step in range(80):
        batch = of(step)
        rows = batch.spans.rows.reshape(-1, 2).tolist()
        for one, other in rows:
            assert one != other and DOCUMENTS[one] == DOCUMENTS[other]
        assert len({DOCUMENTS[one] for one, _ in rows}) == len(rows)
        assert (
            batch.documents.reshape(-1, 2)[:, 0].tolist()
            == batch.documents.reshape(-1, 2)[:, 1].tolist()
        )
        seen |= {tuple(pair) for pair in rows}
    assert seen == {
        (one, other)
        for one in range(14) for other in range(14)
        if one != other and DOCUMENTS[one] == DOCUMENTS[other]
    }  # fmt: skip


@pytest.mark.parametrize(("window", "several"), [("first", False), ("random", True)])
def test_a_long_passage_shows_another_window_in_each_epoch(window, several, batches_of):
    of, seen = batches_of("cocondenser", batch_pairs=2, window=window), set()
    for step in range(40):
        spans = of(step).spans
        for row, ids in zip(spans.rows.tolist(), spans.input_ids.tolist(), strict=True):
            seen |= {tuple(id_ for id_ in ids if id_)} if row == 7 else set()
    assert seen and (len(seen) > 1) == several


def test_the_loss_is_condensers_and_the_contrastive_one_with_equal_weight(
    make_loud, batches_of, seeded, hidden_inputs, same_gradients
):
    objective, batch = make_loud("cocondenser"), batches_of("cocondenser")(0)
    found = objective(batch, seeded())
    plain = objective.condense(batch.spans, seeded())[0]["loss"]
    vectors = layer_states(objective.model, batch.spans, hidden_inputs[0][1])[-1][:, 0].float()
    scores = vectors @ vectors.T
    spans = range(len(vectors))
    terms = [
        torch.stack([scores[i, j] for j in spans if j != i]).logsumexp(0)
        - scores[i, i + 1 - 2 * (i % 2)]
        for i in spans
    ]
    apart = torch.stack(terms).mean()
    assert found["contrastive_loss"].item() == pytest.approx(apart.item(), rel=1e-5)
    assert found["decoder_loss"] + found["encoder_loss"] == pytest.approx(plain.item(), rel=1e-6)
    assert found["loss"].item() == pytest.approx((plain + apart).item(), rel=1e-6)
    assert same_gradients(objective, found["loss"], plain + apart, atol=1e-4)


def test_masked_lm_has_the_same_weight_with_chunks_and_without(make, batches_of, seeded):
    """In the released code it counts twice with chunks, which are weighted by spans and divided by
    documents.
    """
    slopes = []
    for values in ({}, {"chunk": 2}):
        objective, batch = make("cocondenser", **values), batches_of("cocondenser")(0)
        parts = objective(batch, seeded())
        bias = objective.model.cls.predictions.bias  # only masked LM reaches it
        slopes.append(torch.autograd.grad(parts["loss"], bias)[0])
        assert parts["loss"].item() == pytest.approx(
            sum(parts[f"{side}_loss"].item() for side in ("decoder", "encoder", "contrastive")),
            rel=1e-6,
        )
    assert slopes[0].norm() > 0
    assert (slopes[1] - slopes[0]).norm() < 1e-5 * slopes[0].norm()


def test_masks_are_the_same_with_chunks_and_without(make, batches_of, seeded, hidden_inputs):
    for values in ({}, {"chunk": 2}):
        make("cocondenser", **values)(batches_of("cocondenser")(0), seeded())
    (mask, ids), (again, ids_again) = hidden_inputs
    assert torch.equal(mask, again) and torch.equal(ids, ids_again)


def test_with_dropout_chunks_give_the_gradient_of_chunks_whose_activations_are_kept(
    make, batches_of, seeded, monkeypatch
):
    found = []
    for kept in (True, False):
        objective, batch = make("cocondenser", dropout=0.1, chunk=3), batches_of("cocondenser")(0)
        with monkeypatch.context() as patch:
            if kept:
                patch.setattr(
                    "dr_lib.models.bert.checkpoint", lambda function, *given, **_: function(*given)
                )
            torch.manual_seed(5)
            loss = objective(batch, seeded())["loss"]
            loss.backward()
        slopes = [
            weight.grad.flatten() for weight in objective.parameters() if weight.grad is not None
        ]
        found.append((loss.item(), torch.cat(slopes)))
    assert found[0][0] == found[1][0]
    assert (found[0][1] - found[1][1]).norm() <= 1e-5 * found[0][1].norm()


def test_spans_of_other_processes_are_compared_too(make_loud, batches_of, seeded, monkeypatch):
    objective, batch = make_loud("cocondenser"), batches_of("cocondenser")(0)
    alone = objective(batch, seeded())
    gathered = []

    def twice(tensor):
        gathered.append(tensor)
        other = tensor.flip(0) * 0.5 if tensor.is_floating_point() else tensor + 1000
        return torch.cat([tensor, other])

    monkeypatch.setattr(losses, "gather", twice)
    together = objective(batch, seeded())
    vectors, documents = gathered
    assert len(vectors) == len(documents) == len(batch.documents)
    expected = losses.siblings(twice(vectors.detach()), twice(documents))
    torch.testing.assert_close(together["contrastive_loss"], expected)
    assert together["contrastive_loss"] > alone["contrastive_loss"]
