"""Keyword weights against counts of strings."""

import math
import sys
from collections import Counter

import numpy as np
import pytest

from dr_lib.materials.ngrams import keyword_weights, word_blocks
from dr_lib.tokens import TokenValues

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
