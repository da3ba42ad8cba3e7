"""Every supported kind of encoder has transformers' vectors and scores, the requested dropout and
its full length; all others are refused with a message.
"""

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from dr_lib.errors import InputError
from dr_lib.lab import open_checkpoint
from dr_lib.models import CrossEncoder, DenseEncoder, lm_head
from dr_lib.models.bert import KINDS, longest
from dr_lib.tokens import TokenBatch

POSITIONS = 40
TEXTS = ["The encoder reads a passage.", "tokens", "A model learns " * 30, "", "one two three"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 64, "max_position_embeddings": POSITIONS}
CONFIGS = {
    "bert": ("BertConfig", {}),
    "electra": ("ElectraConfig", {"embedding_size": 16}),
    "albert": ("AlbertConfig", {"embedding_size": 16}),
    "mobilebert": (
        "MobileBertConfig",
        {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
    ),
    "distilbert": ("DistilBertConfig", {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}),
    # a layer that sees eight neighbours, and one that sees all
    "modernbert": ("ModernBertConfig", {"local_attention": 8, "global_attn_every_n_layers": 2}),
    "mpnet": ("MPNetConfig", {}),
    "roberta": ("RobertaConfig", {"type_vocab_size": 1}),
}
REFUSED = {
    "deberta-v2": ("DebertaV2Config", {}),
    "convbert": ("ConvBertConfig", {"embedding_size": 32}),
}


def saved(name: str, folder, tokenizer, kind=AutoModelForMaskedLM, rows: int = 0, changes=None):
    """A small random model of a kind, its dropout above 0, saved with a WordPiece tokenizer."""
    config, its = (CONFIGS | REFUSED)[name]
    sizes = SIZES if name != "distilbert" else {"max_position_embeddings": POSITIONS}
    torch.manual_seed(0)
    made = getattr(transformers, config)(
        **(sizes | its | (changes or {})),
        vocab_size=len(tokenizer) + rows,
        pad_token_id=0,
        num_labels=1,
    )
    for key in KINDS[name].dropout if name in KINDS else ():
        if getattr(made, key, None) is not None:
            setattr(made, key, 0.1)
    kind.from_config(made).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def batch_of(read) -> TokenBatch:
    """The output of a tokenizer, as a batch of ours."""
    ids = read["input_ids"]
    special = torch.zeros_like(ids, dtype=torch.bool)
    rows = torch.arange(len(ids))
    kinds = read["token_type_ids"]
    return TokenBatch(ids, read["attention_mask"], kinds, special, ~special, rows)


def test_every_kind_is_tested():
    assert CONFIGS.keys() == KINDS.keys()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("name", CONFIGS)
def test_vectors_are_those_of_transformers(name, pooling, tmp_path, tiny_tokenizer):
    folder = saved(name, tmp_path, tiny_tokenizer)
    length = POSITIONS - {"mpnet": 2, "roberta": 1}.get(name, 0)  # positions from behind padding
    model = DenseEncoder.from_pretrained(
        folder, pooling=pooling, passage_length=length, query_length=length, normalise=False
    )
    assert longest(model.encoder.config) == length
    plain = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    read = tokenizer(TEXTS, truncation=True, max_length=length, padding=True, return_tensors="pt")
    mask = read["attention_mask"]
    assert mask.sum(1).max() == length
    with torch.inference_mode():
        states = plain(input_ids=read["input_ids"], attention_mask=mask).last_hidden_state
    mean = (states * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
    expected = states[:, 0] if pooling == "cls" else mean
    np.testing.assert_allclose(model.encode(TEXTS, queries=True), expected, atol=2e-6)
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=2e-6)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_title_is_a_segment_where_the_model_knows_two(name, tmp_path, tiny_tokenizer):
    folder = saved(name, tmp_path, tiny_tokenizer)
    model = DenseEncoder.from_pretrained(
        folder, pooling="mean", passage_length=32, query_length=32, normalise=False
    )
    plain = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    read = tiny_tokenizer("a title", "words", return_tensors="pt", return_token_type_ids=True)
    if getattr(plain.config, "type_vocab_size", 1) < 2:
        del read["token_type_ids"]
    with torch.inference_mode():
        expected = plain(**read).last_hidden_state.mean(1)
    np.testing.assert_allclose(model.encode(["words"], ["a title"]), expected, atol=2e-6)


@pytest.mark.parametrize("name", CONFIGS)
def test_dropout_is_what_was_asked_for(name, tmp_path, tiny_tokenizer):
    folder = saved(name, tmp_path, tiny_tokenizer)
    scorer = saved(name, tmp_path / "scorer", tiny_tokenizer, AutoModelForSequenceClassification)
    for rate in (0.0, 0.3):
        for model in (
            DenseEncoder.from_pretrained(folder, dropout=rate, passage_length=32, query_length=32),
            CrossEncoder.from_pretrained(scorer, dropout=rate, length=32),
        ):
            rates = {part.p for part in model.modules() if isinstance(part, torch.nn.Dropout)}
            assert rates == {rate}
            if isinstance(model, DenseEncoder):
                model.train()
                read = tiny_tokenizer(TEXTS[:2], padding=True, return_tensors="pt")
                first, second = (model(batch_of(read)) for _ in range(2))
                assert torch.equal(first, second) is (rate == 0)


@pytest.mark.parametrize("name", CONFIGS)
def test_scores_of_a_re_ranker_are_those_of_transformers(name, tmp_path, tiny_tokenizer):
    folder = saved(name, tmp_path, tiny_tokenizer, AutoModelForSequenceClassification)
    model = CrossEncoder.from_pretrained(folder, length=32)
    plain = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    read = tiny_tokenizer(
        ["a query"] * 2, ["a passage of words", "one"], padding=True, return_tensors="pt"
    )
    kinds = (
        {}
        if getattr(plain.config, "type_vocab_size", 1) < 2
        else {"token_type_ids": read["token_type_ids"]}
    )
    with torch.inference_mode():
        expected = plain(
            input_ids=read["input_ids"], attention_mask=read["attention_mask"], **kinds
        )
        scores = model(batch_of(read))
    np.testing.assert_allclose(scores, expected.logits[:, 0], atol=2e-6)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("kind", [DenseEncoder, CrossEncoder])
def test_another_kind_is_refused_in_words(name, kind, tmp_path, tiny_tokenizer):
    folder = saved(name, tmp_path, tiny_tokenizer)
    with pytest.raises(InputError, match=f"kind '{name}', which is not tested") as caught:
        kind.from_pretrained(folder)
    assert "bert, electra" in caught.value.fix
    with pytest.raises(InputError, match="not tested"):
        open_checkpoint(str(folder))


def test_a_model_that_reads_from_left_to_right_is_refused(tmp_path, tiny_tokenizer):
    saved("bert", tmp_path, tiny_tokenizer, changes={"is_decoder": True})
    with pytest.raises(InputError, match="from left to right"):
        DenseEncoder.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["mpnet", "roberta", "bert"])
