"""On real English, importance-aware masks leave the stop words alone: the point of CDMAE (figures 2
and 3).
"""

import gzip
import json
from itertools import islice
from pydoc_data.topics import topics

import datasets
import numpy as np
import pytest
import torch

from dr_lib import masking
from dr_lib.materials import count_ngrams, write_importances
from dr_lib.places import data_root
from dr_lib.tokens import TokenStore, load_tokenizer

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
    """Its first 2,000 passages, where `DR_DATA` holds it."""
    root = data_root()
    if not root or not (root / "squad" / "corpus.jsonl.gz").is_file():
        pytest.skip("needs the folder squad under DR_DATA")
    with gzip.open(root / "squad" / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in islice(lines, 2000)]


@pytest.fixture(
    scope="module", params=[python_reference, squad], ids=lambda source: source.__name__
)
def masks(request, tmp_path_factory):
    """Of 500 passages: their batch, and half of their words hidden at random, by `naive` and by
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
