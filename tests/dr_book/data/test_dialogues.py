"""Pairs of context and response, the candidates that dev and test rows have, and dialogue files as
published.
"""

import json

import pytest

from dr_book.data import dialogues
from dr_book.data.published_dialogues import published
from dr_lib.errors import InputError
from dr_lib.evaluation import Exchange, dialogue_file, load_candidates, read_exchanges


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch):
    monkeypatch.setattr(dialogues, "CANDIDATES", 3)


def log(*lines: str) -> str:
    return "\n".join(lines) + "\n"


CHANNEL = log(
    "=== nick joined",
    "[03:01] <Ann> how do I install it here",
    "[03:02] <bob> Ann: which version do you have",
    "[03:02] <bob> and what does it say",
    "[03:03] * Ann looks at the screen now",
    "[03:04] <ubotu> a factoid says something else here",
    "[03:05] <Ann> bob, it is the newest one",
    "[03:06] <cat> ok",
    "[03:07] <cat> somebody: nobody of that name is here",
    "[03:08] <bob> !ask is the way to go",
)
LINKS = log(
    "1 1 -",
    "1 2 -",
    "1 3 -",
    "2 5 -",
    "3 6 -",
    "2 6 -",
    "6 7 -",
    "6 8 -",
    "6 9 -",
    "4 8 -",
    "2 3 -",
)


def test_irc_replies_follow_the_chain_of_messages_they_answer(converted):
    other = log("[01:00] <x> does sound work for anyone", "[01:01] <y> it does work for me")
    third = log("[01:00] <v> where are the logs kept", "[01:01] <w> look below the var folder")
    files = {"data/train/a.raw.txt": CHANNEL, "data/train/a.annotation.txt": LINKS}
    for split in ("dev", "test"):
        files |= {f"data/{split}/b.raw.txt": other, f"data/{split}/b.annotation.txt": "0 1 -\n"}
        files |= {f"data/{split}/c.raw.txt": third, f"data/{split}/c.annotation.txt": "0 1 -\n"}
        files |= {
            f"data/{split}/d.raw.txt": third.replace("logs", "tapes").replace("below", "above")
        }
        files |= {f"data/{split}/d.annotation.txt": "0 1 -\n"}
    made = converted("ubuntu-irc", files)
    asked = "how do I install it here"
    assert made["pairs/train.jsonl.gz"] == [
        {"context": [asked], "response": "which version do you have"},
        {"context": [asked], "response": "and what does it say"},
        {
            "context": [asked, "which version do you have and what does it say"],
            "response": "it is the newest one",
        },
        {
            "context": [
                asked,
                "which version do you have and what does it say",
                "it is the newest one",
            ],
            "response": "somebody: nobody of that name is here",
        },
    ]
    assert [row["response"] for row in made["pairs/dev.jsonl.gz"]] == [
        "it does work for me",
        "look below the var folder",
        "look above the var folder",
    ]


def test_candidates_are_of_other_conversations_the_response_and_always_the_same(converted):
    said = [f"Answer number {n} of some words." for n in range(8)]
    rows = [("dev", f"talk {n // 2}", {"context": ["?"], "response": said[n]}) for n in range(8)]
    made = dialogues.pairs("some", rows)["pairs/dev.jsonl.gz"]
    for number, row in enumerate(made):
        assert len(row["candidates"]) == 3 == len({*row["candidates"]})
        assert said[number] in row["candidates"] and said[number ^ 1] not in row["candidates"]
    first = [list(row["candidates"]) for row in made]
    again = dialogues.pairs("some", [(*row[:2], {**row[2]}) for row in rows])["pairs/dev.jsonl.gz"]
    assert [row["candidates"] for row in again] == first
    assert len({row["candidates"].index(text) for row, text in zip(made, said, strict=True)}) > 1


