"""Paper, recorded and live side by side: the table and the figures that every page about a table starts from."""

from collections.abc import Mapping, Sequence

from IPython.display import HTML

from dr_lib.evaluation import Interval
from dr_lib.lab.records import Record
from dr_lib.report.figures import Series, curves, intervals
from dr_lib.report.measured import (
    Pair,
    Runs,
    corrected_tests,
    detectable,
    differences,
    mean_intervals,
    spell_data,
)
from dr_lib.report.tables import Cell, Markup, link, table

RECORDS = "../../book/records"
"""Where records lie as seen from a notebook, in the checkout and in the built book alike."""


def values_table(
    labels: Sequence[str], *, paper: Mapping[str, float], recorded: Runs, live: Runs, measure: str, caption: str
) -> HTML:
    """One row a configuration: what the paper printed, what was recorded, what this machine has just measured.

    Args:
        labels: configurations in the order of the page; one without any value is still shown.
        paper: label -> the paper's own value, in percent; without any the table has no such column.
        recorded, live: label -> records, one a seed.
        measure: e.g. "MRR@10".
        caption: what the table shows; unit, interval and the data measured on are added to it.
    """
    kept, now = mean_intervals(recorded, measure), mean_intervals(live, measure)
    columns: dict[str, list[Cell]] = {
        "configuration": list(labels),
        **({"paper": [paper.get(label) for label in labels]} if paper else {}),
        "recorded": [_spelled(kept.get(label)) for label in labels],
        "seeds": [_seeds(recorded.get(label, ())) for label in labels],
        "live": [_spelled(now.get(label)) for label in labels],
    }
    unit = f"{measure} in percent, with 95 % bootstrap intervals over queries."
    told = [f"{name}: {spell_data(runs)}." for name, runs in (("Recorded", recorded), ("Live", live)) if runs]
    return table(list(columns), list(zip(*columns.values(), strict=True)), caption=" ".join([caption, unit, *told]))


def _spelled(interval: Interval | None, sign: bool = False) -> Cell:
    return None if interval is None else Markup(spell(interval, sign), number=True)


def _seeds(records: Sequence[Record]) -> Cell:
    """The seeds of a configuration, each a link to its record."""
    links = [link(str(record.seed), f"{RECORDS}/{record.scale}/{record.file_name}").html for record in records]
    return Markup(", ".join(links)) if links else None


def spell(interval: Interval, sign: bool = False) -> str:
    """A value with its interval as safe text: ``31.2 [30.5, 31.9]``.

    Example:
        >>> spell(Interval(1.26, 0.5, 2.0), sign=True)
        '+1.3 [+0.5, +2.0]'
    """
    form = "{:+.1f}" if sign else "{:.1f}"
    mean, low, high = (form.format(value) for value in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}, {high}]"


def differences_table(
    pairs: Sequence[Pair], *, paper: Mapping[str, float], runs: Runs, measure: str, caption: str, tests: bool = False
) -> HTML:
    """Paired differences with intervals, beside the paper's, and what could have been detected at all.

    Args:
        pairs: (first, second) labels; the difference is first minus second.
        paper: label -> the paper's own value, in percent; without any the table has no such column.
        runs: label -> records, one a seed.
        measure: e.g. "MRR@10".
        caption: what the table shows; unit and the data measured on are added to it.
        tests: add a column of p-values, corrected over the rows of this table.
    """
    measured, least = differences(pairs, runs, measure), detectable(pairs, runs, measure)
    printed = {pair: paper[pair[0]] - paper[pair[1]] for pair in pairs if {*pair} <= {*paper}}
    columns: dict[str, list[Cell]] = {
        "difference": [f"{first} against {second}" for first, second in pairs],
        **({"paper": [_signed(printed.get(pair)) for pair in pairs]} if paper else {}),
        "measured": [_spelled(measured.get(pair), sign=True) for pair in pairs],
    }
    if tests:
        p_values = corrected_tests(pairs, runs, measure)
        columns["p (Holm)"] = [_p_value(p_values.get(pair)) for pair in pairs]
    columns["smallest detectable"] = [least.get(pair) for pair in pairs]
    unit = f"Points of {measure}; 95 % intervals from paired differences."
    told = [f"Measured: {spell_data(runs)}."] if runs else []
    return table(list(columns), list(zip(*columns.values(), strict=True)), caption=" ".join([caption, unit, *told]))


def _signed(value: float | None) -> Cell:
    return None if value is None else Markup(f"{value:+.1f}", number=True)


def _p_value(value: float | None) -> Cell:
    return None if value is None else Markup(f"{value:.4f}" if value >= 0.0001 else "&lt; 0.0001", number=True)


def values_figure(
    labels: Sequence[str], *, paper: Mapping[str, float], recorded: Runs, live: Runs, measure: str, rows: str
) -> HTML:
    """The same values as a figure: one panel a source, each on its own scale, since absolute values do not compare."""
    exact = {label: Interval(value, value, value) for label, value in paper.items() if label in labels}
    series = [Series("paper", "paper", exact)]
    for name, runs in (("recorded", recorded), ("live", live)):
        points = mean_intervals({label: runs[label] for label in labels if label in runs}, measure)
        series.append(Series(name, name, points))
    told = [f"{one.name}: {_tell(one.points)}" for one in series if one.points]
    return intervals(series, labels, unit=f"{measure}, %", rows=rows, alt=f"{measure} by {rows}. " + " ".join(told))


def _tell(points: Mapping[str, Interval]) -> str:
    return ", ".join(f"{label} {point.mean:.1f}" for label, point in points.items()) + "."


def differences_figure(
    reference: str, labels: Sequence[str], *, paper: Mapping[str, float], runs: Runs, name: str, measure: str
) -> HTML:
    """Every configuration minus a reference one, paper beside measured: differences are what compares across scales.

    Args:
        reference: the label that is subtracted.
        labels: the others, from top to bottom.
        paper: label -> the paper's own value, in percent.
        runs: label -> records, one a seed.
        name: "recorded" or "live", which sets title and colour.
        measure: e.g. "MRR@10".
    """
    others = [label for label in labels if label != reference]
    known = [label for label in others if label in paper and reference in paper]
    printed = {label: Interval(*[paper[label] - paper[reference]] * 3) for label in known}
    measured = differences([(label, reference) for label in others], runs, measure)
    points = {label: interval for (label, _), interval in measured.items()}
    series = [Series("paper", "paper", printed), Series(name, name, points)]
    alt = f"{measure} minus that of {reference}. Paper: {_tell(printed)} {name}: {_tell(points)}"
    return intervals(series, others, unit=f"points of {measure}", alt=alt, zero=True, rows=f"minus {reference}")


def loss_curves(runs: Runs, part: str, *, stage: str = "pretrained", smooth: int = 5) -> HTML:
    """Training curves from the records, first seed of each configuration.

    Args:
        runs: label -> records.
        part: which logged scalar, e.g. "decoder_loss".
        stage: "pretrained" or "retriever".
        smooth: width of the running mean, in logged points.
    """
    lines = {}
    for label, records in runs.items():
        curve = records[0].training.get(stage, {}).get("curve", {})
        if part in curve:
            lines[label] = (curve["step"], curve[part])
    spoken = part.replace("_", " ")
    ends = ", ".join(f"{label} ends at {values[-1]:.2f}" for label, (_, values) in lines.items())
    return curves(lines, x="training step", y=f"{spoken}, nats", alt=f"{spoken} over training: {ends}.", smooth=smooth)
