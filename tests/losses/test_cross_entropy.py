"""The chunked cross-entropy against torch's own on the full logits."""

import pytest
import torch
from torch.nn import functional

from dr_lib import losses
from dr_lib.losses import cross_entropy as module

CPU = (("cpu", torch.float32), ("cpu", torch.bfloat16))


def problem(tokens=150, vocab=301, hidden=24, ignored=0.3, seed=0):
    torch.manual_seed(seed)
    states = torch.randn(tokens, hidden, requires_grad=True)
    weight = torch.randn(vocab, hidden, requires_grad=True)
    bias = torch.randn(vocab, requires_grad=True)
    labels = torch.randint(0, vocab, (tokens,)).masked_fill(torch.rand(tokens) < ignored, -100)
    return states, weight, bias, labels


def gradients(loss, *tensors):
    return torch.autograd.grad(loss, tensors)


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 150, 257])
@pytest.mark.parametrize("chunk", [512, 64, 100])
def test_value_and_gradients_are_those_of_the_full_logits(tokens, chunk, monkeypatch):
    monkeypatch.setattr(module, "ROWS", chunk)
    states, weight, bias, labels = problem(tokens)
    labels[0] = 5
    loss, correct = losses.chunked_cross_entropy(states, weight, bias, labels)
    logits = states @ weight.T + bias
    expected = functional.cross_entropy(logits, labels)
    torch.testing.assert_close(loss, expected)
    assert correct == (logits.argmax(1) == labels).sum()
    for found, wanted in zip(
        gradients(loss, states, weight, bias),
        gradients(expected, states, weight, bias),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_random_sizes_give_the_values_and_gradients_of_the_full_logits(monkeypatch):
    for seed in range(200):
        source = torch.Generator().manual_seed(seed)
        tokens, vocab, hidden, chunk = (
            int(torch.randint(1, top, (), generator=source)) for top in (150, 90, 20, 130)
        )
        states, weight, bias, labels = problem(
            tokens, vocab, hidden, ignored=0.5 * (seed % 3), seed=seed
        )
        weights = torch.rand(tokens, generator=source) if seed % 2 else torch.ones(tokens)
        monkeypatch.setattr(module, "ROWS", chunk)
        loss, correct = losses.chunked_cross_entropy(states, weight, bias, labels, weights=weights)
        counted, logits = labels != -100, (states @ weight.T + bias).double()
        each = functional.cross_entropy(logits, labels, reduction="none") * weights * counted
        expected = each.sum() / (weights * counted).sum().clamp(min=1e-30)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
        assert correct == ((logits.argmax(1) == labels) & counted & (weights > 0)).sum()
        for found, wanted in zip(
            gradients(loss, states, weight, bias),
            gradients(expected, states, weight, bias),
            strict=True,
        ):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_token_weights_give_the_mean_per_sequence():
    states, weight, bias, labels = problem(tokens=60)
    sequence = torch.arange(60) // 20
    counts = torch.bincount(sequence[labels != -100], minlength=3)
    loss, _ = losses.chunked_cross_entropy(
        states, weight, bias, labels, weights=1 / counts[sequence]
    )
    logits = states @ weight.T + bias
    expected = torch.stack(
        [functional.cross_entropy(logits[sequence == s], labels[sequence == s]) for s in range(3)]
    ).mean()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        gradients(loss, weight), gradients(expected, weight), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("tokens", [0, 70])
def test_without_labels_loss_and_gradients_are_zero(tokens):
    states, weight, bias, labels = problem(tokens, ignored=2)
    loss, correct = losses.chunked_cross_entropy(states, weight, bias, labels)
    assert loss == 0 and correct == 0
    for gradient in gradients(loss, states, weight, bias):
        assert not gradient.any()


def test_without_bias():
    states, weight, _, labels = problem()
    loss, _ = losses.chunked_cross_entropy(states, weight, None, labels)
    expected = functional.cross_entropy(states @ weight.T, labels)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        gradients(loss, weight), gradients(expected, weight), rtol=1e-4, atol=1e-6
    )


def test_gradient_is_scaled_by_what_comes_in_and_may_be_taken_twice():
    states, weight, bias, labels = problem()
    loss, _ = losses.chunked_cross_entropy(states, weight, bias, labels)
    (once,) = torch.autograd.grad(loss, weight, retain_graph=True)
    (scaled,) = torch.autograd.grad(0.25 * loss, weight, retain_graph=True)
    torch.testing.assert_close(scaled, 0.25 * once)
    torch.testing.assert_close(torch.autograd.grad(loss, weight)[0], once)


