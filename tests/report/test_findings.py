"""What a comparison says in sentences: what is secured, what is not, and advice that follows from what happened."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from dr_lib.report import findings, measures_table, next_steps

RNG = np.random.default_rng(0)
BASE = RNG.random(60) * 0.6
SPREAD = RNG.normal(0, 0.05, 60)
RECIPE = {"base": "embedded", "final": "retriever1"}


def record(label: str, scores: np.ndarray, recipe: dict | None = None) -> SimpleNamespace:
    """What sentences read of a record."""
    return SimpleNamespace(
        label=label, seed=0, scale="laptop", file_name=f"{label}.json", query_ids=list(range(len(scores))),
        per_query=lambda measure: np.asarray(scores, np.float32), recipe=recipe or RECIPE,
    )  # fmt: skip


@pytest.fixture
def runs():
    return {
        "BM25": [record("BM25", BASE)],
        "ahead": [record("ahead", BASE + 0.2 + SPREAD)],
        "level": [record("level", BASE + SPREAD - SPREAD.mean())],
        "behind": [record("behind", BASE - 0.2 + SPREAD)],
    }


def asked(train: int = 5000, **queries: int) -> SimpleNamespace:
    return SimpleNamespace(counts={"queries": {"train": train, **queries}})


def items(html: str) -> list[str]:
    return re.findall(r"<li>(.*?)</li>", html)


def test_the_system_that_is_ahead_is_named_first(runs):
    first, second = items(findings([("ahead", "BM25"), ("behind", "BM25")], runs, "MRR@10").data)
    assert "<strong>ahead is ahead of BM25</strong>: +20." in first
    assert "<strong>BM25 is ahead of behind</strong>: +" in second
    low, high = map(float, re.search(r"\[\+([\d.]+), \+([\d.]+)\]", second).groups())
    assert 0 < low < high


def test_what_is_not_secured_says_what_would_have_shown(runs):
    (told,) = items(findings([("level", "BM25")], runs, "MRR@10").data)
    least = 100 * 2.8 * SPREAD.std(ddof=1) / np.sqrt(60)
    shown = float(re.search(r"about ([\d.]+) points", told)[1])
    assert "Not secured" in told and shown == pytest.approx(least, abs=0.06)


def test_pairs_that_were_not_run_are_left_out(runs):
    assert "Nothing was run" in findings([("ahead", "missing")], runs, "MRR@10").data


def test_labels_are_escaped():
    evil = {"<b>": [record("<b>", BASE)], "x": [record("x", BASE + SPREAD)]}
    assert "<b>" not in findings([("<b>", "x")], evil, "MRR@10").data


@pytest.mark.parametrize(
    ("best", "advice"),
    [("ahead", "use the exported folder"), ("level", "Neither level nor BM25"), ("behind", "search with BM25")],
)
def test_advice_follows_from_the_comparison_with_bm25(runs, best, advice):
    told = next_steps(runs, "MRR@10", best=best, asked=None, passages=100_000).data
    assert advice in told


def test_generated_questions_ask_for_judgements_and_say_what_fifty_would_show(runs):
    told = next_steps(runs, "MRR@10", best="level", asked=asked(test=60), passages=100_000).data
    least = 100 * 2.8 * SPREAD.std(ddof=1) / np.sqrt(50)
    assert "Do not give up BM25" in told and "Neither level" not in told
    assert "Judge 50 queries" in told and f"difference of about {least:.0f} points" in told


def test_judged_test_queries_ask_for_nothing_but_more(runs):
    told = next_steps(runs, "MRR@10", best="ahead", asked=asked(), passages=100_000).data
    assert "Judge 50" not in told and "60 judged queries" in told


def test_advice_looks_at_size_base_and_pipeline(runs):
    small = next_steps(runs, "MRR@10", best="ahead", asked=asked(train=200), passages=500, pending=2).data
    for words in ("500 passages are little", "Training queries are few", "small one of the book", "2 runs are pending"):
        assert words in small
    large = {"BM25": runs["BM25"], "big": [record("big", BASE, {"base": "bert-base-uncased", "final": "distilled"})]}
    told = next_steps(large, "MRR@10", best="big", asked=None, passages=100_000).data
    assert not any(words in told for words in ("little", "few", "small one", "distillation"))


def test_a_table_of_measures_has_a_row_a_system(runs):
    html = measures_table(runs, ["MRR@10", "R@100"], caption="x").data
    assert html.count("<tr>") == 5 and html.count("MRR@10") == 1
