"""Predict, then look: the options are rows of the page's table, and the result is visible; only a
teacher's link hides it until there is an answer, and never on paper.
"""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import nbformat
import predictions
import pytest
from browser import needs_chromium, opened
from check_pages import ROOT, expected_pages
from predictions import load_questions, prediction_html, values
from table_pages import arrange

from dr_book.ledger import ledger
from dr_book.papers import load_paper

QUESTIONS = load_questions()
ASKED = {
    "question": "Which is <b>?",
    "study": "no/such",
    "measure": "MRR@10",
    "options": {"SimLM": "a & b", "MLM": "c"},
}
PRINTED = ASKED | {"printed": ["simlm", "table7", "MRR@10"]}


@pytest.mark.parametrize("page", QUESTIONS)
def test_options_are_rows_of_the_papers_table_and_the_page_is_about_it(page):
    asked = QUESTIONS[page]
    assert (
        page in expected_pages(ROOT / "_toc.yml")
        and asked["study"] in (ROOT / f"{page}.ipynb").read_text()
    )
    assert asked.keys() <= {
        "question",
        "study",
        "others",
        "measure",
        "printed",
        "paper_measure",
        "lowest",
        "options",
    }
    if "printed" in asked:
        paper, table, column = asked["printed"]
        printed = load_paper(paper).table(table).column(column)
        assert asked["options"].keys() <= printed.keys()
    for found, _ in values(asked).values():
        assert found.keys() <= asked["options"].keys()
    for study, rows in asked.get("others", {}).items():
        assert rows.keys() <= values(asked)["records"][0].keys(), f"rows that {study} has"


@pytest.mark.parametrize("page", QUESTIONS)
def test_the_question_stands_before_every_result_of_its_page(page):
    notebook = nbformat.read(ROOT / f"{page}.ipynb", as_version=4)
    # no verdicts: judging is slow
    entries = [one for one in ledger("smoke") if one["page"] == page]
    first = arrange(notebook, page, entries, "<p>links</p>", prediction_html(QUESTIONS[page]))[
        "cells"
    ][0]["source"]
    above, _, below = first.partition('<details class="dr-predict">')
    assert ("dr-claims" in below) is bool(entries)
    assert re.match(r"# [^\n]+\n\n\*\*[^*]+\?\*\*", above) and "{measured}" not in above


def test_places_are_those_of_the_papers_values():
    html = prediction_html(PRINTED)
    assert re.findall(r"<li([^>]*)><strong>([^<]+?)<", html) == [
        (' data-paper="1"', "SimLM"),
        (' data-paper="2"', "masked LM"),
    ]
    assert (
        "SimLM <strong>38.0</strong>, masked LM <strong>36.7</strong>" in html
        and "highest first" in html
    )
    turned = prediction_html(PRINTED | {"lowest": True})
    assert "masked LM <strong>36.7</strong>, SimLM <strong>38.0</strong>" in turned
    assert re.search(r'data-paper="1"><strong>masked LM', turned)
    assert "&lt;b&gt;" in html and "a &amp; b" in html and "\n" not in html


def test_options_that_were_not_measured_are_named_and_one_alone_has_no_place():
    html = prediction_html(PRINTED | {"options": {"SimLM": "a", "No such": "b"}})
    assert (
        "SimLM <strong>38.0</strong>. Not in the table: No such." in html
        and "first:" not in html
        and "data-paper" not in html
    )


