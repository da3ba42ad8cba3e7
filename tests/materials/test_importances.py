"""Average mutual information: worked examples, a dictionary implementation, and its effect on a
mask; on real English it spares stop words, as CDMAE intends (figures 2 and 3).
"""

import gzip
import json
import math
import sys
from collections import Counter
from functools import cache
from itertools import islice
from pydoc_data.topics import topics

import datasets
import numpy as np
import pytest
import torch
from transformers import BertTokenizerFast

from dr_lib import masking
from dr_lib.materials.ngrams import (
    average_mutual_information,
    count_ngrams,
    word_blocks,
    write_importances,
)
from dr_lib.places import data_root
from dr_lib.tokens import TokenStore, load_tokenizer

NEW_YORK = {
    ("naive", "renorm"): [5.710503, 4.367234, 5.259161, 5.259161, 4.367234, 5.710503],
    ("naive", "zero"): [2.855252, 3.513279, 4.611891, 4.611891, 3.513279, 2.855252],
    ("minseg", "renorm"): [2.659323, 2.610595, 2.862055, 2.862055, 2.610595, 2.659323],
    ("minseg", "zero"): [1.329661, 1.756639, 2.428274, 2.428274, 1.756639, 1.329661],
}
NOISE = np.array([-1.0, 0.5, -0.2, 0.3, 1.5, -2.0])


@pytest.fixture
def importances_of(store_of, tmp_path):
    """Importance of each word of the bodies, exact: `importances_of(texts, titles,
    pmi="minseg")`.
    """

    def measure(texts, titles=None, *, min_count=1, unit="word", window=4, **options):
        store = store_of(texts, titles)
        counts = count_ngrams(store, tmp_path / "ngrams", min_count=min_count, unit=unit)
        [block] = word_blocks(store, unit)
        return average_mutual_information(
            counts.of(block)[:window], block.room, counts.totals[:window], **options
        )

    return measure


@pytest.mark.parametrize(("pmi", "edges"), NEW_YORK)
def test_new_york_is_in_new_york(importances_of, pmi, edges):
    found = importances_of(["new york is in new york"], pmi=pmi, edges=edges)
    assert np.allclose(found, NEW_YORK[pmi, edges], atol=1e-6)


def test_a_title_is_not_joined_to_its_body(importances_of):
    apart = importances_of(["b c"], ["a"])
    assert apart[0] == 0 and apart[1] == apart[2] > 0


@pytest.mark.parametrize(
    ("pmi", "edges", "noise", "york", "expected"),
    [
        ("naive", "renorm", 0 * NOISE, ["york"], [1, 0, 1, 0, 0, 1]),
        ("naive", "zero", 0 * NOISE, ["york"], [0, 1, 1, 1, 0, 0]),
        ("minseg", "renorm", 0 * NOISE, ["york"], [1, 0, 1, 1, 0, 0]),
        ("naive", "renorm", NOISE, ["york"], [0, 0, 1, 1, 1, 0]),
        ("naive", "renorm", 0 * NOISE, ["yo", "##rk"], [1, 0, 0, 1, 0, 0, 1, 1]),
        ("naive", "renorm", NOISE, ["yo", "##rk"], [1, 0, 0, 1, 1, 1, 0, 0]),
    ],
)
def test_masks_of_new_york_from_the_text_on(tmp_path, pmi, edges, noise, york, expected):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "new", "is", "in", *york]
    tokenizer = BertTokenizerFast(vocab={piece: index for index, piece in enumerate(pieces)})
    rows = datasets.Dataset.from_dict({"text": ["new york is in new york"]})
    store = TokenStore.build(rows, tokenizer, tmp_path / "store", columns=("text",))
    counts = count_ngrams(store, tmp_path / "ngrams")
    values = write_importances(counts, store, tmp_path / "values", pmi=pmi, edges=edges)
    batch = store.batch(np.arange(1), max_length=10, pad_to_multiple=1)
    noisy = values.batch(np.arange(1), max_length=10, pad_to_multiple=1)
    noisy[~batch.special] += torch.tensor(noise)[
        batch.word_start[~batch.special].cumsum(0) - 1
    ].float()
    mask = masking.importance(batch, noisy, 0.5, torch.Generator(), noise=0.0)
    assert mask[~batch.special].long().tolist() == expected


