"""The interactive drawings: their data, and that all of them can be used by keyboard."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import generated_pages
import numpy as np
import price_piece
import pytest
import rankings
import supplied
import torch
from bm25s.stopwords import STOPWORDS_EN
from browser import needs_chromium, opened
from check_pages import ROOT
from claims_glance import drawn_pairs, in_words, left_out, pairs_table
from price_piece import trails

from dr_book.price import Price
from dr_book.statistics import Interval
from dr_lib import collections, objectives
from dr_lib.files import read_json
from dr_lib.models import load_masked_lm
from dr_lib.objectives import FAMILIES
from dr_lib.tokens import TokenBatch, load_tokenizer

FOLDER = ROOT / "book" / "extra" / "explorers"


def in_node(name: str, code: str):
    """The value of an expression in which `it` has a piece's functions."""
    program = (
        f"const it = require('./{name}.js'); console.log(JSON.stringify((() => {{{code}}})()));"
    )
    done = subprocess.run(
        ["node", "-e", program], cwd=FOLDER, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def page(folder: Path, name: str, data: dict, rest: str = "") -> Path:
    """A page with one piece, from disk."""
    for path in (*FOLDER.glob("*.js"), *FOLDER.glob("*.css")):
        shutil.copy(path, folder)
    scripts = "".join(f"<script src='{one}.js'></script>" for one in ("controls", "pieces"))
    values = "".join(f"window.{key} = {json.dumps(value)};" for key, value in data.items())
    (folder / "page.html").write_text(
        f"<!doctype html><meta charset='utf-8'><div id='{name}-here' class='dr-explorer' hidden>"
        f"</div>{rest}{scripts}"
        f"<script>{values}</script><script src='{name}.js'></script>"
    )
    return folder / "page.html"


# The claims at a glance ---------------------------------------------------------------------------


def entry(claim: str, *pairs: dict, block: int | None = None) -> dict:
    filled = [
        {
            "better": "simlm",
            "worse": "mlm",
            "relation": "over",
            "measure": "MRR@10",
            "state": "open",
            "unit": "points",
            "seeds": [3, 3],
            "paper": 1.0,
            "difference": 0.5,
            "low": -0.25,
            "high": 1.254,
        }
        | pair
        for pair in pairs
    ]
    about = {"paper": "simlm", "source": "Table 7", "protocol": "stand-in", "block": block}
    return {"claim": claim, "pairs": filled} | about


def test_pairs_are_drawn_that_have_both_differences_in_points():
    entries = [entry("a", {}, {"paper": None}, {"unit": "ms"}), entry("b", {"difference": None})]
    (pair,) = drawn_pairs(entries)
    assert (pair["claim"], pair["of"], pair["said"]) == ("a", "simlm", "SimLM over masked LM")
    assert [pair[name] for name in ("paper", "difference", "low", "high")] == [1, 0.5, -0.25, 1.254]


def test_a_dot_is_hollow_where_the_verdict_waits_for_seeds():
    pairs = ({}, {"waits": 2}, {"state": "supported", "seeds": [2, 1], "waits": 0})
    found = drawn_pairs([entry("a", *pairs)])
    assert [pair["missing"] for pair in found] == [False, True, False]
    assert [pair["state"] for pair in found] == ["open", "waits for seeds", "supported"]


def test_pairs_without_a_dot_are_counted_by_their_reason():
    entries = [entry("a", {}, {"paper": None}, {"unit": "ms"}, {"difference": None})]
    told = left_out(entries)
    assert "Of the 3 pairs" in told and " 1 have no dot" in told and " 1 since they are" in told
    assert left_out([entry("a", {})]) == ""


def test_the_sentence_and_the_table_count_the_same_pairs():
    pairs = drawn_pairs([entry("a", {}, {"difference": -2.0}, {"paper": 0.0}, {"paper": -0.1})])
    told = in_words(pairs)
    assert "Each of the 4 dots" in told and "Of 3 pairs that differ in the paper, 1 have" in told
    assert "and 1 of all lie nearer" in told
    made = pairs_table(pairs, {"simlm": "SimLM"}).data
    assert made.count("<tr>") == 5 and 'href="#a"' in made and "\N{MINUS SIGN}0.1" in made


def test_a_number_is_rounded_once_where_it_is_shown():
    """-10.9546 to hundredths is -10.95, whose tenths are -10.9; other tables have -11.0."""
    pairs = drawn_pairs([entry("a", {"difference": -0.3546, "low": -10.9546, "high": 8.2501})])
    told = re.sub("<[^>]+>", "", pairs_table(pairs, {"simlm": "SimLM"}).data)
    assert "~0.4 [~11.0, +8.3]".replace("~", "\N{MINUS SIGN}") in told


def test_the_table_says_of_each_pair_its_measure_its_seeds_and_what_it_waits_for():
    reason = "the plan gives a row 3 seeds, one has 1"
    waits = {"measure": "R@50", "seeds": [3, 1], "waits": 2, "because": reason}
    open_for_good = {"because": "10 clusters are too few"}
    pairs = drawn_pairs([entry("a", waits, open_for_good, {"state": "supported", "seeds": [2, 4]})])
    text = pairs_table(pairs, {"simlm": "SimLM"}).data
    cells = [re.sub("<[^>]+>", "", cell) for cell in re.findall("<t[hd].*?</t[hd]>", text)]
    table = [cells[row : row + 7] for row in range(0, len(cells), 7)]
    assert table[0] == ["where", "pair", "measure", "paper", "ours", "seeds", "state"]
    assert [row[2] for row in table[1:]] == ["R@50", "MRR@10", "MRR@10"]
    assert [row[5] for row in table[1:]] == ["3 and 1", "3 and 3", "2 and 4"]
    states = [f"waits for seeds, stand-in: {reason}", "open, stand-in", "supported, stand-in"]
    assert [row[6] for row in table[1:]] == states


def test_filters_take_away_what_they_say():
    pairs = drawn_pairs([entry("a", {}, {"state": "supported"}, {"worse": "BM25"})])
    call = f"it.chosen({json.dumps(pairs)}, "
    assert in_node("claims", f"return {call}{{ words: false }}).length;") == 2
    assert in_node("claims", f"return {call}{{ words: true, state: 'supported' }}).length;") == 1
    assert in_node("claims", f"return {call}{{ words: true, paper: 'pair' }}).length;") == 0
    counts = in_node("claims", f"return it.counts({json.dumps(pairs)});")
    states = {"supported": 1, "contradicted": 0, "open": 2, "waiting": 0}
    assert counts == {"all": 3, "sign": 3} | states


@needs_chromium
def test_arrow_keys_move_among_dots_and_enter_opens_the_claim(tmp_path):
    pairs = drawn_pairs([entry("a", {"paper": 3.0, "difference": -1.0}), entry("b", {})])
    rows = "".join(f"<details id='{one}'><summary>{one}</summary></details>" for one in "ab")
    data = {"claimsData": {"papers": {"simlm": "SimLM"}, "pairs": pairs}}
    with opened(tmp_path / "profile") as browser:
        browser.visit(page(tmp_path, "claims", data, rows))
        browser.run("document.querySelector('#claims-here a[tabindex=\"0\"]').focus()")
        said = "document.querySelector('[role=status]').textContent"
        assert "Paper +1.0; here +0.5 [\N{MINUS SIGN}0.3, +1.3]" in browser.run(said)
        browser.press("ArrowRight")
        assert "Paper +3.0" in browser.run(said)
        browser.press("ArrowUp")  # from -1.0 to 0.5
        assert "Paper +1.0" in browser.run(said)
        browser.press("Enter")
        assert browser.run("[...document.querySelectorAll('details')].map((row) => row.open)") == [
            False,
            True,
        ]
        assert browser.run("document.activeElement.textContent") == "b"
        browser.back()  # to the dots, on the same page
        browser.wait("location.hash === ''")
        assert browser.run("document.querySelectorAll('#claims-here a').length") == 2
        assert browser.complaints == []


@needs_chromium
def test_the_filter_follows_an_address_and_what_a_browser_puts_back(tmp_path):
    facts = [{"paper": paper} for paper in ("PAIR", "SimLM")]
    rows = "".join(
        f"<details id='{one['paper']}' data-claim='{json.dumps(one)}'><summary>x</summary>"
        "</details>"
        for one in facts
    )
    options = "".join(f"<option>{one['paper']}</option>" for one in facts)
    select = f"<select name='paper'><option value=''>all</option>{options}</select>"
    script = generated_pages.FILTER_SCRIPT.read_text(encoding="utf-8")
    form = f"<form class='dr-filter' hidden>{select}<output></output></form>"
    form += f"<script>{script}</script>{rows}"
    shutil.copy(FOLDER / "controls.js", tmp_path)
    (tmp_path / "page.html").write_text(
        f"<!doctype html><meta charset='utf-8'><script src='controls.js'></script>{form}"
    )
    (tmp_path / "other.html").write_text("<!doctype html><title>other</title>")
    state = "[document.querySelector('select').value, document.querySelector('output').textContent]"
    with opened(tmp_path / "profile") as browser:
        browser.visit(tmp_path / "page.html", "?paper=nobody")
        assert browser.run(state) == ["", "2 of 2 claims"]
        browser.visit(tmp_path / "page.html", "?paper=PAIR#SimLM")
        browser.wait("document.getElementById('SimLM').checkVisibility()")
        assert browser.run(state) == ["PAIR", "1 of 2 claims"]
        assert browser.run("document.getElementById('SimLM').open")
        browser.visit(tmp_path / "page.html")
        browser.run("document.querySelector('select').focus()")
        browser.press("ArrowDown")
        assert browser.run(state) == ["PAIR", "1 of 2 claims"]
        assert browser.run("location.search") == "?paper=PAIR", "a link to what was chosen"
        browser.visit(tmp_path / "other.html")
        browser.back()
        browser.wait("document.querySelector('select')?.value === 'PAIR'")
        browser.wait("document.querySelector('output').textContent === '1 of 2 claims'")
        assert browser.complaints == []


# Price and profit ---------------------------------------------------------------------------------


def priced(method: str, steps: int, work: float | None, gain: float) -> Price:
    return Price(method, method, steps, work, None, Interval(gain, gain - 1, gain + 1))


def test_trails_go_from_cheap_to_dear_and_lack_what_is_not_known():
    found = trails([priced("mlm", 500, 8.04, 0.3), priced("mlm", 1000, None, 0.504)])
    assert found == [
        {
            "name": "masked LM",
            "family": 1 + FAMILIES.index("masked words alone"),
            "points": [
                {"steps": 500, "operations": 8.0, "seconds": None, "gain": [0.3, -0.7, 1.3]},
                {
                    "steps": 1000,
                    "operations": None,
                    "seconds": None,
                    "gain": [0.504, -0.496, 1.504],
                },
            ],
        }
    ]


def test_of_a_method_and_its_steps_in_two_studies_the_first_is_shown(monkeypatch):
    first, second = price_piece.STUDIES
    gains = {first: 1.0, second: 2.0}
    monkeypatch.setattr(price_piece, "recorded", lambda study: study)
    monkeypatch.setattr(
        price_piece, "prices", lambda study, *_: [priced("mlm", 100, 10, gains[study])]
    )
    assert [row.gain.mean for row in price_piece.rows()] == [1.0]


def test_the_cut_reads_along_the_line_and_keeps_the_longest_trainings():
    rows = [priced("mlm", 100, 10, 1.0), priced("mlm", 400, 40, 3.0), priced("simlm", 100, 30, 5.0)]
    methods = json.dumps(trails(rows))
    at = "return it.ranking({}, 'operations', {}).map(({{ name, gain, level, steps }}) => "
    at += "[name, gain[0], level, steps]);"
    assert in_node("price", at.format(methods, 9)) == []
    # 20 lies halfway between 10 and 40 on a logarithmic axis
    assert in_node("price", at.format(methods, 20)) == [["masked LM", 2.0, True, [100, 400]]]
    assert in_node("price", at.format(methods, 1000)) == [
        ["SimLM", 5.0, True, [100]],
        ["masked LM", 3.0, True, [400]],
    ]


def test_records_put_the_autoencoder_first_at_every_price():
    methods = trails(price_piece.rows())
    assert {"auto-encoder", "masked LM", "SimLM"} <= {one["name"] for one in methods}
    costs = [one["points"][0]["operations"] for one in methods if one["name"] == "auto-encoder"]
    code = f"return it.ranking({json.dumps(methods)}, 'operations', {costs[0]})[0].name;"
    assert in_node("price", code) == "auto-encoder"


@needs_chromium
def test_buttons_and_the_cut_say_who_is_best(tmp_path):
    rows = [priced("mlm", 100, 10, 1.0), priced("mlm", 400, 40, 3.0), priced("simlm", 200, 30, 5.0)]
    data = {"measure": "MRR@10", "start": 40.0, "methods": trails(rows)}
    data |= {"budgets": price_piece.BUDGETS}
    with opened(tmp_path / "profile") as browser:
        browser.visit(page(tmp_path, "price", {"priceData": data}))
        said = "document.querySelector('[role=status]').textContent"
        assert "masked LM is best" in browser.run(said)
        browser.run("document.getElementById('price-cut').focus()")
        for _ in range(60):
            browser.press("ArrowRight")
        assert "SimLM is best with +5.0 points; the intervals of masked LM" in browser.run(said)
        browser.run("document.querySelector('button').click()")
        pressed = "[...document.querySelectorAll('button')].map((one) => one.ariaPressed)"
        assert browser.run(pressed) == ["true", "false", "false"]
        assert "steps" in browser.run(said) and browser.complaints == []
        browser.run("document.getElementById('price-cut').focus()")
        browser.press("ArrowRight")
        address, told = browser.run("location.search"), browser.run(said)
        assert address.startswith("?price-budget=steps&price-cut=")
        browser.visit(tmp_path / "page.html", address)
        assert browser.run(pressed) == ["true", "false", "false"] and browser.run(said) == told


# Words or meaning ---------------------------------------------------------------------------------


def test_ranks_become_classes_and_their_moves_are_averaged_over_pairs_of_runs(monkeypatch):
    of = {"MRR@10": [100, 50, 100 / 3, 25, 10, 0, 0], "R@100": [100] * 6 + [0]}
    monkeypatch.setattr(rankings, "per_query", lambda runs, measure: np.array([of[measure]]))
    assert rankings.classes([])[0].tolist() == [0, 1, 1, 2, 2, 3, 4]
    before, after = np.array([[0, 4], [1, 4]]), np.array([[0, 3]])
    counts = rankings.moved(before, after)
    assert counts[0, 0] == counts[1, 0] == 0.5 and counts[4, 3] == 1 and counts.sum() == 2
    again = rankings.moved(before)  # each run with the other, both ways
    assert again[0, 1] == again[1, 0] == 0.5 and again[4, 4] == 1 and again.sum() == 2


def test_every_recorded_question_is_in_a_matrix_and_chance_moves_fewest():
    moves = rankings.matrices()
    sums = [np.sum(one["counts"]) for one in moves]
    assert all(abs(total - 10534) <= 13 for total in sums), "rounded cells"
    found = [in_node("rankings", f"return it.moves({json.dumps(one['counts'])});") for one in moves]
    assert found[0]["forwards"] > found[0]["backwards"] and moves[0]["name"] == "auto-encoder"
    assert found[-1]["forwards"] == found[-1]["backwards"]
    assert found[-1]["stays"] == max(one["stays"] for one in found)


def test_lines_join_what_both_sides_have_and_the_answer_wherever_it_is():
    code = """
      const left = it.rows({ first: [7, 8], rank: 40 }, 9);
      const right = it.rows({ first: [9, 7], rank: 1 }, 9);
      return [left, right.length, it.lines(left, right)];
    """
    left, length, lines = in_node("rankings", code)
    assert left[-1] == {"passage": 9, "rank": 40, "beyond": True} and length == 2
    assert lines == [{"passage": 7, "from": 0, "to": 1}, {"passage": 9, "from": 2, "to": 0}]


@needs_chromium
def test_a_key_chooses_another_question_and_another_matrix(tmp_path):
    sides = {"words": {"first": [1, 0], "rank": 2}, "meaning": {"first": [0, 1], "rank": 1}}
    asked = [
        sides | {"kind": "words", "text": text, "right": right, "passage": "<b>"}
        for right, text in enumerate(("first", "second"))
    ]
    counts = (np.eye(5, dtype=int) * 3).tolist()
    moves = [{"name": name, "counts": counts} for name in ("SimLM", "masked LM")]
    data = {"titles": ["A", "B"], "questions": asked, "classes": rankings.CLASSES, "moves": moves}
    with opened(tmp_path / "profile") as browser:
        browser.visit(page(tmp_path, "rankings", {"rankingsData": data}))
        said = "[...document.querySelectorAll('[role=status]')].map((one) => one.textContent)"
        assert "A\N{RIGHT DOUBLE QUOTATION MARK}, stands at rank 2 by words" in browser.run(said)[0]
        browser.run("document.getElementById('rankings-question').focus()")
        browser.press("ArrowDown")
        assert "B\N{RIGHT DOUBLE QUOTATION MARK}" in browser.run(said)[0]
        browser.run("document.getElementById('rankings-method').focus()")
        browser.press("ArrowDown")
        assert (
            "masked LM: the passage moves to a better range of ranks for 0 questions"
            in browser.run(said)[1]
        )
        assert browser.run("document.querySelectorAll('td').length") == 25
        told = browser.run(said)
        address = "?rankings-question=second&rankings-method=masked+LM"
        assert browser.run("location.search") == address
        browser.visit(tmp_path / "page.html", address)
        assert browser.run(said) == told
        assert browser.complaints == []


# What the vector supplies -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def batch():
    collection = collections.load("primer").passages[:4]
    return token_batch(collection["text"])


def token_batch(texts: list[str]) -> TokenBatch:
    tokenizer = load_tokenizer("embedded")
    read = tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=48)
    ids = read["input_ids"]
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    pieces = [tokenizer.convert_ids_to_tokens(row.tolist()) for row in ids]
    inside = torch.tensor([[piece.startswith("##") for piece in row] for row in pieces])
    return TokenBatch(
        ids, read["attention_mask"], torch.zeros_like(ids), special, ~special & ~inside, ids[:, 0]
    )


