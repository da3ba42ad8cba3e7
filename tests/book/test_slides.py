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
from test_site import OVERLAPS

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
    """On pages each drawing has its own tip."""
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
        with pytest.raises(InputError, match="missing drawing"):
            shown(built, where)


def test_of_a_figures_two_drawings_a_slide_shows_the_one_with_larger_letters(built):
    def drawn(wide: str, phone: str) -> str:
        (built / "ideas" / "two.html").write_text(
            f'<article><div class="dr-figure"><span class="dr-wide"><svg viewBox="0 0 {wide}"/>'
            f'</span><span class="dr-phone" hidden><svg viewBox="0 0 {phone}"/></span>'
            "</div></article>"
        )
        return shown(built, "ideas/two#1")

    chart = drawn("530 250", "270 230")
    assert "270 230" in chart and "530 250" not in chart and "hidden" not in chart
    matrix = drawn("530 350", "270 430")
    assert "530 350" in matrix and "270 430" not in matrix
    # a matrix whose letters grow by a quarter
    assert "269 326" in drawn("585 325", "269 326")
    assert "300 200" in drawn("300 200", "270 160") and "270 270" in drawn("530 250", "270 270")
    # a wide drawing above its text has larger letters than one for phones beside it
    assert "586 220" in drawn("586 220", "270 330")


def test_the_line_of_origin_takes_no_height_from_its_figure(built):
    source = '<p class="dr-source">Records: x.</p>'
    (built / "ideas" / "two.html").write_text(
        '<article><div class="dr-figure"><svg viewBox="0 0 300 200"/>' + source + "</div></article>"
    )
    slide = {"title": "One", "show": "ideas/two#1", "text": "Said.", "notes": "-"}
    figure, text = slide_html(slide, built, "ideas/two").split("<p>Said.</p>")
    assert source in text and "Records" not in figure


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
    [("586 262", {}, True), ("586 300", {}, False), ("586 217", {"formula": ["x"]}, False)],
)
def test_a_broad_drawing_has_the_whole_width_above_its_text(built, sides, more, broad):
    (built / "ideas" / "two.html").write_text(
        f'<article><figure class="dr-drawing"><svg viewBox="0 0 {sides}"><title id="t">A</title>'
        "</svg></figure></article>"
    )
    slide = {"title": "One", "show": "ideas/two#t", "text": "-", "notes": "-"} | more
    assert ('class="beside broad"' in slide_html(slide, built, "ideas/two")) == broad


SMALL = """[...document.querySelectorAll("section :not(footer, footer *, svg title, svg desc)")]
  .filter((one) => one.getClientRects().length
    && [...one.childNodes].some((part) => part.nodeType === 3 && part.textContent.trim()))
  .map((one) => { const { a, b } = one.closest("text")?.getScreenCTM() ?? { a: 1, b: 0 };
    return [parseFloat(getComputedStyle(one).fontSize) * Math.hypot(a, b), one.textContent]; })
  .filter(([size]) => size < 22).map(([size, text]) => `${size.toFixed(1)}: ${text}`)"""
# Elements cut by a part of a drawing; letters have empty space above and below.
THROUGH = """[...document.querySelectorAll(".shown svg")].flatMap((drawing) => {
  const frame = drawing.getBoundingClientRect(), box = drawing.viewBox.baseVal;
  const scale = Math.min(frame.width / box.width, frame.height / box.height);
  const [across, down] = [scale * box.width, scale * box.height];
  const left = frame.left + (frame.width - across) / 2, right = left + across;
  const top = frame.top + (frame.height - down) / 2, bottom = top + down;
  return [...drawing.querySelectorAll("text")].filter((one) => {
    const word = one.getBoundingClientRect(), empty = 0.15 * word.height;
    const [above, below] = [word.top + empty, word.bottom - empty];
    const meets = word.right > left && word.left < right && below > top && above < bottom;
    return meets && (word.left < left - 1 || word.right > right + 1 || above < top
      || below > bottom);
  }).map((one) => one.textContent); })"""
# On a screen a slide grows with its content; on paper the rest is cut off.
CUT = """[...document.querySelectorAll("section")].filter((slide) =>
  Math.max(slide.scrollHeight, slide.offsetHeight) > innerHeight)
  .map((slide) => slide.textContent.slice(0, 60))"""


@pytest.mark.site
@needs_chromium
@pytest.mark.skipif(not DECK.is_file(), reason="needs the built pages (make book)")
def test_on_a_projector_letters_have_22_pixels_and_nothing_is_cut(tmp_path):
    with opened(tmp_path / "profile") as browser:
        browser.resize(1280, 720)
        browser.visit(DECK)
        assert browser.run(SMALL) == []
        assert browser.run(CUT) == []
        assert browser.run(THROUGH) == []
        assert browser.run(OVERLAPS.replace("main svg", ".shown svg")) == []


def test_slides_belong_to_units_and_every_lesson_has_some():
    plan, slides = load_plan()["units"], read_yaml(SOURCE)
    assert slides.keys() <= plan.keys()
    lessons = {name for name, unit in plan.items() if "notebooks/lessons/" in unit["page"]}
    assert lessons <= slides.keys()
    keys = {"title", "text", "notes", "show", "crop", "formula", "page"}
    for name, unit in slides.items():
        for slide in unit:
            assert slide.keys() <= keys and {"title", "text", "notes"} <= slide.keys(), name
            # one line of a title, so that a drawing has the height that the look gives it
            assert len(slide["text"]) <= 200 and len(slide["title"]) <= 56, slide["title"]


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
