"""Generated pages: claims counted and escaped under their paper, content of the first page."""

import html
import importlib
import json
import re

import generated_pages
import pandas as pd
import pytest
from generated_pages import (
    DOCUMENTED,
    IDEAS,
    api_page,
    bar,
    claims_page,
    counted_pairs,
    counts_table,
    entry_badge,
    faults_section,
    made_twice,
    paper_cards,
    rebuilt_section,
    records_tables,
    speed_table,
    splits_tables,
)

from dr_book.measured import all_recorded, made_by
from dr_book.papers import load_papers
from dr_book.tables import named
from dr_book.verdicts import STATES
from dr_lib import lab, places
from dr_lib.files import write_json
from dr_lib.lab import load_records, recorded_folder
from dr_lib.lab.records import read_records
from dr_lib.training import machine

PAIR = {
    "better": "SimLM",
    "worse": "MLM",
    "measure": "MRR@10",
    "relation": "over",
    "state": "not run",
    "testable": True,
    "carrying": True,
    "unit": "points",
    "paper": None,
    "difference": None,
    "low": None,
    "high": None,
    "seeds": [],
}
ENTRY = {
    "statement": "a < b",
    "source": "Table 8",
    "scale": None,
    "collection": "squad",
    "study": "simlm/table08",
    "notes": ["unseen"],
    "verdict": "not run",
    "protocol": "scaled",
    "lacks": "",
    "why": "because",
    "block": None,
    "unchecked": "",
    "page": None,
    "p_over_claims": 0.01,
    "looks": 2,
    "pairs": [PAIR],
    "epochs": [],
}
TESTED = PAIR | {"difference": 1.26, "low": 0.4, "high": 2.1, "seeds": [2, 3], "paper": 0.7}


def counted(entry):
    """An entry with the counts of its pairs."""
    states = [pair["state"] for pair in entry["pairs"]]
    return entry | {"counts": {state: states.count(state) for state in STATES}}


def entries():
    """One entry a claim, in the form of the ledger: the first is held, the second contradicted."""
    made = [
        ENTRY | {"paper": key, "claim": claim.id}
        for key, paper in load_papers().items()
        for claim in paper.claims
    ]
    bm25 = PAIR | {"worse": "BM25", "state": "not testable here", "testable": False}
    made[0] |= {
        "verdict": "held",
        "scale": "laptop",
        "notes": ["told"],
        "epochs": [0, 3],
        "protocol": "stand-in",
        "lacks": "no <i>NQ</i>.",
        "block": 4,
        "page": "notebooks/simlm/table08_replace_rates",
        "pairs": [TESTED | {"state": "supported"}, TESTED | {"state": "open"}, bm25],
    }
    made[1] |= {
        "verdict": "contradicted",
        "scale": "laptop",
        "pairs": [TESTED | {"state": "contradicted"}],
    }
    return [counted(entry) for entry in made]


def test_pairs_and_claims_add_up_over_papers():
    html = counts_table(entries()).data
    assert '<a href="#dpr-paq">DPR-PAQ</a>' in html
    assert html.count("<tr>") == 2 * (2 + len(load_papers()))
    number = '<td class="number">{}</td>'.format
    left = len(entries()) - 2
    waiting = '<td class="empty words">&ndash;</td>'
    cells = [number(1), number(1), waiting, number(1), number(1 + left)]
    assert f"<td>all</td>{''.join(cells)}" in html
    for row in ((len(entries()), 1),):
        assert f"<td>all</td>{''.join(map(number, row))}" in html


def test_the_first_page_counts_pairs_and_shows_hollow_what_stand_ins_tested():
    made = entries()
    html = paper_cards(made)
    assert {*IDEAS} == {*load_papers()} and html.count('dr-paper"') == 5
    assert 'aria-label="1 supported, 1 open, 1 contradicted"' in html
    assert '<i class="supported hollow" style="flex:1"></i>' in html
    assert '<i class="contradicted" style="flex:1"></i>' in html
    assert "3 pairs tested, of 26 claims" in html and "0 pairs tested" in html
    assert "Of these pairs 3 are tested here" in html
    assert '<i class="hollow"></i>outlined: 2 of these, on other data than the paper' in html
    assert (
        f"Of {len(made)} claims 1 are held, 0 of them in their direction alone;"
        " 1 are contradicted, 0 open, and" in html
    )
    assert "leaning" not in html and 'aria-label="none tested"' in bar(made[3:4])


def test_a_changed_pair_changes_card_bar_and_table():
    made = entries()
    changed = counted(made[1] | {"pairs": [TESTED | {"state": "open"}]})
    after = [made[0], changed, *made[2:]]
    assert 'aria-label="1 supported, 2 open"' in paper_cards(after)
    assert counted_pairs(made[1]) == "1 pair against"
    assert counted_pairs(changed) == "1 pair open"
    assert counts_table(after).data != counts_table(made).data


