"""Slides: one file made from built pages; every unit has its question, what there is to look at,
and what to remember.
"""

import re
from pathlib import Path

from slides import deck

PAGE = """<article><h1>Masks<a class="headerlink">#</a></h1>
<section id="a"><h2>With a drawing</h2><p>One &lt;b&gt; sentence. Another one with
<math><msub><mi>a</mi><mi>i</mi></msub></math>, too.</p>
<figure class="dr-drawing"><svg></svg></figure></section>
<section id="b"><h2>Words alone</h2><p>Nothing to see.</p></section>
<section id="exercises"><h2>Exercises</h2><p><strong>1.</strong> How many?</p></section>
</article>"""
UNIT = {
    "page": "ideas/masks",
    "teach": 5,
    "do": 9,
    "question": "What & why?",
    "able": "draw one",
    "point": "Hide less.",
}


def test_a_unit_has_its_question_what_can_be_seen_and_what_to_remember(tmp_path: Path):
    (tmp_path / "ideas").mkdir()
    (tmp_path / "ideas" / "masks.html").write_text(PAGE)
    fonts = tmp_path / "_static" / "fonts"
    fonts.mkdir(parents=True)
    (fonts / "a.woff2").write_bytes(b"font")
    (fonts.parent / "book.css").write_text('@font-face { src: url("fonts/a.woff2"); }')
    plan = {
        "units": {"masks": UNIT, "gone": UNIT | {"page": "none"}},
        "routes": [{"name": "One", "sessions": [["masks"], ["gone"]]}],
    }
    html = deck(tmp_path, plan)
    assert html.count("<section") == 4 and '<section id="masks">' in html
    # by their titles, and none to a unit without slides
    assert '<nav><small><a href="#masks">Masks</a></small></nav>' in html
    order = [
        "What &amp; why?",
        "5 minutes",
        "With a drawing",
        (
            "One &lt;b&gt; sentence. Another one with"
            " <math><msub><mi>a</mi><mi>i</mi></msub></math>, too."
        ),
        "<svg>",
        "Hide less.",
        "How many?",
    ]
    assert [html.index(part) for part in order] == sorted(html.index(part) for part in order)
    assert "Words alone" not in html and 'headerlink">' not in html
    assert not re.search(r'(src|href)="(?!#)|url\("(?!data:)', html)  # nothing beside the file
