"""Pairs of context and response, and the candidates that dev and test rows have."""

import pytest

from dr_book.data import dialogues
from dr_lib.errors import InputError


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
    with pytest.raises(InputError, match="fewer than 3 responses of other conversations"):
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
