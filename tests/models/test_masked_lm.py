"""Masked LMs: fresh, saved, loaded, refused."""

import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.models import check_generator, check_tokenizer, load_extra, load_masked_lm, new_bert, save_masked_lm


def test_same_seed_gives_same_weights_and_leaves_the_global_state_alone():
    state = torch.get_rng_state()
    first, again, other = (new_bert(64, hidden=32, max_positions=16, seed=seed).state_dict() for seed in (1, 1, 2))
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
    check_tokenizer(tiny_bert(), tiny_tokenizer)
    small = new_bert(64, hidden=32, max_positions=16)
    with pytest.raises(InputError, match=rf"generator: vocabulary of 64 .* {len(tiny_tokenizer)} pieces"):
        check_tokenizer(small, tiny_tokenizer, role="generator")
    with pytest.raises(InputError, match=rf"vocabulary of 64 .* {len(tiny_tokenizer)}"):
        check_generator(small, tiny_bert())


def test_other_padding_id_is_refused(tiny_bert, tiny_tokenizer):
    model = tiny_bert()
    model.config.pad_token_id = 3
    with pytest.raises(InputError, match="padding id 3"):
        check_tokenizer(model, tiny_tokenizer)
