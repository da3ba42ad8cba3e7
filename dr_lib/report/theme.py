"""One look for every figure: drawn twice, for light and for dark pages, with the same colours by role.

The page's style sheet shows the one that fits (classes ``only-light`` and ``only-dark``); in a plain notebook the light
one is seen. Colours stay apart for readers with colour-vision deficiency and print well.
"""

import base64
import html
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
import seaborn as sns
from IPython.display import HTML
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Palette:
    """Colours by role, for one background."""

    text: str
    grid: str
    paper: str
    recorded: str
    live: str
    series: tuple[str, ...]


LIGHT = Palette(
    text="#24292f", grid="#d8dee4", paper="#6e7781", recorded="#0a5fb4", live="#b3541e",
    series=("#0a5fb4", "#b3541e", "#1a7f4b", "#8250a8", "#9a6700", "#a3215f", "#4d5a66", "#0b7d86"),
)  # fmt: skip
DARK = Palette(
    text="#e6edf3", grid="#3d444d", paper="#9aa4af", recorded="#6cb6ff", live="#f0965a",
    series=("#6cb6ff", "#f0965a", "#5ac48c", "#c297eb", "#e3b341", "#f07fb2", "#adb9c4", "#56c8d0"),
)  # fmt: skip


@contextmanager
def _style(palette: Palette) -> Iterator[None]:
    settings = {
        "text.color": palette.text,
        "axes.labelcolor": palette.text,
        "axes.edgecolor": palette.grid,
        "axes.titlecolor": palette.text,
        "xtick.color": palette.text,
        "ytick.color": palette.text,
        "grid.color": palette.grid,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
        "legend.frameon": False,
        "svg.fonttype": "path",
        "svg.hashsalt": "dr_lib",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 10,
    }
    with sns.axes_style("whitegrid"), mpl.rc_context(settings):
        yield


def _svg(draw: Callable[[Palette], Figure], palette: Palette) -> str:
    with _style(palette):
        figure = draw(palette)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    return base64.b64encode(buffer.getvalue()).decode()


def show(draw: Callable[[Palette], Figure], alt: str) -> HTML:
    """Draw a figure for both backgrounds and return it as one piece of HTML.

    Args:
        draw: takes a `Palette` and returns a `matplotlib.figure.Figure` made without pyplot.
        alt: what the figure shows, for readers who do not see it.

    Returns:
        HTML with two embedded SVG images; nothing is loaded from elsewhere.
    """
    text = html.escape(alt, quote=True)
    images = "".join(
        f'<img class="{name}"{hidden} alt="{text}" src="data:image/svg+xml;base64,{_svg(draw, palette)}">'
        for name, hidden, palette in (("only-light", "", LIGHT), ("only-dark", ' style="display:none"', DARK))
    )
    return HTML(f'<div class="dr-figure">{images}</div>')
