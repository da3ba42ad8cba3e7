"""The dense encoder: pooling, saving, loading, refusing."""

import json
import shutil
import warnings

import datasets
import numpy as np
import pytest
import torch

from dr_book.export import save_for_others
from dr_lib.errors import InputError
from dr_lib.files import read_json, write_json
from dr_lib.models import (
    DenseEncoder,
    Prompts,
    SentenceEncoder,
    hidden_states,
    open_encoder,
    save_masked_lm,
)
from dr_lib.tokens import TokenStore


@pytest.fixture(params=["bert", "electra"])
def saved_lm(request, tiny_bert, tiny_electra, tiny_tokenizer, tmp_path):
    model = tiny_bert() if request.param == "bert" else tiny_electra
    save_masked_lm(model, tiny_tokenizer, tmp_path / "lm")
    return model, tmp_path / "lm"


def test_masked_lm_becomes_an_encoder_without_its_head_and_without_noise(saved_lm, batch, capfd):
    model, folder = saved_lm
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder = DenseEncoder.from_pretrained(folder)
    assert capfd.readouterr() == ("", "")
    with torch.no_grad():
        torch.testing.assert_close(encoder(batch), hidden_states(model, batch)[:, 0])
    assert not any("cls" in name or "generator" in name for name in encoder.state_dict())


def test_mean_pooling_ignores_padding(saved_lm, batch):
    model, folder = saved_lm
    with torch.no_grad():
        vectors = DenseEncoder.from_pretrained(folder, pooling="mean")(batch)
        states = hidden_states(model, batch)
    for row, length in enumerate(batch.attention_mask.sum(1).tolist()):
        assert torch.allclose(vectors[row], states[row, :length].mean(0), atol=1e-6)


def test_saved_encoder_comes_back_equal_with_its_settings(saved_lm, batch, tmp_path):
    _, folder = saved_lm
    encoder = DenseEncoder.from_pretrained(
        folder, pooling="mean", normalise=False, temperature=1.0, passage_length=64
    )
    encoder.save(tmp_path / "dense")
    loaded = DenseEncoder.from_pretrained(tmp_path / "dense")
    assert loaded.settings == encoder.settings
    assert json.loads((tmp_path / "dense" / "dense.json").read_text())["passage_length"] == 64
    with torch.no_grad():
        torch.testing.assert_close(loaded(batch), encoder(batch))
    assert len(loaded.tokenizer) == len(encoder.tokenizer)


def test_contradicting_the_saved_settings_is_refused(saved_lm, tmp_path):
    DenseEncoder.from_pretrained(saved_lm[1], title="pair").save(tmp_path / "dense")
    assert DenseEncoder.from_pretrained(tmp_path / "dense", title="pair").settings.title == "pair"
    with pytest.raises(
        InputError, match=r"dense.json: title: trained with 'pair', asked for 'joined'"
    ):
        DenseEncoder.from_pretrained(tmp_path / "dense", title="joined")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pool": "cls"}, "pool: unknown key. Valid keys here: .*pooling"),
        ({"pooling": "max"}, "pooling: "),
    ],
)
def test_wrong_setting_is_named_with_the_valid_ones(
    tiny_bert, tiny_tokenizer, tmp_path, values, message
):
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path)
    with pytest.raises(InputError, match=message):
        DenseEncoder.from_pretrained(tmp_path, **values)


@pytest.mark.parametrize("text", ["[1]", "{", '{"pooling": 3}'])
def test_altered_settings_file_is_one_clear_error(tiny_bert, tiny_tokenizer, tmp_path, text):
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path)
    (tmp_path / "dense.json").write_text(text)
    with pytest.raises(InputError, match=r"dense\.json"):
        DenseEncoder.from_pretrained(tmp_path)


def test_encoder_without_any_head_can_start_too(tiny_bert, tiny_tokenizer, batch, tmp_path):
    model = tiny_bert()
    model.base_model.save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    with torch.no_grad():
        vectors = DenseEncoder.from_pretrained(tmp_path)(batch)
        torch.testing.assert_close(vectors, hidden_states(model, batch)[:, 0])


