"""A tokenizer, opened, checked or trained; and the token store: every passage tokenised once, kept
flat on disk, and cut into padded batches without a Python loop.

Beside the pieces may lie a number for each (importances of CDMAE, keyword weights of MASTER).
An epoch is divided into batches (`BatchStream`) in which the same step is always the same batch:
every batch of one padded length has the same number of rows, so that an epoch shows few distinct
shapes. The CPU's bf16 kernels are built, and a GPU's graphs compiled, once per shape. Training
resumes at any step without replaying the earlier ones; of several processes, number r of W takes
the steps `W * step + r`. Packing of a passage: see `layout.py`.

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
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import datasets
import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from tqdm.auto import tqdm
from transformers import AutoTokenizer, BertTokenizerFast, PreTrainedTokenizerFast

from dr_lib.collections import Collection
from dr_lib.errors import InputError, first_line
from dr_lib.files import file_digest, fresh_folder, json_digest, new_array, read_json, write_json
from dr_lib.places import embedded_base, from_hub
from dr_lib.stages import stage
from dr_lib.tokens.layout import Side, Slice, Title, TokenBatch, padded_length, to_batch, truncate
from dr_lib.words import words_of

# Tokenizers ---------------------------------------------------------------------------------------

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PREFIX = "##"  # of a piece that continues a word
ALPHABET = 1000
CODES = sys.maxunicode + 1
CHUNK = 2048  # texts tokenised at a time: memory stays bounded
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


# The store ----------------------------------------------------------------------------------------


@stage(reads=())
def passage_tokens(folder: Path, collection: Collection, tokenizer: Path | str) -> None:
    """`store/`: titles and texts of the passages as token ids; the same for all models that share a
    tokenizer.
    """
    words = load_tokenizer(tokenizer)
    TokenStore.build(collection.passages, words, folder / "store", columns=("title", "text"))


@stage(reads=("split",))
def query_tokens(
    folder: Path, collection: Collection, tokenizer: Path | str, *, split: str
) -> None:
    """`store/`: the queries of a split as token ids."""
    TokenStore.build(
        collection.queries(split), load_tokenizer(tokenizer), folder / "store", columns=("text",)
    )


class TokenStore:
    """Token ids of a collection's passages (or queries), memory-mapped.

    Attributes:
        folder: where it lies.
        digest: SHA-256 of its content; two stores with the same digest give the same batches.
        tokenizer: digest of the tokenizer it was built with.
        special: ids of the special tokens, keys ``pad unk cls sep mask``.
        vocab_size: number of ids that the tokenizer knows.
        title_ids, text_ids: the pieces of all titles and all bodies, end to end, without special
            tokens.
        title_offsets, text_offsets: `[n + 1]` int64, where each begins and the last one ends.
        continuation: `[vocab]` bool, True for pieces that continue a word.

    Example:
        >>> import tempfile
        >>> from dr_lib.tokens import train_wordpiece
        >>> texts = datasets.Dataset.from_dict(
        ...     {"title": ["Dense vectors", ""], "text": ["They are short.", "Sparse."]}
        ... )
        >>> folder = Path(tempfile.mkdtemp()) / "tokens"
        >>> store = TokenStore.build(
        ...     texts, train_wordpiece(texts["text"], 60), folder
        ... )
        >>> store.batch(np.array([0, 1]), max_length=12).input_ids.shape
        torch.Size([2, 12])
    """

    def __init__(self, folder: Path, meta: dict[str, Any]):
        self.folder, self.digest = folder, meta["digest"]
        self.tokenizer: str = meta["tokenizer"]
        self.special: dict[str, int] = meta["special"]
        self.vocab_size: int = meta["vocab_size"]
        self.continuation = np.load(folder / "continuation.npy")
        self.text_ids, self.text_offsets = self._column("text", meta["dtype"])
        self.title_ids, self.title_offsets = self.text_ids[:0], np.zeros_like(self.text_offsets)
        if "title" in meta["columns"]:
            self.title_ids, self.title_offsets = self._column("title", meta["dtype"])

    def _column(self, name: str, dtype: str) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all texts of a column end to end, and where each begins."""
        offsets, ids = (
            np.load(self.folder / f"{name}_offsets.npy", mmap_mode="r"),
            self.folder / f"{name}_ids.bin",
        )
        # an empty file cannot be mapped
        flat = np.memmap(ids, dtype, mode="r") if offsets[-1] else np.zeros(0, dtype)
        return np.asarray(flat), np.asarray(offsets)

    @staticmethod
    def build(
        texts: datasets.Dataset,
        tokenizer: PreTrainedTokenizerFast,
        folder: Path,
        columns: tuple[str, ...] = ("title", "text"),
    ) -> "TokenStore":
        """Tokenise `texts` into `folder` and open the result; the folder is whole or absent.

        The text of a collection is data: a literal [MASK] in a passage becomes ordinary pieces, not
        the special token.

        Args:
            texts: rows with the columns named, strings without null.
            tokenizer: a WordPiece tokenizer; its truncation and padding settings are ignored.
            folder: where to write; an older store there is replaced.
            columns: ``("title", "text")``, or one column (queries), which is then the body.

        Raises:
            InputError: the tokenizer does not fit, or `folder` holds something else.
        """
        special = special_ids(tokenizer)
        pieces = tokenizer.get_vocab()
        vocab_size = max(len(tokenizer), 1 + max(pieces.values()))
        dtype = "uint16" if vocab_size < 2**16 else "int32"
        prefix = tokenizer.backend_tokenizer.model.continuing_subword_prefix
        continuation = np.zeros(vocab_size, bool)
        continuation[
            [id_ for piece, id_ in pieces.items() if piece.startswith(prefix) and piece != prefix]
        ] = True
        with fresh_folder(folder, "token store") as draft:
            parts = dict(zip(("title", "text")[-len(columns) :], columns, strict=True))
            _write_ids(texts, _plain(tokenizer), draft, parts, dtype)
            np.save(draft / "continuation.npy", continuation)
            meta = {
                "tokenizer": tokenizer_digest(tokenizer),
                "columns": list(parts),
                "vocab_size": vocab_size,
                "special": special,
                "dtype": dtype,
                "files": {path.name: file_digest(path) for path in sorted(draft.iterdir())},
            }
            write_json(draft / "meta.json", meta | {"digest": json_digest(meta)})
        return TokenStore.open(folder)

    @staticmethod
    def open(folder: Path) -> "TokenStore":
        """Open a store built earlier; `InputError` where there is none."""
        return TokenStore(folder, read_json(folder / "meta.json"))

    def __len__(self) -> int:
        return len(self.text_offsets) - 1

    def check_tokenizer(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Raise `InputError` that names both digests if the store was built with another
        tokenizer.
        """
        digest = tokenizer_digest(tokenizer)
        if digest != self.tokenizer:
            problem = (
                f"built with tokenizer {self.tokenizer[:16]}, not with the given {digest[:16]}"
            )
            fix = "Build the store again with this tokenizer, or load the one it was built with."
            raise InputError(problem, where=self.folder, fix=fix)

    def lengths(self, max_length: int, title: Title = "pair", **_: Any) -> np.ndarray:
        """Sequence lengths `[n]` int64 after truncation, special tokens included; no other argument
        changes them.
        """
        title_pieces, body_pieces = np.diff(self.title_offsets), np.diff(self.text_offsets)
        return truncate(title_pieces, body_pieces, max_length=max_length, mode=title).lengths

    def batch(self, rows: np.ndarray, **layout: Any) -> TokenBatch:
        """Cut, lay out and pad some rows.

        Args:
            rows: `[batch]` integers, rows of the store, in any order, repeats allowed.
            layout: arguments of `slice`.
        """
        cut = self.slice(rows, **layout)
        return to_batch(
            cut, self.title_ids, self.text_ids, special=self.special, continuation=self.continuation
        )

    def slice(
        self,
        rows: np.ndarray,
        *,
        max_length: int,
        title: Title = "pair",
        pad_to_multiple: int = 8,
        side: Side = "right",
        lots: np.ndarray | None = None,
    ) -> Slice:
        """Which pieces of some rows a batch takes, and where it puts them.

        Args:
            rows: `[batch]` integers, rows of the store, in any order, repeats allowed.
            max_length: longest sequence, special tokens included, at least 4.
            title: ``"pair"`` = [CLS] title [SEP] body [SEP] with types 0 and 1, or [CLS] body [SEP]
                where there is no title; ``"joined"`` = [CLS] title body [SEP]; ``"none"`` = [CLS]
                body [SEP].
            pad_to_multiple: the padded length is a multiple of this, but never more than
                `max_length`.
            side: the end that loses pieces; ``"left"`` keeps the last turns of a dialogue.
            lots: `[batch]` uint64 by which a window of each long body is drawn, see `truncate`;
                None keeps one end.
        """
        rows = np.asarray(rows).astype(np.int64)
        title_from, body_from = self.title_offsets[rows], self.text_offsets[rows]
        title_pieces, body_pieces = (
            self.title_offsets[rows + 1] - title_from,
            self.text_offsets[rows + 1] - body_from,
        )
        left = truncate(
            title_pieces, body_pieces, max_length=max_length, mode=title, side=side, lots=lots
        )
        width = int(padded_length(left.lengths.max(), pad_to_multiple, max_length))
        return Slice(rows, left, title_from + left.title_start, body_from + left.body_start, width)


def _plain(tokenizer: PreTrainedTokenizerFast) -> Tokenizer:
    """A copy that neither cuts nor pads and takes the text of special tokens for ordinary text."""
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True
    return copy


def _write_ids(
    texts: datasets.Dataset, tokenizer: Tokenizer, draft: Path, columns: dict[str, str], dtype: str
) -> None:
    """Ids of each column end to end, and where each text begins, a chunk of texts at a time."""
    counts: dict[str, list[np.ndarray]] = {part: [] for part in columns}
    with ExitStack() as stack:
        files = {
            part: stack.enter_context((draft / f"{part}_ids.bin").open("wb")) for part in columns
        }
        bar = stack.enter_context(tqdm(total=len(texts), desc="Tokens", unit=" texts", delay=1))
        for chunk in texts.select_columns(list(columns.values())).with_format(None).iter(CHUNK):
            for part, column in columns.items():
                codes = tokenizer.encode_batch_fast(chunk[column], add_special_tokens=False)
                pieces = [code.ids for code in codes]
                counts[part].append(np.fromiter(map(len, pieces), np.int64, len(pieces)))
                np.fromiter(chain.from_iterable(pieces), dtype, counts[part][-1].sum()).tofile(
                    files[part]
                )
            bar.update(len(pieces))
    for part, parts in counts.items():
        np.save(
            draft / f"{part}_offsets.npy",
            np.cumsum(np.concatenate([np.zeros(1, np.int64), *parts])),
        )


class TokenValues:
    """A number for each piece of a store (importances of CDMAE, keyword weights of MASTER),
    memory-mapped.

    They are made once and laid out as the pieces are, so that a batch carries them in
    `TokenBatch.values`. Page: ideas/masking.

    Attributes:
        folder: where they lie.
        store: the tokens that they belong to.
        title, text: a float16 or float32 for each piece of all titles and of all bodies, end to
            end.

    Example:
        >>> import tempfile, datasets
        >>> from dr_lib.tokens import train_wordpiece
        >>> texts = datasets.Dataset.from_dict({"text": ["dense vectors", "sparse"]})
        >>> place, tokenizer = Path(tempfile.mkdtemp()), train_wordpiece(texts["text"], 60)
        >>> store = TokenStore.build(
        ...     texts, tokenizer, place / "store", columns=("text",)
        ... )
        >>> lengths = np.arange(len(store.text_ids))
        >>> values = TokenValues.write(store, place / "values", [(lengths[:0], lengths)])
        >>> values.batch(np.array([1]), max_length=8)[0, 0].item()
        0.0
    """

    def __init__(self, folder: Path, store: TokenStore):
        self.folder, self.store = folder, store
        files = (folder / f"{part}.npy" for part in ("title", "text"))
        self.title, self.text = (np.asarray(np.load(file, mmap_mode="r")) for file in files)

    @staticmethod
    def write(
        store: TokenStore,
        folder: Path,
        blocks: Iterable[tuple[np.ndarray, np.ndarray]],
        dtype: Literal["float16", "float32"] = "float32",
    ) -> "TokenValues":
        """Write values as they come, and open the result; the folder is whole or absent.

        Args:
            store: the tokens.
            folder: where to write; older values there are replaced.
            blocks: values of some titles and of some bodies, in the order of the store's pieces.
            dtype: float16 takes half the room and keeps three digits of numbers between 0.0001 and
                65,504.

        Raises:
            InputError: a value is not finite in `dtype`.
        """
        with fresh_folder(folder, "token values") as draft:
            lengths = {"title": len(store.title_ids), "text": len(store.text_ids)}
            written = dict.fromkeys(lengths, 0)
            files = {
                part: new_array(draft / f"{part}.npy", dtype, (length,))
                for part, length in lengths.items()
            }
            for values in blocks:
                for part, numbers in zip(files, values, strict=True):
                    end = written[part] + len(numbers)
                    with np.errstate(over="ignore"):
                        files[part][written[part] : end] = numbers
                    if not np.isfinite(files[part][written[part] : end]).all():
                        fix = "Give finite numbers, or float32."
                        raise InputError(
                            f"a value is not a finite {dtype}", where="blocks", fix=fix
                        )
                    written[part] = end
            del files  # closes them, which Windows needs before the folder can be renamed
        return TokenValues(folder, store)

    def batch(self, rows: np.ndarray, **layout: Any) -> Tensor:
        """`[batch, length]` float32: the value at each position of `TokenStore.batch` for the same
        arguments.

        0 at special positions and padding.
        """
        cut = self.store.slice(rows, **layout)
        values = np.zeros((len(cut.rows), cut.width), np.float32)
        in_title, in_body = cut.places()
        values[in_title], values[in_body] = cut.take(self.title, self.text)
        return torch.from_numpy(values)

    def attach(self, batch: TokenBatch, **layout: Any) -> TokenBatch:
        """The batch with its `values`; `layout` are the arguments of `TokenStore.batch` that it was
        made with.
        """
        return replace(batch, values=self.batch(batch.rows.numpy(), **layout))


# Epochs of batches --------------------------------------------------------------------------------

Window = Literal["first", "random"]
BLOCK = 1 << 17  # rows sorted by length together; more would save hardly any padding
# rows of a stage: MS MARCO's 8.8 million passages are 17 shards of 1.6 GB at 768 numbers
SHARD = 4 * BLOCK
ENCODING_MULTIPLE = 8  # padded lengths in encoding: few shapes ever reach a model


def plan_epoch(
    lengths: np.ndarray, *, tokens_per_batch: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Divide all rows into batches: shuffle, sort by padded length, cut, shuffle the batches.

    The longest rows come first: with padded length P a batch takes `tokens_per_batch // P` rows, at
    least one, and only the last batch (the shortest rows) may be smaller than its kind. Shapes and
    number of batches are the same in every epoch, the rows that meet in a batch are not.

    Args:
        lengths: `[n]` padded lengths, at least 1.
        tokens_per_batch: budget of rows x padded length. A single row above it is a batch of its
            own.
        seed, epoch: fix the order; 0 or more.

    Returns:
        One array of row numbers (int64) per batch; together they hold every row exactly once.

    Example:
        >>> [
        ...     rows.tolist()
        ...     for rows in plan_epoch(
        ...         np.array([8, 16, 8, 16]), tokens_per_batch=32, seed=0, epoch=0
        ...     )
        ... ]
        [[2, 0], [1, 3]]
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    # A stable sort keeps the shuffled order among rows of one length, so they meet others in the
    # next epoch.
    order = order[np.argsort(-lengths[order].astype(np.int32), kind="stable")]
    batches = _cut(order, lengths[order], tokens_per_batch)
    return [batches[index] for index in random.permutation(len(batches))]


def plan_by_length(lengths: np.ndarray, tokens_per_batch: int, max_length: int) -> list[np.ndarray]:
    """Cut the rows into batches: longest first, `tokens_per_batch // padded length` rows each.

    A length has one batch size, so shapes are at most as many as padded lengths, plus the last
    batch.

    Example:
        >>> [batch.tolist() for batch in plan_by_length(np.array([5, 16, 9, 8, 1]), 16, 32)]
        [[1], [2], [3, 0], [4]]
    """
    order = np.argsort(-lengths, kind="stable")
    return _cut(
        order, padded_length(lengths[order], ENCODING_MULTIPLE, max_length), tokens_per_batch
    )


def shards(rows: int) -> list[tuple[int, int]]:
    """First row and end of each shard of a collection; one for up to half a million passages.

    Example:
        >>> shards(300), shards(SHARD + 1)[1]
        ([(0, 300)], (524288, 524289))
    """
    return [(part.start, part.stop) for part in blocks(0, rows, SHARD)]


def blocks(first: int, end: int, size: int | None = None) -> list[slice]:
    """Rows from `first` to `end` in pieces of `size`, by default those that are sorted together."""
    size = size or BLOCK
    return [slice(start, min(start + size, end)) for start in range(first, end, size)]


def _cut(rows: np.ndarray, padded: np.ndarray, tokens_per_batch: int) -> list[np.ndarray]:
    """Rows in batches, each with as many as the budget holds of the length of its first, which is
    its longest.
    """
    batches, start = [], 0
    while start < len(rows):
        stop = start + max(1, tokens_per_batch // int(padded[start]))
        batches.append(rows[start:stop])
        start = stop
    return batches


class BatchStream:
    """Batches of a store, epoch after epoch.

    Args:
        store: where the tokens lie.
        tokens_per_batch: budget of rows x padded length of a batch, at least `max_length`.
        max_length: longest sequence, special tokens included.
        title: see `TokenStore.batch`.
        seed: 0 or more; another seed gives another order.
        beside: `[n]` length of the longest other text that goes with each row of the store; the
            budget then counts the longer of the two, so that a batch of such texts keeps it too.
        pad_to_multiple: padded lengths are multiples of this, but never more than `max_length`.
        window: of a passage that is too long, its beginning, or in each epoch another window, drawn
            at random (Condenser and MASTER, released code).
        values: numbers beside the pieces that the batches are to carry.

    Raises:
        InputError: the budget is smaller than one sequence.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        tokens_per_batch: int,
        max_length: int,
        title: Title = "pair",
        seed: int = 0,
        beside: np.ndarray | None = None,
        pad_to_multiple: int = 8,
        window: Window = "first",
        values: TokenValues | None = None,
    ):
        if tokens_per_batch < max_length:
            problem = f"budget of {tokens_per_batch} cannot hold one sequence of {max_length}"
            raise InputError(
                problem, where="tokens_per_batch", fix="Raise the budget or lower max_length."
            )
        self.store, self.values, self.seed, self.window = store, values, seed, window
        self.tokens_per_batch = tokens_per_batch
        self._layout = {
            "max_length": max_length,
            "title": title,
            "pad_to_multiple": pad_to_multiple,
        }
        lengths = np.maximum(store.lengths(max_length, title), 0 if beside is None else beside)
        self._lengths = padded_length(lengths, pad_to_multiple, max_length)
        self.plan = lru_cache(maxsize=2)(self._plan)  # an epoch and, at its end, the next one
        self.steps_per_epoch = len(self.plan(0))

    def batch(self, step: int) -> TokenBatch:
        """The batch of a step, counted from 0 over all epochs; the last of an epoch may be a
        `share` of a full one.
        """
        epoch, index = self.locate(step)
        rows, layout = self.plan(epoch)[index], self._layout
        if self.window == "random":
            random = np.random.default_rng([self.seed, epoch, index])
            layout = layout | {"lots": random.integers(2**63, size=len(rows), dtype=np.uint64)}
        full = max(1, self.tokens_per_batch // int(self._lengths[rows[0]]))
        batch = replace(self.store.batch(rows, **layout), share=len(rows) / full)
        return batch if self.values is None else self.values.attach(batch, **layout)

    def locate(self, step: int) -> tuple[int, int]:
        """Epoch of a step and its place in that epoch."""
        return divmod(step, self.steps_per_epoch)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        return plan_epoch(
            self._lengths, tokens_per_batch=self.tokens_per_batch, seed=self.seed, epoch=epoch
        )
