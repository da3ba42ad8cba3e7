"""Pairs of a context and the next utterance: Ubuntu IRC, Topical-Chat, Schema-Guided Dialogue.

A row of dev or test has 20 candidates in random order: the response, and responses from other
conversations of its split, drawn with a fixed seed.
"""

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from dr_book.data.files import Files, Rows
from dr_book.data.text import share, split_of
from dr_lib.collections.plain import one_line
from dr_lib.errors import InputError

CANDIDATES = 20
TRIES = 400
TURNS = 4
MESSAGE = re.compile(r"\[?\d\d:\d\d(?::\d\d)?\]?\s*(?:<\s*([^>\s]+)>\s?(.*)|\*\s+(\S+)\s+(.*))$")
ADDRESS = re.compile(r"([^\s:,;>]{2,30})\s?[:,;>]+\s*")
BOTS = (
    " ubotu ubottu ubot2 ubot3 ubot4 ubot5 ubotwo lubotu1 lubotu2 lubotu3 ubotubot lotuspsychjebot"
    " ubotu` bioubotu lubotu "
)
LARGEST = 4_000_000
"""Bytes of a file of SGD's dialogues; larger files were left out."""
SGD_SHARES = {"train": 0.2, "dev": 0.06, "test": 0.06}

Row = dict[str, Any]
Turns = Sequence[tuple[str, str, Row]]
"""Split, conversation, and context with response."""


def pairs(
    name: str,
    rows: Turns,
    key: Callable[[Row], Any] | None = None,
    near: Callable[[Row], str] | None = None,
    nearest: int = 0,
) -> Rows:
    """Files of pairs by split, with candidates in dev and test.

    Args:
        name: of the set; it seeds the draws of candidates.
        rows: all pairs.
        key: of pairs with the same key in a split, only the first is kept.
        near: the group of a row, from which `nearest` of its candidates come if it is large.
    """
    files: Rows = {}
    for split in ("train", "dev", "test"):
        own = [(conversation, row) for part, conversation, row in rows if part == split]
        if key:
            first: dict[Any, tuple[str, Row]] = {}
            for conversation, row in own:
                first.setdefault(key(row), (conversation, row))
            own = [*first.values()]
        if split != "train":
            _add_candidates(own, random.Random(f"{name}-{split}-7"), near, nearest)
        files[f"pairs/{split}.jsonl.gz"] = [row for _, row in own]
    return files


def _add_candidates(
    rows: Sequence[tuple[str, Row]],
    rng: random.Random,
    near: Callable[[Row], str] | None,
    nearest: int,
) -> None:
    """Give each row its candidates; `InputError` if there are too few other conversations."""
    groups = defaultdict(list)
    for number, (_, row) in enumerate(rows):
        groups[near(row) if near else ""].append(number)
    for conversation, row in rows:
        taken = {row["response"].lower(): row["response"]}

        def draw(pool: Sequence[int], most: int, conversation=conversation, taken=taken) -> None:
            for _ in range(TRIES):
                if len(taken) < most:
                    other, drawn = rows[pool[rng.randrange(len(pool))]]
                    if other != conversation:
                        taken.setdefault(drawn["response"].lower(), drawn["response"])

        if near and len(group := groups[near(row)]) > 3 * nearest:
            draw(group, nearest + 1)
        draw(range(len(rows)), CANDIDATES)
        if len(taken) < CANDIDATES:
            problem = f"fewer than {CANDIDATES} responses from other conversations"
            raise InputError(problem, where=conversation, fix="Give the whole source.")
        response, *others = taken.values()
        row["candidates"] = [*others, response]
        rng.shuffle(row["candidates"])


def _following(texts: list[str], fewest: int) -> Iterator[tuple[int, Row]]:
    """Each text of at least `fewest` words with the turns before it, and its position."""
    for place in range(1, len(texts)):
        if len(texts[place].split()) >= fewest:
            context = texts[max(0, place - TURNS) : place]
            yield place, {"context": context, "response": texts[place]}


