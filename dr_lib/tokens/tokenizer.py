"""Open a tokenizer, check that it serves a masked language model of BERT's kind, name it by its
digest; train one.

A vocabulary is trained with BERT's normaliser and word borders by `tokenizers`' own trainer (pairs
of pieces merged by count; BERT, Devlin et al. 2019). Left alone, that trainer numbers the single
characters in the order of a randomly seeded hash table, and since ties between equally frequent
pairs are broken by those numbers, two runs over one text give two vocabularies. Here the characters
are counted first and handed to the trainer in a fixed order, which fixes everything after.
Explained in the book's chapter on your own corpus.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, BertTokenizerFast, PreTrainedTokenizerFast

from dr_lib.errors import InputError, first_line
from dr_lib.files import json_digest
from dr_lib.places import embedded_base, from_hub
from dr_lib.words import words_of

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PREFIX = "##"  # of a piece that continues a word
ALPHABET = 1000
CHUNK = 1000
CODES = sys.maxunicode + 1
MANY_LOST, MANY_UNKNOWN = 0.2, 0.02
"""Shares of words from which on a user is told that they are lost, or unknown."""

NORMALISE = normalizers.BertNormalizer(lowercase=True)
WORDS = pre_tokenizers.BertPreTokenizer()
SPECIAL_NAMES = ("pad", "unk", "cls", "sep", "mask")
TOKENIZER_FILES = ("*.json", "vocab.txt")
WAY_OUT = (
    'Give "embedded", a folder with a saved tokenizer, or a name on the hub that this machine can'
    " reach."
)


def load_tokenizer(name_or_path: str | Path) -> PreTrainedTokenizerFast:
    """Open a WordPiece tokenizer by name.

    Args:
        name_or_path: ``"embedded"`` for the one that is part of the book, a local folder, or a name
            on the hub.

    Raises:
        InputError: there is no such tokenizer, it is not WordPiece, or it lacks a special token.
    """
    place = Path(embedded_base() if name_or_path == "embedded" else name_or_path).expanduser()
    local = place.is_absolute() or str(name_or_path).startswith((".", "~")) or place.exists()
    if local and not any((place / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise InputError("no tokenizer.json or vocab.txt in this folder", where=place, fix=WAY_OUT)
    folder = place if place.is_dir() else from_hub(str(name_or_path), TOKENIZER_FILES, WAY_OUT)
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
    except Exception as error:  # the Rust library raises plain Exception for a broken file
        raise InputError(
            f"cannot open this tokenizer ({first_line(error)})", where=place, fix=WAY_OUT
        ) from error
    special_ids(tokenizer, where=place)
    return tokenizer


class Legibility(NamedTuple):
    """How much of some texts a search can see.

    Attributes:
        lost: share of words that BM25 drops because they have one character; 0.03 to 0.07 in
            English.
        unknown: share of words that a tokenizer answers ``[UNK]``, so that a model cannot tell one
            from another; nearly 0 in a language that it was made for.
    """

    lost: float
    unknown: float

    def warnings(self) -> list[str]:
        """What a user should be told, one sentence each; none where all is well."""
        said = []
        if self.lost > MANY_LOST:
            said.append(
                f"BM25 drops {self.lost:.0%} of the words, which have one character: it finds"
                " nothing by them."
            )
        if self.unknown > MANY_UNKNOWN:
            said.append(
                f"The model's tokenizer does not know {self.unknown:.0%} of the words and reads"
                " each as [UNK]: take a model made for the language."
            )
        return said


def legibility(
    texts: Sequence[str], tokenizer: PreTrainedTokenizerFast | None = None
) -> Legibility:
    """Measure whether some texts are in a language that BM25 and a model can read.

    Args:
        texts: a sample will do.
        tokenizer: of the model; without one nothing is unknown.

    Example:
        >>> legibility(["Vitamin C and D"])
        Legibility(lost=0.5, unknown=0.0)
        >>> read = legibility(["The moon pulls the sea. ประเทศไทย"], load_tokenizer("embedded"))
        >>> round(read.unknown, 2)
        0.14
    """
    seen, written = (
        sum(len(words_of(text, shortest=shortest)) for text in texts) for shortest in (2, 1)
    )
    known = unknown = 0
    for start in range(0, len(texts) if tokenizer else 0, CHUNK):
        coded = tokenizer(list(texts[start : start + CHUNK]), add_special_tokens=False)
        for encoding in coded.encodings:
            known += len(set(encoding.word_ids))
            unknown += encoding.ids.count(tokenizer.unk_token_id)
    return Legibility((written - seen) / max(1, written), unknown / max(1, known))


def special_ids(tokenizer: PreTrainedTokenizerFast, where: object = "tokenizer") -> dict[str, int]:
    """Ids of the five special tokens, by the names ``pad unk cls sep mask``.

    Raises:
        InputError: one is missing, two are the same, or the tokenizer is not WordPiece (other kinds
            mark words and lay out pairs differently).
    """
    if (
        type(getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)).__name__
        != "WordPiece"
    ):
        raise InputError(
            "not a WordPiece tokenizer",
            where=where,
            fix="Use a tokenizer of BERT's or ELECTRA's kind.",
        )
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in SPECIAL_NAMES}
    missing = [f"[{name.upper()}]" for name, value in ids.items() if value is None]
    if missing or len(set(ids.values())) < len(ids):
        problem = (
            f"no {', '.join(missing)} token" if missing else f"special tokens share an id ({ids})"
        )
        raise InputError(
            problem, where=where, fix="Use a tokenizer made for masked language models."
        )
    return {name: int(value) for name, value in ids.items()}


def tokenizer_digest(tokenizer: PreTrainedTokenizerFast) -> str:
    """SHA-256 (hex) of all that decides which ids a text gets; truncation, padding and file names
    do not count.
    """
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    parts = {
        key: content.get(key) for key in ("added_tokens", "normalizer", "pre_tokenizer", "model")
    }
    return json_digest(parts | {"special": special_ids(tokenizer)})


def train_wordpiece(texts: Iterable[str], vocab_size: int = 8192) -> PreTrainedTokenizerFast:
    """Train a lower-casing WordPiece tokenizer with BERT's special tokens as ids 0 to 4.

    Args:
        texts: the text to learn from, read twice; a one-way iterator is first gathered into memory.
            Order does not matter. A sample of a million passages is plenty.
        vocab_size: number of pieces wanted, special tokens included. A small text may give fewer,
            since a pair is merged only where it occurs twice.

    Returns:
        A `BertTokenizerFast`; its saved folder opens with `AutoTokenizer` and gives the same ids.
        Ids 0 to 4 are [PAD], [UNK], [CLS], [SEP], [MASK]; then come the 1,000 most frequent
        characters in code-point order, those of them that continue a word, and the merges.

    Raises:
        InputError: `vocab_size` leaves no room for the characters of the text, or there is no text.

    Example:
        >>> tokenizer = train_wordpiece(["dense retrieval", "dense vectors"], vocab_size=60)
        >>> tokenizer.tokenize("Dense Ravens")
        ['dense', 'r', '##a', '##v', '##e', '##ns']
    """
    source = list(texts) if isinstance(texts, Iterator) else texts
    singles = _single_pieces(source)
    least = len(SPECIAL) + len(singles)
    if vocab_size < least:
        problem = (
            f"{vocab_size} pieces cannot hold {len(SPECIAL)} special tokens and {len(singles)}"
            " single characters"
        )
        raise InputError(problem, where="vocab_size", fix=f"Ask for at least {least}.")
    characters = [piece for piece in singles if len(piece) == 1]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[*SPECIAL, *singles],  # numbered first, in this order
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        continuing_subword_prefix=PREFIX,
        show_progress=False,
    )
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = NORMALISE, WORDS
    tokenizer.train_from_iterator(source, trainer)
    return BertTokenizerFast(vocab=tokenizer.get_vocab(), do_lower_case=True)


def _single_pieces(texts: Iterable[str]) -> list[str]:
    """The frequent characters, then those that occur inside words, prefixed by `##`; each in
    code-point order.
    """
    anywhere, inside, kinds = (
        np.zeros(CODES, np.int64),
        np.zeros(CODES, bool),
        np.zeros(CODES, np.int8),
    )
    for codes in _code_points(texts):
        anywhere += np.bincount(codes, minlength=CODES)
        for code in np.flatnonzero((anywhere > 0) & (kinds == 0)):
            kinds[code] = _kind(chr(code))
        of_word = kinds[codes] == 1
        inside[codes[1:][of_word[1:] & of_word[:-1]]] = True
    anywhere[kinds == 2] = 0
    frequent = np.argsort(-anywhere, kind="stable")[: min(ALPHABET, np.count_nonzero(anywhere))]
    if not len(frequent):
        raise InputError(
            "no text to learn from",
            where="texts",
            fix="Give at least one passage that is not blank.",
        )
    frequent = np.sort(frequent)
    return [chr(code) for code in frequent] + [
        PREFIX + chr(code) for code in frequent[inside[frequent]]
    ]


def _code_points(texts: Iterable[str]) -> Iterator[np.ndarray]:
    """Code points of the normalised texts, a chunk of texts at a time with blanks between them."""
    iterator = iter(texts)
    while chunk := list(islice(iterator, CHUNK)):
        normalised = NORMALISE.normalize_str(" ".join(chunk))
        yield np.frombuffer(normalised.encode("utf-32-le"), np.uint32)


def _kind(character: str) -> int:
    """What the pre-tokenizer takes a character for: 1 part of a word, 2 blank, 3 a word of its
    own.
    """
    return len(WORDS.pre_tokenize_str(f"a{character}a"))
