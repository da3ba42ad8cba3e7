"""Judgements by hand: what is written to tick comes back as judgements."""

import csv

import numpy as np
import pytest

from dr_book import judging
from dr_lib import collections
from dr_lib.errors import InputError
from dr_lib.retrieval import Ranking


@pytest.fixture
def pooled(beir_folder, tmp_path):
    """A collection, two rankings of its first two test queries, and their table."""
    beir_folder(tmp_path / "tiny")
    collection = collections.load(tmp_path / "tiny")
    queries = list(collection.qrels("test"))[:2]
    rows = [np.arange(20)[None].repeat(2, 0), np.arange(5, 25)[None].repeat(2, 0)]
    scores = -np.arange(20, dtype=np.float32)[None].repeat(2, 0)
    rankings = [Ranking(queries, one, scores, 40) for one in rows]
    file = tmp_path / "to-judge.csv"
    count = judging.write_pool(collection, rankings, file)
    return collection, queries, file, count


def rewrite(file, change):
    with file.open(encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))
    for row in rows:
        row["relevant"] = change(row)
    with file.open("w", encoding="utf-8", newline="") as target:
        table = csv.DictWriter(target, judging.COLUMNS)
        table.writeheader()
        table.writerows(rows)
    return rows


def test_the_first_ten_of_every_system_are_pooled_once(pooled):
    collection, queries, file, count = pooled
    rows = rewrite(file, lambda row: "")
    ids = collection.passages["id"][:]
    assert count == len(rows) == 30  # rows 0 to 9 and 5 to 14 of two queries
    for query in queries:
        found = [row["passage-id"] for row in rows if row["query-id"] == query]
        assert sorted(found) == sorted(ids[:15]) and found != ids[:15]


def test_what_is_ticked_comes_back_as_judgements(pooled, tmp_path):
    collection, (first, second), file, _ = pooled
    ids = collection.passages["id"][:]
    marks = {(first, ids[3]): "x", (first, ids[4]): "2", (first, ids[5]): "no"}
    rewrite(file, lambda row: marks.get((row["query-id"], row["passage-id"]), ""))
    texts, grades = judging.read_pool(file)
    assert list(texts) == [first] and second not in grades
    assert grades[first][ids[3]] == 1 and grades[first][ids[4]] == 2
    assert len(grades[first]) == 15 and sum(grade == 0 for grade in grades[first].values()) == 13
    folder = judging.judged_collection(collection, file, tmp_path / "tiny-judged")
    judged = collections.load(folder)
    assert judged.qrels("test")[first] == {**collection.qrels("test")[first], **grades[first]}
    assert judged.qrels("train") == collection.qrels("train")
    assert judged.passages["text"][:] == collection.passages["text"][:]


def test_a_spreadsheet_computes_no_cell_and_ids_come_back_whole():
    for cell in ("=1+1", "+a", "-b", "@c", "'d", "plain", ""):
        quoted = judging._quoted(cell)
        assert quoted[:1] not in set("=+-@") and judging._plain(quoted) == cell


def test_bad_marks_and_tables_are_named(pooled):
    file = pooled[2]
    with pytest.raises(InputError, match="nothing is ticked"):
        judging.read_pool(file)
    rewrite(file, lambda row: "maybe")
    with pytest.raises(InputError, match=r"to-judge\.csv line 2: 'maybe' is no judgement"):
        judging.read_pool(file)
    file.write_text("query,relevant\na,x\n", encoding="utf-8")
    with pytest.raises(InputError, match="no column 'title'"):
        judging.read_pool(file)
