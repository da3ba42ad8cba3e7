"""One style for every figure: the same colours by family of methods, on light and dark pages.

A figure is an inline SVG. Its colours are variables set by the page's style sheet, with the light
ones as fallback, as in a plain notebook; its text is text, in the page's font and size. A colour
means a family of methods, a shape means a source (a hollow diamond: the paper; a hollow dot: one
seed); verdicts have colours of their own. Figures are made without pyplot.

Every figure is drawn twice, for a wide page (`WIDE`) and for a phone (`PHONE`), and the page shows
the one that fits. Labels are left of their points on a wide page, above them on a phone.
"""

import html
import io
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox, ScaledTranslation

from dr_book.statistics import Interval
from dr_book.tables import minus, named, provenance, typographic
from dr_lib import objectives
from dr_lib.lab import Record
from dr_lib.objectives import FAMILIES

BASELINES = {"BERT-base", "BERT", "BM25"}
"""The papers' labels of systems that are not pre-trained here."""
PARTS = {
    "decoder": "decoder",
    "encoder": "encoder",
    "contrastive": "contrastive",
    "in_batch": "contrastive",
    "": "contrastive",
    "complement_encoder": "complement encoder",
    "mkp": "masked keywords",
    "cmp": "complementary mask",
    "npr": "neighbouring passage",
    "dor": "questions",
    "gor": "continuations",
    "follows": "next sentence",
    "divergence": "divergence",
    "generator": "generator",
}
"""Logged part of a loss or accuracy -> its name in a figure; the position of a name determines its
colour. A training that logs no parts is contrastive.
"""
BOTH = 14
"""Longest line of a name, in letters, that fits on both sides of slopes on a phone."""
WIDE, PHONE = 8.1, 3.7
"""Widths in inches of 96 pixels: the column of a wide page, and the window of a phone."""
RECORDED = re.compile(r"\[([\w/-]+)\]\((book/records/[\w./-]+\.jsonl\.xz)\)")
"""A study and the file of its records in a line of provenance."""
THOUSANDS = "{x:,.10g}"
"""Format of steps and passages on an axis, as in the text."""
LEAST_SPAN = 2.0
"""The least span of an axis of intervals, in points: a difference within the noise must not look
large.
"""
PALE = 0.45
"""Opacity of a difference whose interval contains zero, and of points that decide nothing."""
STRONGEST = 0.5
"""Opacity of the strongest cell of a map: text is readable on it, on light and on dark pages."""
LEGIBLE = 3
"""How many lines can be distinguished in a small panel."""
DASHES = ("-", "--", ":", "-.")
DASH_OF = {"auto-encoder": "-", "SimLM": "--", "RetroMAE": ":", "MASTER": "-."}
"""Title of a method -> its dash in every figure, where several methods of a family are drawn as
lines.
"""
MOST_ROOM, PER_POINT = 1.5, 2.0
"""Slopes show wide gaps as wide within these bounds: height relative to the minimum, and rows per
point.
"""
MARKS = {"paper": "D", "recorded": "o", "live": "s"}
"""Shapes of the points of each source; the paper's are hollow."""


