"""Sphinx extension: the slides for teaching, one HTML file, from book/teaching/slides.yaml and the
drawings and figures of the built pages.

A slide has one idea: its title states it, a drawing, a figure or formulas show it, notes tell the
speaker what to ask. Every unit of the lesson plan that has slides begins with its question and ends
with what to remember. Arrow keys move, `n` opens the notes in a second window, and each slide links
to its page. `make slides` prints the file to PDF, one slide per sheet.
"""

import base64
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Tag
from native_math import to_mathml
from sphinx.application import Sphinx
from teaching import load_plan

from dr_book.tables import typographic
from dr_lib.errors import InputError
from dr_lib.files import read_yaml

PLACE = "teaching/slides.html"
SOURCE = Path(__file__).resolve().parents[1] / "teaching" / "slides.yaml"
ARROW = (
    '<svg width="0" height="0" style="position: absolute" aria-hidden="true"><marker id="arrow-tip"'
    ' viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path'
    ' class="tip" d="M0 0 8 4 0 8z"/></marker></svg>'
)
"""The arrow head for drawings, which the style sheet refers to; on pages each drawing has its own.
"""
LOOK = """
html { scroll-snap-type: y mandatory; background: #fff; color: #24292f; }
html { font: clamp(1rem, 0.7rem + 1.15vw, 1.9rem)/1.35 "Book Text", serif; }
body { margin: 0; }
section { box-sizing: border-box; min-height: 100vh; padding: 6vh 6vw 9vh; position: relative;
  scroll-snap-align: start; break-after: page; break-inside: avoid; overflow: hidden; }
section { display: flex; flex-direction: column; justify-content: flex-start; }
h1 { font-size: 2.6em; line-height: 1.15; margin: 0 0 1rem; }
h2 { font-size: 2.2em; line-height: 1.2; margin: 0 0 1rem; max-width: 22em; }
h3 { font-size: 1.6em; line-height: 1.2; margin: 0 0 1.2rem; font-weight: 600; }
p { margin: 0.5rem 0; max-width: 34em; }
.beside { display: grid; gap: 4vw; align-items: center; }
.shown > * { width: 100%; margin: 0; }
.shown svg { display: block; width: 100%; height: auto; max-height: 72vh; }
.broad .shown svg { max-height: 58vh; } .beside.broad { gap: 2vh; } .broad p { max-width: none; }
h3:has(+ .broad) { margin-bottom: 0.4rem; }
.dr-source { font-size: 0.85em; line-height: 1.3; }
.shown .dr-drawing:not(.wide) :is(svg, .name, .small) { font-size: 14.5px; }
.shown .index { font-size: 0.99em; }
.tip { fill: context-stroke; }
.formula { margin: 0.8rem 0; font-size: 1.17em; text-align: left; }
.formula math { width: auto; display: inline-block math; margin: 0; }
section:not(:has(.beside)) > h3 { font-size: 2em; }
section:not(:has(.beside)) > h3 ~ :is(p, .formula) { font-size: 1.5em; }
section:not(:has(.beside)) > h3 ~ p { max-width: 28em; }
@media (max-width: 30rem) { section .formula { font-size: 0.98em !important; } }
section > .beside { margin: auto 0; }
section > h3 + :not(.beside), section > :is(h2, nav) { margin-top: auto; }
section > p:last-of-type { margin-bottom: auto; }
section:has(> h2) { background: var(--dr-fill); border-left: 1.2vw solid var(--dr-blue); }
section > h3 + p:has(> strong) { border-left: 0.4vw solid var(--dr-blue); padding-left: 1.5vw; }
footer { position: absolute; bottom: 3vh; left: 6vw; right: 6vw; font-size: 0.65em;
  color: var(--dr-grey); display: flex; justify-content: space-between; }
aside { display: none; }
figcaption { display: none !important; } a { color: var(--dr-blue); } nav a { margin-right: 1rem; }
small { color: var(--dr-grey); font-size: 0.85em; } nav { font-size: 0.85em; }
nav { line-height: 1.6; column-gap: 3rem; }
@media (min-width: 50rem) { .beside:not(.broad) { grid-template-columns: 2.1fr 1fr; } }
@media (min-width: 50rem) { .broad > div:has(> .dr-source) { display: flex; gap: 3vw; } }
@media (min-width: 50rem) { .broad > div > * { flex: 1; } .broad > div > .dr-source { flex: 1.2; } }
@media (min-width: 50rem) { nav { columns: 2; } }
@page { size: 1280px 720px; margin: 0; }
@media print { section { height: 720px; min-height: 0; } }
"""
MOVE = """
let speaker;
const here = () => [...document.querySelectorAll("section")].find(
  (slide) => slide.getBoundingClientRect().bottom > innerHeight / 2);
function tell() {
  if (!speaker || speaker.closed) return;
  const title = here().querySelector("h1, h2, h3"), notes = here().querySelector("aside");
  const parts = [["h1", title], ["p", notes]].map(([tag, text]) =>
    Object.assign(speaker.document.createElement(tag), { textContent: text?.textContent ?? "" }));
  speaker.document.title = "Speaker's notes";
  speaker.document.body.style.font = "1.4rem/1.4 serif";
  speaker.document.body.replaceChildren(...parts);
}
addEventListener("scroll", tell);
addEventListener("keydown", (event) => {
  if (event.key === "n") {
    speaker = open("", "notes", "width=700,height=500");
    tell();
  }
  const step = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1,
    PageUp: -1 }[event.key];
  if (!step) return;
  const slides = [...document.querySelectorAll("section")];
  const place = slides.indexOf(here());
  slides[Math.max(0, Math.min(slides.length - 1, place + step))].scrollIntoView();
  event.preventDefault();
});
"""

