"""Pairs written by people: published formats in small files, stored pairs, titles with bodies."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from datasets import Dataset

from dr_lib.errors import InputError
from dr_lib.materials.pairs import Context, PairRow, pairs_of, store_pairs, title_pairs
from dr_lib.tokens import TokenStore
from dr_lib.training import Examples

DPR = [
    {
        "dataset": "nq_train",
        "question": "who sings",
        "answers": ["Nobody"],
        "positive_ctxs": [
            {"title": "Song", "text": "A song.", "score": 1000, "passage_id": "7"},
            {"title": "", "text": "Another."},
        ],
        "hard_negative_ctxs": [{"title": "Bird", "text": "It sings.", "score": 9.5}],
        "negative_ctxs": [],
    },
    {"question": "why", "positive_ctxs": [{"text": "Because."}]},
]
DPR_ROWS = [
    PairRow(
        "who sings",
        (Context("Song", "A song."), Context("", "Another.")),
        (Context("Bird", "It sings."),),
    ),
    PairRow("why", (Context("", "Because."),)),
]


def save(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    with (
        gzip.open(path, "wt", encoding="utf-8")
        if name.endswith(".gz")
        else path.open("w", encoding="utf-8")
    ) as file:
        file.write(text)
    return path


def lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def read(path: Path) -> list[PairRow]:
    return list(pairs_of(path))


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("layout", [lines(DPR), "\n" + lines(DPR) + "\n\n"])
def test_dprs_training_data(tmp_path, name, layout):
    assert read(save(tmp_path, name, layout)) == DPR_ROWS


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {"context": ["a title"], "response": "its text", "sub": "x"},
            PairRow("a title", (Context("", "its text"),)),
        ),
        ({"context": ["hi", "who?"], "response": "me"}, PairRow("hi who?", (Context("", "me"),))),
        (
            {"context": "hi", "response": ["me", "you"]},
            PairRow("hi", (Context("", "me"), Context("", "you"))),
        ),
        ({"title": "t", "body": "b", "subreddit": "s"}, PairRow("t", (Context("", "b"),))),
        ({"question": "q", "passage": "p"}, PairRow("q", (Context("", "p"),))),
    ],
)
def test_pairs_of_texts(tmp_path, row, expected):
    assert read(save(tmp_path, "p.jsonl.gz", lines([row]))) == [expected]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.jsonl", lines(DPR) + '{"question": \n', r"a\.jsonl line 3: not a JSON object"),
        ("a.jsonl", "\n" + lines(DPR) + "5\n", r"a\.jsonl line 4: not a JSON object"),
        (
            "a.jsonl",
            '{"question": "q", "positive_ctxs": [{"title": "t"}]}',
            "line 1: field text is missing",
        ),
        (
            "a.jsonl",
            '{"question": 3, "positive_ctxs": []}',
            "line 1: field question is a whole number",
        ),
        (
            "a.jsonl",
            '{"question": "q", "positive_ctxs": ["p"]}',
            "positive_ctxs is not a list of passages",
        ),
        ("a.jsonl", '{"text": "q"}', r"no known kind of row \(it has text\)"),
        ("a.json", json.dumps(DPR, indent=1), r"line 1: an array in place .* jq -c"),
        ("a.jsonl", "\n" + "[" * 100_000, r"a\.jsonl line 2: an array in place"),
        ("a.jsonl", '{"question": ' + "[" * 100_000, "line 1: not a JSON object"),
        ("a.jsonl", '{"question": ' + "9" * 5000 + "}", "line 1: not a JSON object"),
        (
            "a.jsonl",
            '{"question": "q", "passage": "half \\ud83d"}',
            "line 1: field passage holds half of a surrogate",
        ),
        (
            "a.jsonl",
            '{"context": ["a", 2], "response": "r"}',
            "line 1: field context is a whole number",
        ),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path, name, text, told):
    with pytest.raises(InputError, match=told):
        read(save(tmp_path, name, text))


def test_a_missing_a_cut_and_a_wrongly_encoded_file_are_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "none.jsonl")
    path = save(tmp_path, "a.json.gz", lines(DPR * 50))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match="cut off"):
        read(path)
    (tmp_path / "b.json").write_bytes(b'{"question": "\xff"}')
    with pytest.raises(InputError, match="UTF-8"):
        read(tmp_path / "b.json")


ROWS = [
    ("New York is", ["masked words"], ["dense vectors", "hard negatives"]),
    ("a retriever", ["dense vectors", "masked words"], []),
    ("new york is ", ["hard negatives"], ["masked words", "the bottleneck"]),
    ("", ["masked words"], []),
    ("a generator", [" "], ["the bottleneck"]),
    ("the decoder", ["an encoder"], ["the bottleneck", "an encoder"]),
]


@pytest.fixture
def path(tmp_path):
    def as_contexts(texts: list[str]) -> list[dict[str, str]]:
        return [{"title": "vector" if len(text) % 2 else "", "text": text} for text in texts]

    rows = [
        {
            "question": question,
            "positive_ctxs": as_contexts(good),
            "hard_negative_ctxs": as_contexts(bad),
        }
        for question, good, bad in ROWS
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "rows.jsonl"


def test_a_file_without_a_usable_row_is_refused(tmp_path, tiny_tokenizer):
    path = save(tmp_path, "empty.jsonl", lines([{"question": "", "passage": "passage"}]))
    with pytest.raises(InputError, match="no row with a question"):
        store_pairs(pairs_of(path), tmp_path, tiny_tokenizer)


@pytest.mark.parametrize("packed", [False, True])
def test_a_drawn_part_is_the_same_in_every_layout_and_part_of_a_larger_one(path, tmp_path, packed):
    rows, other = list(pairs_of(path)), path
    if packed:
        other = tmp_path / "rows.jsonl.gz"
        other.write_bytes(gzip.compress(path.read_bytes()))
    expected = np.sort(np.random.default_rng(4).permutation(len(rows))[:3])
    assert list(pairs_of(other, limit=3, seed=4)) == [rows[row] for row in expected]
    assert all(
        row in list(pairs_of(other, limit=5, seed=4)) for row in pairs_of(other, limit=3, seed=4)
    )
    assert list(pairs_of(other, limit=99)) == rows


@pytest.mark.parametrize("seed", range(100))
def test_what_is_stored_is_what_dictionaries_hold(tmp_path, tiny_tokenizer, seed):
    """Random rows with equal texts, blank ones, and passages that are positive in one row and
    negative in another.
    """
    random = np.random.default_rng(seed)
    texts = ["dense", "Dense", "vectors", "a vector", " ", "masked words", "new york"]
    rows = [
        PairRow(
            str(random.choice(texts)),
            *(
                tuple(
                    Context("", str(text)) for text in random.choice(texts, random.integers(0, 4))
                )
                for _ in range(2)
            ),
        )
        for _ in range(random.integers(1, 15))
    ]
    depth = int(random.integers(0, 3))
    positives, right, negatives, left_out = {}, {}, {}, 0
    for row in rows:
        best = next((one.text for one in row.positives if one.text.strip()), None)
        if not row.question.strip() or best is None:
            left_out += 1
            continue
        key = row.question.strip().casefold()
        positives.setdefault(key, set()).add(best)
        right.setdefault(key, set()).update(one.text for one in row.positives)
        others = [
            one.text for one in row.negatives if one.text.strip() and one not in row.positives
        ][:depth]
        negatives.setdefault(key, []).extend(others)
    (tmp_path / "out").mkdir()
    distinct = {text for own in positives.values() for text in own} | {
        text for own in negatives.values() for text in own
    }
    if not positives or any(own == distinct for own in positives.values()):
        with pytest.raises(InputError, match=r"no row with a question|every passage is positive"):
            store_pairs(rows, tmp_path / "out", tiny_tokenizer, depth=depth)
        return
    counts = store_pairs(rows, tmp_path / "out", tiny_tokenizer, depth=depth)
    strings = {
        name: Dataset.from_file(str(tmp_path / "out" / "checkpoint-pairs" / f"{name}.arrow"))[
            "text"
        ][:]
        for name in ("queries", "passages")
    }
    passages, queries = list(dict.fromkeys(strings["passages"])), list(positives)
    examples = Examples.open(tmp_path / "out" / "examples")
    assert counts == {
        "rows": len(rows), "left_out": left_out, "queries": len(queries), "passages": len(passages),
        "pairs": sum(map(len, positives.values())),
    }  # fmt: skip
    for place, row in enumerate(examples.query_rows):
        own = {passages[p] for p in examples.positives_of(np.array([place]))[0]}
        listed = [passages[p] for p in examples.negatives[place] if p >= 0]
        known = [
            text
            for text in dict.fromkeys(negatives[queries[row]])
            if text not in right[queries[row]]
        ]
        assert own == positives[queries[row]] and listed == known[:depth]


def test_a_further_positive_of_one_row_is_no_hard_negative_of_another(tmp_path, tiny_tokenizer):
    first, further, wrong = (Context("", text) for text in ("dense", "vectors", "masked words"))
    rows = [
        PairRow("who?", (first, further), (wrong,)),
        PairRow("Who?", (first,), (further, wrong)),
    ]
    store_pairs([*rows, PairRow("why?", (wrong,), (further,))], tmp_path, tiny_tokenizer, depth=2)
    examples = Examples.open(tmp_path / "examples")
    assert words(tmp_path / "passages", tiny_tokenizer) == ["dense", "masked words", "vectors"]
    assert examples.positives.tolist() == [0, 1] and examples.negatives.tolist() == [[1], [2]]


def words(folder, tokenizer) -> list[str]:
    store = TokenStore.open(folder)
    batch = store.batch(np.arange(len(store)), max_length=30)
    return [
        tokenizer.decode(row, skip_special_tokens=True).replace(" ##", "")
        for row in batch.input_ids
    ]


def store_titles(folder: Path, tokenizer, titles: list[str], texts: list[str]) -> dict[str, int]:
    tokenizer.save_pretrained(folder / "tokenizer")
    collection = SimpleNamespace(passages=Dataset.from_dict({"title": titles, "text": texts}))
    title_pairs.body(folder, collection, folder / "tokenizer")
    return json.loads((folder / "counts.json").read_text())


def test_titles_ask_for_their_bodies(tmp_path, tiny_tokenizer):
    titles = ["New York", "a vector", "", "new york ", "masked"]
    texts = ["the decoder", "hard negatives", "no title", "dense vectors", " "]
    counts = store_titles(tmp_path, tiny_tokenizer, titles, texts)
    assert words(tmp_path / "queries", tiny_tokenizer) == ["new york", "a vector"]
    assert words(tmp_path / "passages", tiny_tokenizer) == [
        "the decoder",
        "hard negatives",
        "dense vectors",
    ]
    examples = Examples.open(tmp_path / "examples")
    assert [part.tolist() for part in np.split(examples.positives, examples.offsets[1:-1])] == [
        [0, 2],
        [1],
    ]
    assert counts == {"rows": 5, "left_out": 2, "queries": 2, "passages": 3, "pairs": 3}


def test_a_collection_without_titles_is_refused(tmp_path, tiny_tokenizer):
    with pytest.raises(InputError, match="passages have titles"):
        store_titles(tmp_path, tiny_tokenizer, ["", ""], ["a", "b"])
