"""Slides: one file from slides.yaml and the built pages. Every unit has its question, its ideas
with notes and a way back to its page, and what to remember.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from browser import needs_chromium, opened
from check_pages import ROOT
from slides import PLACE, SOURCE, deck, shown, slide_html
from teaching import load_plan

from dr_lib import collections, retrieval
from dr_lib.errors import InputError
from dr_lib.files import read_yaml

DECK = ROOT / "_build" / "html" / PLACE
PAGE = """<article><h1>Masks</h1><figure class="dr-drawing"><svg><title id="a-title">A</title></svg>
</figure><div class="dr-figure"><svg id="first"></svg></div>
<div class="dr-figure"><svg id="second"></svg></div></article>"""
UNIT = {"page": "ideas/masks", "teach": 5, "do": 9, "able": "draw one"}
UNIT |= {"question": "What & why?", "point": "Hide less."}
SLIDES = [
    {
        "title": "One <b> idea",
        "show": "ideas/masks#a-title",
        "text": "See.",
        "notes": "Ask & wait.",
    },
    {"title": "Two", "formula": ["x_1", "x_2"], "text": "Count.", "notes": "-", "page": "ideas/x"},
]


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "ideas").mkdir()
    (tmp_path / "ideas" / "masks.html").write_text(PAGE)
    fonts = tmp_path / "_static" / "fonts"
    fonts.mkdir(parents=True)
    (fonts / "a.woff2").write_bytes(b"font")
    (fonts.parent / "logo.svg").write_text("<svg/>")
    (fonts.parent / "book.css").write_text('@font-face { src: url("fonts/a.woff2"); }')
    return tmp_path


def test_a_unit_has_its_question_its_ideas_and_what_to_remember(built):
    plan = {"units": {"masks": UNIT, "gone": UNIT | {"page": "none"}, "plain": UNIT}}
    html = deck(built, plan, {"masks": SLIDES, "gone": SLIDES})
    assert html.count("<section") == 1 + 4 and '<section id="masks">' in html
    order = ["What &amp; why?", "5 minutes", "One &lt;b&gt; idea", "a-title", "Ask &amp; wait."]
    order += ["Two", 'encoding="application/x-tex">x_1', 'encoding="application/x-tex">x_2']
    order += ["Hide less.", "draw one"]
    places = [html.index(part, html.index('id="masks"')) for part in order]
    assert places == sorted(places)
    # back to the pages, and nothing loaded from beside the file
    assert html.count('href="../ideas/masks.html"') == 3 and 'href="../ideas/x.html"' in html
    assert not re.search(r'src="(?!#)|<link(?! rel="icon" href="data:)|url\("(?!data:)', html)
    assert 'rel="icon" href="data:image/svg+xml;base64,PHN2Zy8+"' in html


def test_slides_are_one_landmark_and_have_one_tip_for_all_arrows(built):
    """On pages each drawing brings its own tip."""
    page = built / "ideas" / "masks.html"
    tip = '<marker id="arrow-tip"><path/></marker>'
    page.write_text(page.read_text().replace("<title id", f"{tip}<title id"))
    html = deck(built, {"units": {"masks": UNIT}}, {"masks": SLIDES})
    assert html.count('id="arrow-tip"') == 1 and "<path/>" not in html
    inside = html.partition("<main>")[2].partition("</main>")[0]
    assert inside.count("<section") == html.count("<section") == 5


def test_headings_have_one_top(built):
    html = deck(built, {"units": {"masks": UNIT}}, {"masks": SLIDES})
    levels = [int(level) for level in re.findall(r"<h(\d)", html)]
    assert levels == [1, 2, 3, 3, 3]


def test_what_a_slide_shows_is_named_by_page_and_place(built):
    assert 'id="second"' in shown(built, "ideas/masks#2")
    page = built / "ideas" / "masks.html"
    source = '<p class="dr-source">Records: <a href="../../book/x.xz">x</a>.</p></div></article>'
    page.write_text(page.read_text().replace("</div></article>", source))
    assert '<p class="dr-source">Records: x.</p>' in shown(built, "ideas/masks#2")
    for where in ("ideas/masks#3", "ideas/masks#b-title", "ideas/none#1"):
        with pytest.raises(InputError, match="not there"):
            shown(built, where)


def test_of_a_figures_two_drawings_a_slide_shows_the_one_with_larger_letters(built):
    def drawn(wide: str, phone: str, source: str = "") -> str:
        (built / "ideas" / "two.html").write_text(
            f'<article><div class="dr-figure"><span class="dr-wide"><svg viewBox="0 0 {wide}"/>'
            f'</span><span class="dr-phone" hidden><svg viewBox="0 0 {phone}"/></span>{source}'
            "</div></article>"
        )
        return shown(built, "ideas/two#1")

    chart = drawn("530 250", "270 230")
    assert "270 230" in chart and "530 250" not in chart and "hidden" not in chart
    matrix = drawn("530 350", "270 430")
    assert "530 350" in matrix and "270 430" not in matrix
    # a matrix whose letters grow by a quarter
    assert "269 326" in drawn("585 325", "269 326")
    # below a line of origin there is less height
    assert "300 200" in drawn("300 200", "270 160") and "270 270" in drawn("530 250", "270 270")
    assert "530 250" in drawn("530 250", "270 270", '<p class="dr-source">Records: x.</p>')


def test_a_part_of_a_drawing_has_names_of_its_own(built):
    (built / "ideas" / "two.html").write_text(
        '<article><figure class="dr-drawing"><svg width="9pt" height="8pt" viewBox="0 0 9 8"'
        ' aria-labelledby="t d">'
        '<title id="t">A</title><desc id="d">B</desc><use href="#d"/></svg></figure></article>'
    )
    slide = {"title": "One", "show": "ideas/two#t", "crop": "0 4 9 4", "text": "-", "notes": "-"}
    html = slide_html(slide, built, "ideas/two")
    assert 'viewBox="0 4 9 4"' in html and "0 0 9 8" not in html
    assert "pt" not in re.search("<svg[^>]+>", html)[0], "the shape of the whole shows more"
    assert 'id="t-0-4-9-4"' in html and 'aria-labelledby="t-0-4-9-4 d-0-4-9-4"' in html
    assert 'href="#d-0-4-9-4"' in html


@pytest.mark.parametrize(
    ("sides", "more", "broad"),
    [("586 217", {}, True), ("586 300", {}, False), ("586 217", {"formula": ["x"]}, False)],
)
def test_a_broad_drawing_has_the_whole_width_above_its_text(built, sides, more, broad):
    (built / "ideas" / "two.html").write_text(
        f'<article><figure class="dr-drawing"><svg viewBox="0 0 {sides}"><title id="t">A</title>'
        "</svg></figure></article>"
    )
    slide = {"title": "One", "show": "ideas/two#t", "text": "-", "notes": "-"} | more
    assert ('class="beside broad"' in slide_html(slide, built, "ideas/two")) == broad


SMALLEST = """[...document.querySelectorAll("section .shown :is(text, tspan)")]
  .filter((text) => text.getClientRects().length && text.textContent.trim())
  .map((text) => { const { a, b } = text.closest("text").getScreenCTM();
    return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b); })
  .reduce((least, size) => Math.min(least, size), 99)"""
CUT = """[...document.querySelectorAll("section")].filter((slide) =>
  slide.scrollHeight > slide.clientHeight + 1).map((slide) => slide.textContent.slice(0, 60))"""


@pytest.mark.site
@needs_chromium
@pytest.mark.skipif(not DECK.is_file(), reason="needs the built pages (make book)")
def test_on_a_projector_labels_have_thirteen_pixels_and_no_slide_is_cut(tmp_path):
    with opened(tmp_path / "profile") as browser:
        browser.resize(1280, 720)
        browser.visit(DECK)
        assert browser.run(SMALLEST) >= 13
        assert browser.run(CUT) == []


def test_slides_belong_to_units_and_every_lesson_has_some():
    plan, slides = load_plan()["units"], read_yaml(SOURCE)
    assert slides.keys() <= plan.keys()
    lessons = {name for name, unit in plan.items() if "notebooks/lessons/" in unit["page"]}
    assert lessons <= slides.keys()
    keys = {"title", "text", "notes", "show", "crop", "formula", "page"}
    for name, unit in slides.items():
        for slide in unit:
            assert slide.keys() <= keys and {"title", "text", "notes"} <= slide.keys(), name
            assert len(slide["text"]) <= 200 and len(slide["title"]) <= 75, slide["title"]


def test_decks_follow_the_four_sessions_and_notes_are_never_on_the_slide(built):
    units = dict.fromkeys("abc", UNIT)
    sessions = [{"sessions": [["a"]]}, {"sessions": [["c"], ["b"]]}]
    html = deck(built, {"units": units, "routes": sessions}, dict.fromkeys("abc", SLIDES))
    assert re.findall(r'<section id="(.)">', html) == ["c", "b", "a"]
    slides = html.split("<section")[2:]  # behind the first, which lists the units
    assert all(slide.count("<aside hidden>") == 1 for slide in slides) and len(slides) == 12
    assert "aside { display: none; }" in html
    assert "aside { display: block" not in html and 'open("", "notes"' in html


def test_a_third_of_the_questions_of_lesson_4_have_an_answer_among_five_careless_negatives():
    data = collections.load("primer").sample(10_000, train_queries=400)
    found = retrieval.Bm25.build(data.passages, title=False)
    ranked = found.search(data.queries("train")["text"][:], 5).rows
    known = data.relevant_rows("train")
    shares = [np.isin(rows, right).any() for rows, right in zip(ranked, known, strict=True)]
    assert len(shares) == 400 and 0.3 < np.mean(shares) < 0.37
    assert "for a third of the questions an answer is among the five" in SOURCE.read_text("utf-8")
