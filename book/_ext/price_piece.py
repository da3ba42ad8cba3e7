"""Cost and gain of a pre-training, with a budget that a reader can move.

Its script is `book/extra/explorers/price.js`. Page: methods/words_and_cost.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from IPython.display import HTML
from pieces import place, write_data, write_place

from dr_book.figures import family, sourced
from dr_book.measured import recorded, value
from dr_book.price import UNITS, Price, prices
from dr_book.tables import folded, interval_cell, named, provenance, table
from dr_lib.objectives import FAMILIES

NAME, MEASURE = "price", "MRR@10"
STUDIES = {"simlm/figure03": "no pre-training", "methods/equal-budgets": "none"}
"""Studies of the same recipe, the first over numbers of steps -> their row without pre-training."""
BUDGETS = {
    "steps": ("equal steps", "steps"),
    "operations": ("equal work", "× 10¹² operations"),
    "seconds": ("equal time", "seconds on one H100"),
}
"""Labels of each of `price.UNITS`: on its button, and after a number."""


def rows() -> list[Price]:
    """Every pre-training of the studies, one per method and number of steps, by method."""
    found: dict[tuple[str, int], Price] = {}
    for study, baseline in STUDIES.items():
        runs = recorded(study)
        for row in prices(runs, baseline, MEASURE) if runs else []:
            found.setdefault((row.method, row.steps), row)
    return [found[key] for key in sorted(found)]


def trails(priced: Sequence[Price]) -> list[dict[str, Any]]:
    """Name of each method, number of its family, which determines its colour in figures, and its
    points, cheapest first: a cost for each of `BUDGETS` or None, and the gain with its interval.
    """
    points: dict[str, list[dict[str, Any]]] = {}
    for row in priced:
        costs = {budget: getattr(row, budget) for budget in BUDGETS}
        point = {name: cost and round(cost, 1) for name, cost in costs.items()}
        ends = (row.gain.mean, row.gain.low, row.gain.high)
        points.setdefault(named(row.method), []).append(point | {"gain": [*ends]})
    numbers: dict[str | None, int] = {name: i for i, name in enumerate(FAMILIES, 1)}
    return [
        {"name": name, "family": numbers.get(family(name), 0), "points": found}
        for name, found in points.items()
    ]


def rows_table(priced: Sequence[Price]) -> HTML:
    """The same as a folded table."""
    cells = [
        [named(row.method), row.steps, row.operations, row.seconds, interval_cell(row.gain, True)]
        for row in sorted(priced, key=lambda row: -row.gain.mean)
    ]
    columns = ["method", *UNITS.values(), f"points of {MEASURE} gained"]
    caption = "Cost of each pre-training, and its gain over none with a 95 % interval."
    return folded("The same as a table", table(columns, cells, caption=caption, digits=0))


def write_price(to: Path) -> list[Path]:
    """Write the piece into the staged source of the book."""
    priced, runs = rows(), recorded(next(iter(STUDIES)))
    start = value(runs[next(iter(STUDIES.values()))], MEASURE).estimate.value if runs else None
    data: Mapping[str, Any] = {
        "measure": MEASURE,
        "start": start,
        "budgets": BUDGETS,
        "methods": trails(priced),
    }
    source = sourced(f"{provenance(runs)} Seconds: best rate on a shared H100.")
    parts = (place(NAME, "../.."), HTML(f'<p class="dr-source">{source}</p>'), rows_table(priced))
    return [write_data(to, NAME, data), write_place(to, NAME, *parts)]
