"""A ranking: for each query the best passages in order, the form that all searches give and all measures take.

Order is strict everywhere: score descending, then row ascending. So a ranking has no ties left to decide.
Page of the book: ideas/evaluation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dr_lib.errors import InputError
from dr_lib.files import fresh_folder, read_json, write_json
from dr_lib.retrieval.trec import read_run, write_run


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best passages of each query, best first.

    Attributes:
        query_ids: one id a query, distinct.
        rows: `[queries, depth]` int32, rows of the collection; -1 fills up a query with fewer passages.
        scores: `[queries, depth]` float32, higher is better; `-inf` where the row is -1.
        passages: number of passages in the collection; None where it is not known.

    Raises:
        InputError: shapes that do not fit, an id twice, a row that the collection does not have, a score that is not
            a number, or rows out of order.

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
            raise InputError(problem, where="ranking", fix=f"Give rows from 0 to {last}, and -1 for none.")
        for name, kind in (("rows", np.int32), ("scores", np.float32)):
            array = getattr(self, name)
            object.__setattr__(self, name, array if array.dtype == kind else array.astype(kind))
        object.__setattr__(self, "query_ids", list(self.query_ids))
        if self.rows.shape != self.scores.shape or self.rows.ndim != 2 or len(self.rows) != len(self.query_ids):
            shapes = f"{len(self.query_ids)} query ids, rows {self.rows.shape}, scores {self.scores.shape}"
            raise InputError(f"shapes do not fit: {shapes}", where="ranking", fix="Give [queries, depth] for both.")
        if len(set(self.query_ids)) != len(self.query_ids):
            twice = next(q for i, q in enumerate(self.query_ids) if q in self.query_ids[:i])
            raise InputError(f"query id {twice!r} occurs twice", where="ranking", fix="Give each query once.")
        for start in range(0, len(self), 65_536):
            self._check_order(start, start + 65_536)

    def _check_order(self, start: int, stop: int) -> None:
        rows, scores = np.asarray(self.rows[start:stop]), np.asarray(self.scores[start:stop])
        filled = rows >= 0
        better = scores[:, :-1] > scores[:, 1:]
        tied = (scores[:, :-1] == scores[:, 1:]) & (rows[:, :-1] < rows[:, 1:])
        follows = ~filled[:, 1:] | (filled[:, :-1] & (better | tied))
        wrong = ~follows.all(axis=1) | (filled != np.isfinite(scores)).any(axis=1) | np.isnan(scores).any(axis=1)
        if wrong.any():
            query = self.query_ids[start + int(wrong.argmax())]
            problem = "scores are not finite, or not in the order score descending, then row ascending"
            raise InputError(problem, where=f"ranking of query {query!r}", fix="Sort it, or make the ranking again.")

    def __len__(self) -> int:
        return len(self.query_ids)

    @property
    def depth(self) -> int:
        """Passages kept for each query."""
        return self.rows.shape[1]

    def save(self, folder: Path) -> None:
        """Write `rows.npy`, `scores.npy` and `ranking.json` to `folder`, in one step."""
        with fresh_folder(Path(folder)) as draft:
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
            InputError: a file is missing, cut short, or altered so that rows or their order are wrong.
        """
        folder = Path(folder)
        info = read_json(folder / "ranking.json")
        arrays = (open_array(folder / f"{name}.npy") for name in ("rows", "scores"))
        return cls(info["query_ids"], *arrays, info.get("passages"))

    def to_trec(self, path: Path, passage_ids: Sequence[str], tag: str, *, strict: bool = False) -> None:
        """Write a TREC run file; padding is left out.

        Args:
            path: file to write, in one step.
            passage_ids: ids of the collection in row order.
            tag: name of the run, one word.
            strict: write `depth - rank` as score, so that a program that re-sorts sees no ties.

        Raises:
            InputError: an id or the tag is empty or holds white space, which the format cannot carry.
        """
        order = np.broadcast_to(np.arange(self.depth, 0, -1, dtype=np.float32), self.rows.shape)
        write_run(Path(path), self.query_ids, self.rows, order if strict else self.scores, passage_ids, tag)

    @classmethod
    def from_trec(cls, path: Path, passage_ids: Sequence[str], *, query_ids: Sequence[str] | None = None) -> "Ranking":
        """Read a TREC run file.

        The order is made from the scores as float32 (descending, then row ascending), as readers of the format do;
        the rank column must hold numbers but is not used.

        Args:
            path: the run file.
            passage_ids: ids of the collection in row order.
            query_ids: queries wanted, in this order; one without a line gets an empty ranking. All of the file if
                None, in order of appearance.

        Raises:
            InputError: with the line, for a line without six fields, an unknown passage, a score that is not a
                finite number, or a passage named twice for a query.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = Path(folder) / "run.txt"
            ...     _ = path.write_text("q1 Q0 b 1 2.5 mine\\nq1 Q0 a 2 1.0 mine\\n")
            ...     Ranking.from_trec(path, ["a", "b"]).rows.tolist()
            [[1, 0]]
        """
        return cls(*read_run(Path(path), passage_ids, query_ids), len(passage_ids))


def open_array(path: Path) -> np.ndarray:
    """Memory-map a `.npy` file; one that is missing or cut short raises `InputError`."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"not a whole .npy file ({error})", where=path, fix="Make it again.") from None
