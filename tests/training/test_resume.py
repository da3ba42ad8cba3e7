"""An interrupted run ends with the same weights, optimiser and log as an uninterrupted one."""

import json
import re
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from dr_lib.errors import InputError
from dr_lib.stages import TimeIsUpError
from dr_lib.training import TrainLog, TrainSettings, machine, train
from dr_lib.training.checkpoint import (
    checkpoint_folders,
    load_optimizer_tensors,
    module_tensors,
    optimizer_tensors,
    resume,
    save_checkpoint,
    trained_parameters,
)
from dr_lib.training.loop import make_optimizer
from tests.child import Child
from tests.training.killable import train_until

SETTINGS = TrainSettings(steps=5, learning_rate=0.1)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.unused = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight


def stepped(updates):
    module = Tied()
    trained = trained_parameters(module)
    optimizer = make_optimizer(trained, SETTINGS)
    for _ in range(updates):
        optimizer.zero_grad()
        module.second(module.first(torch.ones(3))).square().sum().backward()
        optimizer.step()
    return module, trained, optimizer


def test_a_tied_tensor_is_listed_once_and_one_without_gradient_has_no_state():
    _, trained, optimizer = stepped(2)
    assert sorted(trained) == [
        "first.bias",
        "first.weight",
        "second.bias",
        "unused.bias",
        "unused.weight",
    ]
    names = {name.split(".", 1)[1] for name in optimizer_tensors(optimizer, trained)}
    assert names == {"first.bias", "first.weight", "second.bias"}


def test_state_goes_to_its_own_parameter_by_name():
    _, trained, optimizer = stepped(3)
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer, trained).items()}
    _, fresh, other = stepped(0)
    load_optimizer_tensors(other, fresh, saved)
    found = optimizer_tensors(other, fresh)
    assert saved.keys() == found.keys()
    assert all(torch.equal(saved[name], found[name]) for name in saved)
    assert other.state[fresh["first.bias"]]["step"].item() == 3


def test_what_learns_and_what_the_module_keeps_is_kept_of_it():
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).requires_grad_(False)
    module[0].bias.requires_grad_(True)
    module.register_buffer("scratch", torch.zeros(1), persistent=False)
    assert module_tensors(module).keys() == {
        "0.bias",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    }


LAST = "checkpoint-24"


def content(folder: Path) -> dict[str, torch.Tensor]:
    """Final weights and optimiser state of a run."""
    return load_file(folder / LAST / "model.safetensors") | load_file(
        folder / LAST / "optimizer.safetensors"
    )


def assert_same_run(one: Path, other: Path) -> None:
    expected, found = content(one), content(other)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    rows = [json.loads((folder / "log.json").read_text())["rows"] for folder in (one, other)]
    for row in rows[0] + rows[1]:
        row.pop("tokens_per_second")
    assert rows[0] == rows[1]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, killable) -> Path:
    folder = tmp_path_factory.mktemp("unbroken")
    killable.run(killable.Miniature(), folder)
    return folder


@pytest.mark.parametrize("stops", [(7,), (5, 6, 20)])
def test_a_run_in_pieces_equals_an_unbroken_one_bit_for_bit(tmp_path, unbroken, stops, killable):
    for stop in stops:
        log = killable.run(killable.Miniature(), tmp_path, stop_after=stop)
        assert (log.step, log.finished) == (stop, False)
    log = killable.run(killable.Miniature(), tmp_path)
    assert log.resumed_at == list(stops)
    assert_same_run(unbroken, tmp_path)


def test_a_run_that_goes_on_with_other_threads_says_so(tmp_path, killable, monkeypatch):
    for threads, stop in ((1, 5), (1, 6), (2, 7)):
        monkeypatch.setenv("DR_THREADS", str(threads))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            log = killable.run(killable.Miniature(), tmp_path, stop_after=stop)
        said = [str(one.message) for one in told if one.category is RuntimeWarning]
        assert log.threads == threads and len(said) == threads - 1
    assert "goes on with 2 threads and was begun with 1" in said[0] and "DR_THREADS=1" in said[0]


def test_the_peak_of_memory_is_that_of_all_parts_of_a_run(tmp_path, killable, monkeypatch):
    for most, stop in ((9, 6), (5, None)):
        monkeypatch.setattr(machine, "peak_memory", lambda most=most: {"host": most})
        log = killable.run(killable.Miniature(), tmp_path, stop_after=stop)
    assert log.finished and log.peak_memory == {"host": 9}


def test_nothing_of_a_resumed_run_lies_in_files_that_will_be_removed(tmp_path):
    module, _, optimizer = stepped(2)
    kept = {"settings": {}, "progress": {}, "best": {"w": torch.ones(5)}}
    save_checkpoint(tmp_path, 2, module, optimizer, **kept)
    found = resume(tmp_path, module, optimizer, {})
    maps = Path("/proc/self/maps")
    assert found[1].keys() == {"w"}
    assert not maps.exists() or str(tmp_path) not in maps.read_text()
    assert all(state["exp_avg"].data_ptr() % 64 == 0 for state in optimizer.state.values())


