"""Which generated questions become the queries of which split: no passage and no question is in two of them.

Splits are drawn by document, so that neighbours of a training passage are not test passages; a collection of few
documents is split by passage instead. Page: practice/own-corpus.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from dr_lib.errors import InputError
from dr_lib.training import text_hash

FEWEST_DOCUMENTS = 50
"""Documents with questions below which splits are drawn by passage."""
WORD = re.compile(r"\w+")


def asked_once(texts: Sequence[str]) -> np.ndarray:
    """Which questions were written once only, `[questions]` bool; case does not count.

    A question that fits two passages tells them apart for nobody, and might stand in two splits.

    Example:
        >>> asked_once(["Who?", "why?", "who?"]).tolist()
        [False, True, False]
    """
    hashes = np.fromiter((text_hash(text.casefold()) for text in texts), np.int64, len(texts))
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return counts[inverse] == 1


def draw_splits(
    documents: np.ndarray, asked: np.ndarray, shares: Mapping[str, float], *, held: np.ndarray, seed: int
) -> np.ndarray:
    """Draw the split of every passage.

    Args:
        documents: `[passages]` int64, the document of each.
        asked: rows of passages that have a question, in any order, repeated or not.
        shares: split -> its part of the documents that have a question, scaled to sum to 1; the first gets the rest.
        held: rows of passages that are judged already; they and their documents are left out.
        seed: of the draw.

    Returns:
        `[passages]` int64, the split by its place in `shares`; -1 where there is no question or the passage is held.

    Raises:
        InputError: too few passages with a question for so many splits.

    Example:
        >>> draw_splits(np.arange(4), np.array([0, 1, 3]), {"train": 2, "test": 1}, held=np.array([]), seed=0).tolist()
        [0, 1, -1, 0]
    """
    units = _units(documents, asked)
    free = ~np.isin(units, units[held.astype(np.int64)])
    rows = np.unique(asked)
    drawn = np.unique(units[rows[free[rows]]])
    if len(drawn) < len(shares):
        fix = "Write more questions a passage, use a weaker filter, or train the question generator longer."
        raise InputError(f"{len(drawn)} passages with questions make no {len(shares)} splits", where="ask", fix=fix)
    sizes = [max(1, int(share / sum(shares.values()) * len(drawn))) for share in shares.values()]
    sizes[0] = len(drawn) - sum(sizes[1:])
    of_unit = np.full(int(units.max()) + 1, -1)
    of_unit[np.random.default_rng([seed, 7]).permutation(drawn)] = np.repeat(np.arange(len(shares)), sizes)
    found = np.full(len(documents), -1)
    found[rows] = of_unit[units[rows]]
    return found


def _units(documents: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """What is drawn as one: `[passages]` numbers of documents, or of passages where documents are few."""
    few = len(np.unique(documents[asked])) < FEWEST_DOCUMENTS
    return np.arange(len(documents)) if few else documents


def first_of_each(sources: np.ndarray) -> np.ndarray:
    """The first question of each passage, `[questions]` bool; `sources` is ascending.

    Example:
        >>> first_of_each(np.array([2, 2, 5])).tolist()
        [True, False, True]
    """
    return np.diff(sources, prepend=-1) > 0


def shared_words(questions: Sequence[str], passages: Sequence[str]) -> float:
    """Mean share of a question's distinct words that its passage has too; case does not count.

    Example:
        >>> shared_words(["Why do tides rise?"], ["Tides rise twice a day."])
        0.5
    """
    shares = []
    for question, passage in zip(questions, passages, strict=True):
        words = set(WORD.findall(question.casefold()))
        shares.append(len(words & set(WORD.findall(passage.casefold()))) / max(1, len(words)))
    return float(np.mean(shares)) if shares else 0.0
