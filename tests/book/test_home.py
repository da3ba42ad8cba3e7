"""The first page, its questions and its figures against independent counts; and the README, which
fits one screen.
"""

import itertools
import re
import shlex

import home
import numpy as np
import pytest
from check_pages import ROOT
from home import Searched, answers, beginning, box, tally
from readme_table import BEGIN, END, PAPERS, with_table

from dr_book import plan
from dr_book.commands import parser
from dr_book.measured import Compared, difference, recorded, recorded_by_collection
from dr_book.statistics import Estimate
from dr_lib import objectives
from dr_lib.places import project_root


@pytest.fixture
def made() -> Searched:
    """Four passages, and three questions: a vector finds one, both find one, words find one."""
    first = {"words": [[3, 1], [1, 0, 2], [2, 3, 1]], "meaning": [[0, 1, 2], [1, 2, 3], [0, 1, 3]]}
    return Searched(
        {"id": [*"abcd"], "title": [*"ABCD"], "text": ["text " * 40] * 4},
        {"id": ["p1-meaning", "p2-words", "p3-words"], "text": ["how", "what", "who"]},
        [np.array([0]), np.array([1]), np.array([2])],
        {"words": np.array([0, 1, 1]), "meaning": np.array([1, 1, 20])},
        lambda side, row: first[side][row],
        0.81234,
    )


def test_questions_are_chosen_for_their_differences_and_all_passages_are_there(made):
    found, told = answers("primer", made)
    assert [one["text"] for one in found["questions"]] == ["how", "what", "who"]
    first = found["questions"][0]
    assert first["words"]["rank"] is None and first["meaning"]["rank"] == 1
    titles = [found["passages"][i][0] for i in first["words"]["first"]]
    assert titles == ["D", "B"] and found["passages"][first["right"]][0] == "A"
    assert "these 3 questions" in told and "in 1 the vector alone" in told
    assert "in 1 words alone" in told and told.endswith("Of all 3 test questions it is 1 and 1.")
    assert found["near"] == 0.8123 and found["topics"].startswith("weather")


def test_without_judged_questions_the_box_has_none():
    assert answers("mine", None) == ({"count": 0, "passages": [], "questions": []}, "")
    assert "2.5\N{NO-BREAK SPACE}MB" in box("", 2.5)


def test_a_beginning_ends_with_a_word():
    assert beginning("short") == "short"
    cut = beginning("several words " * 20)
    assert len(cut) <= home.LETTERS + 2 and cut.endswith(" \N{HORIZONTAL ELLIPSIS}")
    assert cut[:-2].split()[-1] in ("several", "words")


def test_orders_are_counted_by_sign_and_certainty():
    def gap(value: float, error: float, why_open: str = "") -> Compared:
        return Compared(Estimate(value, ((error**2, 100),)), None, (3, 3), 100, 100.0, why_open)

    first = {("a", "b"): gap(1.0, 0.1)}
    again = [gap(2.0, 0.1), gap(0.1, 1.0), gap(-0.1, 1.0), gap(-2.0, 0.1)]
    again += [gap(2.0, 0.1, "a row has one seed")]  # however wide a gap, it may not decide
    for place, compared in zip((0, 1, 2, 3, 1), again, strict=True):
        counts = tally(first, [*first], [lambda *pair, found=compared: found])
        assert counts == [int(number == place) for number in range(4)]


def test_the_trust_figure_counts_every_certain_pair_once_a_collection():
    told = re.search(r'aria-label="([^"]*)"', home.trust_figure().data)[1]
    numbers = {
        name: [*map(int, re.findall(r"\d+(?= (?:same|turned))", row))]
        for name, row in (part.split(": ", 1) for part in told.split(". ", 1)[1].split("; "))
    }
    sure, away = (
        sum(numbers["other articles"]),
        next(name for name in numbers if name.endswith("other collections")),
    )
    pairs, rest = divmod(sum(numbers[away]), int(away.split()[0]))
    # a method that waits for seeds decides nothing
    core = plan.Block.load("plan/core")
    complete = {label for label, records in core.runs.items() if len(records) >= 3}
    assert complete <= set.intersection(*({*block.runs} for block in home.others().values()))
    both = [
        pair
        for pair in itertools.combinations(core.runs, 2)
        if {*pair} <= complete and core.compared(*pair, home.MEASURE).certain
    ]
    assert sure == len(both) and not rest
    assert pairs == len(both) > 20
    assert numbers["other articles"][2:] == [0, 0], "the first page says that other articles agree"
    assert numbers["six layers"] == [0, 5, 0, 0], "one seed is never certain"
    larger = recorded("methods/larger-model")
    assert "autoencoder" not in larger and {*map(len, larger.values())} == {1}, "trained once"
    kept = sum(numbers[away][:2]) / sum(numbers[away])
    assert 0.62 < kept < 0.7, "about two in three"
    assert numbers[away][::3] == [25, 3], "25 of the 28 that are certain there"
    on_scifact = [home.others()["scifact"].compared(*pair, home.ELSEWHERE) for pair in both]
    assert sum(gap.certain for gap in on_scifact) == 22, "most of them SciFact's"
    assert re.search(r"64 % \[49, 80\]", re.sub(r"\s", " ", home.trust_figure().data)), "chance"
    assert "medquad" not in home.others(), "too few clusters to decide anything"


