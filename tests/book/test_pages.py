"""The page checks find every kind of fault, the table of contents and the pages agree, and the
tests' browser waits through a change of the page.
"""

import json
import re
from pathlib import Path

import generated_pages
import pytest
from browser import PageLeftError, needs_chromium, opened
from check_pages import (
    ROOT,
    Page,
    dead_links,
    expected_pages,
    faults,
    fetched,
    missing_or_empty,
    without_notebook,
)
from generated_pages import DOCUMENTED
from staging import UNSEEN
from whole_book import at_depth, scripts_once, unbroken

from dr_book.figures import PALETTE, VARIABLES
from dr_book.measured import all_recorded
from dr_book.statistics import Interval
from dr_book.tables import interval_cell, named, per_cent, table
from dr_lib import objectives

BOOK = ROOT / "book"
GENERATED = {
    "practice/cite",
    "reference/claims",
    "reference/records",
    "reference/status",
    "reference/data",
    "reference/base-model",
    "teaching/routes",
    *(f"reference/api/{package}" for package in DOCUMENTED),
}
STATES = ("held", "contradicted", "open", "not testable here", "not run")
WORDS = "<article>" + "word " * 50 + "</article>"


def pages(folder: Path, **texts: str) -> dict[Path, Page]:
    """Write pages and read them back as the checker does."""
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text)
    return {path.resolve(): Page(path.read_text()) for path in folder.glob("*.html")}


def test_missing_and_empty_pages_are_named(tmp_path):
    found = pages(
        tmp_path, full=WORDS, empty="<article>Title</article><p>" + "aside " * 99 + "</p>"
    )
    assert list(missing_or_empty(tmp_path, ["full", "empty", "gone"], found)) == [
        "empty: the page is empty (1 words)",
        "gone: the page is missing",
    ]


@pytest.mark.parametrize(
    "tag",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/a.css">',
        '<img src="http://img.example/a.png">',
        '<img srcset="a.png 1x, https://img.example/b.png 2x">',
        '<style>@import "https://fonts.example/b.css";</style>',
        '<p style="background: url(https://img.example/c.png)">x</p>',
    ],
)
def test_anything_fetched_from_another_host_is_named(tmp_path, tag):
    assert len(list(fetched(tmp_path, pages(tmp_path, page=tag)))) == 1


def test_fonts_in_style_sheets_are_looked_at(tmp_path):
    (tmp_path / "a.css").write_text("@font-face { src: url('https://fonts.example/a.woff2'); }")
    assert list(fetched(tmp_path, {})) == ["a.css: loads https://fonts.example/a.woff2"]


def test_links_to_other_sites_are_not_fetched(tmp_path):
    text = (
        '<a href="https://arxiv.org">paper</a><link rel="canonical" href="https://book.example/">'
    )
    assert not list(fetched(tmp_path, pages(tmp_path, page=text)))


def test_dead_links_and_anchors_are_named(tmp_path):
    found = pages(
        tmp_path,
        a=(
            '<p id="here"></p><a href="b.html#there">b</a><a href="c.html">c</a><a'
            ' href="#here">h</a>'
        ),
        b="",
    )
    assert sorted(dead_links(tmp_path.resolve(), found)) == [
        "a.html: b.html#there has no such anchor",
        "a.html: c.html leads nowhere",
    ]


def test_a_page_of_a_notebook_offers_its_notebook(tmp_path):
    link = '<a href="../../_sources/notebooks/a/{}.ipynb" download>notebook</a>'
    (tmp_path / "notebooks" / "a").mkdir(parents=True)
    found = pages(
        tmp_path / "notebooks" / "a", offered=link.format("offered"), other=link.format("offered")
    )
    names = ["notebooks/a/offered", "notebooks/a/other", "ideas/words"]
    assert list(without_notebook(tmp_path, names, found)) == [
        "notebooks/a/other: no link to its notebook"
    ]


def test_folder_without_a_book_is_said_to_be_one(tmp_path):
    assert "has not been built" in faults(tmp_path, ROOT / "_toc.yml")[0]


def test_every_page_is_in_the_contents_and_the_other_way_round():
    written = {path.relative_to(BOOK).with_suffix("").as_posix() for path in BOOK.rglob("*.md")}
    written = {name for name in written if name.split("/")[0] not in UNSEEN}
    notebooks = {
        path.relative_to(ROOT).with_suffix("").as_posix()
        for path in (ROOT / "notebooks").rglob("*.ipynb")
    }
    listed = set(expected_pages(ROOT / "_toc.yml")) - {"genindex", "search"}
    assert listed == written | notebooks | GENERATED


