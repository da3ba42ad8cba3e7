"""TREC run files: `query Q0 passage rank score tag`, the exchange format of retrieval research.

Scores are written with nine significant digits, which give every float32 back unchanged. Programs like trec_eval
ignore the rank and sort by score, equal scores by passage id; a ranking written with `strict=True` carries
`depth - rank` in place of the score, so that such a program sees our order.
"""

import csv
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from dr_lib.collections import id_chunks, rows_of
from dr_lib.errors import InputError

COLUMNS = ["query", "q0", "passage", "rank", "score", "tag"]


def write_run(
    path: Path, query_ids: Sequence[str], rows: np.ndarray, scores: np.ndarray, passage_ids: Sequence[str], tag: str
) -> None:
    """Write a run file, whole or not at all; behind `Ranking.to_trec`.

    Args:
        path: file to write.
        query_ids: one id a query.
        rows: `[queries, depth]`, -1 is left out.
        scores: `[queries, depth]` float32.
        passage_ids: ids of the collection in row order.
        tag: name of the run, one word.

    Raises:
        InputError: an id or the tag is empty or holds white space, which the format cannot carry.
    """
    used = np.flatnonzero(np.bincount(rows[rows >= 0]))
    ids = pa.chunked_array(id_chunks(passage_ids), pa.string())
    names = dict(zip(used.tolist(), ids.take(pa.array(used)).to_pylist(), strict=True))
    for word in (tag, *query_ids, *names.values()):
        if len(word.split()) != 1 or word != word.strip():
            raise InputError(f"{word!r} is not one word", where=path, fix="Use ids and a tag without white space.")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            for query, places, values in zip(query_ids, rows.tolist(), scores.tolist(), strict=True):
                file.writelines(
                    f"{query} Q0 {names[row]} {rank} {value:.9g} {tag}\n"
                    for rank, (row, value) in enumerate(zip(places, values, strict=True), 1)
                    if row >= 0
                )
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def read_run(
    path: Path, passage_ids: Sequence[str], query_ids: Sequence[str] | None = None
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Read a run file; behind `Ranking.from_trec`, which says what is refused.

    Returns:
        Query ids, rows `[queries, depth]` int32 (-1 fills up) and scores `[queries, depth]` float32, in order.
    """
    table = _read_columns(path)
    table["row"] = rows_of(table["passage"].tolist(), passage_ids)
    _refuse(path, table["row"] < 0, table["passage"], "passage is not in the collection")
    _refuse(path, table.duplicated(["query", "row"]), table["passage"], "passage is named twice for its query")
    queries = list(query_ids) if query_ids is not None else list(dict.fromkeys(table["query"]))
    table["place"] = pd.Index(queries, dtype=object).get_indexer(table["query"].astype(object))
    table = table[table["place"] >= 0].sort_values(["place", "score", "row"], ascending=[True, False, True])
    place = table["place"].to_numpy()
    rank = np.arange(len(place)) - np.searchsorted(place, place)
    depth = int(rank.max(initial=-1)) + 1
    rows = np.full((len(queries), depth), -1, np.int32)
    scores = np.full((len(queries), depth), -np.inf, np.float32)
    rows[place, rank], scores[place, rank] = table["row"], table["score"]
    return queries, rows, scores


def _read_columns(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(
            path, sep=r"\s+", header=None, names=COLUMNS, index_col=False, dtype=str, keep_default_na=False,
            skip_blank_lines=False, quoting=csv.QUOTE_NONE, encoding="utf-8", on_bad_lines="error",
        )  # fmt: skip
        _refuse(path, pd.Series([table.empty]), pd.Series([path.name]), "the file holds no line")
    except FileNotFoundError:
        raise InputError("no such file", where=path, fix="Check the path.") from None
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise InputError(f"not six fields a line ({error})", where=path, fix="Check the line.") from None
    _refuse(path, table["tag"].isna() | (table["tag"] == ""), table["query"], "line has fewer than six fields")
    scores, ranks = (pd.to_numeric(table[name], errors="coerce") for name in ("score", "rank"))
    # The order is that of the stored float32 scores: two that differ only beyond it are a tie, decided by row.
    with np.errstate(over="ignore"):
        scores = scores.astype(np.float32)
    _refuse(path, ~np.isfinite(scores), table["score"], "score is not a finite number")
    _refuse(path, ranks.isna(), table["rank"], "rank is not a number")
    table["score"] = scores
    return table


def _refuse(path: Path, wrong: pd.Series, what: pd.Series, problem: str) -> None:
    if wrong.any():
        line = int(np.asarray(wrong).argmax())
        value = what.iloc[line]
        raise InputError(f"{problem}: {value!r}", where=f"{path} line {line + 1}", fix="Correct or remove the line.")
