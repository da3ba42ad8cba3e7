"""A later build renders only, and all, changed pages: sources keep their times, and a page is
rendered again if content that it shows from elsewhere has changed.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import solutions
import staging
from sphinx.testing.util import SphinxTestApp

OLD = 1_000_000_000


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """A project with two pages, one notebook, and a command that writes one generated page."""
    texts = {
        "_config.yml": "title: x",
        "_toc.yml": "root: intro",
        "requirements.lock": "a==1",
        "dr_lib/a.py": "x = 1",
        "dr_lib/__init__.py": "",
        "book/dr_book/tables.py": "",
        "book/intro.md": "# Intro",
        "book/ideas/masks.md": "# Masks",
        "book/_ext/e.py": "",
        "book/records/r.json": "{}",
        "notebooks/scales/laptop.yaml": "recipe: {}",
        "notebooks/simlm/table.ipynb": "bare",
        "_build/executed/simlm/table.ipynb": "ran",
        "_build/executed/simlm/gone.ipynb": "ran once",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    calls = []

    def write_pages(command: list, **options) -> None:
        calls.append(command)
        (command[-1] / "status.md").write_text("# Status")

    monkeypatch.setattr(subprocess, "run", write_pages)
    monkeypatch.setattr(staging, "calls", calls, raising=False)
    return tmp_path


def build(root: Path) -> bool:
    """One build; returns whether it began from scratch. Pages get old times, so that new ones are
    noticed.
    """
    staging.begin(root)
    fresh = not (root / "_build" / "html").exists()
    (root / "_build" / "html").mkdir(exist_ok=True)
    staging.finish(root)
    return fresh


def new_in_source(root: Path) -> list[str]:
    """Files in the staged sources that were touched since the last call."""
    found = staging.files(root / "_build" / "source")
    new = [name for name, path in found.items() if path.stat().st_mtime != OLD]
    for path in found.values():
        os.utime(path, (OLD, OLD))
    return new


def test_pages_notebooks_and_generated_pages_come_together(root):
    build(root)
    pages = ["ideas/masks.md", "intro.md", "notebooks/simlm/table.ipynb", "status.md"]
    assert sorted(staging.files(root / "_build" / "source")) == [
        "_config.yml",
        "_ext/e.py",
        "_toc.yml",
        *pages,
    ]
    assert (root / "_build" / "source" / "notebooks" / "simlm" / "table.ipynb").read_text() == "ran"


def test_a_second_build_touches_only_what_changed(root):
    assert build(root)
    new_in_source(root)
    assert not build(root)
    assert new_in_source(root) == []
    (root / "book" / "intro.md").write_text("# Introduction")
    assert not build(root)
    assert new_in_source(root) == ["intro.md"]


def test_generated_pages_are_written_again_where_something_behind_them_changed(root):
    build(root)
    (root / "book" / "intro.md").write_text("# Introduction")
    build(root)
    assert len(staging.calls) == 1
    (root / "_build" / "executed" / "simlm" / "table.ipynb").write_text("ran again")
    build(root)
    assert len(staging.calls) == 1
    behind = ("dr_lib/a.py", "book/records/r.json", "notebooks/scales/laptop.yaml")
    for number, name in enumerate(behind, start=2):
        (root / name).write_text(f"{number}")
        build(root)
        assert len(staging.calls) == number


def test_generated_pages_that_failed_are_written_again(root, monkeypatch):
    def fail(*args, **options) -> None:
        raise subprocess.CalledProcessError(1, "pages")

    with monkeypatch.context() as broken, pytest.raises(subprocess.CalledProcessError):
        broken.setattr(subprocess, "run", fail)
        build(root)
    build(root)
    assert len(staging.calls) == 1
    source, now = root / "book" / "records" / "r.json", "now"
    before = source.read_text()
    with monkeypatch.context() as broken, pytest.raises(subprocess.CalledProcessError):
        broken.setattr(subprocess, "run", fail)
        source.write_text(now)
        build(root)
    source.write_text(before)  # the pages of then were removed
    build(root)
    assert len(staging.calls) == 2


def test_what_is_edited_during_a_build_counts_for_the_next_one(root, monkeypatch):
    write = subprocess.run

    def edit_behind_it(command: list, **options) -> None:
        write(command)
        (root / "book" / "records" / "r.json").write_text('{"later": 1}')

    with monkeypatch.context() as busy:
        busy.setattr(subprocess, "run", edit_behind_it)
        staging.begin(root)
    (root / "_build" / "html").mkdir()
    (root / "book" / "_ext" / "e.py").write_text("later = 1")
    staging.finish(root)
    calls = len(staging.calls)
    assert build(root), "an extension was edited while pages were rendered"
    assert len(staging.calls) == calls + 1


ANEW = [
    "_config.yml",
    "_toc.yml",
    "requirements.lock",
    "book/_ext/e.py",
    "book/dr_book/tables.py",
    "dr_lib/__init__.py",
]


@pytest.mark.parametrize("name", ANEW)
def test_another_configuration_builds_anew(root, name):
    build(root)
    (root / name).write_text("another")
    assert build(root)


@pytest.mark.parametrize(
    "name", ["book/ideas/masks.md", "notebooks/simlm/table.ipynb", "dr_lib/a.py"]
)
def test_a_page_that_is_gone_does_not_stay(root, name):
    build(root)
    (root / name).unlink()
    assert build(root)
    assert not build(root)
    assert not [
        path for path in staging.files(root / "_build" / "source") if path.endswith(Path(name).name)
    ]


def test_after_a_build_that_failed_all_is_built_anew(root):
    build(root)
    staging.begin(root)
    assert build(root)


def test_the_symbols_that_no_page_names_are_taken_out_of_the_themes_script(tmp_path):
    kept, alias = (
        '"circle-half-stroke":[512,512,[61504,"adjust"],"f042","M448 256c0"],',
        'bars:[448,512,["navicon"],"f0c9",["M0 1","M2 3"]]',
    )
    before, other = "var a={", '"0":[320,512,[],"30","M0 192"],sun:[512,512,[9728],"f185","M1 1"],'
    script = tmp_path / "_static" / "scripts" / "fontawesome.js"
    script.parent.mkdir(parents=True)
    script.write_text(f"{before}{other}{kept}{alias}}};")
    (tmp_path / "a.html").write_text('<i class="fa-solid fa-circle-half-stroke fa-lg"></i>')
    (tmp_path / "_static" / "own.js").write_text("icon.className = 'fa-solid fa-bars'")
    for _ in range(2):
        staging.only_used_symbols(tmp_path)
        assert script.read_text() == f"{before}{kept}{alias}}};"


PAGES = {
    "conf.py": "extensions = ['solutions', 'whole_book']",
    "index.rst": "Title\n=====\n",
    "links.rst": ":orphan:\n\nLinks\n=====\n\nSee :ref:`there`.\n",
    "linked.rst": ":orphan:\n\nLinked\n======\n\n.. _there:\n\nOld heading\n-----------\n\nText.\n",
    "solved.rst": (
        ":orphan:\n\nSolved\n======\n\n.. solution::\n\n   import dr_lib\n  "
        " print(open(PLACE).read())\n"
    ),
}


@pytest.fixture
def book(tmp_path, monkeypatch) -> Path:
    """Pages of which one links to a heading of another, and one prints the content of a file of the
    library.
    """
    code = tmp_path / "dr_lib" / "losses.py"
    code.parent.mkdir()
    code.write_text("temperature = 1")
    (tmp_path / "source").mkdir()
    shutil.copy(solutions.places.project_root() / "CITATION.cff", tmp_path)
    for name, text in PAGES.items():
        (tmp_path / "source" / name).write_text(text.replace("PLACE", repr(str(code))))
    monkeypatch.setattr(solutions.places, "project_root", lambda: tmp_path)
    monkeypatch.setattr("whole_book.machine.allowed_cores", lambda: 1)
    return tmp_path


def built(book: Path, page: str) -> str:
    """A page after one more build."""
    app = SphinxTestApp(srcdir=book / "source", builddir=book / "built", buildername="html")
    app.build()
    app.cleanup()
    return (book / "built" / "html" / f"{page}.html").read_text()


def change(path: Path, old: str, new: str) -> None:
    """Edit a file; its time is later than that of any page, whatever the clock's steps."""
    path.write_text(path.read_text().replace(old, new))
    later = path.stat().st_mtime + 10
    os.utime(path, (later, later))


def test_a_page_says_once_how_wide_it_is(book):
    assert built(book, "index").count('name="viewport"') == 1


def test_a_solution_is_run_again_where_the_library_has_changed(book):
    assert "temperature = 1" in built(book, "solved")
    change(book / "dr_lib" / "losses.py", "1", "2")
    assert "temperature = 2" in built(book, "solved")


def test_a_heading_that_another_page_links_to_has_its_new_words_there(book):
    assert "Old heading" in built(book, "links")
    change(book / "source" / "linked.rst", "Old heading", "New heading")
    assert "New heading" in built(book, "links")
