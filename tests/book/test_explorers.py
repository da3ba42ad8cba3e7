"""The explorers of temperature and of test sets: their scripts compute what the library computes
(where node is).
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import explorers
import numpy as np
import pytest
import torch
from browser import needs_chromium, opened
from scipy import stats

from dr_book.measured import difference, recorded
from dr_book.statistics import cluster_mean
from dr_lib.losses import contrastive

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "book" / explorers.FOLDER


@pytest.fixture(scope="module")
def run() -> Callable[[str, str], Any]:
    """Run JavaScript that returns a value, with one of the scripts at hand."""
    if not shutil.which("node"):
        pytest.skip("needs node (Debian: apt install nodejs)")

    def run(name: str, code: str) -> Any:
        program = (
            f"const it = require('./{name}.js'); console.log(JSON.stringify((() => {{ {code}"
            " })()));"
        )
        done = subprocess.run(
            ["node", "-e", program], cwd=FOLDER, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize("temperature", [0.01, 0.02, 0.3, 1.0])
def test_the_loss_is_the_librarys(run, temperature):
    vectors = torch.nn.functional.normalize(
        torch.randn(2, 16, 8, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    cosines = (vectors[0] @ vectors[1].T).tolist()
    found = run("temperature", f"return it.loss({json.dumps(cosines)}, {temperature});")
    assert found == pytest.approx(
        float(contrastive(*vectors, temperature=temperature, blocks="query_passage")), abs=1e-4
    )


def test_the_hardest_negatives_share_is_that_of_the_gradient(run):
    scores = torch.tensor([[0.7, 0.5, 0.45, -0.1]], requires_grad=True)
    torch.nn.functional.cross_entropy(scores / 0.1, torch.tensor([0])).backward()
    pushes = scores.grad[0, 1:]
    found = run("temperature", f"return it.hardest({json.dumps(scores[0].tolist())}, 0, 0.1);")
    assert found == pytest.approx(float(pushes.max() / pushes.sum()), abs=1e-6)


def test_the_smallest_difference_is_the_librarys(run):
    differences = np.random.default_rng(0).normal(0, 30, 400)
    code = f"return [it.detectable({differences.std(ddof=1)}, 400), it.needed(3, 30)];"
    found, needed = run("test-sets", code)
    # the page takes the normal distribution, the library Student's
    assert found == pytest.approx(cluster_mean(differences).detectable, rel=0.005)
    assert needed == np.ceil(((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * 10) ** 2)


def test_the_chance_to_find_a_difference_is_that_of_its_test_sets(run):
    code = """
      const options = { difference: 2, spread: 30, queries: 700, seed: 3 };
      const found = it.draw(options, 20000).map(it.verdict);
      return [it.chance(2, 30, 700), found.filter((one) => one !== "open").length / 20000,
        it.below(1.2), it.chance(0, 30, 700)];
    """
    chance, share, below, by_chance = run("test-sets", code)
    assert share == pytest.approx(chance, abs=0.02)
    assert below == pytest.approx(stats.norm.cdf(1.2), abs=1e-6) and by_chance == pytest.approx(
        0.05, abs=1e-6
    )


def test_spreads_come_from_records(monkeypatch):
    scores = {"one": [[1.0, 0, 0, 1], [1.0, 0, 2, 1]], "other": [[0.0, 1, 0, 1]]}
    monkeypatch.setattr(
        explorers, "per_query", lambda runs, measure, like=None: np.array(scores[runs[0]])
    )
    assert explorers.spreads({"simlm": ["one"], "none": ["other"]})[0]["spread"] == pytest.approx(
        np.std([1, -1, 1, 0], ddof=1), abs=0.01
    )
    assert explorers.spreads({}) == [explorers.EXAMPLE]


def test_squads_questions_show_less_than_as_many_independent_ones():
    """As ideas/queries-explorer says of SimLM and masked LM: more than twice the difference."""
    told = (ROOT / "book/ideas/queries-explorer.md").read_text(encoding="utf-8")
    assert "is more than twice the one that the explorer names" in told
    runs = recorded(explorers.COMPARED)
    (pair,) = (one for one in explorers.spreads(runs) if one["name"] == "SimLM and masked LM")
    asked = len(runs["simlm"][0].query_ids)
    alone = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * pair["spread"] / asked**0.5
    assert 2 < difference(runs["simlm"], runs["mlm"], "MRR@10").detectable / alone < 3


def test_text_is_only_ever_set_as_text():
    for path in FOLDER.glob("*.js"):
        assert not re.search(
            r"innerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(", path.read_text()
        ), path


@needs_chromium
@pytest.mark.parametrize(
    ("name", "data", "slider"),
    [
        (
            "test-sets",
            {"testSetsData": {"measure": "MRR@10", "pairs": [explorers.EXAMPLE]}},
            "sets-queries",
        ),
        (
            "temperature",
            {
                "temperatureData": {
                    "cosines": [[0.9, 0.2], [0.3, 0.8]],
                    "queries": ["a", "b"],
                    "passages": ["<b>", "d"],
                }
            },
            "temperature-t",
        ),
    ],
)
def test_a_key_on_a_slider_changes_the_picture(tmp_path, name, data, slider):
    for path in FOLDER.glob("*.js"):
        shutil.copy(path, tmp_path)
    scripts = [f"window.{key} = {json.dumps(value)};" for key, value in data.items()]
    tags = (
        f"<script src='controls.js'></script><script>{scripts[0]}</script><script"
        f" src='{name}.js'></script>"
    )
    (tmp_path / "page.html").write_text(
        f"<!doctype html><meta charset='utf-8'><div id='{name}-here' hidden></div>{tags}"
    )
    with opened(tmp_path / "profile") as browser:
        browser.visit(tmp_path / "page.html")
        said = "document.querySelector('[role=status]').textContent"
        before = browser.run(said)
        browser.run(f"document.getElementById('{slider}').focus()")
        browser.press("ArrowRight" if name == "test-sets" else "ArrowLeft")
        assert before and browser.run(said) != before
        assert browser.complaints == []
