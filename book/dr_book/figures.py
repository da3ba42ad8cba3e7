"""One style for every figure: the same colours by role and by family, on light and on dark pages.

A figure is an SVG drawing inside the page. Its colours are variables that the page's style sheet
sets, with the light ones where none is set, as in a plain notebook; its text is text, in the page's
font. Colours stay apart for readers with colour-vision deficiency and print well. A figure is made
without pyplot; axes of one unit are shared.

Every figure is as narrow as a phone (`WIDTH`) and is drawn once: names stand above their points,
legends below the curves.
"""

import html
import io
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dr_book.statistics import Interval
from dr_book.tables import named, typographic
from dr_lib import objectives
from dr_lib.lab import Record
from dr_lib.objectives import FAMILIES

BASELINES = {"BERT-base", "BERT", "BM25"}
"""Labels of papers for what is not pre-trained here."""
PARTS = {"mkp": "masked keywords", "cmp": "complementary mask", "npr": "neighbouring passage"}
PARTS |= {"dor": "questions", "gor": "continuations", "follows": "next sentence"}
"""What a figure calls the parts of MASTER's loss, and of BERT's."""
WIDTH = 5.4
"""Inches of every figure: its letters are as large as the text of a wide page, and shrunk to a
phone's width still readable.
"""
THOUSANDS = "{x:,.10g}"
"""Steps and passages on an axis, as the text writes them."""
PANELS_A_ROW = 2
LEAST_SPAN = 2.0
"""Points that an axis of intervals spans at least: a difference that no noise would leave standing
must not look large.
"""


class Palette(NamedTuple):
    """Colours: of text, of lines of the grid, of what a paper printed, and of series of our own."""

    text: str
    grid: str
    paper: str
    series: tuple[str, ...]

    @property
    def recorded(self) -> str:
        """Colour of recorded values."""
        return self.series[0]

    @property
    def live(self) -> str:
        """Colour of what this machine measured."""
        return self.series[1]

    def line(self, number: int) -> dict[str, str]:
        """Colour and dash of one of up to sixteen lines."""
        return {
            "color": self.series[number % 8],
            "linestyle": ("-", "--", ":", "-.")[number // 4 % 4],
        }


SERIES = ("#0a5fb4", "#b3541e", "#1a7f4b", "#8250a8", "#9a6700", "#a3215f", "#4d5a66", "#0b7d86")
PALETTE = Palette("#24292f", "#d8dee4", "#6e7781", SERIES)
VARIABLES = dict(
    zip(
        [*PALETTE[:3], *SERIES],
        ["text", "grid", "paper", *(f"series-{n}" for n in range(1, 9))],
        strict=True,
    )
)
"""Colour -> the variable ``--dr-figure-...`` that a style sheet may set instead;
book/_static/book.css does for dark pages.
"""
LOOK = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
LOOK |= {
    "font.size": 13,
    "font.family": "sans-serif",
    "axes.titlesize": 13,
    "axes.titlelocation": "left",
}
LOOK |= {
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 12,
}
LOOK |= dict.fromkeys(
    ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor", "ytick.labelcolor"),
    PALETTE.text,
)
LOOK |= dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), PALETTE.grid)
LOOK |= dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none") | {
    "svg.fonttype": "none"
}


def family(label: str) -> str | None:
    """The kind of method that a label names, before a comma or slash; None for a label that names
    none.

    Example:
        >>> family("Enc-Dec MLM"), family("MLM"), family("30% / 50%")
        ('one vector for a decoder', 'masked words alone', None)
    """

    def plain(name: str) -> str:
        return re.sub(r"[^a-z0-9]", "", name.lower())

    named = plain(re.split(r", | / ", label)[0])
    if named in map(plain, BASELINES):
        return objectives.method("none").family
    methods = ((name, objectives.method(name)) for name in objectives.names())
    return next(
        (method.family for name, method in methods if named in (plain(name), plain(method.title))),
        None,
    )


def tick(label: str) -> str:
    """A label for an axis: cut if it is long, and with no dollar sign, which would begin a
    formula.
    """
    name = named(label)
    return (name if len(name) <= 40 else name[:39] + "…").replace("$", r"\$")


