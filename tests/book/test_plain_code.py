"""Listings lose the spans that colour nothing, and keep their text and every other span."""

import html
import re
from pathlib import Path

import pytest
from plain_code import PlainCode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.styles import get_style_by_name
from pygments.token import Name, Punctuation, Text, Whitespace

ROOT = Path(__file__).parents[2]
TAG = re.compile(r"<[^>]+>")


@pytest.mark.parametrize("file", ["losses/contrastive.py", "stages.py", "report/tables.py"])
def test_a_listing_keeps_its_text_and_its_colours(file):
    code = (ROOT / "dr_lib" / file).read_text(encoding="utf-8")
    usual, plain = (highlight(code, PythonLexer(), one()) for one in (HtmlFormatter, PlainCode))
    assert html.unescape(TAG.sub("", plain)) == html.unescape(TAG.sub("", usual))
    without = re.sub(r'<span class="(?:n|p|w)">([^<]*)</span>', r"\1", usual)
    assert TAG.findall(plain) == TAG.findall(without) and len(plain) < 0.75 * len(usual)


@pytest.mark.parametrize("theme", ["a11y-high-contrast-light", "a11y-high-contrast-dark"])
def test_what_is_left_out_has_the_colour_of_plain_text_in_both_themes(theme):
    style = get_style_by_name(theme)
    text = style.style_for_token(Text)
    assert all(style.style_for_token(kind) == text for kind in (Name, Punctuation, Whitespace))
