"""Words and sentences of any language: values by hand, and real questions in three languages with
known scores.
"""

import ast
import json
import re
import shutil
import subprocess
import unicodedata
from collections import Counter
from itertools import chain
from pathlib import Path

import datasets
import numpy as np
import pytest
import regex

from dr_book.generated_queries import asked_once, shared_words
from dr_book.tables import matches
from dr_lib import collections, errors, places
from dr_lib.collections.plain import cut
from dr_lib.evaluation import clusters
from dr_lib.evaluation.measures import check_measures
from dr_lib.materials.continuations import prompts
from dr_lib.materials.texts import distinct
from dr_lib.models import DenseEncoder, SentenceEncoder
from dr_lib.retrieval import Bm25, holds_answer, normal_form
from dr_lib.tokens import TokenStore, check_titles, legibility, train_wordpiece
from dr_lib.words import END, FULL_STOPS, PIECE, fold, pieces, sentences, tokens, words_of

SCRIPT = Path(__file__).parents[1] / "book" / "extra" / "search-page" / "search.js"
OLD_WORDS = re.compile(r"(?u)\b\w\w+\b").findall  # of bm25s and scikit-learn
WORDS = {
    # accents, composed and not, are one text; a mark does not cut its word
    "Cafe\u0301 résumé": ["café", "résumé"],
    "Tie\u0302\u0301ng Vie\u0323\u0302t": ["tiếng", "việt"],
    "हिन्दी में क्या है": ["हिन्दी", "में", "क्या", "है"],
    "தமிழ் மொழி": ["தமிழ்", "மொழி"],
    "שָׁלוֹם עולם": [unicodedata.normalize("NFC", "שָׁלוֹם"), "עולם"],
    # signs of no width belong to no word; one that is a space cuts
    "می\u200cخواهم soft\u00adhyphen zero\u200bwidth": ["میخواهم", "softhyphen", "zero", "width"],
    # case, ligatures, wide forms
    "İSTANBUL I\u0307stanbul istanbul": ["istanbul"] * 3,
    "STRASSE Straße": ["strasse"] * 2,
    "ΟΔΥΣΣΕΥΣ Οδυσσεύς": ["οδυσσευσ", "οδυσσεύσ"],
    "ﬁnd ｗｉｄｅ km²": ["find", "wide", "km2"],
    # non-letters stay non-letters
    "Windows™ 25℃ 10–20": ["windows", "25", "10", "20"],
    # pairs of letters in scripts without spaces, with their marks; a single one is a word
    "東京タワー": ["東京", "京タ", "タワ", "ワー"],
    "ﾃﾞｰﾀ 猫": ["デー", "ータ", "猫"],
    "iPhone手机5壳": ["iphone", "手机", "壳"],
    "한국어는 좋다": ["한국", "국어", "어는", "좋다"],
    "กินที่": ["กิน", "นที่"],
    # one character is none, as ever
    "R 5 C++ c# World War 1 é": ["world", "war"],
    "": [],
    "_x __init__ a_b": ["_x", "__init__", "a_b"],
}
ALPHABETS = (
    "abc XYZ 019_ .,;'\"-()\n",
    "éàßçÄÖÜß œŒ e\u0301o\u0302 ﬁ ½ ² ™ –",
    "אבגש\u05b8 ل\u064fم\u0640ن\u200cی ؟ ",
    "कखगि\u094d\u0902ी। தமி\u0bcd ",
    "ΑΣςσάЙйЁёІı İi\u0307",
    "東京都大学。、！ ひらがなカタカナーﾃﾞﾀ〇々 ",
    "ภาษาไทยกำที่ ລາວ ខ្មែរ မြန်မာ ",
    "한국어 \u1112\u1161\u11ab ",
    "\u00ad\u200b\u200d\u2060 \ufeff𝔘𠀀😀",
)


def random_text(draw: np.random.Generator, alphabets: tuple[str, ...] = ALPHABETS) -> str:
    letters = "".join(draw.choice(alphabets, int(draw.integers(1, 4))))
    return "".join(draw.choice(list(letters), int(draw.integers(0, 60))))


@pytest.mark.parametrize("text", WORDS)
def test_words_of_every_script(text):
    assert words_of(text) == WORDS[text]


@pytest.mark.parametrize("seed", range(20))
def test_words_of_ascii_text_are_those_of_bm25s(seed):
    draw = np.random.default_rng(seed)
    signs = [chr(code) for code in range(128)]
    for _ in range(200):
        text = "".join(draw.choice(signs, int(draw.integers(0, 80))))
        assert words_of(text) == OLD_WORDS(text.lower())
        assert words_of(text, shortest=1) == re.findall(r"\w+", text.lower())
        # the way of all languages gives the same
        assert words_of(f"{text} é") == words_of(text)
        assert tokens(text) == tokens(f"{text} é")[:-1]


