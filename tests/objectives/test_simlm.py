"""SimLM against a plain implementation with full logits, and what it must not do."""

import pytest
import torch
from torch.nn import functional

from dr_lib import masking
from dr_lib.objectives import simlm


class Spy:
    """Record arguments and results of `Simlm.replace`."""

    def __init__(self, objective):
        self.masks, self.ids, self.inputs, inner, hide = [], [], [], objective.replace, masking.hide

        def replacing(batch, mask, *rest):
            ids, learned = inner(batch, mask, *rest)
            self.masks.append(mask)
            self.ids.append(ids)
            self.inputs.append(hide(batch, mask, 4, 10, torch.Generator()))
            return ids, learned

        objective.replace = replacing


def plain_losses(objective, batch, encoder_ids, decoder_ids, *, types=True, by_passage=False):
    """Encoder and decoder loss with all logits, and the bottleneck inserted by hand."""
    model, base = objective.model, objective.model.base_model
    output = model(**batch.with_ids(encoder_ids).model_inputs(), output_hidden_states=True)
    embedded = base.embeddings(decoder_ids, batch.token_type_ids if types else None)
    if hasattr(base, "embeddings_project"):
        embedded = base.embeddings_project(embedded)
    states = torch.cat([output.hidden_states[-1][:, :1], embedded[:, 1:]], 1)
    bias = (1.0 - batch.attention_mask[:, None, None].float()) * -1e30
    for layer in objective.decoder.layers:
        states = layer(states, bias)
    decoded = (
        model.cls(states)
        if hasattr(model, "cls")
        else model.generator_lm_head(model.generator_predictions(states))
    )
    labels = batch.input_ids.masked_fill(batch.input_ids < 5, -100)
    results = []
    for logits in (output.logits, decoded):
        losses = functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        counted = labels != -100
        means = losses.sum(1) / counted.sum(1)
        results.append(means.mean() if by_passage else losses.sum() / counted.sum())
    return results


@pytest.mark.parametrize("kind", ["bert", "electra"])
@pytest.mark.parametrize("loss_mean", ["released", "paper"])
@pytest.mark.parametrize("decoder_token_types", ["released", "paper"])
def test_losses_and_gradients_are_those_of_full_logits(
    kind, loss_mean, decoder_token_types, make, batch, seeded, tiny_electra
):
    model = tiny_electra if kind == "electra" else None
    objective = make("simlm", model, loss_mean=loss_mean, decoder_token_types=decoder_token_types)
    spy = Spy(objective)
    result = objective(batch, seeded())
    expected = plain_losses(
        objective,
        batch,
        *spy.ids,
        types=decoder_token_types == "paper",
        by_passage=loss_mean == "paper",
    )
    assert torch.allclose(result["encoder_loss"], expected[0], atol=1e-5)
    assert torch.allclose(result["decoder_loss"], expected[1], atol=1e-5)
    trained = [weight for weight in objective.parameters() if weight.requires_grad]
    found, wanted = (torch.autograd.grad(loss, trained) for loss in (result["loss"], sum(expected)))
    assert all(torch.allclose(a, b, atol=2e-5) for a, b in zip(found, wanted, strict=True))


def test_decoder_mask_contains_encoder_mask_and_meets_its_rate(make, seeded):
    objective, drawn = make("simlm"), []
    objective.replace = lambda batch, mask, *rest: (drawn.append(mask), (batch.input_ids, {}))[1]
    objective.decoder.forward = lambda embedded, bottleneck, batch: embedded
    ids = torch.randint(5, 100, (64, 64))
    special = torch.zeros_like(ids, dtype=torch.bool)
    long = simlm.TokenBatch(
        ids, torch.ones_like(ids), torch.zeros_like(ids), special, ~special, torch.arange(64)
    )
    for seed in range(4):
        with torch.no_grad():
            objective(long, seeded(seed))
    encoder, decoder = torch.stack(drawn[0::2]), torch.stack(drawn[1::2])
    assert (decoder >= encoder).all() and (decoder > encoder).any()
    assert encoder.float().mean() == pytest.approx(0.3, abs=0.01)
    assert decoder.float().mean() == pytest.approx(0.5, abs=0.02)


def test_decoder_never_sees_a_clean_token_under_its_mask(make, batch, seeded):
    objective = make("simlm")
    spy = Spy(objective)
    objective(batch, seeded())
    only_decoder = spy.masks[1] & ~spy.masks[0]
    changed = batch.with_ids(
        torch.where(only_decoder, (batch.input_ids + 7) % 90 + 5, batch.input_ids)
    )
    objective(changed, seeded())
    assert torch.equal(spy.ids[1], spy.ids[3])
    assert not torch.equal(spy.ids[0], spy.ids[2])