def test_a_tied_table_used_twice_collects_both_gradients():
    _, weight, bias, labels = problem(tokens=80)
    ids = torch.randint(0, 301, (80,))

    def total(cross_entropy):
        first, second = weight[ids], weight[ids.flip(0)] * 0.5
        return cross_entropy(first) + cross_entropy(second)

    chunked = total(lambda states: losses.chunked_cross_entropy(states, weight, bias, labels)[0])
    full = total(lambda states: functional.cross_entropy(states @ weight.T + bias, labels))
    torch.testing.assert_close(
        gradients(chunked, weight), gradients(full, weight), rtol=1e-4, atol=1e-6
    )


def test_frozen_weights_get_no_gradient_and_evaluation_keeps_none():
    states, weight, bias, labels = problem()
    loss, _ = losses.chunked_cross_entropy(states, weight.detach(), bias.detach(), labels)
    loss.backward()
    assert states.grad is not None
    assert weight.grad is None
    with torch.no_grad():
        assert not losses.chunked_cross_entropy(states, weight, bias, labels)[0].requires_grad


def test_under_autocast_products_are_bf16_and_the_result_is_close():
    states, weight, bias, labels = problem()
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = losses.chunked_cross_entropy(states, weight, bias, labels)
        expected = functional.cross_entropy(functional.linear(states, weight, bias), labels)
    assert loss.dtype == torch.float32
    # products of float32 would be 0.0016 off
    rounded = (states.bfloat16() @ weight.bfloat16().T).float() + bias
    torch.testing.assert_close(loss, functional.cross_entropy(rounded, labels), rtol=0, atol=3e-4)
    for found, wanted in zip(
        gradients(loss, states, weight, bias),
        gradients(expected, states, weight, bias),
        strict=True,
    ):
        assert found.dtype == torch.float32
        assert (found - wanted).norm() < 0.02 * wanted.norm()


def test_large_logits_stay_finite():
    states, weight, bias, labels = problem()
    loss, _ = losses.chunked_cross_entropy(states * 1e4, weight, bias, labels)
    expected = functional.cross_entropy(states * 1e4 @ weight.T + bias, labels)
    torch.testing.assert_close(loss, expected)
    assert torch.isfinite(gradients(loss, states)[0]).all()


@pytest.fixture
def fused(monkeypatch):
    """The GPU's implementation, uncompiled, on a CPU, with several chunks."""
    monkeypatch.setattr(module, "ROWS", 64)
    monkeypatch.setattr(module, "FUSED", CPU)
    monkeypatch.setattr(module, "_compiled", lambda: module.row_gradients)


def test_the_fused_pass_gives_what_the_passes_one_by_one_give(fused, monkeypatch):
    for seed in range(200):
        source = torch.Generator().manual_seed(seed)
        tokens, vocab, hidden = (
            int(torch.randint(1, top, (), generator=source)) for top in (200, 90, 20)
        )
        states, weight, bias, labels = problem(tokens, vocab, hidden, 0.4 * (seed % 3), seed)
        if seed % 5 == 0:  # ties of the highest logit
            weight.data[vocab // 2] = weight.data[0]
            bias.data[vocab // 2] = bias.data[0]
        weights = torch.rand(tokens, generator=source) if seed % 2 else None
        results = []
        for devices in (CPU, ()):
            monkeypatch.setattr(module, "FUSED", devices)
            loss, correct = losses.chunked_cross_entropy(
                states, weight, bias, labels, weights=weights
            )
            results.append((loss, correct, *gradients(loss, states, weight, bias)))
        for by_one, one_by_one in zip(*results, strict=True):
            torch.testing.assert_close(by_one, one_by_one, rtol=1e-5, atol=1e-7)


def test_the_fused_pass_keeps_to_bfloat16_where_the_products_do(fused):
    states, weight, bias, labels = problem(190, 301)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = losses.chunked_cross_entropy(states, weight, bias, labels)
    found = gradients(loss, states, weight, bias)
    expected = functional.cross_entropy(states @ weight.T + bias, labels)
    torch.testing.assert_close(loss, expected, rtol=5e-3, atol=0)
    for slope, wanted in zip(found, gradients(expected, states, weight, bias), strict=True):
        assert (slope - wanted).norm() < 0.01 * wanted.norm()
