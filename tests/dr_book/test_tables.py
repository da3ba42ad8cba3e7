"""Tables and searches: text from a collection stays text, on a page and in a terminal."""

import json
import re

import datasets
import numpy as np
import pytest

from dr_book import tables
from dr_book.hits import Hit, Result, one_line, shortened
from dr_book.statistics import Interval
from dr_book.tables import (
    cases_table,
    flips_table,
    folded,
    interval_cell,
    marked,
    search_table,
    spell,
    table,
)
from dr_book.verdicts import Case
from dr_lib.collections import Collection
from dr_lib.retrieval import Ranking

PASSAGES = datasets.Dataset.from_dict(
    {
        "id": ["p0", "p1", "p2"],
        "title": ["A <i>title</i>", "", ""],
        "text": ["Plain vectors.", "<script>alert('sorted vectors')</script>", "Nothing here"],
    }
)
QUERIES = datasets.Dataset.from_dict(
    {"id": ["q0", "q1"], "text": ["How are vectors <b>sorted</b>?", "other"]}
)
EVIL = "\x1b[2J<script>alert(1)</script>\u202e end"


def collection(**judged: list) -> Collection:
    """The passages and queries, with these judgements as the split test."""
    columns = [
        datasets.Dataset.from_dict({name: [value] * 3})
        for name, value in (("doc", ""), ("position", 0))
    ]
    passages = datasets.concatenate_datasets([PASSAGES, *columns], axis=1)
    queries = QUERIES.add_column("answers", [[], []])
    return Collection(
        "t", "0" * 64, {}, passages, queries, {"test": datasets.Dataset.from_dict(judged)}
    )


def ranking(rows: list[int]) -> Ranking:
    """The rows for q0, and one passage for q1."""
    lines = np.array([[2, *[-1] * (len(rows) - 1)], rows])
    scores = np.where(lines >= 0, np.arange(len(rows), 0, -1.0), -np.inf)
    return Ranking(["q1", "q0"], lines, scores)


def cases(**runs: list[int]) -> str:
    rankings = {name: ranking(rows) for name, rows in runs.items()}
    searched = collection(query=["q0", "q0"], passage=["p1", "p2"], grade=[1, 0])
    return cases_table([Case("q0", 0, 1)], rankings, searched, "test", "cases").data


def answer(
    systems: int = 2, hits: int = 2, text: str = "The moon pulls the water of the sea."
) -> Result:
    found = [
        Hit(rank, f"p{rank}", "Tides", text, 1 / rank, grade=1 if rank == 2 else None)
        for rank in range(1, 1 + hits)
    ]
    return Result(
        "why does the sea rise", 1, {f"system {number}": found for number in range(systems)}
    )


def test_cells_are_escaped_and_numbers_aligned():
    html = table(
        ["<b>", "n"], [["<i>", 1234], ["x", 0.25], ["y", None]], caption="<u>", digits=2
    ).data
    assert (
        not re.search(r"<[biu]>", html)
        and ">1,234<" in html
        and ">0.25<" in html
        and "&ndash;" in html
    )
    assert "<b>" not in folded("<b>", table(["a"], [], caption="c")).data


def test_an_interval_is_spelled_with_its_sign_and_never_around_minus_zero():
    assert spell(Interval(-0.01, -0.5, 0.4), sign=True) == "+0.0 [\N{MINUS SIGN}0.5, +0.4]"
    assert spell(Interval(0.3, -0.04, 0.6), sign=True) == "+0.3 [\N{MINUS SIGN}0.0, +0.6]", (
        "zero lies within"
    )
    assert (
        spell(Interval(0.3, 0.0, 0.6), sign=True) == "+0.3 [+0.0, +0.6]"
        and spell(Interval(0.0, -0.04, 0.1)) == "0.0 [0.0, 0.1]"
    )
    assert spell(Interval(1491.3, 1462.9, 1521.2)) == "1,491.3 [1,462.9, 1,521.2]"
    assert (
        interval_cell(Interval(1.0, 0.5, 1.5), best=True).html
        == '<strong>1.0</strong> <span class="interval">[0.5, 1.5]</span>'
    )
    assert (
        interval_cell(None) is None and interval_cell(Interval(100.0, 100.0, 100.0)).html == "100.0"
    )