def test_a_row_of_the_pages_own_study_is_shown_as_on_the_page(monkeypatch):
    """Also if another study that the page names has it."""
    studies = {"own": {"SimLM": [40.0]}, "beside": {"simlm": [50.0], "mlm": [30.0]}}
    monkeypatch.setattr(predictions, "recorded", studies.get)
    monkeypatch.setattr(predictions, "presentable", lambda runs: runs)
    monkeypatch.setattr(predictions, "spell_data", str)

    def estimated(runs, _):
        return SimpleNamespace(estimate=SimpleNamespace(value=runs[0]))

    monkeypatch.setattr(predictions, "value", estimated)
    monkeypatch.setattr(predictions, "seeds_in", len)
    beside = {"beside": {"SimLM": "simlm", "MLM": "mlm"}}
    found = values(ASKED | {"study": "own", "others": beside})["records"][0]
    assert found == {"SimLM": 40.0, "MLM": 30.0}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A question with a result below it."""
    for name in ("pages.js", "book.css"):
        shutil.copy(ROOT / "book" / "_static" / name, tmp_path)
    head = (
        '<meta charset="utf-8"><title>x</title><link rel="stylesheet" href="book.css"><script'
        ' src="pages.js"></script>'
    )
    result = '<p id="result">38.0</p><section id="more">more</section>'
    contents = '<div class="bd-sidebar-secondary"><p id="contents">More</p></div>'
    body = f"<section><h1>T</h1><p>Why?</p>{prediction_html(PRINTED)}{result}</section>"
    (tmp_path / "page.html").write_text(f'<!doctype html><html lang="en">{head}{body}{contents}')
    return tmp_path / "page.html"


SHOWN = "document.getElementById('result').offsetParent !== null"
CONTENTS = "document.getElementById('contents').offsetParent !== null"


@pytest.mark.xdist_group("chromium")
@needs_chromium
def test_the_result_is_in_view_and_the_offer_is_one_folded_line(page, tmp_path):
    with opened(tmp_path / "profile") as browser:
        browser.visit(page)
        assert browser.run(SHOWN) and not browser.run(
            "document.querySelector('.dr-predict form').offsetParent"
        )
        browser.press("Tab")
        browser.press("Space")
        browser.wait("document.querySelector('.dr-predict form').offsetParent")
        browser.press("Tab")
        browser.press("Space")
        browser.press("Tab")
        browser.press("Enter")
        said = browser.run("document.activeElement.textContent")
        assert said.startswith("You chose SimLM") and browser.complaints == []


@pytest.mark.xdist_group("chromium")
@needs_chromium
def test_with_a_teachers_link_the_result_waits_by_keyboard_and_is_there_on_paper(page, tmp_path):
    with opened(tmp_path / "profile") as browser:
        browser.visit(page, "?predict")
        assert (
            not browser.run(SHOWN)
            and not browser.run(CONTENTS)
            and browser.run("document.querySelectorAll('.dr-predict input').length") == 2
        )
        browser.send("Emulation.setEmulatedMedia", media="print")
        assert (
            browser.run(SHOWN)
            and browser.run("getComputedStyle(document.querySelector('.dr-predict form')).display")
            == "none"
        )
        browser.send("Emulation.setEmulatedMedia", media="screen")
        browser.press("Tab")
        browser.press("Tab")
        browser.press("Space")
        browser.press("ArrowDown")
        browser.press("Tab")
        browser.press("Enter")
        said = browser.run("document.activeElement.textContent")
        assert said == "You chose masked LM: 2nd of 2 in the paper." and browser.run(SHOWN)
        assert browser.run(CONTENTS)
        browser.visit(page, "?predict")
        assert browser.run(SHOWN), "a reader who has answered is not asked again"
        assert browser.complaints == []


@pytest.mark.xdist_group("chromium")
@needs_chromium
def test_a_link_to_a_part_of_the_page_shows_it_and_one_may_skip(page, tmp_path):
    with opened(tmp_path / "profile") as browser:
        browser.visit(page, "?predict#more")
        assert browser.run(SHOWN)
        browser.run("location.hash = '%'")  # no name of a part, and no fault
        browser.run("new Promise((done) => setTimeout(done, 100))")
        assert browser.complaints == []
        browser.visit(page, "?predict")
        assert not browser.run(SHOWN)
        browser.run("document.querySelector('.skip').click()")
        assert (
            browser.run(SHOWN)
            and browser.run("document.querySelector('.dr-predict .said').textContent") == ""
        )
        browser.send("Emulation.setScriptExecutionDisabled", value=True)
        browser.visit(page, "?predict")
        browser.send("Emulation.setScriptExecutionDisabled", value=False)
        assert (
            browser.run(SHOWN)
            and browser.run("document.querySelectorAll('.dr-predict li').length") == 2
        )
