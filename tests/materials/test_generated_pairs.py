"""Questions that passed the filter, and titles with their bodies, as examples on disk."""

import numpy as np
import pytest
from datasets import Dataset

from dr_lib.errors import InputError
from dr_lib.materials.generated_pairs import store_questions
from dr_lib.materials.round_trip import ByVectors
from dr_lib.materials.title_pairs import store_titles
from dr_lib.tokens import TokenStore
from dr_lib.training import Examples

QUESTIONS = Dataset.from_dict({"text": ["a vector", "masked", "New York", "a Vector", "the decoder", "masked", "new"]})
SOURCES = np.array([0, 0, 1, 2, 2, 3, 3])


def words(folder, tokenizer) -> list[str]:
    store = TokenStore.open(folder)
    batch = store.batch(np.arange(len(store)), max_length=30)
    return [tokenizer.decode(row, skip_special_tokens=True).replace(" ##", "") for row in batch.input_ids]


def test_equal_questions_are_one_query_with_every_source(tmp_path, tiny_tokenizer):
    kept = np.array([1, 1, 1, 1, 0, 1, 0], bool)
    counts = store_questions(QUESTIONS, SOURCES, kept, tmp_path, tiny_tokenizer, passages=6, progress=False)
    examples = Examples.open(tmp_path / "examples")
    assert words(tmp_path / "queries", tiny_tokenizer) == ["a vector", "masked", "new york"]
    assert [part.tolist() for part in np.split(examples.positives, examples.offsets[1:-1])] == [[0, 2], [0, 3], [1]]
    assert examples.passages == 6 and examples.negatives.shape == (3, 0)
    assert counts == {"filtered": 5, "queries": 3, "pairs": 5, "passages": 4}


def test_negatives_are_the_best_of_the_retriever_without_the_positives(tmp_path, tiny_tokenizer):
    draw = np.random.default_rng(0)
    questions, passages = (draw.standard_normal((size, 4)).astype(np.float32) for size in (7, 40))
    store_questions(
        QUESTIONS, SOURCES, np.ones(7, bool), tmp_path, tiny_tokenizer, passages=40,
        retriever=ByVectors(questions, passages), depth=5, progress=False,
    )  # fmt: skip
    examples = Examples.open(tmp_path / "examples")
    for place, question in enumerate([0, 1, 2, 4, 6]):  # each text where it comes first
        known = examples.positives[examples.offsets[place] : examples.offsets[place + 1]]
        ranked = [row for row in np.argsort(-(passages @ questions[question])) if row not in known]
        assert sorted(examples.negatives[place]) == sorted(ranked[:5])


@pytest.mark.parametrize("progress", [True, False])
def test_mining_shows_a_bar(tmp_path, tiny_tokenizer, capfd, progress):
    vectors = np.eye(7, 4, dtype=np.float32)
    store_questions(
        QUESTIONS, SOURCES, np.ones(7, bool), tmp_path, tiny_tokenizer, passages=7,
        retriever=ByVectors(vectors, vectors), depth=2, progress=progress,
    )  # fmt: skip
    assert ("search:" in capfd.readouterr().err) is progress


def test_no_question_left_is_an_error_with_a_way_out(tmp_path, tiny_tokenizer):
    with pytest.raises(InputError, match="weaker filter"):
        store_questions(QUESTIONS, SOURCES, np.zeros(7, bool), tmp_path, tiny_tokenizer, passages=6, progress=False)


def test_titles_ask_for_their_bodies(tmp_path, tiny_tokenizer):
    rows = {
        "title": ["New York", "a vector", "", "new york ", "masked"],
        "text": ["the decoder", "hard negatives", "no title", "dense vectors", " "],
    }
    counts = store_titles(Dataset.from_dict(rows), tmp_path, tiny_tokenizer, progress=False)
    assert words(tmp_path / "queries", tiny_tokenizer) == ["new york", "a vector"]
    assert words(tmp_path / "passages", tiny_tokenizer) == ["the decoder", "hard negatives", "dense vectors"]
    examples = Examples.open(tmp_path / "examples")
    assert [part.tolist() for part in np.split(examples.positives, examples.offsets[1:-1])] == [[0, 2], [1]]
    assert counts == {"rows": 5, "left_out": 2, "queries": 2, "passages": 3, "pairs": 3}


def test_a_collection_without_titles_is_refused(tmp_path, tiny_tokenizer):
    rows = Dataset.from_dict({"title": ["", "one"], "text": ["a", "b"]})
    with pytest.raises(InputError, match="1 distinct titles"):
        store_titles(rows, tmp_path, tiny_tokenizer, progress=False)
