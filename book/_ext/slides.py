"""Sphinx extension: slides for teaching, one file without anything beside it, made from the built
pages.

Every unit of the lesson plan (book/teaching/plan.yaml) begins with its question and ends with what
to remember and the exercises of its page. In between stands every section of the page that has
something to look at: a drawing, a figure or a formula, with the beginning of its text. Arrow keys
move; a browser prints one slide a sheet.
"""

import base64
import copy
import html
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Tag
from sphinx.application import Sphinx
from teaching import load_plan

PLACE = "teaching/slides.html"
ARROW = (
    '<svg width="0" height="0" style="position: absolute" aria-hidden="true"><marker id="arrow-tip"'
    ' viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path'
    ' class="tip" d="M0 0 8 4 0 8z"/></marker></svg>'
)
"""What the style sheet puts at the end of a drawing's arrows; on pages each drawing brings its
own.
"""
VISUAL = "figure.dr-drawing, .dr-figure, .formula"
LONGEST = 260
"""Letters of a section's text on its slide."""
FORMULA = "\ue000"
"""Stands for a formula while a text is cut; no text has this sign."""
LOOK = """
html { scroll-snap-type: y mandatory; background: #fff; color: #24292f; }
html { font: clamp(1rem, 0.82rem + 0.97vw, 1.8rem)/1.4 "Book Text", serif; }
body { margin: 0; }
section { box-sizing: border-box; min-height: 100vh; padding: 4vh 7vw;
  scroll-snap-align: start; break-after: page; }
section { display: flex; flex-direction: column; justify-content: center; }
h1 { font-size: clamp(1.8rem, 6vw, 3rem); line-height: 1.15; } 
h2 { font-size: clamp(1.4rem, 4.4vw, 2.2rem); margin: 0 0 1rem; }
p { max-width: 60rem; margin: 0.4rem 0; }
small { color: var(--dr-grey); } .dr-drawing { max-width: 56rem; width: 100%; }
  .dr-figure svg { max-height: 62vh; width: auto; }
section > * { max-width: 100%; box-sizing: border-box; } section { overflow: hidden; }
figcaption, .headerlink, .eqno { display: none !important; } a { color: var(--dr-blue); }
  nav a { margin-right: 1.5rem; }
"""
MOVE = """
addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1,
    PageUp: -1 }[event.key];
  if (!step) return;
  const slides = [...document.querySelectorAll("section")];
  const here = slides.findIndex((one) => one.getBoundingClientRect().bottom > innerHeight / 2);
  slides[Math.max(0, Math.min(slides.length - 1, here + step))].scrollIntoView();
  event.preventDefault();
});
"""


def unit_slides(name: str, unit: Mapping[str, Any], article: Tag) -> Iterator[str]:
    """The slides of a unit.

    Args:
        name: of the unit, the anchor of its first slide.
        unit: of the lesson plan.
        article: of its built page.
    """
    for source in article.find_all("annotation"):  # the LaTeX of a formula, which no reader sees
        source.decompose()
    about = (
        f"<small>{_text(article.h1)} &middot; {unit['teach']} minutes, and {unit['do']} for"
        " exercises</small>"
    )
    yield f'<section id="{name}"><h1>{html.escape(unit["question"])}</h1><p>{about}</p></section>'
    for heading in article.find_all("h2"):
        part = heading.parent
        if visual := part.select_one(VISUAL):
            words = next(
                (_text(one, _beginning) for one in part.find_all("p", recursive=False)), ""
            )
            yield f"<section><h2>{_text(heading)}</h2><p>{words}</p>{visual}</section>"
    exercises = [one.parent for one in article.select("section#exercises > p > strong:first-child")]
    tasks = "".join(f"<p><small>{_text(one)}</small></p>" for one in exercises)
    able = f"<p>Afterwards you can {html.escape(unit['able'])}.</p>"
    point = html.escape(unit["point"])
    yield f"<section><h2>Remember</h2><p><strong>{point}</strong></p>{able}{tasks}</section>"


def _text(tag: Tag, shorten: Callable[[str], str] = str) -> str:
    """The words of an element as safe HTML, formulas as they are, without the sign that links to a
    heading.
    """
    tag = copy.copy(tag)
    formulas = tag.find_all("math")
    for formula in formulas:
        formula.replace_with(FORMULA)
    words = html.escape(shorten(re.sub(r"\s+", " ", tag.get_text()).replace("#", "").strip()))
    drawn = map(str, formulas)
    return re.sub(FORMULA, lambda _: next(drawn), words)


def _beginning(text: str) -> str:
    """Whole sentences from the beginning of a text, at least one."""
    sentences = re.split(rf"(?<=[.?!]) (?=[A-Z{FORMULA}])", text)
    kept = sentences[0]
    for sentence in sentences[1:]:
        if len(kept) + len(sentence) > LONGEST:
            break
        kept += f" {sentence}"
    return kept


def deck(built: Path, plan: Mapping[str, Any]) -> str:
    """All slides as one HTML file; units whose page was not built are left out."""
    slides, routes, titles = [], [], {}
    for name, unit in plan["units"].items():
        path = built / f"{unit['page']}.html"
        if path.is_file():
            article = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser").find("article")
            slides += unit_slides(name, unit, article)
            titles[name] = _text(article.h1)
    for route in plan["routes"]:
        links = " ".join(
            f'<a href="#{name}">{titles[name]}</a>'
            for day in route["sessions"]
            for name in day
            if name in titles
        )
        routes.append(f"<p>{html.escape(route['name'])}</p><nav><small>{links}</small></nav>")
    first = (
        f"<section><h1>The Dense Retrieval Book</h1>{''.join(routes)}<p><small>Arrow keys"
        " move.</small></p></section>"
    )
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Slides:'
        " The Dense Retrieval Book</title>"
    )
    return (
        '<!doctype html><html lang="en"'
        f' data-theme="light">{head}<style>{_embedded(built / "_static")}{LOOK}</style>'
        f"<body>{ARROW}{first}{''.join(slides)}<script>{MOVE}</script></body></html>\n"
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
        place.write_text(deck(Path(app.outdir), load_plan()), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, object]:
    """Connect it."""
    app.connect("build-finished", write_deck)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
