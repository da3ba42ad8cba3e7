"""BM25 against bm25s's own index and against the formula by hand."""

import math
import re
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import bm25s
import datasets
import numpy as np
import pytest
import Stemmer
from bm25s.stopwords import STOPWORDS_EN

import dr_lib
from dr_lib.errors import InputError
from dr_lib.retrieval import Bm25, cut_texts
from dr_lib.retrieval.bm25 import STOP_WORDS, weighted_bm25_index
from dr_lib.tokens import Layout, TokenStore, load_tokenizer

FOREST = (
    "run running runner fox foxes dog dogs lake lakes river bridge bridges old older tree trees"
    " moon sun star"
)
WORDS = FOREST.split()


@pytest.fixture(scope="module")
def texts() -> datasets.Dataset:
    rng = np.random.default_rng(0)
    bodies = [" ".join(rng.choice(WORDS, rng.integers(0, 30))) for _ in range(120)]
    return datasets.Dataset.from_dict(
        {"title": [WORDS[i % 19] for i in range(120)], "text": bodies}
    )


def test_stop_words_are_those_of_bm25s_which_is_not_imported_for_them():
    assert STOP_WORDS == STOPWORDS_EN
    # its import starts JAX on a GPU
    importing = re.compile(r"^\s*(import|from) (bm25s|jax)\b", re.MULTILINE)
    assert importing.search("def f():\n    import bm25s\n")
    sources = Path(dr_lib.__file__).parent.rglob("*.py")
    assert [path for path in sources if importing.search(path.read_text("utf-8"))] == []


def test_scores_equal_those_of_bm25s(texts):
    joined = [f"{row['title']} {row['text']}" for row in texts]
    tokens = bm25s.tokenize(
        joined, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False
    )
    reference = bm25s.BM25(k1=0.9, b=0.4)
    reference.index(tokens, show_progress=False)
    ranking = Bm25.build(texts).search(["the moon and a star", "river"], k=120)
    for query, rows, scores in zip(
        [["moon", "star"], ["river"]], ranking.rows, ranking.scores, strict=True
    ):
        expected = reference.get_scores(query)
        assert (np.sort(rows[rows >= 0]) == np.flatnonzero(expected > 0)).all()
        np.testing.assert_allclose(scores[rows >= 0], expected[rows[rows >= 0]], rtol=1e-6)


def test_equal_passages_are_ranked_by_row():
    texts = datasets.Dataset.from_dict(
        {"title": [""] * 9, "text": ["red fox", "dog", "red fox"] * 3}
    )
    ranking = Bm25.build(texts).search(["fox"], k=4)
    assert ranking.rows.tolist() == [[0, 2, 3, 5]]


def test_passages_without_a_word_of_the_query_are_not_returned(texts):
    ranking = Bm25.build(texts).search(["zebra", "", "the of and", "moon"], k=50)
    assert (ranking.rows[:3] == -1).all() and (ranking.rows[3] >= 0).any()


def test_words_meet_at_their_stem():
    texts = datasets.Dataset.from_dict({"title": ["", ""], "text": ["three bridges", "a tree"]})
    assert Bm25.build(texts).search(["BRIDGED"], k=1).rows.tolist() == [[0]]


def test_opened_index_ranks_as_the_built_one_and_stays_on_disk(texts, tmp_path):
    memory = Bm25.build(texts)
    disk = Bm25.build(texts, tmp_path / "bm25")
    assert not disk._weights.data.flags.writeable  # a memory-mapped file, opened for reading
    for index in (disk, Bm25.open(tmp_path / "bm25")):
        ranking, expected = index.search(WORDS, k=30), memory.search(WORDS, k=30)
        assert (ranking.rows == expected.rows).all() and (ranking.scores == expected.scores).all()
    assert {path.suffix for path in (tmp_path / "bm25").iterdir()} == {".npy", ".json"}


def test_building_on_disk_holds_few_bytes_a_pair(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["dr_lib.retrieval.bm25"], "CHUNK", 500)
    rng, peaks = np.random.default_rng(0), []
    for passages in (2_000, 6_000):
        drawn = [
            " ".join(f"w{word}" for word in row) for row in rng.integers(0, 3000, (passages, 40))
        ]
        rows = datasets.Dataset.from_dict({"title": [""] * passages, "text": drawn})
        tracemalloc.start()
        Bm25.build(rows, tmp_path / str(passages))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # at 8.8 million passages of 60 words: less than 3.2 GB
    assert (peaks[1] - peaks[0]) / (4_000 * 40) < 6


