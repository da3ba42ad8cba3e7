"""The loop under several processes, as `torchrun` or `accelerate launch` would start it."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from dr_lib.training import TrainLog


def together(script: str, *arguments: str) -> None:
    """Run a script in two processes that know each other."""
    group = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "DR_DEVICE": "cpu",
    }
    group |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    command, both = [sys.executable, script, *arguments], []
    for rank in "01":
        variables = {**os.environ, **group, "RANK": rank, "LOCAL_RANK": rank}
        both.append(subprocess.Popen(command, env=variables, stderr=subprocess.PIPE))
    for process in both:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()[-2000:]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow
def test_two_processes_share_the_micro_batches_of_an_update(tmp_path, killable):
    """Each takes every second one, with the dropout and the masks that one process would draw."""
    changes = {"steps": 8, "precision": "fp32"}
    killable.run(
        killable.Miniature(),
        tmp_path / "one",
        settings=killable.SETTINGS.model_copy(update=changes),
    )
    together(killable.__file__, str(tmp_path / "two"), "0", json.dumps(changes))
    one, two = (
        load_file(tmp_path / name / "checkpoint-8" / "model.safetensors") for name in ("one", "two")
    )
    assert one.keys() == two.keys()
    for name in one:
        assert_close(one[name], two[name], rtol=1e-3, atol=1e-5)
    logs = [TrainLog.load(tmp_path / name / "log.json") for name in ("one", "two")]
    assert [log.processes for log in logs] == [1, 2]
    np.testing.assert_allclose(logs[0].column("loss"), logs[1].column("loss"), rtol=1e-4)


@pytest.mark.slow
def test_two_processes_fine_tune_with_the_gradient_of_one_with_the_whole_batch(
    tmp_path, fine_tuned
):
    whole = fine_tuned.run(tmp_path / "one", 8)
    together(fine_tuned.__file__, str(tmp_path / "two"), "8")
    for kind, expected in whole.items():
        found = fine_tuned.gradient_of(tmp_path / "two" / kind)
        assert (found - expected).norm() < 1e-5 * expected.norm(), kind
        logs = [TrainLog.load(tmp_path / name / kind / "log.json") for name in ("one", "two")]
        assert logs[1].processes == 2
        np.testing.assert_allclose(logs[1].column("loss"), logs[0].column("loss"), rtol=1e-5)
    for kind in ("cross-encoder", "late interaction"):  # with a gradient cache and without
        cached = whole[f"{kind}, gradient cache"]
        assert (cached - whole[kind]).norm() < 1e-5 * cached.norm() and cached.norm() > 0
    halves = whole["cross-encoder, micro-batches"]
    assert (halves - whole["cross-encoder"]).norm() < 1e-5 * halves.norm()
