"""The results and claims of the five papers, read from `book/papers/*.yaml`.

Numbers are the papers' own; statements are in our words. Tests check that every claim names an
existing table, column and rows. Page of the book: the opener of each paper.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, model_validator

from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.settings import Settings

PAPERS = ("simlm", "cdmae", "dpr_paq", "master", "pair")

Cell = bool | int | float | str | None


class Table(Settings):
    """One table, or the numbers that the text gives for a figure.

    Attributes:
        id: "table8", "figure3".
        rows: one cell per column; None if the paper leaves it empty.
        notes: where numbers come from, and which are doubtful.
        inferred: columns that were missing in the source of the transcription.
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
    inferred: tuple[str, ...] = ()

    def labels(self) -> list[str]:
        """The name of each row, as claims use it."""
        return [row_label(self, row) for row in range(len(self.rows))]

    def cell(self, label: str, column: str) -> Cell:
        """The cell in a row and a column, both by name; `InputError` lists the known names."""
        for what, name, known in (("row", label, self.labels()), ("column", column, self.columns)):
            if known.count(name) != 1:
                fix = f"Known: {', '.join(known)}."
                raise InputError(
                    f"{known.count(name)} {what}s are named {name!r}", where=self.id, fix=fix
                )
        return self.rows[self.labels().index(label)][self.columns.index(column)]

    def column(self, name: str) -> dict[str, Cell]:
        """Name of a row -> its cell in a column; raises as `cell` does."""
        return {label: self.cell(label, name) for label in self.labels()}


class Compare(Settings):
    """The claimed order of rows: `pairs` of [better, worse] in column `metric`; `paired` as in
    `Check`.
    """

    metric: str
    pairs: list[tuple[str, str]] = Field(min_length=1)
    paired: bool = True


class Check(Settings):
    """What our runs must show, if pairs of rows in a column of the paper cannot express it.

    For "about" or "no meaningful gain", where a paper gives no number, we use half a point, which
    SimLM calls equal (Table 8).

    Attributes:
        kind: "order": each row above the next; "best": the first row above each other one (a
            sweep's best setting); "equal": every two rows within `width`; "within": the first row's
            mean lies between `low` and `high`; "gain": the first row's lead over the second is
            larger on the first collection than, on average, on the others.
        measure: our name of the compared measure; None takes the claim's.
        rows: names of configurations, as in the claim's table if it has them.
        width: for "equal" the margin, in points or in the unit of an amount; for "order" and "best"
            how far below a row may be and still count as equal.
        low, high: bounds in percent.
        paired: False if the rows are groups of queries, not systems on the same queries.
        carrying: as in `Mark`.
        testable, because: as in `Mark`.
    """

    kind: Literal["order", "best", "equal", "within", "gain"]
    measure: str | None = None
    rows: tuple[str, ...] = Field(min_length=1)
    width: NonNegativeFloat = 0.0
    low: float = 0.0
    high: float = 100.0
    paired: bool = True
    carrying: bool = False
    testable: bool = True
    because: str = ""


class Mark(Settings):
    """A mark on some pairs of a claim.

    Attributes:
        pairs: [better, worse] each.
        carrying: whether the sentence is about them: if a claim has such pairs, only they decide.
        testable: False if our runs cannot test them, whatever the numbers; they then decide
            nothing.
        because: the reason.
    """

    pairs: list[tuple[str, str]] = Field(min_length=1)
    carrying: bool = False
    testable: bool = True
    because: str = ""

    @model_validator(mode="after")
    def _reasoned(self) -> "Mark":
        if self.testable == bool(self.because):
            raise ValueError("`because` says why pairs are not testable, and only then")
        return self


Protocol = Literal["same", "scaled", "stand-in"]
Stage = Literal["none", "pretrained", "retriever1", "retriever2", "distilled", "reranker"]


