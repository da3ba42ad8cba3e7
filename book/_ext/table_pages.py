"""Sphinx extension: the page of a table begins with its result. Notebooks are rearranged while they
are read, not on disk.

Below the title come the question, the offer to predict first, the leading figure (class
`dr-leading`) or the advice of a comparison (class `dr-advice`), what it shows and why, and the
claims of the paper with their verdicts. Code is folded, except in lessons, and one switch shows all
of it (book/_static/pages.js); consecutive folded cells become one, as do the parameters and
papermill's replacements. Loss curves are folded, and empty sections left out. Links lead to the
executed notebook and to BibTeX, of the page and its paper; if `_config.yml` names a repository on
GitHub, also to the source there, to Colab and to Binder.
"""

import ast
import base64
import html
import json
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from generated_pages import bibtex, counted_pairs, entry_badge, page_entry, short_name
from IPython.display import HTML
from predictions import QUESTIONS, judged, load_questions, prediction_html
from sphinx.application import Sphinx

from dr_book.comparison import NOT_YET
from dr_book.papers import load_papers
from dr_book.tables import data_named, folded, per_cent, soft, spell_seeds, typographic
from dr_lib import places
from dr_lib.files import read_yaml

OPEN_CODE = ("notebooks/lessons/", "notebooks/teaching/bugs", "notebooks/evaluation/traps")
"""Pages that teach by their code."""
LESSONS = OPEN_CODE[0]
LEADING = re.compile(r'<div class="dr-figure dr-leading">.*?</div>', re.DOTALL)
ADVICE = re.compile(r'<div class="dr-advice">.*?</div>', re.DOTALL)
LOSSES = "Is the loss normal?"
"""Heading of sections whose curves are folded."""
AT_WORK, BEFORE = "by hand", (LOSSES, "What to try next", "What this page cannot show")
"""Words in the heading of the method at work, and the headings that it precedes on a page without
verdicts.
"""
ALL_MISSING = re.compile(
    r"<details[^>]*><summary>Not measured yet: (?P<n>\d+) of (?P=n) rows\..*?</details>", re.DOTALL
)
"""The output of `comparison.notice` if no row was measured."""
TO_NOTEBOOK = re.compile(r'(href=\\"\.\./\w+/\w+)\.ipynb(?=\\")')
"""A link from an output to another notebook, in JSON."""
SHOWN = 3
"""Number of claims in view; the others are folded."""

Cell = dict[str, Any]
Entry = Mapping[str, Any]


def arrange(
    notebook: dict[str, Any],
    page: str,
    entries: Sequence[Entry],
    links: str = "",
    prediction: str = "",
) -> dict[str, Any]:
    """A notebook in the order of its page.

    Args:
        notebook: in nbformat; modified in place.
        page: its name in the book, "notebooks/simlm/table07_objectives".
        entries: claims that the page is about, with their verdicts, from `ledger.ledger`.
        links: HTML of the links beside the page.
        prediction: HTML of the offer to predict first, `predictions.prediction_html`.
    """
    lesson = page.startswith(LESSONS)
    cells = _one_of_parameters(notebook["cells"], shown=not lesson)
    if not page.startswith(OPEN_CODE):
        _fold_code(cells)
        _fold_losses(cells)
        figure = _taken(cells, LEADING)
        cells = _missing_last(_method_behind_result(_without_empty_sections(cells)))
        cells = _one_fold(cells)
        head, *rest = _text(cells[0]).split("\n\n", 3)
        question, seen, *more = [*rest, "", ""][: max(2, len(rest))]
        if seen.endswith(":"):  # what it leads to stays below it
            seen, more = "", [seen, *more]
        claims = claims_html(entries, sourced="dr-source" in figure)
        advice = _taken(cells, ADVICE)
        parts = [head, question, prediction, advice, figure, seen, claims, links, *more]
        cells[0]["source"] = "\n\n".join(filter(None, parts))
    else:
        figure = "" if lesson else _taken(cells, LEADING)
        parts = [_text(cells[0]), figure, links]
        cells[0]["source"] = "\n\n".join(filter(None, parts))
    notebook["cells"] = cells
    return notebook


def _text(cell: Cell) -> str:
    return "".join(cell["source"])


def _tags(cell: Cell) -> list[str]:
    return cell["metadata"].setdefault("tags", [])


