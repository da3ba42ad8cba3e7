"""Properties of every contrastive method: batches by number and size, chunks, odd lengths."""

import pytest
import torch

from dr_lib import losses, objectives
from dr_lib.errors import InputError
from dr_lib.tokens import TokenBatch
from dr_lib.training.loop import to_device

METHODS = ("ict", "bfs", "cocondenser", "paq", "reddit", "pair")


def parts_of(batch) -> dict[str, TokenBatch]:
    return {name: part for name, part in vars(batch).items() if isinstance(part, TokenBatch)}


def tensors_of(batch) -> list[torch.Tensor]:
    flat = [part for part in vars(batch).values() if isinstance(part, torch.Tensor)]
    return flat + [
        one
        for part in parts_of(batch).values()
        for one in vars(part).values()
        if isinstance(one, torch.Tensor)
    ]


@pytest.mark.parametrize("name", METHODS)
def test_a_batch_is_the_same_whenever_it_is_asked_for_and_another_under_another_seed(
    name, batches_of
):
    forward = [tensors_of(batches_of(name)(step)) for step in range(5)]
    again = batches_of(name)
    for step in reversed(range(5)):
        assert all(
            torch.equal(a, b) for a, b in zip(tensors_of(again(step)), forward[step], strict=True)
        )
    other = [tensors_of(batches_of(name, {"seed": 4})(step)) for step in range(5)]
    assert any(
        a.shape != b.shape or not torch.equal(a, b)
        for ones, others in zip(forward, other, strict=True)
        for a, b in zip(ones, others, strict=True)
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_batch_holds_as_many_pairs_as_fit_the_budget_or_as_asked_for(name, batches_of):
    per_pair = {"cocondenser": 80, "paq": 92, "pair": 92}.get(name, 52)
    fitting = min(320 // per_pair, {"bfs": 4, "cocondenser": 5}.get(name, 9))
    for step in range(4):
        batch = batches_of(name)(step)
        assert len(batch) // (2 if name == "cocondenser" else 1) == fitting
        assert sum(part.input_ids.numel() for part in parts_of(batch).values()) <= 320
    assert len(batches_of(name, batch_pairs=2)(0)) == (4 if name == "cocondenser" else 2)
    with pytest.raises(InputError, match="Two are needed"):
        batches_of(name, {"tokens_per_batch": 60})


@pytest.mark.parametrize("name", METHODS)
def test_the_gradient_reaches_the_encoder_and_the_head_only_where_it_predicts(
    name, make, batches_of, seeded
):
    objective = make(name)
    objective(batches_of(name)(0), seeded())["loss"].backward()
    layers = objective.model.bert.encoder.layer
    assert all(layer.attention.self.query.weight.grad.abs().sum() > 0 for layer in layers)
    head = objective.model.cls.predictions.transform.dense.weight.grad
    assert (head is not None) is (name == "cocondenser")


@pytest.mark.parametrize("name", METHODS)
def test_chunks_change_neither_loss_nor_gradient(name, make_loud, batches_of, seeded):
    """In float64: these vectors are so similar that float32's rounding reaches 1e-5 on some
    machines.
    """
    found = []
    for values in ({}, {"chunk": 3}):
        objective = make_loud(name, **values).double()
        parts = objective(batches_of(name)(1), seeded())
        parts["loss"].backward()
        slopes = [
            weight.grad.flatten() for weight in objective.parameters() if weight.grad is not None
        ]
        found.append((parts, torch.cat(slopes)))
    (plain, expected), (cut, slope) = found
    assert plain.keys() == cut.keys()
    assert all(
        cut[key].item() == pytest.approx(plain[key].item(), rel=1e-5, abs=1e-6) for key in plain
    )
    assert (slope - expected).norm() / expected.norm() < 1e-6


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("passage_length", "query_length"), [(6, 4), (64, 40)])
def test_texts_of_any_length_fit_the_limits(
    name, passage_length, query_length, make, batches_of, seeded
):
    # it needs two sentences
    passage_length = 32 if name == "ict" and passage_length == 6 else passage_length
    limits = {
        "passage_length": passage_length,
        "query_length": query_length,
        "tokens_per_batch": 640,
    }
    objective, of = make(name), batches_of(name, limits)
    for step in range(4):
        batch = of(step)
        for part, texts in parts_of(batch).items():
            longest = query_length if part == "queries" else passage_length
            assert texts.input_ids.shape[1] <= longest
            assert (texts.attention_mask.sum(1) >= 2).all()
        assert torch.isfinite(objective(batch, seeded())["loss"])


@pytest.mark.parametrize("name", METHODS)
def test_moving_a_batch_moves_all_of_it(name, batches_of):
    assert {
        tensor.device.type for tensor in tensors_of(to_device(batches_of(name)(0), "meta"))
    } == {"meta"}


@pytest.mark.parametrize("values", [{"batch_pairs": 1}, {"temperature": 0.0}, {"chunk": 0}])
def test_values_out_of_range_are_refused(values):
    with pytest.raises(InputError, match=next(iter(values))):
        objectives.parameters("ict", **values)


@pytest.mark.parametrize("name", ["ict", "bfs", "paq", "reddit", "pair"])
def test_two_encoders_start_equal_and_read_one_side_each(name, make_loud, make, batches_of, seeded):
    batch, one = batches_of(name)(0), make_loud(name)
    two = make(name, one.model, separate=True)
    assert two(batch, seeded())["loss"].item() == pytest.approx(
        one(batch, seeded())["loss"].item(), rel=1e-6
    )
    weight = two.passage_model.bert.encoder.layer[0].attention.self.query.weight
    assert weight is not two.model.bert.encoder.layer[0].attention.self.query.weight
    before = (
        two.encode(two.model, batch.queries).detach(),
        two.encode(two.passage_model, batch.passages).detach(),
    )
    with torch.no_grad():
        weight *= 3.0
    after = (
        two.encode(two.model, batch.queries).detach(),
        two.encode(two.passage_model, batch.passages).detach(),
    )
    assert torch.equal(before[0], after[0]) and not torch.allclose(before[1], after[1])
    two(batch, seeded())["loss"].backward()
    for model in (two.model, two.passage_model):
        assert model.bert.encoder.layer[0].attention.self.query.weight.grad.abs().sum() > 0
    assert one.passage_model is None


@pytest.mark.parametrize("name", ["paq", "pair"])
def test_known_positives_are_compared_with_where_they_are_not_masked(
    name, make_loud, batches_of, seeded
):
    batch, loss = (
        batches_of(name, batch_pairs=6)(0),
        losses.pair if name == "pair" else losses.contrastive,
    )
    options = {"temperature": 1.0, "normalise": False} | (
        {} if name == "pair" else {"blocks": "query_passage"}
    )
    found = {}
    for masked in (True, False):
        method = make_loud(name, mask_positives=masked)
        queries, passages = (
            method.encode(method.model, texts) for texts in (batch.queries, batch.passages)
        )
        known = (
            {"passage_ids": batch.passage_rows, "known_positives": batch.known_positives}
            if masked
            else {}
        )
        found[masked] = method(batch, seeded())["loss"].item()
        assert found[masked] == pytest.approx(
            loss(queries, passages, **options, **known).item(), rel=1e-5
        )
    assert found[True] < found[False]
