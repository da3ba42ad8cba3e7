"""The whole way on forty passages: what is shared, what re-runs, what a kill leaves, and what a record tells."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dr_lib.errors import InputError
from dr_lib.evaluation import Scores
from dr_lib.lab.cache import Cache
from dr_lib.lab.job import Job, run_job
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.records import Record, load_record
from dr_lib.lab.study import Study
from dr_lib.lab.way import unfold, unfold_bm25
from dr_lib.models import DenseEncoder, load_extra
from dr_lib.tokens import TokenStore

# Runs one recipe and saves the record; prints the stages it built itself. A fourth argument is the update of the
# first training at which the process kills itself.
RUN = """
import os, signal, sys
from pathlib import Path
from dr_lib.training import loop
from dr_lib.lab.cache import Cache
from dr_lib.lab.job import Job, run_job
from dr_lib.lab.recipe import Recipe

def rate(settings, update, original=loop.learning_rate):
    if update == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
    return original(settings, update)

if len(sys.argv) > 4:
    loop.learning_rate = rate
cache = Cache(Path(sys.argv[2]), announce=lambda line: None)
record = run_job(Job("simlm/test", "row", "smoke", Recipe.load(Path(sys.argv[1]))), cache)
record.save(Path(sys.argv[3]))
print(" ".join(cache.built))
"""


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))


def start(recipe: Recipe, folder: Path, name: str, *more: str) -> subprocess.Popen:
    path = folder / f"{name}.yaml"
    recipe.save(path)
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(path), str(folder / "stages"), str(folder / name), *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen, folder: Path, name: str) -> tuple[Record, list[str]]:
    told, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    (path,) = (folder / name).glob("*.json")
    return load_record(path), told.split()


def kinds(built: list[str]) -> list[str]:
    return sorted(name.rsplit("-", 1)[0] for name in built)


def job(recipe: Recipe) -> Job:
    return Job("simlm/test", "row", "smoke", recipe)


def test_a_second_execution_trains_nothing(tiny_recipe, cache, tmp_path):
    options = {"scale": "smoke", "cache": cache, "records": tmp_path / "records", "progress": False}
    recipes = {"simlm": tiny_recipe, "none": tiny_recipe.with_(objective="none")}
    first = Study("simlm/test", recipes, **options).run()
    assert kinds(cache.built).count("pretrained") == 1
    built = len(cache.built)
    assert Study("simlm/test", recipes, **options).run().runs() == first.runs()
    assert len(cache.built) == built


def test_without_its_record_a_finished_run_trains_nothing_either(tiny_recipe, cache):
    first = run_job(job(tiny_recipe), cache)
    built = len(cache.built)
    again = run_job(job(tiny_recipe), cache)
    assert len(cache.built) == built
    assert again.scores == first.scores


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({"objective__decoder_rate": 0.7}, ["evaluation", "pretrained", "retriever", "run", "vectors"]),
        ({"finetuning__temperature": 0.05}, ["evaluation", "retriever", "run", "vectors"]),
        ({"negatives__depth": 4}, ["bm25_ranking", "evaluation", "negatives", "retriever", "run", "vectors"]),
        ({"evaluation__measures": ["MRR@10"]}, ["evaluation"]),
        ({"evaluation__split": "dev"}, ["evaluation", "run", "tokens"]),
        ({"evaluation__depth": 10}, ["evaluation", "run"]),
        ({"seed": 1}, ["evaluation", "pretrained", "retriever", "run", "vectors"]),
        ({"objective": "none"}, ["evaluation", "retriever", "run", "vectors"]),
        ({"pretraining__checkpoint_every": 3}, []),
    ],
)
def test_a_change_re_runs_only_what_depends_on_it(tiny_recipe, change, again):
    before = {stage.name for stage in unfold(tiny_recipe).evaluation.walk()}
    after = {stage.name for stage in unfold(tiny_recipe.with_(**change)).evaluation.walk()}
    assert kinds(list(after - before)) == again


def test_a_changed_query_count_keeps_nothing_that_saw_the_collection(tiny_recipe):
    smaller = tiny_recipe.with_(collection__test_queries=4)
    before, after = ({stage.name for stage in unfold(recipe).evaluation.walk()} for recipe in (tiny_recipe, smaller))
    assert not before & after


def test_content_counts_and_places_do_not(tiny_recipe, tmp_path):
    moved = tmp_path / "elsewhere" / "tiny"
    moved.parent.mkdir()
    (tmp_path / "tiny").rename(moved)
    there = tiny_recipe.with_(collection=str(moved))
    key = unfold(there).evaluation.key
    corpus = moved / "corpus.jsonl"
    moved.rename(tmp_path / "tiny")
    assert unfold(tiny_recipe).evaluation.key == key
    assert there.digest == tiny_recipe.digest
    assert corpus.name == "corpus.jsonl"


@pytest.mark.slow
def test_a_killed_pre_training_continues_to_the_same_record(tiny_recipe, cache, tmp_path):
    recipe = tiny_recipe.with_(pretraining__steps=30, pretraining__checkpoint_every=10)
    process = start(recipe, tmp_path, "killed", "23")
    process.communicate(timeout=600)
    assert process.returncode == -signal.SIGKILL
    (left,) = tmp_path.glob("stages/pretrained-*.partial")
    assert (left / "checkpoint-20").is_dir()
    resumed = run_job(job(recipe), cache)
    elsewhere = Cache(tmp_path / "elsewhere", announce=lambda line: None)
    unbroken = run_job(job(recipe), elsewhere)
    assert len(cache.built) < len(elsewhere.built)  # what was finished before the kill was kept
    assert resumed.training["pretrained"]["resumed_at"] == [20]
    assert unbroken.training["pretrained"]["resumed_at"] == []
    for record in (resumed, unbroken):
        assert record.training["pretrained"]["weights"]["model/model.safetensors"]
    assert _without_times(resumed) == _without_times(unbroken)


def _without_times(record: Record) -> dict:
    content = json.loads(record.model_dump_json(exclude={"seconds", "created"}))
    for facts in content["training"].values():
        for name in ("resumed_at", "wall_seconds", "train_seconds", "tokens_per_second", "peak_memory"):
            facts.pop(name)
        facts["curve"].pop("tokens_per_second")
    return content


@pytest.mark.slow
def test_two_runs_at_once_share_stages_without_doing_them_twice(tiny_recipe, tmp_path):
    recipes = {"first": tiny_recipe, "second": tiny_recipe.with_(objective__decoder_rate=0.7)}
    under_way = {name: start(recipe, tmp_path, name) for name, recipe in recipes.items()}
    done = {name: finish(process, tmp_path, name) for name, process in under_way.items()}
    built = [stage for _, stages in done.values() for stage in stages]
    assert len(built) == len(set(built))
    assert kinds(built).count("tokens") == 3
    assert kinds(built).count("negatives") == 1
    assert kinds(built).count("pretrained") == 2


def test_a_record_tells_what_was_run_and_no_place(tiny_recipe, cache, tmp_path):
    record = run_job(job(tiny_recipe), cache)
    text = record.save(tmp_path / "records").read_text()
    assert str(tmp_path) not in text
    assert record.recipe_digest == tiny_recipe.digest
    assert record.data["collection"]["name"] == "tiny"
    assert record.data["collection"]["test_queries"] == 6
    assert len(record.per_query("MRR@10")) == 6
    assert record.means["MRR@10"] == pytest.approx(record.per_query("MRR@10").mean())
    assert set(record.training) == {"pretrained", "retriever"}
    assert {"passages", "negatives", "pretrained", "retriever", "vectors", "run", "evaluation"} <= set(record.keys)


def test_bm25_alone_is_evaluated_on_the_same_queries(tiny_recipe, cache):
    scores = Scores.load(cache.get(unfold_bm25(tiny_recipe).evaluation) / "scores.json")
    assert scores.mean("MRR@10") > 0.6  # each query is three words of its passage


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"evaluation__split": "tests"}, "tests"),
        ({"passage_length": 200}, "passage_length.*64"),
        ({"finetuning__batch_queries": 100}, "batch_queries"),
        ({"base": "/nowhere/at/all"}, "nowhere"),
        ({"collection": "/nowhere/at/all"}, "nowhere"),
        ({"evaluation__measures": ["MMR@10"]}, "MMR@10"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(tiny_recipe, change, said):
    with pytest.raises(InputError, match=said):
        unfold(tiny_recipe.with_(**change))


def test_two_encoders_are_trained_and_searched_with(tiny_recipe, cache):
    record = run_job(job(tiny_recipe.with_(finetuning__shared=False, objective="none")), cache)
    assert set(record.training["retriever"]["weights"]) == {
        "model/model.safetensors",
        "passage_model/model.safetensors",
    }


def test_a_long_query_can_lose_its_beginning_in_training_and_in_search(tiny_recipe, cache):
    recipe = tiny_recipe.with_(objective="none", query_length=5)
    plain, left = unfold(recipe), unfold(recipe.with_(query_side="left"))
    assert plain.retriever.key != left.retriever.key and plain.negatives.key == left.negatives.key
    encoder = DenseEncoder.from_pretrained(cache.get(left.retriever) / "model")
    assert encoder.settings.query_side == "left"
    store = TokenStore.open(cache.get(left.queries) / "store")
    last = store.batch(np.arange(len(store)), max_length=5, title="none", side="left")
    assert (store.lengths(99, "none") > 5).any()
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(encoder.eval()(last), dim=1).numpy()
    np.testing.assert_allclose(np.load(cache.get(left.run) / "queries.npy"), expected, atol=2e-2)


def test_answers_can_be_measured_by_a_recipe(tiny_recipe):
    with pytest.raises(InputError, match="accuracy@20 needs answers"):
        unfold(tiny_recipe.with_(evaluation__measures=["MRR@10", "accuracy@20"]))


def test_two_encoders_of_pre_training_go_on_as_two(tiny_recipe, cache):
    recipe = tiny_recipe.with_(objective="ict", objective__one_sentence="span", finetuning__shared=False)
    one, two = unfold(recipe), unfold(recipe.with_(objective__separate=True))
    assert one.pretrained.key != two.pretrained.key and "separate" not in one.pretrained.params["objective"]["params"]
    made, tuned = cache.get(two.pretrained), cache.get(two.retriever)
    start = {name: load_file(made / name / "model.safetensors") for name in ("model", "passage_model")}
    weight = "bert.encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(start["model"][weight], start["passage_model"][weight])
    for name, tensors in start.items():
        found = load_file(tuned / name / "model.safetensors")[weight.removeprefix("bert.")]
        nearest = min(start, key=lambda other: (start[other][weight] - found).abs().sum())
        assert nearest == name and not torch.equal(tensors[weight], found)
    bare = cache.get(unfold(recipe.with_(objective__separate=True, final="pretrained")).retriever)
    assert (bare / "passage_model" / "model.safetensors").is_file()


def test_two_encoders_are_not_fine_tuned_as_one(tiny_recipe):
    with pytest.raises(InputError, match=r"finetuning\.shared: pre-training makes two"):
        unfold(tiny_recipe.with_(objective="ict", objective__separate=True))


def test_the_projection_of_pre_training_goes_on_in_fine_tuning(tiny_recipe, cache, tmp_path):
    lines = [json.dumps({"question": f"what is {row}", "positive_ctxs": [{"title": "", "text": f"text of {row}"}],
                         "hard_negative_ctxs": []}) for row in range(12)]  # fmt: skip
    (tmp_path / "paq.jsonl").write_text("\n".join(lines) + "\n")
    recipe = tiny_recipe.with_(
        objective="paq", objective__projection=True, makers__paq_pairs__file=str(tmp_path / "paq.jsonl"),
        finetuning__projection=True, finetuning__learning_rate=1e-9,
    )  # fmt: skip
    without = unfold(recipe.with_(finetuning__projection=None))
    way = unfold(recipe)
    assert way.pretrained.key == without.pretrained.key and way.retriever.key != without.retriever.key
    made = load_extra(cache.get(way.pretrained) / "model")
    tuned = load_extra(cache.get(way.retriever) / "model")
    assert made.keys() == tuned.keys()
    for name, tensor in made.items():
        torch.testing.assert_close(tuned[name], tensor, atol=1e-5, rtol=1e-4)
    assert not load_extra(cache.get(without.retriever) / "model")
