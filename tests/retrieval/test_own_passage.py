"""A query that is itself a passage, as in ArguAna and Quora, is in no ranking, list of negatives or
pool.
"""

import warnings

import datasets
import numpy as np
import pytest
import torch

from dr_lib import evaluation
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.materials import bm25_candidates, pseudo_labels
from dr_lib.retrieval import Bm25, Ranking, bm25_run, negatives
from dr_lib.retrieval.encoding import save_nearest
from dr_lib.training import Examples, Finetuning, training_examples
from dr_lib.training.bi_encoder import ValidationPool, dev_pool, pool_ranks
from dr_lib.training.examples import draw_negatives, known_positives

ARGUMENTS = 20


@pytest.fixture
def arguments() -> Collection:
    """Twenty arguments as queries under their passage ids, with a counter-argument each that has
    half of their words; the review's case.
    """
    draw = np.random.default_rng(0)
    words = [" ".join(f"w{i}" for i in draw.choice(400, 16, replace=False)) for _ in range(20)]
    counters = [f"{' '.join(text.split()[:8])} against {i}x" for i, text in enumerate(words)]
    texts = [*words, *counters, *(f"other {i}y {draw.integers(9)}z" for i in range(10))]
    return made(texts, {f"p{i}": f"p{ARGUMENTS + i}" for i in range(ARGUMENTS)})


def made(texts: list[str], pairs: dict[str, str], info: dict | None = None) -> Collection:
    count = len(texts)
    passages = {"id": [f"p{i}" for i in range(count)], "title": [""] * count, "text": texts}
    passages |= {"doc": [""] * count, "position": [0] * count}
    asked = {
        "id": list(pairs),
        "text": [texts[int(q[1:])] for q in pairs],
        "answers": [[]] * len(pairs),
    }
    judged = {"query": list(pairs), "passage": list(pairs.values()), "grade": [1] * len(pairs)}
    rows = [datasets.Dataset.from_dict(part) for part in (passages, asked, judged)]
    return Collection(
        "arguments", "0" * 64, info or {}, *rows[:2], dict.fromkeys(("train", "test"), rows[2])
    )


def bm25(collection: Collection, tmp_path, split: str = "test", depth: int = 10) -> Ranking:
    Bm25.build(collection.passages, tmp_path / "index")
    bm25_run.body(tmp_path, tmp_path, collection, split=split, depth=depth)
    return Ranking.open(tmp_path / "ranking")


def test_bm25_finds_the_counter_argument_and_not_the_argument(arguments, tmp_path):
    ranking = bm25(arguments, tmp_path)
    assert arguments.own_rows("test").tolist() == list(range(ARGUMENTS))
    first = bm25(arguments, tmp_path / "first", depth=1).rows[:, 0]
    assert first.tolist() == list(range(ARGUMENTS, 2 * ARGUMENTS))
    assert ranking.depth == 10 and not (ranking.rows == np.arange(ARGUMENTS)[:, None]).any()
    scores = evaluation.evaluate_split(ranking, arguments, "test", ["nDCG@10", "MRR@10", "R@1"])
    assert [scores.mean(name) for name in scores.values] == [1.0, 1.0, 1.0]
    # with itself in the ranking every counter-argument is second
    kept = bm25(arguments.with_own_passage("keep"), tmp_path / "kept")
    scores = evaluation.evaluate_split(kept, arguments, "test", ["nDCG@10", "MRR@10", "R@1"])
    assert scores.mean("nDCG@10") == pytest.approx(0.6309, abs=1e-4)
    assert (scores.mean("MRR@10"), scores.mean("R@1")) == (0.5, 0.0)


