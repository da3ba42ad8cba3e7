"""Words that queries share with passages, words that vectors predict, and similarities of
positives, against loops.
"""

import math

import datasets
import numpy as np
import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.evaluation import Scores, covered, lexical, overlap
from dr_lib.evaluation.measures import passage_similarities
from dr_lib.lab import open_sample, pipeline
from dr_lib.models import load_masked_lm
from dr_lib.retrieval import Ranking, search
from dr_lib.stages import Cache
from dr_lib.tokens import load_tokenizer

PASSAGES = {
    "title": ["Rivers", "", ""],
    "text": ["They flow from hills.", "A hill near the flowing river", "stone walls"],
}
QUERIES = {"id": ["q1", "q2", "q3"], "text": ["flows the river", "a granite wall", "of the"]}
RELEVANT = [[0, 2], [2], [1]]


class Toy:
    """Three passages and three queries, the last of stop words alone."""

    passages = datasets.Dataset.from_dict(PASSAGES)

    def queries(self, split):
        return QUERIES

    def relevant_rows(self, split, grade):
        return [np.array(rows) for rows in RELEVANT]


def test_overlap_is_the_share_of_rare_words_that_the_best_passage_has():
    found = overlap(Toy(), "test")
    unknown, once = (math.log(1 + (3 - n + 0.5) / (n + 0.5)) for n in (0, 1))
    assert found.query_ids == ["q1", "q2", "q3"]
    assert found.per_query("overlap") == pytest.approx([1.0, once / (once + unknown), 0.0])


def test_without_titles_their_words_are_missing():
    twice = [math.log(1 + (3 - n + 0.5) / (n + 0.5)) for n in (2, 1)]  # flow, river
    share = twice[0] / sum(twice)
    assert overlap(Toy(), "test", title=False).per_query("overlap")[0] == pytest.approx(share)


@pytest.mark.parametrize("seed", range(5))
def test_coverage_equals_sets(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    logits = rng.integers(0, 6, (7, 30)).astype(np.float32)  # with ties
    own = rng.random((7, 30)) < rng.random((7, 1))
    own[0] = False
    monkeypatch.setattr(lexical, "FIRST", (1, 5, 100))
    found = covered(torch.from_numpy(logits), torch.from_numpy(own))
    for row in range(7):
        order = sorted(range(30), key=lambda piece: (-logits[row, piece], piece))
        pieces = set(np.flatnonzero(own[row]))
        for name, k in (("@1", 1), ("@5", 5), ("@100", 30), ("", len(pieces))):
            expected = len(pieces & set(order[:k])) / max(len(pieces), 1)
            assert found[f"coverage{name}"][row].item() == pytest.approx(expected), name


def test_a_run_measures_the_passages_of_its_split_by_the_model_that_fine_tuning_starts_from(
    tiny_recipe, tmp_path
):
    recipe = tiny_recipe.with_(objective="none", evaluation__kind="coverage")
    plan, cache = pipeline(recipe), Cache(tmp_path, announce=lambda line: None)
    scores = Scores.load(cache.get(plan.end) / "scores.json")
    collection = open_sample(recipe.collection)
    rows = sorted({int(row) for one in collection.relevant_rows("test") for row in one})
    assert scores.query_ids == [collection.passages[row]["id"] for row in rows]
    folder = plan.inputs.base.model.place
    model, tokenizer = load_masked_lm(folder).eval(), load_tokenizer(folder)
    passage = collection.passages[rows[0]]
    read = {"truncation": "longest_first", "max_length": recipe.passage_length}
    ids = tokenizer(passage["title"], passage["text"], return_tensors="pt", **read)
    logits = model(**ids).logits[0, 0]
    pieces = set(ids.input_ids[0].tolist()) - set(tokenizer.all_special_ids)
    first = set(logits.topk(20).indices.tolist())
    assert scores.per_query("coverage@20")[0] == pytest.approx(len(pieces & first) / len(pieces))


def test_it_reads_the_pre_trained_model_and_nothing_that_is_fine_tuned(tiny_recipe):
    plan = pipeline(tiny_recipe.with_(objective="mlm", evaluation__kind="coverage"))
    kinds = [one.kind for one in plan.end.walk()]
    assert "pretrained" in kinds and not {"retriever", "vectors", "dense_run"} & {*kinds}
    assert {"pretrained", "evaluation"} <= plan.stages().keys()


def test_overlap_is_counted_without_a_model(tiny_recipe, tmp_path):
    recipe = tiny_recipe.with_(evaluation__kind="overlap")
    plan, cache = pipeline(recipe), Cache(tmp_path, announce=lambda line: None)
    assert [one.kind for one in plan.end.walk()] == ["shared_words"]
    scores = Scores.load(cache.get(plan.end) / "scores.json")
    expected = overlap(open_sample(recipe.collection), "test")
    assert scores.query_ids == expected.query_ids
    assert np.array_equal(scores.per_query("overlap"), expected.per_query("overlap"))
    unread = pipeline(recipe.with_(title="none"))
    assert unread.end.key != plan.end.key


RNG = np.random.default_rng(0)
ASKED, SEARCHED = (RNG.standard_normal((n, 6)).astype(np.float32) for n in (12, 80))
POSITIVES = [RNG.permutation(80)[: RNG.integers(0, 5)] for _ in range(12)]


def ranking() -> Ranking:
    scores, rows = search(ASKED, SEARCHED, 40)
    return Ranking([f"q{i}" for i in range(12)], rows, scores)


def similarity(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(float), b.astype(float)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_values_equal_loops_over_pairs():
    run = ranking()
    found = passage_similarities(ASKED, SEARCHED, run, POSITIVES, depth=30)
    expected = {}
    for i, query in enumerate(run.query_ids):
        top = run.rows[i, :30].tolist()
        near = [p for p in top if p in POSITIVES[i]]
        far = [p for p in top if p not in POSITIVES[i]]
        if near and far:
            expected[query] = (
                [similarity(SEARCHED[p], ASKED[i]) for p in near],
                [similarity(SEARCHED[p], SEARCHED[n]) for p in near for n in far],
            )
    assert found.query_ids == list(expected) and 0 < len(expected) < 12
    for place, name in enumerate(("s(p+, q)", "s(p+, p-)")):
        for how in (np.mean, np.median):
            wanted = [how(values[place]) for values in expected.values()]
            assert found.per_query(f"{name} {how.__name__}").tolist() == pytest.approx(
                wanted, abs=1e-5
            )


def test_passages_that_do_not_exist_are_no_negatives():
    run = Ranking(["q"], np.array([[2, 1, -1]]), np.array([[2.0, 1.0, -np.inf]]))
    found = passage_similarities(ASKED[:1], SEARCHED, run, [np.array([2])])
    assert found.mean("s(p+, p-) mean") == pytest.approx(
        similarity(SEARCHED[2], SEARCHED[1]), rel=1e-5
    )


def test_queries_without_any_pair_are_refused():
    with pytest.raises(InputError, match="Look deeper"):
        passage_similarities(ASKED, SEARCHED, ranking(), [np.zeros(0, int)] * 12)
