"""PAIR's pseudo-labels as stages on forty passages: from every pool and both retrievers, and what re-runs."""

import json

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.files import read_json
from dr_lib.lab.builds import examples
from dr_lib.lab.materials import material
from dr_lib.lab.way import open_means, unfold
from dr_lib.retrieval import Ranking
from dr_lib.tokens import TokenStore
from dr_lib.training import Examples, RetrievalBatches

SENTENCES = ["what does the decoder see", "how are vectors compared", "hard negatives"]
WORDS = ["a", "dense", "retriever", "maps", "queries", "and", "passages", "to", "vectors", "and", "compares", "them"]
ALL = {"depth": 6, "s_pos": 1e-6, "s_neg": 0.0}  # a scorer of two steps is sure of nothing


@pytest.fixture
def recipe(tiny_recipe):
    scorer = {"steps": 2, "batch_queries": 4, "negatives": 3, "length": 40, "precision": "fp32"}
    writer = {"steps": 2, "tokens_per_batch": 256, "precision": "fp32"}
    makers = {"cross_encoder": scorer, "questions": writer}
    return tiny_recipe.with_(**{f"makers__{maker}__{name}": value for maker, values in makers.items()
                                for name, value in values.items()})  # fmt: skip


@pytest.fixture
def labelled(recipe):
    """Means and stage of the pseudo-labels: `labelled(depth=6)`; a key with `__` is one of the whole recipe."""

    def make(**chosen):
        changes = {key if "__" in key or key == "seed" else f"makers__pseudo_labels__{key}": value
                   for key, value in chosen.items()}  # fmt: skip
        means = open_means(recipe.with_(**changes))
        return means, material("pseudo_labels", means)

    return make


@pytest.fixture
def unlabelled(tmp_path, monkeypatch):
    """Where to find a file of fourteen distinct queries that nobody has labelled, under DR_DATA."""
    asked = [*SENTENCES, *(" ".join(WORDS[place : place + 3]) for place in range(11)), SENTENCES[0].upper(), " "]
    path = tmp_path / "data" / "log" / "queries.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps({"_id": str(row), "text": text}) + "\n" for row, text in enumerate(asked)))
    monkeypatch.setenv("DR_DATA", str(tmp_path / "data"))
    return path


def by_kind(stage):
    return {one.kind: one for one in stage.walk()}


@pytest.mark.parametrize(
    ("pool", "first"),
    [("train", "bm25"), ("train", "dense"), ("questions", "bm25"), ("file", "bm25"), ("file", "dense")],
)
def test_pairs_come_from_each_pool_and_each_retriever(pool, first, labelled, unlabelled, cache):
    means, stage = labelled(pool=pool, first=first, **({"file": "log"} if pool == "file" else {}), **ALL)
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
    if pool != "questions":
        assert len(queries) == (12 if pool == "train" else 14)


def test_of_unlabelled_queries_no_passage_is_known(labelled, unlabelled, cache):
    _, stage = labelled(pool="file", file="log", **ALL)
    counts = read_json(cache.get(stage) / "counts.json")["chosen"]
    assert counts["queries"] == 14 and counts["positives"] > 0 and counts["known_retrieved"] == 0
    assert read_json(cache.get(by_kind(stage)["unlabelled_queries"]) / "counts.json") == {
        "read": 16, "empty": 1, "repeated": 1,
    }  # fmt: skip


def test_a_file_of_queries_counts_by_its_content(labelled, unlabelled):
    by_name, by_path = (labelled(pool="file", file=name) for name in ("log", str(unlabelled)))
    assert by_name[1].key == by_path[1].key != labelled()[1].key
    assert str(unlabelled.parent) not in json.dumps(by_path[0].recipe.portable())
    unlabelled.write_text(unlabelled.read_text() + json.dumps({"_id": "n", "text": "one more"}) + "\n")
    assert labelled(pool="file", file="log")[1].key != by_name[1].key


def test_a_recipe_without_a_file_of_queries_keeps_its_digest(recipe):
    assert "file" not in recipe.portable()["makers"]["pseudo_labels"]


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"pool": "file"}, "go together"),
        ({"file": "log"}, "go together"),
        ({"pool": "file", "file": "nowhere"}, r"no file of queries.*queries\.jsonl"),
    ],
)
def test_a_pool_without_its_file_is_refused(chosen, told, labelled):
    with pytest.raises(InputError, match=told):
        labelled(**chosen)


def test_a_line_that_is_no_query_is_named(labelled, unlabelled, cache):
    unlabelled.write_text(unlabelled.read_text() + '{"_id": "n", "question": "who?"}\n')
    with pytest.raises(InputError, match=r"queries\.jsonl line 17: field text is missing"):
        cache.get(by_kind(labelled(pool="file", file="log")[1])["unlabelled_queries"])


def test_counts_tell_the_labels_and_what_nobody_looked_at(labelled, cache):
    _, stage = labelled(**ALL)
    counts = read_json(cache.get(stage) / "counts.json")
    chosen = counts["chosen"]
    examples = Examples.open(cache.get(stage) / "examples")
    assert (chosen["queries"], chosen["queries_kept"]) == (12, len(examples))
    assert chosen["positives"] == len(examples.positives) and chosen["negatives"] == 0
    assert chosen["kept_without_negative"] == len(examples)
    assert 0 < chosen["known_retrieved"] == chosen["known_positive"] <= 12
    assert [row["s_pos"] for row in counts["thresholds"]] == [0.9, 0.8, 0.7, 0.6]