def test_what_is_left_where_nothing_was_read_nor_trained_on_is_as_the_first_page_says():
    """In the measure that the plan fixed for other collections."""
    assert f"; {home.ELSEWHERE}," in (ROOT / "book" / "plan.yaml").read_text(encoding="utf-8")
    away, core = home.others(), plan.Block.load("plan/core", both=True)
    decoders = plan.Block({**core.runs, **plan.Block.load("plan/decoder", both=True).runs})
    bare, best = (
        decoders.difference(label, "none", home.MEASURE).value
        for label in (home.BARE, "autoencoder")
    )
    for label in (home.BARE, home.WHOLE):
        gap = decoders.difference(label, "autoencoder", home.MEASURE)
        assert gap.p_within(1.0) < 0.05, "level with an auto-encoder"
    assert bare > decoders.difference("simlm", "none", home.MEASURE).interval().high
    labels = ("autoencoder", "bow", "retromae", "simlm", "mlm")
    gains = {
        label: plan.together([*away.values()], label, "none", home.ELSEWHERE).interval()
        for label in labels
    }
    assert 0 < gains["autoencoder"].low < gains["autoencoder"].mean < best
    assert all(gain.low < 0 < gain.high for label, gain in gains.items() if label != "autoencoder")
    bare_away = [
        plan.Block({**block.runs, **plan.Block.load("plan/decoder-elsewhere", name).runs})
        for name, block in away.items()
    ]
    assert not plan.together(bare_away, home.BARE, "none", home.ELSEWHERE).side()
    first, *_ = away
    words, words_of_rest = (
        plan.together(blocks, home.WHOLE, "none", home.ELSEWHERE).value
        for blocks in (bare_away, bare_away[1:])
    )
    assert words < 0.3 * best, "little of the gain is left"
    assert first == "scifact" and words_of_rest < 0.55 * words, "most of that is SciFact's"
    rest = [block for name, block in away.items() if name != "scifact"]
    assert len(rest) == len(away) - 1
    gain = plan.together(rest, "autoencoder", "none", home.ELSEWHERE).interval()
    assert gain.low < 0 and gain.mean < 0.55 * gains["autoencoder"].mean, "most is SciFact's"


def test_where_words_win_and_where_vectors_do_is_as_the_first_page_says():
    rows = home.in_records()
    assert all(rows[name][0] > rows[name][1] for name in ("SQuAD", "Reddit titles", "NQ, unseen"))
    assert rows["SciFact, public start"][0] < rows["SciFact, public start"][1]
    on_scifact = recorded_by_collection("methods/from-real-model")["scifact"]
    ahead = difference(on_scifact["no pre-training"], on_scifact["BM25"], home.MEASURE)
    assert ahead.certain and ahead.estimate.value > 0
    on_medquad = recorded_by_collection("methods/pipeline-medquad")["medquad"]
    undecided = difference(on_medquad["retriever 1"], on_medquad["BM25"], home.MEASURE)
    assert "too few" in undecided.why_open and "MedQuAD" not in rows


def test_the_first_page_is_short():
    text = (ROOT / "book" / "intro.md").read_text(encoding="utf-8")
    prose = re.sub(r"<svg.*?</svg>", " ", text, flags=re.DOTALL)
    prose = re.sub(r"<[^>]+>|^```.*$|^:file:.*$|^---.*$", " ", prose, flags=re.MULTILINE)
    links = len(re.findall(r'href="(?!search-page)|\{doc\}', text))
    assert len(prose.split()) <= 380 and links <= 14


README = (project_root() / "README.md").read_text(encoding="utf-8")


def test_it_is_short():
    assert len(README.split()) < 450


def test_its_targets_of_make_and_its_places_exist():
    makefile = (project_root() / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert targets and all(f"\n{target}:" in makefile for target in targets)
    places = re.findall(r"`((?:book|dr_lib|notebooks)/[\w./]*)`|\]\(([\w./-]+)\)", README)
    assert places and all((project_root() / (code or link)).exists() for code, link in places)


def test_its_commands_are_taken():
    commands = re.findall(r"^\.venv/bin/dr-lib ([^#\n]*)", README, re.MULTILINE)
    assert commands
    for command in commands:
        parser().parse_args(shlex.split(command))


def test_it_names_every_method():
    (listed,) = re.findall(r"^Methods: `(.*)`", README, re.MULTILINE)
    assert sorted(listed.split()) == sorted(objectives.names())


def test_the_table_counts_the_pairs_of_each_paper():
    pairs = [{"state": state} for state in ("supported", "open", "open", "not run")]
    pairs.append({"state": "open", "waits": 1})
    made = with_table(f"a {BEGIN}\nold\n{END} z", [{"paper": "pair", "pairs": pairs}])
    rows = [line for line in made.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(PAPERS) and made.startswith("a ") and made.endswith(" z")
    assert rows[-1] == "| PAIR | 4 | 1 | 2 | 1 | 0 |"
