"""The cross-encoder: scores of the library's own classifier, saved and opened with it, settings
kept.
"""

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertForSequenceClassification

from dr_lib.errors import InputError
from dr_lib.models import CrossEncoder, save_masked_lm


@pytest.fixture
def place(tmp_path, tiny_bert, tiny_tokenizer):
    save_masked_lm(tiny_bert(dropout=0.1), tiny_tokenizer, tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def batch(make_token_batch):
    ids = np.array([[2, 11, 12, 3, 20, 21, 3, 0], [2, 13, 3, 30, 3, 0, 0, 0]])
    batch = make_token_batch(ids, np.arange(2))
    batch.token_type_ids[0, 4:7] = 1
    return batch


def test_scores_are_the_logits_of_the_classifier(place, batch):
    encoder = CrossEncoder.from_pretrained(place, length=32)
    assert (
        isinstance(encoder.encoder, BertForSequenceClassification)
        and encoder.encoder.num_labels == 1
    )
    found = encoder(batch)
    expected = encoder.encoder(**batch.model_inputs()).logits[:, 0]
    assert found.shape == (2,) and found.dtype == torch.float32
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["bert", "electra"])
def test_scores_of_bf16_states_are_told_apart_in_float32(
    kind, place, make_token_batch, tiny_electra, tiny_tokenizer
):
    """In bf16 some hundred scores of one size have a few dozen values, and ties decide what is
    first.
    """
    if kind == "electra":
        save_masked_lm(tiny_electra, tiny_tokenizer, place)
    encoder = CrossEncoder.from_pretrained(place, length=32)
    ids = np.random.default_rng(0).integers(10, 40, (300, 8))
    ids[:, 0], ids[:, -1] = 2, 3
    with torch.no_grad():
        exact = encoder(make_token_batch(ids, np.arange(300)))
        with torch.autocast("cpu", torch.bfloat16):
            scores = encoder(make_token_batch(ids, np.arange(300)))
    assert 0 < (scores - exact).abs().max() < 0.05  # the layers below the head were in bf16
    assert scores.dtype == torch.float32 and len(scores.unique()) > 290


def test_it_starts_from_the_encoder_of_a_masked_lm_with_a_head_of_its_seed(place, tiny_bert):
    first, again, other = (
        CrossEncoder.from_pretrained(place, length=32, seed=seed).encoder for seed in (1, 1, 2)
    )
    base = tiny_bert().bert.state_dict()
    assert all(torch.equal(first.bert.state_dict()[name], weight) for name, weight in base.items())
    assert torch.equal(first.classifier.weight, again.classifier.weight)
    assert torch.equal(first.bert.pooler.dense.weight, again.bert.pooler.dense.weight)
    assert not torch.equal(first.classifier.weight, other.classifier.weight)


def test_the_global_random_state_is_left_alone(place):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    CrossEncoder.from_pretrained(place, length=32)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("kind", ["bert", "electra"])
def test_a_saved_one_opens_here_and_in_transformers(
    kind, place, batch, tiny_electra, tiny_tokenizer, tmp_path
):
    if kind == "electra":
        save_masked_lm(tiny_electra, tiny_tokenizer, place)
    encoder = CrossEncoder.from_pretrained(place, length=32, title=False, dropout=0.0)
    encoder.save(tmp_path / "saved")
    again = CrossEncoder.from_pretrained(tmp_path / "saved")
    assert again.settings == encoder.settings and again.settings.length == 32
    torch.testing.assert_close(again(batch), encoder(batch))
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    torch.testing.assert_close(plain(**batch.model_inputs()).logits[:, 0], encoder(batch))


def test_what_contradicts_the_saved_settings_is_refused(place, tmp_path):
    CrossEncoder.from_pretrained(place, length=32).save(tmp_path / "saved")
    with pytest.raises(InputError, match="trained with 32, asked for 40"):
        CrossEncoder.from_pretrained(tmp_path / "saved", length=40)
    with pytest.raises(InputError, match="Valid keys here: length, title"):
        CrossEncoder.from_pretrained(place, longest=40)


def test_a_saved_one_that_lost_its_head_is_refused(place, tiny_bert, tiny_tokenizer, tmp_path):
    CrossEncoder.from_pretrained(place, length=32).save(tmp_path / "saved")
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "saved")
    with pytest.raises(InputError, match="lacks 4 weights"):
        CrossEncoder.from_pretrained(tmp_path / "saved")
    with pytest.raises(InputError, match=r"config\.json is missing"):
        CrossEncoder.from_pretrained(tmp_path / "nowhere")


def test_dropout_is_that_asked_for(place, batch):
    none, some = (
        CrossEncoder.from_pretrained(place, length=32, dropout=rate).train() for rate in (0.0, 0.5)
    )
    torch.testing.assert_close(none(batch), none(batch))
    assert not torch.allclose(some(batch), some(batch))
