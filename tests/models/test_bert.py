"""Masked LMs on disk, their states, and shortcuts to them, against the library and the full
computation.
"""

import copy
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import BertModel, RobertaConfig, RobertaModel

from dr_lib.errors import InputError
from dr_lib.files import read_json, write_json
from dr_lib.models import (
    CrossEncoder,
    Decoder,
    DenseEncoder,
    EnhancedDecoder,
    bert,
    check_tokenizer,
    embed,
    encode_by_length,
    encode_in_chunks,
    first_states,
    hidden_states,
    layer_states,
    load_causal_lm,
    load_extra,
    load_masked_lm,
    load_seq2seq,
    new_bert,
    position_vectors,
    save_masked_lm,
)
from dr_lib.tokens import load_tokenizer


def test_same_seed_gives_same_weights_and_leaves_the_global_state_alone():
    state = torch.get_rng_state()
    first, again, other = (
        new_bert(64, hidden=32, max_positions=16, seed=seed).state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", ["tiny_bert", "tiny_electra"])
def test_saved_model_comes_back_equal(kind, request, tiny_tokenizer, tmp_path):
    model = request.getfixturevalue(kind)
    model = model(seed=3) if callable(model) and kind == "tiny_bert" else model
    save_masked_lm(model, tiny_tokenizer, tmp_path, {"decoder.weight": torch.arange(3.0)})
    loaded = load_masked_lm(tmp_path)
    expected, found = model.state_dict(), loaded.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert not loaded.training
    assert torch.equal(load_extra(tmp_path)["decoder.weight"], torch.arange(3.0))
    assert not list(tmp_path.glob("*.bin"))


def test_dropout_can_be_set_at_loading(tiny_bert, tiny_tokenizer, tmp_path):
    save_masked_lm(tiny_bert(dropout=0.3), tiny_tokenizer, tmp_path)
    assert load_masked_lm(tmp_path).config.hidden_dropout_prob == pytest.approx(0.3)
    loaded = load_masked_lm(tmp_path, dropout=0.0)
    assert {m.p for m in loaded.modules() if isinstance(m, torch.nn.Dropout)} == {0.0}
    assert load_extra(tmp_path) == {}


def test_checkpoint_without_head_is_refused_by_name(tiny_bert, tiny_tokenizer, tmp_path):
    tiny_bert().base_model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"lacks \d+ weights"):
        load_masked_lm(tmp_path)


@pytest.mark.parametrize("name", ["/nowhere/at/all", "./missing", "no-such-model-anywhere"])
def test_missing_model_is_one_clear_error(name):
    with pytest.raises(InputError, match=name.lstrip("./")):
        load_masked_lm(name)


def test_broken_weights_are_one_clear_error(tiny_bert, tiny_tokenizer, tmp_path):
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-50])
    with pytest.raises(InputError, match="cannot be loaded"):
        load_masked_lm(tmp_path)


def test_unequal_vocabularies_are_refused_with_both_sizes(tiny_bert, tiny_tokenizer):
    check_tokenizer(tiny_bert().config, tiny_tokenizer)
    small = new_bert(64, hidden=32, max_positions=16)
    with pytest.raises(
        InputError, match=rf"generator: vocabulary of 64 .* {len(tiny_tokenizer)} pieces"
    ):
        check_tokenizer(small.config, tiny_tokenizer, role="generator")
    config, pieces = tiny_bert().config, len(tiny_tokenizer)
    config.vocab_size = pieces + 127  # rounded up for speed
    check_tokenizer(config, tiny_tokenizer)
    config.vocab_size = pieces + 128
    with pytest.raises(InputError, match=f"vocabulary of {pieces + 128} "):
        check_tokenizer(config, tiny_tokenizer)


def test_other_padding_id_is_refused(tiny_bert, tiny_tokenizer):
    model = tiny_bert()
    model.config.pad_token_id = 3
    with pytest.raises(InputError, match="padding id 3"):
        check_tokenizer(model.config, tiny_tokenizer)


@pytest.fixture(params=["bert", "electra"])
def model(request, tiny_bert, tiny_electra):
    return tiny_bert(layers=3) if request.param == "bert" else tiny_electra


