"""Words that queries share with passages, and words that vectors hold, against loops."""

import math

import datasets
import numpy as np
import pytest
import torch

from dr_lib.evaluation import Scores, covered, overlap
from dr_lib.lab import open_sample, pipeline
from dr_lib.models import load_masked_lm
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
def test_coverage_equals_sets(seed):
    rng = np.random.default_rng(seed)
    logits = rng.integers(0, 6, (7, 30)).astype(np.float32)  # with ties
    own = rng.random((7, 30)) < rng.random((7, 1))
    own[0] = False
    found = covered(torch.from_numpy(logits), torch.from_numpy(own), first=(1, 5, 100))
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