def from_dictionaries(
    texts, *, order=4, least=1, floor=1.0, pmi="naive", edges="renorm", ppmi=False
):
    """Eq. 7 and 8 word by word, from counts in dictionaries."""
    texts = [text.split() for text in texts]
    windows = {
        n: [tuple(t[i : i + n]) for t in texts for i in range(len(t) - n + 1)]
        for n in range(1, order + 1)
    }
    counts = {n: Counter(found) for n, found in windows.items()}

    def log_share(ngram):
        n, count = len(ngram), counts[len(ngram)][ngram]
        return math.log((count if n == 1 or count >= least else floor) / len(windows[n]))

    @cache
    def information(ngram):
        def cuts(rest):
            yield (rest,)
            for size in range(1, len(rest)):
                yield from ((rest[:size], *more) for more in cuts(rest[size:]))

        single = tuple((word,) for word in ngram)
        ways = [cut for cut in cuts(ngram) if len(cut) > 1] if pmi == "minseg" else [single]
        value = min(log_share(ngram) - sum(map(log_share, cut)) for cut in ways)
        return max(value, 0.0) if ppmi else value

    def side(found):
        if edges == "zero":
            return sum(found) / (order - 1)
        return sum(found) / len(found) if found else None

    result = []
    for text in texts:
        for i in range(len(text)):
            ending = side(
                [
                    information(tuple(text[i - n + 1 : i + 1]))
                    for n in range(2, order + 1)
                    if i - n + 1 >= 0
                ]
            )
            starting = side(
                [
                    information(tuple(text[i : i + n]))
                    for n in range(2, order + 1)
                    if i + n <= len(text)
                ]
            )
            sides = [value for value in (ending, starting) if value is not None]
            result.append(sum(sides) * (2 if len(sides) == 1 else 1))
    return result


@pytest.mark.parametrize("seed", range(120))
def test_importances_are_those_of_a_dictionary_implementation(importances_of, seed):
    random = np.random.default_rng(seed)
    known = ["".join(random.choice(list("abcd"), random.integers(1, 5))) for _ in range(25)]
    sizes = random.integers(1, 15, random.integers(1, 50))
    texts = [" ".join(known[w] for w in np.minimum(random.zipf(1.5, size), 24)) for size in sizes]
    shared = {
        "pmi": str(random.choice(["naive", "minseg"])),
        "edges": str(random.choice(["renorm", "zero"])),
        "floor": float(random.choice([0.5, 1.0, 2.0])),
        "ppmi": bool(random.integers(0, 2)),
    }
    order, least = int(random.integers(2, 5)), int(random.integers(1, 5))
    found = importances_of(texts, window=order, min_count=least, **shared)
    assert np.allclose(
        found, from_dictionaries(texts, order=order, least=least, **shared), atol=1e-9
    )


def test_dropping_rare_ngrams_with_the_floor_of_one_changes_only_what_occurs_more_than_once(
    importances_of,
):
    texts = ["a b c d e f g", "h i j k l m n"]
    assert np.array_equal(importances_of(texts), importances_of(texts, min_count=9))


def test_the_floor_is_of_ngrams_and_a_word_never_seen_counts_one():
    for seen, floor in ((1, 0.5), (0, 0.25)):
        counts = [np.array([0, 2]), np.array([seen, 0])]
        information = math.log(max(seen, floor) / 4) - math.log(1 / 6) - math.log(2 / 6)
        found = average_mutual_information(counts, np.array([2, 1]), (6, 4), floor=floor)
        assert found == pytest.approx([2 * information] * 2)


def test_a_single_word_has_no_importance_and_every_word_has_a_finite_one(importances_of):
    found = importances_of(["a", "b c", "d e f g h i"])
    assert found[0] == 0 and np.isfinite(found).all() and (found[1:] > 0).all()


def test_passages_without_a_word_have_no_importances(store_of, tmp_path):
    store = store_of(["", ""])
    counts = count_ngrams(store, tmp_path / "ngrams")
    assert counts.totals == (0, 0, 0, 0)
    assert len(write_importances(counts, store, tmp_path / "values").text) == 0


def test_information_of_pieces_is_that_of_a_text_with_blanks_between_them(store_of, tmp_path):
    store = store_of(["bad cab c bad", "cab bad dab"], split=True)
    counts = count_ngrams(store, tmp_path / "ngrams", unit="piece")
    values = write_importances(counts, store, tmp_path / "values")
    pieces = [
        " ".join(map(str, part)) for part in np.split(store.text_ids, store.text_offsets[1:-1])
    ]
    assert store.continuation[store.text_ids].any()
    assert np.allclose(values.text, from_dictionaries(pieces), rtol=1e-3)