Slide = Mapping[str, Any]
BESIDE, BROAD = (728, 518), (1126, 417)
"""Width and height of the drawing on a slide of 1,280 by 720 pixels, the style's `.shown svg`:
beside the text, or above it if the last row needs the room for readable letters.
"""


def shown(built: Path, where: str) -> str:
    """A drawing by the id of its title, or a figure by its number, of a built page as HTML.

    Raises:
        InputError: the page, or the drawing or figure on it, does not exist.
    """
    page, _, name = where.partition("#")
    path = built / f"{page}.html"
    article = (
        BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser") if path.is_file() else None
    )
    if article and name.isdigit():
        figures = article.select("article .dr-figure")[int(name) - 1 :][:1]
    else:
        figures = article.select(f"figure.dr-drawing:has(#{name})") if article else []
    if not figures:
        raise InputError("a slide shows a missing drawing", where=where, fix="Mend slides.yaml.")
    for marker in figures[0].select("marker#arrow-tip"):  # the slides have one: `ARROW`
        marker.decompose()
    if wide := figures[0].select_one(".dr-wide"):
        phone = figures[0].select_one(".dr-phone")
        # letters for the last row, which a broad place may give the wide one too
        if _scale(phone) > max(1.2 * _scale(wide), _scale(wide, BROAD)):
            phone.attrs.pop("hidden")
            wide.decompose()
        else:
            phone.decompose()
    for link in figures[0].select("a"):  # it leads on from its page, which the slide links
        link.unwrap()
    return str(figures[0])


def _scale(drawing: Tag, place: tuple[int, int] = BESIDE) -> float:
    """The scale of a drawing, and of its letters, in a place on a slide."""
    across, down = _sides(drawing)
    return min(place[0] / across, place[1] / down)


def _sides(drawing: Tag) -> tuple[float, float]:
    """Width and height of a drawing, in its own units."""
    across, down = map(float, drawing.svg.get("viewbox", "0 0 1 1").split()[2:])
    return across, down


def cropped(drawing: str, part: str) -> str:
    """A part of a drawing with view box `part`; ids are renamed, as another slide may show another
    part. Width and height of the whole are removed: with them more than the part would show.
    """
    drawing = re.sub(r'(?i)viewbox="[^"]+"', f'viewBox="{part}"', drawing, count=1)
    whole = r' (?:width|height)="[^"]+"'
    drawing = re.sub("<svg[^>]+>", lambda tag: re.sub(whole, "", tag[0]), drawing, count=1)
    names = re.findall(r'\bid="([^"]+)"', drawing)
    suffix = "-" + "-".join(part.split())
    for name in names:
        drawing = re.sub(rf'(?<=[" #]){re.escape(name)}(?=[" )])', name + suffix, drawing)
    return drawing


