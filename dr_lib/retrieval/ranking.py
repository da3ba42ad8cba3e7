"""A ranking: the best passages of each query in order, returned by all searches and read by all
measures.

The order is strict: score descending, then row ascending, so that no ties are left to break.
`write_run` exports it as a TREC run file. Page of the book: ideas/evaluation.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
import pandas as pd
import pyarrow as pa
from datasets import Dataset

from dr_lib.collections import id_chunks
from dr_lib.errors import InputError, check_texts
from dr_lib.files import fresh_folder, open_array, read_json, write_json, write_text
from dr_lib.words import tokens

RUN_COLUMNS = ["query", "q0", "passage", "rank", "score", "tag"]


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best passages of each query, best first.

    Attributes:
        query_ids: one id per query, distinct.
        rows: `[queries, depth]` int32, rows of the collection, padded with -1.
        scores: `[queries, depth]` float32, higher is better; `-inf` where the row is -1.
        passages: number of passages in the collection; None where it is not known.

    Raises:
        InputError: shapes do not fit, a query id occurs twice, a row does not exist or occurs twice
            for a query, a score is not finite, or rows are out of order.

    Example:
        >>> ranking = Ranking(["q1"], np.array([[7, 2, -1]]), np.array([[3.0, 1.5, -np.inf]]))
        >>> len(ranking), ranking.depth
        (1, 3)
    """

    query_ids: Sequence[str]
    rows: np.ndarray
    scores: np.ndarray
    passages: int | None = None

    def __post_init__(self) -> None:
        # Before anything is cast: as int32, row 4294967295 would be -1.
        last = np.iinfo(np.int32).max if self.passages is None else self.passages - 1
        if self.rows.size and (self.rows.min() < -1 or self.rows.max() > last):
            problem = f"rows from {self.rows.min()} to {self.rows.max()}"
            raise InputError(
                problem, where="ranking", fix=f"Give rows from 0 to {last}, and -1 for none."
            )
        for name, kind in (("rows", np.int32), ("scores", np.float32)):
            array = getattr(self, name)
            object.__setattr__(self, name, array if array.dtype == kind else array.astype(kind))
        object.__setattr__(self, "query_ids", list(self.query_ids))
        if (
            self.rows.shape != self.scores.shape
            or self.rows.ndim != 2
            or len(self.rows) != len(self.query_ids)
        ):
            shapes = (
                f"{len(self.query_ids)} query ids, rows {self.rows.shape}, scores"
                f" {self.scores.shape}"
            )
            raise InputError(
                f"shapes do not fit: {shapes}",
                where="ranking",
                fix="Give [queries, depth] for both.",
            )
        if len(set(self.query_ids)) != len(self.query_ids):
            twice = next(q for i, q in enumerate(self.query_ids) if q in self.query_ids[:i])
            raise InputError(
                f"query id {twice!r} occurs twice", where="ranking", fix="Give each query once."
            )
        for start in range(0, len(self), 65_536):
            self._check_order(start, start + 65_536)

    def _check_order(self, start: int, stop: int) -> None:
        rows, scores = np.asarray(self.rows[start:stop]), np.asarray(self.scores[start:stop])
        filled = rows >= 0
        better = scores[:, :-1] > scores[:, 1:]
        tied = (scores[:, :-1] == scores[:, 1:]) & (rows[:, :-1] < rows[:, 1:])
        follows = ~filled[:, 1:] | (filled[:, :-1] & (better | tied))
        wrong = (
            ~follows.all(axis=1)
            | (filled != np.isfinite(scores)).any(axis=1)
            | np.isnan(scores).any(axis=1)
        )
        if wrong.any():
            query = self.query_ids[start + int(wrong.argmax())]
            problem = (
                "scores are not finite, or not in the order score descending, then row ascending"
            )
            raise InputError(
                problem,
                where=f"ranking of query {query!r}",
                fix="Sort it, or make the ranking again.",
            )

        ordered = np.sort(rows, axis=1)  # a repeated passage would shift those below it
        twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        if twice.any():
            query, place = np.argwhere(twice)[0]
            raise InputError(
                f"row {ordered[query, place]} stands there twice",
                where=f"ranking of query {self.query_ids[start + query]!r}",
                fix="Keep each passage once, with its best score.",
            )

    def __len__(self) -> int:
        return len(self.query_ids)

    @property
    def depth(self) -> int:
        """Passages kept for each query."""
        return self.rows.shape[1]

    def check_lists(self, **lists: Sequence) -> None:
        """Refuse lists, by name, without exactly one entry per query (`InputError`)."""
        for name, entries in lists.items():
            if len(entries) != len(self):
                problem = f"of {len(entries)} queries, but {len(self)} are ranked"
                fix = "Give an entry for each query, in the ranking's order; [] for none."
                raise InputError(problem, where=name, fix=fix)

    def without(self, rows: np.ndarray | None, depth: int) -> "Ranking":
        """The ranking without one passage of each query, cut to a depth.

        Args:
            rows: `[queries]` the passage to drop, -1 for none; None drops nothing.
            depth: passages kept.

        Example:
            >>> ranking = Ranking(["q"], np.array([[7, 2, 4]]), np.array([[3.0, 1.5, 1.0]]))
            >>> ranking.without(np.array([7]), 2).rows.tolist()
            [[2, 4]]
        """
        if rows is None:
            return self
        dropped = (self.rows == rows[:, None]) & (self.rows >= 0)
        order = np.argsort(dropped, axis=1, kind="stable")[:, :depth]
        gone = np.take_along_axis(dropped, order, axis=1)
        left = np.where(gone, -1, np.take_along_axis(self.rows, order, axis=1))
        scores = np.where(gone, -np.inf, np.take_along_axis(self.scores, order, axis=1))
        return Ranking(self.query_ids, left, scores, self.passages)

    def save(self, folder: Path) -> None:
        """Write `rows.npy`, `scores.npy` and `ranking.json` to `folder`, in one step."""
        with fresh_folder(folder, "ranking") as draft:
            np.save(draft / "rows.npy", self.rows, allow_pickle=False)
            np.save(draft / "scores.npy", self.scores, allow_pickle=False)
            write_json(
                draft / "ranking.json",
                {"query_ids": self.query_ids, "depth": self.depth, "passages": self.passages},
            )

    @classmethod
    def open(cls, folder: Path) -> "Ranking":
        """Open a saved ranking; its arrays stay on disk (memory-mapped).

        Raises:
            InputError: a file is missing or truncated, or its rows or their order are invalid.
        """
        info = read_json(folder / "ranking.json")
        arrays = (open_array(folder / f"{name}.npy") for name in ("rows", "scores"))
        return cls(info["query_ids"], *arrays, info.get("passages"))


