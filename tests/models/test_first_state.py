"""The state of the first position, computed without the rest of the last layer."""

import pytest
import torch
from transformers import BertModel, RobertaConfig, RobertaModel

from dr_lib.errors import InputError
from dr_lib.models import first_states, hidden_states


@pytest.fixture(params=["bert", "electra", "one layer"])
def model(request, tiny_bert, tiny_electra):
    if request.param == "electra":
        return tiny_electra
    return tiny_bert(layers=1 if request.param == "one layer" else 3)


def gradients(model, found):
    """Gradient of every weight that some function of the states has."""
    model.zero_grad()
    (found * torch.arange(found.numel()).view_as(found)).sum().backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def test_it_is_the_first_of_all_states(model, batch):
    found = first_states(model, batch)
    assert found.shape == (len(batch), 32)
    torch.testing.assert_close(found, hidden_states(model, batch)[:, 0])


def test_its_gradient_is_that_of_the_whole_layer(model, batch):
    found = gradients(model, first_states(model, batch))
    expected = gradients(model, hidden_states(model, batch)[:, 0])
    assert found.keys() == expected.keys()
    scale = max(slope.abs().max() for slope in expected.values())
    assert all(torch.allclose(found[name], expected[name], atol=1e-6 * scale, rtol=1e-4) for name in expected)


def test_padding_has_no_say(model, batch):
    changed = batch.with_ids(torch.where(batch.attention_mask == 1, batch.input_ids, 7))
    assert torch.equal(first_states(model, batch), first_states(model, changed))


def test_fused_attention_below_gives_the_same(tiny_bert, batch):
    model, fused = tiny_bert(layers=3), tiny_bert(layers=3)
    fused.set_attn_implementation("sdpa")
    torch.testing.assert_close(first_states(fused, batch), first_states(model, batch))


def test_bfloat16_is_as_near_as_that_of_the_whole_layer(model, batch):
    exact = first_states(model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        found, whole = first_states(model, batch), hidden_states(model, batch)[:, 0]
    assert (found - exact).norm() < 1.5 * (whole - exact).norm() + 1e-4


def test_weights_rounded_to_bfloat16_work_too(model, batch):
    exact, rounded = first_states(model, batch), model.to(torch.bfloat16)
    for found in (first_states(rounded, batch), hidden_states(rounded, batch)[:, 0]):
        assert found.dtype == torch.bfloat16
        assert torch.cosine_similarity(found.float(), exact).min() > 0.999


def test_dropout_is_drawn_in_training_only(tiny_bert, batch):
    model = tiny_bert(dropout=0.3)
    assert torch.equal(first_states(model, batch), first_states(model, batch))
    model.train()
    assert not torch.equal(first_states(model, batch), first_states(model, batch))


def test_dropout_is_that_of_the_whole_layer_on_average(tiny_bert, batch):
    torch.manual_seed(0)
    model, rows = tiny_bert(dropout=0.2).train(), batch.take(torch.zeros(4000, dtype=torch.int64))
    with torch.no_grad():
        ways = first_states(model, rows), hidden_states(model, rows)[:, 0]
    (mean, spread), (other, width) = ((states.mean(0), states.std(0)) for states in ways)
    assert (mean - other).abs().max() < 6 * width.max() / 4000**0.5
    torch.testing.assert_close(spread, width, rtol=0.1, atol=0)


def test_a_model_of_another_kind_computes_the_whole_layer(tiny_tokenizer, batch):
    config = RobertaConfig(
        vocab_size=len(tiny_tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64, type_vocab_size=2, pad_token_id=0,
    )  # fmt: skip
    model = RobertaModel(config).eval()
    assert not isinstance(model, BertModel)
    assert torch.equal(first_states(model, batch), hidden_states(model, batch)[:, 0])


def test_a_batch_longer_than_the_model_has_positions_is_refused(model, batch):
    model.config.max_position_embeddings = 16
    with pytest.raises(InputError, match="32 tokens are more than the model's 16 positions"):
        first_states(model, batch)
