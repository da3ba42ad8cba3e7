"""Listings lose the spans that colour nothing, and keep their text and every other span."""

import html
import re
from pathlib import Path

import pytest
from plain_code import NARROW, FoldedCode, PlainCode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import BashLexer, PythonLexer
from pygments.styles import get_style_by_name
from pygments.token import Name, Punctuation, Text, Whitespace

ROOT = Path(__file__).parents[2]
TAG = re.compile(r"<[^>]+>")


@pytest.mark.parametrize(
    "file", ["dr_lib/losses/contrastive.py", "dr_lib/stages.py", "book/dr_book/tables.py"]
)
def test_a_listing_keeps_its_text_and_its_colours(file):
    code = (ROOT / file).read_text(encoding="utf-8")
    usual, plain = (highlight(code, PythonLexer(), one()) for one in (HtmlFormatter, PlainCode))
    assert html.unescape(TAG.sub("", plain)) == html.unescape(TAG.sub("", usual))
    without = re.sub(r'<span class="(?:n|p|w)">([^<]*)</span>', r"\1", usual)
    assert TAG.findall(plain) == TAG.findall(without) and len(plain) < 0.75 * len(usual)


@pytest.mark.parametrize("theme", ["a11y-high-contrast-light", "a11y-high-contrast-dark"])
def test_what_is_left_out_has_the_colour_of_plain_text_in_both_themes(theme):
    style = get_style_by_name(theme)
    text = style.style_for_token(Text)
    assert all(style.style_for_token(kind) == text for kind in (Name, Punctuation, Whitespace))


@pytest.mark.parametrize("file", ["dr_lib/losses/contrastive.py", "dr_lib/stages.py"])
def test_a_long_line_says_how_deep_it_is_and_nothing_else_changes(file):
    code = (ROOT / file).read_text(encoding="utf-8").strip("\n")
    plain, folded = (highlight(code, PythonLexer(), one()) for one in (PlainCode, FoldedCode))
    assert TAG.sub("", folded) == TAG.sub("", plain)
    lines = folded.split("<span></span>", 1)[1].splitlines()
    for line, shown in zip(code.splitlines(), lines, strict=False):
        deep = re.match(r'<span class="ln"(?: style="--in:(\d+)")?>', shown)
        assert bool(deep) == (len(line) > NARROW) and shown.count("<span") == shown.count("</span>")
        assert not deep or int(deep[1] or 0) == len(line) - len(line.lstrip())


def test_an_option_is_marked_in_a_command_and_a_minus_is_not():
    command = highlight(
        "python -m dr_lib search path/to/mydata --model one-two a-b", BashLexer(), FoldedCode()
    )
    assert re.findall(r'<span class="option">(.*?)</span>', command) == ["-m", "--model"]
    assert "option" not in highlight(
        "difference = one_long_name - another_long_name", PythonLexer(), FoldedCode()
    )


def test_code_without_a_space_may_break_at_its_joints_and_a_number_nowhere():
    lines = [
        'bert = models.load_masked_lm("embedded").base_model.encoder',
        "assert difference_of_all_the_values < 1e-4",
        "a.b(c)",
    ]
    shown = highlight("\n".join(lines), PythonLexer(), FoldedCode())
    broken = 'bert = models|.load_masked_lm(|"embedded")|.base_model|.encoder'
    assert TAG.sub("", shown.replace("<wbr>", "|")).splitlines()[0] == broken
    assert '<span class="option">1e-4</span>' in shown and "1e-4" in shown.rsplit("<wbr>", 1)[1]
    path = highlight(
        "papermill notebooks/simlm/table08_replace_rates.ipynb", BashLexer(), FoldedCode()
    )
    assert "notebooks/<wbr>simlm/<wbr>table08_replace_rates<wbr>.ipynb" in path
