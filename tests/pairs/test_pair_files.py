"""Public formats of questions with passages, from small files written here; errors name file and line."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.pairs import arrays, line_index
from dr_lib.pairs.files import Context, PairRow, read_pairs
from dr_lib.pairs.line_index import LineIndex

DPR = [
    {
        "dataset": "nq_train", "question": "who sings", "answers": ["Nobody"],
        "positive_ctxs": [
            {"title": "Song", "text": "A song.", "score": 1000, "passage_id": "7"}, {"title": "", "text": "Another."}
        ],
        "hard_negative_ctxs": [{"title": "Bird", "text": "It sings.", "score": 9.5}],
        "negative_ctxs": [],
    },
    {"question": "why", "positive_ctxs": [{"text": "Because."}]},
]  # fmt: skip
DPR_ROWS = [
    PairRow("who sings", (Context("Song", "A song."), Context("", "Another.")), (Context("Bird", "It sings."),)),
    PairRow("why", (Context("", "Because."),)),
]


def save(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    with gzip.open(path, "wt", encoding="utf-8") if name.endswith(".gz") else path.open("w", encoding="utf-8") as file:
        file.write(text)
    return path


def lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def read(path: Path) -> list[PairRow]:
    return [row for _, row in read_pairs(path)]


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("layout", [lines(DPR), json.dumps(DPR), json.dumps(DPR, indent=4), "\n" + lines(DPR) + "\n\n"])
def test_dprs_training_data_as_lines_and_as_an_array(tmp_path, name, layout):
    assert read(save(tmp_path, name, layout)) == DPR_ROWS


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_an_array_is_read_whatever_the_size_of_a_chunk(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(arrays, "CHUNK", chunk)
    path = save(tmp_path, "a.json", json.dumps(DPR, indent=1))
    assert read(path) == DPR_ROWS
    text = path.read_text().splitlines()
    assert [text[number - 1].strip() for number, _ in read_pairs(path)] == ["{", "{"]


@pytest.mark.parametrize("answering", [(False, True, True), (False, False, False)])
def test_results_take_what_has_the_answer_else_the_first(tmp_path, answering):
    contexts = [
        {"id": str(rank), "title": "T", "text": f"text {rank}", "score": "3.2", "has_answer": has}
        for rank, has in enumerate(answering)
    ]
    (row,) = read(save(tmp_path, "r.json", json.dumps([{"question": "q", "answers": [], "ctxs": contexts}])))
    expected = [rank for rank, has in enumerate(answering) if has] or [0]
    assert [one.text for one in row.positives] == [f"text {rank}" for rank in expected]
    assert [one.text for one in row.negatives] == [f"text {rank}" for rank in range(3) if rank not in expected]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"context": ["a title"], "response": "its text", "sub": "x"}, PairRow("a title", (Context("", "its text"),))),
        ({"context": ["hi", "who?"], "response": "me"}, PairRow("hi who?", (Context("", "me"),))),
        ({"context": "hi", "response": ["me", "you"]}, PairRow("hi", (Context("", "me"), Context("", "you")))),
        ({"title": "t", "body": "b", "subreddit": "s"}, PairRow("t", (Context("", "b"),))),
        ({"question": "q", "passage": "p"}, PairRow("q", (Context("", "p"),))),
    ],
)
def test_pairs_of_texts(tmp_path, row, expected):
    assert read(save(tmp_path, "p.jsonl.gz", lines([row]))) == [expected]


def test_a_table_of_questions_and_passages(tmp_path):
    assert read(save(tmp_path, "p.tsv", "[who?\tme\nwhy?\tso\n")) == [
        PairRow("[who?", (Context("", "me"),)), PairRow("why?", (Context("", "so"),))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.jsonl", lines(DPR) + '{"question": \n', r"a\.jsonl line 3: not a JSON object"),
        ("a.jsonl", "\n" + lines(DPR) + "5\n", r"a\.jsonl line 4: not a JSON object"),
        ("a.jsonl", '{"question": "q", "positive_ctxs": [{"title": "t"}]}', "line 1: field text is missing"),
        ("a.jsonl", '{"question": 3, "positive_ctxs": []}', "line 1: field question is int"),
        ("a.jsonl", '{"question": "q", "positive_ctxs": ["p"]}', "positive_ctxs is not a list of passages"),
        ("a.jsonl", '{"text": "q"}', r"no known kind of row \(it has text\)"),
        ("a.tsv", "q\tp\nq p\n", r"a\.tsv line 2: 1 columns instead of 2"),
        ("a.json", '[{"question": "q",\n "ctxs": []},\n {"question" 5}]', "line 3: not JSON"),
        ("a.json", '[{"question": "q", "ctxs": []},', "ends inside the array"),
        ("a.json", "[\n5]", "line 2: not a JSON object"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path, name, text, told):
    with pytest.raises(InputError, match=told):
        read(save(tmp_path, name, text))


def test_a_missing_a_cut_and_a_wrongly_encoded_file_are_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "none.jsonl")
    path = save(tmp_path, "a.json.gz", json.dumps(DPR * 50))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match="cut off"):
        read(path)
    (tmp_path / "b.json").write_bytes(b'[{"question": "\xff"}]')
    with pytest.raises(InputError, match="UTF-8"):
        read(tmp_path / "b.json")


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("block", [1, 5, 1 << 20])
def test_the_index_finds_every_line_that_holds_something(tmp_path, monkeypatch, block, end):
    monkeypatch.setattr(line_index, "BLOCK", block)
    written = ["first", "", "thïrd", "", "", "sixth"]
    path = save(tmp_path, "a.jsonl", "\n".join(written) + end)
    index = LineIndex(path, tmp_path / "index")
    assert [index[row] for row in range(len(index))] == [(1, "first"), (3, "thïrd"), (6, "sixth")]
    assert list(index.lines(np.array([2, 0]))) == [(6, "sixth"), (1, "first")]


def test_the_index_is_made_once_and_again_when_the_file_has_changed(tmp_path):
    path = save(tmp_path, "a.jsonl", "one\ntwo\n")
    LineIndex(path, tmp_path / "index")
    made = (tmp_path / "index" / "index.json").stat().st_mtime_ns
    LineIndex(path, tmp_path / "index")
    assert (tmp_path / "index" / "index.json").stat().st_mtime_ns == made
    path.write_text("one\ntwo\nthree\n")
    assert len(LineIndex(path, tmp_path / "index")) == 3


def test_no_index_of_a_compressed_or_empty_file(tmp_path):
    with pytest.raises(InputError, match="compressed"):
        LineIndex(save(tmp_path, "a.jsonl.gz", "one\n"), tmp_path / "index")
    with pytest.raises(InputError, match="no line"):
        LineIndex(save(tmp_path, "a.jsonl", "\n\n"), tmp_path / "index")
