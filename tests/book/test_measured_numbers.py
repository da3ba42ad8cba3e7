"""Numbers in prose come from records, by the role `measured`, or from files of measurements; typed
numbers state their source.
"""

import re
from types import SimpleNamespace
from unittest.mock import Mock

import measured_numbers
import prose
import pytest
from docutils import nodes
from docutils.utils import new_document
from growth_numbers import GROWTH, TABLES, WHOLE, looked_up, shown
from lxml import html
from measured_numbers import CHANCE, costs_html, link_chance, measured, printed, seeds, trained_rows
from sphinx.addnodes import pending_xref

from dr_book.measured import on_processors, recorded
from dr_book.statistics import SeedVariance
from dr_book.tables import named, seeds_in
from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.files import read_json, write_json
from dr_lib.places import project_root

PAGES = sorted((places.project_root() / "book").glob("*/*.md")) + sorted(
    (places.project_root() / "book").glob("*.md")
)
# A result as pages print one: "37.1 %", "+0.7 points", "reaches 44.1", "MRR@10 of 33.6", "26.3
# [23.6, 29.0]".
RESULT = re.compile(
    r"\d+\.\d %|[-+]?\d+\.\d+ points|(?:reach\w*|scor\w+|MRR@10 of|nDCG@10 of|R@\d+ of)"
    r" \d+\.\d|\d+\.\d+ \[[-+]?\d"
)
NO_RECORD = re.compile(r"\btrials?\b|\bpaper's?\b|\bTable \d|cite:|not records")
"""Words of a paragraph whose numbers are not from records: declared trials, or the paper's own."""


def paragraphs(text: str) -> list[str]:
    """Paragraphs without code, formulas and the role's own cells, each with the paragraphs before
    it in its section.
    """
    text = re.sub(r"```.*?```|\$\$.*?\$\$|<svg.*?</svg>", "", text, flags=re.DOTALL)
    text = re.sub(r"\{measured\}`[^`]*`|`[^`]*`|\$[^$]*\$", "", text)
    sections = re.split(r"\n#+ ", text)
    return [
        f"{section}\0{part}" for section in sections for part in re.split(r"\n\s*\n|\n- ", section)
    ]


def typed(text: str) -> list[str]:
    """Results in prose without a record."""
    found = []
    for pair in paragraphs(text):
        section, _, part = pair.partition("\0")
        if not NO_RECORD.search(part) and not re.search(r"\btrials?\b", section):
            found += RESULT.findall(part)
    return found


def test_a_cell_is_the_mean_of_its_record():
    (record,) = recorded("dpr_paq/table03")["posts"]
    assert measured("dpr_paq/table03; posts; R@1") == f"{100 * record.means['R@1']:.1f}"
    amount, cosine = (
        measured("simlm/table03; SimLM; gigabytes"),
        measured("pair/figure04; PAIR; s(p+, q) mean"),
    )
    assert 20 < float(amount) < 40 and 0 < float(cosine) < 1
    assert measured("evaluation/zero-shot; BM25; nDCG@10; scifact") != measured(
        "evaluation/zero-shot; BM25; nDCG@10; npl"
    )


@pytest.mark.parametrize(
    "cell",
    [
        "simlm/table99; SimLM; MRR@10",
        "simlm/table07; Nobody; MRR@10",
        "simlm/table07; SimLM; MRR@7",
    ],
)
def test_a_cell_without_a_record_is_refused(cell):
    with pytest.raises(InputError):
        measured(cell)


def test_a_cell_counts_runs_of_its_configuration_in_other_studies(monkeypatch):
    monkeypatch.setattr(measured_numbers, "all_runs", lambda records: [*records, "of another"])
    records, measure = measured_numbers.records_of("plan/core; simlm; MRR@10; squad")
    assert (records[-1], measure) == ("of another", "MRR@10")


def test_a_spread_is_that_of_its_stage(monkeypatch):
    pools = [("laptop", "squad", f"retriever{n}", SeedVariance(((9, n * n),))) for n in (2, 1)]
    monkeypatch.setattr(measured_numbers, "seed_variances", lambda measure: pools)
    assert measured_numbers.spread("MRR@10; squad; retriever1").startswith("1.00 [")


def test_one_of_several_collections_must_be_named():
    with pytest.raises(InputError, match="several collections"):
        measured("evaluation/zero-shot; BM25; nDCG@10")


