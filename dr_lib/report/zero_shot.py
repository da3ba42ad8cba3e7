"""Retrievers over many collections: a column a collection, the average, and what the average hangs on.

Pages: notebooks/evaluation/zero_shot, ideas/evaluation. Every collection has the same weight in an average.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from IPython.display import HTML

from dr_lib.evaluation import AverageInterval, average_interval
from dr_lib.lab.records import Record, load_records, recorded_folder
from dr_lib.lab.verdicts import SCALES
from dr_lib.report.comparison import spell
from dr_lib.report.measured import paired, per_query
from dr_lib.report.tables import Cell, Markup, table

Everywhere = Mapping[str, Mapping[str, Sequence[Record]]]
"""Collection -> label -> records, one a seed."""


def recorded_everywhere(study: str) -> dict[str, dict[str, list[Record]]]:
    """The book's own records of a study over many collections, at the largest scale that has any."""
    for scale in SCALES:
        found: dict[str, dict[str, list[Record]]] = {}
        for record in load_records(recorded_folder(scale), study):
            found.setdefault(record.data["collection"]["name"], {}).setdefault(record.label, []).append(record)
        if found:
            return found
    return {}


def everywhere_table(labels: Sequence[str], runs: Everywhere, *, measure: str, caption: str) -> HTML:
    """One row a configuration, one column a collection, and the average with its interval at the end.

    Args:
        labels: configurations in the order of the page.
        runs: as `recorded_everywhere` or `ZeroShot.runs` gives them.
        measure: e.g. "nDCG@10".
        caption: what the table shows; unit and interval are added to it.
    """
    averages = {label: averaged(label, runs, measure) for label in labels}
    rows: list[list[Cell]] = []
    for label in labels:
        own = averages[label]
        each = [own.each[name].mean if own and name in own.each else None for name in runs]
        whole = own is not None and len(own.each) == len(runs)
        rows.append([label, *each, Markup(spell(own.mean), number=True) if own and whole else None])
    unit = f"{measure} in percent; average with 95 % bootstrap interval, queries drawn anew in each collection"
    return table(["configuration", *runs, "average"], rows, caption=f"{caption} {unit}.")


def without_each_table(reference: str, labels: Sequence[str], runs: Everywhere, *, measure: str, caption: str) -> HTML:
    """Differences of averages to a reference: over all collections, and with each of them left out.

    Args:
        reference: the label that is subtracted.
        labels: the others, one a row.
        runs: collection -> label -> records.
        measure: e.g. "nDCG@10".
        caption: what the table shows; the unit is added to it.
    """
    rows: list[list[Cell]] = []
    for label in labels:
        own = difference(label, reference, runs, measure)
        cells = [own.mean, *(own.without.get(name) for name in runs)] if own else [None] * (1 + len(runs))
        rows.append([label, *(Markup(spell(one, sign=True), number=True) if one else None for one in cells)])
    unit = f"Points of {measure} above {reference}, with 95 % intervals from paired differences."
    return table(["configuration", "all", *(f"without {name}" for name in runs)], rows, caption=f"{caption} {unit}")


def averaged(label: str, runs: Everywhere, measure: str) -> AverageInterval | None:
    """Scores of a configuration over the collections that it was run on, in percent; None where there is none."""
    values = {name: per_query(found[label], measure) for name, found in runs.items() if found.get(label)}
    return average_interval(values) if values else None


def difference(label: str, reference: str, runs: Everywhere, measure: str) -> AverageInterval | None:
    """Paired differences in points over the collections that both were run on; None where there is none."""
    values: dict[str, np.ndarray] = {
        name: paired(found[label], found[reference], measure)
        for name, found in runs.items()
        if found.get(label) and found.get(reference)
    }
    return average_interval(values) if values else None
