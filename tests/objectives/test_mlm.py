"""Masked language modelling, alone and with BERT's task on pairs, against the library's own losses
and against the pairs' labels.
"""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional
from transformers import BertForPreTraining

from dr_lib import masking, objectives
from dr_lib.objectives.contrastive import stored_pairs


@pytest.mark.parametrize(
    "values",
    [{}, {"rate": 0.4, "mask_policy": "mask"}, {"unit": "piece", "budget": "all"}, {"rate": 1.0}],
)
def test_loss_and_gradient_are_those_of_full_logits(make, batch, seeded, values, monkeypatch):
    objective, seen, hide = make("mlm", **values), {}, masking.hide
    monkeypatch.setattr(masking, "hide", lambda *a, **k: seen.setdefault("ids", hide(*a, **k)))
    draw = masking.uniform if values.get("unit") == "piece" else masking.whole_word
    mask = draw(batch, objective.settings.rate, seeded(), budget=objective.settings.budget)
    result = objective(batch, seeded())
    inputs = batch.with_ids(seen["ids"]).model_inputs()
    logits = objective.model(**inputs).logits
    expected = functional.cross_entropy(logits[mask], batch.input_ids[mask])
    assert torch.allclose(result["loss"], expected, atol=1e-5)
    assert result["encoder_accuracy"] == pytest.approx(
        (logits[mask].argmax(-1) == batch.input_ids[mask]).float().mean()
    )
    weights = list(objective.model.parameters())
    for found, wanted in zip(
        *(torch.autograd.grad(x, weights) for x in (result["loss"], expected)), strict=True
    ):
        assert torch.allclose(found, wanted, atol=1e-5)


def test_nothing_masked_is_a_loss_of_zero_without_gradient(make, batch, seeded):
    objective = make("mlm", rate=0.0)
    result = objective(batch, seeded())
    result["loss"].backward()
    assert result["loss"] == 0 and result["encoder_accuracy"] == 0
    assert not any(
        weight.grad is not None and weight.grad.any() for weight in objective.parameters()
    )


@pytest.fixture
def pairs_at(batches):
    return batches("nsp")


def test_both_losses_are_those_of_the_librarys_model(make_loud, pairs_at, seeded, monkeypatch):
    """BERT's own head for pairs comes after a pooler; here the layer reads [CLS] itself, so the
    pooler is removed.
    """
    objective, batch = make_loud("nsp", rate=0.3), pairs_at(0)
    drawn = []
    whole_word = masking.whole_word
    monkeypatch.setattr(
        masking,
        "whole_word",
        lambda *given, **more: drawn.append(whole_word(*given, **more)) or drawn[-1],
    )
    hide = masking.hide
    monkeypatch.setattr(
        masking, "hide", lambda *given, **more: drawn.append(hide(*given, **more)) or drawn[-1]
    )
    found = objective(batch, seeded())
    mask, ids = drawn
    assert mask.any() and not (mask & batch.special).any() and (ids != batch.input_ids).any()
    theirs = BertForPreTraining(objective.model.config).eval()
    theirs.bert.load_state_dict(objective.model.bert.state_dict(), strict=False)
    theirs.cls.predictions.load_state_dict(objective.model.cls.predictions.state_dict())
    theirs.bert.pooler.forward = lambda states: states[:, 0]
    theirs.cls.seq_relationship = objective.follows
    with torch.no_grad():
        said = theirs(ids, attention_mask=batch.attention_mask, token_type_ids=batch.token_type_ids)
    words = functional.cross_entropy(said.prediction_logits[mask], batch.input_ids[mask])
    true = torch.tensor([1.0, 0.0]).repeat(len(batch) // 2)
    follows = -(true * torch.sigmoid(said.seq_relationship_logits[:, 0]).log()).sum()
    follows = (
        follows - ((1 - true) * torch.sigmoid(-said.seq_relationship_logits[:, 0]).log()).sum()
    ) / len(batch)
    assert found["encoder_loss"].item() == pytest.approx(words.item(), rel=1e-5)
    assert found["follows_loss"].item() == pytest.approx(follows.item(), rel=1e-5)
    assert found["loss"].item() == pytest.approx(words.item() + follows.item(), rel=1e-5)
    right = ((said.seq_relationship_logits[:, 0] > 0) == true.bool()).float().mean()
    assert found["follows_accuracy"] == right


def test_every_second_pair_is_a_random_one_and_none_of_these_is_true(source, pairs_at):
    """The passage of query number i is passage i."""
    queries, passages, _ = stored_pairs(source, source.materials["reddit_pairs"])
    for step in range(12):
        batch = pairs_at(step)
        true, random = batch.rows[0::2], batch.rows[1::2]
        assert batch.input_ids.shape[1] <= source.layout.passage_length and (true != random).all()
        for number, (ids, types, special) in enumerate(
            zip(batch.input_ids, batch.token_type_ids, batch.special, strict=True)
        ):
            query, row = true[number // 2], batch.rows[number]
            title, text = (own[start:end].tolist() for own, start, end in spans(passages, row))
            asked = queries.text_ids[
                queries.text_offsets[query] : queries.text_offsets[query + 1]
            ].tolist()
            first, second = (ids[~special & (types == side)].tolist() for side in (0, 1))
            assert first and asked[: len(first)] == first
            assert (
                second
                and [*title, *second[len(title) : len(title) + bool(title)], *text][: len(second)]
                == second
            )


@pytest.mark.parametrize("title", ["none", "pair"])
def test_titles_are_read_where_the_layout_says_so(source, title):
    layout = source.layout.model_copy(update={"title": title})
    read = objectives.method("nsp").batches(
        objectives.parameters("nsp"), replace(source, layout=layout)
    )
    _, passages, _ = stored_pairs(source, source.materials["reddit_pairs"])
    batch, titled = read(0), 0
    for ids, special, types, row in zip(
        batch.input_ids, batch.special, batch.token_type_ids, batch.rows, strict=True
    ):
        second = ids[~special & (types == 1)].tolist()
        text = passages.text_ids[
            passages.text_offsets[row] : passages.text_offsets[row + 1]
        ].tolist()
        titled += second != text[: len(second)]
    assert (titled > 0) == (title == "pair")


def spans(store, row):
    """Title and text of a passage in a store: the ids, and their boundaries."""
    yield store.title_ids, store.title_offsets[row], store.title_offsets[row + 1]
    yield store.text_ids, store.text_offsets[row], store.text_offsets[row + 1]


def test_the_head_is_saved_beside_the_model_and_drawn_by_its_seed(make):
    once, again, other = (make("nsp", init_seed=seed) for seed in (0, 0, 1))
    assert once.extra_tensors().keys() == {"follows.weight", "follows.bias"}
    assert torch.equal(once.follows.weight, again.follows.weight) and not torch.equal(
        once.follows.weight, other.follows.weight
    )


def test_names_of_the_pairs_are_asked_for():
    assert objectives.parameters("nsp").materials() == {"reddit_pairs": {}}
