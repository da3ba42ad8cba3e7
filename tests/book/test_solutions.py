"""Exercises of the idea pages: two a page, with solutions that run, check themselves, and say something."""

import re

import pytest
from check_pages import ROOT
from solutions import run

PAGES = [path for path in sorted((ROOT / "book" / "ideas").glob("*.md")) if not path.stem.endswith(("index", "-explorer"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_has_two_exercises_with_solutions_that_hold(path):
    text = path.read_text().partition("## Exercises\n")[2]
    solutions = re.findall(r"^```\{solution\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(solutions) == len(re.findall(r"^\*\*\d\.\*\* ", text, re.MULTILINE)) >= 2
    for code in solutions:
        assert "assert " in code and run(code).strip()


def test_a_solution_that_is_wrong_fails():
    with pytest.raises(AssertionError):
        run("assert 1 == 2")
