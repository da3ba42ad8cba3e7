"""Were the test questions in the training data? Edit distance to the nearest generated question (DPR-PAQ, 5.4).

The distance is Levenshtein's over words: lower-cased runs of letters and digits, punctuation dropped. Distance 0 is
verbatim overlap. DPR-PAQ searches the 100 questions that a retriever proposes; here all of a pool are searched, and the
result is exact: two questions of m and n words that share s of them are at least max(m, n) - s apart, so only those
whose bound is below the best distance found are computed. That needs some 20 bytes per word of the pool and, on one
core, about 10 ms per question for a pool of 100,000.
Page of the book: ideas/evaluation.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import regex

from dr_lib.errors import InputError

WORD = regex.compile(r"[\p{L}\p{N}\p{M}]+")
AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class NearestQuestions:
    """For each question the nearest one of a pool.

    Attributes:
        distances: `[questions]` int64, in words.
        rows: `[questions]` int64, place in the pool of one at that distance.
    """

    distances: np.ndarray
    rows: np.ndarray

    @property
    def verbatim(self) -> np.ndarray:
        """`[questions]` bool, True where the pool holds the same words in the same order."""
        return self.distances == 0


def nearest_questions(questions: Sequence[str], pool: Sequence[str]) -> NearestQuestions:
    """Find the question of the pool with the smallest edit distance to each question.

    Args:
        questions: e.g. test questions.
        pool: e.g. generated questions, at least one.

    Raises:
        InputError: an empty pool.

    Example:
        >>> found = nearest_questions(["Who wrote Emma?"], ["who sang this song", "who wrote Emma in 1815", "when"])
        >>> found.distances.tolist(), found.rows.tolist(), found.verbatim.tolist()
        ([2], [1], [False])
    """
    if not len(pool):
        raise InputError("no question to compare with", where="pool", fix="Give at least one.")
    index = _Pool(pool)
    best = np.array([index.nearest(index.encode(question)) for question in questions], np.int64).reshape(-1, 2)
    return NearestQuestions(best[:, 0], best[:, 1])


def edit_distances(words: np.ndarray, texts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Levenshtein distance of one text to many at once: one step a word of the text, all others side by side.

    Args:
        words: `[m]` integers, the words of the one.
        texts: `[texts, longest]` integers, the words of the others; what stands behind a text's end is not read.
        lengths: `[texts]` number of words of each.

    Returns:
        `[texts]` int64.

    Example:
        >>> edit_distances(np.array([1, 2, 3]), np.array([[1, 3, 0], [4, 2, 3]]), np.array([2, 3])).tolist()
        [1, 1]
    """
    steps = np.arange(texts.shape[1] + 1, dtype=np.int32)
    line = np.tile(steps, (len(texts), 1))
    for row, word in enumerate(words.tolist(), 1):
        kept = np.minimum(line[:, 1:] + 1, line[:, :-1] + (texts != word))
        line[:, 0], line[:, 1:] = row, kept
        # Insertions cost one a step to the right: the best value so far, less its place, carries on.
        np.minimum.accumulate(line - steps, axis=1, out=line)
        line += steps
    return line[np.arange(len(texts)), lengths].astype(np.int64)


def stratify(distances: np.ndarray, first: np.ndarray, second: np.ndarray) -> dict[tuple[bool, bool], np.ndarray]:
    """The distances of the questions that both retrievers answer, only the first, only the second, and neither.

    The cells of DPR-PAQ's Table 5, by whether the first and whether the second succeeds.

    Args:
        distances: `[questions]`.
        first, second: `[questions]`, success of each retriever (0 or 1, such as "accuracy@20" per query).

    Example:
        >>> cells = stratify(np.array([1, 3, 5]), np.array([1, 1, 0]), np.array([1, 1, 0]))
        >>> float(cells[True, True].mean()), len(cells[True, False])
        (2.0, 0)
    """
    found = np.asarray(first) > 0, np.asarray(second) > 0
    cells = ((True, True), (True, False), (False, True), (False, False))
    return {(one, other): np.asarray(distances)[(found[0] == one) & (found[1] == other)] for one, other in cells}


class _Pool:
    """Questions as numbers of words, and for each word the questions that hold it."""

    def __init__(self, pool: Sequence[str]):
        split = [_words(text) for text in pool]
        self.lengths = np.array([len(words) for words in split])
        self.numbers: dict[str, int] = {}
        flat = (self.numbers.setdefault(word, len(self.numbers)) for words in split for word in words)
        self.flat = np.fromiter(flat, np.int64, self.lengths.sum())
        self.starts = np.cumsum(self.lengths) - self.lengths
        owners = np.repeat(np.arange(len(split)), self.lengths)
        # The second occurrence of a word is a key of its own, so that shared keys count shared words exactly.
        keys, self.owners = _occurrences(self.flat, owners)
        order = np.argsort(keys, kind="stable")
        self.keys, self.owners = keys[order], self.owners[order].astype(np.int32)

    def encode(self, question: str) -> np.ndarray:
        """The words of a question by number; one that the pool lacks gets a number that nothing there has."""
        return np.array([self.numbers.get(word, len(self.numbers)) for word in _words(question)], np.int64)

    def distances(self, words: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Edit distance of a question to some of the pool."""
        inside = self.starts[rows, None] + np.arange(self.lengths[rows].max(initial=0))
        return edit_distances(words, np.append(self.flat, -1)[np.minimum(inside, len(self.flat))], self.lengths[rows])

    def nearest(self, words: np.ndarray) -> tuple[int, int]:
        """Smallest distance over the whole pool and a row that has it."""
        own, _ = _occurrences(words, np.zeros(len(words), np.int64))
        ends = np.searchsorted(self.keys, [own, own + 1])
        hits = [self.owners[start:stop] for start, stop in ends.T]
        shared = np.bincount(np.concatenate([self.owners[:0], *hits]), minlength=len(self.lengths))
        bounds = np.maximum(self.lengths, len(words)) - shared
        best, where, bound = np.iinfo(np.int64).max, -1, int(bounds.min())
        while bound < best:
            rows = np.flatnonzero(bounds == bound)
            for part in (rows[i : i + AT_ONCE] for i in range(0, len(rows), AT_ONCE)):
                distances = self.distances(words, part)
                if distances.min() < best:
                    best, where = int(distances.min()), int(part[distances.argmin()])
            bound += 1
        return best, where


def _words(text: str) -> list[str]:
    return WORD.findall(unicodedata.normalize("NFD", text).lower())


def _occurrences(words: np.ndarray, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A key for each word and the number of times it stood before in its text, and whose text it is; in any order."""
    order = np.lexsort((words, owners))
    words, owners = words[order], owners[order]
    new = np.flatnonzero((np.diff(words, prepend=-1) != 0) | (np.diff(owners, prepend=-1) != 0))
    before = np.arange(len(words)) - np.repeat(new, np.diff(new, append=len(words)))
    return (words << 20) | before, owners