def also_in(lists: np.ndarray, others: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Which passages of each query's list are in its other list too: `[queries, depth]` bool.

    Args:
        lists: `[queries, depth]` rows of passages, -1 for none.
        others: for each query rows of passages.

    Example:
        >>> also_in(np.array([[4, 7, -1]]), [np.array([7, 9])])
        array([[False,  True, False]])
    """
    lists = np.asarray(lists, np.int64)
    owners = np.repeat(np.arange(len(lists)), [len(rows) for rows in others])
    flat = np.concatenate([np.zeros(0, np.int64), *others]).astype(np.int64)
    # a (query, passage) pair is one number
    span = int(max(lists.max(initial=0), flat.max(initial=0))) + 1
    pairs = (owners * span + flat)[flat >= 0]
    return (lists >= 0) & np.isin(np.arange(len(lists))[:, None] * span + lists, pairs)


def one_word(name: str) -> str:
    """An id for a TREC file, whose columns are separated by blanks: blanks are percent-encoded.

    Most ids are unchanged. Distinct ids stay distinct: what looks like an encoded blank, or a
    percent sign, is encoded too.

    Example:
        >>> [one_word(name) for name in ("q1", "my notes.txt#0", "my%20notes.txt#0", "A%26B")]
        ['q1', 'my%20notes.txt#0', 'my%2520notes.txt#0', 'A%26B']
    """
    read = unquote(name)
    if "%25" not in name and read.split() == [read]:
        return name
    return re.sub(r"[\s%]", lambda sign: quote(sign[0]), name)


def write_run(ranking: Ranking, path: Path, passage_ids: Sequence[str], tag: str) -> None:
    """Write a ranking as a TREC run file (`query Q0 passage rank score tag`); without padding, with
    ids encoded by `one_word`.

    Scores have nine significant digits, enough to restore every float32. Programs like trec_eval
    ignore the rank and sort by score, so equal scores are each lowered to the next smaller float32:
    every program recovers this order.

    Args:
        ranking: the ranking.
        path: file to write, atomically.
        passage_ids: ids of the collection in row order.
        tag: name of the run, one word.

    Raises:
        InputError: the tag contains a blank, or a row has no id.
    """
    if tag.split() != [tag]:
        raise InputError(f"the tag {tag!r} is not one word", where=path, fix="Use no blanks.")
    if ranking.rows.max(initial=-1) >= len(passage_ids):
        problem = f"row {ranking.rows.max()} of {len(passage_ids)} passages"
        fix = "Give the ids of the collection that was searched."
        raise InputError(problem, where="ranking", fix=fix)
    query, rank = np.nonzero(ranking.rows >= 0)
    scores = ranking.scores.astype(np.float32)
    for left, right in zip(scores.T, scores.T[1:], strict=False):  # views: one rank after another
        np.minimum(right, np.nextafter(left, np.float32(-np.inf)), out=right)
    rows, places = np.unique(ranking.rows[query, rank], return_inverse=True)
    ids = pa.chunked_array(id_chunks(passage_ids), pa.string()).take(pa.array(rows)).to_pylist()
    passages = np.array([one_word(id_) for id_ in ids], object)[places]
    names = np.array([one_word(name) for name in ranking.query_ids], object)[query]
    columns = (names, "Q0", passages, rank + 1, scores[query, rank], tag)
    table = pd.DataFrame(dict(zip(RUN_COLUMNS, columns, strict=True)))
    text = table.to_csv(
        sep=" ",
        header=False,
        index=False,
        float_format="%.9g",
        quoting=csv.QUOTE_NONE,
        lineterminator="\n",
    )
    write_text(path, text)


# Answers in ranked passages -----------------------------------------------------------------------
# DPR's rule (for accuracy@k and false negatives): text and answers are tokenised (`words.tokens`);
# an answer matches if its tokens occur consecutively. Page of the book: ideas/evaluation.

TEXTS_AT_ONCE = 10_000


def holds_answer(
    rows: np.ndarray, passages: Dataset, answers: Sequence[Sequence[str]]
) -> np.ndarray:
    """Which passages contain an accepted answer of their query, by the rule of accuracy@k.

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
        texts.update(
            zip(
                part.tolist(),
                map(normal_form, passages.select_columns("text")[part]["text"]),
                strict=True,
            )
        )
    holds = np.zeros(rows.shape, bool)
    for place, (line, accepted) in enumerate(zip(rows.tolist(), answers, strict=True)):
        check_texts(answers=accepted)
        wanted = [normal for answer in accepted if (normal := normal_form(answer)).strip()]
        holds[place] = [row >= 0 and any(phrase in texts[row] for phrase in wanted) for row in line]
    return holds


def normal_form(text: str) -> str:
    """The tokens of a text with a space before, between and after them.

    Matching whole tokens is then matching strings, since no token contains a space.

    Example:
        >>> normal_form("O'Neil, 1999"), normal_form("neil") in normal_form("O'Neil, 1999")
        (" o ' neil , 1999 ", True)
    """
    return " ".join(["", *tokens(text), ""])
