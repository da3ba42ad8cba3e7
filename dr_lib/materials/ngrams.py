"""How often each n-gram of words occurs in a collection, counted with bounded memory (for CDMAE eq. 7).

An n-gram is a chain: the number of its first n - 1 words and the number of its last word share one int64, exactly
(`chains.py`). So each order needs the order below first, and where a short n-gram was too rare to keep, no longer one
that begins with it is ever written down. Per order: one pass collects the keys (`sorted_runs.py`), one numbers what was
kept. Page: ideas/masking.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from dr_lib.errors import InputError
from dr_lib.files import fresh_folder, read_json, write_json
from dr_lib.materials.chains import UNKNOWN, at, chain, check_numbers, find
from dr_lib.materials.sorted_runs import COUNT, SortedRuns
from dr_lib.materials.words import Unit, WordBlock, WordTable, word_blocks
from dr_lib.tokens import FlatWriter, TokenStore, open_flat

FORMAT = "dr_lib n-gram counts 1"
SMALL = 10_000_000
"""Collections of up to this many words keep every n-gram by default."""
RARE = 5
BUFFER = 2**24
CHUNK = 2**21


class NgramCounts:
    """Sorted tables of n-grams and their counts, memory-mapped.

    Attributes:
        folder: where they lie.
        order: the longest n-grams counted.
        unit: what counts as a word.
        min_count: n-grams that occur less often were dropped; single words never.
        totals: number of n-gram occurrences in the collection by order from 1, dropped ones included.
        words: numbers of the words.
        unigrams: `[words]` int64, count of each word by number.
        tables: for each order from 2 the sorted chains (int64) and their counts (uint32).
    """

    def __init__(self, folder: Path, meta: dict[str, Any]):
        self.folder = folder
        self.order, self.unit, self.min_count = meta["order"], meta["unit"], meta["min_count"]
        self.totals: tuple[int, ...] = tuple(meta["totals"])
        self._tokenizer: str = meta["tokenizer"]

        def array(name: str) -> np.ndarray:
            return open_flat(folder / f"{name}.npy", *meta["files"][name])

        self.words = WordTable(meta["vocab_size"], array("word_keys"), array("word_numbers"))
        self.unigrams = array("word_counts")
        self.tables = [(array(f"keys{n}"), array(f"counts{n}")) for n in range(2, self.order + 1)]

    @staticmethod
    def open(folder: Path) -> "NgramCounts":
        """Open tables written by `count_ngrams`; `InputError` where there are none or a file is missing or cut off."""
        meta = read_json(Path(folder) / "meta.json")
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            raise InputError("no n-gram counts of this version", where=folder, fix="Count them again.")
        return NgramCounts(Path(folder), meta)

    def blocks(self, store: TokenStore, pieces: int | None = None) -> Iterator[WordBlock]:
        """The words of a store as these tables count them; another tokenizer's raises `InputError`."""
        if store.tokenizer != self._tokenizer:
            raise InputError("made with another tokenizer", where=self.folder, fix="Count the n-grams of these tokens.")
        return word_blocks(store, self.unit, pieces)

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


