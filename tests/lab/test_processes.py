"""Stages that train on two processes: the same result as with one, unchanged errors, nothing lost
when one is killed.
"""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch.testing import assert_close

from dr_lib.errors import InputError
from dr_lib.lab import Cache, Study, pipeline
from dr_lib.stages import TimeIsUpError, until
from dr_lib.training import TrainingError, TrainLog
from dr_lib.training.checkpoint import checkpoint_folders

pytestmark = pytest.mark.faults
ROOT = Path(__file__).parents[2]


@pytest.fixture
def recipe(tiny_recipe, monkeypatch):
    """Pre-training with alternating micro-batches, fine-tuning with shared batches."""
    monkeypatch.setenv("DR_DEVICE", "cpu")
    return tiny_recipe.with_(objective="mlm", pretraining__steps=30, pretraining__accumulation=2)


def built(stage, folder: Path, processes: int, shared, monkeypatch) -> tuple[TrainLog, dict]:
    """Log and weights of a training by this many processes in a folder; one makes its inputs."""
    inputs = shared.inputs(stage)
    with monkeypatch.context() as patch:
        patch.setenv("DR_PROCESSES", str(processes))
        folder.mkdir(exist_ok=True)
        stage.function(folder, **inputs)
    # Attention scores do not depend on a bias of the keys: its gradient is rounding alone, which
    # AdamW makes steps of.
    weights = load_file(folder / "model" / "model.safetensors").items()
    return TrainLog.load(folder / "log.json"), {
        name: one for name, one in weights if not name.endswith("key.bias")
    }


@pytest.mark.parametrize("name", ["pretrained", "retriever1", "reranker"])
def test_two_processes_learn_what_one_does(recipe, tmp_path, shared, monkeypatch, name):
    recipe = recipe.with_(pretraining__steps=6, objective="mlm" if name == "pretrained" else "none")
    recipe = recipe.with_(final="reranker" if name == "reranker" else recipe.final)
    stage = getattr(pipeline(recipe), name)
    one, two = (built(stage, tmp_path / str(count), count, shared, monkeypatch) for count in (1, 2))
    assert (one[0].processes, two[0].processes) == (1, 2) and one[0].tokens == two[0].tokens
    np.testing.assert_allclose(two[0].column("loss"), one[0].column("loss"), rtol=1e-4)
    assert one[1].keys() == two[1].keys()
    for part, expected in one[1].items():
        assert_close(
            two[1][part],
            expected,
            rtol=1e-3,
            atol=2e-5,
            msg=lambda said, part=part: f"{part}: {said}",
        )


def workers() -> list[psutil.Process]:
    """The processes that a stage has started."""
    return [
        child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())
    ]


def first_checkpoint(root: Path, pattern: str = "checkpoint-*") -> bool:
    """Wait for the first checkpoint of a running training."""
    end = time.monotonic() + 300
    while not list(root.glob(pattern)):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_one_process_killed_ends_all_and_the_next_run_ends_as_the_unbroken_one(
    recipe, tmp_path, shared, monkeypatch, counted
):
    stage = pipeline(recipe).pretrained
    whole_log, whole = built(stage, tmp_path / "whole", 2, shared, monkeypatch)
    for rank in (0, 1):
        folder = tmp_path / f"broken {rank}"

        def kill(folder: Path = folder, rank: int = rank) -> bool:
            return first_checkpoint(folder) and os.kill(workers()[rank].pid, signal.SIGKILL) is None

        with ThreadPoolExecutor(1) as beside:
            killed = beside.submit(kill)
            with pytest.raises(
                TrainingError,
                match=r"pretrained on 2 processes: .*goes on from the last checkpoint",
            ):
                built(stage, folder, 2, shared, monkeypatch)
            assert killed.result()
            counted("processes that train together: one killed")
        assert not workers()
        log, weights = built(stage, folder, 2, shared, monkeypatch)
        assert log.resumed_at and (log.column("loss") == whole_log.column("loss")).all()
        assert all((weights[name] == expected).all() for name, expected in whole.items())


