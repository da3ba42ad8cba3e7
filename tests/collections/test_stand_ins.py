"""Stand-ins for dialogues and sentence pairs, made from a collection."""

import json

import pytest

from dr_book.data import stand_ins
from dr_book.data.stand_ins import made_dialogues, made_sentence_pairs
from dr_lib import collections
from dr_lib.errors import InputError
from dr_lib.evaluation import load_candidates
from dr_lib.evaluation.nlu import load_nlu


@pytest.fixture(autouse=True)
def made_here(tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path))
    # every split has a few queries here
    monkeypatch.setattr(collections.Collection, "without_tested", lambda self: self)


QRELS = {
    "train": ["q1\tp2\t1", "q2\tp4\t1"],
    "dev": ["q1\tp1\t1", "q2\tp4\t1"],
    "test": ["q1\tp3\t0", "q1\tp2\t1", "q2\tp4\t2"],
}


@pytest.fixture
def tiny(beir_folder, cache, monkeypatch):
    monkeypatch.setattr(stand_ins, "RESPONSE", 3)
    monkeypatch.setattr(stand_ins, "SECOND", 2)
    return collections.load(str(beir_folder(qrels=QRELS)), cache=cache)


def test_context_is_a_query_and_response_the_beginning_of_its_passage(tiny):
    folder = made_dialogues(tiny)
    assert [
        json.loads(line) for line in (folder / "pairs" / "train.jsonl").read_text().splitlines()
    ] == [
        {"context": ["what is thin"], "response": "The boundary layer", "candidates": []},
        {"context": ["what is hot"], "response": "A jet is", "candidates": []},
    ]


def test_candidates_are_each_others_responses_once(tiny):
    found = load_candidates(made_dialogues(tiny), "test")
    assert found.texts == ["The boundary layer", "A jet is"]
    assert found.candidates.tolist() == [[0, 1], [1, 0]] and found.correct.tolist() == [0, 1]


def test_a_context_has_as_many_candidates_where_its_neighbours_ask_about_the_same_passage(
    beir_folder, cache
):
    passages = [{"_id": f"p{row}", "text": f"{row} begins so"} for row in range(30)]
    queries = [{"_id": f"q{row}", "text": f"what begins with {row}"} for row in range(60)]
    test = [f"q{row}\tp{row // 2}\t1" for row in range(60)]
    folder = beir_folder(corpus=passages, queries=queries, qrels={"train": test[:1], "test": test})
    made = load_candidates(made_dialogues(collections.load(str(folder), cache=cache)), "test")
    assert made.candidates.shape == (60, 20) and made.candidates.min() >= 0
    assert (
        made.correct.tolist() == made.candidates[:, 0].tolist()
        and len(set(map(tuple, made.candidates))) == 30
    )


def test_each_query_stands_with_its_passage_and_with_the_one_before(tiny):
    folder = made_sentence_pairs(tiny)
    assert (
        (folder / "train.tsv").read_text()
        == "sentence1\tsentence2\tlabel\nwhat is thin\tThe boundary\t1\nwhat is thin\tA jet\t0\n"
        "what is hot\tA jet\t1\nwhat is hot\tThe boundary\t0\n"
    )
    assert load_nlu("mrpc", folder, "train").targets.tolist() == [1, 0, 1, 0]


def test_of_several_queries_about_one_passage_none_stands_with_it_as_a_wrong_one(
    beir_folder, cache, tmp_path, monkeypatch
):
    """SQuAD has five consecutive questions per paragraph: three of four pairs would be called both
    right and wrong.
    """
    asked = {
        "train": ["q1\tp2\t1", "q2\tp2\t1", "q3\tp4\t1"],
        "dev": ["q1\tp1\t1", "q2\tp1\t1", "q3\tp1\t1"],
    }
    monkeypatch.setattr(stand_ins, "SECOND", 2)
    neighbours = collections.load(str(beir_folder(qrels=asked)), cache=cache)
    with pytest.raises(InputError, match="split dev: no two passages begin differently"):
        made_sentence_pairs(neighbours)
    lines = next((tmp_path / "made").rglob("train.tsv")).read_text().splitlines()[1:]
    assert [line.split("\t")[1:] for line in lines[:4]] == 2 * [
        ["The boundary", "1"],
        ["A jet", "0"],
    ]
    assert lines[4:] == ["nobody judged this\tA jet\t1", "nobody judged this\tThe boundary\t0"]


def test_default_place_is_in_the_cache_and_tells_collections_apart(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "other"))
    folder = made_sentence_pairs(tiny)
    assert folder.is_relative_to(tmp_path / "other") and tiny.digest[:12] in folder.parts
    assert made_dialogues(tiny) != folder


def test_query_without_a_relevant_passage_is_named(beir_folder, cache):
    bare = collections.load(str(beir_folder(qrels={**QRELS, "dev": ["q1\tp1\t0"]})), cache=cache)
    with pytest.raises(InputError, match="'q1' has no relevant passage"):
        made_sentence_pairs(bare)