def count_ngrams(
    store: TokenStore,
    folder: Path,
    *,
    order: int = 4,
    min_count: int | None = None,
    unit: Unit = "word",
    buffer: int = BUFFER,
    progress: bool = True,
) -> NgramCounts:
    """Count all n-grams of up to `order` words; they never reach from a title into a body or into another passage.

    Args:
        store: tokens of the passages, read in full, whatever a model will later be shown of them.
        folder: where to write; it is whole or absent. Temporary files of about 25 bytes a word lie there meanwhile.
        order: the longest n-grams, at least 2 (CDMAE: 4).
        min_count: drop n-grams of two or more words that occur less often. None keeps all of a collection of up to
            10 million words and drops what occurs less than 5 times in larger ones.
        unit: count whole words, or pieces.
        buffer: keys sorted at a time; memory is some 40 bytes for each and the table of words.
        progress: show a bar.

    Raises:
        InputError: an argument is out of range, or there are more different n-grams than numbers.

    Example:
        >>> import tempfile, datasets
        >>> from dr_lib.tokens import train_wordpiece
        >>> texts = datasets.Dataset.from_dict({"text": ["a b c", "a b d"]})
        >>> place, tokenizer = Path(tempfile.mkdtemp()), train_wordpiece(texts["text"], 20)
        >>> store = TokenStore.build(texts, tokenizer, place / "store", columns=("text",), progress=False)
        >>> counts = count_ngrams(store, place / "ngrams", order=3, progress=False)
        >>> counts.totals, [of_order.tolist() for of_order in counts.of(next(counts.blocks(store)))]
        ((6, 4, 2), [[2, 2, 1, 2, 2, 1], [2, 1, 0, 2, 1, 0], [1, 0, 0, 1, 0, 0]])
    """
    for name, value, least in (("order", order, 2), ("min_count", min_count, 1), ("buffer", buffer, 2)):
        if value is not None and value < least:
            raise InputError(f"{value} is below {least}", where=name, fix=f"Give {least} or more.")
    with fresh_folder(Path(folder)) as draft, tqdm(desc="Words", unit=" words", disable=not progress) as bar:
        work = draft / "work"
        work.mkdir()
        table, totals = _number_words(store, draft, order, unit, bar)
        least = min_count or (1 if totals[0] <= SMALL else RARE)
        bar.total = (2 * order - 2) * totals[0]
        for n in range(2, order + 1):
            bar.set_description(f"{n}-grams")
            _count_order(draft, n, least, buffer, bar)
            if n < order:
                _number_order(draft, n, bar)
        shutil.rmtree(work)
        files = {path.stem: np.load(path, mmap_mode="r") for path in sorted(draft.glob("*.npy"))}
        meta = {
            "format": FORMAT, "order": order, "unit": unit, "min_count": least, "totals": totals,
            "vocab_size": table.vocab_size, "tokenizer": store.tokenizer, "store": store.digest,
            "files": {name: [array.dtype.name, len(array)] for name, array in files.items()},
        }  # fmt: skip
        write_json(draft / "meta.json", meta)
    return NgramCounts.open(folder)


def _number_words(store: TokenStore, draft: Path, order: int, unit: Unit, bar: tqdm) -> tuple[WordTable, list[int]]:
    """Write the number of each word and how many words follow it; return the table and the totals by order."""
    table, counts, rooms = WordTable(store.vocab_size), np.zeros(store.vocab_size, np.int64), np.zeros(order + 1, int)
    work = draft / "work"
    with FlatWriter(work / "numbers1.npy", np.int32) as words, FlatWriter(work / "room.npy", np.uint16) as room:
        for block in word_blocks(store, unit):
            numbers, near = table.learn(block), np.minimum(block.room, order)
            words.append(numbers)
            room.append(near)
            rooms += np.bincount(near, minlength=order + 1)
            counts = np.pad(counts, (0, len(table) - len(counts)))
            counts += np.bincount(numbers, minlength=len(table))
            bar.update(len(block))
    np.save(draft / "word_keys.npy", table.keys)
    np.save(draft / "word_numbers.npy", table.numbers)
    np.save(draft / "word_counts.npy", counts)
    return table, rooms[::-1].cumsum()[::-1][1:].tolist()


def _count_order(draft: Path, n: int, least: int, buffer: int, bar: tqdm) -> None:
    """Write the chains of order n that occur often enough, sorted, and their counts."""
    runs = SortedRuns(draft / "work", buffer)
    for before, words, fits in _chunks(draft / "work", n):
        keys = _keys(before, words, fits, n)
        runs.add(keys[keys >= 0])
        bar.update(len(before))
    with FlatWriter(draft / f"keys{n}.npy", np.int64) as kept, FlatWriter(draft / f"counts{n}.npy", COUNT) as counts:
        for keys, count in runs.merged():
            often = count >= least
            kept.append(keys[often])
            counts.append(count[often])
        check_numbers(kept.length, f"{n}-grams")
    runs.discard()


def _number_order(draft: Path, n: int, bar: tqdm) -> None:
    """Write the number of the n-gram that begins at each word: its place in the table, or -1."""
    table = np.load(draft / f"keys{n}.npy", mmap_mode="r")
    with FlatWriter(draft / "work" / f"numbers{n}.npy", np.int32) as numbers:
        for before, words, fits in _chunks(draft / "work", n):
            numbers.append(_extend(table, before, words, fits, n))
            bar.update(len(before))


def _chunks(work: Path, n: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Parts of the collection: numbers of the (n - 1)-grams, of the words (n - 1 more), and where an n-gram fits."""
    arrays = (np.load(work / f"{name}.npy", mmap_mode="r") for name in (f"numbers{n - 1}", "numbers1", "room"))
    before, words, room = arrays
    for start in range(0, len(before), CHUNK):
        part = slice(start, start + CHUNK)
        yield before[part], words[start : start + CHUNK + n - 1], room[part] >= n


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