def test_a_text_longer_than_the_model_reads_is_refused(name, tmp_path, tiny_tokenizer):
    model = DenseEncoder.from_pretrained(
        saved(name, tmp_path, tiny_tokenizer), passage_length=POSITIONS + 1
    )
    length = longest(model.encoder.config)
    with pytest.raises(InputError, match=f"more than the model's {length} positions"):
        model.encode(TEXTS)
    assert open_checkpoint(str(tmp_path)).shape.positions == length


@pytest.mark.parametrize("kind", [DenseEncoder, CrossEncoder])
def test_a_tokenizer_with_more_pieces_than_the_model_has_rows_is_refused(
    kind, tmp_path, tiny_tokenizer
):
    folder = saved("bert", tmp_path, tiny_tokenizer, rows=-2)
    with pytest.raises(InputError, match="does not fit a tokenizer"):
        kind.from_pretrained(folder)
    with pytest.raises(InputError, match="does not fit a tokenizer"):
        open_checkpoint(str(folder))


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in ("bert", "electra")])
def test_pre_training_takes_the_heads_of_bert_and_electra_alone(name, tmp_path, tiny_tokenizer):
    folder = saved(name, tmp_path, tiny_tokenizer)
    with pytest.raises(InputError, match="head of an unknown kind"):
        lm_head(AutoModelForMaskedLM.from_pretrained(folder))
