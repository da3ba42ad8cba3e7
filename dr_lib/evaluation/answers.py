"""Top-k answer accuracy: is one of the first k passages one that contains an answer? DPR's measure for open questions.

Text and answers are normalised (Unicode NFD), cut into tokens (runs of letters, marks and digits, or single other
visible characters), lower-cased, and an answer matches where its tokens stand in a row. Only the passage's text counts,
not its title. Used for NQ by SimLM, MASTER, DPR-PAQ and PAIR. Page of the book: ideas/evaluation.
"""

import unicodedata
from collections.abc import Sequence

import numpy as np
import regex
from datasets import Dataset

from dr_lib.errors import InputError
from dr_lib.evaluation.scores import Scores
from dr_lib.retrieval.ranking import Ranking

TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
TEXTS_AT_ONCE = 10_000


def answer_accuracy(
    ranking: Ranking, passages: Dataset, answers: Sequence[Sequence[str]], ks: Sequence[int] = (1, 5, 20, 100)
) -> Scores:
    """Top-k answer accuracy of each query.

    DPR's code finds an answer without any token (only white space, say) in every passage; here it is in none. A query
    without answers scores 0.

    Args:
        ranking: rows of the collection, best first.
        passages: the collection, with the column `text`.
        answers: the accepted answers of each query, in the ranking's order.
        ks: cuts, each at least 1.

    Returns:
        For each k the measure "accuracy@k", 0 or 1 a query.

    Raises:
        InputError: another number of queries, no answer at all, or a cut below 1.

    Example:
        >>> passages = Dataset.from_dict({"text": ["In Paris, of course.", "Parish life."]})
        >>> ranking = Ranking(["q"], np.array([[1, 0]]), np.array([[2.0, 1.0]]))
        >>> answer_accuracy(ranking, passages, [["PARIS"]], ks=(1, 2)).values
        {'accuracy@1': array([0.], dtype=float32), 'accuracy@2': array([1.], dtype=float32)}
    """
    if len(answers) != len(ranking) or not any(answers):
        problem = f"{len(ranking)} queries, answers to {sum(map(bool, answers))} of {len(answers)}"
        raise InputError(problem, where="answers", fix="Give the answers of each query, in the ranking's order.")
    if min(ks) < 1:
        raise InputError(f"cut {min(ks)} is below 1", where="ks", fix="Give cuts of at least 1.")
    rows = np.asarray(ranking.rows[:, : max(ks)])
    texts = _normal_texts(passages, np.flatnonzero(np.bincount(rows[rows >= 0], minlength=1)))
    wanted = [_normal_answers(given) for given in answers]
    first = np.array([_first_hit(line, texts, own) for line, own in zip(rows.tolist(), wanted, strict=True)])
    return Scores(ranking.query_ids, {f"accuracy@{k}": first < k for k in ks})


def holds_answer(rows: np.ndarray, passages: Dataset, answers: Sequence[Sequence[str]]) -> np.ndarray:
    """Which passages hold an accepted answer of their query, by the same rule as `answer_accuracy`.

    Args:
        rows: `[queries, depth]` rows of the collection, such as a ranking's; -1 for none.
        passages: the collection, with the column `text`.
        answers: the accepted answers of each query.

    Returns:
        `[queries, depth]` bool.
    """
    rows = np.asarray(rows)
    texts = _normal_texts(passages, np.flatnonzero(np.bincount(rows[rows >= 0], minlength=1)))
    wanted = [_normal_answers(given) for given in answers]
    lines = zip(rows.tolist(), wanted, strict=True)
    return np.array([[row >= 0 and any(one in texts[row] for one in own) for row in line] for line, own in lines])


def _normal_answers(given: Sequence[str]) -> list[str]:
    return [normal for answer in given if (normal := normal_form(answer)).strip()]


def normal_form(text: str) -> str:
    """Lower-cased tokens of a text with a space before, between and after them.

    A whole-token match is then a match of strings, since no token holds a space.

    Example:
        >>> normal_form("O'Neil, 1999"), normal_form("neil") in normal_form("O'Neil, 1999")
        (" o ' neil , 1999 ", True)
    """
    return " ".join(["", *(token.lower() for token in TOKEN.findall(unicodedata.normalize("NFD", text))), ""])


def _normal_texts(passages: Dataset, rows: np.ndarray) -> dict[int, str]:
    """Each passage once, however many queries found it."""
    texts: dict[int, str] = {}
    for start in range(0, len(rows), TEXTS_AT_ONCE):
        part = rows[start : start + TEXTS_AT_ONCE]
        found = passages.select_columns("text")[part]["text"]
        texts.update(zip(part.tolist(), map(normal_form, found), strict=True))
    return texts


def _first_hit(rows: Sequence[int], texts: dict[int, str], answers: Sequence[str]) -> float:
    """Rank, from 0, of the first passage with an answer; infinity if there is none."""
    for rank, row in enumerate(rows):
        if row >= 0 and any(answer in texts[row] for answer in answers):
            return rank
    return np.inf
