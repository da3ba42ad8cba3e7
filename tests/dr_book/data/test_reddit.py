"""Posts of subreddits: which are dropped, what is removed from them, pairs and retrieval."""

import csv
import gzip
import io
import json

import pytest

from dr_book.data import dialogues, reddit
from dr_book.data.files import Files
from dr_book.data.make import CONVERTERS

BODY = (
    "I have an **old** laptop, see [this page](http://a.b/c), and I would like to know how long it"
    " may run before something breaks in it. My friend /u/somebody of /r/laptops says so."
)
TEXT = (
    "I have an old laptop, see this page, and I would like to know how long it may run before"
    " something breaks in it. My friend someone of r/laptops says so."
)


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch):
    monkeypatch.setattr(dialogues, "CANDIDATES", 3)


def table(*posts: dict) -> str:
    buffer = io.StringIO()
    rows = csv.DictWriter(buffer, ["id", "title", "selftext", "over_18", "link_flair_text"])
    rows.writeheader()
    for post in posts:
        rows.writerow({"over_18": "False", "link_flair_text": "", "selftext": BODY} | post)
    return buffer.getvalue()


def posts(count: int) -> list[dict]:
    return [
        {"id": f"p{n}", "title": f"How old may laptop {n} be?", "selftext": f"Number {n}. {BODY}"}
        for n in range(count)
    ]


def rows_of(made: dict) -> list[dict]:
    return [row for split in ("train", "dev", "test") for row in made[f"pairs/{split}.jsonl.gz"]]


def test_markup_links_and_names_are_taken_out(converted, monkeypatch):
    monkeypatch.setattr(reddit, "split_of", lambda *_: "train")
    made = converted(
        "reddit-title-body",
        {
            "data/laptops.csv": table(),
            "data/linux.csv": table(
                {"id": "a", "title": "[Question] How old may laptops be? (serious)"}
            ),
        },
    )
    assert rows_of(made) == [
        {"context": ["How old may laptops be?"], "response": TEXT, "sub": "linux"}
    ]


@pytest.mark.parametrize(
    "post",
    [
        {"over_18": "True"},
        {"title": "An NSFW question on old laptops?"},
        {"link_flair_text": "nsfw"},
        {"title": "Old laptops"},
        {"selftext": ""},
        {"selftext": "Too short to be kept."},
        {"selftext": f"{BODY} What an asshole."},
        {"selftext": "1234 5678 $$$ " * 40},
        {"selftext": "Щ" * 300 + BODY},
        {"selftext": f"How old may laptops be? {' '.join(TEXT.split()[:20])}"},
    ],
)
def test_posts_that_are_unsafe_or_no_prose_go(converted, monkeypatch, post):
    monkeypatch.setattr(reddit, "split_of", lambda *_: "train")
    whole = {"id": "a", "title": "How old may laptops be?"} | post
    made = converted(
        "reddit-title-body",
        {"data/linux.csv": table(whole, {"id": "b", "title": "May this one be kept?"})},
    )
    assert [row["context"] for row in rows_of(made)] == [["May this one be kept?"]]


def test_repeated_titles_and_texts_go_and_other_subreddits(converted, monkeypatch):
    monkeypatch.setattr(reddit, "split_of", lambda *_: "train")
    first = {"id": "a", "title": "How old may laptops be?"}
    files = {
        "data/linux.csv": table(first, {"id": "b", "title": "Another title for it?"}),
        "data/mac.csv": table(
            {"id": "c", "title": "HOW old may laptops be?", "selftext": f"New. {BODY}"}
        ),
        "data/funny.csv": table(
            {"id": "d", "title": "Not of a wanted subreddit?", "selftext": f"Other. {BODY}"}
        ),
    }
    assert len(rows_of(converted("reddit-title-body", files))) == 1


def test_a_subreddit_has_its_share_and_texts_end_with_a_sentence(converted, monkeypatch):
    monkeypatch.setattr(reddit, "split_of", lambda *_: "train")
    monkeypatch.setattr(reddit, "POSTS", 4)
    long = [
        {
            "id": "x",
            "title": "How long may a text be?",
            "selftext": "It has six words in all. " * 40,
        }
    ]
    made = rows_of(
        converted(
            "reddit-title-body", {"data/linux.csv": table(*posts(9)), "data/mac.csv": table(*long)}
        )
    )
    assert [row["sub"] for row in made] == ["linux"] * 4 + ["mac"]
    assert made[-1]["response"] == ("It has six words in all. " * 26).strip()


def test_a_text_that_opens_with_its_title_loses_it(converted, monkeypatch):
    monkeypatch.setattr(reddit, "split_of", lambda *_: "train")
    post = {
        "id": "a",
        "title": "How old may laptops be?",
        "selftext": f"How old may laptops be? {BODY}",
    }
    assert (
        rows_of(converted("reddit-title-body", {"data/linux.csv": table(post)}))[0]["response"]
        == TEXT
    )


def test_retrieval_asks_with_titles_and_drops_repeated_texts(tmp_path):
    source = tmp_path / "pairs"
    source.mkdir()
    parts = {
        "test": [("First title", "One text."), ("Second title", "Two texts.")],
        "dev": [("Third title", "one  TEXT.")],
        "train": [("Fourth title", "Three texts.")],
    }
    for split, pairs in parts.items():
        rows = [{"context": [title], "response": text, "sub": "s"} for title, text in pairs]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (source / f"{split}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    made = CONVERTERS["reddit-retrieval"](Files(tmp_path))
    texts = {row["_id"]: row["text"] for row in made["corpus.jsonl.gz"]}
    assert sorted(texts) == [*texts] and sorted(texts.values()) == [
        "One text.",
        "Three texts.",
        "Two texts.",
    ]
    assert [row["_id"] for row in made["queries.jsonl.gz"]] == ["test-0", "test-1", "train-0"]
    assert [texts[id_] for _, id_, _ in made["qrels/test.tsv"][1:]] == ["One text.", "Two texts."]
    assert "qrels/dev.tsv" not in made


def test_retrieval_from_the_posts_is_that_of_their_pairs(converted):
    files = {"data/linux.csv": table(*posts(200))}
    made, pairs = converted("reddit-retrieval", files), converted("reddit-title-body", files)
    for split in ("train", "dev", "test"):
        assert len(made[f"qrels/{split}.tsv"]) - 1 == len(pairs[f"pairs/{split}.jsonl.gz"]) > 0
