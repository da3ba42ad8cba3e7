"""Every page of the built book in Chromium, from disk and without network: `make check` runs this
after `make book`.

No error, no other host, nothing wider than a phone, no serious finding of axe-core
(https://github.com/dequelabs/axe-core) in the light and the dark theme; search and widgets work by
keyboard.
"""

import json
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from browser import Browser, needs_chromium, opened
from check_pages import ALWAYS, ROOT, expected_pages
from test_book_search import FOUND

HTML = ROOT / "_build" / "html"
PAGES = expected_pages(ROOT / "_toc.yml")
AXE = find_spec("axe_core_python")
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
SAME = (".bd-sidebar-primary", ".bd-header", ".bd-footer")
"""Parts that are the same on every page, checked once."""
PHONE, SCREEN = 390, 1200
PATIENCE = 600.0  # seconds for axe-core
COLOURS = "color-contrast"
pytestmark = [
    pytest.mark.site,
    pytest.mark.xdist_group("site"),
    needs_chromium,
    pytest.mark.skipif(
        not (HTML / "searchindex.js").is_file(), reason="needs the built pages (make book)"
    ),
]

FINDINGS = """axe.run(%s, %s).then(({ violations }) => violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .flatMap((one) => one.nodes.map((at) =>
    `${one.id}: ${at.target.join(" ")}: ${at.failureSummary}`)))"""
# Removes every text that comes after four others of the same colours, judged by tag, class, style
# and attributes of its ancestors (rows of a table: odd and even), and elements that become empty:
# axe-core takes a millisecond for each. Drawings are removed too, as it judges nothing there. Forms
# stay whole. Records how many texts were removed.
LESS_OF_THE_SAME = """(() => {
  const seen = new Map(), form = "button, select, input, textarea";
  let gone = 0;
  const look = (one, around) => {
    if (one.matches(form)) return;
    if (one.tagName === "svg") return one.replaceChildren();
    const row = one.tagName === "TR" && one.rowIndex % 2;
    const at = [around, one.tagName, one.className, one.getAttribute("style"), row,
      one.getAttributeNames().sort()].join(" ");
    for (const child of [...one.children]) look(child, at);
    const texts = [...one.childNodes].filter((child) => child.nodeType === 3 && child.data.trim());
    if (texts.length) {
      seen.set(at, (seen.get(at) ?? 0) + 1);
      if (seen.get(at) <= 4) return;
      gone += 1;
      texts.forEach((text) => text.remove());
    }
    if (!one.children.length && !one.matches("img, main")) one.remove();
  };
  look(document.querySelector("main"), "");
  return gone;
})()"""
# Elements that extend beyond the window, unless an ancestor scrolls or hides them.
TOO_WIDE = """(() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const inside = (one) =>
    one !== document.body &&
    (getComputedStyle(one).overflowX !== "visible" || inside(one.parentElement));
  const wide = [...document.body.querySelectorAll("*")].filter((one) =>
    one.getBoundingClientRect().right > width + 1);
  const told = (one) => `${one.tagName}.${one.className}: ${one.textContent.trim().slice(0, 30)}`;
  return [document.documentElement.scrollWidth, ...wide.filter((one) =>
    !inside(one.parentElement)).slice(0, 5).map(told)];
})()"""

# Figures are drawn twice, and one drawing fits the window.
NOT_ONCE = """[...document.querySelectorAll(".dr-figure")].filter((one) => one.checkVisibility()
  && [...one.querySelectorAll("svg")].filter((svg) => svg.checkVisibility()).length !== 1)
  .map((one) => one.querySelector("svg").ariaLabel.slice(0, 50))"""

# Text of a drawing smaller than 12 pixels on a phone, or than 10.5 in a thumbnail.
TOO_SMALL = """[...document.querySelectorAll("main svg text")]
  .filter((one) => one.textContent.trim() && one.checkVisibility())
  .map((one) => [one, one.getScreenCTM()])
  .map(([one, to]) => [one, Math.hypot(to.a, to.b) * parseFloat(getComputedStyle(one).fontSize)])
  .filter(([one, size]) => size < (one.closest(".dr-grid") ? 10.5 : 11.95))
  .map(([one, size]) => `${size.toFixed(1)}: ${one.textContent.trim()}`).slice(0, 5)"""


