"""The drawings of the pages about book/plan.yaml: gains by overlap, by coverage and by collection,
and what a difference's error is made of.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from IPython.display import HTML
from matplotlib.figure import Figure

from dr_book import figures
from dr_book.plan import FIFTHS, Parts, Verdict
from dr_book.statistics import Estimate, Interval
from dr_book.tables import data_named, interval_cell, named, named_in, spell, table


def contrasts(verdicts: Sequence[Verdict], labels: Sequence[str], caption: str) -> HTML:
    """The plan's contrasts, what was found, and what is not there yet.

    Args:
        verdicts: as `plan.verdicts` gives them.
        labels: methods, which are shown by their names.
        caption: of the table.
    """
    columns = [
        "what was to be decided",
        "compared",
        "found",
        "verdict",
        "seeds it waits for",
        "looks",
    ]
    rows = []
    for verdict in verdicts:
        value = verdict.shown
        if isinstance(value, Estimate):
            found = spell(value.interval(), sign=True)
        else:
            found = None if value is None else f"{value:.2f}"
        told = verdict.contrast
        compared = named_in(told["compare"], labels)
        lacks = named_in(verdict.lacks, [*labels, *told.get("rows", ())])
        rows.append([told["says"].strip(), compared, found, verdict.word, lacks, verdict.looks])
    return table(columns, rows, caption=caption)


def by_fifth(gains: Mapping[str, Sequence[Estimate]]) -> HTML:
    """Gain over no pre-training in each fifth of overlap, a line a method, with 95 % intervals."""

    lines = {
        label: {fifth: estimate.interval() for fifth, estimate in enumerate(estimates)}
        for label, estimates in gains.items()
    }
    return figures.growth(
        lines,
        x="fifth of the questions, by shared words",
        y="points of MRR@10 gained",
        alt="Gain over no pre-training by fifth of word overlap, the lowest first.",
        levels={"none": Interval(0.0, 0.0, 0.0)},
        ticks=dict(enumerate(FIFTHS)),
    )


def ends_of_fifths(gains: Mapping[str, Sequence[Estimate]], grown: Mapping[str, Estimate]) -> HTML:
    """A row a method: its gain in the lowest and in the highest fifth, and the second minus the
    first.

    Args:
        gains: method -> its gain in each fifth, the lowest first.
        grown: method -> the difference of the two ends.
    """
    rows = []
    for label, fifths in gains.items():
        ends = (fifths[0], fifths[-1], grown[label])
        cells = [interval_cell(end.interval(), sign=True) for end in ends]
        rows.append([named(label), *cells])
    columns = ["method", "lowest fifth", "highest fifth", "highest minus lowest"]
    caption = "Points of MRR@10 over no pre-training, with 95 % intervals over articles."
    return table(columns, rows, caption=caption)


def coverage_against_gain(shares: Mapping[str, float], gains: Mapping[str, float]) -> HTML:
    """A point a method: share of a passage's pieces that its vector foretells, and gain."""
    labels = [label for label in gains if label in shares]

    def draw(palette: figures.Palette) -> Figure:
        figure = palette.figure(4.4)
        axes = figure.subplots()
        for label in labels:
            x, y = 100 * shares[label], gains[label]
            axes.plot(x, y, "o", color=palette.of(label), markersize=9)
            crowded = any(
                0 < 100 * shares[other] - x < 5 and abs(gains[other] - y) < 0.4 for other in labels
            )
            right = x < 33 and not crowded
            axes.annotate(
                named(label),
                (x, y),
                (9 if right else -9, 4),
                textcoords="offset points",
                ha="left" if right else "right",
            )
        axes.axhline(0, color=palette.text, linewidth=0.8)
        axes.set(
            xlabel="% of a passage's pieces foretold before fine-tuning",
            ylabel="points of MRR@10 gained",
        )
        axes.margins(x=0.1, y=0.1)
        axes.set_xlim(left=100 * min(shares[label] for label in labels) - 13)
        return figure

    told = "; ".join(
        f"{named(label)} {100 * shares[label]:.0f} %, {gains[label]:+.1f} points"
        for label in labels
    )
    return figures.show(draw, f"Coverage of a passage's pieces against the gain. {told}.")


def elsewhere(gains: Mapping[str, Mapping[str, Estimate]], unit: str) -> HTML:
    """A heat map of gains: collections downwards, methods across; gains that may be chance are
    pale.

    Args:
        gains: collection -> method -> its difference from no pre-training.
        unit: of the gains.
    """
    cells = {
        data_named(name): {label: estimate.interval() for label, estimate in row.items()}
        for name, row in gains.items()
    }
    about = f"{unit} over no pre-training"
    return figures.heat_map(
        cells, unit=about, alt=f"{about}, by collection and method.", centre=0.0
    )


def _seeds(number: int) -> str:
    return f"{number} seed{'s' * (number > 1)}"


def make_up(parts: Parts, seeds: Sequence[int]) -> HTML:
    """Stacked bars: what the variance of a difference is made of, by number of seeds."""
    shares = {number: parts.shares(number) for number in seeds}

    def draw(palette: figures.Palette) -> Figure:
        figure = palette.figure(1.7 + 0.45 * len(seeds))
        axes = figure.subplots()
        places = np.arange(len(seeds))[::-1]
        left = np.zeros(len(seeds))
        for number, source in enumerate(next(iter(shares.values()))):
            widths = np.array([own[source] for own in shares.values()])
            colour = palette.series[number]
            axes.barh(places, widths, left=left, color=colour, height=0.66, label=source)
            left += widths
        axes.set_yticks(places, [_seeds(number) for number in seeds])
        axes.set_xlabel("variance of a difference, points²")
        axes.grid(visible=False, axis="y")
        figure.legend(loc="outside lower left", ncols=2)
        return figure

    told = "; ".join(
        f"{_seeds(number)}: "
        + ", ".join(
            f"{source} {100 * one / sum(own.values()):.0f} %" for source, one in own.items()
        )
        for number, own in shares.items()
    )
    return figures.show(
        draw, f"What the variance of a difference is made of. {told}.", leading=True
    )


def detectable(parts: Parts, seeds: Sequence[int], articles: Sequence[int]) -> HTML:
    """Smallest detectable difference over the number of articles, a line a number of seeds."""
    curves = {
        number: [parts.detectable(number, several) for several in articles] for number in seeds
    }

    def draw(palette: figures.Palette) -> Figure:
        figure = palette.figure(4.4)
        axes = figure.subplots()
        for place, (number, values) in enumerate(curves.items()):
            colour = palette.series[place]
            axes.plot(articles, values, "o-", color=colour, markersize=4, linewidth=2)
            axes.annotate(
                _seeds(number), (articles[-1], values[-1]), (8, -4), textcoords="offset points"
            )
        axes.axhspan(0.1, 0.5, color=palette.paper, alpha=0.18, linewidth=0)
        axes.annotate("gaps of 0.1 to 0.5", (articles[0], 0.28), (2, 0), textcoords="offset points")
        axes.set(
            xscale="log",
            xlabel="articles of equal size that the questions stand on",
            ylabel="smallest detectable difference, points",
            ylim=(0, None),
        )
        axes.set_xticks(articles, [f"{several:,}" for several in articles])
        axes.minorticks_off()
        axes.set_xlim(articles[0] * 0.9, articles[-1] * 2.1)
        return figure

    told = "; ".join(
        f"{_seeds(number)}: "
        + ", ".join(
            f"{value:.2f} at {several}" for several, value in zip(articles, own, strict=True)
        )
        for number, own in curves.items()
    )
    return figures.show(draw, f"Smallest detectable difference by articles. {told}.")
