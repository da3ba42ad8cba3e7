"""How often each word and each n-gram of words occurs in a collection, counted exactly (for CDMAE eq. 7).

A word is what the tokenizer cut into pieces: a piece and those that continue it. Titles and bodies are texts of their
own here, so that nothing that is counted crosses from one to the other or to the next passage.

Sequences are *chains*: the number of all members but the last and the number of the last one share one int64, exactly,
so that no two sequences can share a key as they could share a hash. Words are chains of pieces, n-grams chains of
words. Each order needs the order below first, and where a short n-gram was too rare to keep, no longer one that begins
with it is ever written down. Per order the keys are dealt out to buckets on disk, which are counted one after another:
time and disk grow in proportion to the collection, memory with the table of words and the n-grams that are kept.
Page: ideas/masking.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tqdm.auto import tqdm

from dr_lib.errors import InputError
from dr_lib.files import read_json, write_json
from dr_lib.stages import stage
from dr_lib.tokens import TokenStore

Unit = Literal["word", "piece"]
BLOCK = 2**21
"""Pieces, or words, that are worked on at a time."""
BUCKET = 2**24
"""Keys that are counted at a time; memory is some 30 bytes for each."""
FILES = 200
SMALL = 10_000_000
"""Collections of up to this many words keep every n-gram by default."""
RARE = 5
BITS = 31
UNKNOWN = -1


# Words --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WordBlock:
    """All words of some rows of a store: those of the titles, row by row, then those of the bodies.

    Attributes:
        first, last: the rows of the block, `last` excluded.
        pieces: `[pieces]` ids.
        title_pieces: how many of them belong to titles.
        starts: `[words]` int64, where each word begins in `pieces`.
        sizes: `[words]` int64, pieces of each word.
        room: `[words]` int64, words from here to the end of the title or body, this one included.
        rows: `[words]` int64, row of the passage, counted from `first`.
    """

    first: int
    last: int
    pieces: np.ndarray
    title_pieces: int
    starts: np.ndarray
    sizes: np.ndarray
    room: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    def on_pieces(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A value for each word on all its pieces: those of the titles and those of the bodies."""
        spread = np.repeat(values, self.sizes)
        return spread[: self.title_pieces], spread[self.title_pieces :]


def word_blocks(store: TokenStore, unit: Unit = "word") -> Iterator[WordBlock]:
    """The whole store in blocks of about `BLOCK` pieces (a longer passage is a block of its own).

    Args:
        store: the tokens.
        unit: `"word"`, or `"piece"` to take every piece for a word.
    """
    before = store.title_offsets + store.text_offsets
    first = 0
    while first < len(store):
        last = max(first + 1, int(np.searchsorted(before, before[first] + BLOCK, side="right")) - 1)
        yield _block(store, first, last, unit)
        first = last


def _block(store: TokenStore, first: int, last: int, unit: Unit) -> WordBlock:
    title, text = store.title_offsets[first : last + 1], store.text_offsets[first : last + 1]
    pieces = np.concatenate([store.title_ids[title[0] : title[-1]], store.text_ids[text[0] : text[-1]]])
    title_pieces = int(title[-1] - title[0])
    bounds = np.concatenate([title[:-1] - title[0], text - text[0] + title_pieces])
    begins = ~store.continuation[pieces] if unit == "word" else np.ones(len(pieces), bool)
    begins[bounds[:-1][bounds[:-1] < bounds[1:]]] = True  # a text that begins in mid-word begins a word all the same
    starts = np.flatnonzero(begins)
    words = np.searchsorted(starts, bounds)
    text_of_word = np.repeat(np.arange(len(bounds) - 1), np.diff(words))
    room = words[text_of_word + 1] - np.arange(len(starts))
    sizes, rows = np.diff(starts, append=len(pieces)), text_of_word % (last - first)
    return WordBlock(first, last, pieces, title_pieces, starts, sizes, room, rows)


