"""Condenser against full logits, and what may pass beside [CLS]."""

import pytest
import torch
from torch.nn import functional

from dr_lib.errors import InputError
from dr_lib.tokens import TokenBatch


@pytest.mark.parametrize("kind", ["bert", "electra"])
@pytest.mark.parametrize(
    "values", [{}, {"late_mlm": False, "rate": 0.3}, {"skip_from": 0, "head_layers": 1}]
)
def test_losses_and_gradients_are_those_of_full_logits(
    kind, values, make_loud, batch, seeded, tiny_electra, hidden_inputs, all_logits, same_gradients
):
    objective = make_loud("condenser", tiny_electra if kind == "electra" else None, **values)
    result = objective(batch, seeded())
    ((mask, ids),) = hidden_inputs
    output = objective.model(**batch.with_ids(ids).model_inputs(), output_hidden_states=True)
    early, late = output.hidden_states[values.get("skip_from", 1)], output.hidden_states[-1]
    states = torch.cat([late[:, :1], early[:, 1:]], 1)
    bias = (1.0 - batch.attention_mask[:, None, None].float()) * -1e30
    for layer in objective.head.layers:
        states = layer(states, bias)
    expected = 0
    sides = [("decoder", all_logits(objective.model, states))]
    sides += [("encoder", output.logits)] if values.get("late_mlm", True) else []
    for name, logits in sides:
        loss = functional.cross_entropy(logits[mask], batch.input_ids[mask])
        right = (logits.argmax(-1) == batch.input_ids)[mask].float().mean()
        assert torch.allclose(result[f"{name}_loss"], loss, atol=1e-5)
        assert torch.allclose(result[f"{name}_accuracy"], right)
        expected = expected + loss
    assert ("encoder_loss" in result) is values.get("late_mlm", True)
    assert same_gradients(objective, result["loss"], expected)


def test_the_loss_is_the_sum_of_the_losses_and_of_nothing_else(make, batch, seeded):
    objective = make("condenser", rate=1.0)
    with torch.no_grad():
        objective.model.get_output_embeddings().bias[batch.input_ids[0, 1]] += 20
    result = objective(batch, seeded())
    assert result["encoder_accuracy"] > 0
    assert result["loss"].item() == pytest.approx(
        result["encoder_loss"].item() + result["decoder_loss"].item(), rel=1e-6
    )


def test_the_head_hears_from_late_layers_through_cls_alone(make, batch, seeded):
    objective, outputs = make("condenser", late_mlm=False), []
    for layer in objective.model.bert.encoder.layer:
        layer.register_forward_hook(lambda *given: outputs.append(given[-1]))
    loss = objective(batch, seeded())["loss"]
    early, late = torch.autograd.grad(loss, outputs)
    assert late[:, 0].any(-1).all() and not late[:, 1:].any()
    assert early[batch.attention_mask == 1].any(-1).all()


def test_vectors_are_the_last_states_of_cls_and_carry_gradient(make, batch, seeded, hidden_inputs):
    objective = make("condenser")
    parts, vectors = objective.condense(batch, seeded())
    ids = hidden_inputs[0][1]
    expected = objective.model.bert(**batch.with_ids(ids).model_inputs()).last_hidden_state[:, 0]
    assert torch.allclose(vectors, expected, atol=1e-6) and vectors.requires_grad
    assert torch.equal(parts["loss"], objective(batch, seeded())["loss"])


@pytest.mark.parametrize(("layers", "half"), [(1, 0), (2, 1), (3, 1), (4, 2)])
def test_the_encoder_is_cut_in_half_by_default(layers, half, make, tiny_bert):
    assert make("condenser", tiny_bert(layers=layers), head_layers=1).skip_from == half


def test_a_cut_that_leaves_no_late_layer_is_refused(make):
    with pytest.raises(
        InputError, match=r"layer 2 of 2 leaves no late layer\. Give a number from 0 to 1"
    ):
        make("condenser", skip_from=2)


def test_head_is_drawn_anew_from_its_seed(make):
    first, again, other = (
        make("condenser", init_seed=seed).head.state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    name = "layers.1.intermediate.dense.weight"
    assert not torch.equal(first[name], other[name]) and first[name].std() == pytest.approx(
        0.02, rel=0.1
    )


@pytest.mark.parametrize("name", ["condenser", "cocondenser", "master"])
def test_a_long_passage_may_be_read_from_another_window_in_each_epoch(name, batches, corpus):
    def bodies(step: int, window: str) -> dict[int, list[int]]:
        batch = batches(name, window=window)(step)
        texts = (
            batch
            if isinstance(batch, TokenBatch)
            else next(x for x in vars(batch).values() if len(x) == len(batch))
        )
        titled = texts.token_type_ids.any(1, keepdim=True)
        body = ~texts.special & ((texts.token_type_ids == 1) | ~titled)
        return {
            row: ids[mine].tolist()
            for row, ids, mine in zip(texts.rows.tolist(), texts.input_ids, body, strict=True)
        }

    seen: dict[int, set[tuple[int, ...]]] = {}
    for step in range(60):
        first = bodies(step, "first")
        for row, found in bodies(step, "random").items():
            whole = corpus.text_ids[
                corpus.text_offsets[row] : corpus.text_offsets[row + 1]
            ].tolist()
            starts = [at for at in range(len(whole)) if whole[at : at + len(found)] == found]
            assert starts and len(found) == len(first[row])
            assert first[row] == whole[: len(found)]
            if found and len(found) < len(whole):
                seen.setdefault(row, set()).add(tuple(found))
    assert seen and all(len(windows) > 1 for windows in seen.values())
