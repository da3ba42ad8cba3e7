"""The remains of a run that was killed, interrupted or out of disk space; the next one ends as if
nothing had happened.
"""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dr_lib import lab
from dr_lib.errors import InputError
from dr_lib.lab import Record, Study, StudyError, pipeline
from dr_lib.stages import Cache
from dr_lib.training import loop

ROOT = Path(__file__).parents[2]

# Runs one recipe and prints the stages it built itself. A third argument is the update of the first
# training at which the process kills itself.
RUN = """
import os, signal, sys
from pathlib import Path
from dr_lib import lab
from dr_lib.training import loop, machine

def rate(settings, update, original=loop.learning_rate):
    if update == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return original(settings, update)

if len(sys.argv) > 3:
    loop.learning_rate = rate
machine.has_bf16 = lambda where: False
cache = lab.Cache(Path(sys.argv[2]), announce=lambda line: None)
lab.execute(lab.Run("simlm/test", "row", "smoke", lab.Recipe.load(Path(sys.argv[1]))), cache)
print(" ".join(cache.built))
"""


def start(recipe: lab.Recipe, folder: Path, name: str, *more: str) -> subprocess.Popen:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(path), str(folder / "stages"), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def kinds(built: list[str]) -> list[str]:
    return sorted(name.rsplit("-", 1)[0] for name in built)


def run(recipe: lab.Recipe, cache: Cache) -> Record:
    return lab.execute(lab.Run("simlm/test", "row", "smoke", recipe), cache)


@pytest.fixture
def thirty(tiny_recipe):
    """Thirty updates of pre-training with dropout, a checkpoint after every tenth."""
    return tiny_recipe.with_(dropout=0.1, pretraining__steps=30, pretraining__checkpoint_every=10)


@pytest.mark.slow
def test_a_killed_pre_training_continues_to_the_same_record(thirty, cache, tmp_path, without_times):
    process = start(thirty, tmp_path, "killed", "23")
    _, errors = process.communicate(timeout=1200)
    assert process.returncode == -signal.SIGKILL, errors
    (left,) = tmp_path.glob("stages/pretrained-*.partial")
    assert (left / "checkpoint-20").is_dir()
    resumed = run(thirty, cache)
    elsewhere = Cache(tmp_path / "elsewhere", announce=lambda line: None)
    unbroken = run(thirty, elsewhere)
    assert len(cache.built) < len(elsewhere.built)  # stages finished before the kill were kept
    assert resumed.training["pretrained"]["resumed_at"] == [20]
    assert unbroken.training["pretrained"]["resumed_at"] == []
    for record in (resumed, unbroken):
        assert record.training["pretrained"]["weights"]["model/model.safetensors"]
    assert without_times(resumed) == without_times(unbroken)


@pytest.mark.slow
def test_two_processes_share_stages_without_doing_them_twice(tiny_recipe, tmp_path):
    recipes = {"first": tiny_recipe, "second": tiny_recipe.with_(objective__decoder_rate=0.7)}
    under_way = [start(recipe, tmp_path, name) for name, recipe in recipes.items()]
    built = []
    for process in under_way:
        names, errors = process.communicate(timeout=1200)
        assert process.returncode == 0, errors
        built += names.split()
    assert len(built) == len(set(built))
    counts = {
        kind: kinds(built).count(kind)
        for kind in ("passage_tokens", "query_tokens", "negatives", "pretrained")
    }
    assert counts == {"passage_tokens": 1, "query_tokens": 2, "negatives": 1, "pretrained": 2}


@pytest.fixture
def interrupt(monkeypatch):
    """`interrupt(update, error)`: what happens at an update of the next training; once."""

    def at(update: int, error: BaseException) -> None:
        def rate(settings, number, original=loop.learning_rate):
            if number == update and waiting:
                raise waiting.pop()
            return original(settings, number)

        waiting = [error]
        monkeypatch.setattr(loop, "learning_rate", rate)

    return at


def test_ctrl_c_ends_a_study_and_the_next_call_goes_on_with_it(
    thirty, cache, interrupt, tmp_path, shared, without_times
):
    options = {"scale": "smoke", "records": tmp_path / "records"}
    recipes = {"BM25": thirty.with_(evaluation__kind="bm25"), "row": thirty}
    interrupt(24, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        Study("simlm/test", recipes, cache=cache, **options).run()
    assert [record.label for record in lab.load_records(tmp_path / "records")] == ["BM25"]
    result = Study("simlm/test", recipes, cache=cache, **options).run()
    (record,) = result.runs()["row"]
    assert record.training["pretrained"]["resumed_at"] == [20]
    assert without_times(record) == without_times(run(thirty, shared)) | {"label": "row"}


def test_a_full_disk_names_the_stage_and_the_way_out_and_keeps_what_is_finished(
    thirty, cache, interrupt, tmp_path
):
    options = {"scale": "smoke", "records": tmp_path / "records", "cache": cache}
    interrupt(24, OSError(errno.ENOSPC, "No space left on device", "big.safetensors"))
    with pytest.raises(
        StudyError,
        match=r"row \(seed 0\): .*big\.safetensors: pretrained-.*No space left.*DR_CACHE",
    ):
        Study("simlm/test", {"row": thirty}, **options).run()
    assert "passage_tokens" in kinds(cache.built) and "pretrained" not in kinds(cache.built)
    again = Cache(cache.root, announce=lambda line: None)
    (record,) = (
        Study("simlm/test", {"row": thirty}, **options | {"cache": again}).run().runs()["row"]
    )
    assert "passage_tokens" not in kinds(again.built) and record.training["pretrained"][
        "resumed_at"
    ] == [20]


def test_a_loss_that_is_no_number_fails_its_run_and_no_other(tiny_recipe, shared, tmp_path):
    recipe = tiny_recipe.with_(objective="none")
    recipes = {
        "wild": recipe.with_(finetuning__learning_rate=1e30, finetuning__clip=None),
        "tame": recipe,
    }
    options = {"scale": "smoke", "records": tmp_path / "records", "cache": shared}
    with pytest.raises(StudyError, match=r"wild \(seed 0\): .*finite"):
        Study("t", recipes, **options).run()
    assert [record.label for record in lab.load_records(tmp_path / "records")] == ["tame"]


def test_a_stage_that_was_altered_stops_the_run_and_is_named(tiny_recipe, cache):
    plan = pipeline(tiny_recipe.with_(objective="none", final="pretrained"))
    (file,) = cache.get(plan.retriever).glob("model/model.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    again = Cache(cache.root, announce=lambda line: None)
    with pytest.raises(
        InputError, match=r"model\.safetensors: this file of a finished stage was altered.*Remove"
    ):
        again.get(plan.end)
    # tokens do not depend on the model and may come first
    assert not [name for name in again.built if not name.startswith("passage_tokens")]