class WordTable:
    """A number for each different word, without collisions.

    A word of one piece has that piece's id; a longer one is a chain of its pieces, numbered when it is first met.

    Attributes:
        vocab_size: ids that the tokenizer knows.
        keys: `[chains]` int64, sorted.
        numbers: `[chains]` int64, the number of each chain; beginnings of longer words have one too.

    Example:
        >>> table = WordTable(vocab_size=10)
        >>> block = WordBlock(0, 1, np.array([3, 4, 3]), 0, np.array([0, 2]), np.array([2, 1]), None, None)
        >>> table.number(block), table.learn(block), table.number(block)
        (array([-1,  3]), array([10,  3]), array([10,  3]))
    """

    def __init__(self, vocab_size: int, keys: np.ndarray | None = None, numbers: np.ndarray | None = None):
        self.vocab_size = vocab_size
        self.keys = np.zeros(0, np.int64) if keys is None else keys
        self.numbers = np.zeros(0, np.int64) if numbers is None else numbers

    def __len__(self) -> int:
        """One more than the highest number."""
        return self.vocab_size + len(self.keys)

    def number(self, block: WordBlock) -> np.ndarray:
        """Number of each word, `[words]` int64; -1 for a word that was never learnt."""
        return self._follow(block, learning=False)

    def learn(self, block: WordBlock) -> np.ndarray:
        """Number of each word, `[words]` int64; words not met before get the next numbers."""
        return self._follow(block, learning=True)

    def _follow(self, block: WordBlock, learning: bool) -> np.ndarray:
        numbers = block.pieces[block.starts].astype(np.int64)
        longer = np.arange(len(block))
        for piece in range(1, int(block.sizes.max(initial=1))):
            longer = longer[block.sizes[longer] > piece]
            keys = chain(numbers[longer], block.pieces[block.starts[longer] + piece])
            if learning:
                distinct, _ = np.unique(keys, return_counts=True)  # with counts numpy sorts; its hash table is slower
                new = distinct[find(self.keys, distinct) < 0]
                _check_numbers(len(self) + len(new), "words")
                place = np.searchsorted(self.keys, new)
                self.numbers = np.insert(self.numbers, place, np.arange(len(self), len(self) + len(new)))
                self.keys = np.insert(self.keys, place, new)
            numbers[longer] = at(self.numbers, find(self.keys, keys), UNKNOWN)
        return numbers


# N-grams ------------------------------------------------------------------------------------------------------------


class NgramCounts:
    """Sorted tables of n-grams and their counts, memory-mapped.

    Attributes:
        order: the longest n-grams counted.
        unit: what counts as a word.
        min_count: n-grams that occur less often were dropped; single words never.
        totals: number of n-gram occurrences in the collection by order from 1, dropped ones included.
        words: numbers of the words.
        unigrams: `[words]` int64, count of each word by number.
        tables: for each order from 2 the sorted chains (int64) and their counts (uint32).
    """

    def __init__(self, folder: Path, meta: dict[str, Any]):
        self.order, self.unit, self.min_count = meta["order"], meta["unit"], meta["min_count"]
        self.totals, self._folder, self._tokenizer = tuple(meta["totals"]), folder, meta["tokenizer"]

        def array(name: str) -> np.ndarray:
            return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))

        self.words = WordTable(meta["vocab_size"], array("word_keys"), array("word_numbers"))
        self.unigrams = array("word_counts")
        self.tables = [(array(f"keys{n}"), array(f"counts{n}")) for n in range(2, self.order + 1)]

    @staticmethod
    def open(folder: Path) -> "NgramCounts":
        """Open tables written by `count_ngrams`; `InputError` where there are none."""
        return NgramCounts(Path(folder), read_json(Path(folder) / "meta.json"))

    def blocks(self, store: TokenStore) -> Iterator[WordBlock]:
        """The words of a store as these tables count them; another tokenizer's raises `InputError`."""
        if store.tokenizer != self._tokenizer:
            raise InputError("made with another tokenizer", where=self._folder, fix="Count the n-grams of these tokens.")
        return word_blocks(store, self.unit)

    def of(self, block: WordBlock) -> list[np.ndarray]:
        """Counts of the n-grams that begin at each word.

        Returns:
            An array `[words]` int64 for each order from 1; 0 where the n-gram was dropped or never seen, or where the
            title or body ends before it does.
        """
        numbers = self.words.number(block)
        counts, before = [at(self.unigrams, numbers, 0)], numbers
        for n, (keys, occurrences) in enumerate(self.tables, start=2):
            before = _extend(keys, before, numbers, block.room >= n, n)
            counts.append(at(occurrences, before, 0))
        return counts


@stage()
def ngrams(folder: Path, passages: Path, *, order: int = 4, min_count: int | None = None, unit: Unit = "word") -> None:
    """`counts/`: sorted tables of words and n-grams; arguments as of `count_ngrams`."""
    count_ngrams(TokenStore.open(passages / "store"), folder / "counts", order=order, min_count=min_count, unit=unit)