def test_a_larger_share_lacks_the_words_of_a_smaller_whole(batch):
    few, many = (supplied.lacking_words(batch, rate) for rate in (0.3, 0.7))
    assert (many | ~few).all() and few.sum() < many.sum()
    assert torch.equal(supplied.lacking_words(batch, 1.0), ~batch.special)
    word = batch.word_start.cumsum(1)
    for i in range(len(word)):  # pieces of one word go together
        for number in word[i][~batch.special[i]].unique():
            assert few[i][(word[i] == number) & ~batch.special[i]].unique().numel() == 1


@pytest.mark.parametrize("method", ["autoencoder", "simlm"])
def test_one_vector_for_all_passages_supplies_nothing(batch, method, monkeypatch):
    model = load_masked_lm("embedded")
    objective = objectives.create(
        method, model, load_tokenizer("embedded"), generator_model=model, init_seed=0
    ).eval()
    gain, lacking = supplied.supplied(objective, batch, 1.0)
    assert gain[~batch.special].abs().max() > 0 and torch.equal(lacking, ~batch.special)
    same = torch.ones(len(batch.input_ids), 48, 128)
    monkeypatch.setattr(supplied, "hidden_states", lambda *_: same)
    assert supplied.supplied(objective, batch, 1.0)[0].abs().max() < 1e-4


