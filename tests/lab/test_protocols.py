"""Language understanding and response selection as ends of a recipe: what is trained, shared, recorded, refused."""

import json

import numpy as np
import pytest

from dr_lib.collections.dialogue import load_candidates
from dr_lib.errors import InputError
from dr_lib.evaluation import evaluate_candidates
from dr_lib.lab.builds import open_encoder
from dr_lib.lab.job import Job, run_job
from dr_lib.lab.records import load_record
from dr_lib.lab.way import unfold


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def acceptable(tmp_path):
    """A folder in CoLA's format: a sentence is acceptable if it speaks of a vector."""
    folder, rng = tmp_path / "tiny-cola", np.random.default_rng(0)
    folder.mkdir()
    for split, rows in (("train", 48), ("dev", 20)):
        answers = rng.integers(0, 2, rows)
        lines = [
            f"x\t{answer}\t\tthe {('decoder', 'vector')[answer]} {rng.choice(['passages', 'queries'])}"
            for answer in answers
        ]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def dialogues(tmp_path):
    """Six contexts with four candidates each, in the plain format."""
    folder, rng = tmp_path / "tiny-talk", np.random.default_rng(1)
    (folder / "pairs").mkdir(parents=True)
    words = ["vector", "decoder", "passage", "query", "bottleneck", "retriever", "negatives", "masked"]
    lines = []
    for _ in range(6):
        texts = [" ".join(rng.choice(words, 3)) for _ in range(4)]
        lines.append(json.dumps({"context": [texts[2], "and?"], "response": texts[2], "candidates": texts}))
    (folder / "pairs" / "test.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def task(folder, **more) -> dict:
    return {
        "task": "cola",
        "folder": str(folder),
        "epochs": 10,
        "batch_rows": 8,
        "learning_rate": 5e-3,
        "length": 16,
    } | more


def test_a_task_is_learnt_by_the_pre_trained_encoder_and_no_retriever_is_trained(
    tiny_recipe, acceptable, cache, tmp_path
):
    record = run_job(Job("master/table07", "Ours", "smoke", tiny_recipe.with_(evaluation__nlu=task(acceptable))), cache)
    assert set(record.keys) >= {"evaluation", "pretrained"}
    assert not any(name.startswith(("retriever", "vectors", "run")) for name in cache.built)
    assert set(record.means) == {"predicted", "actual", "accuracy"}
    assert record.means["accuracy"] == 1.0
    assert record.data["collection"] == {
        "name": "tiny-cola",
        "task": "cola",
        "digest": record.data["collection"]["digest"],
    }
    assert record.data["trained_on"]["name"] == "tiny"
    assert str(tmp_path) not in record.model_dump_json()
    assert load_record(record.save(tmp_path / "records")).means == record.means


def test_the_encoder_is_left_as_it_is_and_the_work_is_dropped(tiny_recipe, acceptable, cache):
    way = unfold(tiny_recipe.with_(evaluation__nlu=task(acceptable)))
    before = cache.get(way.pretrained).joinpath("model", "model.safetensors").read_bytes()
    folder = cache.get(way.evaluation)
    assert sorted(path.name for path in folder.iterdir()) == ["log.json", "manifest.json", "scores.json"]
    assert cache.folder(way.pretrained).joinpath("model", "model.safetensors").read_bytes() == before


def test_a_task_that_was_cut_off_goes_on_to_the_same_answers(tiny_recipe, acceptable, cache, tmp_path, monkeypatch):
    way = unfold(tiny_recipe.with_(objective="none", evaluation__nlu=task(acceptable)))
    whole = (cache.get(way.evaluation) / "scores.json").read_text()
    other = type(cache)(tmp_path / "again", announce=lambda line: None)
    with monkeypatch.context() as broken:
        broken.setattr("dr_lib.evaluation.nlu.predict", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            other.get(way.evaluation)
    assert list(other.partial(way.evaluation).glob("checkpoint-work/training/checkpoint-*"))
    assert (other.get(way.evaluation) / "scores.json").read_text() == whole


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 1},
        {"learning_rate": 1e-3},
        {"train_rows": 24},
        {"split": "train"},
        {"dropout": 0.5},
        {"task": "mrpc"},
    ],
)
def test_every_setting_of_a_task_makes_another_stage(tiny_recipe, acceptable, change):
    one, other = (
        unfold(tiny_recipe.with_(evaluation__nlu=task(acceptable, **more))).evaluation.key for more in ({}, change)
    )
    assert one != other


