"""What a paper reports: its tables, settings and claims, as `ledger.py` reads them from `book/papers/*.yaml`.

Numbers are the papers' own; statements are in our words. Page of the book: the opener of each paper.
"""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dr_lib.errors import InputError

Cell = bool | int | float | str | None


class Part(BaseModel):
    """A part of a paper's file: read-only, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Table(Part):
    """One table, or what the text says of a figure.

    Attributes:
        id: "table8", "figure3".
        rows: as many cells a row as there are columns; None where the paper has none.
        notes: where numbers come from, and what is doubtful.
    """

    id: str
    title: str
    dataset: str
    metrics: list[str]
    columns: list[str]
    rows: list[list[Cell]]
    notes: str

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


class Compare(Part):
    """Which rows must stand in which order: `pairs` of [better, worse] in the column `metric`."""

    metric: str
    pairs: list[tuple[str, str]] = Field(min_length=1)


class Claim(Part):
    """One claim of a paper.

    Attributes:
        id: unique over all papers; starts with the paper's name.
        source: the tables or sections it comes from, e.g. "Table 6, Table 2".
        statement: the claim in our words.
        compare: what a machine can check of it, if anything.
    """

    id: str
    source: str
    statement: str
    compare: Compare | None

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


class Paper(Part):
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


def row_label(table: Table, row: int) -> str:
    """A row's name: its first cell if that is unique in the table, otherwise the first two cells joined by " / ".

    A first cell that is a number beside another number (two rates, two thresholds) is no name alone: such rows show
    both, also where the first happens to be unique.

    Example:
        >>> fields = {"id": "t", "title": "", "dataset": "", "metrics": [], "columns": ["a", "b"], "notes": ""}
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


def _named(parts: list, name: str, where: str) -> Any:
    found = [part for part in parts if part.id == name]
    if not found:
        known = ", ".join(part.id for part in parts)
        raise InputError(f"no {name!r}", where=where, fix=f"Known: {known}.")
    return found[0]
