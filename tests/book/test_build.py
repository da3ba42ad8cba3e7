"""The hand-written pages build with warnings as errors and pass the page checks; API pages are left
to `make book`.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import explorers
import masks_explorer
import pieces
import pretrain_tab
import pytest
import search_page
from browser import complaints, needs_chromium, visit
from check_pages import ROOT, expected_pages, faults
from generated_pages import PARTS
from home import WRITTEN
from PIL import Image

pytestmark = pytest.mark.xdist_group("book")  # one build for all of them
STUB = "# {name}\n\n" + "A page that `make book` makes. " * 10 + "\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The built HTML of the hand-written pages; notebooks, generated pages and API pages are
    stubs.
    """
    folder = tmp_path_factory.mktemp("built")
    source = folder / "_build" / "source"
    shutil.copytree(
        ROOT / "book", source, ignore=shutil.ignore_patterns("weights", "records", "api")
    )
    loaded = (
        f"{part.FOLDER}/{one}"
        for part in (explorers, masks_explorer, pieces, pretrain_tab, search_page)
        for one in part.WRITTEN
    )
    for name in [*PARTS, *WRITTEN, "extra/search-page/questions.js", *loaded]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("")
    (folder / "dr_lib").symlink_to(ROOT / "dr_lib")
    # without extensions that take figures and notebooks from lessons, which are stubs
    config = (ROOT / "_config.yml").read_text(encoding="utf-8")
    config = re.sub(r"^      - (slides|handouts)\n", "", config, flags=re.MULTILINE)
    (source / "_config.yml").write_text(config, encoding="utf-8")
    shutil.copy(ROOT / "_toc.yml", source)
    for name in expected_pages(ROOT / "_toc.yml"):
        page = source / f"{name}.md"
        if not page.exists() and name not in ("genindex", "search"):
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(STUB.format(name=name))
    (source / "reference" / "api.md").write_text(STUB.format(name="The library"))
    build(folder)
    return folder / "_build" / "html"


def build(folder: Path) -> str:
    """Run jupyter-book on changed pages, warnings as errors; return its output."""
    program = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    command = [
        *program,
        "build",
        "-W",
        "-n",
        "--keep-going",
        folder / "_build" / "source",
        "--path-output",
        folder,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_a_group_of_tests_shares_a_worker(request):
    """Otherwise every worker makes a build, as with a pytest that hides the names of groups."""
    if request.config.getoption("loadgroup", False):
        assert request.node.nodeid.endswith("@book")


def test_pages_pass_the_checks(built):
    # of stubs, which are not made from a notebook, and of outputs of lessons
    left_out = re.compile(
        r": no link to its notebook$|(handouts/\S+|slides\.html\S*) leads nowhere$"
    )
    found = [fault for fault in faults(built, ROOT / "_toc.yml") if not left_out.search(fault)]
    assert found == []


def test_formulas_are_mathml_in_a_font_of_the_book(built):
    page = (built / "ideas" / "bottleneck.html").read_text()
    assert page.count("<math ") > 10 and "tex-mml" not in page
    assert (built / "_static" / "fonts" / "STIXTwoMath.woff2").stat().st_size > 200_000


def test_the_sidebar_has_at_most_55_entries_and_the_pages_one_looks_for(built):
    page = (built / "ideas" / "masking.html").read_text(encoding="utf-8")
    sidebar = page[page.index('<nav class="bd-links') :].partition("</nav>")[0]
    links = re.findall(r'<a class="reference internal" href="([^"#]*)"', sidebar)
    links += re.findall(r'<a class="current reference internal" href="([^"]*)"', sidebar)
    assert 30 < len(links) <= 55 and len({*links}) == len(links)
    wanted = (
        "practice/install",
        "practice/cite",
        "practice/gpu",
        "notebooks/methods/how_many_seeds",
    )
    assert {f"../{name}.html" for name in wanted} <= {*links}
    tables = [link for link in links if re.search(r"/(simlm|cdmae|dpr_paq|master|pair)/", link)]
    assert tables == [], "tables are reached from their paper's page"


def test_every_page_has_name_version_licence_and_how_to_cite(built):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in ("intro", "ideas/masking", "search"):
        page = (built / f"{name}.html").read_text(encoding="utf-8")
        footer = page.partition('<footer class="bd-footer-content">')[2].partition("</footer>")[0]
        text = re.sub(r"\s+", " ", re.sub("<[^>]+>", "", footer))
        assert f"The Dense Retrieval Book {version}, MIT licence. Cite this book" in text, name


def test_search_needs_no_server(built):
    page = (built / "search.html").read_text()
    assert "searchindex.js" in page and "bottleneck" in (built / "searchindex.js").read_text()


def test_drawing_has_a_text_for_those_who_do_not_see_it(built):
    page = (built / "ideas" / "bottleneck.html").read_text()
    assert 'role="img"' in page and "<desc id=" in page


@needs_chromium
def test_a_browser_draws_a_page_without_complaint(built, tmp_path):
    visited = visit(
        built / "ideas" / "bottleneck.html",
        tmp_path,
        f"--screenshot={tmp_path}/a.png",
        "--window-size=900,1200",
    )
    assert complaints(visited) == []
    picture = Image.open(tmp_path / "a.png").convert("RGB")
    assert picture.size == (900, 1200)
    colours = picture.getcolors(2**24)
    assert len(colours) > 200 and max(count for count, _ in colours) < 0.98 * 900 * 1200


@needs_chromium
def test_the_search_finds_a_page_from_disk(built, tmp_path):
    visited = visit(built / "search.html", tmp_path, "--dump-dom", query="?q=bottleneck")
    # without the parts of the book's own search, which `make pages` writes, Sphinx's answers
    assert "ideas/bottleneck.html" in visited.stdout.partition('id="search-results"')[2]


@pytest.mark.slow
def test_a_second_build_writes_what_changed_and_every_sidebar_with_a_new_title(built):
    page = built.parent / "source" / "ideas" / "masking.md"
    assert "0 added, 0 changed, 0 removed" in build(built.parents[1])
    page.write_text(page.read_text().replace("# Masking", "# Masking of tokens", 1))
    assert "0 added, 1 changed, 0 removed" in build(built.parents[1])
    for name in ("ideas/masking.html", "intro.html", "practice/gpu.html"):
        assert "Masking of tokens" in (built / name).read_text(), name