def test_a_projection_is_applied_saved_and_loaded(saved_lm, batch, tmp_path):
    plain = DenseEncoder.from_pretrained(saved_lm[1])
    encoder = DenseEncoder.from_pretrained(saved_lm[1], projection=True, seed=3)
    with torch.no_grad():
        encoder.projection.norm.bias += 0.1
        linear = plain(batch) @ encoder.projection.linear.weight.T + encoder.projection.linear.bias
        spread = linear.var(1, unbiased=False, keepdim=True)
        expected = (linear - linear.mean(1, keepdim=True)) / (spread + 1e-5).sqrt() + 0.1
        found = encoder(batch)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    encoder.save(tmp_path / "dense")
    loaded = DenseEncoder.from_pretrained(tmp_path / "dense", seed=9)
    with torch.no_grad():
        torch.testing.assert_close(loaded(batch), found)


def test_an_encoder_without_projection_saves_no_further_weights(saved_lm, tmp_path):
    encoder = DenseEncoder.from_pretrained(saved_lm[1])
    encoder.save(tmp_path / "dense")
    assert not any("projection" in name for name in encoder.state_dict())
    assert [path.name for path in (tmp_path / "dense").glob("*.safetensors")] == [
        "model.safetensors"
    ]


@pytest.mark.parametrize(
    "values", [{}, {"pooling": "mean", "normalise": False}, {"title": "joined"}]
)
def test_texts_are_encoded_as_their_batches_are(saved_lm, sentences, tmp_path, values):
    encoder = DenseEncoder.from_pretrained(
        saved_lm[1], passage_length=24, query_length=8, **values
    ).train()
    titles = ["bottleneck", "", "negatives", "new york", ""][: len(sentences)]
    rows = datasets.Dataset.from_dict({"title": titles, "text": sentences})
    store = TokenStore.build(rows, encoder.tokenizer, tmp_path / "tokens")
    whole = np.arange(len(sentences))
    for queries, layout in ((False, encoder.settings.passages), (True, encoder.settings.queries)):
        with torch.no_grad():
            expected = encoder.eval()(store.batch(whole, **layout))
        if encoder.settings.normalise:
            expected = torch.nn.functional.normalize(expected)
        found = encoder.train().encode(sentences, None if queries else titles, queries=queries)
        assert encoder.training and found.dtype == np.float32
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    encoder.eval().encode(sentences)
    assert not encoder.training


