"""Every material as a stage on a collection of forty passages: what its folder holds, and that stages fit together."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dr_lib import collections, materials, retrieval
from dr_lib.collections import Collection
from dr_lib.files import file_digest, read_json, write_json
from dr_lib.materials import Texts
from dr_lib.materials.texts import Counts
from dr_lib.models import CrossEncoder, DenseEncoder, save_masked_lm
from dr_lib.stages import Cache, Data, Stage, stage
from dr_lib.tokens import Layout, TokenStore, TokenValues, load_tokenizer, passage_tokens, query_tokens
from dr_lib.training import Examples, GeneratorTraining

LAYOUT = Layout(passage_length=32, query_length=12)
TRAINING = GeneratorTraining(steps=3, tokens_per_batch=256, precision="fp32")
ALWAYS = {"filter": "local", "top_k": 40, "filter_by": "bm25", "negatives": "dense", "depth": 3, "seed": 0}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Cache:
    return Cache(tmp_path_factory.mktemp("stages"), announce=lambda line: None)


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_bert, tiny_tokenizer) -> Path:
    """A base model, a retriever made of it, and a collection of forty passages, ten documents and eight queries."""
    place = tmp_path_factory.mktemp("given")
    save_masked_lm(tiny_bert(), tiny_tokenizer, place / "base")
    DenseEncoder.from_pretrained(place / "base", passage_length=32, query_length=12).save(place / "retriever" / "model")
    CrossEncoder.from_pretrained(place / "base", seed=0, length=40, title=True).save(place / "scorer" / "model")
    words = sorted(piece for piece in tiny_tokenizer.get_vocab() if piece.isalpha() and len(piece) > 2)
    draw, folder = np.random.default_rng(0), place / "forty"
    (folder / "qrels").mkdir(parents=True)
    rows = [
        {"_id": f"p{i}", "title": words[i % 8], "text": " ".join(draw.choice(words, 12, replace=False)),
         "doc": f"d{i // 4}", "position": i % 4}
        for i in range(40)
    ]  # fmt: skip
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"_id": f"q{i}", "text": " ".join(rows[i]["text"].split()[:4])} for i in range(8)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    lines = "".join(f"q{i}\tp{i}\t1\n" for i in range(8))
    (folder / "qrels" / "train.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")
    return place


@pytest.fixture(scope="module")
def collection(place, tmp_path_factory) -> Collection:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DR_CACHE", str(tmp_path_factory.mktemp("cache")))
        return collections.load(place / "forty")


@pytest.fixture(autouse=True)
def without_bf16(monkeypatch):
    monkeypatch.setattr("dr_lib.training.machine.has_bf16", lambda where: False)  # no kernels to build: quicker


def given(path: Path) -> Data:
    return Data(str(path), path.name)


@pytest.fixture(scope="module")
def base(place) -> Data:
    return given(place / "base")


@pytest.fixture(scope="module")
def passages(collection, base) -> Stage:
    return passage_tokens(collection, base)


@pytest.fixture(scope="module")
def queries(collection, base) -> Stage:
    return query_tokens(collection, base, split="train")


@stage()
def written(folder: Path, collection: Collection, tokenizer: Path) -> None:
    """Three questions a passage, made of its own words."""
    draw, counts = np.random.default_rng(0), Counts()
    asked = [[" ".join(draw.permutation(text.split())[:4]) for _ in range(3)] for text in collection.passages["text"]]
    Texts.write(folder, [[counts.clean(own) for own in asked]], load_tokenizer(tokenizer), progress=False)
    write_json(folder / "counts.json", vars(counts))


@pytest.fixture(scope="module")
def good(collection, base) -> Stage:
    return written(collection, base)


def test_word_statistics_fit_the_tokens(cache, passages):
    counts = materials.ngrams(passages, order=3)
    store = TokenStore.open(cache.get(passages) / "store")
    for made in (materials.importances(passages, counts, window=3), materials.keyword_weights(passages)):
        values = TokenValues.open(cache.get(made) / "values", store)
        assert len(values.text) == len(store.text_ids) and np.isfinite(values.text).all()


def test_every_passage_gets_questions(cache, collection, base, passages, queries):
    options = {"layout": LAYOUT, "seed": 0}
    generator = materials.question_generator(base, passages, queries, collection, training=TRAINING, dropout=None, **options)
    made = materials.questions(generator / "model", passages, collection, base, per_passage=3, top_k=10, public=False, **options)
    texts, told = Texts.open(cache.get(made)), read_json(cache.get(made) / "counts.json")
    assert told["passages"] == 40 and told["drawn"] == 120 and told["kept"] == len(texts)
    assert not list(cache.get(made).glob("checkpoint-*"))


def test_questions_become_pairs_with_negatives(cache, collection, base, passages, good, place):
    retriever = given(place / "retriever")
    index, vectors = retrieval.bm25_index(collection, title=True), retrieval.vectors(retriever, passages)
    made = [
        cache.get(materials.generated_pairs(good, collection, base, index, retriever, vectors, limit=limit, **ALWAYS))
        for limit in (None, 9, 4)
    ]
    examples = [Examples.open(folder / "examples") for folder in made]
    counts = [read_json(folder / "counts.json") for folder in made]
    assert [one["filtered"] for one in counts] == [counts[0]["filtered"], 9, 4] and counts[0]["filtered"] > 50
    assert (examples[0].negatives >= 0).any() and len(TokenStore.open(made[0] / "queries")) == len(examples[0])
    pairs = [
        set(zip(np.repeat(hashes(folder, own), own.counts()), own.positives.tolist(), strict=True))
        for folder, own in zip(made, examples, strict=True)
    ]
    assert pairs[2] < pairs[1] < pairs[0]


def hashes(folder: Path, examples: Examples) -> list[int]:
    store = TokenStore.open(folder / "queries")
    parts = np.split(store.text_ids, store.text_offsets[1:-1])
    return [hash(parts[row].tobytes()) for row in examples.query_rows]


def test_continuations_are_one_a_passage(cache, collection, base, passages):
    model = materials.continuation_model(base, passages, collection, positions=24, training=TRAINING, dropout=None, seed=0)
    made = materials.continuations(
        model / "model", passages, collection, base, new_tokens=9, prompt_tokens=12, top_p=0.9, seed=0, public=False
    )
    assert np.diff(Texts.open(cache.get(made)).offsets).tolist() == [1] * 40


def test_a_collection_without_queries_gets_a_folder_of_them(cache, collection, good):
    index = retrieval.bm25_index(collection, title=True)
    for judged in ([], ["train"]):
        made = cache.get(
            materials.question_collection(good, index, collection, judged=judged, top_k=40, seed=0, written_by="a test")
        )
        found = collections.load(made / materials.generated_name(collection))
        assert set(found.splits) == set(materials.GENERATED_SHARES)
        seen = [{passage for own in found.qrels(split).values() for passage in own} for split in found.splits]
        assert sum(map(len, seen)) == len(set.union(*seen))
        assert judged == [] or found.qrels("train") == collection.qrels("train")
        assert read_json(made / "counts.json")["written"] == 120


@pytest.mark.parametrize("pool", ["train", "questions", "file"])
def test_pseudo_labels_of_every_pool(cache, collection, base, passages, queries, good, place, pool):
    path = place / "forty" / "queries.jsonl"
    unlabelled = materials.unlabelled_queries(Data(str(path), file_digest(path)), base)
    source = {"train": queries, "questions": good, "file": unlabelled}[pool]
    retriever, scorer = given(place / "retriever"), given(place / "scorer")
    index, vectors = retrieval.bm25_index(collection, title=True), retrieval.vectors(retriever, passages)
    for found in (
        materials.bm25_candidates(source, index, collection, pool=pool, depth=5),
        materials.dense_candidates(source, retriever, vectors, depth=5),
    ):
        scores = retrieval.candidate_scores(scorer, source, passages, found)
        logits = np.load(cache.get(scores) / "scores.npy")
        high, low = np.quantile(1 / (1 + np.exp(-logits[np.isfinite(logits)])), [0.7, 0.4])
        made = materials.pseudo_labels(
            source, found, scores, collection, pool=pool, s_pos=float(high), s_neg=float(low), probability="sigmoid"
        )
        folder = cache.get(made)
        counts = read_json(folder / "counts.json")
        assert counts["chosen"]["positives"] == len(Examples.open(folder / "examples").positives)
        assert len(counts["thresholds"]) == 4 and (counts["chosen"]["known_retrieved"] > 0) == (pool != "file")


def test_given_labels_are_those_of_the_training_queries(cache, collection, queries):
    folder = cache.get(materials.given_labels(queries, collection))
    assert Examples.open(folder / "examples").positives.tolist() == list(range(8))
    assert len(TokenStore.open(folder / "queries")) == 8


def test_pairs_of_a_file_and_of_titles(cache, collection, base, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"question {i}\tthe vector {i}\n" for i in range(6)))
    pairs = cache.get(materials.file_pairs(Data(str(path), file_digest(path)), base, limit=4))
    assert read_json(pairs / "counts.json") == {"rows": 4, "left_out": 0, "queries": 4, "passages": 4, "pairs": 4}
    titles = cache.get(materials.title_pairs(collection, base))
    assert read_json(titles / "counts.json")["queries"] == 8


def test_texts_are_tokenised_for_another_model(cache, good, tiny_tokenizer, tmp_path):
    tiny_tokenizer.save_pretrained(tmp_path / "words")
    folder = cache.get(materials.text_tokens(good, Data(str(tmp_path / "words"), "words")))
    assert len(TokenStore.open(folder / "store")) == len(Texts.open(cache.get(good)))
    shutil.rmtree(tmp_path / "words")