def test_other_thresholds_score_nothing_again(labelled):
    stages = [labelled(s_pos=high, s_neg=0.1)[1] for high in (0.9, 0.8)]
    first, second = ({one.key for one in stage.walk()} for stage in stages)
    assert first ^ second == {stage.key for stage in stages}


def test_the_scorer_is_trained_for_the_probability_that_is_asked_of_it(labelled):
    pointwise, listwise = (by_kind(labelled(probability=name)[1])["cross_encoder"] for name in ("sigmoid", "softmax"))
    assert pointwise.params["loss"] == "pointwise" and listwise.params["loss"] == "listwise"


def test_the_pairs_do_not_depend_on_the_seed_of_a_run(labelled):
    for first, same in (("bm25", True), ("dense", False)):
        keys = {labelled(first=first, seed=seed)[1].key for seed in (0, 5)}
        assert (len(keys) == 1) is same


def test_softmax_thresholds_share_one_among_the_candidates(labelled, cache):
    _, stage = labelled(depth=6, probability="softmax", s_pos=0.1, s_neg=0.05)
    scores = np.load(cache.get(by_kind(stage)["candidate_scores"]) / "scores.npy")
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    counts = read_json(cache.get(stage) / "counts.json")["chosen"]
    kept = (chances > 0.1).any(1)
    assert (counts["queries_kept"], counts["positives"]) == (kept.sum(), (chances > 0.1).sum())


def test_an_unsure_scorer_is_named_with_the_way_out(labelled, cache):
    with pytest.raises(InputError, match=r"no query has a passage scored above 0.9999 .*Lower s_pos"):
        cache.get(labelled(depth=6, s_pos=0.9999)[1])


@pytest.mark.parametrize("wrong", [{"pool": "dev"}, {"first": "splade"}, {"probability": "rank"}, {"s_pos": 0.05}])
def test_what_makes_no_sense_is_refused_before_anything_runs(wrong, labelled):
    with pytest.raises(InputError, match=r"makers\.pseudo_labels"):
        labelled(**wrong)


@pytest.mark.parametrize(
    ("pool", "kind"), [({"pool": "questions"}, "questions"), ({"pool": "file", "file": "log"}, "unlabelled_queries")]
)
def test_texts_are_read_in_the_scorers_own_tokens(pool, kind, labelled, unlabelled, cache):
    asked, scored = (
        by_kind(labelled(**pool, **more)[1])["candidate_scores"].inputs["queries"]
        for more in ({}, {"makers__cross_encoder__model": "embedded"})
    )
    assert asked.kind == kind and scored.kind == "tokens"
    stores = [TokenStore.open(cache.get(stage) / "store") for stage in (asked, scored)]
    assert len(stores[0]) == len(stores[1]) and stores[0].tokenizer != stores[1].tokenizer


def test_given_labels_make_pairs_without_any_scorer(labelled, cache):
    means, stage = labelled(labels="given")
    assert not {"cross_encoder", "candidates"} & by_kind(stage).keys()
    found = Examples.open(cache.get(stage) / "examples")
    assert found.positives.tolist() == list(range(12))  # query r is about passage r
    negatives = np.load(cache.get(means.negatives) / "negatives.npy")
    np.testing.assert_array_equal(found.negatives, negatives)
    assert len(TokenStore.open(cache.get(stage) / "queries")) == 12


def test_fine_tuning_can_learn_from_pseudo_labels_too(recipe, cache):
    made = {f"makers__pseudo_labels__{name}": value for name, value in ALL.items()}
    plain = recipe.with_(objective="none", **made)
    both = plain.with_(finetuning__pseudo_labels=True)
    assert unfold(plain).retriever.key == unfold(recipe.with_(objective="none")).retriever.key
    stage = unfold(both).retriever
    given, read = (examples(unfold(one).collection, {name: cache.get(made) for name, made in inputs.items()})
                   for one, inputs in ((plain, unfold(plain).retriever.inputs), (both, stage.inputs)))  # fmt: skip
    labels = Examples.open(cache.get(stage.inputs["pseudo_labels"]) / "examples")
    expected = {(query, passage) for part in (given, labels) for query, passage in pairs_of(part)}
    assert set(pairs_of(read)) == expected and len(expected) > len(given)
    assert (cache.get(stage) / "model" / "model.safetensors").is_file()


def pairs_of(part):
    owners = np.repeat(part.query_rows, part.counts())
    return list(zip(owners.tolist(), part.positives.tolist(), strict=True))


@pytest.mark.parametrize("pool", [{"pool": "questions"}, {"pool": "file", "file": "log"}])
def test_fine_tuning_reads_no_labels_of_other_queries(pool, recipe):
    chosen = {f"makers__pseudo_labels__{name}": value for name, value in pool.items()}
    with pytest.raises(InputError, match=f"pool '{pool['pool']}'"):
        unfold(recipe.with_(finetuning__pseudo_labels=True, **chosen))


def test_a_distilled_retriever_reads_no_pseudo_labels(recipe):
    with pytest.raises(InputError, match="teacher"):
        recipe.with_(distillation__pseudo_labels=True)
