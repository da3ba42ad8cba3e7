"""Dialogues and sentence pairs made from a collection: what stands in them, by hand, and that they open again."""

import json

import pytest

from dr_lib import collections
from dr_lib.collections import load_candidates, made_dialogues, made_sentence_pairs
from dr_lib.errors import InputError
from dr_lib.evaluation import load_nlu

QRELS = {"train": ["q1\tp2\t1", "q2\tp4\t1"], "dev": ["q1\tp1\t1"], "test": ["q1\tp3\t0", "q1\tp2\t1", "q2\tp4\t2"]}


@pytest.fixture
def tiny(beir_folder, cache):
    return collections.load(str(beir_folder(qrels=QRELS)), cache=cache)


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_context_is_a_query_and_response_the_beginning_of_its_passage(tiny, tmp_path):
    folder = made_dialogues(tiny, words=3, folder=tmp_path / "made")
    assert read_lines(folder / "pairs" / "train.jsonl") == [
        {"context": ["what is thin"], "response": "The boundary layer", "candidates": []},
        {"context": ["what is hot"], "response": "A jet is", "candidates": []},
    ]


def test_candidates_are_each_others_responses_once(tiny, tmp_path):
    found = load_candidates(made_dialogues(tiny, words=3, folder=tmp_path / "made"), "test")
    assert found.texts == ["The boundary layer", "A jet is"]
    assert found.candidates.tolist() == [[0, 1], [1, 0]] and found.correct.tolist() == [0, 1]


def test_each_query_stands_with_its_passage_and_with_the_one_before(tiny, tmp_path):
    folder = made_sentence_pairs(tiny, words=2, folder=tmp_path / "made")
    assert (folder / "train.tsv").read_text() == (
        "sentence1\tsentence2\tlabel\n"
        "what is thin\tThe boundary\t1\nwhat is thin\tA jet\t0\n"
        "what is hot\tA jet\t1\nwhat is hot\tThe boundary\t0\n"
    )
    assert load_nlu("mrpc", folder, "train").targets.tolist() == [1, 0, 1, 0]


def test_default_place_is_in_the_cache_and_tells_collections_apart(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "other"))
    folder = made_sentence_pairs(tiny)
    assert folder.is_relative_to(tmp_path / "other") and tiny.digest[:12] in folder.parts
    assert made_dialogues(tiny) != folder


def test_query_without_a_relevant_passage_is_named(beir_folder, cache, tmp_path):
    bare = collections.load(str(beir_folder(qrels={**QRELS, "dev": ["q1\tp1\t0"]})), cache=cache)
    with pytest.raises(InputError, match="'q1' has no relevant passage"):
        made_sentence_pairs(bare, folder=tmp_path / "made")
