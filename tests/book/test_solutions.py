"""Exercises of the idea pages: one a level, with solutions that run, check themselves, and say
something.
"""

import re

import pytest
from check_pages import ROOT
from solutions import run

PAGES = [
    path
    for path in sorted((ROOT / "book" / "ideas").glob("*.md"))
    if not path.stem.endswith(("index", "-explorer"))
]
LEVELS = ["Warm-up", "Practice", "Challenge"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_has_an_exercise_of_each_level_with_a_solution_that_holds(path):
    text = path.read_text().partition("## Exercises\n")[2]
    solutions = re.findall(r"^```\{solution\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert re.findall(r"^\*\*\d\. ([\w-]+)\.\*\* ", text, re.MULTILINE) == LEVELS and len(
        solutions
    ) == len(LEVELS)
    for code in solutions:
        assert "assert " in code and run(code).strip()


def test_a_solution_that_is_wrong_fails():
    with pytest.raises(AssertionError):
        run("assert 1 == 2")
