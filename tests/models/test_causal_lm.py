"""Causal LMs: where their weights come from, and that padding and cache change no logit."""

import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.models import CausalDecoding, load_causal_lm, new_causal_lm, save_masked_lm
from dr_lib.tokens import special_ids


@pytest.fixture
def small(tiny_bert, tiny_tokenizer):
    return new_causal_lm(tiny_bert(), special_ids(tiny_tokenizer), positions=24, seed=1)


def test_it_has_the_base_models_size_and_words(tiny_bert, small):
    config, base = small.config, tiny_bert()
    assert (config.n_layer, config.n_embd, config.n_head, config.n_positions) == (2, 32, 2, 24)
    assert torch.equal(small.transformer.wte.weight, base.get_input_embeddings().weight)
    assert small.get_output_embeddings().weight is small.transformer.wte.weight


def test_fresh_weights_come_from_the_seed_and_leave_the_global_state(tiny_bert, tiny_tokenizer):
    base, special = tiny_bert(), special_ids(tiny_tokenizer)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, same, other = (new_causal_lm(base, special, seed=seed).transformer.h[0].mlp.c_fc.weight for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_narrow_embeddings_are_not_taken_over(tiny_electra, tiny_tokenizer):
    model = new_causal_lm(tiny_electra, special_ids(tiny_tokenizer), positions=8)
    assert model.transformer.wte.weight.shape == (len(tiny_tokenizer), 32)


def test_cached_logits_of_padded_prompts_are_those_of_each_text_alone(small):
    prompts = torch.tensor([[5, 6, 7, 8], [0, 0, 9, 10], [0, 0, 0, 11]])
    mask, written = (prompts != 0).long(), torch.tensor([[12, 13, 14], [15, 16, 17], [18, 19, 20]])
    with torch.inference_mode():
        decoding = CausalDecoding(small, prompts, mask)
        read = torch.cat([decoding.first[:, None], written], 1)
        cached = torch.stack([decoding.logits(read[:, step]) for step in range(4)], 1)
        alone = [
            small(input_ids=torch.cat([row[row != 0], text])[None]).logits[:, -4:]
            for row, text in zip(prompts, written, strict=True)
        ]
    torch.testing.assert_close(cached, torch.cat(alone), atol=1e-5, rtol=1e-4)


def test_kept_rows_go_on_as_they_were(small):
    prompts = torch.tensor([[5, 6, 7], [0, 9, 10], [0, 0, 11]])
    with torch.inference_mode():
        whole, part = (CausalDecoding(small, prompts, (prompts != 0).long()) for _ in range(2))
        for decoding in (whole, part):
            decoding.logits(decoding.first)
        part.keep(torch.tensor([2, 1]))
        ids = torch.tensor([6, 7, 8])
        torch.testing.assert_close(part.logits(ids[[2, 1]]), whole.logits(ids)[[2, 1]], atol=1e-5, rtol=1e-4)


def test_a_prompt_of_one_token_will_do(small):
    decoding = CausalDecoding(small, torch.tensor([[5], [6]]), torch.ones(2, 1, dtype=torch.int64))
    with torch.inference_mode():
        expected = small(input_ids=torch.tensor([[5], [6]])).logits[:, -1]
        torch.testing.assert_close(decoding.logits(decoding.first), expected)


def test_a_saved_model_is_the_same_and_a_broken_one_is_refused(tmp_path, small, tiny_tokenizer):
    save_masked_lm(small, tiny_tokenizer, tmp_path / "saved")
    again = load_causal_lm(tmp_path / "saved")
    for name, tensor in small.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    (tmp_path / "saved" / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match="saved"):
        load_causal_lm(tmp_path / "saved")
