"""Sphinx extension: notebooks to take home, from their pages and as one archive per session.

An archive has the notebooks without outputs and solutions, and a README that says how to run them.
Their text is plain Markdown: what Sphinx would fill in, such as a link, a citation or a recorded
number, is written out. The same sources give the same bytes.
"""

import json
import posixpath
import re
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from measured_numbers import differing, measured, printed, seeds, trained_rows
from predictions import load_questions
from pybtex.database import Entry, parse_file
from sphinx.application import Sphinx
from teaching import archive_name, has_notebooks, load_plan

from dr_book.tables import seeds_in
from dr_lib.places import project_root

EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of every file in an archive: the earliest that the format allows."""
TORCH_FOR_PROCESSORS = "https://download.pytorch.org/whl/cpu/torch/"
"""PyTorch's own builds without CUDA."""
ROLE = re.compile(r"\{([a-z:]+)\}`([^`]+)`")
DIRECTIVE = re.compile(r"^```\{(\w+)\}([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LABEL = re.compile(r"^\([\w-]+\)=\n", re.MULTILINE)
NUMBERS = {
    "measured": measured,
    "seeds": lambda study: seeds([*map(seeds_in, trained_rows(study))]),
    "difference": lambda cell: differing(cell)[0],
    "paper": printed,
}
"""Roles that insert a number from the records or from a paper."""


def plain(text: str, page: str) -> str:
    """The MyST of a notebook as Markdown that any notebook program shows.

    Args:
        text: of a cell.
        page: the notebook's page, "notebooks/lessons/1_retriever", which links start from.

    Example:
        >>> plain("See {doc}`masks <2_masking>` and {py:func}`dr_lib.train`.", "notebooks/x")
        'See masks and `dr_lib.train`.'
    """
    text = DIRECTIVE.sub(_written_out, LABEL.sub("", text))
    return ROLE.sub(lambda role: _spelled(role[1], role[2], page), text)


def _written_out(directive: re.Match) -> str:
    kind, title, words = directive[1], directive[2].strip(), directive[3].strip()
    words = re.sub(r"\A(:\w+:.*\n)+\n?", "", words)
    return words if kind == "raw" else f"**{title or kind.capitalize()}.**\n\n{words}"


def _spelled(role: str, content: str, page: str) -> str:
    if role in NUMBERS:
        return NUMBERS[role](content)
    if role.startswith("cite:"):
        return _cited(content, in_sentence=role == "cite:t")
    if role.startswith("py:"):
        return f"`{content.rpartition('.')[2] if content[0] == '~' else content}`"
    words, _, target = content.removesuffix(">").rpartition("<")
    if words:
        return words.strip()
    if role == "doc":
        start = posixpath.dirname(page)
        return f"*{title_of(posixpath.normpath(posixpath.join('/', start, target))[1:])}*"
    return target.replace("-", " ")


def _cited(keys: str, *, in_sentence: bool) -> str:
    named = []
    for key in keys.split(","):
        entry = _works()[key.strip()]
        names = [" ".join(author.last_names) for author in entry.persons["author"]]
        who = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
        year = entry.fields["year"]
        named.append(f"{who} ({year})" if in_sentence else f"{who}, {year}")
    return "; ".join(named) if in_sentence else f"({'; '.join(named)})"


@cache
def _works() -> Mapping[str, Entry]:
    """The book's bibliography by key."""
    return parse_file(project_root() / "book" / "references.bib").entries


def title_of(page: str) -> str:
    """The title of a page of the book; for a generated page, its name."""
    root = project_root()
    if (root / f"{page}.ipynb").is_file():
        text = "".join(
            json.loads((root / f"{page}.ipynb").read_text("utf-8"))["cells"][0]["source"]
        )
    else:
        source = root / "book" / f"{page}.md"
        text = source.read_text("utf-8") if source.is_file() else ""
    found = re.search("^# (.*)$", text, re.MULTILINE)
    return found[1] if found else page.rpartition("/")[2].replace("-", " ")


def to_take_home(notebook: dict[str, Any], page: str) -> str:
    """The file of a notebook without outputs and with plain Markdown."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
        elif cell["cell_type"] == "markdown":
            cell["source"] = plain("".join(cell["source"]), page).splitlines(keepends=True)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def predict_first(notebook: dict[str, Any], asked: Mapping[str, Any]) -> None:
    """Replace the result by a question, and move the result to the end: a notebook handed out
    before class must not answer the question put to the class.

    Args:
        notebook: its first cell has the title, the page's question and then the result.
        asked: a question of `predictions.QUESTIONS`.
    """
    title, question, reading = "".join(notebook["cells"][0]["source"]).split("\n\n", 2)
    options = "\n".join(f"- **{row}**: {what}" for row, what in asked["options"].items())
    asking = f"**Predict, then look.** {asked['question']}\n\n{options}"
    ending = "Write your answer down and run the cells. What came out is said at the end."
    notebook["cells"][0]["source"] = "\n\n".join((title, question, asking, ending))
    notebook["cells"].append(
        {
            "cell_type": "markdown",
            "id": "what-came-out",
            "metadata": {},
            "source": f"## What came out\n\n{reading}",
        }
    )


def readme(units: Sequence[Mapping[str, Any]], repository: str = "") -> str:
    """The README of an archive, which a student reads first.

    Args:
        units: of the session, from the lesson plan.
        repository: address of the project, if it has one.
    """
    folder = repository.rstrip("/").rsplit("/", 1)[-1] or "THE-FOLDER-OF-THE-PROJECT"
    lines = ["How to run these notebooks", ""]
    lines += ["1. Install the project from its checkout, with Python 3.11 or 3.12:", ""]
    lines += [f"     git clone {repository}"] if repository else []
    lines += [f"     pip install --find-links {TORCH_FOR_PROCESSORS} torch"]
    lines += [f'     pip install -e "{folder}[cpu,book]" jupyterlab', "     jupyter lab", ""]
    lines += [
        "   The first pip takes PyTorch for processors alone; 2 GB are then enough. Without it,"
    ]
    lines += ["   pip on Linux takes the PyTorch for Nvidia GPUs, several GB more.", ""]
    lines += ["2. Open the notebooks in this order. A lesson takes one to two minutes of one core"]
    lines += ["   the first time, and under a minute afterwards.", ""]
    for unit in units:
        page = unit["page"]
        form = (
            f"{page}.ipynb" if page.startswith("notebooks/") else f"in the built book: {page}.html"
        )
        lines += [f"   - {unit['question']}", f"     {form}"]
    lines += [
        "",
        "An exercise has a function to fill in. Run its cell: `check` says what is wrong.",
    ]
    return "\n".join(lines) + "\n"


def write_archive(
    place: Path, units: Sequence[Mapping[str, Any]], repository: str = ""
) -> list[str]:
    """Write one archive and return its file names."""
    contents = {"README.txt": readme(units, repository).encode()}
    for unit in units:
        if unit["page"].startswith("notebooks/"):
            name = f"{unit['page']}.ipynb"
            notebook = json.loads((project_root() / name).read_text(encoding="utf-8"))
            if unit["page"] in (questions := load_questions()):
                predict_first(notebook, questions[unit["page"]])
            contents[name] = to_take_home(notebook, unit["page"]).encode()
    place.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(place, "w") as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, date_time=EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # the same on every machine that builds
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return [*contents]


def write_archives(folder: Path, plan: Mapping[str, Any], repository: str = "") -> list[Path]:
    """Write the archive of every session that has a notebook."""
    written = []
    for route in plan["routes"]:
        for number, session in enumerate(route["sessions"], 1):
            units = [plan["units"][name] for name in session]
            if has_notebooks(units):
                written.append(folder / archive_name(route, number))
                write_archive(written[-1], units, repository)
    return written


def strip_downloads(html: Path) -> None:
    """Replace the notebooks offered on pages by those to take home: 10 MB less."""
    folder = html / "_sources"
    for path in folder.rglob("*.ipynb"):
        page = path.relative_to(folder).with_suffix("").as_posix()
        text = path.read_text(encoding="utf-8")
        if (stripped := to_take_home(json.loads(text), page)) != text:
            path.write_text(stripped, encoding="utf-8")


def write(app: Sphinx, failure: Exception | None) -> None:
    """Write the archives beside the page of routes."""
    if failure is None and app.builder.format == "html":
        strip_downloads(Path(app.outdir))
        write_archives(Path(app.outdir, "teaching"), load_plan(), app.config.book_repository)


def setup(app: Sphinx) -> dict[str, object]:
    """Connect it."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
