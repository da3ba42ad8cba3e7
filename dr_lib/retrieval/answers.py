"""Which passages hold an accepted answer, by DPR's rule (accuracy@k, and negatives that are none after all).

Text and answers are normalised (Unicode NFD), cut into tokens (runs of letters, marks and digits, or single other
visible characters) and lower-cased; an answer matches where its tokens occur consecutively. Page of the book:
ideas/evaluation.
"""

import unicodedata
from collections.abc import Sequence

import numpy as np
import regex
from datasets import Dataset

TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
TEXTS_AT_ONCE = 10_000


def holds_answer(rows: np.ndarray, passages: Dataset, answers: Sequence[Sequence[str]]) -> np.ndarray:
    """Which passages hold an accepted answer of their query, by the rule of accuracy@k.

    Args:
        rows: `[queries, depth]` rows of the collection, such as a ranking's; -1 for none.
        passages: the collection, with the column `text`.
        answers: the accepted answers of each query.

    Returns:
        `[queries, depth]` bool.
    """
    rows, texts = np.asarray(rows), {}
    distinct = np.unique(rows[rows >= 0])
    for part in np.split(distinct, range(TEXTS_AT_ONCE, len(distinct), TEXTS_AT_ONCE)):
        # Each passage is normalised once, however many queries found it.
        texts.update(zip(part.tolist(), map(normal_form, passages.select_columns("text")[part]["text"]), strict=True))
    found = np.zeros(rows.shape, bool)
    for place, (line, given) in enumerate(zip(rows.tolist(), answers, strict=True)):
        wanted = [normal for answer in given if (normal := normal_form(answer)).strip()]
        found[place] = [row >= 0 and any(one in texts[row] for one in wanted) for row in line]
    return found


def normal_form(text: str) -> str:
    """Lower-cased tokens of a text with a space before, between and after them.

    A whole-token match is then a match of strings, since no token holds a space.

    Example:
        >>> normal_form("O'Neil, 1999"), normal_form("neil") in normal_form("O'Neil, 1999")
        (" o ' neil , 1999 ", True)
    """
    return " ".join(["", *(token.lower() for token in TOKEN.findall(unicodedata.normalize("NFD", text))), ""])
