"""Encoder-decoders made here and public ones in T5's format: weights, cached logits, loading."""

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from dr_lib.errors import InputError
from dr_lib.models import Seq2seqDecoding, load_seq2seq, new_seq2seq, save_masked_lm
from dr_lib.tokens import special_ids


@pytest.fixture
def small(tiny_bert, tiny_tokenizer):
    return new_seq2seq(tiny_bert(), special_ids(tiny_tokenizer))


@pytest.fixture
def t5_folder(tmp_path):
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=40, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0,
        dropout_rate=0.0,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(tmp_path / "t5")
    return tmp_path / "t5"


def read_in(ids: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def test_both_sides_begin_with_the_base_models_weights(tiny_bert, small):
    base = tiny_bert().state_dict()
    for name, tensor in small.decoder.state_dict().items():
        assert ("crossattention" in name) != (name in base), name
        assert name not in base or torch.equal(tensor, base[name]), name
    for name, tensor in small.encoder.state_dict().items():
        assert torch.equal(tensor, base[f"bert.{name}"]), name


def test_cross_attention_begins_as_the_layers_own_attention_and_parts_from_it(small):
    for layer in small.decoder.bert.encoder.layer:
        own, crossing = layer.attention.state_dict(), layer.crossattention.state_dict()
        assert own.keys() == crossing.keys()
        for name, tensor in own.items():
            assert torch.equal(tensor, crossing[name]) and tensor.data_ptr() != crossing[name].data_ptr()


def test_making_one_leaves_the_base_model_and_the_global_random_state(tiny_bert, tiny_tokenizer):
    base = tiny_bert()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model = new_seq2seq(base, special_ids(tiny_tokenizer))
    assert torch.equal(torch.rand(3), expected)
    torch.nn.init.zeros_(model.encoder.embeddings.word_embeddings.weight)
    torch.nn.init.zeros_(model.decoder.bert.embeddings.word_embeddings.weight)
    assert base.get_input_embeddings().weight.any() and not base.config.is_decoder


def test_an_electra_works_as_a_base(tiny_electra, tiny_tokenizer):
    model = new_seq2seq(tiny_electra, special_ids(tiny_tokenizer))
    ids = torch.tensor([[2, 7, 8, 3]])
    assert torch.isfinite(model(**read_in(ids), decoder_input_ids=ids).logits).all()


@pytest.mark.parametrize("kind", ["made here", "t5"])
def test_logits_from_the_cache_are_those_of_the_whole_text(kind, small, t5_folder):
    model = small if kind == "made here" else load_seq2seq(t5_folder)
    passages = torch.tensor([[2, 7, 8, 9, 3], [2, 11, 3, 0, 0]])
    written = torch.tensor([[5, 6, 7], [5, 8, 9], [10, 6, 12], [7, 7, 7]])
    with torch.inference_mode():
        decoding = Seq2seqDecoding(model, read_in(passages), copies=2)
        texts = torch.cat([decoding.first[:, None], written], 1)
        cached = torch.stack([decoding.logits(texts[:, step]) for step in range(3)], 1)
        whole = [
            model(**read_in(passages[row // 2][passages[row // 2] != 0][None]), decoder_input_ids=texts[row, None, :3])
            for row in range(4)
        ]
    torch.testing.assert_close(cached, torch.cat([out.logits for out in whole]), atol=1e-5, rtol=1e-4)


def test_kept_rows_go_on_as_they_were(small):
    passages = torch.tensor([[2, 7, 8, 3], [2, 11, 12, 3], [2, 13, 3, 0]])
    with torch.inference_mode():
        whole, part = Seq2seqDecoding(small, read_in(passages)), Seq2seqDecoding(small, read_in(passages))
        for decoding in (whole, part):
            decoding.logits(decoding.first)
        part.keep(torch.tensor([2, 0]))
        ids = torch.tensor([6, 7, 8])
        torch.testing.assert_close(part.logits(ids[[2, 0]]), whole.logits(ids)[[2, 0]], atol=1e-5, rtol=1e-4)


def test_a_saved_model_writes_the_same(tmp_path, small, tiny_tokenizer):
    save_masked_lm(small, tiny_tokenizer, tmp_path / "saved")
    again, ids = load_seq2seq(tmp_path / "saved"), torch.tensor([[2, 7, 8, 3]])
    with torch.inference_mode():
        first, second = (Seq2seqDecoding(model, read_in(ids)) for model in (small, again))
        assert torch.equal(first.logits(first.first), second.logits(second.first))
    assert again.decoder.config._attn_implementation == "eager"


def test_a_masked_lm_is_no_encoder_decoder(tmp_path, tiny_bert, tiny_tokenizer):
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "bert")
    with pytest.raises(InputError, match="bert"):
        load_seq2seq(tmp_path / "bert")


def test_a_checkpoint_without_a_start_token_is_refused(t5_folder, tmp_path):
    model = T5ForConditionalGeneration.from_pretrained(t5_folder)
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = None
    model.save_pretrained(tmp_path / "bare")
    with pytest.raises(InputError, match="decoder_start_token_id"):
        load_seq2seq(tmp_path / "bare")
