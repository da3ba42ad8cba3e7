"""The results and claims of the five papers, read from `book/papers/*.yaml` and checked when it is read.

Numbers are the papers' own; statements are in our words. Every claim must name a table, a column and rows that exist.
Page of the book: the opener of each paper.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.files import read_yaml
from dr_lib.settings import Settings, explain

PAPERS = ("simlm", "cdmae", "dpr_paq", "master", "pair")

Cell = bool | int | float | str | None


class Table(Settings):
    """One table, or what the text says of a figure.

    Attributes:
        id: "table8", "figure3".
        rows: as many cells a row as there are columns; None where the paper has none.
        notes: where numbers come from, and what is doubtful.
        page: the page of the book that runs it, such as "notebooks/simlm/table08_replace_rates".
    """

    id: str
    title: str
    dataset: str
    metrics: list[str]
    columns: list[str]
    rows: list[list[Cell]]
    notes: str
    page: str

    def labels(self) -> list[str]:
        """The name of each row, as claims use it."""
        return [row_label(self, row) for row in range(len(self.rows))]

    def cell(self, label: str, column: str) -> Cell:
        """The cell of a row's name and a column; an unknown one raises `InputError` that lists the known ones."""
        for what, name, known in (("row", label, self.labels()), ("column", column, self.columns)):
            if known.count(name) != 1:
                fix = f"Known: {', '.join(known)}."
                raise InputError(f"{known.count(name)} {what}s are named {name!r}", where=self.id, fix=fix)
        return self.rows[self.labels().index(label)][self.columns.index(column)]

    def column(self, name: str) -> dict[str, Cell]:
        """The cells of a column by the names of their rows; an unknown column raises as `cell` does."""
        return {label: self.cell(label, name) for label in self.labels()}


class Compare(Settings):
    """Which rows must stand in which order: `pairs` of [better, worse] in column `metric`; `paired` as in `Check`."""

    metric: str
    pairs: list[tuple[str, str]] = Field(min_length=1)
    paired: bool = True


class Check(Settings):
    """What our runs must show, where pairs of rows in a column of the paper cannot say it.

    A paper that says "about" or "no meaningful gain" gives no number; half a point is taken then, which is what SimLM
    calls level (Table 8).

    Attributes:
        kind: "order": each row above the next; "best": the first row above each other one (a sweep's best setting);
            "equal": every two rows within `width`; "cases": the first row answers more of the queries that only one of
            two answers (chosen examples; a sign test); "wins": the first row is the best of all on at least `low`
            percent of the collections; "within": the first row's mean lies between `low` and `high`.
        measure: our name of what is compared; None reads it from the claim's metric.
        rows: names of configurations, as in the claim's table where it has them.
        width: of "equal" in points; of "order" and "best" how far below a row may be and still count as level.
        low, high: bounds in points or percent.
        paired: False where the rows are groups of queries and no systems on the same queries.
    """

    kind: Literal["order", "best", "equal", "cases", "wins", "within"]
    measure: str | None = None
    rows: tuple[str, ...] = Field(min_length=1)
    width: float = Field(default=0.0, ge=0)
    low: float = 0.0
    high: float = 100.0
    paired: bool = True

    @model_validator(mode="after")
    def _enough_rows(self) -> "Check":
        if self.kind != "within" and len(self.rows) < 2:
            raise ValueError("a comparison needs two rows")
        return self


Stage = Literal["none", "pretrained", "retriever1", "retriever2", "distilled", "reranker"]