def test_nothing_of_a_collection_becomes_markup():
    text = cases(old=[0, 1], new=[1, 0])
    assert "<script" not in text and "<i>" not in text and "&lt;script&gt;alert(" in text
    assert "How are vectors &lt;b&gt;sorted&lt;/b&gt;?" in text
    tags = "div table caption thead tbody tr th td b mark"
    assert set(re.findall(r"</?(\w+)", text)) <= set(tags.split())


def test_each_system_has_its_rank_and_its_first_passage():
    lines = re.findall(r"<tr><td.*?</tr>", cases(old=[0, 1], new=[1, 0]))
    assert len(lines) == 2
    assert "<td>old</td>" in lines[0] and '<td class="number">2</td><td>no</td>' in lines[0]
    assert "<b>A &lt;i&gt;title&lt;/i&gt;</b> Plain <mark>vectors</mark>." in lines[0]
    assert (
        '<td class="number">1</td><td>yes</td>' in lines[1] and "<td></td><td>new</td>" in lines[1]
    )


def test_a_system_without_the_relevant_passage_says_how_deep_it_looked():
    text = cases(one=[0, -1], none=[-1, -1])
    assert "not in 1" in text and "not in 0" in text


def test_words_of_the_query_are_marked_whole_and_stop_words_are_not():
    text = marked("The sort is stable; resort, SORT-ing & <sort>", "How is the sort stable?")
    assert (
        text == "The <mark>sort</mark> is <mark>stable</mark>; resort, <mark>SORT</mark>-ing &amp;"
        " &lt;<mark>sort</mark>&gt;"
    )


def test_long_passages_are_cut_around_the_words_of_the_query():
    text = marked(" ".join(f"w{i}" for i in range(100)) + " vector end", "vector")
    assert text.startswith("… w") and text.endswith(" w99 <mark>vector</mark> end")
    assert marked("a b " * 100, "none") == "a b " * 60 + "…"


def test_words_are_marked_in_every_script():
    assert marked("Le cafe\u0301 & moi", "CAFÉ") == "Le <mark>café</mark> &amp; moi"
    text = marked(f"{'水' * 400}東京都{'水' * 400}", "東京")
    assert text == f"… {'水' * 8}<mark>東京</mark>都{'水' * 229} …"


@pytest.mark.parametrize("scale", ["laptop", "smoke"])
def test_won_and_lost_queries_are_counted_and_shown_by_the_same_rule(monkeypatch, record, scale):
    found = collection(query=["q0", "q1"], passage=["p1", "p2"], grade=[1, 1])
    lines = {"none": ranking([0, 1, 2]), "<new>": ranking([1, 0, 2])}
    monkeypatch.setattr(tables, "collection_of", lambda record, place, searched: found)
    monkeypatch.setattr(tables, "ranking_of", lambda record: lines[record.label])
    more = {"query_ids": ["q0", "q1"], "recipe": {"evaluation": {"split": "test"}}, "scale": scale}
    made = [
        record(label, values, "R@1", **more)
        for label, values in (("none", [0, 1]), ("<new>", [1, 1]))
    ]
    for one in made:
        object.__setattr__(one.measured, "query_ids", ["q0", "q1"])
    html = flips_table(*made, "R@1").data
    assert re.findall(r"<caption>(.*?)</caption>", html) == [
        "Answered by &lt;new&gt;, missed by no pre-training (R@1 0): 1 of 2 queries.",
        "Answered by no pre-training, missed by &lt;new&gt; (R@1 0): 0 of 2 queries.",
    ]
    assert "<new>" not in html and "<script>" not in html and html.count("How are vectors") == 1
    assert ">none<" not in html  # a method's name, not its code word
    assert html.startswith("<details") == (scale == "smoke")


def test_systems_stand_one_below_the_other_in_a_terminal():
    lines = answer(systems=3).as_text(width=60).splitlines()
    assert [line for line in lines if line.startswith("system")] == [
        "system 0",
        "system 1",
        "system 2",
    ]
    assert all(len(line) <= 60 for line in lines)


def test_relevant_passages_are_marked():
    text = answer(systems=1).as_text(width=80)
    assert " 2 *    0.500  p2" in text and " 1      1.000  p1" in text
    assert "1 passage is judged relevant" in text
    assert search_table(answer(systems=1)).data.count(">relevant<") == 1


def test_a_passage_judged_spam_is_not_marked():
    spam = Result("q", 0, {"BM25": [Hit(1, "p", "", "x", 1.0, grade=-2)]})
    assert (
        "*" not in spam.as_text().replace("(*)", "") and ">relevant<" not in search_table(spam).data
    )