def test_results_do_not_depend_on_chunks_or_groups(texts, monkeypatch):
    whole = Bm25.build(texts).search(WORDS, k=30)
    monkeypatch.setattr(sys.modules["dr_lib.retrieval.bm25"], "CHUNK", 7)
    monkeypatch.setattr(sys.modules["dr_lib.retrieval.bm25"], "MATCHES", 50)
    parts = Bm25.build(texts).search(WORDS, k=30)
    assert (whole.rows == parts.rows).all() and (whole.scores == parts.scores).all()


def test_scores_of_pairs_are_those_of_the_ranking_and_0_without_a_common_word(texts, monkeypatch):
    monkeypatch.setattr(sys.modules["dr_lib.retrieval.bm25"], "MATCHES", 50)
    index = Bm25.build(texts)
    ranking = index.search(WORDS, k=len(texts))
    owners, rows = (axis.ravel() for axis in np.indices((len(WORDS), len(texts))))
    expected = np.zeros((len(WORDS), len(texts)), np.float32)
    for query, (places, scores) in enumerate(zip(ranking.rows, ranking.scores, strict=True)):
        expected[query, places[places >= 0]] = scores[places >= 0]
    assert np.array_equal(index.pair_scores(WORDS, owners, rows), expected.ravel())
    assert expected.min() == 0 < expected.max()


def test_k_beyond_the_collection_is_cut(texts):
    assert Bm25.build(texts).search(["moon"], k=5000).depth == 120


def test_query_ids_are_carried_into_the_ranking(texts):
    assert Bm25.build(texts).search(["moon", "sun"], k=2, query_ids=["a", "b"]).query_ids == [
        "a",
        "b",
    ]


def test_index_that_is_cut_short_is_refused(texts, tmp_path):
    Bm25.build(texts, tmp_path / "bm25")
    path = tmp_path / "bm25" / "data.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InputError, match=r"data\.npy"):
        Bm25.open(tmp_path / "bm25")


@pytest.mark.parametrize("kept", [False, True])
def test_collection_of_empty_passages_finds_nothing(kept, tmp_path):
    texts = datasets.Dataset.from_dict({"title": ["", ""], "text": ["", "the"]})
    folder = tmp_path / "index" if kept else None
    assert (Bm25.build(texts, folder).search(["fox"], k=1).rows == -1).all()


def slow_twin(passages: list[str], queries: list[str], k1: float, b: float) -> np.ndarray:
    """The formula by hand for every query and passage in float64."""
    stop = set(STOP_WORDS)
    stem = Stemmer.Stemmer("english").stemWord

    def words(text: str) -> list[str]:
        return [stem(word) for word in re.findall(r"\w\w+", text.lower()) if word not in stop]

    passages = [Counter(words(text)) for text in passages]
    lengths = np.array([counts.total() for counts in passages])
    saturation = k1 * (1 - b + b * lengths / max(lengths.mean(), 1e-9))
    lines = []
    for query in queries:
        total = np.zeros(len(passages))
        for word in words(query):
            held = np.array([counts[word] for counts in passages])
            idf = math.log(1 + (len(passages) - (held > 0).sum() + 0.5) / ((held > 0).sum() + 0.5))
            total += idf * held / (held + saturation + (held == 0))
        lines.append(total)
    return np.stack(lines)