def _one_of_parameters(cells: Sequence[Cell], *, shown: bool) -> list[Cell]:
    """The notebook's parameters and papermill's as one folded cell; in a lesson, none."""
    merged: list[Cell] = []
    for cell in cells:
        if "injected-parameters" in cell["metadata"].get("tags", []) and merged:
            given = _text(cell).removeprefix("# Parameters\n")
            if not shown:
                continue
            own = _text(merged[-1])
            merged[-1]["source"] = f"{own}\n\n{_executed_with(own, given)}"
        else:
            merged.append(cell)
    for cell in merged:
        if "parameters" in cell["metadata"].get("tags", []):
            # a lesson is the same at every scale, and begins with its content
            _tags(cell).append("hide-input" if shown else "remove-cell")
            prompt = "Parameters, and how this copy was run"
            cell["metadata"]["mystnb"] = {"code_prompt_show": prompt}
    return merged


def _executed_with(own: str, given: str) -> str:
    """Parameters from papermill that differ from the notebook's own; a scale's recipe is given by
    the name of its file.
    """
    defaults, values = _assigned(own), _assigned(given)
    differ = {
        name: f"{name} = {ast.get_source_segment(given, value)}"
        for name, value in values.items()
        if name not in defaults or ast.dump(value) != ast.dump(defaults[name])
    }
    if "scale" in values and "recipe" in differ:
        file = f"notebooks/scales/{ast.literal_eval(values['scale'])}.yaml"
        path = places.project_root() / file
        if path.exists() and read_yaml(path).get("recipe") == ast.literal_eval(values["recipe"]):
            differ["recipe"] = f"# and the recipe of {file}"
    if not differ:
        return "# This copy was executed with these."
    return "\n".join(["# This copy was executed with:", *differ.values()])


