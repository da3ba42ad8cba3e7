"""The plan of lessons: pages that are there, sessions that fit, nothing taught before what it
needs.
"""

import re

import pytest
from check_pages import ROOT, expected_pages
from teaching import load_plan, minutes, routes_page

PLAN = load_plan()
ROUTES = {route["name"]: route for route in PLAN["routes"]}


def test_every_unit_is_a_page_of_the_book_and_says_the_same_things():
    pages = set(expected_pages(ROOT / "_toc.yml"))
    for name, unit in PLAN["units"].items():
        assert unit["page"] in pages, name
        assert unit.keys() - {"needs"} == {"page", "teach", "do", "question", "able", "point"}, name
        assert set(unit.get("needs", [])) <= PLAN["units"].keys(), name


@pytest.mark.parametrize("name", ROUTES)
def test_sessions_fit_their_minutes(name):
    route = ROUTES[name]
    assert all(
        sum(minutes(PLAN["units"][unit]) for unit in session) <= route["minutes"]
        for session in route["sessions"]
    )


@pytest.mark.parametrize("name", ROUTES)
def test_nothing_is_taught_before_what_it_needs(name):
    order = [unit for session in ROUTES[name]["sessions"] for unit in session]
    assert len(order) == len(set(order))
    for place, unit in enumerate(order):
        later = set(order[place:])
        assert not later & set(PLAN["units"][unit].get("needs", [])), unit


def test_page_of_routes_names_every_unit_in_every_route_as_taught_or_left_out():
    page = routes_page(PLAN)
    assert page.count("\n## ") == len(ROUTES) + 1 == 4
    for part in page.split("\n## ")[1:]:
        assert all(unit["page"] in part for unit in PLAN["units"].values())


def test_the_minute_plan_fills_its_minutes_without_a_gap():
    text = (ROOT / "book" / "teaching" / "lecturers-notes.md").read_text()
    rows = [
        (int(start), int(length))
        for start, length in re.findall(r"^\| (\d+) \| (\d+) \|", text, re.M)
    ]
    ends = [start + length for start, length in rows]
    assert rows[0][0] == 0 and ends[-1] == 90
    assert [start for start, _ in rows[1:]] == ends[:-1]
    slack = re.search(r"^\| 80 \| 10 \| \*\*Slack", text, re.M)
    session = ROUTES["One session of 90 minutes"]["sessions"][0]
    assert slack and sum(minutes(PLAN["units"][unit]) for unit in session) == 80


def test_every_lesson_has_notes_with_aim_minutes_board_and_wrong_answers():
    text = (ROOT / "book" / "teaching" / "lecturers-notes.md").read_text()
    parts = re.split(r"^## Lesson (\d): ", text, flags=re.MULTILINE)[1:]
    assert parts[::2] == [*"1234567"]
    for part in parts[1::2]:
        assert all(f"**{word}.**" in part for word in ("Aim", "Minutes", "Board"))
        assert "| you ask | you will hear | what helps |" in part