def test_a_run_whose_time_is_up_leaves_its_last_step_and_goes_on_bit_for_bit(
    tmp_path, unbroken, killable, monkeypatch
):
    asked = iter([False] * 7 + [True])
    with (
        monkeypatch.context() as patch,
        pytest.raises(TimeIsUpError, match="stopped after 8 of 24 steps"),
    ):
        patch.setattr("dr_lib.training.loop.time_is_up", lambda: next(asked))
        killable.run(killable.Miniature(), tmp_path)
    assert [path.name for path in checkpoint_folders(tmp_path)] == ["checkpoint-5", "checkpoint-8"]
    assert killable.run(killable.Miniature(), tmp_path).resumed_at == [8]
    assert_same_run(unbroken, tmp_path)


def test_a_killed_process_is_taken_up_to_the_same_weights(tmp_path, unbroken, killable):
    threads = (torch.set_num_threads, torch.get_num_threads())
    child = Child(killable.run, killable.Miniature(), tmp_path, 0.05, before=[threads])
    deadline = time.monotonic() + 300
    while not (tmp_path / "checkpoint-10").exists():
        assert not child.future.done() and time.monotonic() < deadline
        time.sleep(0.01)
    assert child.killed_after(0)
    assert not (tmp_path / LAST).exists()
    log = killable.run(killable.Miniature(), tmp_path)
    assert log.resumed_at == [10]
    assert_same_run(unbroken, tmp_path)


def test_a_language_model_with_dropout_resumes_bit_for_bit(tmp_path, tiny_bert, make_token_batch):
    class CopyTask(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = tiny_bert(dropout=0.2)

        def forward(self, batch, generator):
            logits = self.model(**batch.model_inputs()).logits.float()
            return {
                "loss": torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1), batch.input_ids.flatten()
                )
            }

    def batches(index):
        ids = torch.randint(5, 40, (4, 10), generator=torch.Generator().manual_seed(index))
        return make_token_batch(ids.numpy(), ids[:, 0].numpy())

    settings = TrainSettings(steps=8, learning_rate=1e-3, precision="auto")
    whole, pieces = CopyTask(), CopyTask()
    train(whole, batches, settings, tmp_path / "whole", title="whole", progress=False)
    train_until(3, CopyTask(), batches, settings, tmp_path / "pieces", title="pieces")
    train(pieces, batches, settings, tmp_path / "pieces", title="pieces", progress=False)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, pieces.state_dict()[name]), name
    assert pieces.model.get_output_embeddings().weight is pieces.model.get_input_embeddings().weight


def test_a_finished_run_is_not_trained_again(tmp_path, killable):
    killable.run(killable.Miniature(), tmp_path)
    module = killable.Miniature()
    log = train(module, None, killable.SETTINGS, tmp_path, title="again", progress=False)
    assert log.finished
    assert torch.equal(
        module.table.weight, load_file(tmp_path / LAST / "model.safetensors")["table.weight"]
    )


def test_checkpoints_of_later_steps_do_not_count_among_the_last_two(tmp_path):
    """A damaged one was passed over: the run goes on from an earlier one."""
    module, _, optimizer = stepped(1)
    for step in (5, 20, 10, 15):
        save_checkpoint(tmp_path, step, module, optimizer, settings={}, progress={}, best={})
    found = [path.name for path in checkpoint_folders(tmp_path)]
    assert found == ["checkpoint-10", "checkpoint-15", "checkpoint-20"]


def test_the_last_two_checkpoints_are_kept(unbroken):
    assert [path.name for path in checkpoint_folders(unbroken)] == ["checkpoint-20", LAST]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["truncated", "altered", "missing"])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(
    tmp_path, unbroken, name, damage, killable
):
    killable.run(killable.Miniature(), tmp_path, stop_after=10)
    hurt(tmp_path / "checkpoint-10" / name, damage)
    with pytest.warns(
        RuntimeWarning, match=f"(?s)damaged checkpoint passed over.*checkpoint-10.{name}"
    ):
        log = killable.run(killable.Miniature(), tmp_path)
    assert log.resumed_at == [5]
    assert_same_run(unbroken, tmp_path)


def hurt(path: Path, damage: str) -> None:
    whole = path.read_bytes()
    middle = len(whole) // 2
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(whole[:middle])
    else:
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])


def test_with_every_checkpoint_damaged_the_run_begins_again(tmp_path, unbroken, killable):
    killable.run(killable.Miniature(), tmp_path, stop_after=10)
    for folder in checkpoint_folders(tmp_path):
        hurt(folder / "model.safetensors", "truncated")
    with pytest.warns(RuntimeWarning):
        log = killable.run(killable.Miniature(), tmp_path)
    assert log.resumed_at == []
    assert_same_run(unbroken, tmp_path)


