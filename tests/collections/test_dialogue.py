"""Dialogue files as published, written small by hand, what is read from them, and stand-ins made
from a collection.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_lib import collections
from dr_lib.collections import (
    CandidateSet,
    dialogue,
    load_candidates,
    made_dialogues,
    made_sentence_pairs,
)
from dr_lib.collections.dialogue import Exchange, dialogue_file
from dr_lib.errors import InputError
from dr_lib.evaluation.nlu import load_nlu
from dr_lib.places import data_root

CONVAI2 = """1 your persona: i like cats.
2 your persona: i run.
3 hello there\thi , how are you ?\t\tno|maybe|hi , how are you ?
4 fine\ti have a cat\t\ti have a cat|why|what
1 your persona: i cook.
2 __SILENCE__\thello\t\tbye|hello|so
"""
DSTC7 = [
    {
        "example-id": 7,
        "messages-so-far": [
            {"speaker": "participant_1", "utterance": "it hangs"},
            {"utterance": "what hangs"},
        ],
        "options-for-correct-answers": [{"candidate-id": "A", "utterance": "the login"}],
        "options-for-next": [
            {"candidate-id": "B", "utterance": "no"},
            {"candidate-id": "A", "utterance": "the login"},
        ],
    },
    {
        "example-id": 8,
        "messages-so-far": [{"utterance": "help"}],
        "options-for-correct-answers": [{"utterance": "missing answer"}],
        "options-for-next": [{"utterance": "x"}, {"utterance": "y"}],
    },
]
UBUNTU = (
    'Context,Ground Truth Utterance,Distractor_0,Distractor_1\n"hi __eou__ it, hangs __eou__'
    ' __eot__ what does ? __eou__ __eot__","the login __eou__",no __eou__,"a, b"\n'
)

QRELS = {
    "train": ["q1\tp2\t1", "q2\tp4\t1"],
    "dev": ["q1\tp1\t1", "q2\tp4\t1"],
    "test": ["q1\tp3\t0", "q1\tp2\t1", "q2\tp4\t2"],
}


def read_exchanges(folder: Path, split: str = "dev") -> Iterator[Exchange]:
    return dialogue.read_exchanges(dialogue_file(folder, split))


def test_convai2_contexts_hold_persona_and_all_turns_before(tmp_path):
    (tmp_path / "valid_self_original.txt").write_text(CONVAI2)
    persona = ("your persona: i like cats.", "your persona: i run.")
    assert list(read_exchanges(tmp_path)) == [
        Exchange(
            (*persona, "hello there"), "hi , how are you ?", ("no", "maybe", "hi , how are you ?")
        ),
        Exchange(
            (*persona, "hello there", "hi , how are you ?", "fine"),
            "i have a cat",
            ("i have a cat", "why", "what"),
        ),
        Exchange(("your persona: i cook.",), "hello", ("bye", "hello", "so")),
    ]


def test_dstc7_answer_is_among_the_candidates_or_added(tmp_path):
    (tmp_path / "ubuntu_dev_subtask_1.json").write_text(json.dumps(DSTC7))
    assert list(read_exchanges(tmp_path, "dev")) == [
        Exchange(("it hangs", "what hangs"), "the login", ("no", "the login")),
        Exchange(("help",), "missing answer", ("missing answer", "x", "y")),
    ]


def test_dstc7_test_answers_come_from_their_own_file(tmp_path):
    bare = [
        {key: value for key, value in one.items() if key != "options-for-correct-answers"}
        for one in DSTC7
    ]
    (tmp_path / "ubuntu_test_subtask_1.json").write_text(json.dumps(bare))
    with pytest.raises(InputError, match="responses_subtask_1"):
        list(read_exchanges(tmp_path, "test"))
    (tmp_path / "ubuntu_responses_subtask_1.tsv").write_text("7\tA\tthe login\n8\tC\ty\n")
    assert [one.response for one in read_exchanges(tmp_path, "test")] == ["the login", "y"]


def test_ubuntu_turns_are_cut_at_their_marks(tmp_path):
    (tmp_path / "test.csv").write_text(UBUNTU)
    expected = Exchange(("hi it, hangs", "what does ?"), "the login", ("the login", "no", "a, b"))
    assert list(read_exchanges(tmp_path, "test")) == [expected]


@pytest.mark.parametrize("packed", [True, False])
def test_pairs_are_read_plain_and_packed(tmp_path, packed):
    lines = (
        json.dumps({"context": ["a", "b"], "response": "c", "candidates": ["x", "c"], "sub": "s"})
        + "\n"
    )
    (tmp_path / "pairs").mkdir()
    place = tmp_path / "pairs" / ("dev.jsonl.gz" if packed else "dev.jsonl")
    place.write_bytes(gzip.compress(lines.encode()) if packed else lines.encode())
    assert list(read_exchanges(tmp_path)) == [Exchange(("a", "b"), "c", ("x", "c"))]


def test_equal_candidates_of_different_contexts_are_one_text():
    made = CandidateSet.of(
        "two",
        [Exchange(("a",), "yes", ("yes", "no")), Exchange(("b", "c"), "no", ("no", "why", "no"))],
    )
    assert made.texts == ["yes", "no", "why"] and made.contexts == ["a", "b c"]
    assert made.candidates.tolist() == [[0, 1, -1], [1, 2, 1]] and made.correct.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("valid_self_original.txt", "hello\tthere\n", "line 1: the line has no number"),
        ("valid_self_original.txt", "1 hello\n", "line 1: no response"),
        ("ubuntu_dev_subtask_1.json", '[{"example-id": 1}]', "dialogue 0 lacks"),
        ("valid.csv", "a,b\n1,2\n", "columns a, b"),
        (
            "valid.csv",
            "Context,Ground Truth Utterance\na,b\n",
            "columns Context, Ground Truth Utterance",
        ),
        (
            "valid.csv",
            "Context,Ground Truth Utterance,Distractor_0\na,b\n",
            "line 2: not a row of a table",
        ),
        (
            "valid.csv",
            "Context,Ground Truth Utterance,Distractor_0\na,b,c,d\n",
            "line 2: not a row of a table",
        ),
        (
            "valid.csv",
            'Context,Ground Truth Utterance,Distractor_0\n"' + "a,b,c\n" * 30_000,
            "not a row of a table .* quote",
        ),
        (
            "ubuntu_dev_subtask_1.json",
            json.dumps([{**DSTC7[0], "messages-so-far": [{"utterance": None}]}]),
            "no text",
        ),
        (
            "pairs/dev.jsonl",
            '{"context": ["a"], "response": "b", "candidates": "b"}\n',
            "field candidates is text, not a list",
        ),
        (
            "pairs/dev.jsonl",
            '{"context": [1], "response": "b"}\n',
            "line 1: context and candidates are lists of texts",
        ),
        (
            "pairs/dev.jsonl",
            '{"context": "a", "response": "b"}\n',
            "line 1: field context is text, not a list",
        ),
        ("pairs/dev.jsonl", '{"response": "b"}\n', "line 1: field context is missing"),
        ("pairs/dev.jsonl", '{"context": ' + "[" * 100_000, "line 1: not a JSON object"),
        ("ubuntu_dev_subtask_1.json", "[" * 100_000, "not valid JSON"),
        ("ubuntu_dev_subtask_1.json", "9" * 5000, "not valid JSON"),
        ("ubuntu_dev_subtask_1.json", "null", "a list of dialogues is expected"),
        ("ubuntu_dev_subtask_1.json", "[null]", "dialogue 0 lacks"),
        (
            "ubuntu_dev_subtask_1.json",
            json.dumps([{**DSTC7[0], "options-for-next": None}]),
            "dialogue 0 lacks",
        ),
        (
            "ubuntu_dev_subtask_1.json",
            json.dumps([{**DSTC7[0], "options-for-correct-answers": None}]),
            "dialogue 0",
        ),
    ],
)
def test_broken_files_are_refused_with_the_place(tmp_path, name, text, message):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_exchanges(tmp_path))


def test_ubuntu_files_may_begin_with_a_mark_but_must_be_utf8(tmp_path):
    (tmp_path / "test.csv").write_text(UBUNTU, encoding="utf-8-sig")
    assert [one.response for one in read_exchanges(tmp_path, "test")] == ["the login"]
    (tmp_path / "test.csv").write_bytes(UBUNTU.replace("hi", "h\xe9").encode("latin-1"))
    with pytest.raises(InputError, match="line 2: not UTF-8"):
        list(read_exchanges(tmp_path, "test"))


def test_missing_response_split_or_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="not among the candidates"):
        CandidateSet.of("x", [Exchange(("a",), "b", ("c",))])
    with pytest.raises(InputError, match="no dialogue in it"):
        CandidateSet.of("x", [])
    with pytest.raises(InputError, match="Looked for pairs/test"):
        read_exchanges(tmp_path, "test")
    with pytest.raises(InputError, match="there is no folder"):
        read_exchanges(tmp_path / "gone")


@pytest.mark.parametrize(
    ("name", "size"), [("ubuntu-irc", 1790), ("topical-chat", 4535), ("sgd", 2049)]
)
def test_real_dialogues_have_twenty_candidates(name, size):
    root = data_root()
    if not root or not (root / name).is_dir():
        pytest.skip(f"needs the folder {name} under DR_DATA")
    made = load_candidates(name, "test")
    assert made.candidates.shape == (size, 20) and made.candidates.min() >= 0
    assert (made.candidates == made.correct[:, None]).sum() == size
    assert len(load_candidates(name, "test", limit=10)) == 10


@pytest.fixture
def tiny(beir_folder, cache):
    return collections.load(str(beir_folder(qrels=QRELS)), cache=cache)


def test_context_is_a_query_and_response_the_beginning_of_its_passage(tiny, tmp_path):
    folder = made_dialogues(tiny, words=3, folder=tmp_path / "made")
    assert [
        json.loads(line) for line in (folder / "pairs" / "train.jsonl").read_text().splitlines()
    ] == [
        {"context": ["what is thin"], "response": "The boundary layer", "candidates": []},
        {"context": ["what is hot"], "response": "A jet is", "candidates": []},
    ]


def test_candidates_are_each_others_responses_once(tiny, tmp_path):
    found = load_candidates(made_dialogues(tiny, words=3, folder=tmp_path / "made"), "test")
    assert found.texts == ["The boundary layer", "A jet is"]
    assert found.candidates.tolist() == [[0, 1], [1, 0]] and found.correct.tolist() == [0, 1]


def test_a_context_has_as_many_candidates_where_its_neighbours_ask_about_the_same_passage(
    beir_folder, cache, tmp_path
):
    passages = [{"_id": f"p{row}", "text": f"{row} begins so"} for row in range(30)]
    queries = [{"_id": f"q{row}", "text": f"what begins with {row}"} for row in range(60)]
    test = [f"q{row}\tp{row // 2}\t1" for row in range(60)]
    folder = beir_folder(corpus=passages, queries=queries, qrels={"train": test[:1], "test": test})
    made = load_candidates(
        made_dialogues(collections.load(str(folder), cache=cache), folder=tmp_path / "made"), "test"
    )
    assert made.candidates.shape == (60, 20) and made.candidates.min() >= 0
    assert (
        made.correct.tolist() == made.candidates[:, 0].tolist()
        and len(set(map(tuple, made.candidates))) == 30
    )


def test_each_query_stands_with_its_passage_and_with_the_one_before(tiny, tmp_path):
    folder = made_sentence_pairs(tiny, words=2, folder=tmp_path / "made")
    assert (
        (folder / "train.tsv").read_text()
        == "sentence1\tsentence2\tlabel\nwhat is thin\tThe boundary\t1\nwhat is thin\tA jet\t0\n"
        "what is hot\tA jet\t1\nwhat is hot\tThe boundary\t0\n"
    )
    assert load_nlu("mrpc", folder, "train").targets.tolist() == [1, 0, 1, 0]


def test_of_several_queries_about_one_passage_none_stands_with_it_as_a_wrong_one(
    beir_folder, cache, tmp_path
):
    """SQuAD asks five questions a paragraph in a row: three of four pairs would be called both
    right and wrong.
    """
    asked = {
        "train": ["q1\tp2\t1", "q2\tp2\t1", "q3\tp4\t1"],
        "dev": ["q1\tp1\t1", "q2\tp1\t1", "q3\tp1\t1"],
    }
    neighbours = collections.load(str(beir_folder(qrels=asked)), cache=cache)
    with pytest.raises(InputError, match="split dev: no two passages begin differently"):
        made_sentence_pairs(neighbours, words=2, folder=tmp_path / "made")
    lines = (tmp_path / "made" / "train.tsv").read_text().splitlines()[1:]
    assert [line.split("\t")[1:] for line in lines[:4]] == 2 * [
        ["The boundary", "1"],
        ["A jet", "0"],
    ]
    assert lines[4:] == ["nobody judged this\tA jet\t1", "nobody judged this\tThe boundary\t0"]


def test_default_place_is_in_the_cache_and_tells_collections_apart(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "other"))
    folder = made_sentence_pairs(tiny)
    assert folder.is_relative_to(tmp_path / "other") and tiny.digest[:12] in folder.parts
    assert made_dialogues(tiny) != folder


def test_query_without_a_relevant_passage_is_named(beir_folder, cache, tmp_path):
    bare = collections.load(str(beir_folder(qrels={**QRELS, "dev": ["q1\tp1\t0"]})), cache=cache)
    with pytest.raises(InputError, match="'q1' has no relevant passage"):
        made_sentence_pairs(bare, folder=tmp_path / "made")