def test_layer_states_run_from_the_embedding_to_the_last_layer(model, batch):
    with torch.no_grad():
        states = layer_states(model, batch)
        assert len(states) == model.config.num_hidden_layers + 1
        torch.testing.assert_close(states[0], embed(model, batch.input_ids, batch.token_type_ids))
        torch.testing.assert_close(states[-1], hidden_states(model, batch))
        library = model(**batch.model_inputs(), output_hidden_states=True).hidden_states
    real = batch.attention_mask == 1
    assert all(
        torch.allclose(a[real], b[real], atol=1e-6) for a, b in zip(states, library, strict=True)
    )


def test_layer_states_of_a_batch_longer_than_the_model_has_positions_are_refused(model, batch):
    model.config.max_position_embeddings = 16
    with pytest.raises(InputError, match="32 tokens are more than the model's 16 positions"):
        layer_states(model, batch)


def test_position_vectors_are_what_the_embedding_adds_before_its_norm(model, batch):
    base = model.base_model
    with torch.no_grad():
        found = position_vectors(model, 7)
        base.embeddings.LayerNorm, base.embeddings.word_embeddings.weight[:] = (
            torch.nn.Identity(),
            0.0,
        )
        base.embeddings.token_type_embeddings.weight[:] = 0.0
        assert torch.allclose(found, embed(model, batch.input_ids[:1, :7])[0], atol=1e-7)


@pytest.fixture(params=["bert", "electra", "one layer"])
def any_model(request, tiny_bert, tiny_electra):
    if request.param == "electra":
        return tiny_electra
    return tiny_bert(layers=1 if request.param == "one layer" else 3)


