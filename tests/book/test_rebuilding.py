"""What stands on a page from elsewhere is rendered again where it has changed: code that a solution
runs, a linked heading.
"""

import os
import shutil
from pathlib import Path

import pytest
import solutions
from sphinx.testing.util import SphinxTestApp

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
    """Pages of which one links to a heading of another, and one prints what a file of the library
    holds.
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
    """A page as it stands after one more build."""
    app = SphinxTestApp(srcdir=book / "source", builddir=book / "built", buildername="html")
    app.build()
    app.cleanup()
    return (book / "built" / "html" / f"{page}.html").read_text()


def change(path: Path, old: str, new: str) -> None:
    """Edit a file; its time is later than that of any page, whatever the clock's steps."""
    path.write_text(path.read_text().replace(old, new))
    later = path.stat().st_mtime + 10
    os.utime(path, (later, later))


def test_a_solution_is_run_again_where_the_library_has_changed(book):
    assert "temperature = 1" in built(book, "solved")
    change(book / "dr_lib" / "losses.py", "1", "2")
    assert "temperature = 2" in built(book, "solved")


def test_a_heading_that_another_page_links_to_has_its_new_words_there(book):
    assert "Old heading" in built(book, "links")
    change(book / "source" / "linked.rst", "Old heading", "New heading")
    assert "New heading" in built(book, "links")
