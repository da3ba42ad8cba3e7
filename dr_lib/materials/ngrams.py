"""How often each word and each n-gram of words occurs in a collection (for CDMAE eq. 7).

A word is a piece and the pieces that continue it. Titles and bodies are separate texts here, so
that no n-gram crosses from one to the other or to the next passage.

What is counted are 64-bit hashes: of a word's pieces, and of an n-gram's words. Among a billion
distinct n-grams, a collision happens in one collection of 37; colliding n-grams are counted
together. For each order the hashes are distributed to buckets on disk, which are counted one after
another: time and disk space grow linearly with the collection, memory with the number of n-grams
that are kept. Page: ideas/masking.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tqdm.auto import tqdm

from dr_lib.files import open_array, read_json, write_json
from dr_lib.stages import stage
from dr_lib.tokens import TokenStore, TokenValues
from dr_lib.training import hash64

Unit = Literal["word", "piece"]
BLOCK = 2**21
"""Pieces, or words, processed at a time."""
BUCKET = 2**24
"""Hashes counted at a time, roughly; each takes some 30 bytes."""
FILES = 200
"""Maximum number of buckets, limited by open files."""
SMALL = 10_000_000
"""Collections of up to this many words keep every n-gram by default."""
RARE = 5


# Words --------------------------------------------------------------------------------------------


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
        """Spread a value per word to its pieces: those of the titles and those of the bodies."""
        spread = np.repeat(values, self.sizes)
        return spread[: self.title_pieces], spread[self.title_pieces :]

    def ngrams(self, order: int) -> list[np.ndarray]:
        """For each order from 1 a hash of the n-gram that begins at each word, `[words]` uint64;
        meaningless where `room` is less.

        Example:
            >>> block = WordBlock(
            ...     0,
            ...     1,
            ...     np.array([3, 4, 3, 3, 4]),
            ...     0,
            ...     np.array([0, 2, 3]),
            ...     np.array([2, 1, 2]),
            ...     None,
            ...     None,
            ... )
            >>> first, second, third = block.ngrams(1)[0].tolist()
            >>> first == third != second
            True
        """
        words, longer = hash64(self.pieces[self.starts]), np.arange(len(self))
        for piece in range(1, int(self.sizes.max(initial=1))):
            longer = longer[self.sizes[longer] > piece]
            words[longer] = hash64(words[longer], self.pieces[self.starts[longer] + piece])
        hashes = [words]
        for n in range(1, order):
            hashes.append(hash64(hashes[-1], np.roll(words, -n)))
        return hashes


def word_blocks(store: TokenStore, unit: Unit = "word") -> Iterator[WordBlock]:
    """The whole store in blocks of about `BLOCK` pieces (a longer passage is a block of its own).

    Args:
        store: the tokens.
        unit: `"word"`, or `"piece"` to treat every piece as a word.
    """
    before = store.title_offsets + store.text_offsets
    first = 0
    while first < len(store):
        last = max(first + 1, int(np.searchsorted(before, before[first] + BLOCK, side="right")) - 1)
        yield _block(store, first, last, unit)
        first = last


def _block(store: TokenStore, first: int, last: int, unit: Unit) -> WordBlock:
    title, text = store.title_offsets[first : last + 1], store.text_offsets[first : last + 1]
    pieces = np.concatenate(
        [store.title_ids[title[0] : title[-1]], store.text_ids[text[0] : text[-1]]]
    )
    title_pieces = int(title[-1] - title[0])
    bounds = np.concatenate([title[:-1] - title[0], text - text[0] + title_pieces])
    begins = ~store.continuation[pieces] if unit == "word" else np.ones(len(pieces), bool)
    # a text that begins in mid-word still begins a word
    begins[bounds[:-1][bounds[:-1] < bounds[1:]]] = True
    starts = np.flatnonzero(begins)
    words = np.searchsorted(starts, bounds)
    text_of_word = np.repeat(np.arange(len(bounds) - 1), np.diff(words))
    room = words[text_of_word + 1] - np.arange(len(starts))
    sizes, rows = np.diff(starts, append=len(pieces)), text_of_word % (last - first)
    return WordBlock(first, last, pieces, title_pieces, starts, sizes, room, rows)


# N-grams ------------------------------------------------------------------------------------------


class NgramCounts:
    """Sorted tables of n-grams and their counts, memory-mapped.

    Attributes:
        unit: what counts as a word.
        min_count: n-grams that occur less often were dropped; single words never.
        totals: number of n-gram occurrences in the collection by order from 1, dropped ones
            included.
        tables: for each order from 1 the sorted hashes (uint64) and their counts (uint32).
    """

    def __init__(self, folder: Path, meta: dict[str, Any]):
        self.unit = meta["unit"]
        self.min_count = meta["min_count"]
        self.totals = tuple(meta["totals"])
        names = ((f"keys{n}", f"counts{n}") for n in range(1, len(self.totals) + 1))
        self.tables = [
            tuple(np.asarray(open_array(folder / f"{name}.npy")) for name in files)
            for files in names
        ]

    @staticmethod
    def open(folder: Path) -> "NgramCounts":
        """Open tables written by `count_ngrams`; `InputError` where there are none."""
        return NgramCounts(folder, read_json(folder / "meta.json"))

    def of(self, block: WordBlock) -> list[np.ndarray]:
        """Counts of the n-grams that begin at each word.

        Returns:
            An array `[words]` int64 for each order from 1; 0 if the n-gram was dropped or never
            seen, or if the title or body ends before it.
        """
        by_order, known = [], np.arange(len(block))
        for n, (hashes, table) in enumerate(
            zip(block.ngrams(len(self.tables)), self.tables, strict=True), start=1
        ):
            known = known[block.room[known] >= n]
            counts = np.zeros(len(block), np.int64)
            counts[known] = look_up(*table, hashes[known])
            # if an n-gram was dropped, so was every longer one that begins with it
            known = known[counts[known] > 0]
            by_order.append(counts)
        return by_order


@stage()
def ngrams(
    folder: Path,
    passages: Path,
    *,
    order: int = 4,
    min_count: int | None = None,
    unit: Unit = "word",
) -> None:
    """`counts/`: sorted tables of words and n-grams; arguments as of `count_ngrams`."""
    count_ngrams(
        TokenStore.open(passages / "store"),
        folder / "counts",
        order=order,
        min_count=min_count,
        unit=unit,
    )


def count_ngrams(
    store: TokenStore,
    folder: Path,
    *,
    order: int = 4,
    min_count: int | None = None,
    unit: Unit = "word",
) -> NgramCounts:
    """Count all n-grams of up to `order` words; they never cross from a title into a body or into
    another passage.

    Args:
        store: the tokens.
        folder: where to write the tables.
        order: the longest n-grams, at least 2 (CDMAE: 4).
        min_count: drop n-grams of two or more words that occur less often. None keeps all of a
            collection of up to 10 million words and drops what occurs less than 5 times in larger
            ones.
        unit: count whole words, or pieces.

    Example:
        >>> import tempfile, datasets
        >>> from dr_lib.tokens import train_wordpiece
        >>> texts = datasets.Dataset.from_dict({"text": ["a b c", "a b d"]})
        >>> place, tokenizer = Path(tempfile.mkdtemp()), train_wordpiece(texts["text"], 20)
        >>> store = TokenStore.build(
        ...     texts, tokenizer, place / "store", columns=("text",)
        ... )
        >>> counts = count_ngrams(store, place / "ngrams", order=3)
        >>> counts.totals, [of_order.tolist() for of_order in counts.of(next(word_blocks(store)))]
        ((6, 4, 2), [[2, 2, 1, 2, 2, 1], [2, 1, 0, 2, 1, 0], [1, 0, 0, 1, 0, 0]])
    """
    folder.mkdir(parents=True, exist_ok=True)
    totals: list[int] = []
    with tqdm(total=order * len(store), desc="N-grams", unit=" passages") as bar:
        for n in range(1, order + 1):
            least = 1 if n == 1 else min_count or (1 if totals[0] <= SMALL else RARE)

            def ending(block: WordBlock, n: int = n) -> np.ndarray:
                """Hashes of all n-grams of a block that end before their text does."""
                return block.ngrams(n)[-1][block.room >= n]

            keys, counts, total = _counted(store, folder, unit, ending, least, bar)
            np.save(folder / f"keys{n}.npy", keys)
            np.save(folder / f"counts{n}.npy", counts)
            totals.append(total)
    write_json(folder / "meta.json", {"unit": unit, "min_count": least, "totals": totals})
    return NgramCounts.open(folder)


def _counted(
    store: TokenStore,
    folder: Path,
    unit: Unit,
    hashes_of: Callable[[WordBlock], np.ndarray],
    least: int,
    bar: tqdm,
) -> tuple[np.ndarray, np.ndarray, int]:
    """The hashes of all blocks that occur at least `least` times, sorted, their counts, and the
    total number of occurrences.
    """
    # A bucket is a range of hashes, which are uniform: the concatenation of sorted buckets is
    # sorted.
    buckets = min(FILES, 1 + (len(store.title_ids) + len(store.text_ids)) // BUCKET)
    borders = np.array([number * 2**64 // buckets for number in range(1, buckets)], np.uint64)
    tables, total = [(np.zeros(0, np.uint64), np.zeros(0, np.uint32))], 0
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as scratch:
        paths = [Path(scratch) / f"bucket{number}" for number in range(buckets)]
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in paths]
            for block in word_blocks(store, unit):
                hashes = np.sort(hashes_of(block))
                for file, part in zip(
                    files, np.split(hashes, np.searchsorted(hashes, borders)), strict=True
                ):
                    part.tofile(file)
                total += len(hashes)
                bar.update(block.last - block.first)
        for path in paths:
            keys, counts = np.unique(np.fromfile(path, np.uint64), return_counts=True)
            tables.append((keys[counts >= least], counts[counts >= least].astype(np.uint32)))
    keys, counts = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    return keys, counts, total


def look_up(keys: np.ndarray, counts: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The count of each hash in a sorted table, `[n]` int64; 0 if it is not there."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64)
    # Sorted up to their last bits, which hold the original index (faster than argsort): the search
    # then goes through the table from left to right, which is cache-friendly.
    last = np.uint64((1 << len(wanted).bit_length()) - 1)
    order = (np.sort(wanted & ~last | np.arange(len(wanted), dtype=np.uint64)) & last).view(
        np.int64
    )
    ranked, result = wanted[order], np.empty(len(wanted), np.int64)
    place = np.minimum(np.searchsorted(keys, ranked), len(keys) - 1)
    result[order] = np.where(keys[place] == ranked, counts[place], 0)
    return result


# Importances --------------------------------------------------------------------------------------
# CDMAE's average mutual information of each word with its neighbours (eq. 7 and 8). The paper
# defines the mutual information of two words and a mean over longer n-grams too. What it leaves
# open is a parameter here: the measure for more than two words, the ends of a text, and the count
# of rare n-grams.


Pmi = Literal["naive", "minseg"]
Edges = Literal["renorm", "zero"]


@stage()
def importances(
    folder: Path,
    passages: Path,
    counts: Path,
    *,
    window: int = 4,
    pmi: Pmi = "naive",
    edges: Edges = "renorm",
    floor: float = 1.0,
    ppmi: bool = False,
) -> None:
    """`values/`: the importance of each piece; `counts`: the n-grams; other arguments as below."""
    options = {"window": window, "pmi": pmi, "edges": edges, "floor": floor, "ppmi": ppmi}
    write_importances(
        NgramCounts.open(counts / "counts"),
        TokenStore.open(passages / "store"),
        folder / "values",
        **options,
    )


def write_importances(
    counts: NgramCounts, store: TokenStore, folder: Path, *, window: int = 4, **options: Any
) -> TokenValues:
    """Write the importance of each piece, that of its word, in float16.

    Args:
        counts: n-grams of at least `window` words. They do not say which tokenizer they are of: it
            has to be the store's, else their n-grams are those of other words.
        store: the tokens that the importances are for.
        folder: where to write; it is whole or absent.
        window: longest n-gram, L in eq. 8 (4 in the paper).
        options: `pmi`, `edges`, `floor` and `ppmi`, see `average_mutual_information`.
    """

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with tqdm(total=len(store), desc="Importances", unit=" passages") as bar:
            for block in word_blocks(store, counts.unit):
                block_counts = counts.of(block)[:window]
                yield block.on_pieces(
                    average_mutual_information(block_counts, block.room, counts.totals, **options)
                )
                bar.update(block.last - block.first)

    return TokenValues.write(store, folder, blocks(), dtype="float16")


def average_mutual_information(
    counts: Sequence[np.ndarray],
    room: np.ndarray,
    totals: Sequence[int],
    *,
    pmi: Pmi = "naive",
    edges: Edges = "renorm",
    floor: float = 1.0,
    ppmi: bool = False,
) -> np.ndarray:
    """Mean information of the n-grams that end at a word plus that of those that begin there (CDMAE
    eq. 8).

    Args:
        counts: for each order from 1 to L: `[words]`, occurrences of the n-gram that begins at each
            word, 0 unknown.
        room: `[words]`, words from each word to the end of its text, itself included.
        totals: occurrences of all n-grams of each order in the collection.
        pmi: information of an n-gram. `"naive"`: log p(n-gram) less the log p of its words (eq. 7
            with more words); `"minseg"`: the minimum over all ways to split it into shorter n-grams
            (Levine et al. 2021), so that one strong collocation does not make the whole n-gram
            informative. Both agree for two words.
        edges: at the ends of a text some n-grams do not exist. `"renorm"` averages over those that
            do, and a side without any takes the mean of the other; `"zero"` counts them as 0.
        floor: count of an unknown n-gram, above 0. Unknown n-grams must not be skipped or given no
            information: mostly n-grams of function words would be left, and the mask would prefer
            stop words.
        ppmi: replace negative information by 0.

    Returns:
        `[words]` float64, in nats; 0 for a word that stands alone.

    Example:
        >>> counts = [np.array([2, 2, 1]), np.array([2, 1, 0])]
        >>> average_mutual_information(counts, np.array([3, 2, 1]), (6, 4)).round(6).tolist()
        [3.008155, 3.008155, 3.008155]
    """
    shares = _log_shares(counts, totals, floor)
    # row 0: n-grams that begin at a word, row 1: that end there
    sums, numbers = np.zeros((2, len(room))), np.zeros((2, len(room)))
    for n, values in enumerate(
        _against_words(shares) if pmi == "naive" else _against_cuts(shares), start=2
    ):
        fits = room >= n
        values = np.where(fits, np.maximum(values, 0) if ppmi else values, 0.0)
        sums[0] += values
        numbers[0] += fits
        sums[1, n - 1 :] += values[: 1 - n]  # it ends n - 1 words later
        numbers[1, n - 1 :] += fits[: 1 - n]
    if edges == "zero":
        return sums.sum(axis=0) / (len(counts) - 1)
    after, before = sums / np.maximum(numbers, 1)
    return np.where(numbers[1] > 0, before, after) + np.where(numbers[0] > 0, after, before)


def _log_shares(
    counts: Sequence[np.ndarray], totals: Sequence[int], floor: float
) -> list[np.ndarray]:
    """log p of the n-gram that begins at each word, by order; unseen words count 1."""
    least = [1.0] + [floor] * (len(counts) - 1)
    return [
        np.log(np.where(count > 0, count, rare)) - np.log(max(total, 1))
        for count, total, rare in zip(counts, totals, least, strict=False)
    ]


def _against_words(shares: list[np.ndarray]) -> list[np.ndarray]:
    """Pointwise mutual information of the n-gram that begins at each word, by order from 2, against
    single words.
    """
    parts, gains = shares[0], []
    for n in range(2, len(shares) + 1):
        parts = parts + _later(shares[0], n - 1)
        gains.append(shares[n - 1] - parts)
    return gains


def _against_cuts(shares: list[np.ndarray]) -> list[np.ndarray]:
    """Pointwise mutual information of the n-gram that begins at each word, by order from 2, against
    its most likely split; `best` is the most likely way to build an n-gram, whole or split.
    """
    best, gains = [shares[0]], []
    for n in range(2, len(shares) + 1):
        cut = np.max([shares[k - 1] + _later(best[n - k - 1], k) for k in range(1, n)], axis=0)
        gains.append(shares[n - 1] - cut)
        best.append(np.maximum(shares[n - 1], cut))
    return gains


def _later(values: np.ndarray, places: int) -> np.ndarray:
    """Shift values: each word gets that of the word `places` later, 0 beyond the end."""
    moved = np.zeros_like(values)
    moved[: max(len(values) - places, 0)] = values[places:]
    return moved


# Keyword weights ----------------------------------------------------------------------------------
# The rarity of each word, by which MASTER draws the words to hide from a decoder: TF-IDF in the
# paper, 1 / count in the collection in the released code.


Weighting = Literal["inverse_count", "tfidf"]


@stage()
def keyword_weights(
    folder: Path, passages: Path, *, weighting: Weighting = "inverse_count"
) -> None:
    """`values/`: the keyword weight of each piece, that of its word, in float32.

    Args:
        folder: where to write.
        passages: their tokens (`store/`); words are counted in all of them, title and body of a
            passage together.
        weighting: `"inverse_count"`, 1 / occurrences in the collection (released code); `"tfidf"`,
            occurrences in the passage x ln(passages / passages with the word) (paper, which gives
            no formula).

    Example:
        >>> import tempfile, datasets
        >>> from dr_lib.tokens import train_wordpiece
        >>> texts = datasets.Dataset.from_dict({"text": ["a b", "a"]})
        >>> place, tokenizer = Path(tempfile.mkdtemp()), train_wordpiece(texts["text"], 20)
        >>> store = TokenStore.build(
        ...     texts, tokenizer, place / "store", columns=("text",)
        ... )
        >>> keyword_weights.body(place, place)
        >>> TokenValues(place / "values", store).text.tolist()
        [0.5, 1.0, 0.5]
    """
    store = TokenStore.open(passages / "store")
    bar = tqdm(total=2 * len(store), desc="Keyword weights", unit=" passages")

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for block in word_blocks(store):
            words = block.ngrams(1)[0]
            frequency = look_up(keys, counts, words)
            if weighting == "inverse_count":
                weights = 1.0 / frequency
            else:
                _, of_word, times = np.unique(
                    hash64(words, block.rows), return_inverse=True, return_counts=True
                )
                weights = times[of_word] * np.log(len(store) / frequency)
            yield block.on_pieces(weights)
            bar.update(block.last - block.first)

    # Count how often a word occurs in the collection, or in how many passages. The word is hashed
    # before the row, since the hash of two small numbers is the same with both exchanged.
    def counted(block: WordBlock) -> np.ndarray:
        words = block.ngrams(1)[0]
        if weighting == "inverse_count":
            return words
        return words[np.unique(hash64(words, block.rows), return_index=True)[1]]  # once a passage

    with bar:
        keys, counts, _ = _counted(store, folder, "word", counted, 1, bar)
        TokenValues.write(store, folder / "values", blocks(), dtype="float32")
