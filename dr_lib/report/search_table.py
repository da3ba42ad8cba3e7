"""What several systems found for a query, side by side: as text for a terminal, as a table for a notebook.

Text of a collection is data: control characters never reach the terminal, and in HTML every character is escaped. Page
of the book: practice/own-corpus.
"""

import html
import unicodedata
from collections.abc import Sequence

from IPython.display import HTML

from dr_lib.lab.searcher import Answer, Hit
from dr_lib.report.tables import Cell, Markup, soft, table

NARROWEST = 30
"""Columns of a terminal that one system needs; with fewer, systems stand one below the other."""
GAP = "  "
SNIPPET = 240


def search_text(answer: Answer, width: int = 100) -> str:
    """What was found, in columns that fit the terminal.

    Args:
        answer: of `Searcher.ask`.
        width: columns of the terminal.

    Returns:
        The query, a line on its judgements if it has any, and two lines a passage. The first has rank, ``*`` where it
        is judged relevant, score and id, the second title and text.

    Example:
        >>> hit = Hit(1, "p7", "Tides", "The moon pulls.", 3.25, grade=1)
        >>> print(search_text(Answer("why tides", 1, {"BM25": [hit]}), width=40))
        why tides
        1 passage is judged relevant (*)
        <BLANKLINE>
        BM25
        ----------------------------------------
         1 *    3.250  p7
              Tides: The moon pulls.
    """
    systems = list(answer.hits)
    room = (width + len(GAP)) // max(1, len(systems)) - len(GAP)
    groups = [systems] if room >= NARROWEST else [[name] for name in systems]
    room = room if room >= NARROWEST else width
    lines = [clean(answer.query), *_judged(answer)]
    for group in groups:
        columns = [_column(name, answer.hits[name], room) for name in group]
        height = max(map(len, columns))
        filled = [column + [""] * (height - len(column)) for column in columns]
        lines += ["", *(GAP.join(fit(cell, room) for cell in row).rstrip() for row in zip(*filled, strict=True))]
    return "\n".join(lines)


def _judged(answer: Answer) -> list[str]:
    if answer.relevant is None:
        return []
    one = answer.relevant == 1
    return [f"{answer.relevant} passage{'' if one else 's'} {'is' if one else 'are'} judged relevant (*)"]


def _column(name: str, hits: Sequence[Hit], room: int) -> list[str]:
    lines = [clean(name), "-" * room]
    for hit in hits:
        mark = "*" if hit.grade else " "
        lines += [f"{hit.rank:2d} {mark} {hit.score:8.3f}  {clean(hit.id)}", f"      {_told(hit)}"]
    return lines if hits else [*lines, "nothing found"]


def _told(hit: Hit) -> str:
    return clean(f"{hit.title}: {hit.text}" if hit.title else hit.text)[:SNIPPET]


def clean(text: str) -> str:
    """Text on one line, without characters that a terminal would act on.

    Example:
        >>> clean("a\\x1b[31mb\\n c")
        'a[31mb c'
    """
    return " ".join(
        "".join(c if not unicodedata.category(c).startswith("C") or c.isspace() else "" for c in text).split()
    )


def fit(text: str, width: int) -> str:
    """Text cut or filled up to so many columns; letters of Chinese, Japanese and Korean take two.

    Example:
        >>> fit("retrieval", 6), fit("検索", 6)
        ('retri…', '検索  ')
    """
    used, kept = 0, []
    widths = [_columns(letter) for letter in text]
    if sum(widths) > width:
        for letter, size in zip(text, widths, strict=True):
            if used + size > width - 1:
                break
            kept.append(letter)
            used += size
        return "".join(kept) + "…" + " " * (width - used - 1)
    return text + " " * (width - sum(widths))


def _columns(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def search_table(answer: Answer) -> HTML:
    """The same for a notebook: one column a system, relevant passages marked, scores under the titles."""
    systems, depth = list(answer.hits), max(map(len, answer.hits.values()), default=0)
    rows: list[list[Cell]] = []
    for place in range(depth):
        found = (answer.hits[name][place : place + 1] for name in systems)
        rows.append([place + 1, *(Markup(_shown(hits[0])) if hits else None for hits in found)])
    told = " ".join([f"Found for: {answer.query}", *(f"({line})" for line in _judged(answer))])
    return table(["rank", *systems], rows, caption=told)


def _shown(hit: Hit) -> str:
    title = f"<strong>{soft(hit.title)}</strong><br>" if hit.title.strip() else ""
    mark = ' <span class="verdict verdict-held">relevant</span>' if hit.grade else ""
    text = hit.text if len(hit.text) <= SNIPPET else hit.text[:SNIPPET].rsplit(" ", 1)[0] + " …"
    return f"{title}{html.escape(text)}<br><small>{hit.score:.3f}, {soft(hit.id)}</small>{mark}"