def gradients(model, found):
    """Gradient of some function of the states with respect to every weight."""
    model.zero_grad()
    (found * torch.arange(found.numel()).view_as(found)).sum().backward()
    return {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


def test_it_is_the_first_of_all_states(any_model, batch):
    found = first_states(any_model, batch)
    assert found.shape == (len(batch), 32)
    torch.testing.assert_close(found, hidden_states(any_model, batch)[:, 0])


def test_its_gradient_is_that_of_the_whole_layer(any_model, batch):
    found = gradients(any_model, first_states(any_model, batch))
    expected = gradients(any_model, hidden_states(any_model, batch)[:, 0])
    assert found.keys() == expected.keys()
    scale = max(slope.abs().max() for slope in expected.values())
    assert all(
        torch.allclose(found[name], expected[name], atol=1e-6 * scale, rtol=1e-4)
        for name in expected
    )


def test_padding_has_no_say(any_model, batch):
    changed = batch.with_ids(torch.where(batch.attention_mask == 1, batch.input_ids, 7))
    torch.testing.assert_close(first_states(any_model, batch), first_states(any_model, changed))


def test_fused_attention_below_gives_the_same(tiny_bert, batch):
    model, fused = tiny_bert(layers=3), tiny_bert(layers=3)
    fused.set_attn_implementation("sdpa")
    torch.testing.assert_close(first_states(fused, batch), first_states(model, batch))


def test_bfloat16_is_as_near_as_that_of_the_whole_layer(any_model, batch):
    exact = first_states(any_model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        found, whole = first_states(any_model, batch), hidden_states(any_model, batch)[:, 0]
    assert (found - exact).norm() < 1.5 * (whole - exact).norm() + 1e-4


def test_weights_rounded_to_bfloat16_work_too(any_model, batch):
    exact, rounded = first_states(any_model, batch), any_model.to(torch.bfloat16)
    for found in (first_states(rounded, batch), hidden_states(rounded, batch)[:, 0]):
        assert found.dtype == torch.bfloat16
        assert torch.cosine_similarity(found.float(), exact).min() > 0.999


@pytest.mark.parametrize("of", ["", "attention.self.dropout"])
def test_dropout_is_drawn_in_training_only(tiny_bert, batch, of):
    model = tiny_bert(dropout=0.3, layers=1)
    for name, part in model.named_modules():
        if isinstance(part, torch.nn.Dropout) and not name.endswith(of):
            part.p = 0.0
    torch.testing.assert_close(first_states(model, batch), first_states(model, batch))
    model.train()
    assert not torch.allclose(first_states(model, batch), first_states(model, batch))


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
    torch.testing.assert_close(first_states(model, batch), hidden_states(model, batch)[:, 0])


def test_a_batch_longer_than_the_model_has_positions_is_refused(any_model, batch):
    any_model.config.max_position_embeddings = 16
    with pytest.raises(InputError, match="32 tokens are more than the model's 16 positions"):
        first_states(any_model, batch)


class Seen:
    """The first state of each sequence; records the shapes of its calls."""

    def __init__(self, model):
        self.model, self.shapes = model, []

    def __call__(self, batch):
        assert all(
            tensor.shape == batch.input_ids.shape for tensor in (batch.special, batch.word_start)
        )
        self.shapes.append(tuple(batch.input_ids.shape))
        return hidden_states(self.model, batch)[:, 0]


@pytest.fixture
def encode(tiny_bert):
    return Seen(tiny_bert())


@pytest.fixture
def mixed(batch):
    """32 sentences and 32 short texts, alternating."""
    return batch.take(torch.stack([torch.arange(32) % 5, 5 + torch.arange(32) % 2], 1).flatten())


def test_vectors_and_gradient_are_those_of_one_call(encode, mixed):
    found = []
    for way in (encode, lambda batch: encode_by_length(encode, batch)):
        encode.model.zero_grad()
        vectors = way(mixed)
        (vectors * torch.arange(vectors.numel()).view_as(vectors)).sum().backward()
        found.append((vectors, encode.model.bert.embeddings.word_embeddings.weight.grad.clone()))
    torch.testing.assert_close(found[1][0], found[0][0])
    torch.testing.assert_close(
        found[1][1], found[0][1], rtol=1e-4, atol=1e-6 * found[0][1].abs().max().item()
    )


def test_groups_hold_less_padding(encode, mixed):
    encode_by_length(encode, mixed)
    assert [rows for rows, _ in encode.shapes] == [16, 16, 16, 16]
    assert [width for _, width in encode.shapes] == [32, 32, 16, 16]


def test_no_group_is_cut_shorter_than_its_sequences(mixed):
    def told(batch):
        return batch.attention_mask.sum(1, keepdim=True)

    assert torch.equal(encode_by_length(told, mixed), told(mixed))


def test_a_small_batch_stays_whole(encode, mixed):
    encode_by_length(encode, mixed.take(torch.arange(31)))
    assert encode.shapes == [(31, 32)]


def test_a_gpu_sorts_by_lengths_that_the_host_knows(encode, mixed, monkeypatch):
    monkeypatch.setattr(bert, "FEWEST_PRODUCTS", 256 * bert.BASE_PARAMETERS)
    encode.model.to("meta")
    known = replace(mixed, lengths=mixed.attention_mask.sum(1).numpy())
    encode_by_length(encode, known.to("meta"))
    assert encode.shapes == [(16, 32), (16, 32), (16, 16), (16, 16)]
    encode.shapes.clear()
    encode_by_length(encode, mixed.to("meta"))
    assert encode.shapes == [(64, 32)]  # nothing waits for the lengths
    encode.shapes.clear()
    monkeypatch.setattr(bert, "FEWEST_PRODUCTS", 1025 * bert.BASE_PARAMETERS)
    encode_by_length(encode, known.to("meta"))
    assert encode.shapes == [(64, 32)]  # too few positions to fill two groups


def test_lengths_follow_their_sequences(mixed):
    mixed = replace(mixed, lengths=mixed.attention_mask.sum(1).numpy())
    index = torch.randint(0, 64, (40,), generator=torch.Generator().manual_seed(0))
    for part in (mixed.take(index), mixed.cut(7), mixed.take(index).cut(9)):
        assert np.array_equal(part.lengths, part.attention_mask.sum(1))
    assert mixed.to("meta").take(index.to("meta")).lengths is None

    def lengths(part):
        return torch.from_numpy(part.lengths[:, None].copy()).float() + 0 * part.input_ids[:, :1]

    assert torch.equal(encode_in_chunks(lengths, mixed, 7)[:, 0], lengths(mixed)[:, 0])


def test_values_are_cut_too(mixed):
    values = torch.rand(mixed.input_ids.shape)
    cut = mixed.cut(8)
    assert cut.values is None and cut.rows.shape == mixed.rows.shape
    valued = type(mixed)(**{**vars(mixed), "values": values}).cut(8)
    assert torch.equal(valued.values, values[:, :8])


EVIL = "import pathlib\npathlib.Path({place!r}).write_text('ran')\n"


@pytest.mark.parametrize(
    "opens",
    [
        load_masked_lm,
        load_causal_lm,
        load_seq2seq,
        load_tokenizer,
        DenseEncoder.from_pretrained,
        CrossEncoder.from_pretrained,
    ],
)
def test_a_folder_that_brings_code_of_its_own_never_runs_it(
    opens, tiny_bert, tiny_tokenizer, tmp_path, monkeypatch
):
    folder, proof = tmp_path / "model", tmp_path / "proof"
    save_masked_lm(tiny_bert(), tiny_tokenizer, folder)
    (folder / "evil.py").write_text(EVIL.format(place=str(proof)))
    names = (
        "AutoConfig",
        "AutoModel",
        "AutoModelForMaskedLM",
        "AutoModelForCausalLM",
        "AutoModelForSeq2SeqLM",
    )
    config = read_json(folder / "config.json") | {
        "model_type": "evil",
        "auto_map": dict.fromkeys(names, "evil.Evil"),
    }
    write_json(folder / "config.json", config)
    told = {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}
    write_json(folder / "tokenizer_config.json", told)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\ny\ny\n"))
    with pytest.raises(InputError):
        opens(folder)
    assert not proof.exists()


def test_norms_on_a_gpu_keep_states_in_bfloat16(batch, monkeypatch):
    """States and gradients of twelve layers are about as close to float32 as those of autocast
    alone, and in float32 they are equal.
    """
    layer_norm = torch.nn.functional.layer_norm

    def of_cuda(states, shape, weight, bias, eps):  # sums in float32, and autocast gives float32
        dtype = torch.float32 if torch.is_autocast_enabled("cpu") else states.dtype
        given = (part.float() for part in (states, weight, bias))
        states, weight, bias = given
        return layer_norm(states, shape, weight, bias, eps).to(dtype)

    monkeypatch.setattr(torch.nn.functional, "layer_norm", of_cuda)
    found, kinds = {}, set()
    for devices in ((), ("cpu",)):
        monkeypatch.setattr(bert, "HALVED", devices)
        for halved in (False, True):
            model = bert.new_bert(300, layers=12, hidden=64, seed=1)
            with torch.no_grad():  # as far apart as trained weights have states
                for weight in model.parameters():
                    weight.mul_(4 if weight.ndim > 1 else 1)
            layer = bert.layers_of(model)[5]
            layer.register_forward_hook(lambda _, __, states: kinds.add(states.dtype))
            with torch.autocast("cpu", torch.bfloat16, enabled=halved):
                states = hidden_states(model, batch)
                loss = bert.lm_head(model).transform(states).float()[..., ::3].square().mean()
            assert states.dtype == torch.float32
            loss.backward()
            slopes = [part.grad.flatten() for part in model.parameters() if part.grad is not None]
            found[devices, halved] = states.detach(), torch.cat(slopes)
    assert kinds == {torch.float32, torch.bfloat16}
    for whole, same, autocast, half in zip(
        *(found[devices, halved] for halved in (False, True) for devices in ((), ("cpu",))),
        strict=True,
    ):
        assert torch.equal(whole, same)
        apart, half_apart = ((part - whole).norm() / whole.norm() for part in (autocast, half))
        assert 0.5 * apart < half_apart < 2 * apart < 0.1


def test_the_last_norm_is_whole_in_copies_too(tiny_bert):
    model = bert.half_norms(tiny_bert())
    for copied in (model, copy.deepcopy(model)):
        last = bert.layers_of(copied)[-1]
        assert type(last.output.LayerNorm) is torch.nn.LayerNorm
        assert isinstance(last.attention.output.LayerNorm, bert.HalfNorm)
        assert isinstance(copied.bert.embeddings.LayerNorm, bert.HalfNorm)
    assert model.state_dict().keys() == tiny_bert().state_dict().keys()


def test_a_decoder_has_no_whole_norm(tiny_bert):
    """Its states go to a head, which casts them."""
    model = bert.half_norms(tiny_bert())
    for decoder in (Decoder(model, 1), Decoder(model, 1, "random"), EnhancedDecoder(model)):
        norms = [part for part in decoder.modules() if isinstance(part, torch.nn.LayerNorm)]
        assert norms and all(isinstance(part, bert.HalfNorm) for part in norms)
    assert type(bert.layers_of(model)[-1].output.LayerNorm) is torch.nn.LayerNorm
