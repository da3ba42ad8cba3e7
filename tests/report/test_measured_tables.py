"""Tables of measured values: columns that have nothing to show are left out, tests are corrected over a table."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from dr_lib.report import checks_table, differences_table, measured, recorded_studies, similarity_table, values_table
from dr_lib.report.measured import corrected_tests, spell_data

RNG = np.random.default_rng(0)


def record(label: str, scores, measures=("MRR@10",), seed: int = 0) -> SimpleNamespace:
    """What tables read of a record."""
    scores = np.asarray(scores, np.float32)
    return SimpleNamespace(
        label=label, seed=seed, scale="laptop", data={"collection": {"name": "tiny", "passages": 1200}},
        file_name=f"{label}.json", query_ids=list(range(len(scores))),
        per_query=lambda measure: scores, means=dict.fromkeys(measures, float(scores.mean())),
    )  # fmt: skip


@pytest.fixture
def runs():
    base = RNG.random(60)
    return {
        "a": [record("a", np.clip(base + 0.2, 0, 1))],
        "b": [record("b", base)],
        "c": [record("c", np.clip(base + RNG.normal(0, 0.05, 60), 0, 1))],
    }


def columns(html: str) -> list[str]:
    return re.findall(r'<th scope="col">(.*?)</th>', html)


def test_a_caption_says_what_was_searched(runs):
    html = values_table(["a"], paper={}, recorded={}, live=runs, measure="MRR@10", caption="Rows.").data
    assert "Live: tiny, 1,200 passages, 60 queries, laptop scale." in html and "Recorded:" not in html
    assert "Measured: tiny, 1,200 passages" in differences_table(
        [("a", "b")], paper={}, runs=runs, measure="MRR@10", caption="Rows."
    ).data  # fmt: skip
    assert spell_data({}) == ""


def test_a_table_without_printed_values_has_no_column_for_them(runs):
    shown = {"recorded": {}, "live": runs, "measure": "MRR@10", "caption": "x"}
    assert columns(values_table(["a"], paper={}, **shown).data) == ["configuration", "recorded", "seeds", "live"]
    assert columns(values_table(["a"], paper={"b": 1.0}, **shown).data)[1] == "paper"
    pairs = {"runs": runs, "measure": "MRR@10", "caption": "x"}
    assert "paper" not in columns(differences_table([("a", "b")], paper={}, **pairs).data)
    html = differences_table([("a", "b")], paper={"a": 3.0, "b": 1.5}, **pairs).data
    assert "paper" in columns(html) and "+1.5" in html


def test_tests_are_corrected_over_the_pairs_that_were_run(runs):
    alone = corrected_tests([("a", "b")], runs, "MRR@10")["a", "b"]
    both = corrected_tests([("a", "b"), ("c", "b"), ("a", "missing")], runs, "MRR@10")
    assert both["a", "b"] == pytest.approx(2 * alone)
    assert both["c", "b"] > 0.05 and ("a", "missing") not in both


def test_p_values_stand_in_the_table_only_where_asked_for(runs):
    shown = {"paper": {}, "runs": runs, "measure": "MRR@10", "caption": "x"}
    assert "p (Holm)" not in columns(differences_table([("a", "b")], **shown).data)
    html = differences_table([("a", "b"), ("a", "missing")], **shown, tests=True).data
    assert columns(html)[2] == "p (Holm)"
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)[1:]]
    assert rows[0][2] == "&lt; 0.0001" and rows[1][2] == "&ndash;"


def test_checks_of_a_collection_without_answers_lack_a_row():
    found = {"x": {"distilled": [record("distilled", [0.5, 1.0], ("mined: BM25 lists them too",))]}}
    html = checks_table(found).data
    assert "mined: BM25 lists them too" in html and "75.0" in html and "hold an answer" not in html


def test_the_gap_of_similarities_is_taken_query_by_query():
    near, far = np.array([0.9, 0.5, 0.4]), np.array([0.6, 0.6, 0.1])
    columns = {"s(p+, q) mean": near, "s(p+, p-) mean": far}
    one = record("PAIR", near)
    one.per_query = lambda measure: columns[measure].astype(np.float32)
    html = similarity_table({"<PAIR>": [one]}, caption="x").data
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html)
    assert cells[0] == "&lt;PAIR&gt;" and cells[3].startswith("0.167 [") and cells[4:] == ["66.7", "3"]


def test_recorded_studies_are_found_by_how_their_names_begin(monkeypatch):
    kept = {"gpu": ["methods/pipeline-b"], "laptop": ["methods/pipeline-a", "methods/pipeline-b", "simlm/table06"]}
    monkeypatch.setattr(measured, "recorded_folder", lambda scale: scale)
    monkeypatch.setattr(
        measured, "load_records", lambda folder: [SimpleNamespace(study=name) for name in kept.get(folder, [])]
    )
    assert recorded_studies("methods/pipeline-") == ["methods/pipeline-a", "methods/pipeline-b"]