def test_costs_are_those_of_the_records_with_machine_and_threads():
    html, runs = (
        costs_html("methods/equal-budgets"),
        on_processors(recorded("methods/equal-budgets")),
    )
    logs = {
        label: [one.training["pretrained"] for one in own if one.training.get("pretrained")]
        for label, own in runs.items()
    }
    seconds = {label: [log["wall_seconds"] for log in own] for label, own in logs.items() if own}
    assert max(map(len, seconds.values())) > 2, "a list of these would be too long for a cell"
    for label, own in seconds.items():
        cells = [f"<td>{re.escape(named(label))}</td>"]
        for unit, digits in ((60, 0), (seconds["mlm"][0], 1)):  # minutes, times of masked LM
            least, most = (f"{end(own) / unit:.{digits}f}" for end in (min, max))
            cells.append(f"<td[^>]*>{least if least == most else f'{least} to {most}'}</td>")
        assert re.search("".join(cells), html)
    assert (
        "1 thread on" in html
        and runs["mlm"][0].machine["cpu"] in html
        and html.count("<tr>") == len(seconds) + 1
    )
    with pytest.raises(InputError):
        costs_html("evaluation/graded-none")


def test_times_are_those_of_the_executed_notebooks(tmp_path):
    """Kernel time is the sum; a notebook that papermill did not run has none."""
    runs = {"lessons/a": {"duration": 61.25, "parameters": {"scale": "smoke"}}, "b": {}}
    files = {}
    for name, run in runs.items():
        files[f"notebooks/{name}"] = tmp_path / f"{name[-1]}.ipynb"
        cell = {"cell_type": "markdown", "source": [f"# Title <{name}>\n", "more"]}
        content = {"cells": [cell], "metadata": {"papermill": run} if run else {}}
        write_json(files[f"notebooks/{name}"], content)
    shown = html.fromstring(measured_numbers.times_html(files, "reference"))
    rows = [[cell.text_content().strip() for cell in row] for row in shown.iterfind(".//tbody/tr")]
    assert [row[:2] for row in rows] == [["Title <lessons/a>", "smoke"], ["Title <b>", "–"]]
    assert rows[0][2].startswith("61") and rows[1][2] == "–"
    assert [one.get("href") for one in shown.iterfind(".//tbody//a")] == [
        "../notebooks/lessons/a.html",
        "../notebooks/b.html",
    ]
    assert "2 notebooks, executed in 61 s of kernel time" in shown.text_content()


def test_every_cell_on_a_page_has_a_record():
    cells = [
        cell for page in PAGES for cell in re.findall(r"\{measured\}`([^`]+)`", page.read_text())
    ]
    assert len(cells) >= 4
    for cell in cells:
        assert float(measured(cell).replace(",", "")) >= 0


def test_typed_results_are_found():
    for text in (
        "SimLM reaches 44.1.",
        "The gain is 0.7 points.",
        "It is right for 21.6 % of all.",
        "BM25: 26.3 [23.6, 29.0]",
    ):
        assert typed(text), text
    for text in (
        "In a trial SimLM reached 44.1.",
        "{measured}`a; b; c` % of all",
        "The paper's gain is 3.0 points.",
        "a rate of 0.3",
    ):
        assert not typed(text), text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_result_in_prose_is_typed(page):
    assert typed(page.read_text()) == []


def test_a_number_of_a_paper_is_its_cell_or_the_difference_of_two_rows():
    assert printed("simlm/table8; 30% / 50%; MRR@10") == "38.0"
    assert printed("simlm/table5; SimLM minus BERT-base; MRR@10") == "0.6"


WRONG = [
    "bert/table5; SimLM; MRR@10",
    "simlm/table99; SimLM; MRR@10",
    "simlm/table5; Nobody; MRR@10",
    "simlm/table5; SimLM; MRR@7",
]


@pytest.mark.parametrize(
    "cell", [*WRONG, "simlm/table5; SimLM minus Nobody; MRR@10", "cdmae/table6; MAE; complexity"]
)
def test_a_paper_table_row_or_column_of_a_wrong_name_is_refused(cell):
    with pytest.raises(InputError):
        printed(cell)


def test_every_number_of_a_paper_that_a_page_names_is_there():
    texts = "".join(
        path.read_text()
        for path in [*PAGES, *(places.project_root() / "notebooks").rglob("*.ipynb")]
    )
    cells = re.findall(r"\{paper\}`([^`]+)`", texts)
    assert len(cells) >= 10
    assert all(float(printed(cell)) for cell in cells)