def test_search_equals_the_formula_over_random_corpora_with_ties(monkeypatch, tmp_path):
    module = sys.modules["dr_lib.retrieval.bm25"]
    letters = [f"{a}{b}q" for a in "bdfg" for b in "aeiou"] + ["the", "of", "x"]
    for seed in range(150):
        rng = np.random.default_rng(seed)

        def text(most: int, rng=rng) -> str:
            return " ".join(
                rng.choice(letters[: rng.integers(2, len(letters) + 1)], rng.integers(0, most))
            )

        bodies = [text(12) for _ in range(rng.integers(1, 60))]
        # passages that occur twice tie for sure
        bodies += list(rng.choice(bodies, rng.integers(0, 20)))
        texts = datasets.Dataset.from_dict({"title": [text(3) for _ in bodies], "text": bodies})
        whole = [row["title"] + row["text"] for row in texts]
        queries, k = (
            [text(6) for _ in range(rng.integers(1, 9))],
            int(rng.integers(1, len(bodies) + 3)),
        )
        title = bool(rng.integers(2))
        k1, b = float(rng.choice([0.0, 0.9, 2.0])), float(rng.choice([0.0, 0.4, 1.0]))
        monkeypatch.setattr(module, "CHUNK", int(rng.choice([1, 7, 16_384])))
        monkeypatch.setattr(module, "MATCHES", int(rng.choice([1, 40, 1 << 22])))
        folder = tmp_path / str(seed) if seed % 3 == 0 else None
        ranking = Bm25.build(texts, folder, title=title, k1=k1, b=b).search(queries, k)
        expected = slow_twin(
            [f"{row['title']} {row['text']}" if title else row["text"] for row in texts],
            queries,
            k1,
            b,
        )
        assert ranking.depth == min(k, len(bodies)) and ranking.passages == len(bodies)
        for rows, scores, wanted in zip(ranking.rows, ranking.scores, expected, strict=True):
            rows, scores = rows[rows >= 0], scores[rows >= 0]
            assert len(rows) == min(k, np.count_nonzero(wanted > 0))
            np.testing.assert_allclose(scores, wanted[rows], rtol=1e-5)
            # In float32 two scores may tie, or change places, only where they are nearly one.
            np.testing.assert_allclose(scores, -np.sort(-wanted)[: len(rows)], rtol=1e-5)
            assert all(
                (-a, r) < (-c, s)
                for a, r, c, s in zip(scores, rows, scores[1:], rows[1:], strict=False)
            )
            left = np.setdiff1d(np.flatnonzero(wanted > 0), rows)
            assert all(row > rows[-1] for row in left if whole[row] == whole[rows[-1]])


@pytest.mark.parametrize("mode", ["pair", "joined", "none"])
def test_cut_texts_are_what_an_encoder_reads(mode, tmp_path):
    rng, words = (
        np.random.default_rng(3),
        [
            "retrieval",
            "of",
            "unbelievably",
            "long-winded",
            "passages,",
            "naïve",
            "ones;",
            "3.14",
            "(tokenisation)",
        ],
    )
    text = [" ".join(rng.choice(words, size)) for size in rng.integers(1, 60, 200)]
    title = [" ".join(rng.choice(words, size)) for size in rng.integers(0, 20, 200)]
    passages, tokenizer = (
        datasets.Dataset.from_dict({"title": title, "text": text}),
        load_tokenizer("embedded"),
    )
    layout = Layout(passage_length=24, title=mode)
    cut = cut_texts(passages[:], tokenizer, layout)
    assert sum(short != long for short, long in zip(cut["text"], text, strict=True)) > 50
    rows = np.arange(len(text))
    whole = TokenStore.build(passages, tokenizer, tmp_path / "whole").batch(rows, **layout.passages)
    again = datasets.Dataset.from_dict(
        {"title": cut["title"] if mode != "none" else [""] * 200, "text": cut["text"]}
    )
    short = TokenStore.build(again, tokenizer, tmp_path / "cut").batch(
        rows, max_length=512, title=mode
    )
    for row in rows:
        ids = [
            batch.input_ids[row][batch.attention_mask[row] == 1].tolist()
            for batch in (whole, short)
        ]
        assert ids[0] == ids[1]


def test_an_index_of_other_weights_has_both(texts, tmp_path):
    weights = {"k1": 1.5, "b": 0.75}
    weighted_bm25_index.body(tmp_path, SimpleNamespace(passages=texts), title=False, **weights)
    found, expected = (
        index.search(["old fox"], 5)
        for index in (Bm25.open(tmp_path / "index"), Bm25.build(texts, title=False, **weights))
    )
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_what_cannot_be_indexed_or_searched_is_refused_by_name(texts):
    with pytest.raises(InputError, match=r"^texts: no passage to index"):
        Bm25.build(texts.select([]))
    for values, where in (
        ({"k1": -1.0}, "k1: -1.0 is not a valid k1"),
        ({"k1": math.nan}, "k1: nan"),
        ({"b": -0.1}, r"b: -0\.1 is outside"),
        ({"b": 1.5}, r"b: 1\.5 is outside"),
    ):
        with pytest.raises(InputError, match=f"^{where}"):
            Bm25.build(texts, **values)
    index = Bm25.build(texts, k1=0.0, b=1.0)
    assert index.search([], k=3).rows.shape == (0, 3)
    for k in (0, -1):
        with pytest.raises(InputError, match=f"^k: {k} passages a query"):
            index.search(["fox"], k=k)