def count_ngrams(
    store: TokenStore, folder: Path, *, order: int = 4, min_count: int | None = None, unit: Unit = "word"
) -> NgramCounts:
    """Count all n-grams of up to `order` words; they never reach from a title into a body or into another passage.

    Args:
        store: tokens of the passages, read in full, whatever a model will later be shown of them.
        folder: where to write; `meta.json` comes last. Temporary files of about 20 bytes per word lie there meanwhile.
        order: the longest n-grams, at least 2 (CDMAE: 4).
        min_count: drop n-grams of two or more words that occur less often. None keeps all of a collection of up to
            10 million words and drops what occurs less than 5 times in larger ones.
        unit: count whole words, or pieces.

    Raises:
        InputError: there are more different n-grams than numbers.

    Example:
        >>> import tempfile, datasets
        >>> from dr_lib.tokens import train_wordpiece
        >>> texts = datasets.Dataset.from_dict({"text": ["a b c", "a b d"]})
        >>> place, tokenizer = Path(tempfile.mkdtemp()), train_wordpiece(texts["text"], 20)
        >>> store = TokenStore.build(texts, tokenizer, place / "store", columns=("text",), progress=False)
        >>> counts = count_ngrams(store, place / "ngrams", order=3)
        >>> counts.totals, [of_order.tolist() for of_order in counts.of(next(counts.blocks(store)))]
        ((6, 4, 2), [[2, 2, 1, 2, 2, 1], [2, 1, 0, 2, 1, 0], [1, 0, 0, 1, 0, 0]])
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    bar = tqdm(desc="Words", unit=" words")
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as scratch, bar:
        work = Path(scratch)
        table, counts, totals = _number_words(store, work, order, unit, bar)
        np.save(folder / "word_keys.npy", table.keys)
        np.save(folder / "word_numbers.npy", table.numbers)
        np.save(folder / "word_counts.npy", counts)
        least = min_count or (1 if totals[0] <= SMALL else RARE)
        bar.total = (2 * order - 2) * totals[0]
        for n in range(2, order + 1):
            bar.set_description(f"{n}-grams")
            keys, counts = _count_order(work, n, counts, least, bar)
            np.save(folder / f"keys{n}.npy", keys)
            np.save(folder / f"counts{n}.npy", counts)
            if n < order:
                with (work / f"numbers{n}").open("wb") as numbers:
                    for before, words, fits in _chunks(work, n):
                        _extend(keys, before, words, fits, n).astype(np.int32).tofile(numbers)
                        bar.update(len(before))
    meta = {"order": order, "unit": unit, "min_count": least, "totals": totals}
    write_json(folder / "meta.json", meta | {"vocab_size": table.vocab_size, "tokenizer": store.tokenizer})
    return NgramCounts.open(folder)


def _number_words(store: TokenStore, work: Path, order: int, unit: Unit, bar: tqdm) -> tuple[WordTable, np.ndarray, list[int]]:
    """Write the number of each word and how many words follow it; return table, counts and totals by order."""
    table, counts, rooms = WordTable(store.vocab_size), np.zeros(store.vocab_size, np.int64), np.zeros(order + 1, int)
    with (work / "numbers1").open("wb") as words, (work / "room").open("wb") as room:
        for block in word_blocks(store, unit):
            numbers, near = table.learn(block), np.minimum(block.room, order)
            numbers.astype(np.int32).tofile(words)
            near.astype(np.uint8).tofile(room)
            rooms += np.bincount(near, minlength=order + 1)
            counts = np.pad(counts, (0, len(table) - len(counts)))
            counts += np.bincount(numbers, minlength=len(table))
            bar.update(len(block))
    return table, counts, rooms[::-1].cumsum()[::-1][1:].tolist()


def _count_order(work: Path, n: int, below: np.ndarray, least: int, bar: tqdm) -> tuple[np.ndarray, np.ndarray]:
    """The chains of order n that occur often enough, sorted, and their counts.

    Args:
        work: holds the numbers of words and of the (n - 1)-grams that begin at them.
        n: the order.
        below: occurrences of each (n - 1)-gram by number.
        least: smallest count that is kept.
        bar: progress.
    """
    # A bucket is a range of (n - 1)-grams, so that buckets follow each other in the order of their keys. How many keys
    # each range can have is known from the order below: none has much more than `BUCKET`, a single (n - 1)-gram apart.
    bucket_of = np.cumsum(below) // max(BUCKET, int(below.sum()) // FILES)
    buckets = 1 + int(bucket_of[-1]) if len(bucket_of) else 1
    bucket_of = bucket_of.astype(np.uint16)
    with ExitStack() as stack:
        files = [stack.enter_context((work / f"bucket{number}").open("wb")) for number in range(buckets)]
        for before, words, fits in _chunks(work, n):
            keys = _keys(before, words, fits, n)
            keys = keys[keys >= 0]
            own = bucket_of[keys >> BITS]
            keys = keys[np.argsort(own, kind="stable")]
            ends = np.cumsum(np.bincount(own, minlength=buckets))
            for file, part in zip(files, np.split(keys, ends[:-1]), strict=True):
                part.tofile(file)
            bar.update(len(before))
    kept = [(np.zeros(0, np.int64), np.zeros(0, np.uint32))]
    for number in range(buckets):
        keys, counts = np.unique(np.fromfile(work / f"bucket{number}", np.int64), return_counts=True)
        kept.append((keys[counts >= least], counts[counts >= least].astype(np.uint32)))
        (work / f"bucket{number}").unlink()
    keys, counts = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    _check_numbers(len(keys), f"{n}-grams")
    return keys, counts


def _chunks(work: Path, n: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Parts of the collection: numbers of the (n - 1)-grams, of the words (n - 1 more), and where an n-gram fits."""
    if not (work / "room").stat().st_size:
        return
    before, words = (np.memmap(work / f"numbers{order}", np.int32, "r") for order in (n - 1, 1))
    room = np.memmap(work / "room", np.uint8, "r")
    for start in range(0, len(before), BLOCK):
        part = slice(start, start + BLOCK)
        yield before[part], words[start : start + BLOCK + n - 1], room[part] >= n


