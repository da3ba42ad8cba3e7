"""Generated pairs as stages on a collection of forty passages: fewer questions are part of more."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dr_book import generated_queries
from dr_lib import collections, materials, retrieval
from dr_lib.collections import Collection
from dr_lib.files import read_json, write_json
from dr_lib.materials import Texts
from dr_lib.materials.texts import distinct
from dr_lib.models import DenseEncoder, save_masked_lm
from dr_lib.stages import Cache, Data, Stage, stage
from dr_lib.tokens import TokenStore, load_tokenizer, passage_tokens
from dr_lib.training import Examples

ALWAYS = {
    "filter": "local",
    "top_k": 40,
    "filter_by": "bm25",
    "negatives": "dense",
    "depth": 3,
    "seed": 0,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Cache:
    return Cache(tmp_path_factory.mktemp("stages"), announce=lambda line: None)


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_bert, tiny_tokenizer) -> Path:
    """A base model, a retriever based on it, and forty passages in ten documents."""
    place = tmp_path_factory.mktemp("given")
    save_masked_lm(tiny_bert(), tiny_tokenizer, place / "base")
    DenseEncoder.from_pretrained(place / "base", passage_length=32, query_length=12).save(
        place / "retriever" / "model"
    )
    words = sorted(
        piece for piece in tiny_tokenizer.get_vocab() if piece.isalpha() and len(piece) > 2
    )
    draw, folder = np.random.default_rng(0), place / "forty"
    folder.mkdir(parents=True)
    rows = [
        {
            "_id": f"p{i}",
            "title": words[i % 8],
            "text": " ".join(draw.choice(words, 12, replace=False)),
            "doc": f"d{i // 4}",
            "position": i % 4,
        }
        for i in range(40)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


@pytest.fixture(scope="module")
def collection(place, tmp_path_factory) -> Collection:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DR_CACHE", str(tmp_path_factory.mktemp("cache")))
        return collections.load(place / "forty")


@pytest.fixture(autouse=True)
def without_bf16(monkeypatch):
    # no kernels to build: quicker
    monkeypatch.setattr("dr_lib.training.machine.has_bf16", lambda where: False)


def given(path: Path) -> Data:
    return Data(str(path), path.name)


@pytest.fixture(scope="module")
def base(place) -> Data:
    return given(place / "base")


@pytest.fixture(scope="module")
def passages(collection, base) -> Stage:
    return passage_tokens(collection, base)


@stage()
def written(folder: Path, collection: Collection, tokenizer: Path) -> None:
    """Three questions per passage, made of its own words."""
    draw, counts = np.random.default_rng(0), Counter()
    asked = [
        [" ".join(draw.permutation(text.split())[:4]) for _ in range(3)]
        for text in collection.passages["text"]
    ]
    Texts.write(folder, [[distinct(own, counts) for own in asked]], load_tokenizer(tokenizer))
    write_json(folder / "counts.json", counts)


@pytest.fixture(scope="module")
def good(collection, base) -> Stage:
    return written(collection, base)


def test_questions_become_pairs_with_negatives(cache, collection, base, passages, good, place):
    retriever = given(place / "retriever")
    index = retrieval.bm25_index(collection, title=True)
    vectors = [retrieval.vectors(retriever, passages, rows=(0, len(collection.passages)))]
    made = [
        cache.get(
            materials.generated_pairs(
                good, collection, base, index, retriever, vectors, limit=limit, **ALWAYS
            )
        )
        for limit in (None, 9, 4)
    ]
    examples = [Examples.open(folder / "examples") for folder in made]
    counts = [read_json(folder / "counts.json") for folder in made]
    assert [one["filtered"] for one in counts] == [counts[0]["filtered"], 9, 4] and counts[0][
        "filtered"
    ] > 50
    assert (examples[0].negatives >= 0).any() and len(TokenStore.open(made[0] / "queries")) == len(
        examples[0]
    )
    pairs = [
        set(zip(np.repeat(hashes(folder, own), own.counts()), own.positives.tolist(), strict=True))
        for folder, own in zip(made, examples, strict=True)
    ]
    assert pairs[2] < pairs[1] < pairs[0]


def test_each_passage_that_is_asked_about_for_testing_has_one_question(cache, collection, base):
    parts, _ = generated_queries.tested_first(collection)
    about = [collection.part(rows) for rows in parts]
    made = generated_queries.question_collection(
        [written(part, base) for part in about],
        retrieval.bm25_index(collection, title=True),
        collection,
        about,
        name="asked",
        judged=[],
        splits=["test"],
        top_k=len(collection),
        seed=0,
        written_by="a test",
    )
    folder = cache.get(made)
    judged = (folder / "asked" / "qrels" / "test.tsv").read_text().splitlines()[1:]
    asked_about = sorted(int(line.split("\t")[1][1:]) for line in judged)
    assert asked_about == sorted(np.concatenate(parts).tolist()) and len(asked_about) == 20


def hashes(folder: Path, examples: Examples) -> list[int]:
    store = TokenStore.open(folder / "queries")
    parts = np.split(store.text_ids, store.text_offsets[1:-1])
    return [hash(parts[row].tobytes()) for row in examples.query_rows]