def test_two_processes_stop_after_the_same_step_and_go_on_as_if_they_had_not(
    recipe, tmp_path, shared, monkeypatch
):
    stage = pipeline(recipe).pretrained
    with (
        pytest.raises(TimeIsUpError, match="stopped after 1 of 30 steps"),
        until(time.monotonic() + 0.5),
    ):
        # up before they have begun; no alarm ends them
        built(stage, tmp_path / "stopped", 2, shared, monkeypatch)
    assert not workers() and [path.name for path in checkpoint_folders(tmp_path / "stopped")] == [
        "checkpoint-1"
    ]
    log, weights = built(stage, tmp_path / "stopped", 2, shared, monkeypatch)
    _, expected = built(stage, tmp_path / "whole", 2, shared, monkeypatch)
    assert log.resumed_at == [1] and all(
        (weights[name] == one).all() for name, one in expected.items()
    )


def test_a_pool_of_processes_is_stopped_when_the_time_is_up(recipe, tmp_path):
    long = recipe.with_(pretraining__steps=1_000_000, pretraining__checkpoint_every=100_000)
    options = {"scale": "smoke", "cache": Cache(tmp_path / "stages", announce=str), "minutes": 0.5}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        result = Study("s/t", {"long": long}, executor=pool, **options).run()
    ((run, far),) = result.pending.items()
    assert run.name == "long (seed 0)" and "of 1,000,000 steps of pre-training" in far


def test_memory_of_a_gpu_that_earlier_stages_left_is_free_before_the_processes_start(
    recipe, tmp_path, shared, monkeypatch
):
    happened = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: happened.append("freed"))
    ended = SimpleNamespace(join=lambda: happened.append("started") or True, processes=[])
    monkeypatch.setattr("dr_lib.training.launch.start_processes", lambda *given, **options: ended)
    with pytest.raises(FileNotFoundError):  # nobody has trained
        built(pipeline(recipe).pretrained, tmp_path / "a", 2, shared, monkeypatch)
    assert happened == ["freed", "started"]


def test_errors_of_the_processes_are_those_of_the_stage(recipe, tmp_path, shared, monkeypatch):
    with pytest.raises(
        InputError, match="2 processes cannot share 1 micro-batches of an update evenly"
    ):
        built(
            pipeline(recipe.with_(pretraining__accumulation=1)).pretrained,
            tmp_path / "a",
            2,
            shared,
            monkeypatch,
        )
    none = recipe.with_(objective="none")
    with pytest.raises(InputError, match="2 processes cannot share a batch of 3 evenly"):
        built(
            pipeline(none.with_(finetuning__batch_queries=3)).retriever1,
            tmp_path / "b",
            2,
            shared,
            monkeypatch,
        )
    wild = none.with_(finetuning__learning_rate=1e9, finetuning__steps=40, finetuning__clip=None)
    with pytest.raises(TrainingError, match="is not finite"):
        built(pipeline(wild).retriever1, tmp_path / "c", 2, shared, monkeypatch)
    assert not workers()


RUN = """
import sys
from pathlib import Path
from dr_lib.lab import Cache, pipeline, Recipe
Cache(Path(sys.argv[2]), announce=str).get(pipeline(Recipe.load(Path(sys.argv[1]))).pretrained)
"""


def test_who_is_killed_while_it_waits_takes_its_processes_along(recipe, tmp_path, counted):
    portable = recipe.with_(pretraining__steps=3000).model_dump(mode="json")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(portable), encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "DR_PROCESSES": "2"}
    command = [sys.executable, "-c", RUN, str(tmp_path / "recipe.yaml"), str(tmp_path / "stages")]
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as parent:
        assert first_checkpoint(tmp_path / "stages", "*.partial/checkpoint-*")
        children = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
    _, left = psutil.wait_procs(children, timeout=60)
    assert len(children) >= 2 and not left
    counted("processes that train together: their parent killed")
