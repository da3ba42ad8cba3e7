"""Evaluations during training: when, what is kept, and that neither an interruption nor a callback
changes choice or weights; a profile is of the requested steps.
"""

import json
import shutil
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from dr_lib.errors import InputError
from dr_lib.training import TrainingError, TrainSettings, Validation, loop, train, watching
from dr_lib.training.checkpoint import module_tensors

# the best is at 8; an equal one comes later
SCORES = {4: 0.2, 8: 0.7, 12: 0.4, 16: 0.7, 20: 0.1, 24: 0.3}


class Scripted:
    """Scores from a table by the number of the evaluation, and a copy of the weights at each."""

    def __init__(self, values=None, looked: int = 0):
        self.values = list(SCORES.values()) if values is None else values
        self.looked, self.weights = looked, []

    def __call__(self, module: nn.Module) -> float:
        module.eval()
        self.weights.append(
            {name: tensor.detach().clone() for name, tensor in module_tensors(module).items()}
        )
        self.looked += 1
        return self.values[self.looked - 1]


def equal(module: nn.Module, weights: dict[str, torch.Tensor]) -> bool:
    return all(
        torch.equal(tensor, weights[name]) for name, tensor in module_tensors(module).items()
    )


def test_a_training_ends_with_the_first_of_its_best_weights(killable, tmp_path):
    module, score = killable.Miniature(), Scripted()
    log = killable.run(module, tmp_path, validation=Validation(score, every=4))
    assert log.validation == [{"step": step, "score": value} for step, value in SCORES.items()]
    assert equal(module, score.weights[1])
    assert not module.training
    assert json.loads((tmp_path / "log.json").read_text())["validation"] == log.validation


def test_a_look_does_not_disturb_the_training(killable, tmp_path):
    plain, looked = killable.Miniature(), killable.Miniature()
    killable.run(plain, tmp_path / "plain")
    killable.run(
        looked, tmp_path / "looked", validation=Validation(Scripted(), every=4, keep="last")
    )
    assert equal(looked, module_tensors(plain))


def test_looks_and_checkpoints_take_none_of_the_seconds_of_training(
    killable, tmp_path, monkeypatch
):
    later, score, save = [0], Scripted(), loop.save_checkpoint
    clock = SimpleNamespace(perf_counter=lambda: time.perf_counter() + later[0])
    monkeypatch.setattr(loop, "time", clock)

    def slow(function):
        def whole(*given, **named):
            later[0] += 1000
            return function(*given, **named)

        return whole

    monkeypatch.setattr(loop, "save_checkpoint", slow(save))
    validation = Validation(slow(score), every=4)
    log = killable.run(killable.Miniature(), tmp_path, validation=validation)
    assert 0 < log.train_seconds < 1000 < 6000 < log.wall_seconds


def test_the_last_update_is_always_looked_at(killable, tmp_path):
    score = Scripted((0.1, 0.2, 0.3))
    log = killable.run(killable.Miniature(), tmp_path, validation=Validation(score, every=10))
    assert [row["step"] for row in log.validation] == [10, 20, 24]