def test_what_waits_for_seeds_is_told_from_what_is_undecided():
    waiting = TESTED | {"state": "open", "waits": 2}
    entry = counted(ENTRY | {"paper": "simlm", "claim": "x", "verdict": "open", "waits": 2})
    entry |= {"pairs": [waiting, TESTED | {"state": "open"}]}
    assert counted_pairs(entry) == "1 pair open, 1 waiting for seeds"
    assert 'aria-label="1 open, 1 waiting for seeds"' in bar([entry])
    assert ">open: waits for seeds<" in entry_badge(entry).html
    assert ">open<" in entry_badge(entry | {"waits": 0}).html
    unfinished = entry | {"pairs": [TESTED | {"state": "open"}, TESTED | {"state": "not run"}]}
    assert counted_pairs(unfinished).endswith("1 pair open, 1 not run"), "what keeps it open"


@pytest.mark.parametrize(
    ("paper", "unchecked", "direction"),
    [(0.7, "", False), (3.0, "", True), (0.7, "the size of the gain", True)],
)
def test_a_claim_that_names_another_size_is_held_in_its_direction(paper, unchecked, direction):
    pair = TESTED | {"state": "supported", "paper": paper}
    entry = counted(ENTRY | {"verdict": "held", "unchecked": unchecked, "pairs": [pair]})
    badge = f">direction held, here 1.3, paper {paper}<"
    assert (badge in entry_badge(entry).html) is direction
    twice = entry | {"pairs": [pair, pair]}
    assert (">direction held<" in entry_badge(twice).html) is direction
    assert (f"paper +{paper} and +{paper}, here +1.3 and +1.3" in counted_pairs(twice)) is direction


def test_every_claim_is_one_line_under_its_paper_and_opens_to_what_it_rests_on():
    page = claims_page(entries())
    assert "\n# All claims\n" in page and page.index("## SimLM") < page.index(
        "## DPR-PAQ"
    ) < page.index("## PAIR")
    assert page.count("a &lt; b") == page.count('<details class="dr-claim"') == len(entries())
    assert "Judged on SQuAD, laptop scale (other data); its runs came in on 2 days" in page
    assert page.count(">held</span>") == 1 and page.count(">stand-in</span>") == 1
    assert "SimLM over masked LM: +1.3 [+0.4,\N{NO-BREAK SPACE}+2.1] of MRR@10, supported" in page
    assert "<p>no &lt;i&gt;NQ&lt;/i&gt;.</p><p>because</p>" in page and "told" in page
    assert "Waits for runs of the plan: a re-ranker (block 4)." in page
    assert 'href="../notebooks/simlm/table08_replace_rates.html"' in page
    assert "1 pairs compare a dense retriever with BM25" in page
    assert "Of the 2 decided claims 2 stay significant" in page and "over all 2 judged" in page
    assert "Each of the 3 dots is a pair" in page and page.index("Each of") < page.index("## SimLM")


def test_a_decision_that_falls_among_all_judged_claims_is_named():
    made = entries()
    made[1] |= {"p_over_claims": 0.06}
    made[2] |= {"verdict": "open", "p_over_claims": 1.0}
    page = claims_page(made)
    assert "Of the 2 decided claims 1 stay" in page and "over all 3 judged claims" in page
    assert f'The others are less sure: <a href="#{made[1]["claim"]}">' in page


def test_claims_can_be_filtered_by_what_they_rest_on():
    page = claims_page(entries())
    facts = [json.loads(html.unescape(one)) for one in re.findall(r'data-claim="(.*?)"', page)]
    expected = {"paper": "SimLM", "verdict": "held", "data": "stand-in", "waits for": "a re-ranker"}
    assert len(facts) == len(entries()) and facts[0] == expected
    (form,) = re.findall(r"<form.*?</form>", page)
    # without JavaScript nothing is hidden but the form
    assert form.startswith('<form class="dr-filter" hidden>')
    offered = {
        name: re.findall(r"<option>(.*?)</option>", own)
        for name, own in re.findall(r'<select name="(.*?)">(.*?)</select>', form)
    }
    for name, values in offered.items():
        assert {one[name] for one in facts} == {*values}
        assert not re.search(r"\d|block|none", " ".join(values)), (
            "no numbers of the plan or of code"
        )
    (line,) = [line for line in page.splitlines() if "<script>" in line]
    # all on one line: a comment to its end would eat the script
    assert "//" not in line.partition("<script>")[2]