def _assigned(source: str) -> dict[str, ast.expr]:
    """Names of a parameters cell and the expressions they stand for."""
    return {
        node.targets[0].id: node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def _fold_code(cells: Sequence[Cell]) -> None:
    """Fold every code cell."""
    hidden = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
    for cell in cells:
        if cell["cell_type"] == "code" and not hidden & {*_tags(cell)}:
            _tags(cell).append("hide-input")


def _fold_losses(cells: Sequence[Cell]) -> None:
    """Fold the figures below a heading `LOSSES` into one."""
    first: Cell | None = None
    for cell in cells:
        if cell["cell_type"] == "markdown" and "\n#" in f"\n{_text(cell)}":
            first = {} if f"# {LOSSES}" in _text(cell) else None
        for output in cell.get("outputs", []) if first is not None else []:
            if "dr-figure" not in (shown := _html(output)):
                continue
            if first:
                output["data"]["text/html"] = ""
                first["figures"] += shown
            else:
                first = {"output": output, "figures": shown}
            curves = folded("The curves", HTML(first["figures"]))
            first["output"]["data"]["text/html"] = curves.data


def _method_behind_result(cells: Sequence[Cell]) -> list[Cell]:
    """Move the method at work, which a notebook runs first, after the tables and verdicts."""
    cells = [part for cell in cells for part in _at_heading(cell)]
    headings = {place: found for place, cell in enumerate(cells) if (found := _heading(cell))}
    start = next((place for place, found in headings.items() if AT_WORK in found), 0)
    if not start:
        return [*cells]
    below = [*takewhile(lambda cell: not _heading(cell), cells[start + 1 :])]
    before = len([*takewhile(_silent, below)])  # what the step defines before it shows something
    section = [cells[start], *below[:before], *takewhile(lambda c: not _silent(c), below[before:])]
    rest = [cell for cell in cells if not any(cell is moved for moved in section)]
    found = [_heading(cell) for cell in rest]
    verdicts = [place for place, heading in enumerate(found) if heading.startswith("Verdict")]
    later = found[verdicts[-1] + 1 :] if verdicts else found
    ends = [
        place
        for place, heading in enumerate(later)
        if heading
        if verdicts or heading.startswith(BEFORE)
    ]
    to = len(found) - len(later) + ends[0] if ends else len(rest)
    return [*rest[:to], *section, *rest[to:]]


def _at_heading(cell: Cell) -> list[Cell]:
    """Split a text cell whose beginning belongs to the section before: that, and each section."""
    before, *sections = re.split(r"\n(?=## )", _text(cell))
    if cell["cell_type"] != "markdown" or before.startswith("#"):
        return [cell]
    rest = [
        {**cell, "source": section} | ({"id": f"{cell['id']}-{number}"} if "id" in cell else {})
        for number, section in enumerate(sections, 2)
    ]
    return [{**cell, "source": before}, *rest]


def _heading(cell: Cell) -> str:
    """The first heading of a text cell, or ""."""
    found = re.search(r"^##+ (.*)", _text(cell), re.MULTILINE)
    return found[1] if found and cell["cell_type"] == "markdown" else ""


def _one_fold(cells: Sequence[Cell]) -> list[Cell]:
    """Join consecutive folded cells of which all but the last have no output."""
    merged: list[Cell] = []
    for cell in cells:
        before = merged[-1] if merged else None
        if before and _folded(before) and _folded(cell) and _silent(before):
            merged[-1] = {**cell, "source": f"{_text(before)}\n\n\n{_text(cell)}"}
        else:
            merged.append(cell)
    return merged


def _folded(cell: Cell) -> bool:
    """Whether a cell is code, folded with the usual label."""
    return (
        cell["cell_type"] == "code"
        and "hide-input" in _tags(cell)
        and "mystnb" not in cell["metadata"]
    )


def _silent(cell: Cell) -> bool:
    """Whether a cell is code without visible output."""
    errors = "remove-stderr" in _tags(cell)
    shown = [one for one in cell.get("outputs", []) if not (errors and one.get("name") == "stderr")]
    return "remove-output" in _tags(cell) or not shown


def _html(output: Mapping[str, Any]) -> str:
    return "".join(output.get("data", {}).get("text/html", ""))


def _taken(cells: Sequence[Cell], kind: re.Pattern) -> str:
    """The first matching part of the outputs, on one line; it is removed from them."""
    for cell in cells:
        for output in cell.get("outputs", []):
            shown = _html(output)
            if part := kind.search(shown):
                output["data"]["text/html"] = shown.replace(part[0], "", 1)
                return part[0].replace("\n", "<br>")
    return ""


def _without_empty_sections(cells: Sequence[Cell]) -> list[Cell]:
    """The cells without headings and text of sections in which nothing was measured."""
    kept: list[Cell] = []
    for place, cell in enumerate(cells):
        below = [*takewhile(lambda one: one["cell_type"] == "code", cells[place + 1 :])]
        shown = "".join(_html(output) for one in below for output in one.get("outputs", []))
        rest = ALL_MISSING.sub("", shown).replace(NOT_YET.data, "")
        # what would be measured, and that this build ran it
        says = "dr-folded" in rest and "\n\n" in _text(cell)
        empty = rest != shown and not says and not re.search("<(table|svg|img)", rest)
        if cell["cell_type"] == "code" or not empty:
            kept.append(cell)
        else:
            _without(below, re.compile(re.escape(NOT_YET.data)))
    return kept


def _missing_last(cells: Sequence[Cell]) -> list[Cell]:
    """Move notices of tables whose rows are all missing, folded, to the end of the page."""
    missing = "".join(_without(cells, ALL_MISSING)).replace("\n", " ")
    last = {"cell_type": "markdown", "id": "missing", "metadata": {}, "source": missing}
    return [*cells, last] if missing else [*cells]


def _without(cells: Sequence[Cell], kind: re.Pattern) -> list[str]:
    """Remove all matching parts from the outputs of cells, and outputs that become empty."""
    taken: list[str] = []
    for cell in cells:
        for output in cell.get("outputs", []):
            if found := [one[0] for one in kind.finditer(_html(output))]:
                output["data"]["text/html"] = kind.sub("", _html(output))
            taken += found
        if "outputs" in cell:
            cell["outputs"] = [one for one in cell["outputs"] if "data" not in one or _html(one)]
    return taken


def claims_html(entries: Sequence[Entry], *, sourced: bool = False) -> str:
    """The claims, each with its badge; "" if a page has none. A line below gives their evidence,
    unless a figure's line does (`sourced`).
    """
    if not entries:
        return ""
    several = len({entry["source"] for entry in entries}) > 1
    papers = len({entry["paper"] for entry in entries}) > 1
    items = [_claim(entry, several, papers) for entry in entries]
    decided = judged(entries)
    data = {name: None for entry in decided for name in _listed(entry["collection"])}
    runs = [number for entry in decided for pair in entry["pairs"] for number in pair["seeds"]]
    line = (
        f"Judged on {', '.join(map(data_named, data))}, {decided[0]['scale']} scale,"
        f" {spell_seeds(runs)}"
        if runs
        else ""
    )
    parts = [f"<ul>{''.join(items[:SHOWN])}</ul>"]
    if len(items) > SHOWN:
        more = f"<summary>{len(items) - SHOWN} more</summary><ul>{''.join(items[SHOWN:])}</ul>"
        parts.append(f'<details class="dr-folded">{more}</details>')
    parts.append(f'<p class="dr-note">{html.escape(line)}.</p>' if line and not sourced else "")
    return f'<div class="dr-claims">{"".join(parts)}</div>'


def _listed(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _claim(entry: Entry, source: bool, paper: bool) -> str:
    """A claim with its badge and the counts of its pairs; on request with its source and the
    paper's name.
    """
    badge = entry_badge(entry).html
    where = f"{short_name(entry['paper'])}, {entry['source']}" if paper else entry["source"]
    about = f" <small>({html.escape(where)})</small>" if source or paper else ""
    return (
        f"<li>{html.escape(typographic(per_cent(entry['statement'])))}{about}"
        f" <span>{badge} {html.escape(counted_pairs(entry))}</span></li>"
    )


def notes_html(page: str) -> str:
    """Notes on the transcription of the paper's tables on a page: inferred cells in view, the rest
    folded.
    """
    parts = []
    for key, paper in load_papers().items():
        for table in (table for table in paper.tables if table.page == page):
            name = (
                f"{short_name(key)}, {re.sub(r'(?<=[a-z])(?=[0-9])', ' ', table.id).capitalize()}"
            )
            if table.inferred:
                columns = ", ".join(table.inferred)
                told = (
                    f"{name}: the text that we have of the paper lacks the column"
                    f" \N{LEFT DOUBLE QUOTATION MARK}{columns}\N{RIGHT DOUBLE QUOTATION MARK}; its"
                    " values are inferred from the paper's text."
                )
                parts.append(f'<p class="dr-note">{html.escape(typographic(told))}</p>')
            if table.notes:
                about = folded(
                    f"{name}: on the numbers", HTML(f"<p>{soft(typographic(table.notes))}</p>")
                )
                parts.append(about.data)
    return "".join(parts)


def links_html(page: str, title: str, paper: str | None, repository: str = "") -> str:
    """Links to the executed notebook, to the BibTeX of the page and then of its paper, and to the
    repository, if there is one.
    """
    up = "../" * page.count("/")
    entries = page_entry(page, title, repository) + bibtex().get(paper or "", "")
    data = base64.b64encode(entries.encode()).decode()
    file = f"{page.removeprefix('notebooks/').replace('/', '-')}.bib"
    links = [
        (f"{up}_sources/{page}.ipynb", "this notebook", "download"),
        (f"data:text/plain;base64,{data}", "BibTeX", f'download="{file}"'),
    ]
    if repository:
        name = repository.removesuffix("/").removeprefix("https://github.com/")
        links += [
            (f"https://github.com/{name}/blob/main/{page}.ipynb", "source", ""),
            (
                f"https://colab.research.google.com/github/{name}/blob/main/{page}.ipynb",
                "Colab",
                "",
            ),
            (f"https://mybinder.org/v2/gh/{name}/main?labpath={page}.ipynb", "Binder", ""),
        ]
    clone = (
        "<br><small>In Colab, first run <code>!git clone"
        f" {html.escape(repository.removesuffix('/'))} book &amp;&amp; pip install -e book</code>"
        " and restart the session.</small>"
        if repository
        else ""
    )
    anchors = (f'<a href="{html.escape(target)}" {more}>{text}</a>' for target, text, more in links)
    return (
        f'<p class="dr-files">{"Download or open" if repository else "Download"}:'
        f" {' '.join(anchors)}{clone}</p>"
    )


def begin_with_result(app: Sphinx, page: str, source: list[str]) -> None:
    """Rearrange a notebook while Sphinx reads it."""
    if page.startswith("notebooks/") and Path(app.env.doc2path(page)).suffix == ".ipynb":
        claims, book = Path(app.srcdir, "extra", "claims.json"), places.project_root() / "book"
        # of which its links and its prediction may be
        papers = [book / "references.bib", *(book / "papers").glob("*.yaml")]
        papers.append(book.parent / "CITATION.cff")
        for path in (claims, QUESTIONS, *papers):
            app.env.note_dependency(str(path))
        entries = [
            entry
            for entry in json.loads(claims.read_text(encoding="utf-8"))
            if entry["page"] == page
        ]
        paper = page.split("/")[1] if page.split("/")[1] in bibtex() else None
        notebook = json.loads(source[0])
        title = "".join(notebook["cells"][0]["source"]).partition("\n")[0].removeprefix("# ")
        links = notes_html(page) + links_html(page, title, paper, app.config.book_repository)
        prediction = (
            prediction_html(questions[page]) if page in (questions := load_questions()) else ""
        )
        arranged = json.dumps(arrange(notebook, page, entries, links, prediction))
        source[0] = TO_NOTEBOOK.sub(r"\1.html", arranged)


def setup(app: Sphinx) -> dict[str, object]:
    """Connect it; `book_repository` is the project's address on GitHub, if any."""
    app.add_config_value("book_repository", "", "env", str)
    app.connect("source-read", begin_with_result)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
