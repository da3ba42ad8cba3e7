"""Paper, recorded and live: which columns there are, which measures are named, and that smoke runs
show no number.
"""

import re
from dataclasses import asdict

import numpy as np
import pytest

from dr_book import comparison, figures, measured, plan, tables
from dr_book.comparison import Comparison, notebook_of
from dr_book.ledger import answer
from dr_book.papers import load_paper
from dr_book.statistics import Estimate, Interval
from dr_book.tables import p_cell
from dr_book.verdicts import PairResult
from dr_lib.evaluation import Clusters
from dr_lib.lab import recipe_at

CLAIM = load_paper("simlm").claim("simlm-mlm-over-rtd")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Verdicts are cached in the test's own folder."""
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))


def columns(html: str) -> list[str]:
    return re.findall(r"<th [^>]*>(.*?)</th>", html)


def cells(html: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", html)[1:]
    return [
        [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        for row in rows
    ]


def compared(runs, paper=None, records=None, study="simlm/table08", **options) -> Comparison:
    return Comparison(study, runs, "MRR@10", paper=paper, records=records or {}, **options)


@pytest.fixture
def smoke(record):
    """The same two configurations as a claim of SimLM compares, at smoke scale."""
    rng = np.random.default_rng(0)
    levels = {"Enc-Dec MLM": 0.6, "Enc-Dec RTD": 0.4}
    return {
        label: [record(label, level + rng.normal(0, 0.01, 80), scale="smoke")]
        for label, level in levels.items()
    }


def test_panels_of_differences_are_told_in_words_too():
    gaps = {"SQuAD": {"mlm": Interval(1.0, 0.5, 1.5)}, "dev": {"simlm": Interval(-2.0, -3.0, -1.0)}}
    about = {"measure": "MRR@10", "rows": "minus no pre-training"}
    shown = comparison.panels(gaps, ["mlm", "simlm"], **about, leading=True).data
    told = "Minus no pre-training. SQuAD (points of MRR@10): masked LM +1.0."
    assert f'aria-label="{told} dev (points of MRR@10): SimLM -2.0."' in shown
    assert "dr-leading" in shown
    assert not comparison.panels({"SQuAD": {}}, ["mlm"], **about).data, "without records no figure"


def test_columns_that_have_nothing_to_show_are_left_out(runs):
    assert columns(compared(runs).table(["ahead"], "x").data) == ["configuration", "live"]
    both = compared(runs, {"ahead": 1.0}, runs).table(["ahead"], "x").data
    assert columns(both) == ["configuration", "paper", "recorded", "record", "live"]
    assert '<a href="../../book/records/laptop/ahead.jsonl.xz">seed\N{NO-BREAK SPACE}0</a>' in both
    assert (
        "Recorded: tiny, 1,200 passages, 60 queries, laptop scale." in both and "Live: tiny" in both
    )


def test_a_row_that_another_study_has_stands_beside_the_studys_own(runs, record, monkeypatch):
    own, there = record("ahead", [1, 0]), record("row", [0, 1])
    asked = []

    def recorded(study):
        asked.append(study)
        return {"a/own": {"ahead": [own]}, "b/other": {"row": [there], "ahead": [there]}}[study]

    monkeypatch.setattr(comparison.measured, "recorded", recorded)
    others = {"b/other": {"shown": "row", "ahead": "ahead", "gone": "none of its rows"}}
    found = Comparison("a/own", {}, "MRR@10", others=others).recorded
    assert found == {"ahead": [own], "shown": [there]}
    assert asked == ["a/own", "b/other"]


def test_a_seed_stands_beside_the_machine_that_trained_it(record):
    logs = {name: {"retriever1": {"steps": 1, "precision": name}} for name in ("fp32", "bf16")}
    runs = [("bf16", 0, "a"), ("fp32", 0, "b"), ("fp32", 1, "b"), ("fp32", 0, "c")]
    rows = [
        record("ahead", [0.5, 1.0], seed=seed, training=logs[made], study=study)
        for made, seed, study in runs
    ]
    html = compared({}, records={"ahead": rows}).table(["ahead"], "x").data
    lines = re.search(r"</td><td>(<a.*?)</td>", html)[1].split("<br>")
    words = [re.sub("<.*?>", "", line).replace("\N{NO-BREAK SPACE}", " ") for line in lines]
    assert words[0].startswith("seed 0 ") and "bf16" in words[0] and len(words) == 2
    assert words[1].startswith("seed 0, seed 1, again ") and "fp32" in words[1]


def test_a_paper_that_measured_something_else_is_said_to(runs):
    known = compared(runs, {"ahead": 39.0, "BM25": 36.0}, paper_measure="top-20 accuracy")
    assert columns(known.table(["ahead"], "x").data)[1:] == [
        "paper: top-20 accuracy",
        "live: MRR@10",
    ]
    assert columns(known.differences([("ahead", "BM25")], "x").data)[1] == "paper: top-20 accuracy"
    figure = known.figure(["ahead", "BM25"], "system").data
    assert (
        "paper (top-20 accuracy, %): ahead 39.0, BM25 36.0." in figure
        and "live (MRR@10, %)" in figure
    )


def test_a_measure_that_begins_a_sentence_keeps_its_own_capitals(runs, record):
    assert ". MRR@10 in percent" in compared(runs).table([*runs], "x.").data
    for measure, begins in (("nDCG@10", "nDCG@10"), ("accuracy@20", "Accuracy@20")):
        own = {"ahead": [record("ahead", [0.5, 1.0], measure=measure)]}
        assert (
            f"x. {begins} in percent"
            in Comparison("simlm/table08", own, measure, records={}).table(["ahead"], "x.").data
        )


def test_equal_values_are_both_the_best(record):
    equal = {label: [record(label, [0.5, 1.0])] for label in ("ahead", "BM25")}
    assert compared(equal).table([*equal], "x").data.count("<strong>75.0</strong>") == 2
    assert "<strong>" not in compared(equal).table(["ahead"], "x").data  # a single one is none


def test_the_first_figure_leads_the_page(runs):
    both = (
        compared(runs, {"ahead": 39.0, "BM25": 36.0, "behind": 30.0}).figure([*runs], "system").data
    )
    alone = compared(runs).figure([*runs], "system").data
    assert both.count("<svg") == 4 and both.index("Order from best") < both.index("Values by")
    assert both.count("dr-leading") == alone.count("dr-leading") == 1 and alone.count("<svg") == 2
    assert alone.count('<p class="dr-source">tiny, 1,200 passages, 60 queries, laptop scale') == 1


def test_a_figure_over_a_row_draws_differences_and_leaves_bm25_to_its_title(record):
    rows = {
        label: [record(label, np.full(60, value))]
        for label, value in {"base": 0.4, "ahead": 0.5, "BM25": 0.9}.items()
    }
    known = compared(rows, {"base": 30.0, "ahead": 28.0, "BM25": 18.0})
    level = compared({}, {"base": 30.0, "ahead": 30.0}, records=rows)
    assert "Pale" not in level.figure([*rows], "x", over="base").data, "a printed 0 is no interval"
    figure = known.figure([*rows], "system", ordered=False, over="base").data
    assert "Minus base, by system; BM25: +50.0. paper (points of MRR@10): ahead" in figure
    assert re.search(r"ahead .2\.0\. live \(points of MRR@10\): ahead \+10\.0\.", figure)
    assert "base +" not in figure and "BM25 +" not in figure
    own = known.figure([*rows], "system", ordered=False, over="base", beyond=["ahead"]).data
    assert "by system; ahead: +10.0. " in own and "): BM25 +50.0." in own
    for absent in ("unknown", ""):  # then the values themselves
        assert "Values by system." in known.figure([*rows], "system", over=absent).data
    alone = known.figure(["base", "BM25"], "system", over="base").data
    assert "Values by system." in alone, "without BM25 nothing is left to compare"


def test_the_line_below_a_figure_counts_the_seeds_of_trained_rows(record):
    trained = {"pretrained": {"steps": 1}}
    rows = {
        "a": [record("a", [1.0], seed=seed, training=trained) for seed in (0, 0, 1)],
        "b": [record("b", [1.0], training=trained)],
        "BM25": [record("BM25", [1.0])],
    }
    assert tables.provenance(rows).endswith("laptop scale; 1 to 2 seeds a row.")
    assert tables.provenance({"b": rows["b"]}).endswith("; 1 seed a row.")
    assert tables.provenance({"BM25": rows["BM25"]}).endswith("laptop scale.")
    several = tables.provenance({"b": rows["b"]}, {"b": rows["a"]})
    assert several.endswith("; 1 to 2 seeds a row."), "a label of two sources counts twice"


def test_the_line_below_a_figure_of_many_collections_tells_their_number_and_sizes(record):
    def on(name: str, passages: int, queries: int) -> dict:
        data = {"collection": {"name": name, "passages": passages}}
        return {"a": [record("a", [1.0] * queries, data=data)]}

    sizes = {"one": (1200, 3), "two": (50, 4), "three": (70_000, 1), "four": (90, 2)}
    sources = [on(name, *size) for name, size in sizes.items()]
    assert "three, 70,000 passages, 1 query, " in tables.provenance(*sources[:3])
    assert tables.provenance(*sources) == (
        "4 collections, 50 to 70,000 passages, 1 to 4 queries, laptop scale."
    )


def test_the_line_below_a_figure_counts_the_runs_of_code_that_no_commit_has(record):
    changed = {"commit": {"id": "c0", "changed": True}}
    rows = {
        "a": [record("a", [1.0], seed=seed, **changed) for seed in (0, 1)],
        "b": [record("b", [1.0]), record("b", [1.0], commit={"id": None, "changed": None})],
    }
    assert tables.provenance(rows).endswith(" With uncommitted changes: 2 of 4 runs.")
    assert "uncommitted" not in tables.provenance({"b": rows["b"]})


def test_a_row_without_any_value_is_named_below_and_has_no_line_of_dashes(runs):
    html = (
        compared({}, {"ahead": 39.0, "printed": 36.0}, records=runs)
        .table(["ahead", "printed", "missing"], "x.")
        .data
    )
    assert [row[0] for row in cells(html)] == ["ahead", "printed"] and "missing" in html
    alone = (
        compared({}, {"ahead": 39.0}, paper_measure="top-20 accuracy")
        .table(["ahead", "missing"], "x.")
        .data
    )
    assert [row[0] for row in cells(alone)] == [
        "ahead"
    ] and "x. Top-20 accuracy in percent.</caption>" in alone


def test_the_best_of_a_column_is_bold(runs):
    html = compared(runs, {"ahead": 1.0, "BM25": 3.0}).table([*runs], "x").data
    bold = re.findall(r"<strong>(.*?)</strong>", html)
    assert (
        len(bold) == 2
        and bold[0] == "3.0"
        and bold[1] == f"{100 * runs['ahead'][0].means['MRR@10']:.1f}"
    )


def test_differences_stand_beside_the_papers_and_what_would_have_shown(runs, record):
    near = runs["ahead"][0].per_query("MRR@10") * 0.99
    runs = runs | {"ahead": [*runs["ahead"], record("ahead", near, seed=1)]}
    for label in ("BM25", "behind"):
        runs[label][0].recipe = {"retriever": label}
    pairs = [("ahead", "BM25"), ("ahead", "printed"), ("ahead", "missing")]
    html = (
        compared(runs, {"ahead": 3.0, "BM25": 1.5, "printed": 2.0})
        .differences(pairs, "x", tests=True)
        .data
    )
    assert columns(html) == ["difference", "paper", "live", "p (Holm)", "smallest detectable"]
    # the second is only in the paper, and the third in neither
    (first,) = cells(html)
    assert first[1] == "+1.5" and first[2].startswith("+")
    # two seeds, whose single degree of freedom says little
    p = measured.difference(runs["ahead"], runs["BM25"], "MRR@10").estimate.p()
    assert 1e-4 < p < 0.05 and first[3] == p_cell(p).html
    assert "Not measured yet: 1 more of the paper\u2019s differences." in html
    alone = compared(runs).differences(pairs).data
    assert "p (Holm)" not in columns(alone) and "The differences. Points of MRR@10;" in alone


def test_too_few_documents_have_no_p_values_and_the_caption_says_why(record):
    rng, labels = np.random.default_rng(0), ("ahead", "BM25")
    three = Clusters.named("document", np.repeat(["a", "b", "c"], 8))
    few = {
        label: [record(label, rng.random(24), clusters=three, seed=seed) for seed in range(2)]
        for label in labels
    }
    html = compared(few).differences([labels], "x.", tests=True).data
    assert "p (Holm)" not in columns(html)
    assert "No p-values: 3 clusters of queries are too few to decide anything." in html
    chosen = compared(few).differences([labels], "x.", tests=True, corrected={labels: 0.5}).data
    assert "p (Holm)" not in columns(chosen) and "No p-values: 3 clusters" in chosen
    once = {label: own[:1] for label, own in few.items()}
    assert "No p-values: 3 clusters" in compared(once).differences([labels], "x.", tests=True).data


def test_of_single_trainings_there_is_no_test_and_no_word_of_seeds(runs, record):
    html = compared(runs).differences([("ahead", "BM25")], "x", tests=True).data
    assert columns(html) == ["difference", "live", "smallest detectable"]
    assert "One seed: " in html and "over seeds" not in html
    assert "No p-values: a row has one seed, and how far" in html
    runs["given"] = [record("given", runs["behind"][0].per_query("MRR@10"))]
    for label in ("BM25", "given"):
        runs[label][0].recipe = {"retriever": label}
    pairs = [("ahead", "BM25"), ("given", "BM25")]
    html = compared(runs).differences(pairs, "x", tests=True, corrected=dict.fromkeys(pairs, 0.5))
    trained, given = (row[-2] for row in cells(html.data))
    assert trained == "&ndash;" and given == "0.5000" and "A dash: a row has one seed" in html.data
    assert "over seeds" not in compared(runs).table([*runs], "x").data


def test_the_line_below_a_figure_is_of_the_runs_that_it_draws(record):
    trained = {"pretrained": {"steps": 1}}
    rows = {
        label: [record(label, [1.0] * 10, seed=seed, training=trained) for seed in range(seeds)]
        for label, seeds in {"a": 2, "b": 2, "c": 2, "d": 1}.items()
    }
    known = compared(rows, {"a": 3.0, "b": 2.0, "c": 1.0, "printed": 0.5})
    order, points = re.findall(r'<p class="dr-source">(.*?)</p>', known.figure([*rows], "x").data)
    assert order.endswith("; 2 seeds a row.")
    assert points.endswith("; 1 to 2 seeds a row. Hollow dots: one seed.")
    assert known.behind(["a", "unknown"]) == {"a": rows["a"]}
    few = {"a": [record("a", [1.0] * 9)]}
    assert "laptop scale. Pale: clusters" in compared(few).figure(["a"], "x").data
    alone = compared({}, {"a": 3.0}).figure(["a"], "x").data
    assert "the paper\u2019s values" in alone and ">paper</text>" in alone


def test_a_crossing_is_circled_only_where_its_pair_may_decide(record):
    """With one seed each, however far apart, nothing is certain."""
    trained, printed = {"pretrained": {"steps": 1}}, {"a": 3.0, "b": 2.0, "c": 1.0}
    for seeds, said in ((1, "No crossing is certain."), (2, "Circled crossings are certain.")):
        rows = {
            label: [record(label, [value] * 12, seed=s, training=trained) for s in range(seeds)]
            for label, value in zip("abc", (0.2, 0.5, 0.8), strict=True)
        }
        assert f'<p class="dr-source">{said} ' in compared(rows, printed).figure([*rows], "x").data


def test_the_line_below_a_figure_links_the_records_that_it_is_made_from(record):
    """For studies that the book has a file of; nothing else in the line becomes a link."""
    rows = {"a": [record("a", [1.0], study="plan/core", file_name="plan-core.jsonl.xz")]}
    rows["b"] = [record("b", [1.0], study="mine/own", file_name="mine-own.jsonl.xz")]
    said = tables.provenance(rows)
    assert said.endswith(" Records: [plan/core](book/records/laptop/plan-core.jsonl.xz).")
    link = '<a href="../../book/records/laptop/plan-core.jsonl.xz">plan/core</a>'
    html = figures.show(lambda palette: palette.figure(1), "x", source=said).data
    assert f"Records: {link}.</p>" in html and html.count("<a ") == 1
    for name in ("[x](javascript:a)", "<a href=x>", "[x](https://a/book/records/b.jsonl.xz)"):
        assert "<a" not in figures.sourced(name)


def test_a_difference_that_cannot_be_is_not_called_detectable(record):
    few = {
        label: [record(label, np.array(own))]
        for label, own in (("a", [1.0, 0, 1, 0]), ("BM25", [0.0, 1, 0, 1]))
    }
    assert cells(compared(few).differences([("a", "BM25")], "x").data)[0][-1] == "&gt; 100"


def test_records_decide_where_there_are_some(runs, record):
    other = {"ahead": [record("ahead", np.zeros(60))], "BM25": [record("BM25", np.ones(60))]}
    known = compared(runs, records=other)
    assert (
        known.source == "recorded"
        and "\N{MINUS SIGN}100.0" in known.differences([("ahead", "BM25")], "x").data
    )


def test_smoke_runs_show_no_number(smoke):
    known = compared(smoke, {"Enc-Dec MLM": 36.7, "Enc-Dec RTD": 33.7})
    labels = ["Enc-Dec MLM", "Enc-Dec RTD"]
    html = known.table(labels, "x").data
    assert columns(html) == ["configuration", "paper"] and "interval" not in html
    assert columns(known.differences([tuple(labels)], "x", tests=True).data) == [
        "difference",
        "paper",
    ]
    figure = known.figure(labels, "objective").data
    assert "paper (" in figure and "live" not in figure
    verdicts = compared(smoke, study="simlm/table07").verdicts([CLAIM]).data
    assert ">not run</span>" in verdicts and columns(verdicts) == [
        "claim of the paper",
        "verdict",
        "in words",
    ]


def test_without_paper_and_records_smoke_runs_leave_a_folded_line_with_rows_and_command(record):
    recipes = {name: recipe_at("smoke", {"objective": name}).portable() for name in ("mlm", "none")}
    known = compared(
        {name: [record(name, [1.0], scale="smoke", recipe=one)] for name, one in recipes.items()}
    )
    html = known.table(["mlm", "none"], "x").data
    assert (
        "<table" not in html
        and "Not measured yet" in html
        and "masked LM; no pre-training: <code>" in html
    )
    command = (
        "papermill notebooks/simlm/table08_replace_rates.ipynb out.ipynb -f"
        " notebooks/scales/laptop.yaml"
    )
    assert command in html
    assert known.figure(["mlm"], "objective").data == ""
    assert known.differences([("mlm", "none")], "x") is comparison.NOTHING
    on_gpu = compared({"mlm": [record("mlm", [1.0], scale="gpu")]}).table(["mlm", "none"], "x").data
    assert "notebooks/scales/gpu.yaml" in on_gpu


def test_where_some_rows_are_measured_the_others_are_named_in_a_folded_line(runs):
    rows = dict.fromkeys(runs) | {"none": None, "last": None}
    html = compared({}, records=runs).table(rows, "x").data
    assert "<summary>Not measured yet: 2 of 6 rows.</summary>" in html
    assert "<p>x no pre-training; last: <code>" in html
    assert "Not measured" not in compared({}, records=runs).table([*runs], "x").data


def test_differences_of_one_seed_say_that_no_other_training_is_covered(record):
    for seeds, said in (([0], True), ([0, 1], False)):
        own = {
            label: [record(label, values, seed=seed) for seed in seeds]
            for label, values in (("a", [1, 0]), ("b", [0, 0]))
        }
        assert (
            "One seed: these intervals"
            in compared({}, records=own).differences([("a", "b")], "x").data
        ) is said
    given = {
        label: [record(label, values, recipe={"retriever": label})]
        for label, values in (("a", [1, 0]), ("b", [0, 0]))
    }
    assert "One seed" not in compared({}, records=given).differences([("a", "b")], "x").data


def test_where_no_row_has_a_second_seed_the_caption_says_what_intervals_lack(record):
    two = {"a": [record("a", [1, 0], seed=seed) for seed in (0, 1)], "b": [record("b", [0, 0])]}
    told = "One seed: these intervals do not include"
    assert told not in compared({}, records=two).differences([("a", "b")], "x").data
    one = {label: own[:1] for label, own in two.items()}
    assert told in compared({}, records=one).differences([("a", "b")], "x").data


def test_columns_of_differences_that_nothing_fills_are_left_out(runs):
    known = compared({}, {"ahead": 39.0, "missing": 36.0}, records=runs)
    html = known.differences([("ahead", "missing")], "x", tests=True).data
    assert columns(html) == ["difference", "paper"] and "Recorded" not in html


def test_records_are_shown_in_the_order_of_the_page(runs):
    turned = dict(reversed(runs.items()))
    assert [*compared(turned, records=runs).recorded] == [*turned]


def test_a_pair_has_its_own_unit_and_names_another_measure_than_the_pages():
    def said(measure, *values, relation="over", unit="points"):
        about = dict(zip(("difference", "low", "high"), values, strict=True))
        pair = asdict(PairResult("a", "b", measure, relation, "supported", unit=unit, **about))
        return comparison._pair(pair, "MRR@10").replace("\N{NO-BREAK SPACE}", " ")

    assert "a over b: +1.0 [+0.5, +2.0], supported" in said("MRR@10", 1.0, 0.5, 2.0)
    assert "+1.0 [+0.5, +2.0] of R@5, supported" in said("R@5", 1.0, 0.5, 2.0)
    share = said("MRR@10", 51.0, 50.0, 52.0, relation="within", unit="%")
    assert "within b: 51.0 [50.0, 52.0], supported" in share
    assert "+187.8 GB, supported" in said("gigabytes", 187.8, None, None, unit="GB"), (
        "arithmetic has no spread"
    )


def test_recorded_runs_are_shown_and_a_smoke_builds_are_not(smoke, runs):
    html = compared(smoke, records=runs).table([*runs], "x").data
    assert columns(html) == ["configuration", "recorded", "record"] and "Not measured" not in html


def test_a_clear_difference_holds_and_the_caption_says_where(record):
    rng = np.random.default_rng(0)
    levels = {"Enc-Dec MLM": 0.6, "Enc-Dec RTD": 0.4}
    runs = {
        label: [
            record(label, level + rng.normal(0, 0.01, 80), seed=seed, study="simlm/table07")
            for seed in (0, 1)
        ]
        for label, level in levels.items()
    }
    alone = {label: own[:1] for label, own in runs.items()}
    html = compared(alone, study="simlm/table07").verdicts([CLAIM]).data
    assert ">open: waits for seeds</span>" in html and "a row has one seed" in html
    html = compared(runs, study="simlm/table07").verdicts([CLAIM]).data
    assert (
        ">direction held, here 20.1, paper 1.5</span>" in html
        and "Measured: tiny, 1,200 passages, 80 queries, laptop scale." in html
    )
    assert "Enc-Dec MLM over Enc-Dec RTD: +" in html
    assert f'<small class="claim-id">{CLAIM.id}</small>' in html and "<code>" not in html


def test_a_verdict_names_rows_as_the_page_does(record):
    claim = load_paper("cdmae").claim("cdmae-general-then-target")
    levels = dict(zip(claim.answered_by.rows.values(), (0.6, 0.4), strict=True))
    runs = {
        label: [record(label, np.full(80, level), study="cdmae/table05")]
        for label, level in levels.items()
    }
    html = compared(runs, study="cdmae/table05").verdicts([claim]).data
    assert "General → MS over MS: \N{MINUS SIGN}20.0" in html
    assert "-&gt;" not in html


def test_many_pairs_of_a_claim_stand_behind_a_line_that_counts_their_states(record):
    claim = load_paper("simlm").claim("simlm-replace-rate-robust")
    runs = {
        label: [record(label, np.full(80, 0.5), study="simlm/table08")]
        for label in claim.answered_by.rows.values()
    }
    html = compared(runs).verdicts([claim]).data
    number = html.count('class="pair"')
    [told] = re.findall(r"<summary>(\d+) pairs: (.*?)</summary>", html)
    assert told[0] == str(number) and number > comparison.UNFOLDED
    assert sum(map(int, re.findall(r"\d+", told[1]))) == number


def test_a_claim_that_another_study_answers_has_the_ledgers_verdict(smoke):
    found, _ = answer(CLAIM)
    assert f'verdict-{found.verdict}">' in compared(smoke).verdicts([CLAIM]).data


def test_labels_and_captions_are_escaped(record):
    runs = {"<b>": [record("<b>", [0.5, 1.0])], "x": [record("x", [0.5, 0.5])]}
    known = compared(runs)
    parts = (
        known.table(["<b>"], "<i>"),
        known.differences([("<b>", "x")], "<i>"),
        known.figure(["<b>"], "<i>"),
    )
    assert not re.search(r"<b>|<i>", "".join(part.data for part in parts))


def test_a_study_leads_to_the_notebook_that_runs_it():
    assert notebook_of("simlm/table08") == "notebooks/simlm/table08_replace_rates.ipynb"
    assert notebook_of("dpr_paq/table01") == "notebooks/dpr_paq/table01_qa.ipynb"
    assert notebook_of("methods/equal-budgets") == "notebooks/methods/equal_budgets.ipynb"
    assert notebook_of("methods/open-domain") == "notebooks/methods/open_domain.ipynb"
    assert notebook_of("methods/pipeline-squad") == "notebooks/methods/pipeline.ipynb"
    assert notebook_of("your_corpus/mine") == "notebooks/your_corpus.ipynb"
    assert notebook_of("simlm/table99") is None and notebook_of(None) is None


def test_contrasts_show_what_was_found_what_they_wait_for_and_what_is_said_beside_them():
    says = {
        "says": "<b> is enough.",
        "compare": "bow - none",
        "rows": ["bow", "none"],
        "rule": "above",
    }
    sure, order = Estimate(2.0, ((0.01, 50.0),)), {"squad": 0.75, "reddit-retrieval": 0.4}
    judged = [
        plan.Verdict({"id": "a", **says}, {"squad": sure}, "supported", looks=2, apart="device"),
        plan.Verdict({"id": "b", **says}, order, "waits", "reddit-retrieval: bow 1 of 3", looks=1),
        plan.Verdict({"id": "c", **says, "on": "reddit-retrieval"}),
    ]
    shown = comparison.contrasts(judged, {"a": "as a share: 3 %"}).data
    first, second, third = shown.split("<tr>")[-3:]
    assert "&lt;b&gt; is enough" in first and "<b>" not in first
    assert "+2.0" in first and "as\xa0a\xa0share:\xa03\xa0%" in first
    assert "apart: device; 2 looks" in first
    assert "SQuAD:\xa00.75" in second and "0.40" in second
    assert re.search(r"seeds: Reddit.*: bag of words 1 of 3; 1 look<", second)
    assert "look" not in third and "not run" in third
    assert "no pre-training<" in first and "no pre-training, Reddit<" in third
    assert "correction over all would leave 0 more of them open." in shown