@pytest.mark.parametrize("stop", [6, 8, 9, 17])
def test_the_best_so_far_survives_a_cut(killable, tmp_path, stop):
    whole, pieces = killable.Miniature(), killable.Miniature()
    killable.run(whole, tmp_path / "whole", validation=Validation(Scripted(), every=4))
    first, rest = Scripted(), Scripted(looked=stop // 4)
    log = killable.run(
        pieces, tmp_path / "cut", validation=Validation(first, every=4), stop_after=stop
    )
    assert not log.finished
    again = killable.Miniature()
    log = killable.run(again, tmp_path / "cut", validation=Validation(rest, every=4))
    assert equal(again, module_tensors(whole))
    assert log.validation == [{"step": step, "score": value} for step, value in SCORES.items()]


def test_a_kill_after_a_look_goes_back_to_the_best_of_its_checkpoint(killable, tmp_path):
    """The checkpoint of step 5 contains the evaluation at 4; those at 8 and later were lost with
    the process.
    """
    whole, again = killable.Miniature(), killable.Miniature()
    killable.run(whole, tmp_path / "whole", validation=Validation(Scripted(), every=4))
    killable.run(
        killable.Miniature(),
        tmp_path / "cut",
        validation=Validation(Scripted(), every=4),
        stop_after=9,
    )
    shutil.rmtree(tmp_path / "cut" / "checkpoint-9")
    log = killable.run(again, tmp_path / "cut", validation=Validation(Scripted(looked=1), every=4))
    assert log.resumed_at == [5]
    assert equal(again, module_tensors(whole))


def test_a_finished_run_is_found_with_its_best_weights(killable, tmp_path):
    first, again = killable.Miniature(), killable.Miniature()
    killable.run(first, tmp_path, validation=Validation(Scripted(), every=4))
    nothing = Scripted(())
    killable.run(again, tmp_path, validation=Validation(nothing, every=4))
    assert nothing.looked == 0
    assert equal(again, module_tensors(first))


@pytest.mark.parametrize("other", [{"every": 5}, {"every": 4, "keep": "last"}])
def test_other_looks_are_another_run(killable, tmp_path, other):
    killable.run(
        killable.Miniature(), tmp_path, stop_after=6, validation=Validation(Scripted(), every=4)
    )
    with pytest.raises(InputError, match="validation"):
        killable.run(killable.Miniature(), tmp_path, validation=Validation(Scripted(), **other))


def test_a_score_that_is_no_number_ends_the_training_with_its_step(killable, tmp_path):
    with pytest.raises(TrainingError, match="step 8 is nan"):
        killable.run(
            killable.Miniature(),
            tmp_path,
            validation=Validation(Scripted((0.5, float("nan"))), every=4),
        )


def test_without_validation_the_log_says_nothing_of_it(regression, gaussian_batches, tmp_path):
    settings = TrainSettings(steps=2, learning_rate=1e-2, precision="fp32")
    log = train(regression(), gaussian_batches, settings, tmp_path, title="plain", progress=False)
    assert log.validation == []
    assert not list(tmp_path.glob("checkpoint-*/best.safetensors"))


SETTINGS = TrainSettings(steps=6, learning_rate=0.1, precision="fp32", log_every=2)


class Line(torch.nn.Linear):
    def forward(self, batch, generator):
        return {"loss": super().forward(batch).square().mean()}


def trained(folder, **options):
    torch.manual_seed(0)
    line = Line(3, 1)
    log = train(
        line, lambda step: torch.ones(2, 3), SETTINGS, folder, title="A line", progress=False
    )
    return line.weight.detach().clone(), log


def test_a_callback_sees_each_row_as_it_is_closed(tmp_path):
    seen = []
    with watching(lambda log: seen.append((log.title, log.rows[-1].copy()))):
        watched, log = trained(tmp_path / "watched")
    assert seen == [("A line", row) for row in log.rows] and len(seen) == 3
    plain, _ = trained(tmp_path / "plain")
    assert torch.equal(watched, plain) and len(seen) == 3


def test_a_callback_that_fails_ends_the_training_which_goes_on_without_it(tmp_path):
    def broken(log):
        raise ValueError("disk full")

    with pytest.raises(ValueError, match="disk full"), watching(broken):
        trained(tmp_path / "run")
    weights, log = trained(tmp_path / "run")
    assert log.finished and torch.equal(weights, trained(tmp_path / "other")[0])


@pytest.mark.parametrize(("asked", "steps"), [("2:4", 2), ("5:6", 1), ("6:99", 1)])
def test_a_profile_is_of_the_steps_that_were_asked_for(asked, steps, tmp_path, monkeypatch):
    plain, _ = trained(tmp_path / "plain")
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DR_PROFILE", asked)
    weights, _ = trained(tmp_path / "run")
    assert torch.equal(weights, plain)
    folder = tmp_path / "cache" / "profiles" / f"a-line-{asked.replace(':', '-')}"
    table = (folder / "table.txt").read_text()
    assert table.startswith("A line, steps ") and "aten::" in table
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    backward = [event for event in events if "Optimizer.step" in str(event.get("name"))]
    assert len(backward) == steps


def test_nothing_is_profiled_where_nothing_is_asked_or_the_training_ends_before(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    trained(tmp_path / "a")
    monkeypatch.setenv("DR_PROFILE", "7:9")
    trained(tmp_path / "b")
    assert not (tmp_path / "cache" / "profiles").exists()


@pytest.mark.parametrize("asked", ["10", "4:4", "0:3", "a:b", "5:2"])
def test_steps_that_are_none_are_refused_before_the_first(asked, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_PROFILE", asked)
    with pytest.raises(InputError, match="DR_PROFILE"):
        trained(tmp_path / "run")
