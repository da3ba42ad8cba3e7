"""Reading and checking what the five papers report, from `book/papers/*.yaml`.

A mistake in a file is found here, when it is read, not when a verdict is wanted: every claim must name a table, a
column and rows that exist. Page of the book: the opener of each paper.
"""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.evaluation.papers import Claim, Paper, Table
from dr_lib.files import read_yaml

PAPERS = ("simlm", "cdmae", "dpr_paq", "master", "pair")


def load_paper(key: str, folder: Path | None = None) -> Paper:
    """Read and check one paper's file.

    Args:
        key: "simlm", "cdmae", "dpr_paq", "master" or "pair".
        folder: where the files lie; `book/papers` if None.

    Raises:
        InputError: naming file, claim and field, for a file that is missing or not YAML, an unknown or missing field,
            a row with another number of cells than columns, an id twice, a claim on a table, column or row that does
            not exist, or a row's name that fits several rows.

    Example:
        >>> paper = load_paper("simlm")
        >>> paper.table("table8").cell("30% / 50%", "MRR@10")
        38.0
    """
    if key not in PAPERS:
        raise InputError(f"no paper {key!r}", where="paper", fix=f"Papers are {', '.join(PAPERS)}.")
    path = (folder or places.project_root() / "book" / "papers") / f"{key}.yaml"
    content = read_yaml(path)
    try:
        paper = Paper.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"{path.name}: {_where(content, first['loc'])}"
        raise InputError(first["msg"].rstrip("."), where=where, fix="Correct the file.") from None
    if paper.key != key:
        raise InputError(f"key is {paper.key!r}", where=path.name, fix=f"Set it to {key!r}.")
    _check(paper, path.name)
    return paper


def load_papers(folder: Path | None = None) -> dict[str, Paper]:
    """All five papers by key; a claim's id must be unique over all of them."""
    papers = {key: load_paper(key, folder) for key in PAPERS}
    _distinct([claim.id for paper in papers.values() for claim in paper.claims], "book/papers: claims")
    return papers


def _where(content: Any, place: tuple[int | str, ...]) -> str:
    """A place in the file with ids for numbers: "claims simlm-nq: compare.metric"."""
    words, fields = [], []
    for step in place:
        content = content[step] if isinstance(content, dict | list) and step in _steps(content) else None
        if isinstance(step, int) and isinstance(content, dict) and "id" in content:
            words, fields = [*words, *fields, str(content["id"])], []
        else:
            fields.append(str(step))
    return ": ".join(filter(None, [" ".join(words), ".".join(fields)]))


def _steps(content: dict | list) -> Any:
    return content if isinstance(content, dict) else range(len(content))


def _check(paper: Paper, file: str) -> None:
    _distinct([table.id for table in paper.tables], f"{file}: tables")
    _distinct([claim.id for claim in paper.claims], f"{file}: claims")
    tables = {table.id: table for table in paper.tables}
    for table in paper.tables:
        for row, cells in enumerate(table.rows, 1):
            if len(cells) != len(table.columns):
                problem = f"row {row} has {len(cells)} cells for {len(table.columns)} columns"
                raise InputError(problem, where=f"{file}: {table.id}", fix="Correct the row; use null for a dash.")
    for claim in paper.claims:
        _check_claim(claim, tables, f"{file}: claim {claim.id}")


def _check_claim(claim: Claim, tables: dict[str, Table], where: str) -> None:
    if claim.table is not None and claim.table not in tables:
        raise InputError(f"there is no {claim.table}", where=f"{where}: source", fix="Name a table of the file.")
    if claim.compare is None:
        return
    if claim.table is None:
        raise InputError("names no table", where=f"{where}: source", fix="Name the table that the pairs come from.")
    table = tables[claim.table]
    if claim.metric not in table.columns:
        fix = f"Columns: {', '.join(table.columns)}."
        raise InputError(f"no column {claim.metric!r} in {table.id}", where=f"{where}: compare.metric", fix=fix)
    labels = table.labels()
    for name in (name for pair in claim.pairs for name in pair):
        if labels.count(name) != 1:
            problem = f"{name!r} names {labels.count(name)} rows of {table.id}"
            raise InputError(problem, where=f"{where}: compare.pairs", fix=f"Rows: {', '.join(labels)}.")


def _distinct(ids: list[str], where: str) -> None:
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise InputError(f"id {twice[0]!r} is used twice", where=where, fix="Give each its own id.")
