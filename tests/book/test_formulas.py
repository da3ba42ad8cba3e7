"""Formulas become MathML that reads as the LaTeX was meant."""

from xml.etree import ElementTree

import pytest
from native_math import to_mathml


def drawn(latex: str, *, display: bool = False) -> list[tuple[str, str]]:
    """Tag and text of all parts with text or of width, without the annotation and docutils'
    invisible operator.
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
