"""A ready-made encoder as a retriever: the library's own vectors in the collection's order, also
after a kill.
"""

import datasets
import numpy as np
import pytest

from dr_book.export import save_for_others
from dr_lib import collections, retrieval
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation import evaluate_split
from dr_lib.models import DenseEncoder, SentenceEncoder, save_masked_lm
from dr_lib.places import PACKAGED, data_root, find_model
from dr_lib.retrieval import Ranking
from dr_lib.stages import Cache, Stage

PASSAGES = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_bert, tiny_tokenizer):
    """A sentence-transformers model: mean pooling, at most 24 pieces, cosine."""
    place = tmp_path_factory.mktemp("model")
    save_masked_lm(tiny_bert(), tiny_tokenizer, place / "lm")
    encoder = DenseEncoder.from_pretrained(
        place / "lm", pooling="mean", passage_length=24, title="none"
    )
    save_for_others(encoder, place / "given")
    (place / "given" / "dense.json").unlink()
    return place / "given"


@pytest.fixture(scope="module")
def collection(sentences) -> Collection:
    rng, words = np.random.default_rng(0), " ".join(sentences).split()
    texts = [" ".join(rng.choice(words, rng.integers(1, 40))) for _ in range(PASSAGES)]
    names = [f"p{row}" for row in range(PASSAGES)]
    titles = [words[row % 7] if row % 2 else "" for row in range(PASSAGES)]
    columns = {
        "id": names,
        "title": titles,
        "text": texts,
        "doc": [""] * PASSAGES,
        "position": [0] * PASSAGES,
    }
    asked = {"id": ["q", "r"], "text": ["hard negatives", "New York"], "answers": [[], []]}
    judged = {"query": ["q", "r"], "passage": ["p3", "p4"], "grade": [1, 1]}
    tables = [datasets.Dataset.from_dict(one) for one in (columns, asked, judged)]
    return Collection("t", "0" * 64, {}, tables[0], tables[1], {"test": tables[2]})


@pytest.fixture(autouse=True)
def in_float32(monkeypatch):
    monkeypatch.setattr("dr_lib.training.machine.has_bf16", lambda where: False)


def test_vectors_and_run_are_those_of_the_library(folder, collection, tmp_path):
    from sentence_transformers import SentenceTransformer

    cache, encoder = Cache(tmp_path, announce=lambda line: None), retrieval.given(folder)
    vectors = retrieval.given_vectors(encoder, collection, rows=(0, len(collection.passages)))
    run = Ranking.open(
        cache.get(retrieval.given_run(encoder, [vectors], collection, split="test", depth=5))
        / "ranking"
    )
    found = np.load(cache.folder(vectors) / "vectors.npy")
    model, passages = SentenceTransformer(str(folder), device="cpu"), collection.passages
    whole = [
        f"{title} {text}".strip()
        for title, text in zip(passages["title"], passages["text"], strict=True)
    ]
    np.testing.assert_allclose(found, model.encode(whole, normalize_embeddings=True), atol=1e-5)
    scores = model.encode(["hard negatives", "New York"], normalize_embeddings=True) @ found.T
    np.testing.assert_allclose(run.scores, -np.sort(-scores)[:, :5], atol=1e-5)


def test_a_killed_encoding_goes_on_and_ends_with_the_same_vectors(
    folder, collection, tmp_path, monkeypatch
):
    calls, encode = [], SentenceEncoder.encode

    def stops(self, texts, *titles, **options):
        if len(texts) > 3:  # otherwise it is tried when opened
            calls.append(len(calls))
            if len(calls) == 3:
                raise KeyboardInterrupt
        return encode(self, texts, *titles, **options)

    stage = retrieval.given_vectors(
        retrieval.given(folder), collection, rows=(0, len(collection.passages))
    )
    cache = Cache(tmp_path / "a", announce=lambda line: None)
    whole = np.load(Cache(tmp_path / "b", announce=lambda line: None).get(stage) / "vectors.npy")
    monkeypatch.setattr(SentenceEncoder, "encode", stops)
    with pytest.raises(KeyboardInterrupt):
        cache.get(stage)
    np.testing.assert_array_equal(np.load(cache.get(stage) / "vectors.npy"), whole)
    assert len(calls) == 4  # three batches, and the interrupted one: finished vectors are kept


def test_the_key_goes_by_the_files_of_the_model_and_not_by_its_page(folder, tmp_path):
    before = retrieval.given(folder).digest
    (folder / "README.md").write_text("another page")
    assert retrieval.given(folder).digest == before
    pooling = next(folder.glob("1_Pooling/config.json"))
    text = pooling.read_text()
    pooling.write_text(text.replace("true", "false"))
    assert retrieval.given(folder).digest != before
    pooling.write_text(text)


def test_what_cannot_be_found_or_opened_is_one_clear_error(tmp_path):
    with pytest.raises(InputError, match="nobody/has-this"):
        find_model("nobody/has-this")
    (tmp_path / "modules.json").write_text("[")
    with pytest.raises(InputError, match="not valid JSON"):
        SentenceEncoder(tmp_path)


@pytest.fixture
def scifact(monkeypatch) -> Collection:
    monkeypatch.undo()  # in the machine's own precision
    root = data_root()
    if not root or not (root / "scifact").is_dir():
        pytest.skip("needs the folder scifact under DR_DATA")
    return collections.load("scifact")


def ndcg(run: Stage, collection: Collection) -> float:
    ranking = Ranking.open(Cache().get(run) / "ranking")
    return 100 * evaluate_split(ranking, collection, "test", ["nDCG@10"]).mean("nDCG@10")


def test_bm25_on_scifact_scores_what_public_tables_print(scifact):
    """66.5 (BEIR, title and text in separate fields) to 67.9 (Pyserini, one field)."""
    index = retrieval.bm25_index(scifact, title=True)
    assert (
        66.5 <= ndcg(retrieval.bm25_run(index, scifact, split="test", depth=100), scifact) <= 68.5
    )


@pytest.mark.slow
def test_all_minilm_on_scifact_scores_what_public_tables_print(scifact):
    """64.5 (MTEB). The vectors stay in the cache: minutes, once."""
    pytest.importorskip(
        PACKAGED["all-MiniLM-L6-v2"], reason="make models installs all-MiniLM-L6-v2"
    )
    encoder = retrieval.given("all-MiniLM-L6-v2")
    vectors = retrieval.given_vectors(encoder, scifact, rows=(0, len(scifact.passages)))
    run = retrieval.given_run(encoder, [vectors], scifact, split="test", depth=100)
    assert ndcg(run, scifact) == pytest.approx(64.5, abs=0.3)
