"""Facts of a collection and of its generated questions, as tables."""

import json

import pytest

from dr_lib import collections
from dr_lib.lab import Asked, Recipe
from dr_lib.report import asked_examples, asked_steps, collection_table

COUNTS = {
    "passages": 3, "written": 9, "distinct": 8, "asked_once": 6, "found_again": 4, "queries": {"train": 2, "test": 2},
    "shared_words": 0.624,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three passages of two documents, two test questions."""
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "tides"
    (place / "qrels").mkdir(parents=True)
    texts = ["The moon pulls <i>water</i>.", "word " * 90, "one two three"]
    corpus = [{"_id": f"p{n}", "text": text, "doc": f"d{n // 2}", "title": "T" * n} for n, text in enumerate(texts)]
    queries = [{"_id": "q0", "text": "who pulls?"}, {"_id": "q1", "text": "how many words?"}]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (place / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tp0\t1\nq1\tp1\t1\n", encoding="utf-8")
    return place


def test_a_collection_is_counted(folder):
    html = collection_table(collections.load(folder)).data
    for fact in (
        'passages</td><td class="number">3',
        'come from</td><td class="number">2',
        'title</td><td class="number">2',
    ):
        assert fact in html
    assert 'median</td><td class="number">4' in html and 'split test</td><td class="number">2' in html
    assert "no judgements" not in html


def test_passages_alone_are_said_to_be_so(folder):
    for name in ("queries.jsonl", "qrels/test.tsv"):
        (folder / name).unlink()
    (folder / "qrels").rmdir()
    assert "There are no judgements" in collection_table(collections.load(folder)).data


def test_every_step_of_the_filter_has_its_count(folder):
    html = asked_steps(Asked(Recipe(collection=str(folder)), folder, COUNTS)).data
    assert "62 % of a question" in html and html.count("<tr>") == 1 + 4 + 2
    assert '<td class="number">6</td><td class="number">66.7</td>' in html


def test_examples_stand_beside_their_passages_and_stay_text(folder):
    html = asked_examples(Asked(Recipe(collection=str(folder)), folder, COUNTS)).data
    assert "<td>who pulls?</td><td>The moon pulls &lt;i&gt;water&lt;/i&gt;.</td>" in html
    assert "T: word word" in html and "…" in html
