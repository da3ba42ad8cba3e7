"""Pages of the built book never print different values for one configuration: every row of a table
of records, on every page, has the number computed by one function.
"""

import html
import re

import pytest
from check_pages import ROOT

from dr_book import comparison, measured, tables

HTML = ROOT / "_build" / "html"
pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(
        not (HTML / "searchindex.js").is_file(), reason="needs the built pages (make book)"
    ),
]
CAPTION = re.compile(r"<caption>(.*?)</caption>", re.DOTALL)
ABOUT = re.compile(r"(\w+@\d+|MRR) in percent.*Recorded: (.*?), \d")
ROW = re.compile(r"<tr><td>(.*?)</td>(.*?)</tr>", re.DOTALL)
VALUE = re.compile(r"(\d+\.\d)(?:</strong>)? <span class=\"interval\"")
Row = tuple[str, str, str]
"""Page, collection and row, as a reader sees them."""


def configurations() -> dict[Row, list]:
    """The records behind the rows of the page of each study."""
    rows: dict[Row, list] = {}
    for study in sorted({record.study for record in measured.all_recorded()}):
        page = (comparison.notebook_of(study) or "").removesuffix(".ipynb")
        for collection, runs in measured.recorded_by_collection(study).items():
            for label, records in runs.items():
                row = page, tables.data_named(collection), tables.named(label)
                rows.setdefault(row, []).append(records)
    return rows


def printed(page: str) -> list[tuple[Row, str, str]]:
    """Row, measure and value of every row of a page's tables of records in percent."""
    text = (HTML / f"{page}.html").read_text(encoding="utf-8")
    found = []
    for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
        caption = CAPTION.search(table)
        about = ABOUT.search(html.unescape(caption[1])) if caption else None
        if not about:
            continue
        name = about[1].replace("Accuracy", "accuracy")  # which begins a sentence
        for label, cells in ROW.findall(table):
            if value := VALUE.search(cells):
                row = html.unescape(re.sub(r"<[^>]+>", "", label))
                found.append(((page, about[2], row), name, value[1]))
    return found


def test_every_row_of_every_page_has_the_one_value_of_its_configuration():
    rows = configurations()
    values: dict[tuple, set[str]] = {}
    checked, unknown, shared = 0, [], 0
    for page in sorted({page for page, *_ in rows if (HTML / f"{page}.html").is_file()}):
        for row, measure, value in printed(page):
            if len(rows.get(row, ())) != 1:  # of several studies, or made of records on the page
                unknown.append(row)
                continue
            records = [one for one in rows[row][0] if measured.has_measure(one, measure)]
            expected = measured.value(records, measure).estimate.value
            assert value == f"{expected:.1f}", (row, measure)
            seen = values.setdefault((measured.configuration(records[0]), measure), set())
            shared += bool(seen)
            seen.add(value)
            checked += 1
    assert all(len(seen) == 1 for seen in values.values())
    assert checked > 180 and shared > 40, (checked, shared)
    assert len(unknown) < checked / 4, unknown
