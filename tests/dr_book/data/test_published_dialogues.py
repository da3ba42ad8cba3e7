"""Dialogue files as published, written small by hand, and what is read from them."""

import json

import pytest

from dr_book.data.published_dialogues import published
from dr_lib.errors import InputError
from dr_lib.evaluation import Exchange, dialogue_file, load_candidates, read_exchanges

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
TRAIN = "Context,Utterance,Label\nhi __eou__ __eot__,there __eou__,1.0\nhi,wrong,0.0\n"


@pytest.fixture
def pairs(tmp_path):
    """The exchanges of a split of the files given."""

    def read(files: dict[str, str], split: str = "dev") -> list[Exchange]:
        for name, text in files.items():
            (tmp_path / name).write_text(text, encoding="utf-8-sig" if "csv" in name else "utf-8")
        return [*read_exchanges(dialogue_file(published(tmp_path, tmp_path / "made"), split))]

    return read


def test_convai2_contexts_hold_persona_and_all_turns_before(pairs):
    persona = ("your persona: i like cats.", "your persona: i run.")
    assert pairs({"valid_self_original.txt": CONVAI2}) == [
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


def test_dstc7_answer_is_among_the_candidates_or_added(pairs):
    assert pairs({"ubuntu_dev_subtask_1.json": json.dumps(DSTC7)}) == [
        Exchange(("it hangs", "what hangs"), "the login", ("no", "the login")),
        Exchange(("help",), "missing answer", ("missing answer", "x", "y")),
    ]


def test_dstc7_test_answers_come_from_their_own_file(pairs):
    bare = [
        {key: value for key, value in row.items() if key != "options-for-correct-answers"}
        for row in DSTC7
    ]
    files = {"ubuntu_test_subtask_1.json": json.dumps(bare)}
    with pytest.raises(InputError, match="responses_subtask_1"):
        pairs(files, "test")
    files["ubuntu_responses_subtask_1.tsv"] = "7\tA\tthe login\n8\tC\ty\n"
    assert [row.response for row in pairs(files, "test")] == ["the login", "y"]


def test_ubuntu_turns_are_cut_at_their_marks_and_wrong_training_rows_left_out(pairs, tmp_path):
    expected = Exchange(("hi it, hangs", "what does ?"), "the login", ("the login", "no", "a, b"))
    assert pairs({"test.csv": UBUNTU, "train.csv": TRAIN}, "test") == [expected]
    learned = dialogue_file(tmp_path / "made", "train")
    assert [*read_exchanges(learned)] == [Exchange(("hi",), "there", ())]
    assert load_candidates(tmp_path / "made", "test").candidates.shape == (1, 3)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("valid_self_original.txt", "hello\tthere\n"),
        ("valid_self_original.txt", "1 hello\n"),
        ("valid.csv", "a,b\n1,2\n"),
        ("valid.csv", "Context,Ground Truth Utterance\na,b\n"),
        ("ubuntu_dev_subtask_1.json", '[{"example-id": 1}]'),
        ("ubuntu_dev_subtask_1.json", "[" * 100_000),
        ("ubuntu_dev_subtask_1.json", "null"),
        ("ubuntu_dev_subtask_1.json", "[null]"),
        ("ubuntu_dev_subtask_1.json", json.dumps([{**DSTC7[0], "options-for-next": None}])),
    ],
)
def test_broken_files_are_refused_by_name_and_leave_nothing(pairs, tmp_path, name, text):
    with pytest.raises(InputError, match=f"{name}: not as published"):
        pairs({name: text})
    assert not (tmp_path / "made").exists()


def test_half_a_surrogate_is_no_text(pairs, tmp_path, counted):
    row = {**DSTC7[0], "messages-so-far": [{"utterance": "\ud800"}]}
    with pytest.raises(InputError, match="a row is no text"):
        pairs({"ubuntu_dev_subtask_1.json": json.dumps([row])})
    assert not (tmp_path / "made").exists()
    counted("odd files in a source of a collection", 1)


def test_a_folder_without_published_dialogues_is_refused(pairs):
    with pytest.raises(InputError, match="no dialogues"):
        pairs({})