def test_every_page_named_in_the_code_exists():
    listed = set(expected_pages(ROOT / "_toc.yml"))
    named = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (ROOT / "dr_lib").rglob("*.py")
        for name in re.findall(
            r"\b((?:ideas|papers|practice|reference)/[a-z][a-z-]*)\b(?!/)", path.read_text()
        )
        if not (BOOK / name).is_dir()
    }
    assert not {(path, name) for path, name in named if name not in listed}


def test_the_overview_says_of_every_method_what_it_needs_what_it_learns_and_what_it_costs():
    page = (BOOK / "ideas" / "choosing-a-method.md").read_text()
    rows: dict[str, list[list[str]]] = {}
    for part in re.findall(r"(?:^\|.+\n)+", page, re.MULTILINE):
        lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines())
        head, _, *body = lines
        rows[head[1]] = body
    told = {"methods": 1, "what it learns": 0, "encoder passes for a passage": 0}
    needs, learns, costs = (
        re.findall(r"`(\w+)`", " ".join(row[place] for row in rows[head]))
        for head, place in told.items()
    )
    assert sorted(needs) == sorted(learns) == sorted(objectives.names())
    assert sorted([*costs, "none"]) == sorted(objectives.names())
    # on a phone a reader takes it in: two columns, names of two lines
    assert all(len(row) == 2 and len(row[0]) <= 36 for row in rows["methods"])


def test_the_set_of_negatives_has_the_letter_of_simlms_equation():
    """A set in two letterforms reads as two sets."""
    places = [*BOOK.rglob("*.md"), *(ROOT / "notebooks").rglob("*.ipynb")]
    letters = {
        (letter, path.stem)
        for path in places
        for letter in re.findall(r"\\math(\w+) ?\{N\}", path.read_text(encoding="utf-8"))
    }
    assert letters == {("bb", name) for name in ("negatives", "simlm", "1_retriever")}


def test_every_verdict_has_a_badge():
    css = (BOOK / "_static" / "book.css").read_text()
    assert all(f".verdict-{state.replace(' ', '-')}" in css for state in STATES)


def test_style_sheet_and_figures_use_the_same_colours():
    light, dark = (BOOK / "_static" / "book.css").read_text().split('html[data-theme="dark"]', 1)
    assert f"--dr-blue: {PALETTE.series[0]}" in light and f"--dr-warm: {PALETTE.series[7]}" in light
    alone = (BOOK / "dr_book" / "page.html").read_text()
    # the same colours on dark pages of the book and on a page of its own
    for name in VARIABLES.values():
        (colour,) = re.findall(rf"--dr-figure-{name}: (#[0-9a-f]{{6}});", dark)
        assert f"--dr-figure-{name}: {colour};" in alone
    assert re.findall(r"--dr-blue: (#\w+)", dark) == re.findall(
        r"--dr-figure-series-1: (#\w+)", dark
    )


@needs_chromium
def test_on_a_phone_a_question_to_start_from_does_not_cover_its_ranks(tmp_path):
    """The width of a name's cell is bounded there, and the button in it is not wider."""
    question = (
        '<td><button class="question">Checks validity of typically used arguments</button></td>'
    )
    row = "<tr>" + question + '<td class="number">308</td>' * 9 + "</tr>"
    styles = "".join(
        (BOOK / name).read_text() for name in ("_static/book.css", "extra/search-page/search.css")
    )
    shown = (
        '<div class="dr-offered"><div class="dr-table"><table'
        f' class="table">{row}</table></div></div>'
    )
    page = tmp_path / "page.html"
    page.write_text(
        f'<meta charset="utf-8"><style>{styles}</style><article'
        f' class="bd-article">{shown}</article>',
        encoding="utf-8",
    )
    with opened(tmp_path / "profile", 390) as browser:
        browser.visit(page)
        button, cell = (
            f"document.querySelector('{one}').getBoundingClientRect()" for one in ("button", "td")
        )
        assert browser.run(f"{button}.right <= {cell}.right")


