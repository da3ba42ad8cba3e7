"""KILT's published format, in small handwritten files."""

import gzip
import json

import pytest

from dr_lib.collections import kilt, load
from dr_lib.errors import InputError

PAGES = [
    {
        "wikipedia_id": 290,
        "wikipedia_title": "A",
        "anchors": [],
        "categories": "letters",
        "text": [
            "A\n",
            "A is the first letter.\n",
            "Section::::History.\n",
            "BULLET::::- It is old.\n",
            "\n",
        ],
    },
    {
        "wikipedia_id": "291",
        "wikipedia_title": "B",
        "text": ["B\n", "B is the second letter.\n", "More on B.\n"],
    },
]
NQ = [
    {
        "id": "q1",
        "input": "what is the first letter",
        "output": [
            {
                "answer": "A",
                "provenance": [
                    {"wikipedia_id": "290", "start_paragraph_id": 1, "end_paragraph_id": 3}
                ],
            },
            {
                "answer": "A",
                "provenance": [
                    {"wikipedia_id": "291", "start_paragraph_id": 1, "end_paragraph_id": 1}
                ],
            },
            {"answer": "the A"},
        ],
    },
    {
        "id": 2,
        "input": "and then",
        "output": [{"provenance": [{"wikipedia_id": "291", "title": "B"}]}],
    },
]


def evidence_of(first, last) -> dict:
    piece = {"wikipedia_id": "290", "start_paragraph_id": first, "end_paragraph_id": last}
    return {"id": 1, "input": "?", "output": [{"provenance": [piece]}]}


def lines(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "kilt"
    place.mkdir()
    (place / "kilt_knowledgesource.json").write_text(lines(PAGES))
    (place / "nq-dev-kilt.jsonl").write_text(lines(NQ))
    (place / "nq-test_without_answers-kilt.jsonl").write_text(lines([{"id": "t", "input": "?"}]))
    return place


def test_paragraphs_are_passages_and_headings_are_not(folder, tmp_path):
    passages = load(folder, cache=tmp_path / "cache").passages
    assert passages["id"][:] == ["290#1", "290#3", "291#1", "291#2"]
    assert passages["text"][:2] == ["A is the first letter.", "- It is old."]
    assert passages["title"][:] == ["A", "A", "B", "B"] and passages["doc"][:] == [
        "290",
        "290",
        "291",
        "291",
    ]
    assert passages["position"][:] == [1, 3, 1, 2]


def test_all_paragraphs_of_a_piece_of_evidence_are_relevant(folder, tmp_path):
    collection = load(folder, cache=tmp_path / "cache")
    assert list(collection.splits) == ["dev"]
    # the empty paragraph is not a passage; its judgement stays in the denominator, as for all
    # published collections
    judged = {"290#1": 1, "290#2": 1, "290#3": 1, "291#1": 1}
    assert collection.qrels("dev") == {"nq/q1": judged}
    asked = collection.queries("dev")
    assert asked["text"][:] == ["what is the first letter"] and asked["answers"][:] == [
        ["A", "the A"]
    ]


def test_several_tasks_have_splits_of_their_own(folder, tmp_path):
    with gzip.open(folder / "fever-train-kilt.jsonl.gz", "wt") as file:
        file.write(lines([{**NQ[0], "id": "f"}]))
    collection = load(folder, cache=tmp_path / "cache")
    assert set(collection.splits) == {"nq-dev", "fever-train"}
    assert list(collection.qrels("fever-train")) == ["fever/f"]


def test_evidence_comes_in_sets_of_pages(folder):
    path = folder / "nq-dev-kilt.jsonl"
    assert kilt.evidence(path) == {"nq/q1": [["290"], ["291"]], "nq/2": [["291"]]}


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        (
            "kilt_knowledgesource.json",
            {"wikipedia_id": 1, "text": "A"},
            "line 1: wikipedia_id, wikipedia_title",
        ),
        ("nq-dev-kilt.jsonl", {"input": "?"}, "line 1: field id"),
        ("nq-dev-kilt.jsonl", {"id": 1, "output": []}, "line 1: field input"),
        ("nq-dev-kilt.jsonl", {"id": 1, "input": "?", "output": {"a": 1}}, "line 1: field output"),
        (
            "nq-dev-kilt.jsonl",
            {"id": 1, "input": "?", "output": [{"provenance": [{}]}]},
            "line 1: a piece of evidence",
        ),
        (
            "nq-dev-kilt.jsonl",
            {"id": 1, "input": "?", "output": [{"provenance": {"a": 1}}]},
            "line 1: field provenance",
        ),
        (
            "nq-dev-kilt.jsonl",
            evidence_of(0, 10**12),
            "line 1: a piece of evidence lacks a span of one page",
        ),
        ("nq-dev-kilt.jsonl", evidence_of(0, 1e400), "line 1: a piece of evidence"),
        ("nq-dev-kilt.jsonl", evidence_of("one", None), "line 1: a piece of evidence"),
    ],
)
def test_broken_lines_are_refused_with_the_place(folder, tmp_path, name, row, message):
    (folder / name).write_text(lines([row]))
    with pytest.raises(InputError, match=message):
        load(folder, cache=tmp_path / "cache")


def test_a_file_of_another_name_is_no_task(tmp_path):
    with pytest.raises(InputError, match="not the name of a KILT task"):
        kilt.evidence(tmp_path / "questions.jsonl")
