"""Formulas become MathML that reads as the LaTeX was meant."""

from xml.etree import ElementTree

import pytest
from native_math import MATHML, to_mathml


def drawn(latex: str, *, display: bool = False) -> list[tuple[str, str]]:
    """Tag and text of all parts with text or of width, without the annotation."""
    root = ElementTree.fromstring(to_mathml(latex, display=display))
    parts = [(part.tag.removeprefix(f"{{{MATHML}}}"), (part.text or "").strip()) for part in root.iter()]
    return [(tag, text) for tag, text in parts if (text or tag == "mspace") and tag != "annotation"]


def test_upright_letters_become_one_name():
    assert drawn(r"p_{\mathrm{enc}}") == [("mi", "p"), ("mi", "enc")]


def test_function_and_argument_are_apart():
    assert drawn(r"\log p") == [("mi", "log"), ("mspace", ""), ("mi", "p")]


def test_function_before_a_bracket_needs_no_space():
    assert drawn(r"\operatorname{Mask}(x)") == [("mi", "Mask"), ("mo", "("), ("mi", "x"), ("mo", ")")]


def test_index_of_a_function_stays_an_index():
    root = ElementTree.fromstring(to_mathml(r"\max_i x", display=False))
    assert [part.text for part in root.find(f".//{{{MATHML}}}msub")] == ["max", "i"]


def test_source_stays_as_an_annotation():
    root = ElementTree.fromstring(to_mathml(r"\frac{a}{b} < c", display=True))
    assert root.find(f".//{{{MATHML}}}annotation").text == r"\frac{a}{b} < c"
    assert root.get("display") == "block"


def test_unknown_command_is_refused():
    with pytest.raises(ValueError, match="nosuchcommand"):
        to_mathml(r"a \nosuchcommand b", display=False)
