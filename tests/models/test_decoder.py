"""The bottleneck decoder, the head and the states it is made of."""

import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.models import Decoder, attention_bias, embed, hidden_states, lm_head


@pytest.fixture(params=["bert", "electra"])
def model(request, tiny_bert, tiny_electra):
    return tiny_bert() if request.param == "bert" else tiny_electra


def test_head_taken_apart_gives_the_models_own_logits(model, batch):
    with torch.no_grad():
        expected = model(**batch.model_inputs()).logits
        head = lm_head(model)
        found = head.transform(hidden_states(model, batch)) @ head.weight.T + head.bias
    assert torch.allclose(found[batch.attention_mask == 1], expected[batch.attention_mask == 1], atol=1e-5)
    assert head.weight is model.get_input_embeddings().weight


def test_unknown_head_is_refused(tiny_bert):
    with pytest.raises(InputError, match="unknown kind"):
        lm_head(tiny_bert().base_model)


def test_padding_changes_no_state_of_a_real_token(model, batch):
    length = int(batch.attention_mask[5].sum())
    with torch.no_grad():
        states = hidden_states(model, batch)
        alone = model.base_model(batch.input_ids[5:6, :length], token_type_ids=batch.token_type_ids[5:6, :length])
        again = hidden_states(model, batch.with_ids(batch.input_ids.masked_fill(batch.attention_mask == 0, 7)))
    real = batch.attention_mask == 1
    assert torch.allclose(states[real], again[real], atol=1e-6)
    assert torch.allclose(states[5, :length], alone.last_hidden_state[0], atol=1e-6)


def test_batch_longer_than_the_model_has_positions_is_refused(model, batch):
    model.config.max_position_embeddings = 16
    with pytest.raises(InputError, match="32 tokens are more than the model's 16 positions"):
        hidden_states(model, batch)


def test_decoder_is_the_last_layers_over_embeddings_with_the_bottleneck_first(model, batch):
    decoder, bottleneck = Decoder(model, layers=2), torch.randn(len(batch), 32)
    with torch.no_grad():
        embedded = embed(model, batch.input_ids, batch.token_type_ids)
        found = decoder(embedded, bottleneck, batch)
        states = embedded.clone()
        states[:, 0] = bottleneck
        for layer in model.base_model.encoder.layer:
            states = layer(states, attention_bias(batch))
    assert torch.equal(found, states)


def test_all_layers_and_clean_first_state_give_the_encoder_itself(model, batch):
    with torch.no_grad():
        embedded = embed(model, batch.input_ids, batch.token_type_ids)
        found = Decoder(model, layers=2)(embedded, embedded[:, 0], batch)
        expected = hidden_states(model, batch)
    assert torch.allclose(found, expected, atol=1e-6)


def test_position_zero_of_the_ids_never_reaches_the_decoder(model, batch):
    decoder, bottleneck = Decoder(model, layers=1), torch.randn(len(batch), 32)
    other = batch.input_ids.clone()
    other[:, 0] = 9
    with torch.no_grad():
        first, second = (decoder(embed(model, ids), bottleneck, batch) for ids in (batch.input_ids, other))
    assert torch.equal(first, second)


def test_copied_layers_are_the_last_ones_and_trained_apart(tiny_bert):
    model = tiny_bert(layers=3)
    decoder = Decoder(model, layers=2)
    for copied, original in zip(decoder.layers, model.bert.encoder.layer[1:], strict=True):
        for (name, ours), theirs in zip(copied.named_parameters(), original.parameters(), strict=True):
            assert torch.equal(ours, theirs) and ours is not theirs, name


def test_random_layers_follow_their_seed_and_have_small_weights(tiny_bert):
    model = tiny_bert()
    first, again, other = (Decoder(model, 2, "random", True, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    name = "layers.0.intermediate.dense.weight"
    assert not torch.equal(first[name], other[name])
    assert first[name].std() == pytest.approx(0.02, rel=0.1)
    assert first["projection.weight"].std() == pytest.approx(0.02, rel=0.1)
    assert not first["projection.bias"].any()


def test_more_layers_than_the_encoder_has_are_refused(tiny_bert):
    with pytest.raises(InputError, match=r"3 decoder layers .* encoder of 2"):
        Decoder(tiny_bert(), layers=3)


def test_the_error_names_the_methods_own_parameter(tiny_bert):
    with pytest.raises(InputError, match=r"head_layers: 3 decoder layers"):
        Decoder(tiny_bert(), 3, "random", key="head_layers")