def test_only_masked_positions_are_replaced_and_two_draws_differ(make, batch, seeded):
    objective = make("simlm", encoder_rate=0.5, decoder_rate=0.4)
    spy = Spy(objective)
    result = objective(batch, seeded())
    assert torch.equal(spy.masks[0], spy.masks[1]) and not torch.equal(spy.ids[0], spy.ids[1])
    for mask, ids, name in zip(spy.masks, spy.ids, ("encoder", "decoder"), strict=True):
        assert torch.equal(ids[~mask], batch.input_ids[~mask])
        real = batch.attention_mask == 1
        assert result[f"{name}_replaced"] == pytest.approx(
            (ids != batch.input_ids)[real].float().mean()
        )


def test_frozen_generator_gets_no_gradient_and_stays_in_eval_mode(make, batch, seeded):
    objective = make("simlm", dropout=0.1)
    assert not objective.generator.model.training and objective.model.training
    objective(batch, seeded())["loss"].backward()
    assert all(
        weight.grad is None and not weight.requires_grad
        for weight in objective.generator.parameters()
    )
    rest = [
        weight for name, weight in objective.named_parameters() if not name.startswith("generator.")
    ]
    assert all(weight.grad is not None for weight in rest)
    assert make("simlm", generator_dropout="released").generator.model.training


@pytest.mark.parametrize("mode", ["joint", "joint_random"])
def test_joint_generator_learns_from_its_own_loss_alone(mode, make, batch, seeded, tiny_bert):
    start = tiny_bert(seed=1)
    objective = make("simlm", generator_model=start, generator=mode, generator_weight=0.2)
    same = torch.equal(objective.generator.model.cls.predictions.transform.dense.weight,
                       tiny_bert(seed=1).cls.predictions.transform.dense.weight)  # fmt: skip
    assert same is (mode == "joint")
    spy = Spy(objective)
    result = objective(batch, seeded())
    model, mask = objective.generator.model, spy.masks[0]
    logits = model(**batch.with_ids(spy.inputs[0]).model_inputs()).logits
    expected = functional.cross_entropy(logits[mask], batch.input_ids[mask])
    assert torch.allclose(result["generator_loss"], expected, atol=1e-5)
    assert torch.allclose(
        result["loss"], result["encoder_loss"] + result["decoder_loss"] + 0.2 * expected, atol=1e-5
    )
    weights = list(model.parameters())
    found, wanted = (
        torch.autograd.grad(loss, weights) for loss in (result["loss"], 0.2 * expected)
    )
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, wanted, strict=True))


def test_random_generator_follows_its_seed(make):
    first, again, other = (
        make("simlm", generator="joint_random", init_seed=seed).generator.state_dict()
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_decoder_loss_reaches_the_last_encoder_layer_through_the_bottleneck_alone(
    make, batch, seeded
):
    objective = make("simlm")
    weight = objective.model.bert.encoder.layer[-1].output.dense.weight
    objective.model.cls.predictions.transform.requires_grad_(False)

    def gradient() -> torch.Tensor:
        spy = Spy(objective)
        objective(batch, seeded())
        decoder_loss = plain_losses(objective, batch, *spy.ids)[1]
        return torch.autograd.grad(decoder_loss, weight, allow_unused=True)[0]

    assert gradient().abs().max() > 0
    both, encoder_only = objective(batch, seeded())["loss"], None
    hook = objective.decoder.register_forward_pre_hook(
        lambda _, given: (given[0], given[1].detach(), given[2])
    )
    encoder_only = objective(batch, seeded())["loss"]
    hook.remove()
    full, cut = (torch.autograd.grad(loss, weight)[0] for loss in (both, encoder_only))
    assert torch.allclose(full - cut, gradient(), atol=1e-5)


def trained(objective, batch, steps, seeded, rate=3e-3):
    """Some steps of AdamW; the last loss."""
    optimiser = torch.optim.AdamW([w for w in objective.parameters() if w.requires_grad], lr=rate)
    for step in range(steps):
        loss = objective(batch, seeded(step))["loss"]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return loss.detach()


def test_shuffled_bottleneck_raises_the_decoder_loss_after_training(make, seeded):
    # 32 passages, each one word said six times
    ids = torch.arange(20, 52)[:, None].expand(-1, 8).clone()
    ids[:, 0], ids[:, -1] = 2, 3
    special, blank = ids < 5, torch.zeros_like(ids)
    batch = simlm.TokenBatch(ids, blank + 1, blank, special, ~special, torch.arange(32))
    objective = make("simlm", encoder_rate=0.1, decoder_rate=1.0)
    trained(objective, batch, 60, seeded)
    with torch.no_grad():
        own = objective(batch, seeded(1000))["decoder_loss"]
        objective.decoder.register_forward_pre_hook(
            lambda _, given: (given[0], given[1].roll(1, 0), given[2])
        )
        shuffled = objective(batch, seeded(1000))["decoder_loss"]
    assert shuffled > own + 1.0


def test_special_tokens_are_sampled_only_where_allowed(make, batch, seeded):
    for forbid in (True, False):
        objective = make("simlm", forbid_special_samples=forbid, encoder_rate=1.0, decoder_rate=1.0)
        objective.generator.model.cls.predictions.bias.data[4] = 5.0
        spy = Spy(objective)
        objective(batch, seeded())
        assert bool((spy.ids[0] == 4).any()) is not forbid
