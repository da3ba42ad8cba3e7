"""Tables of a page: plain HTML, every cell escaped, numbers aligned, wide ones scrolling inside their own frame."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from IPython.display import HTML


@dataclass(frozen=True)
class Markup:
    """A cell that is already safe HTML (a link, a badge, a value with its interval), set as a number or as text."""

    html: str
    number: bool = False


LONG_WORD = re.compile(r"\S{25,}")
JOINT = re.compile(r"(?<=[._/])(?=[^._/])")
Cell = str | float | int | Markup | None


def soft(text: str) -> str:
    """Text as safe HTML in which a long dotted name may break behind a dot, an underscore or a slash.

    Example:
        >>> soft("a < b"), soft("transformers.models.bert.modeling_bert")
        ('a &lt; b', 'transformers.<wbr>models.<wbr>bert.<wbr>modeling_<wbr>bert')
    """
    return html.escape(LONG_WORD.sub(lambda word: JOINT.sub("\0", word[0]), text)).replace("\0", "<wbr>")


def link(text: str, target: str) -> Markup:
    """A link as a table cell; both parts are escaped."""
    return Markup(f'<a href="{html.escape(target, quote=True)}">{html.escape(text)}</a>')


def badge(state: str) -> Markup:
    """A verdict's state as a coloured badge that also reads in black and white."""
    return Markup(f'<span class="verdict verdict-{html.escape(state.replace(" ", "-"))}">{html.escape(state)}</span>')


def _cell(value: Cell, digits: int) -> str:
    if value is None:
        return '<td class="empty">&ndash;</td>'
    if isinstance(value, Markup):
        return f'<td class="number">{value.html}</td>' if value.number else f"<td>{value.html}</td>"
    if isinstance(value, bool | str):
        return f"<td>{soft(str(value))}</td>"
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    return f'<td class="number">{value:.{digits}f}</td>'


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, caption: str, digits: int = 1) -> HTML:
    """Make a table.

    Args:
        columns: one heading a column.
        rows: cells; strings are escaped, floats rounded to `digits`, None becomes a dash.
        caption: what the table shows and in which unit; it stands above the table.
        digits: decimals of floats.

    Raises:
        ValueError: a row has another number of cells than there are columns.
    """
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"a row of {len(row)} cells in a table of {len(columns)} columns: {row!r}")
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in columns)
    body = "".join("<tr>" + "".join(_cell(cell, digits) for cell in row) + "</tr>" for row in rows)
    return HTML(
        f'<div class="dr-table"><table class="table"><caption>{html.escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
