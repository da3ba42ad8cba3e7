"""A session's archive: the notebooks without outputs and solutions, how to run them, the same bytes
each time.
"""

import json
import re
import zipfile
from pathlib import Path

from check_pages import ROOT
from handouts import readme, write_archive, write_archives
from lecturer import solutions, with_exercises
from teaching import archive_name, load_plan, routes_page

PLAN = load_plan()


def test_every_session_has_an_archive_that_the_page_of_routes_links_to(tmp_path: Path):
    written = [path.relative_to(tmp_path).as_posix() for path in write_archives(tmp_path, PLAN)]
    assert len({*written}) == len(written)
    assert re.findall(r'href="(handouts/[^"]+)"', routes_page(PLAN)) == written
    notes = (ROOT / "book" / "teaching" / "lecturers-notes.md").read_text()
    assert {*re.findall(r'href="(handouts/[^"]+)"', notes)} <= {*written}


def test_an_archive_has_the_notebooks_as_they_are_stored_and_is_the_same_twice(tmp_path: Path):
    units = [PLAN["units"][name] for name in ("prerequisites", "retriever", "bottleneck")]
    names = write_archive(tmp_path / "a.zip", units)
    write_archive(tmp_path / "b.zip", units)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert names == [
        "README.txt",
        "notebooks/lessons/1_retriever.ipynb",
        "notebooks/lessons/2_bottleneck.ipynb",
    ]
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == names
        for name in names[1:]:
            content = archive.read(name)
            assert content == (ROOT / name).read_bytes()
            cells = json.loads(content)["cells"]
            assert not any(cell.get("outputs") for cell in cells)
            assert not any("solution" in cell["metadata"].get("tags", []) for cell in cells)


def test_every_file_of_solutions_belongs_to_a_notebook():
    files = {path.stem for path in (ROOT / "book" / "teaching" / "solutions").glob("*.py")}
    assert files == {path.stem for path in with_exercises()}
    assert all(solutions(path) for path in with_exercises())


def test_the_readme_names_the_repository_only_where_there_is_one():
    units = [PLAN["units"]["retriever"]]
    assert "http" not in readme(units) and "notebooks/lessons/1_retriever.ipynb" in readme(units)
    told = readme(units, "https://github.com/some/where")
    assert "git clone https://github.com/some/where\n" in told
    assert "pip install -e where jupyterlab" in told


def test_a_name_of_an_archive_tells_route_and_session():
    route = {"name": "Ten weeks of 90 minutes"}
    assert archive_name(route, 10) == "handouts/ten-weeks-10.zip"


def test_binder_installs_the_checkout():
    """Not a copy of it: `dr_lib.places` finds the small base model beside the package."""
    lines = (ROOT / ".binder" / "requirements.txt").read_text().splitlines()
    assert "-e ." in lines
    assert (ROOT / ".binder" / "runtime.txt").read_text() == "python-3.11\n"