def test_seeds_are_counted_by_rows_that_are_trained():
    assert seeds([1]) == seeds([1, 1]) == "one seed"
    assert seeds([2]) == "two seeds"
    assert seeds([2, 1]) == "one or two seeds"
    assert seeds([3, 1]) == "one to three seeds"


def test_a_row_that_is_not_trained_counts_no_seed():
    rows = trained_rows("methods/equal-budgets")
    assert rows and "bm25" not in {record.label.lower() for row in rows for record in row}
    with pytest.raises(InputError, match="no trained record of 'simlm/table99'"):
        trained_rows("simlm/table99")


def test_where_a_record_comes_all_pages_are_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(measured_numbers, "recorded_folder", lambda scale: tmp_path)
    env = SimpleNamespace(found_docs={"b", "a"})
    assert (
        measured_numbers.pages_to_read(None, env, set())
        == []
        == measured_numbers.pages_to_read(None, env, set())
    )
    (tmp_path / "x.jsonl.xz").touch()
    assert measured_numbers.pages_to_read(None, env, set()) == [
        "a",
        "b",
    ] and not measured_numbers.pages_to_read(None, env, set())


def test_seeds_of_named_rows_are_those_rows_and_a_row_without_records_is_refused():
    three = trained_rows("simlm/table07; SimLM; MLM; AutoEncoder")
    assert {own[0].label for own in three} == {"AutoEncoder", "MLM", "SimLM"}
    assert len(three) == 3 < len(trained_rows("simlm/table07"))
    with pytest.raises(InputError, match="no trained record"):
        trained_rows("simlm/table07; SimLM; never run")


def test_every_study_that_a_page_counts_seeds_of_has_some():
    sources = [*PAGES, *sorted((places.project_root() / "notebooks").glob("*/*.ipynb"))]
    studies = {
        study
        for page in sources
        for study in re.findall(r"\{seeds\}`([^`]+)`", page.read_text(encoding="utf-8"))
    }
    assert len(studies) > 5
    for study in studies:
        assert re.fullmatch(
            r"(\w+ (or|to) )?(one|two|three|four|five|six|seven|eight) seeds?",
            seeds([*map(seeds_in, trained_rows(study))]),
        ), study


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


# Chance -------------------------------------------------------------------------------------------


def test_the_first_words_of_a_page_that_say_chance_lead_to_the_glossary():
    page = new_document("page")
    page += nodes.title("", "", nodes.Text(f"A lead {CHANCE}"))
    page += nodes.paragraph("", "", nodes.strong("", f"Its gain {CHANCE}, too."))
    page += nodes.paragraph("", f"This {CHANCE} as well.")
    text = page.astext()
    link_chance(SimpleNamespace(env=SimpleNamespace(docname="simlm")), page)
    (link,) = page.findall(pending_xref)
    assert (link.parent.tagname, link.astext(), page.astext()) == ("strong", CHANCE, text)
    assert (link["refdomain"], link["reftype"], link["reftarget"]) == ("std", "term", CHANCE)
    for words in ("No chance.", ""):
        other = new_document("other")
        other += nodes.paragraph("", words)
        link_chance(SimpleNamespace(), other)
        assert not [*other.findall(pending_xref)]


def test_pages_say_chance_and_the_glossary_has_the_term():
    pages = [page for pattern in prose.FOLDERS for page in prose.ROOT.glob(pattern)]
    said = {page.name for page in pages if CHANCE in prose.markdown(page)}
    glossary = (prose.ROOT / "book" / "reference" / "glossary.md").read_text()
    assert f"\n{CHANCE}\n  Said of a difference" in glossary and len(said) > 15


def test_records_are_read_before_the_processes_that_read_pages_are_forked(monkeypatch):
    """Each of six processes read all records of the book."""
    app, read = Mock(), Mock()
    monkeypatch.setattr(measured_numbers, "seed_variances", read)
    measured_numbers.setup(app)
    connected = {call.args[0]: call.args[1] for call in app.connect.call_args_list}
    connected["env-before-read-docs"](app, app.env, [])
    read.assert_not_called()  # nothing to read
    connected["env-before-read-docs"](app, app.env, ["ideas/statistics"])
    read.assert_called_once()
