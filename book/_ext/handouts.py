"""Sphinx extension: the notebooks of each session as one archive, for a class to take home.

An archive has the notebooks as the repository has them, without outputs and without solutions, and
a README that says how to run them. The same sources give the same bytes.
"""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from teaching import archive_name, load_plan

from dr_lib.places import project_root

EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of every file in an archive: the earliest that the format knows."""


def readme(units: Sequence[Mapping[str, Any]], repository: str = "") -> str:
    """What a student reads first.

    Args:
        units: of the session, as the lesson plan has them.
        repository: address of the project, if it has one.
    """
    folder = repository.rstrip("/").rsplit("/", 1)[-1] or "THE-FOLDER-OF-THE-PROJECT"
    lines = ["How to run these notebooks", ""]
    lines += ["1. Install the project from its checkout, with Python 3.11 or 3.12:", ""]
    lines += [f"     git clone {repository}"] if repository else []
    lines += [f"     pip install -e {folder} jupyterlab", "     jupyter lab", ""]
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
    """Write one archive and return the names in it."""
    contents = {"README.txt": readme(units, repository).encode()}
    for unit in units:
        if unit["page"].startswith("notebooks/"):
            name = f"{unit['page']}.ipynb"
            contents[name] = (project_root() / name).read_bytes()
    place.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(place, "w") as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, date_time=EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # the same on every machine that builds
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return [*contents]


def write_archives(folder: Path, plan: Mapping[str, Any], repository: str = "") -> list[Path]:
    """Write the archive of every session of every route."""
    written = []
    for route in plan["routes"]:
        for number, session in enumerate(route["sessions"], 1):
            written.append(folder / archive_name(route, number))
            units = [plan["units"][name] for name in session]
            write_archive(written[-1], units, repository)
    return written


def write(app: Sphinx, failure: Exception | None) -> None:
    """Write them beside the page of routes."""
    if failure is None and app.builder.format == "html":
        write_archives(Path(app.outdir, "teaching"), load_plan(), app.config.book_repository)


def setup(app: Sphinx) -> dict[str, object]:
    """Connect it."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