def _keys(before: np.ndarray, words: np.ndarray, fits: np.ndarray, n: int) -> np.ndarray:
    """Chains of order n, `[words]` int64, negative where there is none."""
    last = np.zeros(len(before), np.int64)
    following = words[n - 1 : n - 1 + len(before)]
    last[: len(following)] = following
    return np.where(fits & (last >= 0), chain(before, np.maximum(last, 0)), UNKNOWN)


def _extend(table: np.ndarray, before: np.ndarray, words: np.ndarray, fits: np.ndarray, n: int) -> np.ndarray:
    """Number of the n-gram that begins at each word, `[words]` int64, -1 where it is not in the table."""
    keys = _keys(before, words, fits, n)
    numbers = np.full(len(keys), UNKNOWN)
    some = np.flatnonzero(keys >= 0)
    numbers[some] = find(table, keys[some])
    return numbers


# Chains -------------------------------------------------------------------------------------------------------------


def chain(before: np.ndarray, last: np.ndarray) -> np.ndarray:
    """One int64 for each sequence; negative where the number of what comes before is -1 (unknown).

    Args:
        before: `[n]` number of the sequence without its last member, below 2^31, or -1.
        last: `[n]` number of the last member, from 0 and below 2^31.

    Example:
        >>> chain(np.array([3, -1]), np.array([5, 5])).tolist()
        [6442450949, -2147483643]
    """
    return before.astype(np.int64) << BITS | last


def find(table: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Place of each key in a sorted table, `[n]` int64; -1 where it is not there.

    Example:
        >>> find(np.array([4, 7, 9]), np.array([9, 5, 4])).tolist()
        [2, -1, 0]
    """
    if not len(table):
        return np.full(len(keys), UNKNOWN)
    # Sorted keys run through the table from left to right and keep to what is in the processor's cache.
    order = np.argsort(keys)
    ranked = keys[order]
    place = np.minimum(np.searchsorted(table, ranked), len(table) - 1)
    found = np.empty(len(keys), np.int64)
    found[order] = np.where(table[place] == ranked, place, UNKNOWN)
    return found


def at(values: np.ndarray, place: np.ndarray, missing: int) -> np.ndarray:
    """`values[place]`, and `missing` where the place is -1; `[n]` int64.

    Example:
        >>> at(np.array([10, 20]), np.array([1, -1]), missing=0).tolist()
        [20, 0]
    """
    if not len(values):
        return np.full(len(place), missing)
    return np.where(place < 0, missing, values[place].astype(np.int64))


def _check_numbers(count: int, what: str) -> None:
    if count > 2**BITS:
        problem = f"{count:,} different {what} are more than the {2**BITS:,} that can be numbered"
        raise InputError(problem, where="collection", fix="Raise min_count, or count a part of the collection.")