def _joined(turns: Iterable[tuple[str, str]]) -> list[str]:
    """Texts of turns; consecutive turns of one speaker are joined."""
    by_speaker = groupby(((who, text) for who, text in turns if text), key=lambda turn: turn[0])
    return [" ".join(text for _, text in said) for _, said in by_speaker]


def topical_chat(files: Files) -> Rows:
    """Two people chat about given facts; splits are drawn by conversation."""
    rows = []
    for name in ("valid_freq", "valid_rare", "test_freq", "test_rare"):
        for id_, chat in json.loads(files.text(f"conversations/{name}.json")).items():
            said = ((turn["agent"], one_line(turn["message"])) for turn in chat["content"])
            split = split_of(id_, "topical-chat")
            rows += [(split, id_, row) for _, row in _following(_joined(said), 4)]
    return pairs("topical-chat", rows)


def sgd(files: Files) -> Rows:
    """Task-oriented dialogues: a sample of the turns, each response once per split."""
    rows = []
    for split, kept in SGD_SHARES.items():
        for name in files.names(f"{split}/dialogues_[0-9]*.json"):
            large = files.path(name).stat().st_size >= LARGEST
            for dialogue in [] if large else json.loads(files.text(name)):
                id_ = f"{name}/{dialogue['dialogue_id']}"
                texts = [one_line(turn["utterance"]) for turn in dialogue["turns"]]
                drawn = (
                    (share(f"{id_}#{place}", "sgd"), row) for place, row in _following(texts, 6)
                )
                rows += [(split, id_, row) for number, row in drawn if number < kept]
    return pairs("sgd", rows, key=lambda row: row["response"].lower())


def ubuntu_irc(files: Files) -> Rows:
    """Messages and their replies, as annotated by people; a log is a conversation."""
    rows = []
    for name in files.names("*.annotation.txt"):
        _, split, log = name.rsplit("/", 2)
        lines = files.text(name.replace(".annotation.", ".raw.")).split("\n")
        links = [line.split() for line in files.text(name).splitlines()]
        log = log.removesuffix(".annotation.txt")
        rows += [(split, log, row) for row in _replies([*map(_message, lines)], links)]
    return pairs(
        "ubuntu-irc", rows, key=lambda row: (row["context"][-1].lower(), row["response"].lower())
    )


Message = tuple[str, str] | None
"""Speaker in lower case, and text; None for a system line."""


def _message(line: str) -> Message:
    found = None if line.startswith("===") else MESSAGE.match(line.rstrip("\r"))
    return ((found[1] or found[3]).lower(), one_line(found[2] or found[4] or "")) if found else None


def _replies(messages: Sequence[Message], links: Iterable[Sequence[str]]) -> Iterator[Row]:
    """Replies in a log, each with the chain of messages that it answers."""
    people = {message[0] for message in messages if message}
    answered = defaultdict(list)
    for link in links:
        if len(link) >= 2 and link[0].isdecimal() and link[1].isdecimal():
            before, after = int(link[0]), int(link[1])
            if before < after < len(messages) and messages[before] and messages[after]:
                answered[after].append(before)

    def body(number: int) -> str:
        _, text = messages[number]
        address = ADDRESS.match(text)
        named = address and address[1].lower() in people
        return text[address.end() :].strip() if named else text

    for reply in sorted(answered):
        who, text = messages[reply]
        said = {number: messages[number][0] for number in answered[reply]}
        others = [number for number, by in said.items() if by != who and f" {by} " not in BOTS]
        if f" {who} " in BOTS or text.startswith("!") or not others:
            continue
        chain = [max(others)]
        while len(chain) < 8 and (up := [one for one in answered[chain[-1]] if one not in chain]):
            chain.append(max(up))
        turns = ((messages[number][0], body(number)) for number in reversed(chain))
        context = [" ".join(turn.split()[:120]) for turn in _joined(turns)][-TURNS:]
        response = body(reply)
        wordy = context and min(len(context[-1].split()), len(response.split())) >= 3
        if wordy and re.search("[a-z]{2}", response.lower()):
            yield {"context": context, "response": response}