def test_the_files_of_records_stand_beside_the_pages(tmp_path):
    generated_pages.copy_records(tmp_path)
    files = sorted(places.records_root().glob("*/*.jsonl.xz"))
    copies = sorted(tmp_path.rglob("*.xz"))
    assert [file.read_bytes() for file in copies] == [file.read_bytes() for file in files]
    assert len(files) > 50


def test_ten_lines_read_a_file_of_records_as_the_project_does(capsys, monkeypatch):
    monkeypatch.chdir(places.project_root())
    exec(generated_pages.READING, {})
    means = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    records, broken = read_records(recorded_folder("laptop") / "simlm-table08.jsonl.xz")
    assert means == pytest.approx([record.means["MRR@10"] for record in records])
    assert not broken and generated_pages.READING.count("\n") <= 11
    table = pd.read_json(recorded_folder("laptop") / "simlm-table08.jsonl.xz", lines=True)
    assert table["label"].tolist() == [record.label for record in records]


def test_what_the_records_page_says_of_reading_in_a_line_runs(monkeypatch):
    monkeypatch.chdir(places.project_root())
    monkeypatch.setattr(generated_pages, "SCALES", ())  # no tables
    page = generated_pages.records_page()
    found = re.search(r"The (\d+) records with the commit (\w+) were made on an H200", page)
    known = [run for run in all_recorded() if str(run.commit.get("id")).startswith(found[2])]
    assert len(known) == int(found[1]) > 0
    assert all("H200" in run.machine["gpus"][0] for run in known)
    lines = re.findall(r"`([^`\n]*[(.][^`\n]*)`", page.partition("```")[0])
    read = [line for line in lines if line.startswith(("lab.", "pandas."))]
    attributes = [line for line in lines if line.startswith(".")]
    file = "book/records/laptop/simlm-table08.jsonl.xz"
    table, records = (eval(line, {"lab": lab, "pandas": pd, "file": file}) for line in read)
    assert len(table) == len(records) > 0 and len(attributes) == 3
    for record in records:
        values, clusters, training = (
            eval(f"record{line}", {"record": record}) for line in attributes
        )
        assert values.mean() == pytest.approx(record.means["MRR@10"])
        assert len(clusters.of) == len(values) and {*training} <= {*record.keys}


def test_what_was_made_again_stands_on_the_status_page():
    record = load_records(recorded_folder("laptop"), "simlm/table08")[0]
    (first, again, found) = next(pair for pair in made_twice() if pair.found["low"] is not None)
    certificate = found | {"machine": {"cpu": "A <chip>"}, "created": "2026-01-02T"}
    certificate["outcome"] = "different"
    words, html = rebuilt_section([record.model_copy(update={"rebuilt": (certificate,)})])
    assert "<td>different</td>" in html.data and "A &lt;chip&gt;" in html.data
    assert first.file_name in html.data and made_by(again) in html.data
    assert all(f"{value:.2f}" in html.data for value in found["means"][found["measure"]])
    assert "Without: none." in words, "only SimLM is among the records given"


def test_methods_without_a_second_training_are_named():
    records = generated_pages.all_recorded()
    words, _ = rebuilt_section(records)
    twice, once = words.removesuffix(".").split(". Without: ")
    for name in {run.recipe["objective"]["name"] for run in records if run.training}:
        pairs = [pair for pair in made_twice() if pair.record.recipe["objective"]["name"] == name]
        kept = [run for run in records if run.rebuilt and run.recipe["objective"]["name"] == name]
        place = twice if pairs or any(run.training for run in kept) else once
        assert named(name) in re.split(", |: ", place), name


def test_dialogues_and_tasks_have_the_counts_of_the_files_that_were_read():
    dialogues = {"train": {"contexts": 1234, "candidates": 0, "digest": "a"}}
    dialogues |= {"test": {"contexts": 56, "candidates": 20, "digest": "b"}}
    counted = {
        "sgd": dialogues,
        "glue-cola": {split: {"rows": 7890, "digest": split} for split in ("train", "dev")},
    }
    known = [
        {"name": "sgd", "digest": "b", "studies": set()},
        {"name": "glue-cola", "digest": "train dev", "studies": set()},
    ]
    contexts, rows = (one.data for one in splits_tables(known, counted))
    assert (
        all(f'<td class="number">{number}</td>' in contexts for number in ("1,234", "56", "20"))
        and rows.count(">7,890<") == 2
    )
    (other,) = splits_tables([known[0] | {"digest": "c"}], counted)
    assert "1,234" not in other.data  # another file of that name


def test_three_intervals_of_one_difference_lie_around_one_mean(monkeypatch):
    """A seed that was trained twice counts once, in every one of the intervals."""
    drawn = []
    monkeypatch.setattr(generated_pages, "intervals", lambda series, *_, **__: drawn.extend(series))
    generated_pages.interval_figure()
    means = [interval.mean for interval in drawn[0].points.values()]
    assert len(means) == 3
    assert means == pytest.approx([means[2]] * 3, abs=1e-6)