def test_changed_rows_make_another_stage_and_another_folder_does_not(tiny_recipe, acceptable, tmp_path):
    first = unfold(tiny_recipe.with_(evaluation__nlu=task(acceptable))).evaluation.key
    moved = acceptable.rename(tmp_path / "elsewhere")
    assert unfold(tiny_recipe.with_(evaluation__nlu=task(moved))).evaluation.key == first
    with (moved / "dev.tsv").open("a") as file:
        file.write("x\t1\t\tanother vector\n")
    assert unfold(tiny_recipe.with_(evaluation__nlu=task(moved))).evaluation.key != first


def test_only_the_first_training_rows_are_read_if_so_asked(tiny_recipe, acceptable, cache):
    way = unfold(tiny_recipe.with_(objective="none", evaluation__nlu=task(acceptable, train_rows=16, epochs=2)))
    assert json.loads((cache.get(way.evaluation) / "log.json").read_text())["steps"] == 4


def test_candidates_are_ranked_by_the_retriever_of_the_recipe(tiny_recipe, dialogues, cache):
    recipe = tiny_recipe.with_(objective="none", evaluation__dialogue={"folder": str(dialogues), "context_length": 24})
    way = unfold(recipe)
    record = run_job(Job("dpr_paq/table03", "row", "smoke", recipe), cache)
    encoder = open_encoder(cache.get(way.retriever) / "model")
    again = evaluate_candidates(encoder, load_candidates(dialogues, "test"), context_length=24, progress=False)
    assert set(record.means) == {"R@1", "MRR"}
    assert np.array_equal(record.per_query("MRR"), again.per_query("MRR"))
    assert record.data["collection"]["name"] == "tiny-talk"


def test_two_encoders_read_contexts_and_responses(tiny_recipe, dialogues, cache):
    shared = tiny_recipe.with_(objective="none", evaluation__dialogue={"folder": str(dialogues), "context_length": 24})
    way = unfold(shared.with_(finetuning__shared=False))
    reader, writer = (open_encoder(cache.get(way.retriever) / name) for name in ("model", "passage_model"))
    found = json.loads((cache.get(way.evaluation) / "scores.json").read_text())
    again = evaluate_candidates(
        writer, load_candidates(dialogues, "test"), context_encoder=reader, context_length=24, progress=False
    )
    assert found == again.to_dict()


def test_what_cannot_work_is_refused_before_anything_runs(tiny_recipe, acceptable, dialogues):
    tiny_recipe = tiny_recipe.with_(makers__cross_encoder={"batch_queries": 4, "length": 48})
    talk = {"folder": str(dialogues), "context_length": 24}
    for change, said in (
        ({"evaluation__nlu": task("/nowhere")}, "no such file"),
        ({"evaluation__dialogue": talk | {"folder": "/nowhere"}}, "no folder"),
        ({"evaluation__dialogue": talk, "final": "reranker"}, "retriever"),
        ({"evaluation__dialogue": talk, "evaluation__nlu": task(acceptable)}, "one of on, nlu and dialogue"),
        ({"evaluation__nlu": task(acceptable) | {"lenght": 3}}, "lenght"),
        ({"evaluation__nlu": task(acceptable) | {"task": "rte"}}, "unknown task"),
        ({"evaluation__nlu": task(acceptable) | {"length": 600}}, "nlu.length"),
        ({"evaluation__dialogue": talk | {"context_length": 600}}, "context_length"),
    ):
        with pytest.raises(InputError, match=said):
            unfold(tiny_recipe.with_(**change))