@pytest.mark.parametrize("seed", range(20))
def test_words_do_not_depend_on_how_their_text_is_encoded_and_are_found_again(seed):
    draw = np.random.default_rng(seed)
    for _ in range(100):
        text = random_text(draw)
        found = words_of(text)
        assert found == words_of(unicodedata.normalize("NFD", text))
        assert [fold(word) for word in found] == found
        assert "".join(piece for piece, _ in matches(text, set(found))) == unicodedata.normalize(
            "NFC", text
        )


@pytest.mark.skipif(not shutil.which("node"), reason="needs node (Debian: apt install nodejs)")
def test_the_page_cuts_words_as_the_library_does():
    draw = np.random.default_rng(0)
    known = [
        chr(code) for code in range(32, 0x20000) if unicodedata.category(chr(code))[0] in "LMNP"
    ]
    # Cherokee is folded to capitals here and to small letters there: equal words stay equal
    known = [letter for letter in known if "CHEROKEE" not in unicodedata.name(letter, "")]
    texts = [*WORDS, *(random_text(draw) for _ in range(500))]
    texts += ["".join(draw.choice(known, 40)) for _ in range(500)] + [" x".join(known)]
    code = (
        f"const page = require({json.dumps(str(SCRIPT))}); const texts ="
        " JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        " console.log(JSON.stringify(texts.map(page.words)))"
    )
    done = subprocess.run(
        ["node", "-e", code], input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    for text, words in zip(texts, json.loads(done.stdout), strict=True):
        assert words == words_of(text), ascii(text)


def test_words_that_match_are_marked_and_the_text_stays():
    found = matches("Les cafe\u0301s; 東京都, 京", {"cafés", "京都"})
    assert found == [
        ("Les ", False), ("cafés", True), ("; 東", False), ("京都", True), (", 京", False)
    ]  # fmt: skip


# Retrieval ----------------------------------------------------------------------------------------


def mrr(passages: datasets.Dataset, collection: collections.Collection) -> float:
    """MRR@10 of BM25 in percent, with these passages instead of the collection's."""
    queries = collection.queries("test")
    ranking = Bm25.build(passages).search(queries["text"][:], 10)
    wanted = collection.relevant_rows("test")
    ranks = (
        np.flatnonzero(np.isin(row, rows)) for row, rows in zip(ranking.rows, wanted, strict=True)
    )
    return 100 * float(np.mean([1 / (hit[0] + 1) if len(hit) else 0 for hit in ranks]))


def xquad(language: str) -> collections.Collection:
    if places.find_data(f"xquad-{language}") is None:
        pytest.skip("the data folder has no XQuAD")
    return collections.load(f"xquad-{language}")


@pytest.mark.parametrize(("language", "right"), [("zh", 95.7), ("vi", 94.1), ("de", 91.2)])
def test_bm25_finds_the_paragraphs_of_real_questions(language, right):
    collection = xquad(language)
    assert mrr(collection.passages, collection) == pytest.approx(right, abs=0.5)


def test_a_decomposed_collection_is_found_as_the_composed_one():
    collection = xquad("vi")
    apart = collection.passages.map(
        lambda row: {"text": unicodedata.normalize("NFD", row["text"])}, keep_in_memory=True
    )
    assert apart["text"][0] != collection.passages["text"][0]
    assert mrr(apart, collection) == mrr(collection.passages, collection)


def test_french_in_decomposed_files_is_found_by_composed_questions():
    draw = np.random.default_rng(1)
    letters = list("éèêàçùôîëabdeglmnoprstuv")
    lexicon = ["".join(draw.choice(letters, 6)) for _ in range(400)]
    texts = [" ".join(draw.choice(lexicon, 30)) for _ in range(200)]
    queries = [" ".join(draw.choice(text.split(), 4, replace=False)) for text in texts]
    found = []
    for form in ("NFC", "NFD"):
        rows = {"title": [""] * 200, "text": [unicodedata.normalize(form, text) for text in texts]}
        index = Bm25.build(datasets.Dataset.from_dict(rows))
        found.append(index.search(queries, 10))
    assert np.array_equal(found[0].rows, found[1].rows)
    assert np.array_equal(found[0].scores, found[1].scores)
    assert (found[1].rows[:, 0] == np.arange(200)).mean() > 0.98


def test_passages_in_a_script_with_vowel_signs_are_found_by_their_own_words():
    draw = np.random.default_rng(0)
    consonants, signs = "कखगघचजटडतदनपबमयरलवसह", ["", "ि", "ी", "ु", "े", "ो", "ं", "्र"]
    lexicon = [
        "".join(
            a + b
            for a, b in zip(draw.choice(list(consonants), 2), draw.choice(signs, 2), strict=True)
        )
        for _ in range(400)
    ]
    texts = [" ".join(draw.choice(lexicon, 30)) for _ in range(200)]
    passages = datasets.Dataset.from_dict({"title": [""] * 200, "text": texts})
    queries = [" ".join(draw.choice(text.split(), 4, replace=False)) for text in texts]
    first = Bm25.build(passages).search(queries, 1).rows[:, 0]
    assert (first == np.arange(200)).mean() > 0.98


# Answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "text", "holds"),
    [
        ("C", "written in C++", True),
        ("neil", "O'Neil", True),
        ("cafe\u0301", "Le Café.", True),
        ("Istanbul", "in İSTANBUL,", True),
        ("1999", "in 19990", False),
        ("北京", "他住在北京市。", True),
        ("京北", "他住在北京市。", False),
        ("Windows", "Windows™ 11", True),
        ("हिन्दी", "यह हिन्दी है।", True),
        ("हिन", "यह हिन्दी है।", False),
    ],
)
def test_answers_are_whole_tokens_of_every_script(answer, text, holds):
    assert (normal_form(answer) in normal_form(text)) is holds


