"""Two processes with half of the batch each have the gradient of one with all of it."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import torch

from dr_lib.losses import gather

SCRIPT = Path(__file__).with_name("side_by_side.py")


def start(file: Path, rank: int, port: int) -> subprocess.Popen:
    group = {
        "WORLD_SIZE": "2",
        "RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    variables = {
        **os.environ,
        **group,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    return subprocess.Popen(
        [sys.executable, "-W", "error::FutureWarning", SCRIPT, file],
        env=variables,
        stderr=subprocess.PIPE,
    )


def test_two_processes_have_the_gradient_of_one_with_the_whole_batch(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for process in [start(tmp_path / "apart.json", rank, port) for rank in (0, 1)]:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()[-2000:]
    apart = json.loads((tmp_path / "apart.json").read_text())
    assert set(apart) == {"released", "pair", "siblings"}
    assert max(apart.values()) < 1e-5


def test_alone_nothing_is_gathered():
    rows = torch.ones(2, 3)
    assert gather(rows) is rows
