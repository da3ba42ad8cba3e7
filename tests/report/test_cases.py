"""Case tables: the right queries, the right passages, and text that stays text."""

import re
from types import SimpleNamespace

import datasets
import numpy as np
import pytest

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation import Case, Scores, flips
from dr_lib.report import cases, cases_table, flips_table
from dr_lib.report.cases import marked
from dr_lib.retrieval import Ranking

PASSAGES = datasets.Dataset.from_dict(
    {
        "id": ["p0", "p1", "p2"],
        "title": ["A <i>title</i>", "", ""],
        "text": ["Plain vectors.", "<script>alert('sorted vectors')</script>", "Nothing here"],
    }
)
QUERIES = datasets.Dataset.from_dict({"id": ["q0", "q1"], "text": ["How are vectors <b>sorted</b>?", "other"]})
QRELS = {"q0": {"p1": 1, "p2": 0}}


def ranking(rows: list[int]) -> Ranking:
    """The rows for q0, and one passage for q1."""
    lines = np.array([[2, *[-1] * (len(rows) - 1)], rows])
    scores = np.where(lines >= 0, np.arange(len(rows), 0, -1.0), -np.inf)
    return Ranking(["q1", "q0"], lines, scores)


def test_flips_are_what_one_misses_and_the_other_answers_widest_gap_first():
    first = Scores(["a", "b", "c", "d", "e"], {"MRR@10": [0, 0, 0.5, 0, 1]})
    second = Scores(["e", "d", "c", "b", "a"], {"MRR@10": [0, 0, 1, 1, 0.5]})
    assert flips(first, second, "MRR@10") == [Case("b", 0.0, 1.0), Case("a", 0.0, 0.5)]
    assert flips(second, first, "MRR@10") == [Case("e", 0.0, 1.0)]
    assert [case.query_id for case in flips(first, second, "MRR@10", threshold=0.5)] == ["b", "c"]


def test_flips_of_different_queries_are_refused():
    with pytest.raises(InputError, match="scored in one run only"):
        flips(Scores(["a"], {"R@1": [0]}), Scores(["b"], {"R@1": [1]}), "R@1")


def shown(**options) -> str:
    runs = {"old": ranking([0, 1]), "new": ranking([1, 0])}
    return cases_table([Case("q0", 0, 1)], runs, QUERIES, PASSAGES, QRELS, caption="cases", **options).data


def test_nothing_of_a_collection_becomes_markup():
    text = shown()
    assert "<script" not in text and "<i>" not in text and "&lt;script&gt;alert(" in text
    assert "How are vectors &lt;b&gt;sorted&lt;/b&gt;?" in text
    assert set(re.findall(r"</?(\w+)", text)) <= {
        "div",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "b",
        "mark",
    }


def test_each_system_has_its_rank_and_its_first_passage():
    lines = re.findall(r"<tr><td.*?</tr>", shown())
    assert len(lines) == 2
    assert "<td>old</td>" in lines[0] and '<td class="number">2</td><td>no</td>' in lines[0]
    assert "<b>A &lt;i&gt;title&lt;/i&gt;</b> Plain <mark>vectors</mark>." in lines[0]
    assert '<td class="number">1</td><td>yes</td>' in lines[1] and "<td></td><td>new</td>" in lines[1]


def test_a_system_without_the_relevant_passage_says_how_deep_it_looked():
    runs = {"one": ranking([0, -1]), "none": ranking([-1, -1])}
    text = cases_table([Case("q0", 0, 0)], runs, QUERIES, PASSAGES, QRELS, caption="c").data
    assert "not in 1" in text and "not in 0" in text


def test_a_query_that_a_system_lacks_is_refused():
    with pytest.raises(InputError, match="no query 'gone'"):
        cases_table([Case("gone", 0, 1)], {"old": ranking([0])}, QUERIES, PASSAGES, QRELS, caption="c")


def test_words_of_the_query_are_marked_whole_and_stop_words_are_not():
    text = marked("The sort is stable; resort, SORT-ing & <sort>", "How is the sort stable?")
    assert text == (
        "The <mark>sort</mark> is <mark>stable</mark>; resort, <mark>SORT</mark>-ing &amp; &lt;<mark>sort</mark>&gt;"
    )


def test_long_passages_are_cut_around_the_first_marked_word():
    text = marked(" ".join(f"w{i}" for i in range(100)) + " vector end", "vector", words=10)
    assert text == "&hellip; " + " ".join(f"w{i}" for i in range(92, 100)) + " <mark>vector</mark> end"
    assert marked("a b c d", "none", words=2) == "a b &hellip;"


def test_won_and_lost_queries_are_counted_and_shown_by_the_same_rule(tmp_path, monkeypatch):
    columns = {"doc": [""] * 3, "position": [0] * 3}
    for name in columns:
        columns[name] = datasets.Dataset.from_dict({name: columns[name]})
    passages = datasets.concatenate_datasets([PASSAGES, *columns.values()], axis=1)
    queries = QUERIES.add_column("answers", [[], []])
    judged = datasets.Dataset.from_dict({"query": ["q0", "q1"], "passage": ["p1", "p2"], "grade": [1, 1]})
    collection = Collection("t", "0" * 64, {}, passages, queries, {"test": judged})
    runs = {"old": ranking([0, 1, 2]), "<new>": ranking([1, 0, 2])}
    monkeypatch.setattr(cases, "collection_of", lambda record: collection)
    monkeypatch.setattr(cases, "ranking_of", lambda record, cache: runs[record.label])
    old, new = (
        SimpleNamespace(label=label, measured=Scores(["q0", "q1"], {"R@1": values}), query_ids=["q0", "q1"],
                        recipe={"evaluation": {"split": "test"}})
        for label, values in (("old", [0, 1]), ("<new>", [1, 1]))
    )  # fmt: skip
    html = flips_table(old, new, "R@1").data
    captions = re.findall(r"<caption>(.*?)</caption>", html)
    assert captions == [
        "Answered by &lt;new&gt;, missed by old (R@1 0): 1 of 2 queries.",
        "Answered by old, missed by &lt;new&gt; (R@1 0): 0 of 2 queries.",
    ]
    assert "<new>" not in html and "<script>" not in html and "&lt;script&gt;" in html
    assert html.count("How are vectors") == 1