@needs_chromium
def test_on_a_phone_names_stay_in_view_while_the_numbers_of_a_wide_table_scroll(tmp_path):
    number = interval_cell(Interval(42.0, 41.2, 42.8))
    shown = table(
        ["configuration", *"abcdef"],
        [["general text, then target passages", *[number] * 6]],
        caption="x",
    ).data
    style = (BOOK / "_static" / "book.css").read_text()
    page = tmp_path / "page.html"
    page.write_text(
        f'<meta charset="utf-8"><style>{style}</style><article'
        f' class="bd-article">{shown}</article>',
        encoding="utf-8",
    )
    with opened(tmp_path / "profile", 390) as browser:
        browser.visit(page)
        browser.run("document.querySelector('.dr-table').scrollLeft = 100")
        assert browser.run("document.querySelector('.dr-table').scrollLeft") == 100
        frame, name = (
            f"document.querySelector('{one}').getBoundingClientRect()"
            for one in (".dr-table", "td")
        )
        assert (
            browser.run(f"{name}.left - {frame}.left") == 0 and browser.run(f"{name}.width") >= 112
        )
        assert (
            browser.run("getComputedStyle(document.querySelector('.interval')).display") == "block"
        )


def test_prose_writes_per_cent_with_a_space():
    """Labels are the papers' own (30% / 50%): `report.named` shows them as the prose writes
    them.
    """
    pages = [path.read_text() for path in BOOK.rglob("*.md")]
    cells = [
        cell
        for path in (ROOT / "notebooks").rglob("*.ipynb")
        for cell in json.loads(path.read_text())["cells"]
    ]
    pages += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    code = re.compile(r"(`{3,}).*?\1|`[^`]*`", flags=re.DOTALL)
    prose = "\n".join(code.sub("", page) for page in pages)
    assert not re.findall(r".{,30}\d%.{,20}", prose)
    assert (
        named("30% / 50%")
        == per_cent("30 % / 50 %")
        == "30_%_/_50_%".replace("_", "\N{NO-BREAK SPACE}")
    )


def test_a_per_cent_sign_or_unit_stays_with_its_number_but_code_is_left_alone():
    code = '<pre>5 % n</pre><i title="5 % x"></i><code>5 s</code>'
    assert unbroken(f"<p>95 % of</p>{code}") == f"<p>95\N{NO-BREAK SPACE}% of</p>{code}"
    assert (
        unbroken("<td>a pupil&#x27;s</td><code>a'b</code>") == "<td>a pupil’s</td><code>a'b</code>"
    )
    assert unbroken("p &lt; 0.0001") == "p &lt;\N{NO-BREAK SPACE}0.0001"
    sizes = "a 2~×~128, 6~×~384".replace("~", "\N{NO-BREAK SPACE}")
    assert unbroken("a 2 × 128, 6 × 384") == sizes
    assert (
        unbroken("in 91 s, 3 of 2 min, 4 seconds")
        == "in 91\N{NO-BREAK SPACE}s, 3 of 2\N{NO-BREAK SPACE}min, 4 seconds"
    )
    assert (
        unbroken("STS-B, R-precision, BSD-3-Clause, ant-1, e-mail").replace(
            "\N{NON-BREAKING HYPHEN}", "~"
        )
        == "STS~B, R~precision, BSD~3~Clause, ant-1, e-mail"
    )


@needs_chromium
def test_what_scrolls_sideways_is_reached_by_keyboard_and_nothing_else(tmp_path):
    """At every width, and also if a folded line is opened."""
    wide = '<table class="table"><tr><td><div style="width: 500px">x</div></td></tr></table>'
    tables = (
        f'<div class="dr-table">{wide}</div><details><div class="formula">{wide}</div></details>'
    )
    script, style = ((BOOK / "_static" / name).read_text() for name in ("pages.js", "book.css"))
    page = tmp_path / "page.html"
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><style>{style}</style><script>{script}</script>'
        f'<article class="bd-article">{tables}<p class="dr-files"><button>CSV</button></p>',
        encoding="utf-8",
    )
    reached = (
        "[...document.querySelectorAll('[tabindex=\"0\"]')].map((one) => one.className).join()"
    )
    with opened(tmp_path / "profile", 390) as browser:
        browser.visit(page)
        browser.wait(f"{reached} === 'dr-table'")
        place = "document.querySelector('.dr-table')"
        assert browser.run(f"{place}.role + ': ' + {place}.ariaLabel") == "group: wide"
        browser.run("document.querySelector('details').open = true")
        browser.wait(f"{reached} === 'dr-table,formula'")
        browser.resize(1200)
        browser.wait(f"{reached} === ''")
        # large enough to be hit: WCAG 2.2, 2.5.8
        button = "document.querySelector('.dr-files button').getBoundingClientRect()"
        assert browser.run(f"Math.min({button}.width, {button}.height)") >= 24


