"""Where to look when a stage of the pipeline adds nothing: its checks as a table, with what each would mean.

The values come from a study with `lab.unfold_checks`. Page: ideas/pipeline.
"""

from collections.abc import Mapping

from IPython.display import HTML

from dr_lib.evaluation import Interval
from dr_lib.report.comparison import spell
from dr_lib.report.measured import Runs, mean_intervals
from dr_lib.report.tables import Cell, Markup, table

MEANINGS = {
    "retriever 1: MRR@10": "far above its value on test queries: it knows these queries by heart, and what it "
    "mines for them is not what it confuses elsewhere",
    "mined: BM25 lists them too": "near 100: retriever 2 learns from the negatives that retriever 1 had",
    "mined: hold an answer": "high: right passages are punished as wrong; mining.answers=drop leaves them out",
    "mined: from a positive's document": "high: neighbours of the positive, hard ones, some of them right",
    "retriever 2: MRR@10": "far above its value on test queries: the lists for the teacher are easy",
    "lists: retriever 2 puts a positive first": "for comparison with the next line",
    "lists: teacher puts a positive first": "not above the line before: the teacher has nothing to teach",
    "lists: negatives that the teacher puts above": "high: unlabelled right passages, or a weak teacher",
}


def checks_table(checks: Mapping[str, Runs]) -> HTML:
    """A row a check, a column a collection, and what to think of a striking value.

    Args:
        checks: collection -> label -> records of a study with `lab.unfold_checks`, one label each; a collection whose
            queries have no answers lacks one check.
    """
    found = {name: _values(runs) for name, runs in checks.items()}
    known = [check for check in MEANINGS if any(check in values for values in found.values())]
    rows: list[list[Cell]] = [
        [check, *(_spelled(values.get(check)) for values in found.values()), MEANINGS[check]] for check in known
    ]
    caption = "Checks on training queries, in percent, with 95 % bootstrap intervals over queries."
    return table(["check", *found, "a cause to look at if it is"], rows, caption=caption)


def _values(runs: Runs) -> dict[str, Interval]:
    taken = [check for records in runs.values() for check in records[0].means]
    return {check: interval for check in taken for interval in mean_intervals(runs, check).values()}


def _spelled(interval: Interval | None) -> Cell:
    return None if interval is None else Markup(spell(interval), number=True)
