"""Verdicts on a page: what they rest on is said, and runs at smoke scale decide nothing."""

from types import SimpleNamespace

import numpy as np

from dr_lib.evaluation import Scores, load_paper
from dr_lib.report import verdicts_table

CLAIM = load_paper("simlm").claim("simlm-target-corpus-mlm-helps")
IDS = [str(row) for row in range(80)]


def run(label: str, scale: str, level: float) -> SimpleNamespace:
    """What the table reads of a record: all queries at one level but for a little noise."""
    values = np.float32(level + np.random.default_rng(len(label)).normal(0, 0.01, len(IDS)))
    return SimpleNamespace(
        label=label, seed=0, scale=scale, query_ids=IDS, measured=Scores(IDS, {"MRR@10": values}),
        data={"collection": {"name": "tiny", "passages": 300}},
    )  # fmt: skip


def shown(scale: str) -> str:
    runs = {label: [run(label, scale, level)] for label, level in (("MLM", 0.6), ("BERT-base", 0.4))}
    return verdicts_table([CLAIM], runs, "MRR@10").data


def test_clear_difference_holds_and_the_caption_says_where():
    html = shown("laptop")
    assert ">held</span>" in html and "Measured: tiny, 300 passages, 80 queries, laptop scale." in html


def test_runs_at_smoke_scale_show_their_difference_but_decide_nothing():
    html = shown("smoke")
    assert ">not run</span>" in html and "MLM over BERT-base: +2" in html and "Runs so small decide nothing." in html
