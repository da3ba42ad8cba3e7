"""Tokenizers opened by name, those unfit for a masked LM, and a reproducible trained vocabulary."""

import copy
import json
import subprocess
import sys

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, BertTokenizerFast, PreTrainedTokenizerFast

from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.tokens import legibility, load_tokenizer, special_ids, tokenizer_digest, train_wordpiece
from dr_lib.tokens.layout import SPECIAL, _single_pieces


def test_a_local_folder_opens(tiny_tokenizer, sentences, tmp_path):
    tiny_tokenizer.save_pretrained(tmp_path)
    opened = load_tokenizer(tmp_path)
    assert opened(sentences) == tiny_tokenizer(sentences)
    assert tokenizer_digest(opened) == tokenizer_digest(tiny_tokenizer)


def test_embedded_is_the_base_models_tokenizer(tiny_tokenizer, tmp_path, monkeypatch):
    tiny_tokenizer.save_pretrained(tmp_path)
    monkeypatch.setattr(places, "embedded_base", lambda: tmp_path)
    assert tokenizer_digest(load_tokenizer("embedded")) == tokenizer_digest(tiny_tokenizer)


def test_masks_are_masks_to_a_tokenizer_that_an_export_has_saved(tmp_path):
    load_tokenizer("embedded").save_pretrained(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    said = json.loads(config.read_text(encoding="utf-8")) | {"split_special_tokens": True}
    config.write_text(json.dumps(said), encoding="utf-8")
    opened = load_tokenizer(tmp_path)
    opened.save_pretrained(tmp_path / "again")
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    for tokenizer in (opened, again):
        assert tokenizer("[MASK]").input_ids[1:-1] == [tokenizer.mask_token_id]


def test_special_ids_go_by_name(tiny_tokenizer):
    assert special_ids(tiny_tokenizer) == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}


def test_the_digest_ignores_truncation_and_padding(tiny_tokenizer):
    changed = copy.deepcopy(tiny_tokenizer)
    changed.backend_tokenizer.enable_truncation(9)
    changed.backend_tokenizer.enable_padding()
    assert tokenizer_digest(changed) == tokenizer_digest(tiny_tokenizer)


def test_the_digest_follows_vocabulary_and_normaliser(tiny_tokenizer, sentences):
    cased = copy.deepcopy(tiny_tokenizer)
    cased.backend_tokenizer.normalizer = None
    digests = {
        tokenizer_digest(each) for each in (tiny_tokenizer, cased, train_wordpiece(sentences, 120))
    }
    assert len(digests) == 3


@pytest.mark.parametrize("name", ["pad", "unk", "cls", "sep", "mask"])
def test_a_missing_special_token_is_named(tiny_tokenizer, tmp_path, name):
    lacking = copy.deepcopy(tiny_tokenizer)
    setattr(lacking, f"{name}_token", None)
    lacking.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=rf"{tmp_path}: no \[{name.upper()}\] token"):
        load_tokenizer(tmp_path)


def test_two_special_tokens_with_one_id_are_refused(tiny_tokenizer):
    shared = copy.deepcopy(tiny_tokenizer)
    shared.pad_token = shared.unk_token
    with pytest.raises(InputError, match="share an id"):
        special_ids(shared)


def test_other_kinds_of_tokenizer_are_refused():
    raw = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    with pytest.raises(InputError, match="not a WordPiece tokenizer"):
        special_ids(raw)


def test_an_empty_folder_an_unknown_path_and_an_unknown_name_are_refused(tmp_path):
    for name in (tmp_path, tmp_path / "nowhere", "./nowhere", "no-such-owner/no-such-model"):
        with pytest.raises(InputError, match=r"no (such )?model here.*(Give|Check)"):
            load_tokenizer(name)


def test_a_broken_file_is_refused(tmp_path):
    for content, problem in (
        ('{"version": "1.0", "model"', r"tokenizer\.json.*JSON"),
        ("[]", r"tokenizer\.json: is no JSON object"),
        ('{"version": "1.0"}', "cannot open this tokenizer"),
    ):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(InputError, match=problem):
            load_tokenizer(tmp_path)


ODD = [
    "Café in ZÜRICH costs 5€.",
    "東京 is Tokyo, don't\tforget",
    "naïve — «quoted» text… x²",
    "a\u0000b \u200d soft\u00adhyphen",
]

TIES = [f"{a}{b}{c}{a}" for a in "kmnrst" for b in "aeiou" for c in "lpvz"] * 2
SCRIPT = f"""
from dr_lib.tokens.layout import train_wordpiece
print(sorted(train_wordpiece({TIES}, 100).get_vocab().items()))
"""


def library_vocabulary(texts: list[str], vocab_size: int) -> set[str]:
    raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.normalizer, raw.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    settings = {
        "vocab_size": vocab_size,
        "min_frequency": 2,
        "special_tokens": list(SPECIAL),
        "show_progress": False,
    }
    raw.train_from_iterator(texts, trainers.WordPieceTrainer(**settings))
    return set(raw.get_vocab())


def test_single_pieces_are_those_the_library_finds(sentences):
    texts = sentences + ODD
    assert set(_single_pieces(texts)) == library_vocabulary(texts, 0) - set(SPECIAL)


def test_a_text_with_no_ties_gives_the_librarys_vocabulary():
    texts = ["aba " * 40, "abb " * 30, "cab " * 20, "cabba " * 11]
    assert set(train_wordpiece(texts, 40).get_vocab()) == library_vocabulary(texts, 40)


def test_another_process_breaks_ties_the_same_way():
    """The library's trainer by itself gives another vocabulary in every process here."""
    other = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    ).stdout
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
    for opened in (
        AutoTokenizer.from_pretrained(tmp_path),
        BertTokenizerFast.from_pretrained(tmp_path),
    ):
        assert isinstance(opened, BertTokenizerFast)
        assert opened(texts, pairs, truncation=True, max_length=20) == tokenizer(
            texts, pairs, truncation=True, max_length=20
        )
        assert tokenizer_digest(opened) == tokenizer_digest(tokenizer)
        assert (
            opened.decode(opened("a dense retriever")["input_ids"], skip_special_tokens=True)
            == "a dense retriever"
        )


@pytest.mark.parametrize(("texts", "named"), [([], "no text"), (["", " \n"], "no text")])
def test_no_text_is_refused(texts, named):
    with pytest.raises(InputError, match=named):
        train_wordpiece(texts, 100)


def test_a_vocabulary_too_small_for_the_characters_is_refused(sentences):
    with pytest.raises(InputError, match="vocab_size"):
        train_wordpiece(sentences, 20)


def test_what_bm25_drops_and_what_a_tokenizer_does_not_know_is_measured_by_hand():
    tokenizer = load_tokenizer("embedded")
    english = legibility(["The moon pulls the sea.", "Vitamin C"], tokenizer)
    assert english == pytest.approx((1 / 7, 0.0)) and english.warnings() == []
    # of three words and a full stop, two are unknown
    mixed = legibility(["moon ประเทศ ประเทศไทย."], tokenizer)
    assert mixed == (0.0, 2 / 4)
    assert "50% of the words" in mixed.warnings()[0] and "[UNK]" in mixed.warnings()[0]
    assert "BM25 drops 75%" in legibility(["R 5 C plus"]).warnings()[0]
    assert legibility(iter(["R 5 C plus"])) == legibility(["R 5 C plus"])
    assert legibility([], tokenizer) == (0.0, 0.0)
