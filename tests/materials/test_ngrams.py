"""Counts of words and n-grams, and keyword weights, against dictionaries of strings."""

import math
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.materials.ngrams import NgramCounts, count_ngrams, keyword_weights, look_up, word_blocks
from dr_lib.tokens import TokenValues

MODULE = sys.modules[count_ngrams.__module__]
FROM_FILE = np.fromfile


def random_texts(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Titles and bodies of 0 to 12 words from 30 words of 1 to 5 letters, some much more frequent
    than others.
    """
    random = np.random.default_rng(seed)
    known = ["".join(random.choice(list("abcd"), random.integers(1, 6))) for _ in range(30)]

    def text(least: int) -> str:
        return " ".join(
            known[place]
            for place in np.minimum(random.zipf(1.5, random.integers(least, 13)) - 1, 29)
        )

    return [text(0) for _ in range(count)], [text(1) for _ in range(count)]


def all_ngrams(titles: list[str], bodies: list[str], n: int) -> Counter:
    texts = [text.split() for text in titles + bodies]
    return Counter(tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1))


def begins(titles: list[str], bodies: list[str], n: int) -> list[tuple[str, ...] | None]:
    """The n-gram that begins at each word, None if the text ends too early."""
    texts = [text.split() for text in titles + bodies]
    return [
        tuple(text[i : i + n]) if i + n <= len(text) else None
        for text in texts
        for i in range(len(text))
    ]


def test_a_text_that_begins_in_the_middle_of_a_word_begins_a_word():
    class Store(SimpleNamespace):
        def __len__(self) -> int:
            return 2

    store = Store(
        title_offsets=np.array([0, 0, 0]),
        text_offsets=np.array([0, 2, 4]),
        title_ids=np.zeros(0, np.int32),
        text_ids=np.array([5, 6, 6, 5]),  # 6 continues a word
        continuation=np.arange(7) == 6,
    )
    (block,) = word_blocks(store)
    assert (block.starts.tolist(), block.rows.tolist()) == ([0, 2, 3], [0, 1, 1])


@pytest.mark.parametrize("seed", range(150))
def test_counts_are_those_of_a_dictionary_whatever_fits_in_memory(
    store_of, tmp_path, monkeypatch, seed
):
    """Random corpora, orders and thresholds, with blocks, buckets and files so small that
    everything is split.
    """
    random = np.random.default_rng(seed)
    titles, bodies = random_texts(int(random.integers(1, 40)), seed)
    order, least = int(random.integers(2, 6)), int(random.integers(1, 4))
    for name, high in (("BLOCK", 200), ("BUCKET", 120), ("FILES", 30)):
        monkeypatch.setattr(MODULE, name, int(random.integers(1, high)))
    store = store_of(bodies, titles, split=bool(seed % 2))
    counts = count_ngrams(store, tmp_path / "ngrams", order=order, min_count=least)
    monkeypatch.setattr(MODULE, "BLOCK", 2**20)
    [whole] = word_blocks(store)
    for n, found in enumerate(counts.of(whole), start=1):
        expected = all_ngrams(titles, bodies, n)
        assert counts.totals[n - 1] == sum(expected.values())
        kept = {ngram: count for ngram, count in expected.items() if count >= least or n == 1}
        assert found.tolist() == [kept.get(ngram, 0) for ngram in begins(titles, bodies, n)]
        keys, table = counts.tables[n - 1]
        assert (
            (keys[1:] > keys[:-1]).all()
            and len(keys) == len(kept)
            and (n == 1 or (table >= least).all())
        )
    names = [
        "meta.json",
        *(f"{part}{n}.npy" for part in ("keys", "counts") for n in range(1, order + 1)),
    ]
    assert sorted(path.name for path in (tmp_path / "ngrams").iterdir()) == sorted(names)


def test_counting_sorts_no_more_than_a_bucket_at_a_time(store_of, tmp_path, monkeypatch):
    """Memory is bounded: one bucket is sorted at a time, a little more than its share if n-grams
    are few and frequent.
    """
    titles, bodies = random_texts(300)
    store, sizes = store_of(bodies, titles), []
    monkeypatch.setattr(MODULE, "BUCKET", 100)

    def spy(path, dtype) -> np.ndarray:
        sizes.append(path.stat().st_size // 8)
        return FROM_FILE(path, dtype)

    monkeypatch.setattr(np, "fromfile", spy)
    counts = count_ngrams(store, tmp_path / "ngrams")
    most = counts.tables[0][1].max()  # the hashes of a word are in one bucket
    assert len(sizes) > 30 and max(sizes) <= 200 + most and sum(sizes) == sum(counts.totals)


def test_ngrams_cross_neither_passages_nor_title_and_body(store_of, tmp_path):
    store = store_of(["b c", "a b"], ["a", ""])
    counts = count_ngrams(store, tmp_path / "ngrams")
    assert counts.totals == (5, 2, 0, 0)
    assert [len(keys) for keys, _ in counts.tables] == [3, 2, 0, 0]


def test_pieces_may_be_counted_in_place_of_words(store_of, tmp_path):
    store = store_of(["abab abab cd"], split=True)
    counts = count_ngrams(store, tmp_path / "ngrams", unit="piece", order=2)
    pieces = len(store.text_ids)
    assert pieces > 2 and counts.totals == (pieces, pieces - 1)


def test_two_countings_are_equal_to_the_byte(store_of, tmp_path):
    titles, bodies = random_texts(40)
    store = store_of(bodies, titles, split=True)
    for name in "ab":
        assert all(len(keys) for keys, _ in count_ngrams(store, tmp_path / name).tables)
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab"
    )
    assert len(first) > 1 and first == second


def test_words_and_ngrams_never_met_count_zero(store_of, tmp_path):
    store = store_of(["ab cd ef", "ab cd gh", "abcd ab cd"], split=True)
    counts = count_ngrams(store, tmp_path / "ngrams")
    [block] = word_blocks(store)
    assert block.sizes.max() > 1
    backwards = replace(
        block,
        pieces=block.pieces[::-1].copy(),
        starts=np.arange(4),
        sizes=np.array([1, 2, 1, 1]),
        room=np.array([4, 3, 2, 1]),
    )
    words, *longer = counts.of(backwards)
    assert words.min() == 0 < words.max() and not np.any(longer)


def test_rare_ngrams_are_dropped_by_default_in_large_collections_only(
    store_of, tmp_path, monkeypatch
):
    store = store_of(["a b a b", "a b c"])
    assert count_ngrams(store, tmp_path / "small").min_count == 1
    monkeypatch.setattr(MODULE, "SMALL", 6)
    large = count_ngrams(store, tmp_path / "large")
    assert large.min_count == 5 and [len(keys) for keys, _ in large.tables] == [3, 0, 0, 0]
    assert large.totals == (7, 5, 3, 1)


def test_a_folder_without_counts_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        NgramCounts.open(tmp_path / "ngrams")


def test_words_are_told_apart_by_all_their_pieces(store_of, monkeypatch):
    titles, bodies = random_texts(60, seed=3)
    store = store_of(bodies, titles, split=True)
    by_number: dict[int, set[str]] = {}
    monkeypatch.setattr(MODULE, "BLOCK", 50)
    for block in word_blocks(store):
        texts = titles[block.first : block.last] + bodies[block.first : block.last]
        for number, word in zip(block.ngrams(1)[0].tolist(), " ".join(texts).split(), strict=True):
            by_number.setdefault(number, set()).add(word)
    spelled = [word for found in by_number.values() for word in found]
    assert all(len(found) == 1 for found in by_number.values())
    assert sorted(spelled) == sorted(set(" ".join(titles + bodies).split()))


def test_blocks_join_to_the_whole_and_know_their_rows(store_of, monkeypatch):
    titles, bodies = random_texts(30, seed=5)
    store = store_of(bodies, titles, split=True)
    for size in (1, 17, 10**6):
        monkeypatch.setattr(MODULE, "BLOCK", size)
        blocks = list(word_blocks(store))
        assert [block.first for block in blocks[1:]] == [block.last for block in blocks[:-1]]
        assert (blocks[0].first, blocks[-1].last) == (0, len(store))
        for block in blocks:
            texts = titles[block.first : block.last] + bodies[block.first : block.last]
            passages = 2 * list(range(block.last - block.first))
            sizes = [len(text.split()) for text in texts]
            assert block.rows.tolist() == [
                row for row, size in zip(passages, sizes, strict=True) for _ in range(size)
            ]
            assert block.room.tolist() == [left for size in sizes for left in range(size, 0, -1)]
        joined = [
            np.concatenate(parts)
            for parts in zip(*(b.on_pieces(b.room) for b in blocks), strict=True)
        ]
        assert [len(part) for part in joined] == [len(store.title_ids), len(store.text_ids)]


def test_looking_up_in_an_empty_table_finds_nothing():
    nothing = np.zeros(0, np.uint64)
    assert look_up(nothing, nothing, np.array([1, 2], np.uint64)).tolist() == [0, 0]


RANDOM = np.random.default_rng(0)
WORDS = ["a", "b", "cab", "bad", "abc", "dab", "dada", "add", "bead", "deed"]
# More passages than pieces: a passage's number is also that of a piece.
TITLES = [
    "bad cab",
    "",
    "dab",
    "bad",
    "dada",
    *(" ".join(RANDOM.choice(WORDS, 2)) for _ in range(60)),
]
BODIES = [
    "cab cab a",
    "a bad abc",
    "abc dab dab dab",
    "a",
    "a b dada",
    *(" ".join(RANDOM.choice(WORDS, 6)) for _ in range(60)),
]


def weights_of_words(values, store) -> list[float]:
    """The weight of each word of the titles, then of the bodies, read off its first piece."""
    firsts = []
    for ids, offsets, found in (
        (store.title_ids, store.title_offsets, values.title),
        (store.text_ids, store.text_offsets, values.text),
    ):
        starts = ~store.continuation[ids]
        starts[offsets[:-1][np.diff(offsets) > 0]] = True
        firsts += found[starts].tolist()
    return firsts


@pytest.mark.parametrize("block", [1, 9, 10**6])
@pytest.mark.parametrize("weighting", ["inverse_count", "tfidf"])
def test_weights_are_those_of_counted_strings(store_of, tmp_path, monkeypatch, weighting, block):
    monkeypatch.setattr(sys.modules[word_blocks.__module__], "BLOCK", block)
    store = store_of(BODIES, TITLES, split=True)
    (tmp_path / "store").symlink_to(store.folder)
    keyword_weights.body(tmp_path, tmp_path, weighting=weighting)
    values = TokenValues(tmp_path / "values", store)
    passages = [f"{title} {body}".split() for title, body in zip(TITLES, BODIES, strict=True)]
    counts = Counter(word for passage in passages for word in passage)
    within = Counter(word for passage in passages for word in set(passage))
    expected = []
    for texts in (TITLES, BODIES):
        for text, passage in zip(texts, passages, strict=True):
            for word in text.split():
                tfidf = passage.count(word) * math.log(len(passages) / within[word])
                expected.append(tfidf if weighting == "tfidf" else 1 / counts[word])
    assert np.allclose(weights_of_words(values, store), expected, atol=1e-7)
    assert values.text.dtype == np.float32