def show(draw: Callable[[Palette], Figure], alt: str, *, leading: bool = False) -> HTML:
    """Draw a figure and return it as one piece of HTML.

    Args:
        draw: takes a `Palette` and returns a `matplotlib.figure.Figure` made without pyplot;
            another colour than the palette's stays the same on dark pages.
        alt: what the figure shows, for readers who do not see it.
        leading: whether it is the page's result: the book then shows it at the top of the page.

    Returns:
        HTML with an SVG drawing; nothing is loaded from elsewhere.
    """
    drawing = (
        '<svg role="img" style="stroke-linejoin: round"'
        f' aria-label="{html.escape(alt, quote=True)}"{_svg(draw, salt=alt)}'
    )
    return HTML(f'<div class="dr-figure{" dr-leading" if leading else ""}">{drawing}</div>')


def _svg(draw: Callable[[Palette], Figure], salt: str) -> str:
    """A drawing from the attributes of its element on, in one line: Markdown cells, too, may hold
    it, where lines break.

    Matplotlib names shared parts by a digest of the salt and the part: with another salt for each
    figure no two figures of a page refer to each other's, which a folded one would hide.
    """
    with mpl.rc_context(LOOK | {"svg.hashsalt": salt}):
        buffer = io.StringIO()
        draw(PALETTE).savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    svg = typographic(buffer.getvalue().partition("<svg")[2])
    svg = re.sub(
        r"<(metadata|style).*?</\1>|<!--.*?-->| id=\"[A-Za-z][\w.]*_\d+\"|rotate\(-0 [^)]*\)",
        "",
        svg,
        flags=re.DOTALL,
    )
    svg = re.sub(
        r" (d|x|y|transform)=\"[^\"]*\"", lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), svg
    )
    svg = re.sub(
        "|".join(VARIABLES),
        lambda found: f"var(--dr-figure-{VARIABLES[found[0]]}, {found[0]})",
        svg,
    )
    return re.sub(
        r"'DejaVu Sans'[^;\"]*",
        "var(--dr-figure-font, sans-serif)",
        re.sub(r'\s*\n\s*| transform=""', " ", svg),
    )


@dataclass(frozen=True)
class Series:
    """One source's values, one point per label: the paper (no intervals), the records, or the live
    run.

    Attributes:
        name: title of its panel.
        role: its colour, "paper", "recorded" or "live".
        points: label -> value with interval.
        unit: of its axis; sources of one unit share the axis.
    """

    name: str
    role: str
    points: Mapping[str, Interval]
    unit: str