def test_the_file_of_the_piece_is_whole_and_says_more_of_rare_words_than_of_stop_words():
    found = read_json(supplied.MEASURED)
    assert [one["method"] for one in found["models"]] == [
        m.method for m in supplied.MODELS.values()
    ]
    assert len(found["passages"]) == supplied.SHOWN
    for number, model in enumerate(found["models"]):
        assert model["rates"] == [*supplied.RATES[model["method"]]] and model["steps"] == 2000
        words, stops = [], []
        for passage in found["passages"]:
            nats, pieces = passage["values"][number][-1], passage["pieces"]
            assert [len(one) for one in passage["values"][number]] == [len(pieces)] * len(
                model["rates"]
            )
            for piece, value in zip(pieces, nats, strict=True):
                (stops if piece in STOPWORDS_EN else words).append(value / 10)
        mean = np.mean(words + stops)
        assert mean == pytest.approx(model["supplied"][-1][0], abs=0.02)
        assert np.mean(words) > 3 * np.mean(stops)


def test_pieces_become_words_and_the_summary_is_of_what_is_lacking():
    code = """
      const words = it.words(["dia", "##mond", "is", "hard"], [10, 5, 40, -5], [2]);
      return [words, it.summary(words)];
    """
    words, summary = in_node("supplied", code)
    assert [one["text"] for one in words] == ["diamond", "is", "hard"]
    assert [one["nats"] for one in words] == [1.5, 4, -0.5] and words[1]["reads"]
    assert summary["mean"] == 0.5
    assert [one["text"] for one in summary["most"]] == ["diamond", "hard"]