def test_near_candidates_come_first_where_their_group_is_large():
    rows = [
        ("test", str(n), {"context": ["?"], "response": f"{'near' if n < 8 else 'far'} {n}"})
        for n in range(40)
    ]
    made = dialogues.pairs("some", rows, near=lambda row: row["response"][:4], nearest=2)
    near = [row["candidates"] for row in made["pairs/test.jsonl.gz"][:8]]
    assert all(text.startswith("near") for own in near for text in own)


def test_too_few_conversations_are_refused():
    rows = [("dev", str(n), {"context": ["?"], "response": f"text {n}"}) for n in range(2)]
    with pytest.raises(InputError, match="fewer than 3 responses from other conversations"):
        dialogues.pairs("some", rows)


def test_topical_chat_joins_turns_and_splits_by_conversation(converted, monkeypatch):
    split = {
        "t1": "train",
        "t2": "dev",
        "t3": "dev",
        "t4": "dev",
        "t5": "test",
        "t6": "test",
        "t7": "test",
    }
    monkeypatch.setattr(dialogues, "split_of", lambda key, salt: split[key])

    def chat(word: str) -> dict:
        said = [
            ("a", f"Do you  like {word} ?"),
            ("a", "I do."),
            ("b", ""),
            ("b", f"I like {word} as well."),
        ]
        said += [
            ("a", "Fine."),
            ("b", f"Where can one see {word}?"),
            ("a", f"In the house of {word}."),
        ]
        return {"content": [{"agent": who, "message": text} for who, text in said]}

    names = ("valid_freq", "valid_rare", "test_freq", "test_rare")
    parts = {name: {} for name in names}
    for number, id_ in enumerate(split):
        parts[names[number % 4]][id_] = chat(f"opera{number}")
    made = converted(
        "topical-chat", {f"conversations/{name}.json": chats for name, chats in parts.items()}
    )
    first = ["Do you like opera0 ? I do.", "I like opera0 as well."]
    assert made["pairs/train.jsonl.gz"] == [
        {"context": first[:1], "response": first[1]},
        {"context": [*first, "Fine."], "response": "Where can one see opera0?"},
        {
            "context": [*first, "Fine.", "Where can one see opera0?"],
            "response": "In the house of opera0.",
        },
    ]
    assert len(made["pairs/dev.jsonl.gz"]) == len(made["pairs/test.jsonl.gz"]) == 9


def test_sgd_samples_turns_and_keeps_a_response_once(converted, monkeypatch):
    monkeypatch.setattr(dialogues, "SGD_SHARES", dict.fromkeys(("train", "dev", "test"), 1.0))
    monkeypatch.setattr(dialogues, "LARGEST", 2000)

    def talk(number: int) -> dict:
        said = [
            "I want to eat.",
            f"In which of the {number} towns shall it be?",
            "Here.",
            "That is a good choice, I would say.",
        ]
        return {"dialogue_id": str(number), "turns": [{"utterance": text} for text in said]}

    files = {
        f"{split}/dialogues_001.json": [talk(n) for n in range(4)]
        for split in ("train", "dev", "test")
    }
    files |= {
        "train/dialogues_002.json": [talk(n) for n in range(90, 120)],
        "train/schema.json": [],
    }
    files |= {"sgd_x/data/v1/train/dialogues_001.json": [talk(50)]}
    made = converted("sgd", files)
    assert [row["response"] for row in made["pairs/train.jsonl.gz"]] == [
        "In which of the 0 towns shall it be?",
        "That is a good choice, I would say.",
        *(f"In which of the {n} towns shall it be?" for n in (1, 2, 3)),
    ]
    assert made["pairs/train.jsonl.gz"][1]["context"] == [
        "I want to eat.",
        "In which of the 0 towns shall it be?",
        "Here.",
    ]


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
    """The pairs of a split of the given files."""

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
    with pytest.raises(InputError, match="a row is not a text"):
        pairs({"ubuntu_dev_subtask_1.json": json.dumps([row])})
    assert not (tmp_path / "made").exists()
    counted("odd files in a source of a collection", 1)


def test_a_folder_without_published_dialogues_is_refused(pairs):
    with pytest.raises(InputError, match="no dialogues"):
        pairs({})