def dpr_tokens(text: str) -> list[str]:
    """DPR's rule: Unicode NFD, lower case, runs of letters, marks and digits, or other visible
    characters.
    """
    import regex

    cut = regex.findall(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", unicodedata.normalize("NFD", text))
    return [token.lower() for token in cut]


@pytest.mark.parametrize("seed", range(10))
def test_whatever_holds_an_answer_by_dprs_rule_holds_it(seed):
    draw = np.random.default_rng(seed)
    for _ in range(200):
        text = random_text(draw, ALPHABETS[:-1]).replace("\u200c", "")
        parts = text.split()
        answer = " ".join(parts[len(parts) // 3 : len(parts) // 2 + 1])
        line = [f" {' '.join(dpr_tokens(part))} " for part in (answer, text)]
        if line[0] in line[1]:
            assert normal_form(answer) in normal_form(text)
        assert text.isascii() <= (tokens(text) == dpr_tokens(text))


# Sentences ----------------------------------------------------------------------------------------

SENTENCES = {
    "English": ("Sort the rows, e.g. by name.", "The order is kept.", "3 of 4 stay."),
    "quotes": ("He said “no.”", "Then ‘yes!’", "“Why?”", "It stays."),
    "Russian": ("Это море в г. Москва.", "Вода солёная!", "Ёлка растёт?", "Да."),
    "Greek": ("Η θάλασσα είναι μεγάλη.", "Έχει αλάτι.", "Άρα;"),
    "French": ("Il dit : « Oui. »", "Puis il part.", "Été comme hiver.", "À bientôt."),
    "German": ("Das Meer ist groß.", "Überall ist Salz.", "Öl auch."),
    "Spanish": ("El mar es grande.", "¿Por qué?", "¡Ay!"),
    "Arabic": ("هذا بحر.", "هل هذا بحر؟", "نعم هو بحر."),
    "Hindi": ("यह समुद्र है।", "पानी खारा है।", "क्यों?", "पता नहीं।"),
    "Armenian": ("Սա ծով է։", "Ջուրը աղի է։"),
    "Burmese": ("ဒါက ပင်လယ်။", "ရေက ငန်တယ်။"),
}


@pytest.mark.parametrize("language", SENTENCES)
def test_sentences_end_where_they_end(language):
    assert sentences(" ".join(SENTENCES[language])) == list(SENTENCES[language])


@pytest.mark.parametrize("sign", FULL_STOPS)
def test_every_full_stop_ends_a_sentence(sign):
    assert sentences(f"один{sign} Два") == [f"один{sign}", "Два"]


def test_chinese_sentences_end_without_a_space():
    assert sentences("他说：“海很大。”水是咸的！真的？？是。") == [
        "他说：“海很大。”", "水是咸的！", "真的？？", "是。"
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_sentences_of_ascii_text_are_cut_by_one_rule_in_both_ways(seed):
    draw = np.random.default_rng(seed)
    parts = [
        "The cat",
        "e.g.",
        "et al.",
        "No.",
        "a",
        "B",
        "3",
        ".",
        "!",
        "?",
        " ",
        " ",
        '"',
        "(",
        ")",
        "Fig.",
        "%",
    ]
    for _ in range(100):
        text = "".join(draw.choice(parts, int(draw.integers(0, 30))))
        assert sentences(text) == [part for part in END.split(text) if part]


@pytest.mark.parametrize("seed", range(20))
def test_the_short_ways_of_sentences_and_pieces_give_the_same(seed):
    """The slow ways look after every character, and split every word, ASCII or not."""
    draw = np.random.default_rng(seed)
    slow = regex.compile(END.pattern.replace(r"(?=\s)", "", 1), regex.V1)
    assert slow.pattern != END.pattern
    parts = [part for said in SENTENCES.values() for part in " ".join(said).split()]
    parts += ["a.", "é.", "« B", "»", "…”", "。」", "！", "水x", "x水", "3", " ", "\u00a0"]
    for _ in range(100):
        text = " ".join(draw.choice(parts, int(draw.integers(1, 30))))
        assert sentences(text) == [part for part in slow.split(text) if part]
        cut_up = [PIECE(word) for word in text.split()]
        expected = [f" {first}{''.join(more)}" for first, *more in cut_up]
        assert "".join(pieces(text)) == "".join(expected)
        assert len(pieces(text)) == (len(text.split()) if text.isascii() else sum(map(len, cut_up)))


def test_running_text_is_cut_at_sentence_ends_in_every_language():
    for language, said in SENTENCES.items():
        passages = cut([" ".join(said * 40)], words=40)
        ends = [passage.endswith(said) for passage in passages]
        assert len(passages) > 5 and all(ends), language
        assert " ".join(passages) == " ".join(said * 40)


def test_text_without_spaces_is_cut_into_passages_too():
    text = "海很大，水是咸的。" * 200
    passages = cut([text], words=100)
    assert "".join(passages) == text
    assert all(passage.endswith("。") for passage in passages)
    # two letters are counted as a word
    assert {len(pieces(passage)) <= 100 for passage in passages[:-1]} == {True}
    assert cut(["水" * 500], words=100) == ["水" * 200, "水" * 200, "水" * 100]


def readers_of_texts() -> set[tuple[str, str]]:
    """Public functions of the library, by module and name, with a parameter for a sequence of
    texts.
    """
    places_of = Path(errors.__file__).parent.rglob("*.py")
    return {
        (path.stem, function.name)
        for path in places_of
        for function in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(function, ast.FunctionDef) and not function.name.startswith("_")
        for argument in function.args.args
        if argument.arg in ("texts", "queries", "questions") and argument.annotation
        if ast.unparse(argument.annotation) in ("Sequence[str]", "Iterable[str]")
    }


def test_one_text_in_place_of_a_list_is_refused_wherever_texts_are_read():
    passages = datasets.Dataset.from_dict({"title": [""], "text": ["red foxes"]})
    index = Bm25.build(passages)
    dense, other = (object.__new__(kind) for kind in (DenseEncoder, SentenceEncoder))
    dense.__dict__["tokenizer"] = None
    pair, text = np.zeros(1, np.int64), "foxes"
    calls = {
        ("dense", "encode"): [lambda: dense.encode(text), lambda: other.encode(text)],
        ("bm25", "search"): [lambda: index.search(text, 1)],
        ("bm25", "pair_scores"): [lambda: index.pair_scores(text, pair, pair)],
        ("store", "of"): [
            lambda: TokenStore.of(text, None),
            lambda: TokenStore.of([text], None, text),
        ],
        ("layout", "check_titles"): [lambda: check_titles(text, None)],
        ("layout", "legibility"): [lambda: legibility(text)],
        ("layout", "train_wordpiece"): [lambda: train_wordpiece(text)],
        ("clusters", "question_templates"): [lambda: clusters.question_templates(text, text)],
        ("texts", "distinct"): [lambda: distinct(text, Counter())],
        ("continuations", "prompts"): [lambda: prompts(text, None, 3)],
    }
    of_the_book = [
        lambda: asked_once(text),
        lambda: shared_words(text, [text]),
        lambda: shared_words([text], text),
    ]
    # "texts" of `beir.usual` are the names of fields
    assert readers_of_texts() - {("beir", "usual")} == set(calls)
    for call in chain(*calls.values(), of_the_book):
        with pytest.raises(errors.InputError, match=r"a text, not a list of texts\. Put it into"):
            call()
    for call in (
        lambda: dense.encode([text], text),
        lambda: other.encode([text], text),
        lambda: index.search([text], 1, query_ids=text),
        lambda: check_measures("R@1", None, "test"),
        lambda: holds_answer(np.zeros((1, 1), int), passages, [text]),
    ):
        with pytest.raises(errors.InputError, match="a text, not a list of texts"):
            call()
    for encoder in (dense, other):
        with pytest.raises(errors.InputError, match="titles: 1 for 2 texts"):
            encoder.encode([text, text], [text])
