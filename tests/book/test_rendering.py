"""Rendering of docstrings, of formulas as MathML, and of listings without spans that colour
nothing.
"""

import html
import re
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from api_docs import (
    keep_sentence,
    link_pages,
    no_mail,
    plain_types,
    short_defaults,
    split_names,
    type_variables,
)
from docutils import nodes
from docutils.utils import new_document
from native_math import Punctuated, to_mathml
from plain_code import NARROW, FoldedCode, PlainCode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import BashLexer, PythonLexer
from pygments.styles import get_style_by_name
from pygments.token import Name, Punctuation, Text, Whitespace
from sphinx.ext.napoleon import Config, GoogleDocstring


def rendered(what: str, *lines: str) -> list[str]:
    """A docstring after our extension and then napoleon."""
    text = list(lines)
    for repair in (split_names, keep_sentence):
        repair(None, what, "module.name", SimpleNamespace(), None, text)
    return GoogleDocstring(
        text, Config(napoleon_use_ivar=True), None, what, "module.name", None, None
    ).lines()


@pytest.mark.parametrize("what", ["property", "attribute", "data"])
def test_a_colon_in_the_first_line_of_a_property_makes_no_type(what):
    sentence = "The names, one a line: sorted."
    assert [line for line in rendered(what, sentence) if line] == ["..", sentence]


def test_what_python_says_of_the_fields_of_a_named_tuple_is_left_out():
    assert not any(
        rendered("attribute", *NamedTuple("Pair", [("first", int)]).first.__doc__.splitlines())
    )


def test_several_names_of_one_line_are_entries_of_their_own():
    lines = rendered("class", "Two.", "", "Attributes:", "    low, high: ends of the interval.")
    assert [line for line in lines if line.startswith(":ivar")] == [
        ":ivar low: ends of the interval.",
        ":ivar high: ends of the interval.",
    ]


def test_pages_that_a_docstring_names_are_links_and_code_keeps_its_arrows():
    lines = [
        "A mask: word -> bool. Pages: ideas/masking,",
        "ideas/nowhere.",
        ">>> lambda x: x  # int -> int",
    ]
    book = SimpleNamespace(env=SimpleNamespace(found_docs={"ideas/masking"}))
    link_pages(book, "function", "name", None, None, lines)
    assert lines == [
        "A mask: word → bool. Pages: :doc:`/ideas/masking`,",
        "ideas/nowhere.",
        ">>> lambda x: x  # int -> int",
    ]


def test_a_type_inside_another_has_no_mark():
    paragraph = nodes.paragraph("", "tuple[~typing.Literal['a'], ...]")
    plain_types(None, "py", "function", nodes.container("", paragraph))
    assert paragraph.astext() == "tuple[Literal['a'], ...]"


def test_a_type_variable_needs_no_page_and_a_class_of_our_own_does():
    for target, kept in (
        ("dr_book.measured.Result", True),
        ("dr_book.measured.Side", False),
        ("dr_book.measured.Nothing", False),
        ("typing.AnyStr", False),
    ):
        found = type_variables(None, None, {"reftarget": target}, "text")
        assert (found == "text") is kept, target


def test_a_measure_is_no_address_of_mail():
    paragraph = nodes.paragraph(
        "", "", nodes.Text("e.g. "), nodes.reference("", "MRR@10", refuri="mailto:MRR@10")
    )
    no_mail(None, nodes.container("", paragraph))
    assert paragraph.astext() == "e.g. MRR@10" and not list(paragraph.findall(nodes.reference))


def drawn(latex: str, *, display: bool = False) -> list[tuple[str, str]]:
    """Tag and text of all parts with text or width, without the annotation and docutils' invisible
    operator.
    """
    root = ElementTree.fromstring(to_mathml(latex, display=display).replace("&ApplyFunction;", ""))
    parts = [(part.tag.split("}")[1], (part.text or "").strip()) for part in root.iter()]
    return [(tag, text) for tag, text in parts if (text or tag == "mspace") and tag != "annotation"]


def test_upright_letters_become_one_name():
    assert drawn(r"p_{\mathrm{enc}}") == [("mi", "p"), ("mi", "enc")]


def test_function_and_argument_are_apart():
    assert drawn(r"\log p") == [("mi", "log"), ("mspace", ""), ("mi", "p")]


def test_factor_and_function_are_apart():
    assert drawn(r"q \log p") == [("mi", "q"), ("mspace", ""), *drawn(r"\log p")]


@pytest.mark.parametrize("latex", [r"\operatorname{max}(x)", r"\max(x)", r"\max\left(x\right)"])
def test_function_before_a_bracket_needs_no_space(latex):
    assert drawn(latex) == [("mi", "max"), ("mo", "("), ("mi", "x"), ("mo", ")")]


def test_index_of_a_function_stays_under_it():
    root = ElementTree.fromstring(to_mathml(r"\max_i x", display=True))
    assert [part.text for part in root.find(".//{*}munder")] == ["max", "i"]


def test_source_stays_as_an_annotation():
    root = ElementTree.fromstring(to_mathml(r"\frac{a}{b} < c", display=True))
    assert root.find(".//{*}annotation").text == r"\frac{a}{b} < c"
    assert root.get("display") == "block"


def test_unknown_command_is_refused():
    with pytest.raises(ValueError, match="nosuchcommand"):
        to_mathml(r"a \nosuchcommand b", display=False)


@pytest.mark.parametrize(
    ("before", "after", "together"),
    [
        ("divide by ", ". Then", "k."),
        ("a rate (", ") of", "(k)"),
        ("(at most ", ", or ", "k,"),
        ("the ", "th row", None),
        ("", "", None),
    ],
)
def test_a_formula_keeps_its_brackets_and_stops_on_its_line(before, after, together):
    document, paragraph = new_document("page"), nodes.paragraph()
    document += paragraph
    paragraph += [nodes.Text(before), nodes.math("", "k"), nodes.Text(after)]
    Punctuated(document).run()
    spans = [span.astext() for span in document.findall(nodes.inline)]
    assert spans == ([together] if together else [])
    assert paragraph.astext() == f"{before}k{after}"


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
        "python -m dr_book search path/to/mydata --model one-two a-b", BashLexer(), FoldedCode()
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


def test_the_settings_of_a_default_do_not_fill_a_signature():
    signature = "(n=2, training=Pretraining(steps=8, betas=(0.9, 0.99)), rates=(1, 2), seed=0)"
    short, _ = short_defaults(None, "class", "a", None, None, signature, "")
    assert short == "(n=2, training=Pretraining(...), rates=(1, 2), seed=0)"
    assert short_defaults(None, "class", "a", None, None, "(x=None, y=Path())", "") is None
