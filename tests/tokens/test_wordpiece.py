"""The trained vocabulary: the library's algorithm, the same pieces every time, and at home in transformers."""

import subprocess
import sys

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, BertTokenizerFast

from dr_lib.errors import InputError
from dr_lib.tokens import tokenizer_digest, train_wordpiece
from dr_lib.tokens.tokenizer import SPECIAL, _single_pieces

ODD = [
    "Café in ZÜRICH costs 5€.",
    "東京 is Tokyo, don't\tforget",
    "naïve — «quoted» text… x²",
    "a\u0000b \u200d soft\u00adhyphen",
]

TIES = [f"{a}{b}{c}{a}" for a in "kmnrst" for b in "aeiou" for c in "lpvz"] * 2
SCRIPT = f"""
from dr_lib.tokens.tokenizer import train_wordpiece
print(sorted(train_wordpiece({TIES}, 100).get_vocab().items()))
"""


def library_vocabulary(texts: list[str], vocab_size: int) -> set[str]:
    raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.normalizer, raw.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    settings = {"vocab_size": vocab_size, "min_frequency": 2, "special_tokens": list(SPECIAL), "show_progress": False}
    raw.train_from_iterator(texts, trainers.WordPieceTrainer(**settings))
    return set(raw.get_vocab())


def test_single_pieces_are_those_the_library_finds(sentences):
    texts = sentences + ODD
    assert set(_single_pieces(texts)) == library_vocabulary(texts, 0) - set(SPECIAL)


def test_a_text_with_no_ties_gives_the_librarys_vocabulary():
    texts = ["aba " * 40, "abb " * 30, "cab " * 20, "cabba " * 11]
    assert set(train_wordpiece(texts, 40).get_vocab()) == library_vocabulary(texts, 40)


def test_another_process_breaks_ties_the_same_way():
    """The library's trainer alone gives another vocabulary in every process here."""
    other = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout
    assert other.strip() == str(sorted(train_wordpiece(TIES, 100).get_vocab().items()))


def test_the_order_of_texts_does_not_matter(sentences):
    forward, backward = train_wordpiece(sentences, 200), train_wordpiece(iter(sentences[::-1]), 200)
    assert forward.get_vocab() == backward.get_vocab()


def test_special_tokens_have_the_first_ids_and_the_size_is_kept(sentences):
    tokenizer = train_wordpiece(sentences * 2, 150)
    assert tokenizer.convert_ids_to_tokens(range(5)) == list(SPECIAL)
    assert len(tokenizer) == 150
    assert sorted(tokenizer.get_vocab().values()) == list(range(150))


def test_accents_and_case_are_folded(sentences):
    tokenizer = train_wordpiece([*sentences, "zurich naive"], 200)
    assert tokenizer("ZÜRICH naïve")["input_ids"] == tokenizer("zurich naive")["input_ids"]


def test_a_saved_folder_opens_in_transformers_with_the_same_ids(sentences, tmp_path):
    tokenizer = train_wordpiece(sentences, 200)
    tokenizer.save_pretrained(tmp_path)
    texts, pairs = sentences + ODD, ODD[:1] * (len(sentences) + len(ODD))
    for opened in (AutoTokenizer.from_pretrained(tmp_path), BertTokenizerFast.from_pretrained(tmp_path)):
        assert isinstance(opened, BertTokenizerFast)
        assert opened(texts, pairs, truncation=True, max_length=20) == tokenizer(
            texts, pairs, truncation=True, max_length=20
        )
        assert tokenizer_digest(opened) == tokenizer_digest(tokenizer)
        assert opened.decode(opened("a dense retriever")["input_ids"], skip_special_tokens=True) == "a dense retriever"


@pytest.mark.parametrize(("texts", "named"), [([], "no text"), (["", " \n"], "no text"), ("one string", "texts")])
def test_no_text_is_refused(texts, named):
    with pytest.raises(InputError, match=named):
        train_wordpiece(texts, 100)


def test_a_vocabulary_too_small_for_the_characters_is_refused(sentences):
    with pytest.raises(InputError, match="vocab_size"):
        train_wordpiece(sentences, 20)