def test_the_records_page_names_records_and_machine_in_words():
    records = load_records(recorded_folder("laptop"), "simlm/table08")
    rates = next(record for record in records if record.label == "30% / 50%")
    configuration, _, data, *_ = generated_pages._record_row(rates)
    assert configuration.replace("\N{NO-BREAK SPACE}", "_") == "30_%_/_50_%"
    assert data.startswith("SQuAD (")
    assert {*generated_pages.MACHINE, "versions"} == {*machine.machine_facts()}


def test_a_share_of_a_peers_time_is_met_where_the_median_is_low_enough():
    row = {
        "date": "2026-01-02",
        "load": 1.5,
        "what": "search",
        "ours": "ours",
        "peer": "<faiss>",
        "wanted": 1.1,
        "by_quickest": 0.9,
    }
    found = {
        "rows": [row | {"by_median": 1.1}, row | {"by_median": 1.12}],
        "machine": {"cpu": "A chip", "versions": {"torch": "2"}},
    }
    page = speed_table(found | {"threads": 1}).data
    assert (
        "A chip, 1 thread, torch 2; 2026\u201101\u201102; load average of the machine 1.5 to 1.5."
        in page
    )
    assert "&lt;faiss&gt;" in page
    assert (
        re.findall("<td>(yes|no)</td>", page) == ["yes", "no"]
        and '<td class="number">1.12</td>' in page
    )
    assert "1 of 2 targets are met on A chip" in page
    assert "at least" not in page  # a bound that no row has
    rows = [row | {"by_median": 1.1, "at_least": 0.25}, *found["rows"]]
    assert '<td class="number">0.25</td>' in speed_table(found | {"rows": rows, "threads": 1}).data


def test_the_records_of_each_page_are_folded_under_its_title():
    words, *pages = (part.data for part in records_tables("laptop"))
    records = load_records(recorded_folder("laptop"))
    assert f"{len(records):,} records of " in words and len(pages) > 30
    # a row each, below one of heads
    assert sum(page.count("<tr>") - 1 for page in pages) == len(records)
    for page in pages:  # no column that says the same of every row
        body = [re.findall("<td.*?</td>", row) for row in page.split("<tr>")[2:]]
        columns = [*zip(*body, strict=True)][1:]
        assert len(body) == 1 or all(len({*column}) > 1 for column in columns), page[:80]
    (rates,) = (page for page in pages if "table08_replace_rates" in page)
    number = sum(record.study == "simlm/table08" for record in records)
    assert rates.startswith(
        f'<details class="dr-folded"><summary>SimLM, Table 8: replace rates ({number}'
        " records)</summary>"
    )
    assert '<a href="../notebooks/simlm/table08_replace_rates.html">' in rates
    (public,) = (page for page in pages if "real-models" in page)  # a page without a notebook
    assert (
        '<a href="../practice/real-models.html">Public models, and numbers that others confirm</a>'
        in public
    )
    (core,) = (page for page in pages if "<summary>The plan of runs: core (" in page)
    assert '<a href="../notebooks/methods/what_the_bottleneck_buys.html">' in core
    assert not re.search(r"<summary>[\w-]+/", "".join(pages)), "each has a name in words"
    assert records_tables("paper") == []


def test_the_status_page_has_the_counts_of_the_fault_tests(tmp_path):
    assert "not measured yet" in faults_section(tmp_path / "none.json")[0]
    found = {
        "counts": {"kills": 1200, "fuzzed <folders>": 34},
        "failed": [],
        "date": "2026-01-02",
        "commit": {"id": "a" * 40},
    }
    write_json(tmp_path / "faults.json", found)
    told, counts = faults_section(tmp_path / "faults.json")
    assert (
        "Of 1,234 trials on 2026\u201101\u201102, at commit aaaaaaaaaa: no number was wrong" in told
    )
    assert "not measured" not in told
    assert "fuzzed &lt;folders&gt;" in counts.data and "1,200" in counts.data
    write_json(
        tmp_path / "faults.json", found | {"failed": ["tests/lab/test_faults.py::test_kills"]}
    )
    told, _ = faults_section(tmp_path / "faults.json")
    assert "1 of its tests failed: test_kills" in told and "no number was wrong" not in told


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_page_of_a_package_is_what_its_docstrings_say(name):
    assert importlib.import_module(f"dr_lib.{name}").__doc__
    head, _, body = api_page(f"dr_lib.{name}").partition("\n\n")
    assert head == f"# dr_lib.{name}"
    assert body.splitlines()[:2] == ["```{eval-rst}", f".. automodule:: dr_lib.{name}"]
    assert ":imported-members:" in body
