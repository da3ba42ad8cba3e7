"""Text with hostile markup, on both pages that show a reader's own text, in a real browser."""

import json
import shutil
from pathlib import Path

import pytest
from browser import Browser, needs_chromium, opened
from search_page import FOLDER, write_search

from dr_book import own_corpus
from dr_lib.lab import Cache

pytestmark = needs_chromium
ROOT = Path(__file__).resolve().parents[2]
RUN = "window.attacked=(window.attacked||0)+1"
HOSTILE = [
    f"<script>{RUN};alert(1)</script> pebble",
    f"<img src=x onerror={RUN}> pebble",
    f"\"'><svg onload={RUN}> pebble",
    f"javascript:{RUN} [pebble](javascript:{RUN})",
    f"</script></style></title><a href=javascript:{RUN}>pebble</a>",
    f"${{{RUN}}} {{{{{RUN}}}}} $body &lt;b&gt; pebble",
    "\u202epebble from right to left",
]
BROKEN_OUT = """({
    attacked: window.attacked || 0,
    handlers: [...document.querySelectorAll('*')].filter((one) =>
      one.getAttributeNames().some((name) => /^on/i.test(name))).length,
    links: [...document.querySelectorAll('a')].filter((one) =>
      one.protocol === 'javascript:').length,
    scripts: [...document.querySelectorAll('script:not([src])')].length,
})"""
NOTHING = {"attacked": 0, "handlers": 0, "links": 0, "scripts": 0}
WATCHED = (
    "for (const name of ['alert', 'confirm', 'prompt']) window[name] = () => console.error(`dialog:"
    " ${name}`);"
)
TURNED = """[...document.querySelectorAll('%s')].filter(({firstChild: text}) => {
    const range = document.createRange(), left = (place) => {
        range.setStart(text, place); range.setEnd(text, place + 1);
        return range.getBoundingClientRect().left; };
    return left(0) > left(1);
}).length"""
"""How many of the page's own texts run right to left because of a passage's text before them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A judged collection with such texts as ids, titles, passages, questions and name."""
    place = tmp_path_factory.mktemp("hostile") / f"<img src=x onerror={RUN}>"
    rows = [
        {"_id": one.split()[0] + str(i), "title": one, "text": f"{one} {one}"}
        for i, one in enumerate(HOSTILE)
    ]
    # repeated ones are listed by their ids
    rows += [row | {"_id": f"{row['_id']}<b>"} for row in rows[:2]]
    asked = [{"_id": f"<i>{i}", "text": one} for i, one in enumerate(HOSTILE)]
    (place / "qrels").mkdir(parents=True)
    for name, lines in (("corpus", rows), ("queries", asked)):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    judged = [f"<i>{i}\t{row['_id']}\t1" for i, row in enumerate(rows[: len(HOSTILE)])]
    (place / "qrels" / "test.tsv").write_text(
        "\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n"
    )
    return place


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))


def look(browser: Browser, page: Path) -> None:
    browser.send("Page.addScriptToEvaluateOnNewDocument", source=WATCHED)
    browser.visit(page)


def harmless(browser: Browser, page: Path, shown: str) -> None:
    """Nothing ran, nothing was requested from elsewhere, and every hostile text is shown letter by
    letter.
    """
    assert browser.run(BROKEN_OUT) == NOTHING
    assert browser.complaints == []
    assert all(address.startswith(page.parent.as_uri()) for address in browser.requested)
    text = browser.run(f"{shown}.textContent")
    assert [one for one in HOSTILE if one not in text] == []


def test_the_page_of_a_comparison_shows_hostile_text_as_text(folder, tmp_path):
    page = own_corpus.compare(folder, ["bm25"], scale="smoke").save_page(
        tmp_path / "out" / "index.html", HOSTILE
    )
    with opened(tmp_path / "profile") as browser:
        look(browser, page)
        harmless(browser, page, "document.body")
        marks = "document.querySelectorAll('.dr-search .verdict-held').length"
        assert browser.run(marks) == len(HOSTILE)
        assert browser.run(TURNED % ".dr-search .verdict-held") == 0
        assert browser.run("document.title").startswith("<img src=x onerror=")
        # even if a text were not escaped, the page's policy would not let it run or load anything
        browser.run("document.body.innerHTML += '<img src=x onerror=\"document.title = 1\">'")
        browser.wait("document.images[0].complete")
        assert browser.run("document.title").startswith("<img src=x onerror=")


def test_the_page_that_searches_shows_hostile_text_as_text(folder, tmp_path):
    place = tmp_path / "book"
    write_search(place, str(folder), {}, Cache(tmp_path / "stages", announce=lambda line: None))
    scripts = ("bert.js", "search.js", "elements.js", "page.js")
    for name in scripts:
        shutil.copy(ROOT / "book" / FOLDER / name, place / FOLDER)
    table = (place / FOLDER / "systems.inc").read_text()  # which the book includes
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Search</title>'
    here = '<div id="search-here" data-parts="./" hidden></div><div id="search-offered"></div>'
    loaded = "".join(f'<script src="{name}"></script>' for name in scripts)
    page = place / FOLDER / "page.html"
    page.write_text(f"{head}{here}{table}{loaded}")
    with opened(tmp_path / "profile") as browser:
        look(browser, page)
        browser.wait("document.querySelector('#search-offered button')")
        harmless(browser, page, "document.querySelector('#search-offered')")
        for question in HOSTILE:
            browser.run(f"document.querySelector('#search-query').value = {json.dumps(question)}")
            browser.run("document.querySelector('#search-shown').value = '10'")
            browser.run("document.querySelector('form').requestSubmit()")
            browser.wait("document.querySelectorAll('.results li').length")
            browser.wait("!document.querySelector('#search-here').hasAttribute('aria-busy')")
            harmless(browser, page, "document.querySelector('.results')")
            assert browser.run(TURNED % ".relevant") == 0