# Texts of a drawing that overlap or touch; rotated ones have boxes larger than they are.
OVERLAPS = """[...document.querySelectorAll("main svg")].filter((svg) => svg.checkVisibility())
  .flatMap((svg) => {
    const texts = [...svg.querySelectorAll("text")].filter((one) => one.textContent.trim()
      && !one.closest("[transform*=rotate]")).map((one) => [one, one.getBoundingClientRect()]);
    return texts.flatMap(([one, a], i) => texts.slice(i + 1).filter(([, b]) =>
      Math.min(a.right, b.right) - Math.max(a.left, b.left) > -2 &&
      Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 8)
      .map(([other]) => `${one.textContent.trim()} on ${other.textContent.trim()}`));
  }).slice(0, 5)"""

# Texts of a drawing that extend beyond it, where they are cut off, and texts of a figure crossed by
# a line other than the grid's.
CUT_OR_STRUCK = """[...document.querySelectorAll("main svg")]
  .filter((svg) => svg.checkVisibility() && !svg.closest(".dr-grid"))
  .flatMap((svg) => {
    const edge = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].filter((one) => one.textContent.trim()
      && one.checkVisibility()).map((one) => [one, one.getBoundingClientRect()]);
    const cut = texts.filter(([, box]) => box.left < edge.left - 4 || box.right > edge.right + 4
      || box.top < edge.top - 4 || box.bottom > edge.bottom + 4);
    const level = texts.filter(([one]) => !one.closest("[transform*=rotate]"));
    const paths = svg.closest(".dr-figure") ? [...svg.querySelectorAll("path")] : [];
    const lines = paths.filter((one) =>
      getComputedStyle(one).stroke !== "none" && !one.closest("defs, clipPath")
      && !one.getAttribute("style").includes("-grid"));
    const points = lines.flatMap((one) => {
      const length = one.getTotalLength(), to = one.getScreenCTM();
      const steps = Math.min(200, Math.round(length / 4) + 1);
      return Array.from({ length: steps + 1 }, (_, i) =>
        one.getPointAtLength(length * i / steps).matrixTransform(to));
    });
    const struck = level.filter(([, box]) => points.some(({ x, y }) => x > box.left + 1
      && x < box.right - 1 && y > box.top + 4 && y < box.bottom - 4));
    return [...cut, ...struck].map(([one]) => one.textContent.trim());
  }).slice(0, 5)"""

# Tables that a phone cuts off: every table has a form that fits.
SCROLLS = """[...document.querySelectorAll("main :is(.dr-table, .pst-scrollable-table-container)")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.textContent.trim().slice(0, 50))"""

# More than two phone screens of nothing but text before the page's first figure, table or code.
ONLY_TEXT = """(() => {
  const shown = (what) => [...document.querySelectorAll(`article :is(${what})`)]
    .filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect());
  const results = "svg, table, pre, img, form, .dr-explorer";
  const first = Math.min(...shown(results).map((one) => one.top));
  const marks = shown(`h1, h2, h3, summary, .dr-claims, ${results}`);
  const heights = marks.filter((one) => one.top <= first).sort((a, b) => a.top - b.top)
    .map((one, i, all) => one.top - (i ? all[i - 1].bottom : one.top));
  return heights.filter((height) => height > 2 * 844);
})()"""


