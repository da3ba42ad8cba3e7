"""Late interaction: its score by hand, what takes no part in it, and that a saved model opens as it
was.
"""

import datasets
import numpy as np
import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.models import (
    EXTRA_FILE,
    LateInteraction,
    Pieces,
    best_matches,
    best_matches_of_pairs,
    save_masked_lm,
)
from dr_lib.tokens import TokenStore, train_wordpiece


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