def test_a_query_of_ones_own_has_no_word_on_judgements():
    own = Result("mine", None, {"BM25": []}).as_text()
    assert "judged" not in own and "nothing found" in own


def test_neither_terminal_nor_page_acts_on_text():
    text = answer(text=EVIL).as_text()
    assert "\x1b" not in text and "\u202e" not in text and "<script>" in text
    html = search_table(Result(EVIL, None, {EVIL: [Hit(1, EVIL, EVIL, EVIL, 1.0)]})).data
    assert "<script" not in html and "&lt;script" in html


def test_a_passage_is_shown_on_one_line():
    assert one_line("a\tb\r\nc") == "a b c"


def test_json_hands_no_sign_to_a_terminal_that_it_would_act_on():
    hostile = (
        "".join(
            map(
                chr, [*range(32), *range(127, 160), 0x2028, 0x202E, 0x2066, 0xFEFF, 0xD800, 0xE0001]
            )
        )
        + "ü検"
    )
    line = Result(hostile, None, {hostile: [Hit(1, hostile, hostile, hostile, 1.0)]}).as_json()
    assert line.isprintable() and "ü検" in line
    assert json.loads(line)["hits"][hostile][0]["text"] == hostile


def test_json_has_everything_on_one_line():
    line = answer(text="a\nb").as_json()
    expected = {"rank": 2, "id": "p2", "title": "Tides", "text": "a\nb", "score": 0.5, "grade": 1}
    assert "\n" not in line and json.loads(line)["hits"]["system 0"][1] == expected


def test_systems_with_fewer_passages_leave_their_cells_empty():
    uneven = Result("q", None, {"a": [Hit(1, "p", "", "x", 1.0)], "b": []})
    assert search_table(uneven).data.count("<li>") == sum(map(len, uneven.hits.values()))
    assert "x" in uneven.as_text(width=100)


def test_a_slash_in_a_label_is_printed_as_a_comma_except_between_rates():
    shown = {
        label: tables.named(label)
        for label in ("SimLM / + distillation", "DPR (ours) / BERT-base", "30% / 50%")
    }
    assert [name.replace("\N{NO-BREAK SPACE}", " ") for name in shown.values()] == [
        "SimLM + distillation",
        "DPR (ours), BERT-base",
        "30 % / 50 %",
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_snippet_has_as_many_words_of_the_query_as_any_stretch_of_its_length(seed):
    rng = np.random.default_rng(seed)
    words = [f"w{one}" for one in rng.integers(0, 60, 200)]
    query = " ".join({f"w{one}" for one in rng.integers(0, 60, 4)})
    found = shortened(" ".join(words), query)
    assert found.replace("… ", "").replace(" …", "") in " ".join(words)

    def hits(part: list[str]) -> int:
        return len({*part} & {*query.split()})

    # the stretch begins up to four words before its first hit, so four words may be lost behind
    stretches = (words[begin : begin + 52] for begin in range(len(words)))
    assert hits(found.split()) >= max(map(hits, stretches)) - 1
    assert len(found) <= 240 + 4


@pytest.mark.parametrize(
    ("study", "name", "shown"),
    [
        ("your_corpus/docs-2531cf", "docs-questions", "docs, generated questions"),
        ("your_corpus/scifact-2531cf", "scifact-questions", "SciFact, generated questions"),
        ("your_corpus/nq-open-questions-2531cf", "nq-open-questions", "nq-open-questions"),
        ("methods/x", "docs-questions", "docs-questions"),
        ("your_corpus/docs-2531cf", "docs", "docs"),
    ],
)
def test_generated_questions_are_called_so(record, study, name, shown):
    data = {"collection": {"name": name, "passages": 22}}
    runs = {"BM25": [record("BM25", [1, 0], study=study, data=data)]}
    assert tables.spell_data(runs) == f"{shown}, 22 passages, 2 queries, laptop scale"


def test_a_column_of_ranks_takes_little_of_a_tables_width():
    ranks = tables.table(["rank", "passage"], [["1", "A long one."], ["2", "b"]], caption="-").data
    names = tables.table(["row", "passage"], [["BM25", "A long one."]], caption="-").data
    assert 'style="--least:3rem"' in ranks and "--least" not in names


def test_a_word_among_numbers_stands_where_they_end():
    cells = tables.table(["key", "value"], [["a", 1], ["b", "True"], ["c", None]], caption="-").data
    assert '<td>b</td><td class="text-right">True</td>' in cells and "words" not in cells