class AnsweredBy(Settings):
    """Which records answer a claim, stated explicitly: nothing is guessed from column names or
    other records.

    Attributes:
        study: of the records, such as "simlm/table07"; runs of the same recipes in other studies
            count too.
        rows: row of the paper -> label of our run; a row that is left out is a system that is not
            run here.
        measure: ours, for the claim's pairs and for checks without one; or row -> measure.
        collection: what is searched; several are averaged with equal weights.
        stage: final stage of the pipeline, or row -> final stage; "none" if nothing is retrieved.
        pairs: those that are judged, if not the paper's own, such as pairs that follow by
            transitivity.
        marks: of pairs. A pair with a row missing in `rows` needs none: it is not testable here.
        protocol: "same": the paper's data, measure and stage; "scaled": the same kind of data,
            smaller; "stand-in": other data.
        lacks: what a stand-in cannot show.
        why: why these records answer it, and what is still to be run.
        block: the block of `book/plan.yaml` whose runs the claim waits for.
    """

    study: str
    rows: dict[str, str] = Field(min_length=1)
    measure: str | dict[str, str]
    collection: str | tuple[str, ...]
    stage: Stage | dict[str, Stage]
    pairs: list[tuple[str, str]] | None = Field(None, min_length=1)
    marks: tuple[Mark, ...] = ()
    protocol: Protocol
    lacks: str = ""
    why: str
    block: int | None = None

    @property
    def collections(self) -> tuple[str, ...]:
        """Names of the collections."""
        return (self.collection,) if isinstance(self.collection, str) else self.collection

    def measure_of(self, row: str, otherwise: str | None = None) -> str:
        """The measure of a row: its own if it has one, else the check's, else the claim's."""
        return self.measure[row] if isinstance(self.measure, dict) else otherwise or self.measure

    def stage_of(self, row: str) -> str:
        """The final stage of a row's run."""
        return self.stage if isinstance(self.stage, str) else self.stage[row]


class Claim(Settings):
    """One claim of a paper.

    Attributes:
        id: unique over all papers; starts with the paper's name.
        source: the tables or sections it comes from, e.g. "Table 6, Table 2".
        page: the page of the book that answers it, if not its table's.
        statement: the claim in our words.
        compare: the order of rows of the paper's table that it states, if any.
        checks: what else our runs must show.
        unchecked: the part of the statement that none of this tests.
        trained: False if nothing is trained (sizes, times, statistics of masks), so that one run
            decides.
        answered_by: which of our records answer it.
        unanswerable: if there is no `answered_by`, why no record can answer it here.
    """

    id: str
    source: str
    page: str | None = None
    statement: str
    compare: Compare | None
    checks: tuple[Check, ...] = ()
    unchecked: str = ""
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
        """Id of the first table or figure named in the source; None if it names only sections."""
        match = re.search(r"\b(Table|Figure) (\d+)", self.source)
        return f"{match[1].lower()}{match[2]}" if match else None

    @property
    def lower_is_better(self) -> bool:
        """Whether the column's name says so (times, distances)."""
        return "lower" in (self.metric or "").lower()


class Paper(Settings):
    """One paper: authors, year, results.

    Attributes:
        hyperparameters: its settings, as printed.
        recipe: settings that differ from the scale `paper`, which is SimLM's: keys of
            `Recipe.with_`.
        beyond: settings that a recipe cannot express, and those that the paper leaves open.
    """

    key: str
    title: str
    authors: str
    year: int
    tables: list[Table]
    hyperparameters: dict[str, Any]
    recipe: dict[str, Any] = Field(default_factory=dict)
    beyond: tuple[str, ...] = ()
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


def load_paper(key: str) -> Paper:
    """Read one paper's file.

    Args:
        key: "simlm", "cdmae", "dpr_paq", "master" or "pair".

    Raises:
        InputError: the paper is unknown, or its file is missing, not YAML, or has an unknown or
            missing field.

    Example:
        >>> paper = load_paper("simlm")
        >>> paper.table("table8").cell("30% / 50%", "MRR@10")
        38.0
    """
    if key not in PAPERS:
        raise InputError(f"no paper {key!r}", where="paper", fix=f"Papers are {', '.join(PAPERS)}.")
    return Paper.load(places.project_root() / "book" / "papers" / f"{key}.yaml")


@cache
def load_papers() -> Mapping[str, Paper]:
    """All five papers by key, read once per process."""
    return {key: load_paper(key) for key in PAPERS}


def row_label(table: Table, row: int) -> str:
    """A row's name: its first cell if that is unique in the table, otherwise the first two cells
    joined by " / ".

    If both cells are numbers (two rates, two thresholds), the first alone is not a name: such rows
    show both, even if the first happens to be unique.

    Example:
        >>> fields = {
        ...     "id": "t",
        ...     "title": "",
        ...     "dataset": "",
        ...     "metrics": [],
        ...     "columns": ["a", "b"],
        ...     "notes": "",
        ...     "page": "t",
        ... }
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
    """A cell as a number, without a percent sign; None if it is not a number.

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
    for part in parts:
        if part.id == name:
            return part
    raise InputError(
        f"no {name!r}", where=where, fix=f"Known: {', '.join(part.id for part in parts)}."
    )
