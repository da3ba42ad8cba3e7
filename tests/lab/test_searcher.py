"""Asking a collection: every system finds what it should, indexes are made once, a record leads to its models."""

import io
import json
import shutil
import sys

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from dr_lib.__main__ import main
from dr_lib.errors import InputError
from dr_lib.files import json_digest
from dr_lib.lab.cache import Cache
from dr_lib.lab.finished import collection_of, find_record, models_of, open_models
from dr_lib.lab.job import Job, run_job
from dr_lib.lab.opening import open_sample
from dr_lib.lab.searcher import open_searcher, searcher_for
from dr_lib.models import CrossEncoder, CrossEncoderSettings
from dr_lib.retrieval import Ranking
from dr_lib.tokens import load_tokenizer


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The cache of this test is that of the machine."""
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def run(here, tiny_recipe):
    """A finished run, its record saved where records of this machine lie."""
    recipe = tiny_recipe.with_(objective="none", seed=0)
    record = run_job(Job("tests/search", "no pre-training", "smoke", recipe), Cache(announce=lambda line: None))
    return record, recipe, record.save(here / "cache" / "records" / "smoke")


def test_a_dense_system_ranks_as_the_run_did(run):
    record, recipe, _ = run
    collection, cache = open_sample(recipe.collection), Cache(announce=lambda line: None)
    queries = collection.queries("test")
    searcher = open_searcher(collection, dense={"mine": models_of(record)}, cache=cache)
    answers = searcher.ask(queries["text"][:], k=20)
    folder = next(path for path in cache.root.glob("run-*") if path.is_dir())
    expected = Ranking.open(folder / "ranking")
    ids = collection.passages["id"][:]
    for answer, rows in zip(answers, expected.rows.tolist(), strict=True):
        assert [hit.id for hit in answer.hits["mine"]] == [ids[row] for row in rows if row >= 0]
        assert answer.relevant == 1


def test_indexes_are_made_once(run):
    record, recipe, _ = run
    collection, made = open_sample(recipe.collection), []
    for _ in range(2):
        cache = Cache(announce=lambda line: None)
        open_searcher(collection, dense={"mine": models_of(record)}, cache=cache)
        made.append(cache.built)
    assert any(name.startswith("search_vectors") for name in made[0]) and not made[1]


def test_judged_passages_are_known_by_the_text_of_the_query(run):
    recipe = run[1]
    collection = open_sample(recipe.collection)
    searcher = open_searcher(collection, cache=Cache(announce=lambda line: None))
    query = collection.queries("train")[0]
    (judged,) = searcher.ask([query["text"]], k=40)
    (relevant,) = (hit.id for hit in judged.hits["BM25"] if hit.grade)
    assert collection.qrels("train")[query["id"]] == {relevant: 1}
    assert searcher.ask(["a question of my own"])[0].relevant is None


def test_a_re_ranker_orders_what_the_first_search_found(run, tmp_path):
    recipe = run[1]
    tokenizer = load_tokenizer(recipe.base)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, num_labels=1,
    )  # fmt: skip
    torch.manual_seed(0)
    CrossEncoder(BertForSequenceClassification(config), CrossEncoderSettings(length=32), tokenizer).save(tmp_path / "x")
    searcher = open_searcher(open_sample(recipe.collection), reranker=tmp_path / "x", cache=Cache())
    (answer,) = searcher.ask(["dense retriever maps queries"], k=40)
    first, second = answer.hits["BM25"], answer.hits["BM25, re-ranked"]
    assert {hit.id for hit in first} == {hit.id for hit in second}
    assert [hit.score for hit in second] == sorted((hit.score for hit in second), reverse=True)
    assert [hit.id for hit in first] != [hit.id for hit in second]


@pytest.mark.parametrize(("query", "k", "problem"), [("  ", 5, "empty"), ("a", 0, "k is 0")])
def test_an_empty_question_is_refused(run, query, k, problem):
    searcher = open_searcher(open_sample(run[1].collection), cache=Cache())
    with pytest.raises(InputError, match=problem):
        searcher.ask([query], k)


def test_the_command_line_answers_from_a_record(run, here, capsys, monkeypatch):
    monkeypatch.setenv("DR_DATA", str(here))  # a record holds names, no paths
    monkeypatch.setattr(sys, "stdin", io.StringIO("dense retriever\n\nhard negatives\n"))
    assert main(["search", str(run[2]), "--json", "-k", "3"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line["query"] for line in lines] == ["dense retriever", "hard negatives"]
    assert set(lines[0]["hits"]) == {"BM25", "no pre-training"} and len(lines[0]["hits"]["no pre-training"]) == 3


def test_the_command_line_exports_by_the_names_of_a_study(run, here, capsys):
    to = here / "exported"
    assert main(["export", "--study", "tests/search", "--scale", "smoke", "--to", str(to)]) == 0
    card = (to / "README.md").read_text()
    assert "no pre-training: tests/search" in card and run[0].data["collection"]["digest"] in card
    assert main(["search", run[1].collection.name, "dense vectors", "--model", str(to), "--no-bm25"]) == 0
    assert "exported" in capsys.readouterr().out


def test_a_record_whose_stages_are_gone_says_so(run, tmp_path):
    with pytest.raises(InputError, match="is not in"):
        models_of(run[0], Cache(tmp_path / "elsewhere"))


def test_a_collection_that_has_changed_is_not_searched_under_a_record(run, tmp_path):
    record, recipe, _ = run
    changed = record.model_copy(update={"data": {**record.data, "collection": {"name": "tiny", "digest": "0" * 64}}})
    changed.recipe["collection"]["name"] = recipe.collection.name
    with pytest.raises(InputError, match="has changed since"):
        collection_of(changed)


def test_the_newest_run_of_the_lowest_seed_is_found(run, tmp_path):
    record = run[0]
    others = [(0, "2099-01-01", "a" * 64), (1, "2100-01-01", "b" * 64)]
    for seed, created, key in others:
        recipe = record.recipe | {"seed": seed}
        changed = {"seed": seed, "recipe": recipe, "recipe_digest": json_digest(recipe), "created": created}
        changed["keys"] = record.keys | {"evaluation": key}
        record.model_copy(update=changed).save(tmp_path / "records")
    record.save(tmp_path / "records")
    assert find_record("tests/search", folder=tmp_path / "records").created == "2099-01-01"
    assert find_record("tests/search", seed=1, folder=tmp_path / "records").created == "2100-01-01"


def test_labels_to_choose_from_are_named(run):
    with pytest.raises(InputError, match="'no pre-training'"):
        find_record("tests/search", "other", scale="smoke")


def test_models_of_one_name_are_told_apart(run, here, monkeypatch):
    monkeypatch.setenv("DR_DATA", str(here))
    places = [here / name / "model" for name in "ab"]
    for place in places:
        shutil.copytree(models_of(run[0])["retriever"], place)
    found = searcher_for(run[1].collection.name, places, bm25=False)
    assert list(found.systems) == ["model", f"model ({places[1]})"]


def test_two_exported_encoders_are_opened_by_the_folder_that_holds_both(run, here):
    models = {kind: here / "both" / kind for kind in ("query-encoder", "passage-encoder")}
    for place in models.values():
        shutil.copytree(models_of(run[0])["retriever"], place)
    assert open_models(here / "both") == (models, None)
    shutil.rmtree(models["query-encoder"])
    with pytest.raises(InputError, match="no folder with dense"):
        open_models(here / "both")


def test_mistakes_at_the_command_line_end_in_one_line_that_names_the_place(run, here, capsys, monkeypatch):
    monkeypatch.setenv("DR_DATA", str(here))
    tokenizer, config = load_tokenizer(run[1].base), BertConfig(hidden_size=4, num_attention_heads=1, num_labels=1)
    config.vocab_size, config.max_position_embeddings = len(tokenizer), 64
    CrossEncoder(BertForSequenceClassification(config), CrossEncoderSettings(length=32), tokenizer).save(here / "x")
    (here / "file").write_text("")
    collection = run[1].collection.name
    for arguments, told in (
        (["search", collection, "masks", "--model", here / "x"], "searches nothing by itself"),
        (["search", collection, "masks", "--model", here / "tiny"], "no folder with dense.json"),
        (["search", here / "gone.json", "masks"], "gone.json: no record"),
        (["search", here / "gone", "masks", "-k", "0"], "k is 0"),
        (["export", "--study", "tests/none", "--to", here / "e"], "tests/none at laptop"),
        (["export", run[2], "--to", here / "file" / "e"], "file"),
    ):
        assert main([str(one) for one in arguments]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and told in line
