"""The figure of PAIR's analysis: how near positives lie to their query and to the negatives found with them.

One row a system, two points: s(p+, q) and s(p+, p-), each the mean over queries with the standard deviation, as the
paper draws them (its Figure 4). Page: ideas/passage-centric.
"""

from collections.abc import Mapping

import numpy as np
from IPython.display import HTML
from matplotlib.figure import Figure

from dr_lib.evaluation import POSITIVE_NEGATIVE, POSITIVE_QUERY, Interval, Scores, bootstrap_interval
from dr_lib.report.measured import Runs
from dr_lib.report.tables import Cell, Markup, table
from dr_lib.report.theme import Palette, show

KINDS = {POSITIVE_QUERY: "positive and query, s(p+, q)", POSITIVE_NEGATIVE: "positive and negatives, s(p+, p-)"}
APART = 0.14


def similarity_figure(systems: Mapping[str, Scores], *, how: str = "mean", unit: str = "inner product") -> HTML:
    """Draw the similarities of several systems.

    Args:
        systems: name -> what `evaluation.passage_similarities` gives.
        how: "mean" or "median" over the passages of a query.
        unit: what the horizontal axis measures, such as "cosine".

    Raises:
        InputError: scores without these measures.
    """
    values = {name: {kind: _spread(one, f"{kind} {how}") for kind in KINDS} for name, one in systems.items()}

    def draw(palette: Palette) -> Figure:
        figure = Figure(figsize=(6.4, 1.3 + 0.5 * len(values)), layout="constrained")
        axes = figure.subplots()
        for row, own in enumerate(reversed(values.values())):
            for side, (kind, (mean, deviation)) in enumerate(own.items()):
                style = {"color": palette.series[side], "marker": "os"[side], "markersize": 6, "linewidth": 2}
                label = KINDS[kind] if row == 0 else None
                place = row + APART * (1 - 2 * side)
                axes.errorbar(mean, place, xerr=deviation, capsize=3, label=label, **style)
        axes.set_yticks(range(len(values)), reversed(values))
        axes.set_ylim(-0.5, len(values) - 0.5)
        axes.set_xlabel(f"{unit}, {how} of a query; bar: standard deviation over queries")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9)
        return figure

    told = [f"{name}: s(p+, q) {a:.2f} ± {b:.2f}, s(p+, p-) {c:.2f} ± {d:.2f}" for name, a, b, c, d in _flat(values)]
    return show(draw, f"Similarity of positive passages by system, {unit}. " + "; ".join(told) + ".")


def similarity_table(runs: Runs, *, caption: str, how: str = "mean") -> HTML:
    """Both similarities of each system and the gap between them, with 95 % bootstrap intervals over queries.

    Args:
        runs: system -> records of a study with `lab.unfold_similarities`, one a seed; the first seed is shown.
        caption: what is shown.
        how: "mean" or "median" over the passages of a query.
    """
    rows: list[list[Cell]] = []
    for name, records in runs.items():
        near, far = (records[0].per_query(f"{kind} {how}").astype(np.float64) for kind in KINDS)
        found = [_three(bootstrap_interval(column)) for column in (near, far, near - far)]
        rows.append([name, *found, 100 * float((near > far).mean()), len(near)])
    columns = ["system", POSITIVE_QUERY, POSITIVE_NEGATIVE, "gap", "gap above 0, % of queries", "queries"]
    return table(columns, rows, caption=caption)


def _three(interval: Interval) -> Markup:
    return Markup(f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]", number=True)


def _spread(scores: Scores, measure: str) -> tuple[float, float]:
    column = scores.per_query(measure).astype(np.float64)
    return float(column.mean()), float(column.std())


def _flat(values: Mapping[str, Mapping[str, tuple[float, float]]]) -> list[tuple]:
    return [(name, *own[POSITIVE_QUERY], *own[POSITIVE_NEGATIVE]) for name, own in values.items()]
