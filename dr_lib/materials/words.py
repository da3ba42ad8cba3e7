"""The words of a token store, block by block, and a number for each different word. Page: ideas/masking.

A word is what the tokenizer cut into pieces: a piece and those that continue it. Titles and bodies are texts of their
own here, so that nothing that is counted crosses from one to the other or to the next passage.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dr_lib.materials.chains import UNKNOWN, at, chain, check_numbers, find
from dr_lib.materials.sorted_runs import first_of_equals
from dr_lib.tokens import TokenStore

Unit = Literal["word", "piece"]
BLOCK = 2**21
"""Pieces that are worked on at a time."""


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


def word_blocks(store: TokenStore, unit: Unit = "word", pieces: int | None = None) -> Iterator[WordBlock]:
    """The whole store in blocks of about `pieces` pieces (a longer passage is a block of its own).

    Args:
        store: the tokens.
        unit: `"word"`, or `"piece"` to take every piece for a word.
        pieces: size of a block; None for `BLOCK`. It changes no result.
    """
    limit = pieces or BLOCK
    before = store.title_offsets + store.text_offsets
    first = 0
    while first < len(store):
        last = max(first + 1, int(np.searchsorted(before, before[first] + limit, side="right")) - 1)
        yield _block(store, first, last, unit)
        first = last


def _block(store: TokenStore, first: int, last: int, unit: Unit) -> WordBlock:
    title, text = store.title_offsets[first : last + 1], store.text_offsets[first : last + 1]
    pieces = np.concatenate([store.title_ids[title[0] : title[-1]], store.text_ids[text[0] : text[-1]]])
    title_pieces = int(title[-1] - title[0])
    bounds = np.concatenate([title[:-1] - title[0], text - text[0] + title_pieces])
    begins = ~store.continuation[pieces] if unit == "word" else np.ones(len(pieces), bool)
    begins[bounds[:-1][bounds[:-1] < bounds[1:]]] = True
    starts = np.flatnonzero(begins)
    words = np.searchsorted(starts, bounds)
    text_of_word = np.repeat(np.arange(len(bounds) - 1), np.diff(words))
    return WordBlock(
        first, last, pieces, title_pieces, starts, np.diff(starts, append=len(pieces)),
        words[text_of_word + 1] - np.arange(len(starts)), text_of_word % (last - first),
    )  # fmt: skip


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
                self._add(keys)
            numbers[longer] = at(self.numbers, find(self.keys, keys), UNKNOWN)
        return numbers

    def _add(self, keys: np.ndarray) -> None:
        ranked = np.sort(keys)
        distinct = ranked[first_of_equals(ranked)]
        new = distinct[find(self.keys, distinct) < 0]
        check_numbers(len(self) + len(new), "words")
        place = np.searchsorted(self.keys, new)
        self.numbers = np.insert(self.numbers, place, np.arange(len(self), len(self) + len(new)))
        self.keys = np.insert(self.keys, place, new)
