"""Were the test questions in the training data? Edit distance to the nearest generated question
(DPR-PAQ, 5.4), and wordings.

The distance is Levenshtein's over words (`words.tokens`), punctuation dropped. Distance 0 is
verbatim overlap. DPR-PAQ searches the 100 questions that a retriever proposes; here all of a pool
are searched, and the result is exact: two questions of m and n words that share s of them are at
least max(m, n) - s apart, so only those whose bound is below the best distance found are computed.
Page of the book: ideas/evaluation.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from dr_lib.errors import InputError
from dr_lib.words import tokens

AT_ONCE = 1 << 14
COMMON, OFTEN = 0.01, 5
"""A word of this share of all training questions belongs to a wording; one that this many of them
follow is a template.
"""


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
        >>> found = nearest_questions(
        ...     ["Who wrote Emma?"], ["who sang this song", "who wrote Emma in 1815", "when"]
        ... )
        >>> found.distances.tolist(), found.rows.tolist(), found.verbatim.tolist()
        ([2], [1], [False])
    """
    if not len(pool):
        raise InputError("no question to compare with", where="pool", fix="Give at least one.")
    split = [tokens(text, signs=False) for text in pool]
    lengths = np.array([len(words) for words in split])
    numbers = {
        word: number
        for number, word in enumerate(dict.fromkeys(word for words in split for word in words))
    }
    texts = np.full((len(split), lengths.max()), -1, np.int32)
    texts[np.arange(texts.shape[1]) < lengths[:, None]] = [
        numbers[word] for words in split for word in words
    ]
    # Which texts have each word: `[words, texts]`, 1 where one has it, as often as it may.
    place = np.repeat(np.arange(len(split)), lengths)
    holds = sparse.csr_matrix(
        (np.ones(len(place), np.int32), (texts[texts >= 0], place)),
        shape=(len(numbers), len(split)),
    )
    holds.data[:] = 1
    nearest = []
    for question in questions:
        words = np.array(
            [numbers.get(word, len(numbers)) for word in tokens(question, signs=False)], np.int64
        )
        # Each word of the longer text costs 1 but for those that both have: no text is nearer than
        # its bound.
        shared = np.asarray(holds[words[words < len(numbers)]].sum(axis=0), np.int64)[0]
        bounds = np.maximum(lengths, len(words)) - np.minimum(shared, lengths)
        best, where, bound = np.iinfo(np.int64).max, -1, int(bounds.min())
        while bound < best:
            rows = np.flatnonzero(bounds == bound)
            for part in np.split(rows, range(AT_ONCE, len(rows), AT_ONCE)):
                distances = edit_distances(
                    words, texts[part, : lengths[part].max(initial=0)], lengths[part]
                )
                if len(part) and distances.min() < best:
                    best, where = int(distances.min()), int(part[distances.argmin()])
            bound += 1
        nearest.append((best, where))
    return NearestQuestions(*np.array(nearest, np.int64).reshape(-1, 2).T)


def templated(questions: Sequence[str], training: Sequence[str]) -> float:
    """The share of questions whose wording many training questions have too, with other names in
    it.

    The wording of a question is what is left when each run of words that few training questions
    have becomes one gap. Of SQuAD's test questions up to 16 % have a frequent one, of MedQuAD's,
    which were filled into sixteen templates, 60 to 80 %.

    Args:
        questions: those of a test.
        training: those that a retriever learnt from.

    Example:
        >>> training = [f"What are the symptoms of disease{number}?" for number in range(200)]
        >>> templated(["What are the symptoms of gout?", "Why does my big toe hurt?"], training)
        0.5
    """
    split = [tokens(text, signs=False) for text in training]
    counts = Counter(word for words in split for word in set(words))
    frequent = {word for word, count in counts.items() if count >= COMMON * len(training)}

    def wording(words: list[str]) -> tuple[str, ...]:
        marked = [word if word in frequent else "" for word in words]
        return tuple(
            word for place, word in enumerate(marked) if word or not place or marked[place - 1]
        )

    known = Counter(map(wording, split))
    found = [wording(tokens(text, signs=False)) for text in questions]
    return (
        float(np.mean([known[one] >= OFTEN and sum(map(bool, one)) > 1 for one in found]))
        if found
        else 0.0
    )


def edit_distances(words: np.ndarray, texts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Levenshtein distance of one text to many at once: one step a word of the text, all others
    side by side.

    Args:
        words: `[m]` integers, the words of the one.
        texts: `[texts, longest]` integers, the words of the others; what stands behind a text's end
            is not read.
        lengths: `[texts]` number of words of each.

    Returns:
        `[texts]` int64.

    Example:
        >>> edit_distances(
        ...     np.array([1, 2, 3]), np.array([[1, 3, 0], [4, 2, 3]]), np.array([2, 3])
        ... ).tolist()
        [1, 1]
    """
    steps = np.arange(texts.shape[1] + 1, dtype=np.int32)
    line = np.tile(steps, (len(texts), 1))
    for row, word in enumerate(words.tolist(), 1):
        kept = np.minimum(line[:, 1:] + 1, line[:, :-1] + (texts != word))
        line[:, 0], line[:, 1:] = row, kept
        # Insertions cost one a step to the right: the best value so far, less its place, carries
        # on.
        np.minimum.accumulate(line - steps, axis=1, out=line)
        line += steps
    return line[np.arange(len(texts)), lengths].astype(np.int64)
