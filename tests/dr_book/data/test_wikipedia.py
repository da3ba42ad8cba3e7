"""Wikipedia articles around the answers of NQ-open, with silver judgements."""

import json

import pytest

from dr_book.data import wikipedia
from tests.dr_book.data.layouts import HEADER, lay_out


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Small bounds, and a SQuAD whose one test article is on Warsaw."""
    monkeypatch.setattr(wikipedia, "WORDS", 300)
    monkeypatch.setattr(wikipedia, "SHORTEST", 20)
    monkeypatch.setattr(wikipedia, "SHORTEST_FILL", 40)
    asked = [{"id": "1", "question": "What is it?", "answers": [{"text": "a city"}]}]
    article = {"title": "Warsaw", "paragraphs": [{"context": "It is a city.", "qas": asked}]}
    squad = {"train-v1.1.json": {"data": []}, "dev-v1.1.json": {"data": [article]}}
    lay_out(tmp_path / "data" / "squad", squad)
    monkeypatch.setenv("DR_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))


def article(number: int, title: str, *lines: str) -> str:
    return (
        f'<doc id="{number}" url="u" title="{title}">\n{title}\n\n'
        + "\n".join(lines)
        + "\n\n</doc>\n"
    )


def filler(word: str, times: int) -> str:
    return f"The {word} was seen by many people there. " * times


def questions(*rows: tuple[str, str]) -> str:
    return "".join(
        json.dumps({"question": asked, "answer": [answer]}) + "\n" for asked, answer in rows
    )


def test_articles_with_an_answer_come_first_and_tested_ones_never(converted, small):
    first = article(
        12,
        "Saint-&amp;",
        "History of it.",
        "Charles de Gaulle opened the &lt;b&gt;bridge&lt;/b&gt; of the town. "
        + filler("bridge", 14),
    )
    second = article(25, "Warsaw", f"Frederic Chopin was born near the city. {filler('piano', 14)}")
    third = article(30, "List of rivers", filler("river", 20))
    fourth = article(
        31, "Rivers", filler("river", 10) + "Nile Nile Nile is one of them, they say.", "Nile."
    )
    short = article(39, "Stub", "Napoleon was an emperor.")
    made = converted(
        "wikipedia-nq",
        {
            "text/AA/wiki_00": first + second + short,
            "text/AB/wiki_07": third + fourth,
            "nq_open/NQ-open.dev.jsonl": questions(
                ("who opened the bridge", "Charles  de Gaulle"),
                ("who was born near the city with a piano", "Frederic Chopin"),
                ("which emperor was it", "Napoleon"),
                ("how many people saw the bridge", "14"),
                ("what was seen by the people on the bridge", "was"),
            ),
            "nq_open/NQ-open.efficientqa.dev.1.1.jsonl": questions(
                ("which river is it", "nilé nile")
            ),
        },
    )
    corpus = {row["_id"]: row for row in made["corpus.jsonl.gz"]}
    assert {row["title"] for row in corpus.values()} == {"Saint-&", "Rivers"}
    opened = corpus["w12#0"]
    assert opened["text"].startswith(
        "Charles de Gaulle opened the bridge of the town. The bridge was"
    )
    assert (opened["doc"], opened["position"]) == ("w12", 0)
    assert made["queries.jsonl.gz"] == [
        {"_id": "nq-test0", "text": "who opened the bridge", "answers": ["Charles de Gaulle"]},
        {"_id": "nq-dev0", "text": "which river is it", "answers": ["nilé nile"]},
    ]
    assert made["qrels/test.tsv"] == [HEADER, ("nq-test0", "w12#0", 1)]
    assert [row[0] for row in made["qrels/dev.tsv"][1:]] == ["nq-dev0"]


def test_few_words_leave_out_the_articles_that_only_fill_up(converted, small, monkeypatch):
    monkeypatch.setattr(wikipedia, "WORDS", 50)
    texts = [article(n, f"Bird {n}", filler(f"bird{n}", 10)) for n in range(5)]
    texts.append(article(9, "Bridges", f"Charles opened it all. {filler('bridge', 10)}"))
    asked = questions(("who opened the bridge", "Charles"))
    names = ("nq_open/NQ-open.dev.jsonl", "nq_open/NQ-open.efficientqa.dev.1.1.jsonl")
    made = converted(
        "wikipedia-nq", {"text/AA/wiki_00": "".join(texts)} | dict.fromkeys(names, asked)
    )
    assert {row["title"] for row in made["corpus.jsonl.gz"]} == {"Bridges"}


def test_a_text_that_stands_twice_is_one_passage(converted, small):
    texts = [article(n, f"Bird {n}", filler("bird", 10)) for n in range(3)]
    names = ("nq_open/NQ-open.dev.jsonl", "nq_open/NQ-open.efficientqa.dev.1.1.jsonl")
    asked = questions(("who", "nobody"))
    made = converted(
        "wikipedia-nq", {"text/AA/wiki_00": "".join(texts)} | dict.fromkeys(names, asked)
    )
    assert [row["_id"] for row in made["corpus.jsonl.gz"]] == ["w0#0"]
