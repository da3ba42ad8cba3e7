"""Decoders behind the bottleneck, against layers taken apart by hand; ELECTRA's head."""

import numpy as np
import pytest
import torch
from scipy.special import erf
from torch import nn
from transformers import DistilBertConfig, DistilBertForMaskedLM

from dr_lib.errors import InputError
from dr_lib.models import Decoder, EnhancedDecoder, ReplacedTokenHead, embed, hidden_states, lm_head
from dr_lib.models.bert import attention_bias


@pytest.fixture(params=["bert", "electra"])
def model(request, tiny_bert, tiny_electra):
    return tiny_bert() if request.param == "bert" else tiny_electra


def test_head_taken_apart_gives_the_models_own_logits(model, batch):
    with torch.no_grad():
        expected = model(**batch.model_inputs()).logits
        head = lm_head(model)
        found = head.transform(hidden_states(model, batch)) @ head.weight.T + head.bias
    assert torch.allclose(
        found[batch.attention_mask == 1], expected[batch.attention_mask == 1], atol=1e-5
    )
    assert head.weight is model.get_input_embeddings().weight


def test_unknown_head_is_refused(tiny_bert):
    with pytest.raises(InputError, match="unknown kind"):
        lm_head(tiny_bert().base_model)


def test_layers_of_another_kind_are_refused(tiny_tokenizer):
    config = DistilBertConfig(
        vocab_size=len(tiny_tokenizer), dim=32, n_layers=1, n_heads=2, hidden_dim=64
    )
    for decoder in (Decoder, EnhancedDecoder):
        with pytest.raises(InputError, match="layers of an unknown kind"):
            decoder(DistilBertForMaskedLM(config), 1)


def test_padding_changes_no_state_of_a_real_token(model, batch):
    length = int(batch.attention_mask[5].sum())
    with torch.no_grad():
        states = hidden_states(model, batch)
        alone = model.base_model(
            batch.input_ids[5:6, :length], token_type_ids=batch.token_type_ids[5:6, :length]
        )
        again = hidden_states(
            model, batch.with_ids(batch.input_ids.masked_fill(batch.attention_mask == 0, 7))
        )
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
    torch.testing.assert_close(found, states)


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
        first, second = (
            decoder(embed(model, ids), bottleneck, batch) for ids in (batch.input_ids, other)
        )
    torch.testing.assert_close(first, second)


def test_copied_layers_are_the_last_ones_and_trained_apart(tiny_bert):
    model = tiny_bert(layers=3)
    decoder = Decoder(model, layers=2)
    for copied, original in zip(decoder.layers, model.bert.encoder.layer[1:], strict=True):
        for (name, ours), theirs in zip(
            copied.named_parameters(), original.parameters(), strict=True
        ):
            assert torch.equal(ours, theirs) and ours is not theirs, name


def test_random_layers_follow_their_seed_and_have_small_weights(tiny_bert):
    model = tiny_bert()
    first, again, other = (
        Decoder(model, 2, "random", True, seed=seed).state_dict() for seed in (1, 1, 2)
    )
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


@pytest.fixture
def decoder(tiny_bert) -> EnhancedDecoder:
    return EnhancedDecoder(tiny_bert(), seed=3).eval()


@pytest.fixture
def streams() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, contents, and a mask under which every row sees something."""
    source = torch.Generator().manual_seed(0)
    queries, contents = (torch.randn(3, 6, 32, generator=source) for _ in range(2))
    unseen = torch.rand(3, 6, 6, generator=source) < 0.5
    unseen[:, :, 5] = False
    return queries, contents, unseen


def test_states_are_those_of_the_formula(decoder, streams):
    queries, contents, unseen = streams
    layer = decoder.layer
    q, k, v = (
        linear(x).view(3, 6, 2, 16)
        for linear, x in zip(
            (layer.attention.self.query, layer.attention.self.key, layer.attention.self.value),
            (queries, contents, contents), strict=True,
        )
    )  # fmt: skip
    mixed = torch.zeros(3, 6, 2, 16)
    for passage in range(3):
        for row in range(6):
            seen = (~unseen[passage, row]).nonzero()[:, 0]
            for head in range(2):
                weights = torch.softmax(k[passage, seen, head] @ q[passage, row, head] / 4.0, dim=0)
                mixed[passage, row, head] = weights @ v[passage, seen, head]
    after = layer.attention.output
    attended = after.LayerNorm(after.dense(mixed.flatten(2)) + queries)
    inner = nn.functional.gelu(layer.intermediate.dense(attended))
    expected = layer.output.LayerNorm(layer.output.dense(inner) + attended)
    assert torch.allclose(decoder(queries, contents, unseen), expected, atol=1e-5)


def test_one_stream_and_nothing_unseen_but_padding_is_the_layer_itself(decoder, batch):
    states = torch.randn(*batch.input_ids.shape, 32)
    padding = (batch.attention_mask == 0)[:, None].expand(-1, states.shape[1], -1)
    expected = decoder.layer(states, attention_bias(batch))
    assert torch.allclose(decoder(states, states, padding), expected, atol=1e-5)


def test_a_row_knows_nothing_of_the_columns_it_does_not_see(decoder, streams):
    queries, contents, unseen = streams
    changed = contents.clone()
    changed[:, 2] += 1.0
    first, second = decoder(queries, contents, unseen), decoder(queries, changed, unseen)
    same = (first - second).abs().amax(-1) < 1e-6
    assert torch.equal(same, unseen[:, :, 2])


def test_the_query_stream_is_the_residual(decoder, streams):
    queries, contents, unseen = streams
    for linear in (decoder.layer.attention.output.dense, decoder.layer.output.dense):
        nn.init.zeros_(linear.weight)
    expected = nn.functional.layer_norm(
        nn.functional.layer_norm(queries, [32], eps=1e-12), [32], eps=1e-12
    )
    assert torch.allclose(decoder(queries, contents, unseen), expected, atol=1e-5)


def test_dropout_of_attention_follows_the_mode(tiny_bert, streams):
    decoder = EnhancedDecoder(tiny_bert(dropout=0.5))
    for output in (decoder.layer.attention.output, decoder.layer.output):
        output.dropout.p = 0.0
    torch.testing.assert_close(decoder.eval()(*streams), decoder(*streams))
    assert not torch.allclose(decoder.train()(*streams), decoder(*streams))


def test_weights_follow_their_seed_are_small_and_its_own(tiny_bert):
    model = tiny_bert()
    first, again, other = (EnhancedDecoder(model, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    name = "layer.intermediate.dense.weight"
    assert not torch.equal(first[name], other[name])
    assert first[name].std() == pytest.approx(0.02, rel=0.1)
    assert not torch.equal(first[name], model.bert.encoder.layer[-1].intermediate.dense.weight)


def test_logits_are_those_of_the_formula():
    head = ReplacedTokenHead(6, seed=1).requires_grad_(False)
    for weight in head.parameters():
        weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(2)))
    states = torch.randn(2, 3, 6)
    inner = states.numpy() @ head.dense.weight.numpy().T + head.dense.bias.numpy()
    inner = inner * 0.5 * (1 + erf(inner / np.sqrt(2)))
    expected = inner @ head.replaced.weight.numpy()[0] + head.replaced.bias.numpy()
    assert np.allclose(head(states).numpy(), expected, atol=1e-5)


def test_weights_follow_their_seed_are_small_and_leave_the_global_state_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, again, other = (ReplacedTokenHead(64, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["dense.weight"], other["dense.weight"])
    assert first["dense.weight"].std() == pytest.approx(0.02, rel=0.1)
    assert not first["dense.bias"].any() and not first["replaced.bias"].any()