# The longest stretch of nothing but text, in pixels.
STRETCH = """(() => {
  const marks = "h1, h2, h3, summary, .admonition, svg, table, pre, img, form, .dr-explorer";
  const boxes = [...document.querySelectorAll(`article :is(${marks})`)]
    .filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect())
    .sort((a, b) => a.top - b.top);
  let end = boxes[0].bottom;
  return Math.max(...boxes.map(({ top, bottom }) => {
    const height = top - end;
    end = Math.max(end, bottom);
    return height;
  }));
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    with opened(tmp_path_factory.mktemp("profile"), SCREEN) as browser:
        if AXE:
            source = (Path(AXE.origin).parent / "axe.min.js").read_text(encoding="utf-8")
            browser.send("Page.addScriptToEvaluateOnNewDocument", source=source)
        yield browser


def visit(browser: Browser, name: str, query: str = "") -> None:
    """Open a page of the book in the light theme, at the width of a screen."""
    browser.resize(SCREEN)
    browser.visit(HTML / f"{name}.html", query)
    # Also folded parts: if they are closed, axe-core mistakes their background colour.
    browser.run("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
    show(browser, "light")


def show(browser: Browser, theme: str) -> None:
    """Switch the theme, without transitions of colours and folded parts."""
    at_once = "* { transition: none !important; animation: none !important }"
    style = f"Object.assign(document.createElement('style'), {{ textContent: '{at_once}' }})"
    browser.run(
        f"document.head.append({style}), document.documentElement.dataset.theme = '{theme}'"
    )


def findings(
    browser: Browser,
    kind: str,
    values: Sequence[str],
    without: Sequence[str] = (),
    but: Sequence[str] = (),
) -> list[str]:
    """Serious findings of axe-core by tags or rules; parts of the page, and rules of a tag, can be
    excluded.
    """
    where = {"include": [["html"]], "exclude": [[one] for one in without]}
    options = {
        "resultTypes": ["violations"],
        "preload": False,
        "runOnly": {"type": kind, "values": values},
        "rules": {rule: {"enabled": False} for rule in but},
    }
    return browser.run(FINDINGS % (json.dumps(where), json.dumps(options)), within=PATIENCE)


@pytest.mark.parametrize("name", PAGES)
def test_page(browser, name):
    visit(browser, name)
    found = {}
    found["other hosts"] = [
        url for url in browser.requested if not url.startswith(("file:", "data:", "blob:"))
    ]
    same = () if name == "intro" else SAME
    if AXE:
        found["accessibility"] = findings(browser, "tag", TAGS, same, but=[COLOURS])
    found["figures not drawn once"] = browser.run(NOT_ONCE)
    found["texts on each other"] = browser.run(OVERLAPS)
    found["texts cut or struck"] = browser.run(CUT_OR_STRUCK)
    browser.resize(PHONE)
    found["texts on each other on a phone"] = browser.run(OVERLAPS)
    found["texts cut or struck on a phone"] = browser.run(CUT_OR_STRUCK)
    found["too wide"] = browser.run(TOO_WIDE)
    found["tables that scroll on a phone"] = browser.run(SCROLLS)
    if not name.startswith("reference/api/"):  # docstrings are looked up and have no result
        found["text alone before the first result on a phone"] = browser.run(ONLY_TEXT)
    found["figures not drawn once on a phone"] = browser.run(NOT_ONCE)
    found["letters too small on a phone"] = browser.run(TOO_SMALL)
    found["no drawing on a phone"] = browser.run(
        "[...document.querySelectorAll('main .dr-figure')].filter((one) => one.offsetParent &&"
        " ![...one.querySelectorAll('svg')].some((svg) => svg.clientHeight > 30)).length"
    )
    found["complaints"] = list(browser.complaints)  # those of the whole page
    if AXE:
        browser.resize(SCREEN)
        browser.run(LESS_OF_THE_SAME)
        found["light"] = findings(browser, "rule", [COLOURS], same)
        show(browser, "dark")
        found["dark"] = findings(browser, "rule", [COLOURS], same)
    assert {kind: told for kind, told in found.items() if told} == {}


@pytest.mark.parametrize(
    "name",
    # docstrings are looked up
    [name for name in PAGES if name not in ALWAYS and not name.startswith("reference/api")],
)
def test_text_alone_is_no_longer_than_a_screen_and_a_half_of_a_phone(browser, name):
    browser.resize(PHONE)
    browser.visit(HTML / f"{name}.html")
    assert browser.run(STRETCH) < 1.5 * 844


def test_the_letters_of_the_index_of_modules_can_be_read_in_the_dark(browser):
    """axe-core does not judge texts of a single letter."""
    visit(browser, "py-modindex")
    show(browser, "dark")
    ground = browser.run("getComputedStyle(document.querySelector('tr.cap')).backgroundColor")
    assert max(map(int, re.findall(r"\d+", ground)[:3])) < 90, ground


@pytest.mark.skipif(AXE is None, reason="needs axe-core-python (requirements.lock)")
def test_axe_core_finds_what_is_wrong(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        '<!doctype html><title>x</title><img src="data:,"><p style="color: #ccc; background:'
        ' #fff">pale</p>'
    )
    browser.visit(page)
    found = " ".join(findings(browser, "tag", TAGS))
    assert "image-alt" in found and "color-contrast" in found and "html-has-lang" in found


@pytest.mark.skipif(AXE is None, reason="needs axe-core-python (requirements.lock)")
def test_a_pale_text_among_many_of_its_kind_is_found(browser, tmp_path):
    row = "<tr><td>read</td><td><code>me</code></td></tr>"
    pale = [  # by its own style, by that of a part, by a class
        '<tr><td style="color: #ccc">first</td><td><code>me</code></td></tr>',
        '<tr><td>read</td><td><code>me <b class="pale">second</b></code></td></tr>',
        '<tr class="pale"><td>third</td><td><code>me</code></td></tr>',
    ]
    page = tmp_path / "page.html"
    page.write_text(
        "<!doctype html><html lang=en><title>x</title><style>.pale { color: #ccc }</style>"
        f"<main><table>{row * 30}{''.join(one + row * 30 for one in pale)}</table></main>"
    )
    browser.visit(page)
    assert browser.run(LESS_OF_THE_SAME) == 2 * (4 * 30 + 2) - 2 * 2 * 4 - 1
    found = " ".join(findings(browser, "rule", [COLOURS]))
    assert found.count("color-contrast") == 4  # both cells of the third


def focus(browser: Browser, selector: str) -> None:
    """Go to an element using only the Tab key."""
    for _ in range(400):
        browser.press("Tab")
        if browser.run(f"document.activeElement.matches({json.dumps(selector)})"):
            return
    raise AssertionError(f"the Tab key does not reach {selector}")


def test_the_whole_site_fits_in_45_megabytes():
    sizes = {path.relative_to(HTML).parts[0]: 0 for path in HTML.iterdir()}
    for path in HTML.rglob("*"):
        sizes[path.relative_to(HTML).parts[0]] += path.stat().st_size if path.is_file() else 0
    assert sum(sizes.values()) < 45e6, sorted(sizes.items(), key=lambda one: -one[1])[:5]


SPILLED = """[...document.querySelectorAll("section")].flatMap((slide) => {
  const foot = slide.querySelector("footer")?.getBoundingClientRect().top ?? Infinity;
  const told = slide.querySelector("h1, h2, h3").textContent;
  const parts = [...slide.querySelectorAll("*")].filter((one) => !one.closest("footer, aside")
    && !one.parentElement.closest("svg"));  // what a drawing crops has a box, too
  const boxes = parts.map((one) => one.getBoundingClientRect()).filter((box) => box.width);
  return slide.offsetHeight > innerHeight || boxes.some((box) => box.bottom > foot ||
    box.top < slide.getBoundingClientRect().top || box.right > innerWidth) ? [told] : [];
})"""


def test_no_slide_touches_the_edge_of_a_projector(browser):
    """1280 x 720, which is also a sheet of the PDF."""
    size = {"width": 1280, "height": 720, "deviceScaleFactor": 1, "mobile": False}
    browser.send("Emulation.setDeviceMetricsOverride", **size)
    browser.visit(HTML / "teaching" / "slides.html")
    assert browser.run("document.querySelectorAll('section').length") > 40
    assert browser.run(SPILLED) == [] and browser.complaints == []
    browser.press("n")  # the notes are in a separate window
    assert browser.run("speaker !== null && speaker !== window")
    assert not browser.run("[...document.querySelectorAll('aside')].some(a => a.offsetHeight)")


def test_the_search_of_the_book_works_by_keyboard(browser):
    visit(browser, "intro")
    browser.press("k", modifiers=2)
    browser.wait("document.activeElement.matches('input[type=search]')")
    browser.type("bottleneck")
    browser.press("Enter")
    browser.wait(
        "location.pathname.endsWith('search.html') && document.querySelectorAll('#book-search"
        " section').length === 3"
    )
    kinds = "[...document.querySelectorAll('#book-search .dr-kind')].map((one) => one.textContent)"
    assert {"idea", "lesson"} <= {*browser.run(kinds)}
    assert "bottleneck" in browser.run(
        "[...document.querySelectorAll('#book-search mark')].map((one) =>"
        " one.textContent.toLowerCase())"
    )
    focus(browser, "#book-search li a")
    browser.press("Enter")
    browser.wait("!location.pathname.endsWith('search.html') && document.readyState === 'complete'")
    assert "bottleneck" in browser.run(
        "document.querySelector('article').textContent.toLowerCase()"
    )


@pytest.mark.parametrize("query", FOUND)
def test_what_readers_type_is_among_the_first_three(browser, query):
    visit(browser, "search", f"?q={quote_plus(query)}")
    browser.wait("document.querySelectorAll('#book-search section').length === 3")
    hits = "[...document.querySelectorAll('#book-search section:first-of-type > ol > li')]"
    firsts = browser.run(
        f"{hits}.slice(0, 3).map((hit) => hit.querySelector('.title a').getAttribute('href'))"
    )
    assert FOUND[query] in {link.partition("#")[0].removeprefix("./") for link in firsts}
    if AXE:
        assert findings(browser, "tag", TAGS, SAME) == []
    browser.resize(PHONE)
    assert browser.run(TOO_WIDE) == [] and browser.complaints == []


@pytest.mark.parametrize("query", ["x" * 5000, "qwxz frobnicate"], ids=["long", "nonsense"])
def test_of_words_that_are_nowhere_the_search_says_so_and_its_page_stays_narrow(browser, query):
    visit(browser, "search", f"?q={quote_plus(query)}")
    status = "document.querySelector('#book-search .status').textContent"
    browser.wait(f"{status}.includes('by meaning the nearest')")
    heads = "[...document.querySelectorAll('#book-search h2')].map((one) => one.firstChild.data)"
    assert browser.run(heads) == ["By words", "By meaning"]  # nothing to put together
    assert "Most of its words are in no passage" in browser.run(
        "document.querySelector('#book-search section:last-child').textContent"
    )
    assert len(browser.run(status)) < 200
    browser.resize(PHONE)
    assert browser.run(TOO_WIDE) == [] and browser.complaints == []


def test_without_javascript_a_page_has_the_colours_of_the_light_theme(browser):
    colour = "getComputedStyle(document.documentElement).getPropertyValue('--pst-color-link')"
    theme = "[document.documentElement.dataset.mode, document.documentElement.dataset.theme]"
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    browser.visit(HTML / "intro.html")
    browser.send("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.run(colour) and browser.run(theme) == [None, None]
    browser.run("localStorage.clear()")
    browser.visit(HTML / "intro.html")  # with it as the reader's system is
    assert browser.run(colour) and browser.run(theme) == ["auto", "light"]


def test_the_first_page_answers_before_and_after_somebody_types(browser):
    visit(browser, "intro")
    lit = "document.querySelectorAll('#home-ask li.lit').length"
    loaded = "document.querySelectorAll('script[src*=\"model-\"]').length"
    assert browser.run(lit) >= 1 and browser.run(loaded) == 0
    first = browser.run("document.querySelector('#ask-query').value")
    focus(browser, "#home-ask .next")
    browser.press("Enter")
    assert browser.run("document.querySelector('#ask-query').value") != first
    browser.run("document.querySelector('#ask-query').value = ''")
    browser.run("document.querySelector('#ask-query').focus()")
    browser.press("Enter")
    assert (
        browser.run("document.querySelector('#home-ask .status').textContent")
        == "Type a question first."
    )
    browser.type("why do cats purr")
    browser.press("Enter")
    browser.wait(
        "document.querySelector('#home-ask .status').textContent.startsWith('Your question')"
    )
    assert browser.run("document.querySelectorAll('#home-ask section li').length") > 3
    assert browser.complaints == []


def test_a_page_opens_with_what_was_found_and_ends_with_what_was_not_measured():
    for path in sorted((HTML / "notebooks").rglob("*.html")):
        article = path.read_text(encoding="utf-8").partition("<article")[2]
        top = article.partition("<h2")[0]
        assert ("dr-leading" in top) == ("dr-leading" in article), path
        assert "easured yet" not in top, path
        for nothing in re.finditer(r"Not measured yet: (\d+) of \1 rows\.", article):
            assert "<h2" not in article[nothing.end() :], path


def test_every_page_is_reached_from_the_sidebar_or_an_article():
    pages = {name for name in expected_pages(ROOT / "_toc.yml") if name not in ALWAYS}
    linked: set[str] = set()
    for name in pages:
        text = (HTML / f"{name}.html").read_text(encoding="utf-8")
        sidebar = text[text.index('<nav class="bd-links') :].partition("</nav>")[0]
        article = text[text.index("<article") :].partition("</article>")[0]
        for link in re.findall(r'href="([^"#]+\.html)', sidebar + article):
            target = (HTML / f"{name}.html").parent / link
            linked.add(target.resolve().relative_to(HTML.resolve()).with_suffix("").as_posix())
    assert pages - linked - {"intro"} == set()


def test_the_theme_changes_by_keyboard(browser):
    visit(browser, "intro")
    seen = set()
    for _ in range(3):
        # each time anew: the theme's script hides its hint by leaving the button
        focus(browser, ".theme-switch-button")
        browser.press("Enter")
        seen.add(browser.run("document.documentElement.dataset.theme"))
    assert seen == {"light", "dark"}


def test_the_masks_explorer_works_by_keyboard(browser):
    visit(browser, "ideas/masks-explorer")
    text = "document.getElementById('masks-text').innerHTML"
    focus(browser, "#masks-rate")
    before = browser.run(text)
    browser.press("ArrowRight")
    moved = browser.run(text)
    focus(browser, "#masks-here button")
    browser.press("Space")
    assert len({before, moved, browser.run(text)}) == 3


@pytest.mark.parametrize(
    "page", ["masks-explorer", "temperature-explorer", "pretrain-explorer", "queries-explorer"]
)
def test_a_phone_shows_a_control_and_what_it_does_within_a_screen_and_a_half(browser, page):
    """On the page on masks, three screens of pictures preceded the first control."""
    visit(browser, f"ideas/{page}")
    browser.resize(PHONE, 844)
    shown = "[...document.querySelectorAll('.dr-explorer :is(select, input, button)')]"
    tops = "filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect().top)"
    assert browser.run(f"Math.min(...{shown}.{tops})") < 844
    if page == "masks-explorer":
        words = "document.querySelector('#masks-text .hidden').getBoundingClientRect().bottom"
        assert browser.run(words) < 1.5 * 844


def test_the_claims_are_filtered_by_keyboard(browser):
    visit(browser, "reference/claims")
    claims = "[...document.querySelectorAll('article .dr-claim')]"
    shown = f"{claims}.filter((one) => one.offsetParent).length"
    before = browser.run(shown)
    focus(browser, ".dr-filter select")
    browser.press("ArrowDown")
    browser.wait(f"{shown} < {before}")


def test_the_models_answer_by_keyboard(browser):
    visit(browser, "practice/search-in-the-page")
    browser.wait("document.querySelector('#search-offered button')")
    focus(browser, "#search-query")
    browser.type("sort an array along one axis")
    browser.press("Enter")
    browser.wait("document.querySelector('#search-here .results li')")
    found = browser.run(
        "[...document.querySelectorAll('#search-here section')].map((one) =>"
        " one.querySelectorAll('li').length)"
    )
    assert set(found) == {3}
    focus(browser, "#search-offered button")
    browser.press("Enter")
    browser.wait(
        "document.querySelector('#search-here .status').textContent.includes('A judged question')"
    )
    assert not AXE or findings(browser, "tag", TAGS, SAME) == []
    browser.resize(PHONE)
    assert browser.run(TOO_WIDE) == [] and browser.complaints == []