class AnsweredBy(Settings):
    """Which records answer a claim: nothing of it is guessed from names of columns or from what most records are.

    Attributes:
        study: of the records, such as "simlm/table07".
        rows: row of the paper -> label of our run; a row that is left out is a system that is not run here.
        measure: ours, of the claim's pairs and of every check that names none; or of each row its own.
        collection: what is searched; several are averaged, each with the same weight.
        stage: where the pipeline of each run ends, or of each row its own; "none" where nothing is retrieved.
        pairs: those that carry the claim, where not all do; also such as follow from the paper's by transitivity.
        protocol: "same" is the paper's own comparison in small; "stand-in" is another one in its place.
        lacks: what a stand-in cannot show.
        why: why these records answer it, and what is still to be run.
    """

    study: str
    rows: dict[str, str] = Field(min_length=1)
    measure: str | dict[str, str]
    collection: str | tuple[str, ...]
    stage: Stage | dict[str, Stage]
    pairs: list[tuple[str, str]] | None = Field(default=None, min_length=1)
    protocol: Literal["same", "stand-in"]
    lacks: str = ""
    why: str

    @property
    def collections(self) -> tuple[str, ...]:
        """Names of the collections."""
        return (self.collection,) if isinstance(self.collection, str) else self.collection

    def stage_of(self, row: str) -> str:
        """Where the pipeline of a row's run ends."""
        return self.stage if isinstance(self.stage, str) else self.stage[row]

    @model_validator(mode="after")
    def _whole(self) -> "AnsweredBy":
        if bool(self.lacks) != (self.protocol == "stand-in"):
            raise ValueError("a stand-in, and it alone, says what it lacks")
        if any(isinstance(each, dict) and each.keys() != self.rows.keys() for each in (self.stage, self.measure)):
            raise ValueError("stage or measure names other rows than rows")
        return self


class Claim(Settings):
    """One claim of a paper.

    Attributes:
        id: unique over all papers; starts with the paper's name.
        source: the tables or sections it comes from, e.g. "Table 6, Table 2".
        statement: the claim in our words.
        compare: the order of rows of the paper's table that it states, if any.
        checks: what else our runs must show.
        trained: False where nothing is trained (sizes, times, statistics of masks), so that one run decides.
        answered_by: which of our records answer it.
        unanswerable: in place of it, why none can here.
    """

    id: str
    source: str
    statement: str
    compare: Compare | None
    checks: tuple[Check, ...] = ()
    trained: bool = True
    answered_by: AnsweredBy | None = None
    unanswerable: str | None = None

    @property
    def metric(self) -> str | None:
        """Column of the paper's table that the claim is about."""
        return self.compare.metric if self.compare else None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of row names, [better, worse]."""
        return self.compare.pairs if self.compare else []

    @property
    def table(self) -> str | None:
        """Id of the first table or figure named in the source; None where it is a section."""
        match = re.search(r"\b(Table|Figure) (\d+)", self.source)
        return f"{match[1].lower()}{match[2]}" if match else None

    @property
    def lower_is_better(self) -> bool:
        """True where the column's name says so (times, distances)."""
        return "lower" in (self.metric or "").lower()


class Paper(Settings):
    """One paper: who, when, what it reports."""

    key: str
    title: str
    authors: str
    year: int
    tables: list[Table]
    hyperparameters: dict[str, Any]
    claims: list[Claim]

    def table(self, table_id: str) -> Table:
        """The table with this id, e.g. "table8"."""
        return _named(self.tables, table_id, self.key)

    def claim(self, claim_id: str) -> Claim:
        """The claim with this id."""
        return _named(self.claims, claim_id, self.key)

    def claims_of(self, table_id: str) -> list[Claim]:
        """Claims whose source names this table first."""
        return [claim for claim in self.claims if claim.table == table_id]


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
        told = explain(error, Paper)
        where = f"{path.name}: {_place(content, error.errors()[0]['loc'])}"
        raise InputError(told.problem, where=where, fix=told.fix) from None
    if paper.key != key:
        raise InputError(f"key is {paper.key!r}", where=path.name, fix=f"Set it to {key!r}.")
    for where, problem in _problems(paper):
        raise InputError(problem, where=f"{path.name}: {where}", fix="Correct it: every name must be one of the file's own.")
    return paper


def load_papers(folder: Path | None = None) -> dict[str, Paper]:
    """All five papers by key; a claim's id must be unique over all of them."""
    papers = {key: load_paper(key, folder) for key in PAPERS}
    for name in _repeated([claim.id for paper in papers.values() for claim in paper.claims]):
        raise InputError(f"id {name!r} is used twice", where="book/papers: claims", fix="Give each its own id.")
    return papers


