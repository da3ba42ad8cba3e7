"""Words and sentences of any language: the one place that decides where they begin and end.

Text is cut in its composed form (Unicode NFC), then each word is folded: compatibility forms become
plain ones (NFKC), letters lower case (full case folding), the dot that a lower-case Turkish İ
leaves behind is dropped. So a text finds its twin that was written with other code points, and
*Straße* finds *STRASSE*. Marks (accents, vowel signs) and joiners stay inside their word.

A script without spaces has no visible words: there, and in Hangul, whose words include their
particles, every two neighbouring letters count as a word, as in Lucene's CJKBigramFilter; a letter
is taken with its marks, and a single letter is a word. Elsewhere a word has at least two
characters, as in bm25s and scikit-learn: *vitamin C* is found by *vitamin* alone.

Pure ASCII text takes a faster path with the same result. The page that searches in the browser
(`book/extra/search-page/search.js`) implements `words_of` in JavaScript, tested to be equal. Page
of the book: practice/languages.
"""

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise

import regex

SPACELESS = "Han Hiragana Katakana Bopomofo Yi Thai Lao Khmer Myanmar Tai_Le New_Tai_Lue"
SPACELESS += " Tai_Tham Tai_Viet Javanese Balinese"
"""Scripts without spaces between words, by their Unicode names."""
JOINERS = r"\u00ad\u200c\u200d\u2060\ufeff"
"""Soft hyphen, joiners and non-joiner, signs of no width: inside a word, and no part of it."""
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a pair that stands for one character: no text, and no UTF-8 file can hold it."""


def _letters(scripts: str) -> str:
    """The regex class of all letters of some scripts, with the Japanese marks of long vowels and
    voicing.
    """
    names = "".join(rf"\p{{{script}}}" for script in scripts.split())
    return rf"[[{names}\u30fc\uff70\uff9e\uff9f]&&[\p{{L}}\p{{Nl}}]]"


def _compiled(pattern: str) -> regex.Pattern:
    return regex.compile(pattern, regex.V1)


UNSPACED, PAIRED = _letters(SPACELESS), _letters(f"{SPACELESS} Hangul")
SPELT = rf"[[\p{{L}}\p{{N}}\p{{M}}{JOINERS}]--{PAIRED}]"
RUN = _compiled(rf"(?:{PAIRED}[\p{{M}}{JOINERS}]*)+|[[\p{{L}}\p{{N}}_]--{PAIRED}](?:{SPELT}|_)*")
TOKEN = _compiled(
    rf"{PAIRED}[\p{{M}}{JOINERS}]*|[{SPELT}--[{JOINERS}]]{SPELT}*|[^\p{{Z}}\p{{C}}]"
).findall
PAIRS, LETTER = _compiled(rf"{PAIRED}").match, _compiled(r"\P{M}\p{M}*").findall
DROPPED = _compiled(rf"[{JOINERS}\s]").sub
DOTTED = re.compile("i\u0307+").sub
CHUNK = re.compile(r"[\w\x80-\U0010ffff]+").findall
"""Stretches without ASCII punctuation or space: in most texts, few need the rule for all languages.
"""
ASCII_WORDS = {1: re.compile(r"\w+").findall, 2: re.compile(r"\w\w+").findall}
ASCII_TOKEN = re.compile(r"[a-z0-9]+|[!-~]").findall


def words_of(text: str, shortest: int = 2) -> list[str]:
    """The words by which a text is searched, folded, in order.

    Args:
        text: any text.
        shortest: fewest characters of a word, 1 or 2; in scripts whose letters count in pairs, a
            single one is always a word.

    Example:
        >>> words_of("Cafe\u0301s of İstanbul, No. 5"), words_of("東京タワー 猫")
        (['cafés', 'of', 'istanbul', 'no'], ['東京', '京タ', 'タワ', 'ワー', '猫'])
    """
    if text.isascii():
        return ASCII_WORDS[shortest](text.lower())
    words: list[str] = []
    for chunk in CHUNK(unicodedata.normalize("NFC", text)):
        if not chunk.isascii():
            words += _words_in(chunk, shortest)
        elif len(chunk) >= shortest:
            words.append(chunk.lower())
    return words


@lru_cache(1 << 16)
def _words_in(chunk: str, shortest: int) -> tuple[str, ...]:
    """The words of a chunk that is not pure ASCII."""
    words: list[str] = []
    for run in RUN.findall(chunk):
        folded = fold(run)
        if PAIRS(run):
            letters = LETTER(folded)
            words += map("".join, pairwise(letters)) if letters[1:] else letters
        elif len(DROPPED("", run)) >= shortest:
            words.append(folded)
    return tuple(words)


def fold(word: str) -> str:
    """The normal form of a word, the same for all spellings of it.

    Example:
        >>> fold("STRASSE") == fold("Straße"), fold("İ"), fold("ﬁn"), fold("Ａ")
        (True, 'i', 'fin', 'a')
    """
    if word.isascii():
        return word.lower()
    small = DOTTED("i", unicodedata.normalize("NFKC", word).casefold())
    return unicodedata.normalize("NFKC", DROPPED("", small))


def tokens(text: str, *, signs: bool = True) -> list[str]:
    """The tokens of a text by DPR's rule for answers: runs of letters, marks and digits, and other
    visible characters one by one.

    Tokens are folded, and letters of scripts without spaces are tokens of their own, so that an
    answer is found inside a sentence. Paper and code: DPR only lower-cases letters.

    Args:
        text: any text.
        signs: whether characters other than letters, marks and digits are tokens too.

    Example:
        >>> tokens("O'Neil, 1999"), tokens("O'Neil, 1999", signs=False), tokens("北京市")
        (['o', "'", 'neil', ',', '1999'], ['o', 'neil', '1999'], ['北', '京', '市'])
    """
    if text.isascii():
        parts = ASCII_TOKEN(text.lower())
    else:
        parts = list(map(_token, TOKEN(unicodedata.normalize("NFC", text))))
    return parts if signs else [token for token in parts if token[0].isalnum()]


_token = lru_cache(1 << 16)(fold)


# Sentences ----------------------------------------------------------------------------------------

ABBREVIATIONS = [
    *["e.g", "i.e", "cf", "vs", "etc", "Eq", "Fig", "Dr", "resp", "Ref", "approx", "No"],
    "et al",
]
NO_END = "".join(f"(?<!{re.escape(word)}[.])" for word in ABBREVIATIONS)
ASCII_END = re.compile(rf"(?<=[a-z0-9)\]\"'%][.!?]){NO_END}\s+(?=[\"'(]?[A-Z0-9])")
FULL_STOPS = ".!?。！？｡।॥؟۔։።။។"
"""Signs that end a sentence, each of which a tokenizer makes its own piece."""
CLOSING = "”’»」』）】"
END = _compiled(
    # A full stop ends a sentence between a small letter and a capital one; a script that has no
    # capitals has letters. One small letter that is not of ASCII is an abbreviation.
    # Where no space follows, nothing is looked at behind.
    rf"(?=\s)(?:(?<=[\p{{Ll}}\p{{Lo}}\p{{Lm}}\p{{M}}\p{{Nd}})\]\"'%°{CLOSING}]"
    rf"[.!?…](?:[”’]|\s?»)?){NO_END}"
    r"(?<!(?<![\p{L}\p{M}])[\p{Ll}--[a-z]][.])"
    r"\s+(?=(?:[\"'(‘“„¿¡]|[«‹]\s?)?[\p{Lu}\p{Lt}\p{Lo}\p{Nd}])"
    # Other scripts' full stops say it themselves, in Chinese and Japanese without a space behind.
    rf"|(?<=[\p{{Sentence_Terminal}}--[.!?]][{CLOSING}]*)\s+)"
    rf"|(?<=[。！？｡][{CLOSING}]*)(?![{CLOSING}。！？｡\s])"
)


def sentences(text: str) -> list[str]:
    """Cut plain text at sentence ends.

    Example:
        >>> sentences("Sort the rows, e.g. by name. The order is kept. 3 of 4 stay.")
        ['Sort the rows, e.g. by name.', 'The order is kept.', '3 of 4 stay.']
        >>> sentences("Это море. Вода солёная. 海很大。水是咸的。")
        ['Это море.', 'Вода солёная.', '海很大。', '水是咸的。']
    """
    parts = ASCII_END.split(text) if text.isascii() else END.split(text)
    return [part for part in parts if part]


PIECE = _compiled(rf"(?:{UNSPACED}\p{{M}}*){{1,2}}\p{{P}}*|(?:(?!{UNSPACED}).)+").findall


LONGEST_WORD, RUN_OF_WORD = 1000, 10
"""A stretch of more characters than the first is not a word; every ten of its characters (about a
word with its space) count as one.
"""


def pieces(text: str) -> list[str]:
    """A text in pieces that each count as a word of its length: what stands between spaces; in
    scripts without spaces, two letters; of what is longer than any word, such as a picture in base
    64, ten characters.

    Returns:
        Pieces, each with one space before it where the text has any; joined, they are the text with
        single spaces.

    Example:
        >>> pieces("One two"), pieces("海很大。水")
        ([' One', ' two'], [' 海很', '大。', '水'])
    """
    if text.isascii():
        parts = [f" {word}" for word in text.split()]
    else:
        parts = [
            f" {piece}" if not place else piece
            for word in text.split()
            for place, piece in enumerate([word] if word.isascii() else PIECE(word))
        ]
    if max(map(len, parts), default=0) <= LONGEST_WORD:
        return parts
    return [
        part[start : start + size]
        for part in parts
        for size in [RUN_OF_WORD if len(part) > LONGEST_WORD else len(part)]
        for start in range(0, len(part), size)
    ]
