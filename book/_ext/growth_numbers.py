"""Sphinx extension: numbers and tables of the cost of steps as a collection grows, from the file
written by `benchmarks/growth.py`.

{grown}`steps; encode; seconds a million`      one number, with its unit if that is bytes
```{growth-table} steps                        every step, or "search": exact and approximate
```
"""

from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

from dr_book.tables import TIMES, data_named
from dr_lib.errors import InputError
from dr_lib.files import read_json
from dr_lib.places import project_root

GROWTH = project_root() / "book" / "practice" / "measured" / "growth.json"
STEPS = ("tokenise", "count n-grams", "BM25: index", "BM25: search", "encode", "exact search")
"""In order of execution; the file has them in alphabetical order."""
WHOLE = "\N{NON-BREAKING HYPHEN}"
UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def looked_up(cell: str, found: Any) -> Any:
    """The value at a path of keys; `InputError` if there is none."""
    try:
        for key in (part.strip() for part in cell.split(";")):
            found = found[int(key)] if isinstance(found, list) else found[key]
    except (KeyError, IndexError, ValueError, TypeError):
        raise InputError(
            f"no number {cell!r}",
            where=GROWTH.name,
            fix="Name keys of the file, with semicolons between.",
        ) from None
    return found


def shown(value: float | str, what: str = "") -> str:
    """A number with three significant digits; bytes with their unit.

    Example:
        >>> (
        ...     shown(1234567),
        ...     shown(0.01234),
        ...     shown(12.0),
        ...     shown(2.5e9, "bytes a million"),
        ...     shown(40.5, "bytes a vector"),
        ... )
        ('1,230,000', '0.0123', '12', '2.5 GB', '40.5 bytes')
    """
    if isinstance(value, str):
        return data_named(value)  # the processor, or a collection
    if what.startswith("bytes"):
        unit, size = next((one for one in UNITS if value >= one[1]), ("bytes", 1.0))
        return f"{shown(value / size)} {unit}"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 1000 or rounded == int(rounded) else f"{rounded:.3g}"


def steps_table(found: dict[str, Any]) -> list[list[str]]:
    """Seconds and bytes a million passages of each step."""
    head = ["step", "seconds per million", "size per million", "time for twice as many"]
    rows = []
    for name in STEPS:
        one = found["steps"][name]
        cells = [
            shown(one[key], key) if key in one else ""
            for key in ("seconds a million", "bytes a million")
        ]
        words = name.replace("-", WHOLE).replace(" ", "\N{NO-BREAK SPACE}")
        rows.append([words, *cells, f"{shown(one['twice the passages'])}{TIMES.rstrip()}"])
    return [head, *rows]


def search_table(found: dict[str, Any]) -> list[list[str]]:
    """One row per search method: milliseconds per query, and recall and build time of an index."""
    rows = [["vectors", "search", "ms per query", "recall", "seconds to build"]]
    for size in found["search"]:
        number = f"{size['vectors']:,}"
        rows.append([number, "exact", shown(size["exact"]["milliseconds a query"]), "1", ""])
        for name in (name for name in size if name not in ("vectors", "exact")):
            chosen = size[name]["chosen"]
            cells = [
                shown(chosen["milliseconds a query"]),
                f"{chosen['recall']:.2f}",
                shown(size[name]["build seconds"]),
            ]
            rows.append(["", name.replace("-", WHOLE), *cells])
    return rows


TABLES = {"steps": steps_table, "search": search_table}


class Grown(SphinxRole):
    """The role."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Insert the number; the page is read again if the file has changed."""
        self.env.note_dependency(str(GROWTH))
        value = looked_up(self.text, read_json(GROWTH))
        return [
            nodes.inline(
                "", shown(value, self.text.rsplit(";", 1)[-1].strip()), classes=["measured"]
            )
        ], []


class GrowthTable(SphinxDirective):
    """The directive."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Insert the table."""
        self.env.note_dependency(str(GROWTH))
        head, *rows = TABLES[directives.choice(self.arguments[0], tuple(TABLES))](read_json(GROWTH))
        names = sum(not any(character.isdigit() for character in cell) for cell in rows[0])
        lines = [head, [*["---"] * names, *["--:"] * (len(head) - names)], *rows]
        return self.parse_text_to_nodes("\n".join(f"| {' | '.join(line)} |" for line in lines))


def setup(app: Sphinx) -> dict[str, object]:
    """Register both."""
    app.add_role("grown", Grown())
    app.add_directive("growth-table", GrowthTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