def row_label(table: Table, row: int) -> str:
    """A row's name: its first cell if that is unique in the table, otherwise the first two cells joined by " / ".

    A first cell that is a number beside another number (two rates, two thresholds) is no name alone: such rows show
    both, also where the first happens to be unique.

    Example:
        >>> fields = {"id": "t", "title": "", "dataset": "", "metrics": [], "columns": ["a", "b"], "notes": "", "page": "t"}
        >>> Table(rows=[["x", 1], ["x", 2], ["y", 1]], **fields).labels()
        ['x / 1', 'x / 2', 'y']
        >>> Table(rows=[["30%", "50%"], ["40%", "60%"]], **fields).labels()
        ['30% / 50%', '40% / 60%']
    """
    cells = table.rows[row]
    unique = [other[0] for other in table.rows].count(cells[0]) == 1
    setting = len(cells) > 1 and None not in (number(cells[0]), number(cells[1]))
    return str(cells[0]) if unique and not setting else " / ".join(map(str, cells[:2]))


def number(cell: Cell) -> float | None:
    """A cell as a number, without a percent sign; None where it holds none.

    Example:
        >>> number("92%"), number(38.0), number(None), number("two-stage")
        (92.0, 38.0, None, None)
    """
    if isinstance(cell, bool) or cell is None:
        return None
    try:
        return float(cell.removesuffix("%") if isinstance(cell, str) else cell)
    except ValueError:
        return None


def _problems(paper: Paper) -> Iterator[tuple[str, str]]:
    """Where a paper's file contradicts itself, and how."""
    for kind, parts in (("tables", paper.tables), ("claims", paper.claims)):
        yield from ((kind, f"id {name!r} is used twice") for name in _repeated([part.id for part in parts]))
    for table in paper.tables:
        for row, cells in enumerate(table.rows, 1):
            if len(cells) != len(table.columns):
                yield table.id, f"row {row} has {len(cells)} cells for {len(table.columns)} columns (null stands for a dash)"
    for claim in paper.claims:
        yield from ((f"claim {claim.id}: {field}", problem) for field, problem in _of_answer(claim))
        yield from ((f"claim {claim.id}: {field}", problem) for field, problem in _of_comparison(claim, paper))


def _of_comparison(claim: Claim, paper: Paper) -> Iterator[tuple[str, str]]:
    """A claim names a table of the file, and rows and a column that this table has."""
    tables = {table.id: table for table in paper.tables}
    if claim.table is not None and claim.table not in tables:
        yield "source", f"there is no {claim.table}"
    elif claim.compare and claim.table is None:
        yield "source", "names no table that the rows could come from"
    elif claim.compare:
        labels, columns = tables[claim.table].labels(), tables[claim.table].columns
        if claim.metric not in columns:
            yield "compare.metric", f"no column {claim.metric!r} in {claim.table}, which has {', '.join(columns)}"
        for name in (name for pair in claim.pairs for name in pair if labels.count(name) != 1):
            yield "compare.pairs", f"{name!r} names {labels.count(name)} rows of {claim.table}, which has {', '.join(labels)}"
    elif not claim.checks:
        yield "checks", "neither compare nor checks says what our runs must show"


def _of_answer(claim: Claim) -> Iterator[tuple[str, str]]:
    """The rows of an answer are the claim's, and the pairs that carry the claim follow from its own."""
    answer = claim.answered_by
    if (answer is None) == (claim.unanswerable is None):
        yield "answered_by", "needs either answered_by or unanswerable"
    rows = {row for pair in claim.pairs for row in pair} | {row for check in claim.checks for row in check.rows}
    follow = {*claim.pairs}
    for _ in rows:
        follow |= {(first, last) for first, one in follow for other, last in follow if one == other}
    if answer:
        yield from (("answered_by.rows", f"{row!r} is no row of the claim") for row in answer.rows if row not in rows)
        pairs = (pair for pair in answer.pairs or () if pair not in follow)
        yield from (("answered_by.pairs", f"{pair} does not follow from the claim's pairs") for pair in pairs)


def _place(content: Any, steps: tuple[int | str, ...]) -> str:
    """A place in the file with ids for numbers: "claims.simlm-nq.compare.metric"."""
    words = []
    for step in steps:
        try:
            content = content[step]
        except (KeyError, IndexError, TypeError):
            content = None
        words.append(str(content["id"] if isinstance(content, dict) and "id" in content else step))
    return ".".join(words)


def _named(parts: list, name: str, where: str) -> Any:
    for part in parts:
        if part.id == name:
            return part
    raise InputError(f"no {name!r}", where=where, fix=f"Known: {', '.join(part.id for part in parts)}.")


def _repeated(ids: list[str]) -> list[str]:
    return sorted(name for name, times in Counter(ids).items() if times > 1)
