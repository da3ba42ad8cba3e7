"""The explorers of temperature and of test sets: their scripts compute the same as the library (if
node is installed).
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
    """Run JavaScript that returns a value, with one of the scripts loaded."""
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
    assert found == pytest.approx(cluster_mean(differences).detectable(), rel=0.005)
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


@pytest.mark.parametrize(
    ("name", "least", "most", "step", "named"),
    [
        ("temperature", -2.1, 0, 0.05, [0.01, 0.02, 0.05, 0.1, 1]),  # SimLM's is 0.02
        ("test-sets", 1.5, 4.5, 0.1, [50, 100, 500, 1000, 10_000]),
    ],
)
def test_a_slider_has_the_values_that_its_page_names(run, name, least, most, step, named):
    source = (FOLDER / f"{name}.js").read_text()
    assert f"least: {least}, most: {most}, step: {step}," in source
    assert source.count("number: twoDigits,") == 1
    powers = (least + step * np.arange(round((most - least) / step) + 1)).round(6)
    values = run("controls", f"return {json.dumps(powers.tolist())}.map(it.twoDigits);")
    assert {*named} <= {*values} and values == sorted(set(values))


def test_spreads_come_from_records(monkeypatch):
    scores = {"one": [[1.0, 0, 0, 1], [1.0, 0, 2, 1]], "other": [[0.0, 1, 0, 1]]}
    monkeypatch.setattr(
        explorers, "per_seed", lambda runs, measure, like=None: np.array(scores[runs[0]])
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
    assert 2 < difference(runs["simlm"], runs["mlm"], "MRR@10").detectable() / alone < 3


def test_text_is_only_ever_set_as_text():
    for path in FOLDER.glob("*.js"):
        assert not re.search(
            r"innerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(", path.read_text()
        ), path


def explorer_page(folder: Path, name: str, data: dict[str, Any]) -> Path:
    """A page with one explorer, from disk."""
    for path in FOLDER.glob("*.js"):
        shutil.copy(path, folder)
    value = "".join(f"window.{key} = {json.dumps(value)};" for key, value in data.items())
    tags = f"<script src='controls.js'></script><script>{value}</script>"
    tags += f"<script src='{name}.js'></script>"
    place = f"<div id='{name}-here' class='dr-explorer' hidden></div>"
    (folder / "page.html").write_text(f"<!doctype html><meta charset='utf-8'>{place}{tags}")
    return folder / "page.html"


SETS = {"testSetsData": {"measure": "MRR@10", "pairs": [explorers.EXAMPLE]}}
SAID = "document.querySelector('[role=status]').textContent"


@needs_chromium
@pytest.mark.parametrize(
    ("name", "data", "slider"),
    [
        ("test-sets", SETS, "sets-queries"),
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
    with opened(tmp_path / "profile") as browser:
        browser.visit(explorer_page(tmp_path, name, data))
        before = browser.run(SAID)
        browser.run(f"document.getElementById('{slider}').focus()")
        browser.press("ArrowRight" if name == "test-sets" else "ArrowLeft")
        assert before and browser.run(SAID) != before
        assert browser.complaints == []


@needs_chromium
def test_after_back_the_picture_is_that_of_the_controls(tmp_path):
    page = explorer_page(tmp_path, "test-sets", SETS)
    (tmp_path / "other.html").write_text("<!doctype html><title>other</title>")
    with opened(tmp_path / "profile") as browser:
        browser.visit(page)
        browser.run("document.getElementById('sets-queries').focus()")
        browser.press("ArrowRight")
        assert "With 630 queries" in browser.run(SAID)
        browser.visit(tmp_path / "other.html")
        browser.back()
        browser.wait("document.getElementById('sets-queries')?.nextSibling.textContent")
        browser.run("new Promise((done) => setTimeout(done, 300))")
        slider = "document.getElementById('sets-queries')"
        shown = browser.run(f"[{slider}.value, {slider}.nextSibling.textContent]")
        assert shown == ["2.8", "630"]
        assert "With 630 queries" in browser.run(SAID) and browser.complaints == []


STATE = """({ address: location.search, hash: location.hash,
  values: [...document.querySelectorAll(":is(input, select)")].map((one) => one.value) })"""


@needs_chromium
def test_what_was_chosen_stands_in_the_address_and_a_link_brings_it_back(tmp_path):
    page = explorer_page(tmp_path, "test-sets", SETS)
    with opened(tmp_path / "profile") as browser:
        browser.visit(page, "?predict#test-sets-here")
        assert browser.run("location.search") == "?predict", "nothing was chosen yet"
        browser.run("document.getElementById('sets-queries').focus()")
        browser.press("ArrowRight")
        browser.run("document.querySelector('button').click()")
        chosen, said = browser.run(STATE), browser.run(SAID)
        assert chosen["address"] == "?predict=&sets-queries=2.8&sets-draw=2"
        assert chosen["hash"] == "#test-sets-here" and "With 630 queries" in said
        browser.visit(page, chosen["address"])
        assert browser.run(SAID) == said and browser.run(STATE)["values"] == chosen["values"]
        assert "pair" not in chosen["address"], "defaults are not in the address"
        browser.run("document.getElementById('sets-queries').focus()")
        browser.press("ArrowLeft")
        assert browser.run("location.search") == "?predict=&sets-draw=2"
        assert browser.complaints == []


@needs_chromium
@pytest.mark.parametrize(
    "query",
    ["?sets-queries=9", "?sets-queries=many", "?sets-pair=none", "?sets-draw=-3", "?sets-draw=1.5"],
)
def test_what_an_address_says_and_no_control_takes_changes_nothing(tmp_path, query):
    page = explorer_page(tmp_path, "test-sets", SETS)
    with opened(tmp_path / "profile") as browser:
        browser.visit(page)
        before = browser.run(STATE)["values"], browser.run(SAID)
        browser.visit(page, query)
        assert (browser.run(STATE)["values"], browser.run(SAID)) == before
        assert browser.complaints == []


@needs_chromium
def test_where_an_address_cannot_change_the_explorer_works_all_the_same(tmp_path):
    page = explorer_page(tmp_path, "test-sets", SETS)
    with opened(tmp_path / "profile") as browser:
        browser.visit(page)
        browser.run("history.replaceState = () => { throw new DOMException('', 'SecurityError'); }")
        browser.run("document.getElementById('sets-queries').focus()")
        browser.press("ArrowRight")
        assert "With 630 queries" in browser.run(SAID)
        assert browser.run("location.search") == "" and browser.complaints == []


@needs_chromium
def test_where_there_is_no_difference_no_test_set_finds_it(tmp_path):
    with opened(tmp_path / "profile") as browser:
        browser.visit(explorer_page(tmp_path, "test-sets", SETS))
        browser.run("document.getElementById('sets-difference').focus()")
        for _ in range(4):
            browser.press("ArrowLeft")
        said = browser.run(SAID)
        assert "find a difference where there is none" in said and "opposite" not in said
        marks = "document.querySelectorAll('circle:not(.open)').length"
        assert said.startswith(f"{browser.run(marks)} of 20 test sets")


@needs_chromium
def test_on_paper_an_explorer_is_as_on_the_screen_without_its_buttons(tmp_path):
    page = explorer_page(tmp_path, "test-sets", SETS)
    styles = (FOLDER.parent / "masks-explorer" / "explorer.css", FOLDER / "explorers.css")
    text = "".join(f"<style>{style.read_text(encoding='utf-8')}</style>" for style in styles)
    page.write_text(page.read_text() + text + "<div class='dr-explorer' hidden>not filled</div>")
    seen = "[...document.querySelectorAll('.dr-explorer, svg, button')]"
    seen += ".map((one) => one.checkVisibility())"
    with opened(tmp_path / "profile") as browser:
        browser.visit(page)
        assert browser.run(seen) == [True, True, True, False]
        browser.send("Emulation.setEmulatedMedia", media="print")
        assert browser.run(seen) == [True, False, True, False]