@needs_chromium
def test_a_key_moves_from_word_to_word_and_a_tab_changes_the_method(tmp_path):
    passage = {"title": "A", "pieces": ["hard", "rock"], "values": [[[3, 12]], [[1, 1], [2, 2]]]}
    passage |= {"reads": [[[]], [[0], []]]}
    methods = [{"name": "auto-encoder", "rates": [1]}, {"name": "SimLM", "rates": [0.5, 1]}]
    data = {"suppliedData": {"methods": methods, "passages": [passage]}}
    with opened(tmp_path / "profile") as browser:
        browser.visit(page(tmp_path, "supplied", data))
        browser.run("document.querySelector('.shaded [tabindex=\"0\"]').focus()")
        browser.press("ArrowRight")
        assert browser.run("document.querySelector('.one').textContent") == "rock: +1.2 nats."
        said = "document.querySelector('[role=status]').textContent"
        assert "auto-encoder, the decoder lacks 100" in browser.run(said)
        browser.run("document.querySelectorAll('button')[1].click()")
        assert "SimLM, the decoder lacks 50" in browser.run(said)
        browser.run("document.getElementById('supplied-rate').focus()")
        browser.press("ArrowRight")
        assert "SimLM, the decoder lacks 100" in browser.run(said)
        assert browser.run("location.search") == "?supplied-method=SimLM&supplied-rate=1"
        browser.visit(tmp_path / "page.html", "?supplied-method=SimLM&supplied-rate=1")
        assert "SimLM, the decoder lacks 100" in browser.run(said) and browser.complaints == []
