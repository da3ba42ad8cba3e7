"""Passages are encoded only once: not again for new queries or judgements, nor when a file is
added.
"""

import io
import json
import shutil
import sys

import numpy as np
import pytest

from dr_book.export import save_for_others
from dr_book.search import vectors_of
from dr_lib import collections, retrieval
from dr_lib.errors import InputError
from dr_lib.lab import Inputs, open_sample, pipeline
from dr_lib.lab.inputs import open_writer
from dr_lib.lab.trainings import questions_by
from dr_lib.models import DenseEncoder, save_masked_lm
from dr_lib.retrieval import encoding
from dr_lib.stages import Cache


@pytest.fixture
def encoders(tmp_path, tiny_bert, tiny_tokenizer):
    """A retriever trained here, and the same one opened by sentence-transformers."""
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "lm")
    options = {"pooling": "mean", "passage_length": 24, "title": "none"}
    encoder = DenseEncoder.from_pretrained(tmp_path / "lm", **options)
    for name in ("trained", "given"):
        save_for_others(encoder, tmp_path / name)
    (tmp_path / "given" / "dense.json").unlink()
    return tmp_path / "trained", tmp_path / "given"


@pytest.fixture
def counted(monkeypatch):
    """Passages read by any encoder since the list was emptied."""
    read: list[int] = []
    encode = sys.modules["dr_lib.retrieval.encoding"]
    filled = encode.fill

    def fill(path, batches, *args, **options):
        read.extend([1] * sum(map(len, batches)))
        return filled(path, batches, *args, **options)

    monkeypatch.setattr(encode, "fill", fill)
    return read


def write(folder, files):
    folder.mkdir(exist_ok=True)
    for name, texts in files.items():
        (folder / name).write_text("\n\n".join(texts), encoding="utf-8")
    return collections.load(folder)


def built(collection, folder, cache):
    stages = vectors_of(collection, folder)
    return retrieval.open_vectors([cache.get(one) for one in stages])[0]


def text(subject: str, words: int = 90) -> str:
    return " ".join([subject] * words) + "."


@pytest.mark.parametrize("kind", [0, 1], ids=["trained here", "as it comes"])
def test_an_added_file_is_encoded_alone(encoders, counted, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    folder, cache = encoders[kind], Cache(announce=lambda line: None)
    files = {"b.txt": [text("query"), text("passage")], "c.txt": [text("vector")]}
    before = built(write(tmp_path / "docs", files), folder, cache)
    assert len(counted) == len(before) == 3
    counted.clear()
    # it comes first by name, so every row moves
    grown = write(tmp_path / "docs", {"a.txt": [text("decoder"), text("masked")]})
    after = built(grown, folder, cache)
    assert len(counted) == 2
    assert grown.passages["doc"][:] == ["a.txt"] * 2 + ["b.txt"] * 2 + ["c.txt"]
    np.testing.assert_array_equal(after[2:], before)
    fresh = built(grown, folder, Cache(tmp_path / "other", announce=lambda line: None))
    np.testing.assert_allclose(after, fresh, atol=1e-6)
    counted.clear()
    # a new version of one file
    changed = write(tmp_path / "docs", {"b.txt": [text("query"), text("bottleneck")]})
    again = built(changed, folder, cache)
    assert len(counted) == 1
    np.testing.assert_array_equal(again[[0, 1, 2, 4]], after[[0, 1, 2, 4]])
    assert np.abs(again[3] - after[3]).max() > 1e-3


def test_copies_of_a_text_have_one_vector_whatever_lies_beside_them(
    encoders, tmp_path, monkeypatch
):
    """Encoded beside longer and shorter ones they would differ by about 1e-7."""
    texts = [encoding.text_digest(bytes([letter])) for letter in b"abacba"]
    bits = np.arange(8, dtype=np.float32)

    def make(rows, path):
        np.save(path, (bits[rows] * 1e-7 + 1)[:, None])
        return np.load(path)

    fresh, again = tmp_path / "vectors-fresh", tmp_path / "vectors-again"
    for folder, own in ((fresh, texts), (again, [*texts, *2 * [encoding.text_digest(b"d")]])):
        (folder / "checkpoint-missing").mkdir(parents=True)
        with monkeypatch.context() as patch:
            patch.setattr(encoding, "read_json", lambda path: "by" if path.exists() else None)
            patch.setattr(Cache, "check", lambda *given: None)
            encoding.fill_missing(folder, own, "by", make)
    one, two = (np.load(folder / "vectors.npy")[:, 0] for folder in (fresh, again))
    places = [0, 1, 0, 3, 1, 0]
    assert (one == (bits * np.float32(1e-7) + 1)[places]).all() and len(set(one.tolist())) == 3
    assert (two[:6] == one).all() and two[6] == two[7]


@pytest.mark.parametrize(
    ("kind", "file", "change"),
    [
        (0, "dense.json", {"passage_length": 12}),
        (1, "config_sentence_transformers.json", {"prompts": {"document": "passage: "}}),
    ],
)
def test_another_encoder_takes_no_vector_of_the_first(
    encoders, counted, tmp_path, monkeypatch, kind, file, change
):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    folder = encoders[kind]
    docs = write(tmp_path / "docs", {"b.txt": [text("query"), text("passage")]})
    cache = Cache(announce=lambda line: None)
    built(docs, folder, cache)
    config = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(config | change))
    counted.clear()
    built(docs, folder, cache)
    assert len(counted) == 2


