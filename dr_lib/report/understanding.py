"""Tasks of language understanding side by side: a column a task, the paper's values beside ours.

Page: notebooks/master/table07_nlu. A task's measure is the first that `evaluation.TASKS` names for it.
"""

from collections.abc import Mapping, Sequence

from IPython.display import HTML

from dr_lib.evaluation import TASKS, Interval, measure_difference, measure_interval
from dr_lib.lab.records import Record
from dr_lib.report.comparison import spell
from dr_lib.report.tables import Cell, Markup, table

Tasks = Mapping[str, Mapping[str, Sequence[Record]]]
"""Shown name of a task -> label -> records, one a seed."""


def understanding_table(labels: Sequence[str], runs: Tasks, *, caption: str, reference: str | None = None) -> HTML:
    """One row a configuration, one column a task, in percent with 95 % intervals over rows.

    Args:
        labels: configurations in the order of the page.
        runs: task -> label -> records.
        caption: what the table shows; the unit is added to it.
        reference: show differences to this configuration in place of values.
    """
    columns = [f"{task} ({measure_of(found)})" if found else task for task, found in runs.items()]
    rows: list[list[Cell]] = []
    for label in labels:
        cells = [_cell(label, found, reference) for found in runs.values()]
        rows.append([label, *(Markup(spell(one, sign=bool(reference)), number=True) if one else None for one in cells)])
    unit = f"Points above {reference}" if reference else "In percent"
    return table(["encoder", *columns], rows, caption=f"{caption} {unit}, with 95 % bootstrap intervals over rows.")


def measure_of(found: Mapping[str, Sequence[Record]]) -> str:
    """The first measure of the task that these records are of."""
    record = next(record for records in found.values() for record in records)
    return TASKS[record.recipe["evaluation"]["nlu"]["task"]].measures[0]


def _cell(label: str, found: Mapping[str, Sequence[Record]], reference: str | None) -> Interval | None:
    if not found.get(label) or (reference and not found.get(reference)):
        return None
    own, name = [record.measured for record in found[label]], measure_of(found)
    if reference is None:
        return _percent(measure_interval(own, name))
    return _percent(measure_difference(own, [record.measured for record in found[reference]], name))


def _percent(one: Interval) -> Interval:
    return Interval(100 * one.mean, 100 * one.low, 100 * one.high, one.level)