def intervals(
    series: Sequence[Series],
    labels: Sequence[str],
    *,
    alt: str,
    zero: bool = False,
    rows: str = "",
    leading: bool = False,
) -> HTML:
    """Points with 95 % intervals: one panel per source, one line per configuration, its name above
    it.

    Colours are by family where the configurations are of several. An axis in per cent or points
    spans `LEAST_SPAN` at least.

    Args:
        series: what to draw; a source without any point gets no panel, without any source there is
            no figure.
        labels: the configurations from top to bottom; one without any point gets no line.
        alt: the figure in words.
        zero: draw a line at zero (for differences).
        rows: what the lines are, written above the panels.
        leading: as of `show`.
    """
    filled = [one for one in series if one.points]
    labels = [label for label in labels if any(label in one.points for one in filled)]
    places = {label: len(labels) - 1 - number for number, label in enumerate(labels)}
    kinds = set(map(family, labels))
    families = [name for name in FAMILIES if name in kinds]
    by_family = len(families) > 1 and None not in kinds
    if not filled:
        return HTML("")

    def draw(palette: Palette) -> Figure:
        figure = Figure(figsize=(WIDTH, 1.2 + 0.52 * len(labels)), layout="constrained")
        panels, at = (
            figure.subplots(1, len(filled), sharey=True, squeeze=False)[0],
            np.array([*places.values()]),
        )
        colours = dict(zip(FAMILIES, palette.series, strict=False)) | {
            "not pre-trained": palette.paper
        }
        for axes, one in zip(panels, filled, strict=True):
            for label, point in one.points.items():
                colour = colours[family(label)] if by_family else getattr(palette, one.role)
                axes.plot(
                    [point.low, point.high],
                    [places[label]] * 2,
                    color=colour,
                    linewidth=2.5,
                    alpha=0.6,
                )
                axes.plot(point.mean, places[label], "o", color=colour, markersize=8)
            axes.set(title=one.name, xlabel=one.unit, ylim=(-0.4, len(labels) - 0.1), yticks=[])
            axes.spines["left"].set_visible(False)
            if zero:  # in view, however far away the points are
                axes.vlines(
                    [0] * len(at), at - 0.4, at + 0.2, palette.text, linewidth=0.8, zorder=0.6
                )
            axes.locator_params(axis="x", nbins=8 // len(filled), steps=[1, 2, 5, 10])
            first = next(
                panel for panel, other in zip(panels, filled, strict=True) if other.unit == one.unit
            )
            # panels of one unit have one scale, so that equal lengths mean equal values
            if axes is not first:
                axes.sharex(first)
                axes.autoscale_view(scaley=False)
        for axes in (
            axes
            for axes, one in zip(panels, filled, strict=True)
            if one.unit.endswith("%") or "points" in one.unit
        ):
            low, high = axes.get_xlim()
            if high - low < LEAST_SPAN:
                axes.set_xlim((low + high - LEAST_SPAN) / 2, (low + high + LEAST_SPAN) / 2)
        for axes in panels:  # lines beside the points only: the names stay readable
            low, high = axes.get_xlim()
            for value in (value for value in axes.get_xticks() if low <= value <= high):
                axes.vlines(
                    [value] * len(at), at - 0.4, at + 0.2, palette.grid, linewidth=0.8, zorder=0.5
                )
            axes.set_xlim(low, high)
            axes.grid(visible=False)
        for label, place in places.items():  # the names go over the panels that follow
            name = panels[0].text(
                0,
                place + 0.3,
                tick(label),
                transform=panels[0].get_yaxis_transform(),
                va="baseline",
            )
            name.set_in_layout(False)
        figure.suptitle(rows, x=0.01, ha="left", style="italic", size=13)
        if by_family:
            dots = [
                Line2D([], [], marker="o", linestyle="", color=colours[name]) for name in families
            ]
            figure.legend(dots, families, loc="outside lower center", ncols=2, handletextpad=0)
        return figure

    return show(draw, alt, leading=leading)


def slopes(first: Series, second: Series, labels: Sequence[str]) -> HTML:
    """The order of the same configurations in two sources, best on top: where lines cross, they
    have changed places.

    Args:
        first, second: left and right; only places are drawn, so their levels and units may differ.
        labels: the configurations; those that one source lacks are left out, and of fewer than
            three there is no figure.
    """
    shared = [label for label in labels if label in first.points and label in second.points]
    places = {
        label: [round(one.points[label].mean, 1) for one in (first, second)] for label in shared
    }
    # equal values do not change places
    sides = [sorted(shared, key=lambda label: places[label][::step]) for step in (1, -1)]
    if len(shared) < 3:
        return HTML("")

    def draw(palette: Palette) -> Figure:
        # with its words as wide as the others
        figure = Figure(figsize=(1.4, 0.6 + 0.35 * len(shared)))
        axes = figure.subplots()
        axes.axis("off")
        for label in shared:
            left, right = (side.index(label) for side in sides)
            colour = (
                palette.recorded
                if right > left
                else palette.live
                if right < left
                else palette.paper
            )
            axes.plot(
                [0, 1],
                [left, right],
                "o-",
                color=colour,
                linewidth=2.5,
                markersize=6,
                clip_on=False,
            )
            ends = [f"{one.points[label].mean:.1f}" for one in (first, second)]
            axes.text(
                -0.1,
                left,
                f"{tick(label)}\N{EM SPACE}{ends[0]}",
                ha="right",
                va="center",
                color=colour,
            )
            axes.text(1.1, right, ends[1], ha="left", va="center", color=colour)
        heads = (f"{one.name}\n{one.unit}" for one in (first, second))
        for x, side, head in zip((-0.1, 1.1), ("right", "left"), heads, strict=True):
            axes.text(x, len(shared) - 0.3, head, ha=side, va="bottom", weight="bold")
        return figure

    orders = [
        ", ".join(f"{named(label)} {one.points[label].mean:.1f}" for label in reversed(side))
        for one, side in zip((first, second), sides, strict=True)
    ]
    alt = (
        f"Order from best to worst. {first.name} ({first.unit}): {orders[0]}. {second.name}"
        f" ({second.unit}): {orders[1]}."
    )
    return show(draw, alt, leading=True)


def curves(
    lines: Mapping[str, tuple[np.ndarray, np.ndarray]], *, x: str, y: str, alt: str, smooth: int = 1
) -> HTML:
    """Curves over training steps; several are named in a legend below them.

    Args:
        lines: label -> (steps, values), both `[points]`.
        x: label of the horizontal axis, with its unit.
        y: label of the vertical axis, with its unit.
        alt: the figure in words.
        smooth: width of a running mean in points; 1 shows the raw values.
    """

    def draw(palette: Palette) -> Figure:
        columns = 1 if any(len(tick(label)) > 20 for label in lines) else 2
        figure = Figure(
            figsize=(WIDTH, 3.3 + 0.25 * -(-len(lines) // columns)), layout="constrained"
        )
        axes = figure.subplots()
        for i, (label, (steps, values)) in enumerate(lines.items()):
            axes.plot(
                steps, smoothed(values, smooth), linewidth=2, label=tick(label), **palette.line(i)
            )
        axes.set(xlabel=x, ylabel=y)
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(THOUSANDS)
        if len(lines) > 1:
            figure.legend(loc="outside lower left", ncols=columns)
        return figure

    return show(draw, alt)


def smoothed(values: Sequence[float], width: int) -> np.ndarray:
    """Centred running mean; the window shrinks at both ends so that no value is invented."""
    return (
        pd.Series(values)
        .rolling(2 * (width // 2) + 1, center=True, min_periods=1)
        .mean()
        .to_numpy()
    )


def logged(
    records: Sequence[Record], ending: str, stage: str = "pretrained"
) -> dict[str, np.ndarray]:
    """Scalars of a configuration's first seed that end in "loss" or "accuracy": "step", the parts,
    then their total.

    Empty where the record has no such stage or scalar.
    """
    curve = records[0].training.get(stage, {}).get("curve", {}) if records else {}
    parts = [
        *sorted(name for name in curve if name.endswith(f"_{ending}")),
        *[ending] * (ending in curve),
    ]
    return {name: np.asarray(curve[name], float) for name in ["step", *parts]} if parts else {}


def training_curves(
    runs: Mapping[str, Sequence[Record]], *, ending: str, unit: str, stage: str = "pretrained"
) -> HTML:
    """One panel per method, with its logged values over training; a part has the same colour in all
    panels.

    Values are running means over five logged points. The total is drawn only where it has no parts:
    of several it is the sum, and would squeeze them.

    Args:
        runs: label -> records; those without that stage or such scalars get no panel.
        ending: which scalars: "loss", "accuracy".
        unit: label of the vertical axes.
        stage: "pretrained", "retriever" or "cross_encoder".
    """
    panels = {
        label: found for label, records in runs.items() if (found := logged(records, ending, stage))
    }
    if not panels:
        return HTML(
            '<p class="dr-note">Nothing is measured yet: no training of this kind is recorded.</p>'
        )
    drawn = {
        label: [name for name in found if name not in ("step", ending)] or [ending]
        for label, found in panels.items()
    }
    kinds = sorted(
        {name for names in drawn.values() for name in names},
        key=lambda name: (name == ending, name),
    )

    def draw(palette: Palette) -> Figure:
        height = -(-len(panels) // PANELS_A_ROW)
        figure = Figure(figsize=(WIDTH, 1.2 + 1.8 * height), layout="constrained")
        across = min(len(panels), PANELS_A_ROW)
        places = figure.subplots(height, across, squeeze=False, sharex=True, sharey=True).flatten()
        for axes, (label, found) in zip(places, panels.items(), strict=False):
            for name in drawn[label]:
                axes.plot(
                    found["step"],
                    smoothed(found[name], 5),
                    linewidth=1.6,
                    **palette.line(kinds.index(name)),
                )
            # a longer line runs into the next panel's
            axes.set_title(textwrap.fill(tick(label), 24), fontsize=12)
            axes.tick_params(labelsize=11, labelbottom=True)
            axes.locator_params(axis="x", nbins=4)
            axes.xaxis.set_major_formatter(THOUSANDS)
        for lowest in places[max(0, len(panels) - across) : len(panels)]:
            lowest.set_xlabel("training step", fontsize=11)
        for empty in places[len(panels) :]:
            empty.set_visible(False)
        lines = [Line2D([], [], **palette.line(i)) for i in range(len(kinds))]
        words = [
            PARTS.get(part := name.removesuffix(f"_{ending}"), part.replace("_", " "))
            for name in kinds
        ]
        if kinds != [ending]:  # which the axis names
            figure.legend(
                lines,
                words,
                loc="outside lower center",
                ncols=2 if max(map(len, words)) > 18 else 3,
            )
        figure.supylabel(unit, fontsize=12)
        return figure

    ends = "; ".join(
        f"{named(label)} ends at {found[[*found][-1]][-1]:.2f}" for label, found in panels.items()
    )
    return show(draw, f"{ending} over training for each method: {ends}.")