def slide_html(slide: Slide, built: Path, page: str) -> str:
    """One slide.

    Args:
        slide: `title`, `text`, `notes`; optionally `show` (and `crop`), `formula` and `page`.
        built: folder of the built pages.
        page: the page that the slide links to, if it names none.
    """
    formulas = "".join(
        f'<div class="formula">{to_mathml(one, display=True)}</div>'
        for one in slide.get("formula", [])
    )
    text = f"{formulas}<p>{_text(slide['text'])}</p>"
    if where := slide.get("show"):
        drawing = shown(built, where)
        if part := slide.get("crop"):
            drawing = cropped(drawing, part)
        drawn = BeautifulSoup(drawing, "html.parser")
        # a formula needs the height beside it
        broad = not formulas and _scale(drawn, BROAD) > 1.25 * _scale(drawn)
        place = "beside broad" if broad else "beside"
        # the line of provenance takes room from the text, not from the figure
        origin = "".join(str(line.extract()) for line in drawn.select(".dr-source"))
        text = (
            f'<div class="{place}"><div class="shown">{drawn if origin else drawing}</div>'
            f"<div>{text}{origin}</div></div>"
        )
    notes = _notes(slide["notes"])
    foot = _footer(slide.get("page", page))
    return f"<section><h3>{_text(slide['title'])}</h3>{text}{notes}{foot}</section>"


def _text(words: str) -> str:
    return html.escape(typographic(words))


def _notes(words: str) -> str:
    return f"<aside hidden>{_text(words)}</aside>"


def _footer(page: str) -> str:
    return (
        f'<footer><a href="../{page}.html">the page</a>'
        "<span>The Dense Retrieval Book</span></footer>"
    )


def unit_slides(
    name: str, unit: Mapping[str, Any], slides: Sequence[Slide], built: Path
) -> Iterator[str]:
    """The slides of a unit: its question, its ideas, what to remember."""
    page = unit["page"]
    ask = _notes("Collect answers before you go on, and write them down. They return at the end.")
    done = "Read out the answers from the beginning. Which of them would you still give?"
    done += f" Then come the exercises: {unit['do']} minutes." if unit["do"] else ""
    about = f"{unit['teach']} minutes, and {unit['do']} for exercises"
    yield (
        f'<section id="{name}"><h2>{_text(unit["question"])}</h2>'
        f"<p><small>{about}</small></p>{ask}{_footer(page)}</section>"
    )
    for slide in slides:
        yield slide_html(slide, built, page)
    yield (
        f"<section><h3>Remember</h3><p><strong>{_text(unit['point'])}</strong></p>"
        f"<p>Afterwards you can {_text(unit['able'])}.</p>{_notes(done)}{_footer(page)}"
        "</section>"
    )


def deck(built: Path, plan: Mapping[str, Any], slides: Mapping[str, Sequence[Slide]]) -> str:
    """All slides as one HTML file; units whose page was not built are left out."""
    sessions = [session for route in plan.get("routes", [])[1:2] for session in route["sessions"]]
    order = dict.fromkeys([*(name for names in sessions for name in names), *plan["units"]])
    units = {
        name: unit
        for name, unit in ((name, plan["units"][name]) for name in order)
        if name in slides and (built / f"{unit['page']}.html").is_file()
    }
    parts = [
        part
        for name, unit in units.items()
        for part in unit_slides(name, unit, slides[name], built)
    ]
    links = " ".join(
        f'<a href="#{name}">{_text(unit["question"])}</a><br>' for name, unit in units.items()
    )
    first = (
        f"<section><h1>The Dense Retrieval Book</h1><nav>{links}</nav><p><small>Arrow keys move,"
        " n opens the speaker's notes in a window of their own.</small></p></section>"
    )
    icon = base64.b64encode((built / "_static" / "logo.svg").read_bytes()).decode()
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Slides:'
        " The Dense Retrieval Book</title>"
        f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">'
    )
    style = f"<style>{_embedded(built / '_static')}{LOOK}</style>"
    return (
        f'<!doctype html><html lang="en" data-theme="light"><head>{head}{style}</head>'
        f"<body>{ARROW}<main>{first}{''.join(parts)}</main><script>{MOVE}</script></body></html>\n"
    )


def _embedded(static: Path) -> str:
    """The book's style sheet with its fonts inside."""

    def inside(match: re.Match) -> str:
        font = base64.b64encode((static / match[1]).read_bytes()).decode()
        return f'url("data:font/woff2;base64,{font}")'

    return re.sub(
        r'url\("(fonts/[^"]+)"\)', inside, (static / "book.css").read_text(encoding="utf-8")
    )


def write_deck(app: Sphinx, failure: Exception | None) -> None:
    """Write the slides beside the pages."""
    if failure is None and app.builder.format == "html":
        place = Path(app.outdir) / PLACE
        place.parent.mkdir(exist_ok=True)
        place.write_text(deck(Path(app.outdir), load_plan(), read_yaml(SOURCE)), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Connect it."""
    app.connect("build-finished", write_deck)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
