"""The data page has a sheet for every collection, and the status page says which are available."""

import re

import data_sheets
import generated_pages
import pytest
from data_sheets import anchor, facts_list, here_table, sheet_sections

from dr_book.data.sheets import Sheet, sheet, sheets
from dr_book.measured import recorded_collections

MADE_BY_RUNS = {"made tokens"}
"""Collections behind records that cannot be stored: drawn by the run that measured them."""


def test_every_collection_behind_a_record_has_a_sheet():
    names = {data["name"] for data in recorded_collections()}
    assert names - MADE_BY_RUNS <= {one.name for one in sheets()}


def test_a_record_on_a_whole_collection_has_the_digest_of_its_sheet():
    known = {one.name: one for one in sheets()}
    digests: dict[str, set[str]] = {}
    for data in recorded_collections():
        digests.setdefault(data["name"], set()).add(data["digest"])
    whole = {name for name, one in known.items() if isinstance(one.digest, str) and one.digest}
    assert {
        name for name in whole & digests.keys() if known[name].digest not in digests[name]
    } == set()


def test_the_page_has_a_place_for_every_sheet_with_its_digest():
    page = generated_pages.data_page().replace("<wbr>", "")
    for one in sheets():
        assert f"({anchor(one.name)})=" in page and f"### {one.title}" in page
        if isinstance(one.digest, str):
            assert one.digest in page
    targets = re.findall(r'href="data\.html#([^"]*)"', page)
    assert targets and all(f"({target})=" in page for target in targets)
    heads = re.findall("^#+ .*", page, re.MULTILINE)
    assert heads[:3] == ["# Data sheets", "## Behind the records", "## Sheets"]
    assert heads[3:] == [f"### {title}" for title in (head[4:] for head in heads[3:])]


def test_what_was_recorded_comes_behind_primer_and_before_the_others():
    heads = [part for part in sheet_sections(["squad", "sgd"], {}) if str(part).startswith("### ")]
    assert heads[:3] == [f"### {sheet(name).title}" for name in ("primer", "squad", "sgd")]
    assert len(heads) == len(sheets())


def test_facts_are_escaped_and_say_whether_the_conversion_was_seen():
    source = {"repository": "a/<b>", "commit": "HEAD", "files": {"x<y": None}}
    facts = {"licence": "<i>", "digest": {"pairs/test.jsonl.gz": "ab" * 32}, "sources": [source]}
    shown = facts_list(Sheet(name="n", title="<N>", text="", **facts)).data
    assert "<i>" not in shown and "<b>" not in shown and "<N>" not in shown and "x<y" not in shown
    assert "default branch" in shown and "abababab" in shown and "unpacked" in shown
    assert "conversion" not in shown  # the page says it once
    assert "gives this digest on files in the official format" in facts_list(sheet("squad")).data
    page = generated_pages.data_page()
    assert page.count("made-up files") == 1 and "gives what the script gave" not in page


def test_long_paths_and_calls_may_break_at_their_joints():
    shown = facts_list(sheet("beir")).data
    assert "collections.load(" in re.sub("<wbr>", "", shown)
    longest = max(re.split(r"<[^>]+>|\s", shown), key=len)
    assert len(longest) <= 30, longest


@pytest.mark.parametrize("state", ["yes", "no", "another state of it"])
def test_the_status_page_says_what_this_machine_has(state, monkeypatch):
    monkeypatch.setattr(data_sheets, "is_here", lambda one: state)
    rows = [
        {"name": "squad", "digest": "0907" * 16},
        {"name": "made tokens", "digest": "50a2" * 16},
    ]
    shown = here_table(rows).data
    assert f"<td>{state}</td>" in shown
    assert "dr-lib data squad --to FOLDER" in re.sub("<(/?span[^>]*|wbr)>", "", shown)
    assert "made tokens" in shown and shown.count("<code>") == 1
