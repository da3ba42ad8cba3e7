"""Which words a mask hides, counted by hand."""

import html

import datasets
import numpy as np
import pytest
import torch

from dr_lib import masking, report
from dr_lib.errors import InputError
from dr_lib.tokens import TokenStore, load_tokenizer

TEXTS = ["the hippopotamus sees the river , the river", "a river", "... ?"]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Three short passages; `hippopotamus` is a word of several pieces."""
    tokenizer = load_tokenizer("embedded")
    rows = datasets.Dataset.from_dict({"text": TEXTS})
    folder = tmp_path_factory.mktemp("words") / "store"
    store = TokenStore.build(rows, tokenizer, folder, columns=("text",), progress=False)
    return report.BatchWords(store.batch(np.arange(3), max_length=32), tokenizer)


def mask_of(words, names):
    """A mask that hides the words of these names, whole."""
    of_word = words.batch.word_start.cumsum(1) - 1
    chosen = torch.zeros_like(words.batch.special)
    for row in range(len(words.batch)):
        own = words.names[words.rows == row]
        wanted = torch.tensor([name in names for name in own])
        chosen[row] = wanted[of_word[row].clamp(0, len(own) - 1)] & ~words.batch.special[row]
    return chosen


def test_words_are_whole_and_in_their_order(words):
    assert words.names[words.rows == 0].tolist() == TEXTS[0].split()
    assert words.names[words.rows == 1].tolist() == ["a", "river"]
    assert (words.batch.word_start[0].sum() < (~words.batch.special[0]).sum()).item()


def test_stop_words_and_punctuation_are_plain(words):
    assert set(words.names[words.plain]) == {"the", ",", "a", ".", "?"}


def test_the_words_hidden_most_often_come_first(words):
    top = words.top(mask_of(words, {"the", "river", "sees"}), number=2)
    assert list(top) == ["the", "river"]
    assert list(top.values()) == pytest.approx([3 / 7, 3 / 7])


def test_share_of_plain_words_by_passage(words):
    found = words.share(mask_of(words, {"the", "river"}), words.plain)
    np.testing.assert_allclose(found, [3 / 5, 0.0, np.nan])


def test_agreement_is_the_share_hidden_by_both(words):
    first, second = mask_of(words, {"the", "river"}), mask_of(words, {"river", "?"})
    np.testing.assert_allclose(words.share(first, words.hidden(second)), [2 / 5, 1.0, np.nan])


def test_every_word_is_hidden_by_a_full_mask(words):
    everything = masking.whole_word(words.batch, 1.0, torch.Generator())
    assert words.hidden(everything).all()
    assert not words.hidden(torch.zeros_like(everything)).any()


def test_a_mask_of_another_batch_is_refused(words):
    with pytest.raises(InputError, match="mask"):
        words.hidden(torch.zeros(1, 1, dtype=torch.bool))


def test_mean_share_leaves_out_passages_without_hidden_words():
    assert report.mean_share(np.array([0.5, np.nan, 1.0])).mean == 75.0


def test_figures_tell_what_they_show_and_escape_it():
    top = report.top_words_figure({"uniform": {"<b>": 0.25, "$x$": 0.5}}).data
    assert html.escape("uniform: <b> 25.0 %, $x$ 50.0 %.") in top
    shares = report.hidden_share_figure(["a", "very-long-word-indeed"], {"uniform": np.array([0.5, 0.25])}).data
    assert "a: uniform 50 %, very-long-word-indeed: uniform 25 %" in shares
