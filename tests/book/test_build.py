"""The hand-written pages build with warnings as errors and pass the page checks; API pages are left to `make book`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from check_pages import ROOT, expected_pages, faults

from dr_lib.report.masks_explorer import FOLDER, WRITTEN
from dr_lib.report.pages import FIRST_PAGE

STUB = "# {name}\n\n" + "A page that `make book` makes. " * 10 + "\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The built HTML of the hand-written pages; notebooks, generated pages and API pages are stubs."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "_build" / "source"
    shutil.copytree(ROOT / "book", source, ignore=shutil.ignore_patterns("weights", "records", "api"))
    for name in [*FIRST_PAGE, *(f"{FOLDER}/{one}" for one in WRITTEN)]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("")
    (folder / "dr_lib").symlink_to(ROOT / "dr_lib")
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy(ROOT / name, source)
    for name in expected_pages(ROOT / "_toc.yml"):
        page = source / f"{name}.md"
        if not page.exists() and name not in ("genindex", "search"):
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(STUB.format(name=name))
    (source / "reference" / "api.md").write_text(STUB.format(name="The library"))
    command = [
        sys.executable,
        "-c",
        "from jupyter_book.cli.main import main; main()",
        "build",
        "-W",
        "-n",
        "--keep-going",
    ]
    done = subprocess.run(
        [*command, str(source), "--path-output", str(folder)], capture_output=True, text=True, cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "_build" / "html"


def test_pages_pass_the_checks(built):
    assert faults(built, ROOT / "_toc.yml") == []


def test_formulas_are_mathml_in_a_font_of_the_book(built):
    page = (built / "ideas" / "bottleneck.html").read_text()
    assert page.count("<math ") > 10 and "tex-mml" not in page
    assert (built / "_static" / "fonts" / "STIXTwoMath.woff2").stat().st_size > 200_000


def test_search_needs_no_server(built):
    page = (built / "search.html").read_text()
    assert "searchindex.js" in page and "bottleneck" in (built / "searchindex.js").read_text()


def test_drawing_has_a_text_for_those_who_do_not_see_it(built):
    page = (built / "ideas" / "bottleneck.html").read_text()
    assert 'role="img"' in page and "<desc id=" in page
