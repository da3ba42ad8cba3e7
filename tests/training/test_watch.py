"""Callbacks see every row and change nothing; a profile is of the steps that were asked for."""

import json

import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.training import TrainSettings, train, watching

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