class Palette(NamedTuple):
    """Colours of text, grid, printed values, and families of methods and other series; and the
    width of a drawing in inches.
    """

    text: str
    grid: str
    paper: str
    series: tuple[str, ...]
    width: float = WIDE

    @property
    def phone(self) -> bool:
        """Whether this is the drawing for a phone."""
        return self.width < WIDE

    def figure(self, height: float) -> Figure:
        """An empty figure of this width, padded so that tick labels of neighbouring panels do not
        touch.
        """
        figure = Figure(figsize=(self.width, height), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.08)
        return figure

    def line(self, number: int) -> dict[str, str]:
        """Colour and dash of one of up to thirty lines."""
        return {"color": self.series[number % 8], "linestyle": DASHES[number // 4 % 4]}

    @property
    def kinds(self) -> dict[str, str]:
        """Family of methods -> its colour."""
        return dict(zip(FAMILIES, (*self.series[:4], self.paper), strict=True))

    def of(self, label: str) -> str:
        """The colour of a label's family; the text's if it has none."""
        return self.kinds.get(family(label) or "", self.text)

    def styles(self, labels: Collection[str]) -> dict[str, dict[str, str]]:
        """Line styles of several methods: the family's colour and the method's dash (`DASH_OF`). A
        method without a dash of its own, and a variant beside its method, get the first free one;
        labels without a family get the colours of series.
        """
        colours = {
            label: self.of(label) if family(label) else self.series[number % 8]
            for number, label in enumerate(labels)
        }
        dashes: dict[str, str] = {}
        for label in sorted(colours, key=lambda label: named(label) not in DASH_OF):
            alike = [other for other in dashes if colours[other] == colours[label]]
            free = [dash for dash in DASHES if dash not in map(dashes.get, alike)] or DASHES
            own = DASH_OF.get(named(re.split(r", | / ", label)[0]))
            dashes[label] = own if own in free else free[0]
        return {
            label: {"color": colour, "linestyle": dashes[label]}
            for label, colour in colours.items()
        }


SERIES = ("#0a5fb4", "#9a6700", "#a3215f", "#0b7d86", "#8250a8", "#4d5a66", "#1a7f4b", "#b3541e")
PALETTE = Palette("#24292f", "#d8dee4", "#6e7781", SERIES)
GROUND = "#ffffff"
"""The page's background, which fills hollow dots so that lines behind them do not show."""
VARIABLES = dict(
    zip(
        [*PALETTE[:3], GROUND, *SERIES],
        ["text", "grid", "paper", "ground", *(f"series-{n}" for n in range(1, 9))],
        strict=True,
    )
)
"""Colour -> the variable ``--dr-figure-...`` with which a style sheet overrides it, as
book/_static/book.css does for dark pages.
"""
TEXT = ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor", "ytick.labelcolor")
LINES = ("axes.edgecolor", "grid.color", "xtick.color", "ytick.color")
LOOK = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 12,
    "font.family": "sans-serif",
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 12,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.2,
    "svg.fonttype": "none",
    **dict.fromkeys(TEXT, PALETTE.text),
    **dict.fromkeys(LINES, PALETTE.grid),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
}


def family(label: str) -> str | None:
    """The family of the method that a label names, before a comma or slash; None if it names none.

    Example:
        >>> family("Enc-Dec MLM"), family("MLM"), family("30% / 50%")
        ('one vector for a decoder', 'masked words alone', None)
    """

    def plain(name: str) -> str:
        return re.sub(r"[^a-z0-9]", "", name.lower())

    named = plain(re.split(r", | / ", label)[0])
    if named in map(plain, BASELINES):
        return objectives.method("none").family
    for name in objectives.names():  # a method of another package is imported only if named
        if named == plain(name):
            return objectives.method(name).family
    methods = objectives.METHODS.values()
    return next((method.family for method in methods if named == plain(method.title)), None)


def tick(label: str) -> str:
    """A label for an axis: truncated if long, with dollar signs escaped, which would begin a
    formula.
    """
    name = named(label)
    return (name if len(name) <= 40 else name[:39] + "…").replace("$", r"\$")


def show(
    draw: Callable[[Palette], Figure], alt: str, *, leading: bool = False, source: str = ""
) -> HTML:
    """Draw a figure for a wide page and for a phone, and return both as one piece of HTML.

    Args:
        draw: takes a `Palette` and returns a `matplotlib.figure.Figure` made without pyplot, as
            wide as the palette says; colours outside the palette do not change on dark pages.
        alt: what the figure shows, for readers who cannot see it.
        leading: whether it is the page's main result, which the book shows at the top.
        source: where its numbers come from: one grey line below it, as `sourced` takes it.

    Returns:
        HTML with SVG drawings; nothing is loaded from elsewhere.
    """
    about = f'role="img" style="stroke-linejoin: round" aria-label="{html.escape(alt)}"'
    wide, phone = (
        f"<svg {about}{_svg(draw, PALETTE._replace(width=width), salt=f'{alt}{width}')}"
        for width in (WIDE, PHONE)
    )
    return HTML(
        f'<div class="dr-figure{" dr-leading" if leading else ""}"><span class="dr-wide">{wide}'
        f'</span><span class="dr-phone" hidden>{phone}</span>{_source_line(source)}</div>'
    )


def _source_line(source: str) -> str:
    """The grey line below a figure; "" without a source."""
    return f'<p class="dr-source">{sourced(source)}</p>' if source else ""


def sourced(text: str) -> str:
    """Where numbers come from, as `tables.provenance` writes it, as safe HTML.

    A study becomes a link to its records, relative to a page two folders below the book's; the
    build adjusts it to other depths.

    Example:
        >>> sourced("A & B: [plan/core](book/records/laptop/plan-core.jsonl.xz)")
        'A &amp; B: <a href="../../book/records/laptop/plan-core.jsonl.xz">plan/core</a>'
    """
    return RECORDED.sub(r'<a href="../../\2">\1</a>', html.escape(typographic(text)))


def _svg(draw: Callable[[Palette], Figure], palette: Palette, salt: str) -> str:
    """A drawing, from the attributes of its `svg` element on, as one line, so that it can be put
    into Markdown cells.

    Matplotlib names shared parts by a digest of the salt and the part. Each figure has its own
    salt, so that none refers to parts of another, which vanish if that one is folded.
    """
    with mpl.rc_context(LOOK | {"svg.hashsalt": salt}):
        buffer = io.StringIO()
        draw(palette).savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
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
        unit: of its axis; sources with the same unit share the scale.
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
    sides: tuple[str, str] | None = None,
    rows: str = "",
    leading: bool = False,
    source: str = "",
) -> HTML:
    """Points with 95 % intervals: one panel per source, one line per configuration.

    Points are coloured by family if there are several; those with one seed are hollow. An axis in
    per cent or points spans at least `LEAST_SPAN`.

    Args:
        series: what to draw; a source without points gets no panel, and without any source there
            is no figure.
        labels: the configurations from top to bottom; one without points gets no line.
        alt: the figure in words.
        zero: draw a line at zero (for differences); points whose interval contains zero are pale,
            as are, in any figure, those with too few clusters to decide.
        sides: the meaning of values below and above zero, written left and right of that line.
        rows: what the lines are, written above the panels.
        leading, source: as for `show`.
    """
    filled = [one for one in series if one.points]
    labels = [label for label in labels if any(label in one.points for one in filled)]
    kinds = set(map(family, labels))
    families = [name for name in FAMILIES if name in kinds] if None not in kinds else []
    places = {label: len(labels) - 1 - number for number, label in enumerate(labels)}
    if not filled:
        return HTML("")

    def bounded(point: Interval) -> bool:
        return bool(np.isfinite([point.low, point.high]).all())

    def clear(point: Interval) -> bool:
        if zero and point.low == point.high:  # as printed in a paper, without an interval
            return True
        if zero and point.once:  # hollow already shows what it lacks
            return not (bounded(point) and point.low <= 0 <= point.high)
        return bool(point.side()) if zero else point.decides

    points = [point for one in filled for point in one.points.values()]
    if not all(map(clear, points)):
        few = not all(point.once or (point.decides and bounded(point)) for point in points)
        why = f"the interval holds zero{', or clusters of queries are too few' * few}"
        why = why if zero else "clusters of queries are too few to decide"
        source = f"{source} Pale: {why}.".strip()
    source = f"{source} {said_of_one_seed(points)}".strip()

    def draw(palette: Palette) -> Figure:
        title = textwrap.fill(rows, 40 if palette.phone else 90)
        letters = int(72 * palette.width / len(filled) / 7.5)  # in a line of a panel's name
        names = [textwrap.fill(one.name, max(letters, 10)) for one in filled]
        units = {one.unit for one in filled}
        # a single unit is written once, centred
        across = letters + 3 if len(units) > 1 else int(72 * palette.width / 6.5)
        more = title.count("\n") + max(name.count("\n") for name in names)
        more += max(textwrap.fill(unit, across).count("\n") for unit in units)
        more += (len(families) if palette.phone else 1) if len(families) > 1 else 0
        height = 1.2 + 0.2 * more + (0.52 if palette.phone else 0.36) * (len(labels) + bool(sides))
        figure = palette.figure(height)
        panels = figure.subplots(1, len(filled), sharey=True, squeeze=False)[0]
        for axes, one, name in zip(panels, filled, names, strict=True):
            for label, point in one.points.items():
                colour = palette.of(label) if len(families) > 1 else palette.text
                inside = "none" if one.role == "paper" else GROUND if point.once else colour
                axes.errorbar(
                    point.mean,
                    places[label],
                    xerr=[[point.mean - point.low], [point.high - point.mean]]
                    if bounded(point)
                    else None,
                    fmt=MARKS.get(one.role, "o"),
                    color=colour,
                    markersize=7,
                    elinewidth=2.2,
                    markerfacecolor=inside,
                    markeredgewidth=1.0 if inside == colour else 1.6,
                    alpha=1 if clear(point) else PALE,
                    clip_on=False,  # keeps a mark at the edge of a narrow panel whole
                )
            alone = len(filled) == 1 and one.role != "paper"
            axes.set(title="" if alone else name, xlabel=textwrap.fill(one.unit, across))
            marks = (6 if palette.phone else 8) // len(filled)
            axes.locator_params(axis="x", nbins=marks, steps=[1, 2, 5, 10])
            # panels with the same unit share a scale, so that equal lengths mean equal values
            first = next(
                panel for panel, other in zip(panels, filled, strict=True) if other.unit == one.unit
            )
            if axes is not first:
                axes.sharex(first)
                axes.autoscale_view(scaley=False)
            axes.spines["left"].set_visible(False)
            if zero:  # always in view, however far away the points are
                _upright(axes, palette, len(labels), [0], palette.text)
        for axes, one in zip(panels, filled, strict=True):
            low, high = axes.get_xlim()
            if (one.unit.endswith("%") or "points" in one.unit) and high - low < LEAST_SPAN:
                axes.set_xlim((low + high - LEAST_SPAN) / 2, (low + high + LEAST_SPAN) / 2)
        if letters < 20 and len(units) == 1:  # written once, below the middle panel
            for axes in {*panels} - {panels[len(panels) // 2]}:
                axes.set_xlabel("")
        panels[0].set_yticks([*places.values()], map(tick, labels))
        top = len(labels) - (0.1 if palette.phone else 0.4)
        for axes in panels if sides else ():
            for side, align, away in zip(sides, ("right", "left"), (-6, 6), strict=True):
                about = {"textcoords": "offset points", "ha": align, "va": "bottom", "size": 11}
                axes.annotate(side, (0, top), (away, 0), style="italic", **about)
        panels[0].set_ylim(-0.6, top + (0.7 if sides else 0))
        if palette.phone:
            _names_above(panels[0], places)
            for axes in panels:
                axes.grid(visible=False)
                low, high = axes.get_xlim()
                marks = [m for m in axes.get_xticks() if low <= m <= high and (m or not zero)]
                _upright(axes, palette, len(labels), marks, palette.grid)
                axes.set_xlim(low, high)
        figure.suptitle(title, x=0.01, ha="left", style="italic", size=12)
        if len(families) > 1:
            style = {"marker": "o", "linestyle": ""}
            dots = [Line2D([], [], color=palette.kinds[name], **style) for name in families]
            columns = 1 if palette.phone else 4
            figure.legend(dots, families, loc="outside lower left", ncols=columns, handletextpad=0)
        return figure

    return show(draw, alt, leading=leading, source=source)


def said_of_one_seed(points: Iterable[Interval]) -> str:
    """What hollow dots of a figure mean; "" if it has none."""
    once = [point for point in points if point.once]
    unknown = not all(point.decides and np.isfinite(point.high) for point in once)
    more = ", and how far another would move it is not known" * unknown
    return f"Hollow dots: one seed{more}." if once else ""


def _upright(axes: Axes, palette: Palette, rows: int, marks: Sequence[float], colour: str) -> None:
    """Vertical lines through all rows of a panel; on a phone they spare the names above points."""
    below, above = (0.35, 0.15) if palette.phone else (0.5, 0.5)
    at, row = map(np.ravel, np.meshgrid(marks, np.arange(rows)))
    axes.vlines(at, row - below, row + above, colour, linewidth=0.9, zorder=1)


def _names_above(axes: Axes, places: Mapping[str, int]) -> None:
    """Names above their points instead of beside the axis; they may extend into the next panels."""
    axes.tick_params(labelleft=False)
    for label, place in places.items():
        name = axes.text(0, place + 0.25, tick(label), transform=axes.get_yaxis_transform())
        name.set_in_layout(False)


def slopes(
    first: Series,
    second: Series,
    labels: Sequence[str],
    ties: Collection[frozenset[str]] = (),
    source: str = "",
) -> HTML:
    """The order of the same configurations in two sources, best on top. A pair whose order is
    certainly reversed has dark lines, and their crossing is circled, in one ring with others
    nearby; crossings outside the rings are ties in the second source. The key below the figure
    explains the marks that occur. Lines of configurations with one seed end in a hollow dot.

    On each side gaps are as wide as the differences, as far as there is room (`_heights`). Values
    that are equal as printed share one height, where their lines meet beside the value and a stack
    of their names.

    Args:
        first, second: left and right; each has its own scale, so their levels and units may differ.
        labels: the configurations; those missing from a source are left out, and for fewer than
            three there is no figure.
        ties: pairs of labels that cannot be distinguished in the second source.
        source: as for `show`.
    """
    shared = [label for label in labels if label in first.points and label in second.points]
    if len(shared) < 3:
        return HTML("")
    places = {
        label: [round(one.points[label].mean, 1) for one in (first, second)] for label in shared
    }
    heights = pd.DataFrame(places).T.apply(_heights)
    ends = heights.max() + ((heights == heights.max()).sum() - 1) / 2  # of stacks of names
    heights *= ends.max() / ends  # both sides are as high
    top = float(ends.max())
    # equal values are in the order of the other side, to which their lines lead
    sides = [sorted(shared, key=lambda label: places[label][::step]) for step in (1, -1)]
    crossings = [
        (one, other)
        for one, other in combinations(shared, 2)
        if np.prod(np.subtract(places[one], places[other])) < 0
    ]
    certain = [pair for pair in crossings if frozenset(pair) not in ties]
    dark = {label for pair in certain for label in pair}

    def draw(palette: Palette) -> Figure:
        wrapped = [
            {
                label: textwrap.wrap(
                    tick(label), width, break_on_hyphens=False, break_long_words=width > BOTH
                )
                for label in shared
            }
            for width in ((BOTH, 18) if palette.phone else (40,))
        ]
        # a phone has room for both sides where names are short
        both = not palette.phone or all(
            len(lines) < 3 and max(map(len, lines)) <= BOTH for lines in wrapped[0].values()
        )
        names = wrapped[0 if both else -1]
        gap = 0.13 if palette.phone else 0.08  # between a point and its value
        row = 0.18 + 0.16 * max(map(len, names.values()))
        longest = max(len(line) for lines in names.values() for line in lines)
        least, columns = (0.8, 2) if both else (1.0, 1)
        across = min(max(least, 2.4 - 0.095 * longest * columns), 1.8) if palette.phone else 3.0
        figure = Figure(figsize=(across, 0.5 + row * (top + 1)))
        axes = figure.subplots()
        axes.axis("off")
        axes.set_ylim(-0.3, top + 0.3)
        colours = {label: palette.text if label in dark else palette.paper for label in shared}
        for label in shared:
            width = 2.4 if label in dark else 1.6
            style = {"color": colours[label], "linewidth": width, "markersize": 6}
            axes.plot([0, 1], [*heights.loc[label]], "o-", clip_on=False, **style)
            if second.points[label].once:
                look = {"facecolor": GROUND, "edgecolor": colours[label], "linewidth": 1.6}
                axes.scatter(1, heights.loc[label, 1], 36, zorder=3, clip_on=False, **look)
        ring = {"markerfacecolor": "none", "markeredgewidth": 1.6}
        inches = np.array([0.75 * across, row])  # of a unit of the axes, about
        crossed = [_crossing(heights, *pair) * inches for pair in certain]
        for middle, radius in _rings(crossed, (5.5 if palette.phone else 6.5) / 72):
            style = {"color": palette.series[7], "markersize": 144 * radius - 2, **ring}
            axes.plot(*(middle / inches), "o", **style)
        for column, x, away, align in ((0, -gap, -1, "right"), (1, 1 + gap, 1, "left")):
            for height, group in heights[column].groupby(heights[column]):
                equal = [label for label in reversed(sides[column]) if label in group]
                value = f"{places[equal[0]][column]:.1f}"
                colour = palette.text if dark & {*equal} else palette.paper
                axes.text(x, height, value, ha=align, va="center", color=colour)
                if column and not both:  # names on the left only
                    continue
                lines = ",\n".join("\n".join(names[label]) for label in equal).split("\n")
                shade = [colours[label] for label in equal for _ in names[label]]
                _lines(axes, lines, (x, height), left=-2.8 * away, colours=shade, ha=align)
        for x, side, one in ((-gap, "right", first), (1 + gap, "left", second)):
            head = [one.name, one.unit]
            _lines(axes, head, (x, top + 1.15), ha=side, weight="bold")
        return figure

    orders = [
        ", ".join(f"{named(label)} {one.points[label].mean:.1f}" for label in reversed(side))
        for one, side in zip((first, second), sides, strict=True)
    ]
    alt = (
        f"Order from best to worst. {first.name} ({first.unit}): {orders[0]}. {second.name}"
        f" ({second.unit}): {orders[1]}."
    )
    changed = "; ".join(f"{named(one)} and {named(other)}" for one, other in certain)
    alt += f" Changed places for certain: {changed or 'none'}."
    key = ""
    if certain:
        key = "Circled crossings are certain. "
        if certain != crossings:  # a ring may contain a tie as well
            outside = {label for pair in crossings if pair not in certain for label in pair}
            waits = any(second.points[label].once for label in outside)
            or_wait = ", or wait for a second seed" * waits
            key = f"A ring holds a crossing that is certain; those outside are not{or_wait}. "
    elif crossings:
        key = "No crossing is certain. " if len(crossings) > 1 else "The crossing is not certain. "
    key += source
    hollow = said_of_one_seed(second.points[label] for label in shared)
    return show(draw, alt, leading=True, source=f"{key} {hollow}".strip())


def _crossing(heights: pd.DataFrame, one: str, other: str) -> np.ndarray:
    """Where two lines of a slope chart cross."""
    left, right = heights.loc[one].to_numpy() - heights.loc[other].to_numpy()
    x = left / (left - right)
    start, end = heights.loc[one]
    return np.array([x, start + x * (end - start)])


def _rings(places: Sequence[np.ndarray], least: float) -> list[tuple[np.ndarray, float]]:
    """Centres and radii of rings around places, in inches: at least `least`, and large enough for
    the places inside. Rings that would overlap are merged.
    """
    groups = [[place] for place in places]
    while True:
        rings = [_around(group, least) for group in groups]
        overlaps = (
            (i, j)
            for (i, one), (j, other) in combinations(enumerate(rings), 2)
            if np.linalg.norm(one[0] - other[0]) < one[1] + other[1]
        )
        if not (pair := next(overlaps, None)):
            return rings
        groups[pair[0]] += groups.pop(pair[1])


def _around(group: Sequence[np.ndarray], least: float) -> tuple[np.ndarray, float]:
    """Centre and radius of the ring around some places."""
    middle = np.mean(group, axis=0)
    reach = max(float(np.linalg.norm(middle - place)) for place in group)
    return middle, max(least, reach + least / 2)


def _heights(values: pd.Series) -> pd.Series:
    """Heights of values, the lowest at 0, in rows: gaps are proportional to the differences as far
    as `MOST_ROOM` and `PER_POINT` allow, and the nearest two are a row apart. Equal values are in
    the middle of as many rows.
    """
    rows = values.value_counts().sort_index()
    gaps, rooms = np.diff(rows.index), (rows.to_numpy()[1:] + rows.to_numpy()[:-1]) / 2
    if not len(gaps):
        return values * 0.0 + (len(values) - 1) / 2
    scales = np.linspace(0, PER_POINT, 401)
    steps = next(
        steps
        for scale in scales[::-1]
        if (steps := np.maximum(rooms, scale * gaps)).sum() <= MOST_ROOM * rooms.sum()
    )
    steps /= (steps / rooms).min()
    heights = (rows.iloc[0] - 1) / 2 + np.concatenate([[0.0], np.cumsum(steps)])
    return values.map(dict(zip(rows.index, heights, strict=True)))


def _lines(
    axes: Axes,
    lines: Sequence[str],
    at: tuple[float, float],
    left: float = 0.0,
    colours: Sequence[str] = (),
    **style: str,
) -> None:
    """Lines of text around a point, each anchored by itself, because a browser's letters are not as
    wide as those that matplotlib measures.

    Args:
        axes: whose coordinates the point has; it may lie outside.
        lines: from top to bottom.
        at: the point, in data coordinates.
        left: offset to the left, in letters.
        colours: one a line; the text's if empty.
        style: of the text.
    """
    size = mpl.rcParams["font.size"]
    colours = colours or [mpl.rcParams["text.color"]] * len(lines)
    for number, (line, colour) in enumerate(zip(lines, colours, strict=True)):
        down = 1.2 * (number - (len(lines) - 1) / 2)
        axes.annotate(
            line,
            at,
            (-left * size, -down * size),
            textcoords="offset points",
            annotation_clip=False,
            va="center",
            color=colour,
            **style,
        )


def curves(
    lines: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    x: str,
    y: str,
    alt: str,
    smooth: int = 1,
    source: str = "",
) -> HTML:
    """Curves over training steps, named at their ends if there are several.

    Args:
        lines: label -> (steps, values), both `[points]`.
        x: label of the horizontal axis, with its unit.
        y: label of the vertical axis, with its unit.
        alt: the figure in words.
        smooth: width of a running mean in points; 1 shows the raw values.
        source: as for `show`.
    """

    def draw(palette: Palette) -> Figure:
        figure = palette.figure(3.4)
        axes = figure.subplots()
        styles = palette.styles(lines)
        for label, (steps, values) in lines.items():
            axes.plot(steps, smoothed(values, smooth), linewidth=2, **styles[label])
        axes.set(xlabel=x, ylabel=y)
        axes.locator_params(axis="x", nbins=3 if palette.phone and len(lines) > 1 else 5)
        axes.xaxis.set_major_formatter(THOUSANDS)
        if len(lines) > 1:
            ends = {
                label: (smoothed(values, smooth)[-1], steps[-1], styles[label]["color"])
                for label, (steps, values) in lines.items()
            }
            _named_ends(axes, ends)
        return figure

    return show(draw, alt, source=source)


def growth(
    lines: Mapping[str, Mapping[float, Interval]],
    *,
    x: str,
    y: str,
    alt: str = "",
    levels: Mapping[str, Interval] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    ticks: Mapping[float, str] | None = None,
    log: bool = False,
    saving: tuple[str, str, str] | None = None,
    leading: bool = False,
    source: str = "",
) -> HTML:
    """Curves with bands, named at their ends: values that grow with steps, pairs or another amount.
    If every line has fewer than three amounts, the points are named rows of `intervals` instead.

    Points with one seed are hollow.

    Args:
        lines: label -> amount -> value with its 95 % interval; a band spans the intervals. A line
            with fewer than three amounts is drawn as points with bars: a band would show values
            that were not measured.
        x, y: labels of the axes, with their units.
        alt: description before the numbers.
        levels: values that do not depend on the amount: a dotted line with its band.
        ranges: ranges (low, high) without a mean: a band without a line.
        ticks: names of amounts, instead of the numbers.
        log: logarithmic horizontal axis; an amount of zero is left of all others.
        saving: a line, another one, and the noun for the amount: the drawing says at which share of
            it the first line reaches the other's final value, if it does.
        leading, source: as for `show`.
    """
    levels, ranges, ticks = levels or {}, ranges or {}, ticks or {}
    saved = _saved(lines, *saving) if saving else None
    if lines and all(len(line) < 3 for line in lines.values()):
        return _as_rows(lines, x, y, alt, levels, ticks, leading, source)
    hollow = said_of_one_seed(point for line in lines.values() for point in line.values())
    source = f"{source} {hollow}".strip()
    bars = [label for label, line in lines.items() if len(line) < 3]
    amounts = sorted({amount for line in lines.values() for amount in line})

    def place(amount: float) -> float:
        """Zero has no logarithm: it is drawn half a decade below the least amount."""
        return amount if amount or not log else amounts[1] / 3

    def draw(palette: Palette) -> Figure:
        figure = palette.figure(3.4 if palette.phone else 4.0)
        axes = figure.subplots()
        styles = palette.styles([*lines, *levels, *ranges])
        ends = {}
        for label, line in lines.items():
            at = sorted(line)
            where, bounds = [place(amount) for amount in at], [line[amount] for amount in at]
            colour = styles[label]["color"]
            low, mean, high = (
                [getattr(one, name) for one in bounds] for name in ("low", "mean", "high")
            )
            moved, dots = axes.transData, {"marker": "o", "markersize": 5, "color": colour}
            if label in bars:  # side by side
                aside = 6 / 72 * (bars.index(label) - (len(bars) - 1) / 2)
                moved = axes.transData + ScaledTranslation(aside, 0, figure.dpi_scale_trans)
                for at, *reach in zip(where, low, high, strict=True):
                    axes.add_artist(
                        Line2D([at, at], reach, color=colour, linewidth=2.2, transform=moved)
                    )
                axes.add_artist(Line2D(where, mean, transform=moved, linestyle="", **dots))
                axes.update_datalim([*zip(where, low, strict=True), *zip(where, high, strict=True)])
                axes.autoscale_view()
            else:
                axes.fill_between(where, low, high, color=colour, alpha=0.14, linewidth=0)
                axes.plot(where, mean, marker="o", markersize=5, linewidth=2.2, **styles[label])
            if once := [(at, one.mean) for at, one in zip(where, bounds, strict=True) if one.once]:
                dots |= {"linestyle": "", "markerfacecolor": GROUND, "markeredgewidth": 1.6}
                axes.add_artist(Line2D(*zip(*once, strict=True), transform=moved, zorder=3, **dots))
            ends[label] = mean[-1], where[-1], colour
        right = max(map(place, amounts))
        for label, level in levels.items():
            colour = styles[label]["color"]
            axes.axhspan(level.low, level.high, color=colour, alpha=0.1, linewidth=0)
            axes.axhline(level.mean, color=colour, linestyle=":")
            ends[label] = level.mean, right, colour
        for label, (low, high) in ranges.items():
            axes.axhspan(low, high, color=styles[label]["color"], alpha=0.12, linewidth=0)
            ends[label] = (low + high) / 2, right, styles[label]["color"]
        if saved:
            level, (start, end), words = saved
            style = {"color": palette.text, "linewidth": 1.2, "linestyle": (0, (2, 2))}
            axes.plot([place(start), place(end)], [level] * 2, **style)
            words = textwrap.fill(words, 36 if palette.phone else 80)
            axes.set_title(words, style="italic", fontsize=11)
        if log:
            axes.set_xscale("log")
        names = ticks or {amount: THOUSANDS.format(x=amount) for amount in amounts}
        axes.set_xticks([place(amount) for amount in names], names.values())
        axes.minorticks_off()
        axes.set(xlabel=textwrap.fill(x, 32 if palette.phone else 80), ylabel=y)
        if palette.phone:
            _part_names(axes, 0.55 * palette.width)
        _named_ends(axes, ends)
        return figure

    told = [
        f"{named(label)}: "
        + ", ".join(
            f"{ticks.get(amount, f'{round(amount, 2):,.10g}')} {line[amount].mean:.1f}"
            for amount in sorted(line)
        )
        for label, line in lines.items()
    ]
    told += [f"{named(label)}: {level.mean:.1f}" for label, level in levels.items()]
    told += [saved[2]] if saved else []
    return show(draw, f"{alt} {'; '.join(told)}.".strip(), leading=leading, source=source)


def _saved(
    lines: Mapping[str, Mapping[float, Interval]], quick: str, slow: str, thing: str
) -> tuple[float, tuple[float, float], str] | None:
    """Where a line first reaches another's final value: that value, both amounts, and a sentence;
    None if it never does so earlier.
    """
    if not {quick, slow} <= lines.keys() or not lines[slow]:
        return None
    end = max(lines[slow])
    level = lines[slow][end].mean
    start = min((at for at, value in lines[quick].items() if value.mean >= level), default=end)
    if not 0 < start < end:
        return None
    share = f"{'' if end / start == round(end / start) else 'about '}1/{end / start:.0f}"
    words = f"{named(quick)}: as much as {named(slow)} for {share} of the {thing}"
    return level, (start, end), words


def _as_rows(
    lines: Mapping[str, Mapping[float, Interval]],
    x: str,
    y: str,
    alt: str,
    levels: Mapping[str, Interval],
    ticks: Mapping[float, str],
    leading: bool,
    source: str,
) -> HTML:
    """The points of lines that are too short for curves, one a row: ``SimLM, 2,000``."""
    points = {label: level for label, level in levels.items() if level != Interval(0, 0, 0)}
    zero = len(points) < len(levels)
    for label, line in lines.items():
        for amount in sorted(line):
            name = ticks.get(amount, THOUSANDS.format(x=round(amount, 2)))
            points[f"{named(label)}, {name}"] = line[amount]
    told = ", ".join(f"{label} {point.mean:.1f}" for label, point in points.items())
    return intervals(
        [Series("recorded", "recorded", points, y)],
        [*points],
        alt=f"{alt} {told}.".strip(),
        zero=zero,
        rows=f"by {x}",
        leading=leading,
        source=source,
    )


def _part_names(axes: Axes, width: float) -> None:
    """Keep tick labels of a horizontal axis of this width in inches from overlapping: of numbers
    between the ends, as many as fit are kept, and all ticks stay; words are rotated.
    """
    names = [tick.get_text() for tick in axes.get_xticklabels()]
    scaled = axes.transScale.transform([(at, 1) for at in axes.get_xticks()])
    middles = axes.transLimits.transform(scaled)[:, 0] * width
    halves = [0.05 * (len(name) + 1) for name in names]
    order = [int(place) for place in np.argsort(middles)]

    def clear(one: int, other: int) -> bool:
        return middles[one] + halves[one] <= middles[other] - halves[other]

    if all(clear(one, other) for one, other in pairwise(order)):
        return
    if not all(re.fullmatch(r"[\d,.]+", names[place]) for place in order[1:-1]):
        axes.tick_params(axis="x", rotation=40)
        return
    shown, last = [order[0]], order[-1]
    for place in order[1:-1]:
        if clear(shown[-1], place) and clear(place, last):
            shown.append(place)
    shown.append(last)
    axes.set_xticks(
        axes.get_xticks(), [name if at in shown else "" for at, name in enumerate(names)]
    )


BESIDE = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
"""Where a name may be placed beside its point, the best first."""


def name_points(
    axes: Axes, points: Mapping[str, tuple[float, float]], clear: Sequence[float] = ()
) -> None:
    """Names beside points, each where it overlaps other names and points least.

    Args:
        axes: with final limits.
        points: label -> point, in data coordinates.
        clear: heights of horizontal lines that names avoid.
    """
    figure = axes.get_figure(root=True)
    figure.get_layout_engine().execute(figure)  # how large the axes will be
    places = {label: axes.transData.transform(place) for label, place in points.items()}
    radius, inside = 6 / 72 * figure.dpi, axes.get_window_extent()
    taken = [Bbox.from_extents(*(place - radius), *(place + radius)) for place in places.values()]
    heights = [axes.transData.transform((0, height))[1] for height in clear]
    taken += [Bbox([(inside.x0, at - 2), (inside.x1, at + 2)]) for at in heights]
    for label in sorted(points, key=lambda label: -points[label][0]):
        names = {}
        for across, up in BESIDE:
            name = axes.annotate(
                named(label),
                points[label],
                (8 * across, 8 * up),
                textcoords="offset points",
                ha=("center", "left", "right")[across],
                va=("center", "bottom", "top")[up],
            )
            box = name.get_window_extent()
            area = box.width * box.height
            covered = sum(_shared(box, other) for other in taken)
            askew = 0.2 * area * bool(across and up)  # seems to name the next point
            names[name] = covered + askew + area - _shared(box, inside)
        best = min(names, key=names.__getitem__)
        for name in names.keys() - {best}:
            name.remove()
        taken.append(best.get_window_extent())


def _shared(one: Bbox, other: Bbox) -> float:
    """The area that two boxes share."""
    both = Bbox.intersection(one, other)
    return both.width * both.height if both else 0.0


def _named_ends(axes: Axes, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """The names of curves right of their last points, without overlap.

    Args:
        axes: with final limits.
        ends: name -> height, horizontal position and colour of its end.
    """
    low, high = axes.get_ylim()
    figure = axes.get_figure(root=True)
    figure.get_layout_engine().execute(figure)  # how high the axes will be
    line = (high - low) * 0.2 / (axes.get_window_extent().height / figure.dpi)
    top, several = -np.inf, False  # of the name below
    for label, (height, _, colour) in sorted(ends.items(), key=lambda end: end[1][0]):
        lines = textwrap.wrap(tick(label), 15, break_on_hyphens=False)
        gap = 0.3 * line if several or len(lines) > 1 else 0.0  # otherwise two names look like one
        middle = max(height, top + gap + line * len(lines) / 2)
        top, several = middle + line * len(lines) / 2, len(lines) > 1
        axes.annotate(
            "\n".join(lines),
            (1.02, middle),
            xycoords=axes.get_yaxis_transform(),
            va="center",
            color=colour,
            annotation_clip=False,
        )
    axes.set_ylim(low, high)


def heat_map(
    cells: Mapping[str, Mapping[str, Interval]],
    *,
    unit: str,
    alt: str,
    x: str = "",
    y: str = "",
    centre: float | None = None,
    columns: Sequence[str] = (),
    leading: bool = False,
    source: str = "",
) -> HTML:
    """A two-way table as colours: each cell shows its value and, on a wide page, its interval.

    Args:
        cells: row -> column -> value; a pair that was not run stays empty.
        unit: of the values, written above the map, with a note on intervals if they are shown.
        alt: description before the numbers.
        x, y: names of the columns and of the rows.
        centre: neutral value of a diverging scale, such as 0 for differences: one colour below it,
            another above; cells whose interval contains it are pale.
        columns: their order; by default the order of appearance in the rows.
        leading, source: as for `show`.
    """
    columns = list(columns or dict.fromkeys(column for row in cells.values() for column in row))
    frame = pd.DataFrame(
        {c: [row[c].mean if c in row else np.nan for row in cells.values()] for c in columns},
        index=list(cells),
    )
    reach = np.nanmax(np.abs(frame.to_numpy() - (centre or 0.0)))

    if any(column not in own for own in cells.values() for column in columns):
        source = f"{source} Empty: not run.".strip()

    def sure(cell: Interval) -> bool:
        return centre is None or bool(cell.side(centre))

    def mean(cell: Interval) -> str:
        return f"{cell.mean:.1f}" if centre is None else f"{cell.mean:+z.1f}"

    pale = frame.copy()
    for row, own in cells.items():
        for column, cell in own.items():
            if not sure(cell):
                pale.loc[row, column] = centre + (cell.mean - centre) * 0.3

    def draw(palette: Palette) -> Figure:
        # long names beside the rows would leave no room for the cells
        room = (72 * palette.width - 7 * max(map(len, cells))) / len(columns)
        above = palette.phone and room < 38
        step = 1.75 if above else 1.0
        figure = palette.figure(1.5 + (0.46 if palette.phone else 0.6) * step * len(cells))
        axes = figure.subplots()
        title = unit
        if centre is None:
            colours = shades(palette.series[0])
            low, high = np.nanmin(frame.to_numpy()), np.nanmax(frame.to_numpy())
            limits = {"vmin": low, "vmax": high + 0.6 * (high - low)}
        else:
            colours = shades(palette.series[0], palette.series[7])
            limits = {"vmin": centre - reach, "vmax": centre + reach}
        tops = step * np.arange(len(cells)) + step - 1
        for top, row in zip(tops, pale.to_numpy(), strict=True) if above else [(0, pale)]:
            axes.pcolormesh(
                np.arange(len(columns) + 1),
                top + np.arange(len(np.atleast_2d(row)) + 1),
                np.ma.masked_invalid(np.atleast_2d(row)),
                cmap=colours,
                edgecolors=palette.grid,
                linewidth=1.5,
                **limits,
            )
        for top, (row, own) in zip(tops, cells.items(), strict=True):
            for j, cell in ((columns.index(column), cell) for column, cell in own.items()):
                known = cell.low < cell.high and np.isfinite([cell.low, cell.high]).all()
                interval = minus(f"{cell.low:z.1f} to {cell.high:z.1f}") if known else ""
                small = interval and not palette.phone and len(columns) < 6
                look = {"ha": "center", "color": palette.text}
                weight = "bold" if sure(cell) else "normal"
                at = top + (0.36 if small else 0.5)
                axes.text(j + 0.5, at, minus(mean(cell)), va="center", weight=weight, **look)
                if small:
                    title = f"{unit}, with 95 % intervals"
                    axes.text(j + 0.5, top + 0.74, interval, va="center", size=9.5, **look)
            if above:
                axes.text(0, top - 0.36, tick(row), va="center")
        middles = np.arange(len(columns)) + 0.5
        turned = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(middles, map(tick, columns), **(turned if palette.phone else {}))
        axes.set_yticks([] if above else tops + 0.5, [] if above else map(tick, cells))
        axes.set(xlabel=x, ylabel=y, xlim=(0, len(columns)), ylim=(step * len(cells), 0))
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
        figure.suptitle(title, x=0.01, ha="left", style="italic", size=12)
        return figure

    told = "; ".join(
        f"{named(row)}: "
        + ", ".join(f"{named(column)} {mean(cell)}" for column, cell in own.items())
        for row, own in cells.items()
    )
    return show(draw, f"{alt} {told}.", leading=leading, source=source)


def shades(colour: str, below: str | None = None) -> ListedColormap:
    """A colour from transparent to `STRONGEST`, for any background; with another colour below the
    middle for diverging values.
    """
    rise = np.linspace(0.04, STRONGEST, 128)
    rows = [(*to_rgb(colour), alpha) for alpha in rise]
    if below:
        rows = [(*to_rgb(below), alpha) for alpha in rise[::-1]] + rows
    return ListedColormap(rows)


def distributions(
    values: Mapping[str, Mapping[str, np.ndarray]],
    *,
    x: str,
    alt: str = "",
    leading: bool = False,
    source: str = "",
) -> HTML:
    """One panel per situation with a smoothed distribution per quantity, all on the same axis.

    Args:
        values: situation, which may have two lines -> quantity -> values, one per query.
        x: label of the axis, with its unit.
        alt: description before the means.
        leading, source: as for `show`.
    """
    quantities = list(dict.fromkeys(name for own in values.values() for name in own))

    def draw(palette: Palette) -> Figure:
        across = 1 if palette.phone else min(2, len(values))
        down = -(-len(values) // across)
        figure = palette.figure(0.9 + (1.5 if palette.phone else 1.9) * down)
        panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).flatten()
        colours = dict(zip(quantities, palette.series, strict=False))
        for axes, (situation, own) in zip(panels, values.items(), strict=False):
            for name, numbers in own.items():
                sns.kdeplot(x=numbers, ax=axes, fill=True, alpha=0.25, cut=0, color=colours[name])
                axes.axvline(np.mean(numbers), color=colours[name], linewidth=1.2)
            title = "\n".join(textwrap.fill(line, 34) for line in situation.split("\n"))
            axes.set(title=title, ylabel="", yticks=[], xlabel=x)
            axes.label_outer()
            axes.spines["left"].set_visible(False)
        panels[0].set_ylim(top=1.22 * panels[0].get_ylim()[1])  # room for names above the curves
        for axes, own in zip(panels, values.values(), strict=False):
            ranked = sorted(own, key=lambda name: np.mean(own[name]))
            for number, name in enumerate(ranked):
                mean, last = np.mean(own[name]), number == len(ranked) - 1
                value = f"{mean:.2f}" if abs(mean) < 10 else f"{mean:.0f}"
                axes.annotate(
                    f"{name}: {value}" if len(values) == 1 and not palette.phone else value,
                    (mean, 0.98),
                    (4 if last else -4, 0),
                    xycoords=axes.get_xaxis_transform(),
                    textcoords="offset points",
                    ha="left" if last else "right",
                    va="top",
                    color=colours[name],
                )
        if len(values) > 1 or palette.phone:
            handles = [
                Line2D([], [], color=colours[name], linewidth=6, alpha=0.6) for name in quantities
            ]
            columns = 1 if palette.phone else 3
            figure.legend(handles, quantities, loc="outside lower left", ncols=columns)
        return figure

    told = "; ".join(
        situation.replace("\n", ", ")
        + ": "
        + ", ".join(f"{name} {np.mean(own[name]):.2f} on average" for name in own)
        for situation, own in values.items()
    )
    return show(draw, f"{alt} {told}.".strip(), leading=leading, source=source)


def strips(
    words: Sequence[str], shares: Mapping[str, Sequence[float]], *, unit: str, source: str = ""
) -> HTML:
    """A passage, once for each series; the background of a word is stronger the higher its share.

    Args:
        words: of the passage, in order.
        shares: series -> a share for each word, in percent.
        unit: of the shares, for readers who cannot see the colours.
        source: as for `show`.
    """
    parts = []
    for name, values in shares.items():
        marked = " ".join(
            f'<span style="--share: {share:.0f}%" title="{share:.0f} {html.escape(unit)}">'
            f"{html.escape(word)}</span>"
            for word, share in zip(words, values, strict=True)
        )
        parts.append(f"<p><strong>{html.escape(named(name))}</strong> {marked}</p>")
    return HTML(f'<div class="dr-strips">{"".join(parts)}{_source_line(source)}</div>')


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
    """Scalars of a configuration's first seed whose names end in `ending`, "loss" or "accuracy":
    "step", the parts, then their total.

    Empty if the record has no such stage or scalar.
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
    panels of all figures. A method with more than `LEGIBLE` parts has a wide panel with its own
    axis, where each line is named at its end.

    Values are running means over five logged points. The total is drawn only if it has no parts: as
    their sum it would compress them.

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

    def part(name: str) -> str:
        plain = name.removesuffix(ending).rstrip("_")
        return PARTS.get(plain, plain.replace("_", " "))

    everything = [*dict.fromkeys(PARTS.values())]
    numbers = {
        word: [*everything, word].index(word)
        for names in drawn.values()
        for word in map(part, names)
    }
    words = sorted(numbers, key=numbers.__getitem__)

    small, wide = (
        [label for label in panels if (len(drawn[label]) <= LEGIBLE) == few]
        for few in (True, False)
    )
    keyed = [word for word in words if word in {part(n) for own in small for n in drawn[own]}]

    def plot(axes: Axes, label: str, palette: Palette) -> dict[str, tuple[float, float, str]]:
        """The lines of a method; returns their ends."""
        found, ends = panels[label], {}
        for name in drawn[label]:
            style, values = palette.line(numbers[part(name)]), smoothed(found[name], 5)
            axes.plot(found["step"], values, linewidth=1.6, **style)
            ends[part(name)] = values[-1], found["step"][-1], style["color"]
        axes.tick_params(labelsize=11)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(THOUSANDS)
        return ends

    def draw(palette: Palette) -> Figure:
        columns = (1 if palette.phone else 2) + (max(map(len, words)) <= 18)
        # four in two rows of two
        across = min(max(len(small), 1), 2 if palette.phone or len(small) == 4 else 3)
        down = -(-len(small) // across)
        heights = [1.2 + 1.8 * down + 0.22 * (len(keyed) // columns)] * bool(small)
        # names of parts wrap more often on a phone, and need the height
        heights += [0.4 + (3.3 if palette.phone else 2.8) * len(wide)] * bool(wide)
        figure = palette.figure(sum(heights))
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        if small:
            places = parts[0].subplots(down, across, squeeze=False, sharex=True, sharey=True)
            for axes, label in zip(places.flat, small, strict=False):
                plot(axes, label, palette)
                # a longer line would run into the next panel's title
                title = tick(label).replace("\N{NO-BREAK SPACE}", " ")
                axes.set_title(textwrap.fill(title, 17 if palette.phone else 26), fontsize=11)
            for lowest in places.flat[max(0, len(small) - across) : len(small)]:
                lowest.set_xlabel("training step", fontsize=11)
                lowest.tick_params(labelbottom=True)  # also above a place that stays empty
            for empty in places.flat[len(small) :]:
                empty.set_visible(False)
            if any(drawn[label] != [ending] for label in small):  # otherwise the axis names it
                lines = [Line2D([], [], **palette.line(numbers[word])) for word in keyed]
                parts[0].legend(lines, keyed, loc="outside lower center", ncols=columns)
        if wide:
            for axes, label in zip(
                parts[-1].subplots(len(wide), 1, squeeze=False).flat, wide, strict=True
            ):
                ends = plot(axes, label, palette)
                # left-aligned: names of many parts extend above the axes on the right
                axes.set_title(tick(label), fontsize=11, loc="left")
                axes.set_xlabel("training step", fontsize=11)
                _named_ends(axes, ends)
        for own in parts:
            own.supylabel(unit, fontsize=12)
        return figure

    ends = "; ".join(
        f"{named(label)} ends at {found[[*found][-1]][-1]:.2f}" for label, found in panels.items()
    )
    alt = f"{ending} over training for each method: {ends}."
    source = provenance({label: runs[label][:1] for label in panels})
    return show(draw, alt, source=source)
