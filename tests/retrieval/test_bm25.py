"""BM25 against bm25s's own index and against the formula by hand."""

import math
import re
from collections import Counter

import bm25s
import datasets
import numpy as np
import pytest
import Stemmer

from dr_lib.errors import InputError
from dr_lib.retrieval import Bm25

FOREST = "run running runner fox foxes dog dogs lake lakes river bridge bridges old older tree trees moon sun star"
WORDS = FOREST.split()


@pytest.fixture(scope="module")
def texts() -> datasets.Dataset:
    rng = np.random.default_rng(0)
    bodies = [" ".join(rng.choice(WORDS, rng.integers(0, 30))) for _ in range(120)]
    return datasets.Dataset.from_dict({"title": [WORDS[i % 19] for i in range(120)], "text": bodies})


def stems(text: str) -> list[str]:
    return Stemmer.Stemmer("english").stemWords(re.findall(r"\w\w+", text.lower()))


def by_hand(query: str, passages: list[list[str]], k1: float, b: float) -> np.ndarray:
    mean = sum(map(len, passages)) / len(passages)
    total = np.zeros(len(passages))
    for word in stems(query):
        frequency = sum(word in passage for passage in passages)
        idf = math.log(1 + (len(passages) - frequency + 0.5) / (frequency + 0.5))
        for row, passage in enumerate(passages):
            count = Counter(passage)[word]
            total[row] += idf * count / (count + k1 * (1 - b + b * len(passage) / mean))
    return total


@pytest.mark.parametrize("title", [True, False])
def test_scores_equal_the_formula(texts, title):
    index = Bm25.build(texts, title=title, k1=1.2, b=0.75, progress=False)
    passages = [stems(f"{row['title']} {row['text']}" if title else row["text"]) for row in texts]
    query = "foxes running over the old bridge, running"
    ranking = index.search([query], k=120)
    expected = by_hand(query, passages, 1.2, 0.75)
    order = sorted(np.flatnonzero(expected > 0), key=lambda row: (-np.float32(expected[row]), row))
    found = ranking.rows[0][ranking.rows[0] >= 0]
    assert len(found) == len(order)
    np.testing.assert_allclose(ranking.scores[0][: len(found)], expected[found], rtol=1e-5)


def test_scores_equal_those_of_bm25s(texts):
    joined = [f"{row['title']} {row['text']}" for row in texts]
    tokens = bm25s.tokenize(joined, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
    reference = bm25s.BM25(k1=0.9, b=0.4)
    reference.index(tokens, show_progress=False)
    ranking = Bm25.build(texts, progress=False).search(["the moon and a star", "river"], k=120)
    for query, rows, scores in zip([["moon", "star"], ["river"]], ranking.rows, ranking.scores, strict=True):
        expected = reference.get_scores(query)
        assert (np.sort(rows[rows >= 0]) == np.flatnonzero(expected > 0)).all()
        np.testing.assert_allclose(scores[rows >= 0], expected[rows[rows >= 0]], rtol=1e-6)


def test_equal_passages_are_ranked_by_row():
    texts = datasets.Dataset.from_dict({"title": [""] * 9, "text": ["red fox", "dog", "red fox"] * 3})
    ranking = Bm25.build(texts, progress=False).search(["fox"], k=4)
    assert ranking.rows.tolist() == [[0, 2, 3, 5]]


def test_passages_without_a_word_of_the_query_are_not_returned(texts):
    ranking = Bm25.build(texts, progress=False).search(["zebra", "", "the of and", "moon"], k=50)
    assert (ranking.rows[:3] == -1).all() and (ranking.rows[3] >= 0).any()


def test_words_meet_at_their_stem():
    texts = datasets.Dataset.from_dict({"title": ["", ""], "text": ["three bridges", "a tree"]})
    assert Bm25.build(texts, progress=False).search(["BRIDGED"], k=1).rows.tolist() == [[0]]


def test_opened_index_ranks_as_the_built_one_and_stays_on_disk(texts, tmp_path):
    memory = Bm25.build(texts, progress=False)
    disk = Bm25.build(texts, tmp_path / "bm25", progress=False)
    assert isinstance(disk.index.scores["data"], np.memmap)
    for index in (disk, Bm25.open(tmp_path / "bm25")):
        ranking, expected = index.search(WORDS, k=30), memory.search(WORDS, k=30)
        assert (ranking.rows == expected.rows).all() and (ranking.scores == expected.scores).all()
    assert {path.suffix for path in (tmp_path / "bm25").iterdir()} == {".npy", ".json"}


def test_results_do_not_depend_on_chunks_or_groups(texts, monkeypatch):
    import sys

    whole = Bm25.build(texts, progress=False).search(WORDS, k=30)
    monkeypatch.setattr(sys.modules["dr_lib.retrieval.bm25"], "CHUNK", 7)
    monkeypatch.setattr(sys.modules["dr_lib.retrieval.bm25"], "MATCHES", 50)
    parts = Bm25.build(texts, progress=False).search(WORDS, k=30)
    assert (whole.rows == parts.rows).all() and (whole.scores == parts.scores).all()


def test_scores_of_pairs_are_those_of_the_ranking_and_0_without_a_common_word(texts, monkeypatch):
    import sys

    monkeypatch.setattr(sys.modules["dr_lib.retrieval.bm25"], "MATCHES", 50)
    index = Bm25.build(texts, progress=False)
    ranking = index.search(WORDS, k=len(texts))
    owners, rows = (axis.ravel() for axis in np.indices((len(WORDS), len(texts))))
    expected = np.zeros((len(WORDS), len(texts)), np.float32)
    for query, (places, scores) in enumerate(zip(ranking.rows, ranking.scores, strict=True)):
        expected[query, places[places >= 0]] = scores[places >= 0]
    assert np.array_equal(index.pair_scores(WORDS, owners, rows), expected.ravel())
    assert expected.min() == 0 < expected.max()


def test_k_beyond_the_collection_is_cut(texts):
    assert Bm25.build(texts, progress=False).search(["moon"], k=5000).depth == 120


def test_query_ids_are_carried_into_the_ranking(texts):
    assert Bm25.build(texts, progress=False).search(["moon", "sun"], k=2, query_ids=["a", "b"]).query_ids == ["a", "b"]


def test_altered_index_is_refused(texts, tmp_path):
    Bm25.build(texts, tmp_path / "bm25", progress=False)
    path = tmp_path / "bm25" / "data.csc.index.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InputError, match="missing or altered"):
        Bm25.open(tmp_path / "bm25")


def test_bad_settings_are_refused(texts):
    for options in ({"b": 1.5}, {"k1": -1}, {"language": "klingon"}):
        with pytest.raises(InputError):
            Bm25.build(texts, progress=False, **options)
    with pytest.raises(InputError, match="no passage"):
        Bm25.build(texts.select([]), progress=False)
    with pytest.raises(InputError, match="k is 0"):
        Bm25.build(texts, progress=False).search(["moon"], k=0)


def test_collection_of_empty_passages_finds_nothing():
    texts = datasets.Dataset.from_dict({"title": ["", ""], "text": ["", "the"]})
    assert (Bm25.build(texts, progress=False).search(["fox"], k=1).rows == -1).all()