def test_vectors_find_as_deep_and_not_the_query_itself(arguments, tmp_path):
    draw = np.random.default_rng(1)
    vectors = draw.normal(size=(len(arguments), 8)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    asked = vectors[:ARGUMENTS]
    save_nearest(tmp_path, asked, [tmp_path], arguments, split="test", depth=7)
    ranking, products = Ranking.open(tmp_path / "ranking"), asked @ vectors.T
    products[np.arange(ARGUMENTS), np.arange(ARGUMENTS)] = -np.inf
    assert np.array_equal(ranking.rows, np.argsort(-products, axis=1, kind="stable")[:, :7])


@pytest.mark.parametrize("seed", range(20))
def test_a_ranking_without_a_passage_of_each_query_is_that_of_a_collection_without_it(seed):
    draw = np.random.default_rng(seed)
    queries, passages, k = 5, 12, int(draw.integers(1, 14))
    scores = draw.integers(0, 4, (queries, passages)).astype(np.float32)  # many ties
    own = draw.integers(-1, passages, queries)

    def ranked(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        values = np.take_along_axis(scores, rows, axis=1)
        return np.where(np.isfinite(values), rows, -1), values

    ids = [str(i) for i in range(queries)]
    found = Ranking(ids, *ranked(scores, min(k + 1, passages))).without(own, k)
    scores[np.flatnonzero(own >= 0), own[own >= 0]] = -np.inf
    expected = ranked(scores, min(k, passages))
    assert np.array_equal(found.rows, expected[0]) and np.array_equal(found.scores, expected[1])


def test_no_argument_is_its_own_negative(arguments, tmp_path):
    bm25(arguments, tmp_path, "train")
    negatives.body(tmp_path, tmp_path, arguments, depth=9, random_negatives=40, seed=0)
    drawn, own = np.load(tmp_path / "negatives.npy"), np.arange(ARGUMENTS)
    assert drawn.shape[1] == 49 and not (drawn == own[:, None]).any()
    # without a list, random passages are drawn: all others, and never the query itself
    examples = training_examples(arguments)
    for epoch in range(20):
        drawn = draw_negatives(examples, own, 5, seed=epoch, epoch=epoch)
        assert not (drawn == own[:, None]).any()
    columns = np.array([20, 0, 21, 1, 22, 2])
    known = known_positives(examples, np.array([0, 1, 2]), columns, passages_per_query=2)
    assert known.tolist() == [
        [column // 2 == query and column % 2 == 1 for column in range(6)] for query in range(3)
    ]
    examples.save(tmp_path / "examples")
    assert type(examples).open(tmp_path / "examples").itself.tolist() == own.tolist()


def test_candidates_to_label_hold_no_query(arguments, tmp_path):
    Bm25.build(arguments.passages, tmp_path / "index")
    for depth in (8, 1):
        folder = tmp_path / str(depth)
        bm25_candidates.body(folder, tmp_path, tmp_path, arguments, pool="train", depth=depth)
        rows = Ranking.open(folder / "ranking").rows
        assert rows.shape[1] == depth and not (rows == np.arange(ARGUMENTS)[:, None]).any()
        assert rows[:, 0].tolist() == list(range(ARGUMENTS, 2 * ARGUMENTS))


def test_a_pool_ranks_all_but_the_query_itself():
    pool = ValidationPool.of([0, 1], [[2], [2]], np.array([[0, 1], [0, 3]]), np.array([0, -1]))
    assert pool.passage_rows.tolist() == [0, 1, 2, 3] and pool.itself.tolist() == [0, -1]
    queries = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    passages = torch.tensor([[1.0, 0.0], [0.2, 0.0], [0.5, 0.0], [0.1, 0.0]])
    assert pool_ranks(queries, passages, pool).tolist() == [1, 2]


def test_a_pool_of_a_validation_leaves_copies_of_the_query_out_too(tmp_path):
    """The query is a copy of an earlier passage, which represents both."""
    collection = made(["the query", "its answer", "the query", "another"], {"p2": "p1"})
    Ranking(["p2"], np.array([[0, 3, 1]]), np.array([[3.0, 2.0, 1.0]])).save(tmp_path / "ranking")
    looks = Finetuning(validation={"queries": 1, "split": "test"})
    pool = dev_pool(collection, tmp_path, looks)
    assert pool.passage_rows[pool.itself].tolist() == [0]
    asked, passages = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    assert pool_ranks(asked, passages, pool).tolist() == [1]


def test_each_of_the_queries_drawn_for_a_pool_leaves_itself_out(arguments, tmp_path):
    ids, rows = arguments.queries("test")["id"][:], np.tile(np.arange(ARGUMENTS), (ARGUMENTS, 1))
    Ranking(ids, rows, -rows.astype(np.float32)).save(tmp_path / "ranking")
    pool = dev_pool(arguments, tmp_path, Finetuning(validation={"queries": 5, "split": "test"}))
    assert len(pool.query_rows) == 5
    assert pool.passage_rows[pool.itself].tolist() == pool.query_rows.tolist()


def test_numbered_queries_are_not_the_passages_of_their_numbers(arguments):
    other = made([f"text {i}" for i in range(9)], {f"p{i}": "p8" for i in range(3)})
    asked = datasets.Dataset.from_dict(
        {"id": ["p0", "p1", "p2"], "text": ["what", "who", "why"], "answers": [[]] * 3}
    )
    plain = Collection("plain", "1", {}, other.passages, asked, other._judgements)
    assert plain.own_rows("test") is None and plain.with_own_passage(None) is plain
    # BEIR's rule goes only by the id
    dropped = plain.with_own_passage("drop")
    assert dropped.own_rows("test").tolist() == [0, 1, 2]
    assert dropped.with_own_passage("drop") is dropped
    assert dropped.digest != plain.digest != plain.with_own_passage("keep").digest
    assert arguments.with_own_passage("keep").own_rows("test") is None
    # a title before the text, and other spaces and case
    titled = other.passages.map(lambda row: {"title": "A  Title"})
    asked = datasets.Dataset.from_dict(
        {
            "id": ["p0", "p1", "p2"],
            "text": ["a title text 0", "text 1 ", "text"],
            "answers": [[]] * 3,
        }
    )
    assert Collection("titled", "1", {}, titled, asked, other._judgements).own_rows(
        "test"
    ).tolist() == [0, 1, -1]


@pytest.mark.parametrize(
    ("name", "dropped"),
    [("beir/arguana", True), ("beir/quora/test", True), ("beir/scifact", False)],
)
def test_arguana_and_quora_drop_it_by_default(name, dropped):
    published = pytest.importorskip("dr_lib.collections.published")
    assert (published.source(name).info.get("own_passage") == "drop") is dropped


def test_a_recipe_says_it_and_a_folder_like_that_is_spoken_of(own_recipe, tmp_path):
    import json
    import shutil

    from dr_lib.lab.checks import check_search
    from dr_lib.lab.inputs import Inputs

    folder = tmp_path / "collection"
    if not folder.exists():
        from pathlib import Path

        shutil.copytree(Path(own_recipe.collection.name), folder)
    passage = json.loads((folder / "corpus.jsonl").read_text().splitlines()[0])
    lines = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    qrels = folder / "qrels" / "test.tsv"
    asked = qrels.read_text().splitlines()[1].split("\t")[0]
    query = next(line for line in lines if line["_id"] == asked)
    qrels.write_text(qrels.read_text().replace(f"{asked}\t", f"{passage['_id']}\t"))
    query |= {"_id": passage["_id"], "text": passage["text"]}
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, lines)))
    recipe = own_recipe.with_(collection=str(folder))
    with pytest.warns(UserWarning, match="1 of .* queries of collection are passages"):
        check_search(Inputs(recipe))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rule, found in (("drop", True), ("keep", False)):
            inputs = Inputs(recipe.with_(evaluation__own_passage=rule))
            check_search(inputs)
            assert (inputs.searched.own_rows("test") is not None) is found
    with pytest.raises(InputError):
        recipe.with_(evaluation__own_passage="maybe")


@pytest.mark.parametrize("repeated", [False, True])
def test_pseudo_labels_know_the_query_itself_also_where_texts_repeat(repeated, tmp_path):
    texts = ["the query", "its answer", "another", "another" if repeated else "a fourth"]
    collection = made(texts, {"p0": "p1"})
    candidates = Ranking(["p0"], np.array([[1, 2]]), np.array([[2.0, 1.0]]))
    candidates.save(tmp_path / "candidates" / "ranking")
    np.save(tmp_path / "scores.npy", np.array([[5.0, -5.0]], np.float32))
    (tmp_path / "queries" / "store").mkdir(parents=True)
    places = (tmp_path / "queries", tmp_path / "candidates", tmp_path)
    chosen = {"pool": "train", "s_pos": 0.9, "s_neg": 0.1, "probability": "sigmoid"}
    pseudo_labels.body(tmp_path / "made", *places, collection, **chosen)
    labels = Examples.open(tmp_path / "made" / "examples")
    assert (labels.same is not None) == repeated and labels.itself.tolist() == [0]
    assert (labels.positives.tolist(), labels.negatives.tolist()) == ([1], [[2]])
