"""Docstrings reach API pages as they were meant."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest
from api_docs import keep_sentence, link_pages, no_mail, plain_types, split_names
from docutils import nodes
from sphinx.ext.napoleon import Config, GoogleDocstring


def rendered(what: str, *lines: str) -> list[str]:
    """What our extension and then napoleon make of a docstring."""
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


def test_a_measure_is_no_address_of_mail():
    paragraph = nodes.paragraph(
        "", "", nodes.Text("e.g. "), nodes.reference("", "MRR@10", refuri="mailto:MRR@10")
    )
    no_mail(None, nodes.container("", paragraph))
    assert paragraph.astext() == "e.g. MRR@10" and not list(paragraph.findall(nodes.reference))
