"""The page on growing collections: its numbers are those of the file, formatted alike, and none is
missing.
"""

import re

import pytest
from growth_numbers import GROWTH, TABLES, WHOLE, looked_up, shown

from dr_lib.errors import InputError
from dr_lib.files import read_json
from dr_lib.places import project_root

PAGE = project_root() / "book" / "practice" / "from-thousands-to-a-billion.md"


def test_every_number_of_the_page_is_in_the_file():
    found, cells = (
        read_json(GROWTH),
        re.findall(r"\{grown\}`([^`]+)`", PAGE.read_text(encoding="utf-8")),
    )
    assert len(cells) > 10
    for cell in cells:
        assert shown(looked_up(cell, found), cell.rsplit(";", 1)[-1])


@pytest.mark.parametrize(
    "cell", ["steps; none", "search; 99", "machine; cpu; name", "search; first"]
)
def test_a_number_that_is_not_there_is_named(cell):
    with pytest.raises(InputError, match="no number"):
        looked_up(cell, {"steps": {}, "search": [], "machine": {"cpu": "x"}})


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_whole(name):
    head, *rows = TABLES[name](read_json(GROWTH))
    assert rows and all(len(row) == len(head) for row in rows)


def test_the_tables_show_what_was_measured():
    found = read_json(GROWTH)
    steps = {row[0]: row for row in TABLES["steps"](found)[1:]}
    assert {name.replace(WHOLE, "-").replace("\N{NO-BREAK SPACE}", " ") for name in steps} == found[
        "steps"
    ].keys()
    assert all(
        row[-1].endswith("\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}") for row in steps.values()
    )
    assert steps["encode"][1] == shown(found["steps"]["encode"]["seconds a million"])
    head, *rows = TABLES["search"](found)
    assert len(rows) == 3 * len(found["search"])
    largest = {row[1]: row for row in rows[-3:]}
    assert (
        largest["exact"][0] == f"{found['search'][-1]['vectors']:,}"
        and {"HNSW", "exact"} < largest.keys()
    )
    recall = found["search"][-1]["HNSW"]["chosen"]["recall"]
    assert largest["HNSW"][head.index("recall")] == f"{recall:.2f}"
