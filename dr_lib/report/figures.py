"""The figures that pages share: measured values with their intervals, and loss curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from IPython.display import HTML
from matplotlib.figure import Figure

from dr_lib.evaluation import Interval
from dr_lib.report.theme import Palette, show


@dataclass(frozen=True)
class Series:
    """One source's values, a point a label: the paper (no intervals), the record, or the live run."""

    name: str
    role: str
    points: Mapping[str, Interval]


def _panel(axes, series: Series, labels: Sequence[str], palette: Palette, unit: str, zero: bool) -> None:
    places = {label: len(labels) - 1 - i for i, label in enumerate(labels)}
    color = getattr(palette, series.role)
    for label, point in series.points.items():
        axes.plot([point.low, point.high], [places[label]] * 2, color=color, linewidth=2, alpha=0.6)
        axes.plot(point.mean, places[label], "o", color=color, markersize=6)
    if zero:
        axes.axvline(0, color=palette.text, linewidth=0.8)
    axes.set_title(series.name, loc="left", fontsize=10)
    axes.set_xlabel(unit)
    axes.set_yticks(range(len(labels)), reversed(labels))
    axes.set_ylim(-0.6, len(labels) - 0.4)


def intervals(
    series: Sequence[Series], labels: Sequence[str], *, unit: str, alt: str, zero: bool = False, rows: str = ""
) -> HTML:
    """Points with 95 % intervals: one panel a source, since scales differ, one line a configuration.

    Args:
        series: what to draw; a source without any point gets no panel.
        labels: the configurations from top to bottom.
        unit: label of the horizontal axes, with its unit.
        alt: the figure in words.
        zero: draw a line at zero (for differences).
        rows: what the lines are, written beside the first panel.
    """
    filled = [one for one in series if one.points]

    def draw(palette: Palette) -> Figure:
        figure = Figure(figsize=(1.7 + 1.9 * len(filled), 0.9 + 0.32 * len(labels)), layout="constrained")
        panels = figure.subplots(1, len(filled), sharey=True, squeeze=False)[0]
        for axes, one in zip(panels, filled, strict=True):
            _panel(axes, one, labels, palette, unit, zero)
        panels[0].set_ylabel(rows)
        return figure

    return show(draw, alt)


def smoothed(values: np.ndarray, width: int) -> np.ndarray:
    """Centred running mean; the window shrinks at both ends so that no value is invented."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    here = np.arange(len(values))
    low, high = np.maximum(here - width // 2, 0), np.minimum(here + width // 2 + 1, len(values))
    return (sums[high] - sums[low]) / (high - low)


def curves(lines: Mapping[str, tuple[np.ndarray, np.ndarray]], *, x: str, y: str, alt: str, smooth: int = 1) -> HTML:
    """Curves over training steps, named in a legend beside them.

    Args:
        lines: label -> (steps, values), both `[points]`.
        x: label of the horizontal axis, with its unit.
        y: label of the vertical axis, with its unit.
        alt: the figure in words.
        smooth: width of a running mean in points; 1 shows the raw values.
    """

    def draw(palette: Palette) -> Figure:
        figure = Figure(figsize=(7.2, 3.4), layout="constrained")
        axes = figure.subplots()
        for i, (label, (steps, values)) in enumerate(lines.items()):
            color = palette.series[i % len(palette.series)]
            dash = "-" if i < len(palette.series) else "--"
            axes.plot(steps, smoothed(np.asarray(values, float), smooth), dash, color=color, linewidth=1.6, label=label)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
        return figure

    return show(draw, alt)
