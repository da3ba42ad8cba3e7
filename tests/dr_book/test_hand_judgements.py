"""Judgements by hand: the ticked table comes back as judgements."""

import csv

import numpy as np
import pytest

from dr_book import hand_judgements
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
    assert hand_judgements.write_pool(collection, rankings, file) == file
    return collection, queries, file, rankings


def rewrite(file, change):
    with file.open(encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))
    for row in rows:
        row["relevant"] = change(row)
    with file.open("w", encoding="utf-8", newline="") as target:
        table = csv.DictWriter(target, hand_judgements.COLUMNS)
        table.writeheader()
        table.writerows(rows)
    return rows


def test_the_first_ten_of_every_system_are_pooled_once(pooled):
    collection, queries, file, _ = pooled
    rows = rewrite(file, lambda row: "")
    ids = collection.passages["id"][:]
    assert len(rows) == 30  # rows 0 to 9 and 5 to 14 of two queries
    for query in queries:
        found = [row["passage-id"] for row in rows if row["query-id"] == query]
        assert sorted(found) == sorted(ids[:15]) and found != ids[:15]


def test_what_is_ticked_comes_back_as_judgements(pooled, tmp_path):
    collection, (first, second), file, _ = pooled
    ids = collection.passages["id"][:]
    marks = {(first, ids[3]): "x", (first, ids[4]): "2", (first, ids[5]): "no"}
    rewrite(file, lambda row: marks.get((row["query-id"], row["passage-id"]), ""))
    texts, grades = hand_judgements.read_pool(file)
    assert list(texts) == [first] and second not in grades
    assert grades[first][ids[3]] == 1 and grades[first][ids[4]] == 2
    assert len(grades[first]) == 15 and sum(grade == 0 for grade in grades[first].values()) == 13
    folder = hand_judgements.judged_collection(collection, file, tmp_path / "tiny-judged")
    judged = collections.load(folder)
    assert judged.qrels("test")[first] == {**collection.qrels("test")[first], **grades[first]}
    assert judged.qrels("train") == collection.qrels("train")
    assert judged.passages["text"][:] == collection.passages["text"][:]


def test_an_empty_cell_takes_no_tick_back(pooled):
    """Two people's tables in one file: the first judged what the second left empty."""
    collection, (first, _), file, _ = pooled
    answer = collection.passages["id"][3]
    rewrite(
        file, lambda row: "x" if (row["query-id"], row["passage-id"]) == (first, answer) else ""
    )
    head, *rows = file.read_text(encoding="utf-8").splitlines(keepends=True)
    empty = [line.removeprefix("1").removeprefix("x") for line in rows]
    for order in (rows + empty, empty + rows):
        file.write_text("".join([head, *order]), encoding="utf-8")
        assert hand_judgements.read_pool(file)[1][first][answer] == 1


def test_a_spreadsheet_computes_no_cell_and_ids_come_back_whole():
    for cell in ("=1+1", "+a", "-b", "@c", "'d", "plain", ""):
        quoted = hand_judgements._quoted(cell)
        assert quoted[:1] not in set("=+-@") and hand_judgements._plain(quoted) == cell


def test_bad_marks_and_tables_are_named(pooled):
    file = pooled[2]
    with pytest.raises(InputError, match="nothing is ticked"):
        hand_judgements.read_pool(file)
    rewrite(file, lambda row: "maybe")
    with pytest.raises(InputError, match=r"to-judge\.csv line 2: 'maybe' is not a judgement"):
        hand_judgements.read_pool(file)
    file.write_text("query,relevant\na,x\n", encoding="utf-8")
    with pytest.raises(InputError, match="no column 'title'"):
        hand_judgements.read_pool(file)


def test_a_table_that_nobody_has_ticked_is_replaced(pooled):
    collection, _, file, rankings = pooled
    assert hand_judgements.write_pool(collection, rankings[:1], file) == file
    assert len(rewrite(file, lambda row: "")) == 20


TICKED = {
    "a tick": lambda file: rewrite(file, lambda row: "x"),
    "a no": lambda file: rewrite(file, lambda row: "no"),
    "an unknown mark": lambda file: rewrite(file, lambda row: "perhaps"),
    "5,000 digits": lambda file: rewrite(file, lambda row: "9" * 5000),
    "another table": lambda file: file.write_text("a,b\n1,2\n", encoding="utf-8"),
    "no text": lambda file: file.write_bytes(b"\xff\xfe\0"),
    "a column of notes": lambda file: file.write_text(
        ",".join([*hand_judgements.COLUMNS, "notes"]) + "\n,q,t,p,q1,p1,mine\n", encoding="utf-8"
    ),
    "a folder": lambda file: (file.unlink(), file.mkdir(), (file / "mine").touch()),
    "a link to nothing": lambda file: (file.unlink(), file.symlink_to(file.parent / "none")),
}


@pytest.mark.parametrize("kind", TICKED)
def test_what_a_reader_has_put_into_a_table_stays(pooled, kind, counted):
    collection, _, file, rankings = pooled
    TICKED[kind](file)

    def state() -> object:
        if file.is_symlink():
            return file.readlink()
        return file.read_bytes() if file.is_file() else [*file.iterdir()]

    before = state()
    for _ in range(2):  # the second one replaces the first, which nobody has ticked
        written = hand_judgements.write_pool(collection, rankings, file)
        assert written == file.with_name("to-judge-2.csv")
    assert state() == before
    counted("commands told to write over a file of the reader's", 1)


def test_a_ticked_table_is_replaced_by_one_that_has_its_ticks(pooled):
    collection, (first, second), file, rankings = pooled
    rewrite(file, lambda row: "x" if row["query-id"] == first else "")
    _, grades = hand_judgements.read_pool(file)
    assert hand_judgements.write_pool(collection, rankings, file, grades=grades) == file
    assert hand_judgements.read_pool(file)[1] == grades
    half = [Ranking([first], one.rows[:1], one.scores[:1], 40) for one in rankings]
    beside = file.with_name("to-judge-2.csv")  # the second question is still to be judged
    assert hand_judgements.write_pool(collection, half, file, grades=grades) == beside
    other = {second: grades[first]}
    assert hand_judgements.write_pool(collection, rankings, file, grades=other) != file


def test_a_grade_of_5000_digits_is_none(pooled):
    rewrite(pooled[2], lambda row: "9" * 5000)
    with pytest.raises(InputError, match=r"line 2: '9{80}' is not a judgement"):
        hand_judgements.read_pool(pooled[2])


def test_a_collection_of_the_readers_is_no_place_for_judgements(pooled, tmp_path):
    collection, _, file, _ = pooled
    rewrite(file, lambda row: "x")
    (mine := tmp_path / "tiny-judged").mkdir()
    (mine / "corpus.jsonl").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match=r"holds corpus\.jsonl"):
        hand_judgements.judged_collection(collection, file, mine)
    assert [path.read_text() for path in mine.iterdir()] == ["mine"]
    judged = hand_judgements.judged_collection
    again = [judged(collection, file, tmp_path / "new") for _ in range(2)]
    assert collections.load(again[1]).qrels("train") == collection.qrels("train")
