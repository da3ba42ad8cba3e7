"""Tokenizers: opened, checked or trained; and how titles and bodies become one sequence. Nothing
here needs torch.

The layout of a passage is that of the papers (SimLM and PAIR: a text pair; RetroMAE and Tevatron:
one segment). Page of the book: practice/own-corpus.

A vocabulary is trained with BERT's normaliser and word borders by `tokenizers`' own trainer (pairs
of pieces merged by count; BERT, Devlin et al. 2019). By default, that trainer numbers single
characters in the order of a randomly seeded hash table, and these numbers break ties between
equally frequent pairs, so that two runs over the same text give different vocabularies. Here
characters are counted first and passed to the trainer in a fixed order, which makes the result
deterministic.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from dr_lib.errors import InputError, check_texts, first_line
from dr_lib.files import json_digest
from dr_lib.places import check_objects, find_model
from dr_lib.settings import Settings
from dr_lib.words import SURROGATE, words_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Title = Literal["pair", "joined", "none"]
Side = Literal["right", "left"]
MULTIPLE, COARSE = 8, 16
"""Padded lengths are multiples of `MULTIPLE`, or of `COARSE` if a step reads several kinds of
texts, so that few shapes reach a model.
"""


class Layout(Settings):
    """How queries and passages become sequences.

    Args:
        title: how a title joins its passage: as a segment of its own, in one segment, or not at
            all, see `TokenStore.slice`.
        passage_length, query_length: maximum lengths in pieces, special tokens included (SimLM: 144
            and 32).
        query_side: the side from which a long query is truncated; "left" keeps the last turns of a
            dialogue (DPR-PAQ section 3.3).

    Example:
        >>> Layout(passage_length=64).passages
        {'max_length': 64, 'title': 'pair'}
    """

    title: Title = "pair"
    passage_length: int = Field(144, gt=3)
    query_length: int = Field(32, gt=2)
    query_side: Side = "right"

    @property
    def passages(self) -> dict[str, Any]:
        """Arguments of `TokenStore.batch` for passages."""
        return {"max_length": self.passage_length, "title": self.title}

    @property
    def queries(self) -> dict[str, Any]:
        """Arguments of `TokenStore.batch` for queries."""
        return {"max_length": self.query_length, "title": "none", "side": self.query_side}


@dataclass(frozen=True)
class Truncated:
    """What is left of each passage after truncation.

    Attributes:
        title, body: `[batch]` int64, number of pieces left.
        title_start, body_start: `[batch]` int64, how many pieces of each were dropped in front.
        separate: `[batch]` bool, True where title and body are two segments with a [SEP] between.
    """

    title: np.ndarray
    body: np.ndarray
    title_start: np.ndarray
    body_start: np.ndarray
    separate: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Length of each sequence, special tokens included."""
        return self.title + self.body + 2 + self.separate