@pytest.mark.parametrize("block", [1, 5, 100])
def test_size_of_a_block_does_not_change_what_is_written(store_of, tmp_path, monkeypatch, block):
    texts = [
        f"{a} {b} {a} {c}"
        for a in ("ab", "cd")
        for b in ("cab", "bad")
        for c in ("a", "dab", "c d")
    ]
    store = store_of(texts, [text[:5] for text in texts], split=True)
    counts = count_ngrams(store, tmp_path / "ngrams")
    expected = write_importances(counts, store, tmp_path / "values")
    monkeypatch.setattr(sys.modules[count_ngrams.__module__], "BLOCK", block)
    again = write_importances(counts, store, tmp_path / "again")
    assert again.title.dtype == np.float16
    assert np.array_equal(again.title, expected.title) and np.array_equal(again.text, expected.text)


def test_all_pieces_of_a_word_share_its_importance(store_of, tmp_path):
    store = store_of(["abcd dcba abcd", "dcba bad"], split=True)
    counts = count_ngrams(store, tmp_path / "ngrams")
    values = write_importances(counts, store, tmp_path / "values")
    inside = store.continuation[store.text_ids]
    assert inside.any() and np.array_equal(
        values.text[1:][inside[1:]], values.text[:-1][inside[1:]]
    )


STOP_WORDS = """
a about after all also an and are as at be been but by can could did do for from had has have he
her his how i if in into is it its may more most no not of on one only or other our out she should
so some such than that the their them then there these they this to up was we were what when where
which while who will with would you your
"""


def python_reference() -> list[str]:
    """Paragraphs of Python's own language reference, which comes with every interpreter."""
    return [
        text for topic in topics.values() for text in topic.split("\n\n") if len(text.split()) > 20
    ]


def squad() -> list[str]:
    """SQuAD's first 2,000 passages, if `DR_DATA` has it."""
    root = data_root()
    if not root or not (root / "squad" / "corpus.jsonl.gz").is_file():
        pytest.skip("needs the folder squad under DR_DATA")
    with gzip.open(root / "squad" / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in islice(lines, 2000)]


@pytest.fixture(
    scope="module", params=[python_reference, squad], ids=lambda source: source.__name__
)
def masks(request, tmp_path_factory):
    """A batch of 500 passages, and masks of half of their words: at random, by `naive` and by
    `minseg` importance.
    """
    place, tokenizer = tmp_path_factory.mktemp("english"), load_tokenizer("embedded")
    rows = datasets.Dataset.from_dict({"text": request.param()})
    store = TokenStore.build(rows, tokenizer, place / "store", columns=("text",))
    counts = count_ngrams(store, place / "counts")
    batch = store.batch(
        np.random.default_rng(0).choice(len(store), 500, replace=False), max_length=144
    )
    source = torch.Generator().manual_seed(0)
    drawn = {"uniform": masking.whole_word(batch, 0.5, source)}
    for pmi in ("naive", "minseg"):
        values = write_importances(counts, store, place / pmi, pmi=pmi)
        weighted = values.attach(batch, max_length=144)
        drawn[pmi] = masking.importance(weighted, weighted.values, 0.5, source)
        drawn[f"{pmi} again"] = masking.importance(weighted, weighted.values, 0.5, source)
    return batch, drawn, np.array(tokenizer.convert_ids_to_tokens(range(store.vocab_size)))


def share_of_stop_words(batch, mask, pieces) -> float:
    """Stop words and punctuation among the hidden words."""
    stop = set(STOP_WORDS.split())
    plain = np.array([piece in stop or not any(map(str.isalnum, piece)) for piece in pieces])
    ends = torch.roll(batch.word_start | batch.special, -1, 1)
    hidden = mask & batch.word_start
    return float((hidden & ends & torch.from_numpy(plain)[batch.input_ids]).sum() / hidden.sum())


def test_importance_hides_far_fewer_stop_words_than_chance(masks):
    batch, drawn, pieces = masks
    share = {name: share_of_stop_words(batch, mask, pieces) for name, mask in drawn.items()}
    assert share["uniform"] > 0.35
    assert share["naive"] < 0.75 * share["uniform"]
    assert share["minseg"] < 0.85 * share["naive"]


def test_two_noisy_masks_agree_on_most_words_but_not_on_all(masks):
    batch, drawn, _ = masks
    for pmi in ("naive", "minseg"):
        first, second = (drawn[name] & batch.word_start for name in (pmi, f"{pmi} again"))
        assert 0.75 < (first & second).sum() / first.sum() < 0.97
