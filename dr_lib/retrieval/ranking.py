"""A ranking: for each query the best passages in order, the form that all searches give and all measures take.

Order is strict everywhere: score descending, then row ascending. So a ranking has no ties left to decide. It is written
and read as a TREC run file too (`query Q0 passage rank score tag`), the exchange format of retrieval research. Page of
the book: ideas/evaluation.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from dr_lib.collections import id_chunks, rows_of
from dr_lib.errors import InputError
from dr_lib.files import fresh_folder, read_json, write_json

TREC_COLUMNS = ["query", "q0", "passage", "rank", "score", "tag"]


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
            write_json(draft / "ranking.json", {"query_ids": self.query_ids, "depth": self.depth, "passages": self.passages})

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

        Scores get nine significant digits, which give every float32 back unchanged. Programs like trec_eval ignore the
        rank and sort by score, equal scores by passage id: for these there is `strict`.

        Args:
            path: file to write, in one step.
            passage_ids: ids of the collection in row order.
            tag: name of the run, one word.
            strict: write `depth - rank` as score, so that a program that re-sorts sees our order.

        Raises:
            InputError: an id or the tag is empty or holds white space, which the format cannot carry.
        """
        path, rows = Path(path), np.asarray(self.rows)
        used = np.flatnonzero(np.bincount(rows[rows >= 0]))
        ids = pa.chunked_array(id_chunks(passage_ids), pa.string())
        names = dict(zip(used.tolist(), ids.take(pa.array(used)).to_pylist(), strict=True))
        for word in (tag, *self.query_ids, *names.values()):
            if word.split() != [word]:
                raise InputError(f"{word!r} is not one word", where=path, fix="Use ids and a tag without white space.")
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.draft")
        with draft.open("w", encoding="utf-8") as file:
            for query, line, scores in zip(self.query_ids, rows, self.scores, strict=True):
                filled = line[line >= 0].tolist()  # padding stands at the end
                values = range(self.depth, 0, -1) if strict else scores.tolist()
                file.writelines(
                    f"{query} Q0 {names[row]} {rank} {value:.9g} {tag}\n"
                    for rank, (row, value) in enumerate(zip(filled, values, strict=False), 1)
                )
        draft.replace(path)

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
        table = _read_trec(path := Path(path))
        table["row"] = rows_of(table["passage"].tolist(), passage_ids)
        _refuse(path, table["row"] < 0, table["passage"], "passage is not in the collection")
        _refuse(path, table.duplicated(["query", "row"]), table["passage"], "passage is named twice for its query")
        queries = list(query_ids) if query_ids is not None else list(dict.fromkeys(table["query"]))
        table["place"] = pd.Index(queries, dtype=object).get_indexer(table["query"].astype(object))
        table = table[table["place"] >= 0].sort_values(["place", "score", "row"], ascending=[True, False, True])
        place = table["place"].to_numpy()
        rank = np.arange(len(place)) - np.searchsorted(place, place)
        rows = np.full((len(queries), int(rank.max(initial=-1)) + 1), -1, np.int32)
        scores = np.full(rows.shape, -np.inf, np.float32)
        rows[place, rank], scores[place, rank] = table["row"], table["score"]
        return cls(queries, rows, scores, len(passage_ids))


def _read_trec(path: Path) -> pd.DataFrame:
    """The lines of a run file, scores in float32."""
    try:
        table = pd.read_csv(
            path,
            sep=r"\s+",
            header=None,
            names=TREC_COLUMNS,
            index_col=False,
            dtype=str,
            keep_default_na=False,  # "NA" is a passage like any other
            skip_blank_lines=False,
            quoting=csv.QUOTE_NONE,
            encoding="utf-8",
        )
    except FileNotFoundError:
        raise InputError("no such file", where=path, fix="Check the path.") from None
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise InputError(f"not six fields a line ({error})", where=path, fix="Check the line.") from None
    _refuse(path, pd.Series([table.empty]), pd.Series([path.name]), "the file holds no line")
    _refuse(path, table["tag"].isna() | (table["tag"] == ""), table["query"], "line has fewer than six fields")
    scores, ranks = (pd.to_numeric(table[name], errors="coerce") for name in ("score", "rank"))
    # The order is that of the stored float32 scores: two that differ only beyond it are a tie, decided by row.
    with np.errstate(over="ignore"):
        scores = scores.astype(np.float32)
    _refuse(path, ~np.isfinite(scores), table["score"], "score is not a finite number")
    _refuse(path, ranks.isna(), table["rank"], "rank is not a number")
    return table.assign(score=scores)


def _refuse(path: Path, wrong: pd.Series, what: pd.Series, problem: str) -> None:
    if wrong.any():
        line = int(np.asarray(wrong).argmax())
        where = f"{path} line {line + 1}"
        raise InputError(f"{problem}: {what.iloc[line]!r}", where=where, fix="Correct or remove the line.")


def open_array(path: Path) -> np.ndarray:
    """Memory-map a `.npy` file; one that is missing or cut short raises `InputError`."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"not a whole .npy file ({error})", where=path, fix="Make it again.") from None
