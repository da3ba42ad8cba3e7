"""Paper, recorded and live: which columns there are, whose measure is named, and that smoke runs show no number."""

import re

import numpy as np
import pytest

from dr_lib.evaluation import load_paper
from dr_lib.lab import answer
from dr_lib.places import notebook_of
from dr_lib.report import Comparison, comparison

CLAIM = load_paper("simlm").claim("simlm-target-corpus-mlm-helps")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Verdicts are kept in the test's own folder."""
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))


def columns(html: str) -> list[str]:
    return re.findall(r"<th [^>]*>(.*?)</th>", html)


def cells(html: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", html)[1:]
    return [[re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]


def compared(runs, paper=None, records=None, study="simlm/table08", **options) -> Comparison:
    return Comparison(study, runs, "MRR@10", paper=paper, records=records or {}, **options)


@pytest.fixture
def smoke(record):
    """The same two configurations as a claim of SimLM compares, at smoke scale."""
    rng = np.random.default_rng(0)
    levels = {"MLM": 0.6, "BERT-base": 0.4}
    return {label: [record(label, level + rng.normal(0, 0.01, 80), scale="smoke")] for label, level in levels.items()}


def test_columns_that_have_nothing_to_show_are_left_out(runs):
    assert columns(compared(runs).table(["ahead"], "x").data) == ["configuration", "live"]
    both = compared(runs, {"ahead": 1.0}, runs).table(["ahead"], "x").data
    assert columns(both) == ["configuration", "paper", "recorded", "record", "live"]
    assert '<a href="../../book/records/laptop/ahead.json">seed 0</a>' in both
    assert "Recorded: tiny, 1,200 passages, 60 queries, laptop scale." in both and "Live: tiny" in both


def test_a_paper_that_measured_something_else_is_said_to(runs):
    known = compared(runs, {"ahead": 39.0, "BM25": 36.0}, paper_measure="top-20 accuracy")
    assert columns(known.table(["ahead"], "x").data)[1:] == ["paper: top-20 accuracy", "live: MRR@10"]
    assert columns(known.differences([("ahead", "BM25")], "x").data)[1] == "paper: top-20 accuracy"
    figure = known.figure(["ahead", "BM25"], "system").data
    assert "paper (top-20 accuracy, %): ahead 39.0, BM25 36.0." in figure and "live (MRR@10, %)" in figure


def test_the_first_figure_leads_the_page(runs):
    both = compared(runs, {"ahead": 39.0, "BM25": 36.0}).figure([*runs], "system").data
    alone = compared(runs).figure([*runs], "system").data
    assert both.count("<svg") == 2 and both.index("Order from best") < both.index("Values by")
    assert both.count("dr-leading") == alone.count("dr-leading") == alone.count("<svg") == 1


def test_the_best_of_a_column_is_bold(runs):
    html = compared(runs, {"ahead": 1.0, "BM25": 3.0}).table([*runs], "x").data
    bold = re.findall(r"<strong>(.*?)</strong>", html)
    assert len(bold) == 2 and bold[0] == "3.0" and bold[1] == f"{100 * runs['ahead'][0].means['MRR@10']:.1f}"


def test_differences_stand_beside_the_papers_and_what_would_have_shown(runs):
    pairs = [("ahead", "BM25"), ("ahead", "missing")]
    html = compared(runs, {"ahead": 3.0, "BM25": 1.5}).differences(pairs, "x", tests=True).data
    assert columns(html) == ["difference", "paper", "live", "p (Holm)", "smallest detectable"]
    first, second = cells(html)
    assert first[1] == "+1.5" and first[2].startswith("+") and first[3] == "&lt; 0.0001"
    assert second == ["ahead against missing", *["&ndash;"] * 4]
    assert "p (Holm)" not in columns(compared(runs).differences(pairs, "x").data)


def test_records_decide_where_there_are_some(runs, record):
    other = {"ahead": [record("ahead", np.zeros(60))], "BM25": [record("BM25", np.ones(60))]}
    known = compared(runs, records=other)
    assert known.source == "recorded" and "-100.0" in known.differences([("ahead", "BM25")], "x").data


def test_smoke_runs_show_no_number_and_one_folded_line(smoke):
    known = compared(smoke, {"MLM": 36.7, "BERT-base": 33.7})
    labels = ["MLM", "BERT-base"]
    html = known.table(labels, "x").data
    assert columns(html) == ["configuration", "paper"] and "interval" not in html
    assert "This build made 2 runs at smoke scale in 2 min" in html  # the stage that both share counts once
    assert columns(known.differences([tuple(labels)], "x", tests=True).data) == ["difference", "paper"]
    figure = known.figure(labels, "objective").data
    assert "paper (" in figure and "live" not in figure
    verdicts = compared(smoke, study="simlm/table07").verdicts([CLAIM]).data
    assert ">not run</span>" in verdicts and 'class="pair"' not in verdicts


def test_without_paper_and_records_smoke_runs_leave_a_card_with_cost_and_command(smoke, record, monkeypatch):
    timed = {"a": [record("a", [1.0])], "b": [record("b", [1.0])]}
    monkeypatch.setattr(comparison, "recorded", lambda study: timed)
    known = compared(smoke)
    html = known.table(["MLM", "BERT-base"], "x").data
    assert "<table" not in html and "Not measured yet" in html and "2 configurations, about 90 s each" in html
    assert "papermill notebooks/simlm/table08_replace_rates.ipynb out.ipynb -f notebooks/scales/laptop.yaml" in html
    assert known.figure(["MLM"], "objective").data == ""
    assert known.differences([("MLM", "BERT-base")], "x") is comparison.NOTHING


def test_recorded_runs_are_shown_beside_the_line_of_a_smoke_build(smoke, runs):
    html = compared(smoke, records=runs).table([*runs], "x").data
    assert columns(html) == ["configuration", "recorded", "record"] and "Not measured" not in html
    assert "at smoke scale" in html


def test_a_clear_difference_holds_and_the_caption_says_where(record):
    rng = np.random.default_rng(0)
    levels = {"MLM": 0.6, "BERT-base": 0.4}
    runs = {
        label: [record(label, level + rng.normal(0, 0.01, 80), seed=seed, study="simlm/table07") for seed in (0, 1)]
        for label, level in levels.items()
    }
    alone = {label: own[:1] for label, own in runs.items()}
    html = compared(alone, study="simlm/table07").verdicts([CLAIM]).data
    assert ">one seed</span>" in html and ", leans held</span>" in html
    html = compared(runs, study="simlm/table07").verdicts([CLAIM]).data
    assert ">held</span>" in html and "Measured: tiny, 1,200 passages, 80 queries, laptop scale." in html
    assert "MLM over BERT-base: +" in html


def test_a_claim_that_another_study_answers_has_the_ledgers_verdict(smoke):
    found, _ = answer(CLAIM)
    assert f">{found.state}</span>" in compared(smoke).verdicts([CLAIM]).data


def test_labels_and_captions_are_escaped(record):
    runs = {"<b>": [record("<b>", [0.5, 1.0])], "x": [record("x", [0.5, 0.5])]}
    known = compared(runs)
    parts = (known.table(["<b>"], "<i>"), known.differences([("<b>", "x")], "<i>"), known.figure(["<b>"], "<i>"))
    assert not re.search(r"<b>|<i>", "".join(part.data for part in parts))


def test_a_study_leads_to_the_notebook_that_runs_it():
    assert notebook_of("simlm/table08") == "notebooks/simlm/table08_replace_rates.ipynb"
    assert notebook_of("dpr_paq/table01") == "notebooks/dpr_paq/table01_qa.ipynb"
    assert notebook_of("methods/equal-budgets") == "notebooks/methods/equal_budgets.ipynb"
    assert notebook_of("methods/open-domain") == "notebooks/methods/open_domain.ipynb"
    assert notebook_of("methods/pipeline-squad") == "notebooks/methods/pipeline.ipynb"
    assert notebook_of("your_corpus/mine") == "notebooks/your_corpus.ipynb"
    assert notebook_of("simlm/table99") is None and notebook_of(None) is None