def test_any_encoder_opens_by_its_folder(saved_lm, sentences, tmp_path):
    ours = DenseEncoder.from_pretrained(
        saved_lm[1], pooling="mean", passage_length=24, title="none"
    )
    save_for_others(ours, tmp_path / "ours")
    assert isinstance(open_encoder(tmp_path / "ours"), DenseEncoder)
    theirs = shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    (theirs / "dense.json").unlink()
    found = open_encoder(theirs)
    assert isinstance(found, SentenceEncoder)
    np.testing.assert_allclose(found.encode(sentences), ours.encode(sentences), atol=1e-5)
    for encoder in (ours, found):  # as a table has them where a cell is empty
        for missing in (None, float("nan")):
            with pytest.raises(InputError, match=r"texts\[1\]: (None|nan) is not a text"):
                encoder.encode(["words", missing])
            with pytest.raises(InputError, match=r"titles\[0\]"):
                encoder.encode(["words"], [missing])
        with pytest.raises(InputError, match=r"titles\[1\]: holds half a surrogate pair"):
            encoder.encode(["words", "emoji"], ["", "\ud83d"])
        assert encoder.encode([]).shape == (0, ours.encode(["words"]).shape[1])
    told = read_json(theirs / "config_sentence_transformers.json") | {
        "prompts": {"query": "masked ", "document": ""}
    }
    write_json(theirs / "config_sentence_transformers.json", told)
    # its own prompt precedes a query
    asked = open_encoder(theirs).encode(["words"], queries=True)
    np.testing.assert_allclose(asked, ours.encode(["masked words"]), atol=1e-5)
    for name in ("passage", "corpus"):  # the library's `encode_document` passes over these names
        told["prompts"] = {"query": "masked ", name: "two "}
        write_json(theirs / "config_sentence_transformers.json", told)
        asked = open_encoder(theirs).encode(["words"])
        np.testing.assert_allclose(asked, ours.encode(["two words"]), atol=1e-5)
    told["prompts"] = {"corpus": "c ", "passage": "p ", "document": "d "}
    write_json(theirs / "config_sentence_transformers.json", told)
    assert Prompts.of(theirs).passage == "d "
    stated = Prompts(query="q ", document="d ")  # in place of all that the folder names
    for queries, text in ((True, "q words"), (False, "d words")):
        asked = open_encoder(theirs, prompts=stated).encode(["words"], queries=queries)
        np.testing.assert_allclose(asked, ours.encode([text]), atol=1e-5)
    with pytest.raises(InputError, match="was trained without prompts"):
        open_encoder(tmp_path / "ours", prompts=stated)
    write_json(theirs / "config_sentence_transformers.json", {"prompts": "query"})
    with pytest.raises(InputError, match="its prompts are not a mapping"):
        Prompts.of(theirs)
    write_json(theirs / "config_sentence_transformers.json", {"prompts": {"passage": 5}})
    with pytest.raises(InputError, match=r"passage: .*string .got 5"):
        Prompts.of(theirs)
    np.testing.assert_allclose(found.encode(["b c"], ["a"]), ours.encode(["a b c"]), atol=1e-5)
    read = []  # blanks at the ends of a text are tokens of RoBERTa's tokenizer
    found.model.encode_document = lambda texts, **_: read.extend(texts)
    found.encode([" b ", " b ", "", " "], ["a", "", "a", ""])
    assert read == ["a  b ", " b ", "a", " "]


@pytest.mark.parametrize(
    ("file", "facts", "said"),
    [
        (None, {"architectures": ["BertForSequenceClassification"]}, "BertForSequenceClassif"),
        (None, {"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        (None, {"architectures": ["LlamaForCausalLM"]}, "LlamaForCausalLM"),
        (None, {"architectures": ["T5ForConditionalGeneration"]}, "T5ForConditionalGeneration"),
        ("config_sentence_transformers.json", {"model_type": "CrossEncoder"}, "CrossEncoder"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "SparseEncoder"),
    ],
)
def test_a_re_ranker_or_a_model_that_writes_is_no_encoder(
    tiny_bert, tiny_tokenizer, tmp_path, file, facts, said
):
    """The library opens it, with a pooling that it may not have been trained with."""
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "lm")
    ours = DenseEncoder.from_pretrained(tmp_path / "lm", pooling="mean", title="none")
    save_for_others(ours, tmp_path / "given")
    (tmp_path / "given" / "dense.json").unlink()
    if file is None:
        (tmp_path / "given" / "modules.json").unlink()
        for module in (tmp_path / "given").glob("[0-9]_*"):  # otherwise their list is missed first
            shutil.rmtree(module)
    place = tmp_path / "given" / (file or "config.json")
    write_json(place, read_json(place) | facts)
    with pytest.raises(InputError, match=f"is not an encoder but a {said}.*one vector of one text"):
        open_encoder(tmp_path / "given")


def test_a_tokenizer_without_a_pad_token_is_named_at_once(tiny_bert, tiny_tokenizer, tmp_path):
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "lm")
    ours = DenseEncoder.from_pretrained(tmp_path / "lm", pooling="mean", title="none")
    save_for_others(ours, tmp_path / "given")
    (tmp_path / "given" / "dense.json").unlink()
    place = tmp_path / "given" / "tokenizer_config.json"
    facts = {name: value for name, value in read_json(place).items() if name != "pad_token"}
    write_json(place, facts | {"tokenizer_class": "PreTrainedTokenizerFast"})
    backend = tmp_path / "given" / "tokenizer.json"  # which may name one too, once it has padded
    write_json(backend, read_json(backend) | {"padding": None})
    with pytest.raises(InputError, match="its tokenizer has no pad token"):
        open_encoder(tmp_path / "given")
