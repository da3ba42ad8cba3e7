"""SQuAD from the official files and through `datasets`, on small files of the same format."""

import json
from itertools import count
from pathlib import Path

import datasets
import pytest

from dr_lib import collections
from dr_lib.collections import squad
from dr_lib.collections.store import open_source
from dr_lib.errors import InputError

ARTICLES = [f"Article_{number}" for number in range(12)]


IDS = count()


def paragraph(text: str, *questions: str) -> dict:
    answers = [{"text": "two  words", "answer_start": 0}, {"text": "two words", "answer_start": 0}]
    asked = [
        {"id": f"id{next(IDS)}", "question": question, "answers": answers} for question in questions
    ]
    return {"context": text, "qas": asked}


def release(folder: Path, train: list[dict], dev: list[dict]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, articles in (("train-v1.1.json", train), ("dev-v1.1.json", dev)):
        (folder / name).write_text(
            json.dumps({"version": "1.1", "data": articles}), encoding="utf-8"
        )
    return folder


@pytest.fixture
def official(tmp_path) -> Path:
    def blocks(title: str) -> list[dict]:
        return [
            paragraph(f"First of\n{title}.", f"Who was in {title} ?"),
            paragraph(f"Next of {title}.", "What came next?"),
        ]

    train = [{"title": title, "paragraphs": blocks(title)} for title in ARTICLES]
    game = paragraph("The game.", "Who won the game?", "Who?", "Who won the game?")
    return release(tmp_path / "official", train, [{"title": "Super_Bowl_50", "paragraphs": [game]}])


def test_official_dev_is_test_and_train_articles_are_never_split(official, cache):
    collection = collections.load(official, cache=cache)
    assert collection.name == "squad"
    articles = {
        split: {id_.split("#")[0] for judged in collection.qrels(split).values() for id_ in judged}
        for split in collection.splits
    }
    assert articles["test"] == {"dev/Super_Bowl_50"}
    assert not articles["train"] & articles.get("dev", set())
    assert len(articles["train"] | articles.get("dev", set())) == len(ARTICLES)


def test_articles_are_documents_in_order(official, cache):
    passages = collections.load(official, cache=cache).passages
    assert passages[0] == {
        "id": "train/Article_0#0",
        "title": "Article 0",
        "text": "First of Article_0.",
        "doc": "train/Article_0",
        "position": 0,
    }
    assert passages[1]["id"] == "train/Article_0#1" and passages[1]["position"] == 1


def test_short_and_repeated_questions_are_dropped(official, cache):
    assert collections.load(official, cache=cache).queries("test")["text"][:] == [
        "Who won the game?"
    ]


def test_answers_are_kept_once(official, cache):
    assert collections.load(official, cache=cache).queries("test")[0]["answers"] == ["two words"]


def test_equal_paragraphs_are_merged_into_the_first(tmp_path, cache):
    same = [
        {"title": title, "paragraphs": [paragraph("Same  text.", f"What is in {title}?")]}
        for title in ("A", "B")
    ]
    for article, id_ in zip(same, ("one", "two"), strict=True):
        article["paragraphs"][0]["qas"][0]["id"] = id_
    collection = collections.load(
        release(tmp_path / "s", same, [{"title": "C", "paragraphs": []}]), cache=cache
    )
    assert collection.passages["id"][:] == ["train/A#0"]
    split = collection.splits[0]
    assert collection.qrels(split) == {"one": {"train/A#0": 1}, "two": {"train/A#0": 1}}


def test_about_a_tenth_of_the_articles_is_dev():
    share = sum(squad.split_of("train", f"Title_{row}") == "dev" for row in range(2000)) / 2000
    assert 0.08 < share < 0.12


def test_squad_is_found_under_dr_data(official, cache, monkeypatch):
    monkeypatch.setenv("DR_DATA", str(official.parent))
    official.rename(official.parent / "squad")
    assert len(collections.load("squad", cache=cache).passages) == 2 * len(ARTICLES) + 1


def hub_rows(path: Path) -> list[dict]:
    """Rows as `rajpurkar/squad` has them."""
    return [
        {
            "id": asked["id"],
            "title": article["title"],
            "context": block["context"],
            "question": asked["question"],
            "answers": {
                key: [answer[key] for answer in asked["answers"]]
                for key in ("text", "answer_start")
            },
        }
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]
        for block in article["paragraphs"]
        for asked in block["qas"]
    ]


def test_datasets_rows_give_the_same_as_the_official_files(official, cache, tmp_path):
    for part, name in (("train", "train"), ("dev", "validation")):
        rows = datasets.Dataset.from_list(hub_rows(official / squad.FILES[part]))
        rows.to_parquet(tmp_path / "hub" / "data" / f"{name}-00000-of-00001.parquet")
    there = open_source(squad.hub_source(str(tmp_path / "hub")), cache)
    here = collections.load(official, cache=cache)
    assert there.passages[0] == here.passages[0] and there.splits == here.splits
    for split in here.splits:
        assert there.qrels(split) == here.qrels(split)
        assert there.queries(split)[:] == here.queries(split)[:]


def test_without_network_the_error_says_what_to_do(cache, monkeypatch):
    monkeypatch.delenv("DR_DATA", raising=False)

    def no_network(*_, **__):
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setattr(datasets, "load_dataset", no_network)
    with pytest.raises(InputError, match=r"could not be had.*train-v1\.1\.json"):
        collections.load("squad", cache=cache)
    assert not [path for path in cache.iterdir() if path.name != "locks"]


def test_missing_official_file_is_named(official, cache):
    (official / "dev-v1.1.json").unlink()
    with pytest.raises(InputError, match=r"dev-v1\.1\.json: no such file"):
        collections.load(official, cache=cache)


def test_missing_field_is_named_by_its_place(official, cache):
    release(
        official,
        [{"title": "A", "paragraphs": [{"context": "x", "qas": [{"id": "1", "answers": []}]}]}],
        [],
    )
    with pytest.raises(
        InputError, match=r"data\[0\]\.paragraphs\[0\]\.qas\[0\]: a field is missing .*question"
    ):
        collections.load(official, cache=cache)


def test_broken_json_is_named_by_line(official, cache):
    (official / "train-v1.1.json").write_text('{"data": [\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"train-v1\.1\.json line 2: not valid JSON"):
        collections.load(official, cache=cache)
