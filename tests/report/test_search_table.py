"""Side by side in a terminal and in a notebook; text of a collection stays text."""

import json

from dr_lib.lab.searcher import Answer, Hit
from dr_lib.report.search_table import clean, fit, search_table, search_text

EVIL = "\x1b[2J<script>alert(1)</script>\u202e end"


def answer(systems: int = 2, hits: int = 2, text: str = "The moon pulls the water of the sea.") -> Answer:
    found = [
        Hit(rank, f"p{rank}", "Tides", text, 1 / rank, grade=1 if rank == 2 else None) for rank in range(1, 1 + hits)
    ]
    return Answer("why does the sea rise", 1, {f"system {number}": found for number in range(systems)})


def test_systems_stand_side_by_side_where_there_is_room():
    lines = search_text(answer(), width=100).splitlines()
    assert any("system 0" in line and "system 1" in line for line in lines)
    assert all(len(line) <= 100 for line in lines)


def test_systems_stand_one_below_the_other_in_a_narrow_terminal():
    lines = search_text(answer(systems=3), width=60).splitlines()
    assert [line.strip() for line in lines if line.startswith("system")] == ["system 0", "system 1", "system 2"]
    assert all(len(line) <= 60 for line in lines)


def test_relevant_passages_are_marked():
    text = search_text(answer(systems=1), width=80)
    assert " 2 *    0.500  p2" in text and " 1      1.000  p1" in text
    assert "1 passage is judged relevant" in text
    assert search_table(answer(systems=1)).data.count(">relevant<") == 1


def test_a_query_of_ones_own_has_no_word_on_judgements():
    assert "judged" not in search_text(Answer("mine", None, {"BM25": []}))
    assert "nothing found" in search_text(Answer("mine", None, {"BM25": []}))


def test_no_control_character_reaches_the_terminal():
    text = search_text(answer(text=EVIL))
    assert "\x1b" not in text and "\u202e" not in text and "<script>" in text


def test_html_is_escaped():
    html = search_table(Answer(EVIL, None, {EVIL: [Hit(1, EVIL, EVIL, EVIL, 1.0)]})).data
    assert "<script" not in html and "&lt;script" in html


def test_columns_are_counted_as_a_terminal_shows_them():
    assert fit("検索検索", 5) == "検索…" and fit("ab", 4) == "ab  "
    assert clean("a\tb\r\nc") == "a b c"


def test_json_has_everything_on_one_line():
    line = answer(text="a\nb").as_json()
    assert "\n" not in line
    assert json.loads(line)["hits"]["system 0"][1] == {
        "rank": 2, "id": "p2", "title": "Tides", "text": "a\nb", "score": 0.5, "grade": 1,
    }  # fmt: skip


def test_systems_with_fewer_passages_leave_their_cells_empty():
    uneven = Answer("q", None, {"a": [Hit(1, "p", "", "x", 1.0)], "b": []})
    assert search_table(uneven).data.count("&ndash;") == 1
    assert "x" in search_text(uneven, width=100)