def test_altered_vectors_are_not_taken(encoders, counted, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    docs = write(tmp_path / "docs", {"b.txt": [text("query"), text("passage")]})
    cache = Cache(announce=lambda line: None)
    (stage,) = vectors_of(docs, encoders[1])
    file = cache.get(stage) / "vectors.npy"
    array = np.lib.format.open_memmap(file, mode="r+")
    array[0] = 0
    array.flush()
    counted.clear()
    found = built(
        write(tmp_path / "docs", {"a.txt": [text("decoder")]}),
        encoders[1],
        Cache(announce=lambda line: None),
    )
    assert len(counted) == 3 and np.abs(found).sum(1).min() > 0


@pytest.mark.parametrize("file", ["texts.npy", "vectors.npy", "by.json", "manifest.json"])
def test_whatever_is_wrong_with_a_neighbour_is_no_fault_of_the_stage(
    encoders, counted, tmp_path, monkeypatch, file
):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    docs = write(tmp_path / "docs", {"b.txt": [text("query"), text("passage")]})
    (stage,) = vectors_of(docs, encoders[1])
    beside = Cache(announce=lambda line: None).get(stage) / file
    whole = beside.read_bytes()
    grown = write(tmp_path / "docs", {"a.txt": [text("decoder")]})
    (wanted,) = vectors_of(grown, encoders[1])
    fresh = built(grown, encoders[1], Cache(tmp_path / "other", announce=lambda line: None))
    numbers, objects = io.BytesIO(), io.BytesIO()
    np.save(numbers, np.arange(3, dtype=np.int64) + 2**40)
    np.save(objects, np.array([None]), allow_pickle=True)
    cut = [whole[: len(whole) * part // 4] for part in range(4)]
    odd = [*cut, b"\0" * len(whole), b"null", numbers.getvalue(), objects.getvalue(), None]
    for content in odd:
        beside.unlink(missing_ok=True)
        if content is not None:
            beside.write_bytes(content)
        cache = Cache(announce=lambda line: None)
        np.testing.assert_allclose(built(grown, encoders[1], cache), fresh, atol=1e-6)
        shutil.rmtree(cache.folder(wanted))


def test_new_judgements_re_encode_nothing(own_recipe, encoders, counted, tmp_path):
    """If people judge further queries, BM25's index, tokens, vectors, pre-training, generated
    questions and the trained retriever are kept; only the evaluation is repeated.
    """
    folder, before = tmp_path / "tiny", {}
    for judged in (False, True):
        if judged:
            with (folder / "queries.jsonl").open("a") as file:
                file.write("\n" + json.dumps({"_id": "new", "text": "what the decoder sees"}))
            with (folder / "qrels" / "test.tsv").open("a") as file:
                file.write("new\tp3\t1\n")
        given = own_recipe.with_(retriever=str(encoders[1]))
        simlm = own_recipe.with_(objective="simlm")
        stages = {}
        bm25 = given.with_(evaluation__kind="bm25")
        for recipe in (bm25, given, simlm, simlm.with_(final="distilled")):
            stages |= {stage.name: stage for stage in pipeline(recipe).end.walk()}
        inputs = Inputs(simlm)
        asked = questions_by(inputs, open_writer("embedded"), per_passage=2, top_k=5, seed=0)
        stages[asked.name] = asked
        if judged:
            new = {stages[name].kind for name in stages.keys() - before.keys()}
            assert new == {"bm25_run", "given_run", "query_tokens", "dense_run", "scores"}
            kinds = {stage.kind for stage in stages.values()}
            assert {"retriever", "pretrained", "given_vectors", "vectors", "questions"} <= kinds
        before = stages
    assert len(open_sample(own_recipe.collection).qrels("test")) == 7


def test_a_stage_is_given_no_more_than_it_says_it_reads(own_recipe):
    collection = open_sample(own_recipe.collection)
    index = retrieval.bm25_index(collection, title=True)
    run = retrieval.bm25_run(index, collection, split="test", depth=5)
    assert index.arguments["collection"].splits == ()
    read = run.arguments["collection"]
    assert read.splits == ("test",) and len(read.queries()) == len(collection.queries("test"))
    with pytest.raises(InputError, match="no split 'train'"):
        read.qrels("train")


def test_equal_passages_have_one_digest_wherever_they_come_from(own_recipe, tmp_path):
    collection = open_sample(own_recipe.collection)
    part = collection.sample(20)
    lines = [{"_id": row.pop("id"), **row} for row in part.passages]
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    alone = collections.load(tmp_path / "part")
    assert alone.passages_digest == part.passages_digest == alone.only().digest
    assert part.passages_digest != collection.passages_digest
    assert collection.only("dev").digest != collection.only("test").digest