def truncate(
    title: np.ndarray,
    body: np.ndarray,
    *,
    max_length: int,
    mode: Title,
    side: Side = "right",
    random_ints: np.ndarray | None = None,
) -> Truncated:
    """Truncate titles and bodies of the given lengths to `max_length`, special tokens included.

    A pair is truncated longest-first as in Hugging Face's tokenizers: a segment shorter than half
    the room is kept whole and the other takes the rest; if both are longer, the room is split in
    half, and an odd piece goes to the longer one (to the body where they are equal). A passage that
    lacks title or body is a single segment in every mode.

    Args:
        title, body: `[batch]` int64, number of pieces.
        max_length: the longest sequence allowed, at least 4.
        mode: `"pair"`, `"joined"` (title and body in one segment) or `"none"` (body alone).
        side: the side from which pieces are dropped; `"left"` keeps the last turns of a dialogue.
        random_ints: `[batch]` uint64; choose a window of a long body, uniformly. None truncates at
            `side`.

    Example:
        >>> left = truncate(np.array([30, 2]), np.array([40, 90]), max_length=20, mode="pair")
        >>> left.title, left.body, left.lengths
        (array([8, 2]), array([ 9, 15]), array([20, 20]))
    """
    title = np.zeros_like(title) if mode == "none" else title
    separate = (title > 0) & (body > 0) & (mode == "pair")
    room = max_length - 2 - separate
    if mode == "pair":
        shorter = np.minimum(np.minimum(title, body), room // 2)
        longer = np.minimum(np.maximum(title, body), room - shorter)
        title_left = np.where(title > body, longer, shorter)
        body_left = np.where(title > body, shorter, longer)
    elif side == "right":
        title_left = np.minimum(title, room)
        body_left = np.minimum(body, room - title_left)
    else:
        body_left = np.minimum(body, room)
        title_left = np.minimum(title, room - body_left)
    from_left = side == "left"
    body_start = (body - body_left) * from_left
    if random_ints is not None:
        body_start = (random_ints % (body - body_left + 1).astype(np.uint64)).astype(np.int64)
    return Truncated(title_left, body_left, (title - title_left) * from_left, body_start, separate)


def padded_length(length: int | np.ndarray, multiple: int, max_length: int) -> np.ndarray:
    """Lengths rounded up to a multiple, but at most `max_length`, the number of the model's
    positions.

    Example:
        >>> padded_length(np.array([3, 8, 9, 29]), multiple=8, max_length=30)
        array([ 8,  8, 16, 30])
    """
    return np.minimum(-(-np.asarray(length) // multiple) * multiple, max_length)


@dataclass(frozen=True)
class Slice:
    """Which pieces of some rows are kept, and where they go.

    Attributes:
        rows: `[batch]` int64, rows of the store.
        left: how many pieces of each title and body stay.
        title_from, body_from: `[batch]` int64, where they begin in the flat arrays of the store.
        width: padded length.
    """

    rows: np.ndarray
    left: Truncated
    title_from: np.ndarray
    body_from: np.ndarray
    width: int

    def take(self, titles: np.ndarray, bodies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is kept of two flat arrays parallel to the store's pieces, concatenated."""
        return concat_runs(titles, self.title_from, self.left.title), concat_runs(
            bodies, self.body_from, self.left.body
        )

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """`[batch, width]` bool twice: positions of title pieces, and of body pieces."""
        position = np.arange(self.width)[None, :]
        title_end = 1 + self.left.title[:, None]
        body_start = title_end + self.left.separate[:, None]
        in_title = (position >= 1) & (position < title_end)
        return in_title, (position >= body_start) & (position < self.left.lengths[:, None] - 1)


def concat_runs(ids: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate `ids[start : start + count]` over all rows.

    Example:
        >>> concat_runs(np.arange(10, 20), starts=np.array([7, 0]), counts=np.array([2, 3]))
        array([17, 18, 10, 11, 12])
    """
    return ids[run_places(starts, counts)]


def run_places(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The indices from `start` to `start + count` of all rows, concatenated.

    Example:
        >>> run_places(np.array([7, 0]), np.array([2, 3]))
        array([7, 8, 0, 1, 2])
    """
    # Consecutive numbers, shifted row by row to where each row begins.
    shift = starts - (np.cumsum(counts) - counts)
    return np.repeat(shift, counts) + np.arange(counts.sum())


# Tokenizers ---------------------------------------------------------------------------------------

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PREFIX = "##"  # of a piece that continues a word
ALPHABET = 1000
CODES = sys.maxunicode + 1
CHUNK = 2048  # texts tokenised at a time: memory stays bounded
MANY_LOST, MANY_UNKNOWN = 0.2, 0.02
"""Shares of lost and unknown words above which the user is warned."""

NORMALISE = normalizers.BertNormalizer(lowercase=True)
WORDS = pre_tokenizers.BertPreTokenizer()
SPECIAL_NAMES = ("pad", "unk", "cls", "sep", "mask")
TOKENIZER_FILES = ("*.json", "vocab.txt")
WAY_OUT = (
    'Give "embedded", a folder with a saved tokenizer, or a name on the hub that this machine can'
    " reach."
)


def load_tokenizer(name_or_path: str | Path) -> "PreTrainedTokenizerFast":
    """Open a WordPiece tokenizer by name. Only its pieces are used: `TokenStore` adds special
    tokens, pads and truncates, whatever the folder says.

    Args:
        name_or_path: ``"embedded"`` for the one that is part of the book, a local folder, or a name
            on the hub.

    Raises:
        InputError: there is no such tokenizer, it is not WordPiece, or it lacks a special token.
    """
    folder = find_model(name_or_path, ["tokenizer.json", "vocab.txt"], TOKENIZER_FILES)
    check_objects(folder)
    from transformers import AutoTokenizer  # imports torch where it is

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
    except Exception as error:  # the Rust library raises plain Exception for a broken file
        raise InputError(
            f"cannot open this tokenizer ({first_line(error)})", where=folder, fix=WAY_OUT
        ) from error
    special_ids(tokenizer, where=folder)
    # Exports read a text's [MASK] as text, but a tokenizer for pre-training must know the mask
    # token.
    tokenizer.split_special_tokens = False
    return tokenizer


class Legibility(NamedTuple):
    """How much of some texts BM25 and a model can read.

    Attributes:
        lost: share of words that BM25 drops because they have one character; 0.03 to 0.07 in
            English.
        unknown: share of words that a tokenizer maps to ``[UNK]``; nearly 0 in its own language.
    """

    lost: float
    unknown: float

    def warnings(self) -> list[str]:
        """Warnings for the user, one sentence each."""
        sentences = []
        if self.lost > MANY_LOST:
            sentences.append(
                f"BM25 drops {self.lost:.0%} of the words, which have one character: it finds"
                " nothing by them."
            )
        if self.unknown > MANY_UNKNOWN:
            sentences.append(
                f"The model's tokenizer does not know {self.unknown:.0%} of the words and reads"
                " each as [UNK]: take a model made for the language."
            )
        return sentences


def legibility(
    texts: Sequence[str], tokenizer: "PreTrainedTokenizerFast | None" = None
) -> Legibility:
    """Measure whether BM25 and a model can read the language of some texts.

    Args:
        texts: a sample suffices.
        tokenizer: of the model; without one nothing is unknown.

    Example:
        >>> legibility(["Vitamin C and D"])
        Legibility(lost=0.5, unknown=0.0)
        >>> read = legibility(["The moon pulls the sea. ประเทศไทย"], load_tokenizer("embedded"))
        >>> round(read.unknown, 2)
        0.14
    """
    check_texts(texts=texts)
    texts = list(texts)
    seen, written = (
        sum(len(words_of(text, shortest=shortest)) for text in texts) for shortest in (2, 1)
    )
    known = unknown = 0
    for start in range(0, len(texts) if tokenizer else 0, CHUNK):
        coded = tokenizer(texts[start : start + CHUNK], add_special_tokens=False)
        for encoding in coded.encodings:
            known += len(set(encoding.word_ids))
            unknown += encoding.ids.count(tokenizer.unk_token_id)
    return Legibility((written - seen) / max(1, written), unknown / max(1, known))


def check_titles(texts: Sequence[str], titles: Sequence[str] | None) -> None:
    """Refuse one text in place of a list, anything in a list that is not a text, such as a table's
    missing cell, or half a surrogate pair, and titles that are more or fewer than the texts
    (`InputError`).
    """
    check_texts(texts=texts, titles=titles)
    for name, values in (("texts", texts), ("titles", () if titles is None else titles)):
        for place, value in enumerate(values):
            if not isinstance(value, str):
                fix = 'Give texts, "" for none.'
                raise InputError(f"{value!r:.40} is not a text", where=f"{name}[{place}]", fix=fix)
            if not value.isascii() and SURROGATE.search(value):
                problem, fix = "holds half a surrogate pair", "Write the character whole."
                raise InputError(problem, where=f"{name}[{place}]", fix=fix)
    if titles is not None and len(titles) != len(texts):
        fix = 'Give one for each text, "" for none.'
        raise InputError(f"{len(titles)} for {len(texts)} texts", where="titles", fix=fix)


def special_ids(
    tokenizer: "PreTrainedTokenizerFast", where: object = "tokenizer"
) -> dict[str, int]:
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


def tokenizer_digest(tokenizer: "PreTrainedTokenizerFast") -> str:
    """SHA-256 (hex) of everything that decides which ids a text gets; not of truncation, padding or
    file names.
    """
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    parts = {
        key: content.get(key) for key in ("added_tokens", "normalizer", "pre_tokenizer", "model")
    }
    return json_digest(parts | {"special": special_ids(tokenizer)})


def train_wordpiece(texts: Iterable[str], vocab_size: int = 8192) -> "PreTrainedTokenizerFast":
    """Train a lower-casing WordPiece tokenizer with BERT's special tokens as ids 0 to 4.

    Args:
        texts: the training text, read twice; an iterator is first read into memory. Order does not
            matter. A sample of a million passages is plenty.
        vocab_size: number of pieces, special tokens included. A small text may give fewer, since a
            pair is merged only if it occurs twice.

    Returns:
        A `BertTokenizerFast`; its saved folder opens with `AutoTokenizer` and gives the same ids.
        Ids 0 to 4 are [PAD], [UNK], [CLS], [SEP], [MASK]; then come the 1,000 most frequent
        characters in code-point order, those of them that continue a word, and the merges.

    Raises:
        InputError: `vocab_size` leaves no room for the characters of the text, there is no
            text, or one in place of a list.

    Example:
        >>> tokenizer = train_wordpiece(["dense retrieval", "dense vectors"], vocab_size=60)
        >>> tokenizer.tokenize("Dense Ravens")
        ['dense', 'r', '##a', '##v', '##e', '##ns']
    """
    from transformers import BertTokenizerFast  # imports torch where it is

    check_texts(texts=texts)
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
    """The frequent characters, then those that occur inside words, prefixed by `##`; both in
    code-point order.
    """
    anywhere = np.zeros(CODES, np.int64)
    inside = np.zeros(CODES, bool)
    kinds = np.zeros(CODES, np.int8)
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
    """How the pre-tokenizer treats a character: 1 part of a word, 2 blank, 3 a word of its own."""
    return len(WORDS.pre_tokenize_str(f"a{character}a"))
