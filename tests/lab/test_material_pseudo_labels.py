"""PAIR's pseudo-labels as stages on forty passages: from both pools and both retrievers, and what re-runs."""

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.files import read_json
from dr_lib.lab.materials import material
from dr_lib.lab.way import open_means
from dr_lib.pairs import Examples, RetrievalBatches
from dr_lib.retrieval import Ranking
from dr_lib.tokens import TokenStore

ALMOST_ALL = {"s_pos": 1e-6, "s_neg": 0.0}  # a scorer of two steps is sure of nothing


@pytest.fixture
def recipe(tiny_recipe):
    scorer = {"steps": 2, "batch_queries": 4, "negatives": 3, "length": 40, "precision": "fp32"}
    writer = {"steps": 2, "tokens_per_batch": 256, "precision": "fp32"}
    makers = {"cross_encoder": scorer, "questions": writer}
    return tiny_recipe.with_(**{f"makers__{maker}__{name}": value for maker, values in makers.items()
                                for name, value in values.items()})  # fmt: skip


@pytest.fixture
def means(recipe):
    return open_means(recipe)


def by_kind(stage):
    return {one.kind: one for one in stage.walk()}


@pytest.mark.parametrize(("pool", "first"), [("train", "bm25"), ("train", "dense"), ("questions", "bm25")])
def test_pairs_come_from_each_pool_and_each_retriever(pool, first, means, cache):
    stage = material("pseudo_labels", means, pool=pool, first=first, depth=6, **ALMOST_ALL)
    folder = cache.get(stage)
    examples, queries = Examples.open(folder / "examples"), TokenStore.open(folder / "queries")
    found = Ranking.open(cache.get(by_kind(stage)["candidates"]) / "ranking").rows
    assert len(found) == len(queries) and examples.passages == 40
    for place, row in enumerate(examples.query_rows):
        own = examples.positives[examples.offsets[place] : examples.offsets[place + 1]]
        assert own.tolist() == [passage for passage in found[row].tolist() if passage >= 0]
    passages = TokenStore.open(cache.get(means.passages) / "store")
    batch = RetrievalBatches(queries, passages, examples, batch_queries=4, passages_per_query=3).batch(0)
    assert len(batch) == 4 and len(batch.passages) == 12
    if pool == "train":
        assert len(queries) == 12


def test_counts_tell_the_labels_and_what_nobody_looked_at(means, cache):
    stage = material("pseudo_labels", means, depth=6, **ALMOST_ALL)
    counts = read_json(cache.get(stage) / "counts.json")
    chosen = counts["chosen"]
    examples = Examples.open(cache.get(stage) / "examples")
    assert (chosen["queries"], chosen["queries_kept"]) == (12, len(examples))
    assert chosen["positives"] == len(examples.positives) and chosen["negatives"] == 0
    assert chosen["kept_without_negative"] == len(examples)
    assert 0 < chosen["known_retrieved"] == chosen["known_positive"] <= 12
    assert [row["s_pos"] for row in counts["thresholds"]] == [0.9, 0.8, 0.7, 0.6]


def test_other_thresholds_score_nothing_again(means):
    stages = [material("pseudo_labels", means, depth=6, s_pos=high, s_neg=1 - high) for high in (0.9, 0.8)]
    first, second = ({one.key for one in stage.walk()} for stage in stages)
    assert first ^ second == {stage.key for stage in stages}


def test_the_scorer_is_trained_for_the_probability_that_is_asked_of_it(means):
    pointwise, listwise = (
        by_kind(material("pseudo_labels", means, probability=name))["cross_encoder"] for name in ("sigmoid", "softmax")
    )
    assert pointwise.params["loss"] == "pointwise" and listwise.params["loss"] == "listwise"


def test_the_pairs_do_not_depend_on_the_seed_of_a_run(recipe, means):
    other = open_means(recipe.with_(seed=5))
    assert material("pseudo_labels", other).key == material("pseudo_labels", means).key
    assert material("pseudo_labels", other, first="dense").key != material("pseudo_labels", means, first="dense").key


def test_softmax_thresholds_share_one_among_the_candidates(means, cache):
    stage = material("pseudo_labels", means, depth=6, probability="softmax", s_pos=0.1, s_neg=0.05)
    scores = np.load(cache.get(by_kind(stage)["candidate_scores"]) / "scores.npy")
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    counts = read_json(cache.get(stage) / "counts.json")["chosen"]
    kept = (chances > 0.1).any(1)
    assert (counts["queries_kept"], counts["positives"]) == (kept.sum(), (chances > 0.1).sum())


def test_an_unsure_scorer_is_named_with_the_way_out(means, cache):
    with pytest.raises(InputError, match=r"no query has a passage scored above 0.9999 .*Lower s_pos"):
        cache.get(material("pseudo_labels", means, depth=6, s_pos=0.9999))


@pytest.mark.parametrize("wrong", [{"pool": "dev"}, {"first": "splade"}, {"probability": "rank"}, {"s_pos": 0.05}])
def test_what_makes_no_sense_is_refused_before_anything_runs(wrong, means):
    with pytest.raises(InputError, match=next(iter(wrong))):
        material("pseudo_labels", means, **wrong)


def test_questions_are_read_in_the_scorers_own_tokens(recipe, means, cache):
    other = open_means(recipe.with_(makers__cross_encoder__model="embedded"))
    asked, scored = (
        by_kind(material("pseudo_labels", one, pool="questions"))["candidate_scores"].inputs["queries"]
        for one in (means, other)
    )
    assert asked.kind == "questions" and scored.kind == "tokens"
    stores = [TokenStore.open(cache.get(stage) / "store") for stage in (asked, scored)]
    assert len(stores[0]) == len(stores[1]) and stores[0].tokenizer != stores[1].tokenizer
