"""Paper, recorded and live side by side: the table and the figures that every page about a table starts from."""

from collections.abc import Mapping, Sequence

from IPython.display import HTML

from dr_lib.evaluation import Interval
from dr_lib.lab.records import Record
from dr_lib.report.figures import Series, curves, intervals
from dr_lib.report.measured import Pair, Runs, detectable, differences, mean_intervals
from dr_lib.report.tables import Cell, Markup, link, table

RECORDS = "../../book/records"
"""Where records lie as seen from a notebook, in the checkout and in the built book alike."""


def values_table(
    labels: Sequence[str], *, paper: Mapping[str, float], recorded: Runs, live: Runs, measure: str, caption: str
) -> HTML:
    """One row a configuration: what the paper printed, what was recorded, what this machine has just measured.

    Args:
        labels: configurations in the order of the page; one without any value is still shown.
        paper: label -> the paper's own value, in percent.
        recorded, live: label -> records, one a seed.
        measure: e.g. "MRR@10".
        caption: what the table shows; unit and interval are added to it.
    """
    kept, now = mean_intervals(recorded, measure), mean_intervals(live, measure)
    rows: list[list[Cell]] = [
        [label, paper.get(label), _spelled(kept.get(label)), _seeds(recorded.get(label, ())), _spelled(now.get(label))]
        for label in labels
    ]
    columns = ["configuration", "paper", "recorded", "seeds", "live"]
    unit = f"{measure} in percent, with 95 % bootstrap intervals over queries"
    return table(columns, rows, caption=f"{caption} {unit}.")


def _spelled(interval: Interval | None) -> Cell:
    return None if interval is None else Markup(spell(interval), number=True)


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
    pairs: Sequence[Pair], *, paper: Mapping[str, float], runs: Runs, measure: str, caption: str
) -> HTML:
    """Paired differences with intervals, beside the paper's, and what could have been detected at all.

    Args:
        pairs: (first, second) labels; the difference is first minus second.
        paper: label -> the paper's own value, in percent.
        runs: label -> records, one a seed.
        measure: e.g. "MRR@10".
        caption: what the table shows; the unit is added to it.
    """
    measured, least = differences(pairs, runs, measure), detectable(pairs, runs, measure)
    rows: list[list[Cell]] = []
    for pair in pairs:
        first, second = pair
        printed = Markup(f"{paper[first] - paper[second]:+.1f}", number=True) if {*pair} <= {*paper} else None
        shown = Markup(spell(measured[pair], sign=True), number=True) if pair in measured else None
        rows.append([f"{first} against {second}", printed, shown, least.get(pair)])
    columns = ["difference", "paper", "measured", "smallest detectable"]
    return table(columns, rows, caption=f"{caption} Points of {measure}; 95 % intervals from paired differences.")


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
