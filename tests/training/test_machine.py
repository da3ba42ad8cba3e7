import getpass
import json
import platform
from types import SimpleNamespace

import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.training import machine


def test_thread_count_comes_from_the_setting_first(monkeypatch):
    monkeypatch.delenv("DR_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert machine.threads() == 3
    monkeypatch.setenv("DR_THREADS", "5")
    assert machine.threads() == 5


def test_without_a_setting_physical_cores_are_taken(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("DR_THREADS", raising=False)
    monkeypatch.setattr(machine.psutil, "cpu_count", lambda logical: 4)
    monkeypatch.setattr(machine, "allowed_cores", lambda: 64)
    assert machine.threads() == 4
    monkeypatch.setattr(machine, "allowed_cores", lambda: 2)
    assert machine.threads() == 2


@pytest.mark.parametrize("text", ["0", "two", "-1", "1.5"])
def test_a_thread_count_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("DR_THREADS", text)
    with pytest.raises(InputError, match="DR_THREADS"):
        machine.threads()


def test_training_uses_the_thread_setting(monkeypatch, tmp_path, regression, gaussian_batches):
    from dr_lib.training import TrainSettings, train

    before = torch.get_num_threads()
    monkeypatch.setenv("DR_THREADS", "2")
    try:
        settings = TrainSettings(steps=1, learning_rate=0.1)
        log = train(
            regression(), gaussian_batches, settings, tmp_path, title="threads", progress=False
        )
        assert (torch.get_num_threads(), log.threads) == (2, 2)
    finally:
        torch.set_num_threads(before)


def test_auto_precision_follows_the_processor(monkeypatch):
    cpu = torch.device("cpu")
    for flags, expected in (
        ({"avx2"}, "fp32"),
        ({"avx512_bf16"}, "bf16"),
        ({"amx_bf16"}, "bf16"),
        (set(), "fp32"),
    ):
        monkeypatch.setattr(machine, "_cpu_flags", lambda flags=flags: frozenset(flags))
        assert machine.precision("auto", cpu) == expected
        assert machine.precision("bf16", cpu) == "bf16"


def test_an_unknown_device_is_refused(monkeypatch):
    monkeypatch.setenv("DR_DEVICE", "tpu")
    with pytest.raises(InputError, match="DR_DEVICE"):
        machine.device()


def test_facts_name_the_machine_but_no_person_host_or_folder():
    facts = machine.machine_facts()
    assert facts["cpu"] and facts["cores"] >= 1 and facts["memory_gib"] > 0
    assert {"python", "torch", "transformers"} <= set(facts["versions"])
    told = json.dumps(facts)
    assert "/" not in told.replace(facts["cpu"], "")
    for private in (platform.node(), getpass.getuser()):
        assert not private or f'"{private}"' not in told


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_is_taken_where_it_is_asked_for_and_there(monkeypatch, name):
    present = {"cuda": torch.cuda, "mps": torch.backends.mps}
    for there, module in present.items():
        monkeypatch.setattr(module, "is_available", lambda there=there: there == name)
    monkeypatch.delenv("DR_DEVICE", raising=False)
    assert machine.device().type == ("cuda" if name == "cuda" else "cpu")
    monkeypatch.setenv("DR_DEVICE", name)
    assert machine.device().type == name
    monkeypatch.setattr(present[name], "is_available", lambda: False)
    with pytest.raises(InputError, match=f"torch sees no {name.upper()} device"):
        machine.device()


def test_memory_is_known_without_the_module_that_windows_lacks(monkeypatch):
    assert machine.peak_memory()["host"] > 2**20
    monkeypatch.setattr(machine, "resource", None)
    told = SimpleNamespace(memory_info=lambda: SimpleNamespace(peak_wset=7))
    monkeypatch.setattr(machine.psutil, "Process", lambda: told)
    assert machine.peak_memory()["host"] == 7
