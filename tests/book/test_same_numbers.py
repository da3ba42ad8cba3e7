"""Two pages of the built book never print different values of one configuration: every row of a
table of records, on every page, has the number that one function gives it.
"""

import html
import re

import pytest
from check_pages import ROOT

from dr_book import measured, tables
from dr_lib import places

HTML = ROOT / "_build" / "html"
pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(
        not (HTML / "searchindex.js").is_file(), reason="needs the built pages (make book)"
    ),
]
CAPTION = re.compile(r"<caption>(.*?)</caption>", re.DOTALL)
ROW = re.compile(r"<tr><td>(.*?)</td>(.*?)</tr>", re.DOTALL)
VALUE = re.compile(r"(\d+\.\d)(?:</strong>)? <span class=\"interval\"")


def expected() -> dict[tuple[str, str, str], set[str]]:
    """Page, row and measure -> the values that its studies' configurations have."""
    values: dict[tuple[str, str, str], set[str]] = {}
    for study in measured.recorded_studies(""):
        page = (places.notebook_of(study) or "").removesuffix(".ipynb")
        for own in measured.recorded_by_collection(study).values():
            for label, records in own.items():
                for measure in records[0].means:
                    found = measured.value(records, measure).estimate.value
                    key = page, tables.named(label), measure
                    values.setdefault(key, set()).add(f"{found:.1f}")
    return values


def printed(page: str) -> list[tuple[str, str, str]]:
    """Row, measure and value of every row of a page's tables of records in percent."""
    text = (HTML / f"{page}.html").read_text(encoding="utf-8")
    found = []
    for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
        caption = CAPTION.search(table)
        about = html.unescape(caption[1]) if caption else ""
        measure = re.search(r"(\w+@\d+) in percent", about)
        if measure and "Recorded:" in about:
            for label, cells in ROW.findall(table):
                if value := VALUE.search(cells):
                    name = html.unescape(re.sub(r"<[^>]+>", "", label))
                    found.append((name, measure[1], value[1]))
    return found


def test_every_row_of_every_page_has_the_one_value_of_its_configuration():
    values, rows = expected(), 0
    for page in sorted({page for page, *_ in values if page and (HTML / f"{page}.html").is_file()}):
        for name, measure, value in printed(page):
            if (page, name, measure) in values:
                assert value in values[page, name, measure], (page, name, measure)
                rows += 1
    assert rows > 50