def test_a_half_written_checkpoint_is_no_checkpoint_and_is_removed(tmp_path, unbroken, killable):
    killable.run(killable.Miniature(), tmp_path, stop_after=5)
    draft = tmp_path / ".checkpoint-10.abcdef"
    draft.mkdir()
    (draft / "model.safetensors").write_bytes(b"half")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        killable.run(killable.Miniature(), tmp_path)
    assert not draft.exists()
    assert_same_run(unbroken, tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"learning_rate": 2e-2}, "learning_rate was 0.01 and is 0.02"),
        ({"seed": 4, "steps": 30}, "seed was 3 and is 4, steps was 24 and is 30"),
        ({"precision": "fp32"}, "precision was bf16 and is fp32"),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused_and_left_alone(tmp_path, change, told, killable):
    killable.run(killable.Miniature(), tmp_path, stop_after=5)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=told):
        killable.run(
            killable.Miniature(), tmp_path, settings=killable.SETTINGS.model_copy(update=change)
        )
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_run_is_not_continued_in_the_precision_of_another_machine(
    tmp_path, killable, monkeypatch
):
    auto = killable.SETTINGS.model_copy(update={"precision": "auto"})
    monkeypatch.setattr(machine, "has_bf16", lambda where: False)
    killable.run(killable.Miniature(), tmp_path, settings=auto, stop_after=5)
    monkeypatch.setattr(machine, "has_bf16", lambda where: True)
    with pytest.raises(InputError, match="precision was fp32 and is bf16"):
        killable.run(killable.Miniature(), tmp_path, settings=auto)


def test_other_checkpoint_and_log_intervals_may_be_continued(tmp_path, killable):
    killable.run(killable.Miniature(), tmp_path, stop_after=5)
    relaxed = killable.SETTINGS.model_copy(update={"checkpoint_every": 50, "log_every": 12})
    assert killable.run(killable.Miniature(), tmp_path, settings=relaxed).finished


def test_a_checkpoint_of_another_model_is_refused(tmp_path, killable):
    killable.run(killable.Miniature(), tmp_path, stop_after=5)
    other = killable.Miniature()
    other.layer = torch.nn.Linear(16, 16, bias=False)
    with pytest.raises(InputError, match=r"another model: layer.bias was \[16\] and is None"):
        killable.run(other, tmp_path)


def test_a_run_stopped_between_its_last_checkpoint_and_its_log_writes_the_log_later(
    tmp_path, killable, monkeypatch
):
    whole, save = killable.run(killable.Miniature(), tmp_path / "whole"), TrainLog.save

    def killed(log, path):
        if log.finished:
            raise KeyboardInterrupt
        save(log, path)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TrainLog, "save", killed)
        killable.run(killable.Miniature(), tmp_path / "cut")
    assert TrainLog.load(tmp_path / "cut" / "log.json").step == 20
    killable.run(killable.Miniature(), tmp_path / "cut")
    log = TrainLog.load(tmp_path / "cut" / "log.json")
    assert log.finished and log.resumed_at == []
    assert log.column("step").tolist() == whole.column("step").tolist()
    np.testing.assert_allclose(log.column("loss"), whole.column("loss"), rtol=1e-5)


def test_what_a_killed_run_left_half_written_is_removed(tmp_path, killable):
    (tmp_path / ".checkpoint-5.x").mkdir()
    (tmp_path / ".checkpoint-5.x" / "model.safetensors").write_text("half")
    (tmp_path / ".log.json.x").write_text("half")
    killable.run(killable.Miniature(), tmp_path, stop_after=2)
    assert not list(tmp_path.glob(".*"))


def test_a_run_that_stops_before_its_schedule_ends_is_the_beginning_of_the_longer_one(
    tmp_path, killable
):
    early = killable.SETTINGS.model_copy(update={"stop_at": 10})
    module, longer = killable.Miniature(), killable.Miniature()
    log = killable.run(module, tmp_path / "early", settings=early)
    whole = killable.run(longer, tmp_path / "whole", stop_after=10)
    assert log.finished and (log.step, log.steps) == (10, 10) and not whole.finished
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, longer.state_dict()[name]), name
    assert log.column("lr").tolist()[:2] == whole.column("lr").tolist()[:2]


def test_a_state_of_odd_values_is_passed_over_for_the_checkpoint_before(
    tmp_path, unbroken, killable
):
    killable.run(killable.Miniature(), tmp_path, stop_after=10)
    path = checkpoint_folders(tmp_path)[-1] / "state.json"
    path.write_text(re.sub(r'"seconds": [\d.]+', '"seconds": NaN', path.read_text(), count=1))
    assert "NaN" in path.read_text()
    with pytest.warns(RuntimeWarning, match="passed over"):
        log = killable.run(killable.Miniature(), tmp_path)
    assert log.resumed_at == [5]
    assert_same_run(unbroken, tmp_path)


def test_a_folder_with_a_checkpoint_of_another_program_is_left_alone(tmp_path, killable):
    (tmp_path / "checkpoint-5").mkdir()
    for name in ("model.safetensors", "trainer_state.json"):
        (tmp_path / "checkpoint-5" / name).write_text("mine")
    with pytest.raises(InputError, match=r"checkpoint-5: holds trainer_state\.json"):
        killable.run(killable.Miniature(), tmp_path)
    assert (tmp_path / "checkpoint-5" / "model.safetensors").read_text() == "mine"