@needs_chromium
def test_a_page_in_the_dark_theme_is_printed_in_the_light_one(tmp_path):
    script, page = (BOOK / "_static" / "pages.js").read_text(), tmp_path / "page.html"
    told = "addEventListener('beforeprint', () => { printed = document.documentElement.dataset; "
    told = "let printed; " + told + "printed = { ...printed }; });"
    page.write_text(
        f'<!doctype html><html data-theme="dark"><meta charset="utf-8"><script>{script}</script>'
        f"<script>{told}</script><p>x</p>",
        encoding="utf-8",
    )
    with opened(tmp_path / "profile") as browser:
        browser.visit(page)
        browser.send("Page.printToPDF")
        assert browser.run("[printed.theme, document.documentElement.dataset.theme]") == [
            "light",
            "dark",
        ]


@needs_chromium
def test_the_first_button_has_letters_on_paper_too(tmp_path):
    style, page = (BOOK / "_static" / "book.css").read_text(), tmp_path / "page.html"
    button = '<nav class="dr-start"><a class="first" href="#">Start</a></nav>'
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><style>{style}</style>'
        f'<article class="bd-article">{button}',
        encoding="utf-8",
    )
    look = "getComputedStyle(document.querySelector('.first'))"
    with opened(tmp_path / "profile") as browser:
        browser.visit(page)
        border = browser.run(f"{look}.borderTopColor")
        browser.send("Emulation.setEmulatedMedia", media="print")
        assert browser.run(f"[{look}.color, {look}.backgroundColor]") == [
            border,
            "rgba(0, 0, 0, 0)",
        ]


def test_a_page_loads_a_script_once():
    a, b = ('<script src="../a.js"></script>', '<script src="b.js"></script>')
    assert scripts_once(f"<p>{a}</p>{b}{a}<script>1</script>{b}") == (
        f"<p>{a}</p>{b}<script>1</script>"
    )


@pytest.fixture
def leaving(tmp_path):
    """A page that leads to another one after a moment."""
    page = tmp_path / "first.html"
    page.write_text(
        "<script>setTimeout(() => { location = 'second.html'; }, 300);</script>", encoding="utf-8"
    )
    (tmp_path / "second.html").write_text("<p>here</p>", encoding="utf-8")
    return page


@needs_chromium
def test_what_is_waited_for_may_hold_in_the_next_page(leaving, tmp_path):
    never = "new Promise(() => {})"  # the first page is certain to be left before it answers
    with opened(tmp_path / "profile") as browser:
        browser.visit(leaving)
        with pytest.raises(PageLeftError):
            browser.run(never)
        browser.visit(leaving)
        browser.wait(
            f"location.pathname.endsWith('second.html') ? document.querySelector('p') : {never}"
        )
        with pytest.raises(RuntimeError, match="ReferenceError"):
            browser.wait("noSuchName")


def test_a_run_that_was_made_again_has_its_numbers_with_or_without_a_training():
    shown = generated_pages.rebuilt_section(all_recorded())[1].data
    rows = re.findall("<tr>.*?</tr>", shown.partition("<tbody>")[2])
    assert rows and all(row.count('class="number"') >= 2 for row in rows)
    assert any("BM25" in row for row in rows)


@pytest.mark.parametrize(
    ("page", "leads"),
    [
        ("intro", "book/records/"),
        ("notebooks/your_corpus", "../book/records/"),
        ("notebooks/simlm/table07_objectives", "../../book/records/"),
    ],
)
def test_records_are_linked_from_pages_of_any_depth(page, leads):
    """A link of a figure on your_corpus, which is one folder above the others, was dead."""
    body = '<a href="../../book/records/laptop/a.jsonl.xz">a</a> <a href="../../book/other">b</a>'
    changed = at_depth(body, page.count("/"))
    assert f'href="{leads}laptop/a.jsonl.xz"' in changed and 'href="../../book/other"' in changed
