"""Models that score a query with a passage: the cross-encoder's scores are those of the library's
classifier, late interaction's those by hand; both are unchanged by saving.
"""

import datasets
import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertForSequenceClassification

from dr_lib.errors import InputError
from dr_lib.models import (
    EXTRA_FILE,
    CrossEncoder,
    LateInteraction,
    Pieces,
    best_matches,
    best_matches_of_pairs,
    save_masked_lm,
)
from dr_lib.tokens import TokenStore, train_wordpiece


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
    """In bf16 a hundred similar scores have a few dozen values, and ties decide the order."""
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
    with pytest.raises(InputError, match=r"no model here: no config\.json"):
        CrossEncoder.from_pretrained(tmp_path / "nowhere")


def test_dropout_is_that_asked_for(place, batch):
    none, some = (
        CrossEncoder.from_pretrained(place, length=32, dropout=rate).train() for rate in (0.0, 0.5)
    )
    torch.testing.assert_close(none(batch), none(batch))
    assert not torch.allclose(some(batch), some(batch))
    for module in some.encoder.bert.modules():  # the classifier's own is left
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    assert not torch.allclose(some(batch), some(batch))


def by_hand(queries: Pieces, passages: Pieces) -> np.ndarray:
    """One pair after the other, one piece after the other."""
    scores = np.zeros((len(queries.read), len(passages.read)))
    for i, (asked, asking) in enumerate(
        zip(queries.vectors.double().numpy(), queries.read.numpy(), strict=True)
    ):
        for j, (offered, offering) in enumerate(
            zip(passages.vectors.double().numpy(), passages.read.numpy(), strict=True)
        ):
            best = [max(float(one @ other) for other in offered[offering]) for one in asked[asking]]
            scores[i, j] = sum(best) / len(best) if best else 0
    return scores


def random_pieces(rng: np.random.Generator, texts: int, length: int, width: int) -> Pieces:
    vectors = torch.from_numpy(rng.normal(size=(texts, length, width)).astype(np.float32))
    read = torch.from_numpy(rng.random((texts, length)) < 0.7)
    read[:, 0] = True  # a passage without a piece to read does not exist
    return Pieces(torch.nn.functional.normalize(vectors, dim=2), read)


def test_score_is_the_mean_of_the_best_cosines_over_random_shapes():
    rng = np.random.default_rng(0)
    for _ in range(200):
        count, long, short, width = rng.integers(1, 7, 4)
        queries, passages = (
            random_pieces(rng, count, short, width),
            random_pieces(rng, count, long, width),
        )
        scores = by_hand(queries, passages)
        np.testing.assert_allclose(best_matches(queries, passages), scores, atol=1e-6)
        np.testing.assert_allclose(
            best_matches_of_pairs(queries, passages), scores.diagonal(), atol=1e-6
        )


def test_a_query_without_a_piece_scores_0():
    queries = Pieces(torch.ones(1, 2, 1), torch.zeros(1, 2, dtype=torch.bool))
    assert (
        best_matches(
            queries, Pieces(torch.ones(1, 1, 1), torch.ones(1, 1, dtype=torch.bool))
        ).item()
        == 0
    )


@pytest.fixture
def model(tmp_path, tiny_bert, tiny_tokenizer):
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "lm")
    return LateInteraction.from_pretrained(
        tmp_path / "lm", width=8, passage_length=24, query_length=12, seed=3
    )


def test_a_saved_model_opens_as_it_was_and_refuses_other_settings(model, tmp_path):
    model.save(tmp_path / "saved")
    again = LateInteraction.from_pretrained(tmp_path / "saved")
    assert again.settings == model.settings
    for (name, one), other in zip(
        model.state_dict().items(), again.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other), name
    with pytest.raises(InputError, match="trained with 8, asked for 16"):
        LateInteraction.from_pretrained(tmp_path / "saved", width=16)
    (tmp_path / "saved" / EXTRA_FILE).unlink()
    with pytest.raises(InputError, match="lacks head"):
        LateInteraction.from_pretrained(tmp_path / "saved")


def test_tokens_of_another_tokenizer_are_refused(model, tiny_tokenizer, sentences, tmp_path):
    rows = datasets.Dataset.from_dict({"title": [""], "text": [sentences[0]]})
    other = train_wordpiece(sentences, 200)
    own, foreign = (
        TokenStore.build(rows, by, tmp_path / str(len(by))) for by in (tiny_tokenizer, other)
    )
    other_own = TokenStore.open(own.folder)
    assert model.crossing(own, other_own) == (own, other_own, model.settings)
    for stores in ((own, foreign), (foreign, own)):
        with pytest.raises(InputError, match="built with tokenizer"):
            model.crossing(*stores)


def test_special_tokens_and_padding_are_not_compared(model, tiny_tokenizer, sentences, tmp_path):
    rows = datasets.Dataset.from_dict(
        {"title": ["", ""], "text": [sentences[0], " ".join(sentences[:4])]}
    )
    store = TokenStore.build(rows, tiny_tokenizer, tmp_path / "store")
    with torch.inference_mode():
        alone = model(store.batch(np.array([0]), **model.settings.passages))
        both = model(store.batch(np.array([0, 1]), **model.settings.passages))
        with torch.autocast("cpu", torch.bfloat16):
            assert (
                model(store.batch(np.array([0]), **model.settings.passages)).vectors.dtype
                == torch.float32
            )
    torch.testing.assert_close(both.vectors.norm(dim=2), torch.ones(both.read.shape))
    assert alone.read.sum() == store.lengths(**model.settings.passages)[0] - 2
    assert both.read[0].sum() == alone.read.sum()
    queries = Pieces(both.vectors[1:], both.read[1:])
    np.testing.assert_allclose(
        best_matches(queries, alone)[:, 0], best_matches(queries, both)[:, 0], atol=1e-5
    )  # padding beside it changes nothing
