"""A lock is held by one process, whatever machine or namespace the others are on, and ends with its
holder.
"""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import StrictSoftFileLock

from dr_lib.errors import InputError
from dr_lib.files import file_lock, hold
from dr_lib.stages import Cache, stage

ROOT = Path(__file__).parents[2]
GONE = 2**22 + 1  # above every process number that Linux gives


def claim(lock: StrictSoftFileLock, pid: int, host: str = "{}", later: int = 0) -> None:
    """The claim of another process that holds the lock.

    Args:
        lock: the lock.
        pid: the number of that process.
        host: its machine; `{}` is this one, with its PID namespace.
        later: how many ticks after that process this one was started.
    """
    lock.acquire()
    (ours,) = {(claim.hostname, claim.start) for claim in lock.claims}
    if later and ours[1] is None:
        pytest.skip("no start of a process is known here")
    start = "" if ours[1] is None else str(ours[1] - later)
    for name in ("held", "intent"):
        (path,) = Path(f"{lock.lock_file}.filelock").glob(f"claims/{name}-*")
        lines = path.read_text().split("\n")
        lines[2:5] = str(pid), host.format(ours[0]).encode().hex(), start
        path.unlink()
        path.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("pid", "host", "later", "free"),
    [
        (GONE, "{}", 0, True),
        (os.getpid(), "{}", 0, False),
        (os.getpid(), "{}", 1, True),  # the number belongs to a process that was started later
        (GONE, "{}0", 0, False),  # node1 and node10
        (GONE, "{}?pidns-f0000001", 0, False),  # a container of the same name
        (GONE, "elsewhere", 0, False),
    ],
    # the number of this process is another one in each worker of a test run
    ids=["gone", "alive", "number given anew", "node10", "a container", "another host"],
)
def test_only_a_holder_that_is_proven_gone_loses_its_lock(
    tmp_path, monkeypatch, pid, host, later, free
):
    monkeypatch.setenv("DR_SHARED_CACHE", "1")
    path = tmp_path / "a.lock"
    holder = StrictSoftFileLock(path.with_suffix(".shared"))
    claim(holder, pid, host, later)
    assert bool(file_lock(path).claims) != free


def test_what_holds_a_lock_is_named_to_who_waits(tmp_path):
    said, context = [], multiprocessing.get_context("fork")
    taken, done = context.Event(), context.Event()

    def first() -> None:
        with hold(tmp_path / "a.lock", "the book", "writing it"):
            taken.set()
            done.wait(30)

    holder = context.Process(target=first)
    holder.start()
    assert taken.wait(30)

    def announce(line: str) -> None:
        said.append(line)
        done.set()

    with hold(tmp_path / "a.lock", "the book", "writing it", announce):
        assert not holder.is_alive() or holder.join(30) is None
    who = f"process {holder.pid} on {socket.gethostname()} (since "
    assert said[0].startswith(f"the book: waiting for {who}")
    assert said[0].endswith("), which is writing it") and len(said) == 1
    assert not (tmp_path / "a.owner").exists()


@pytest.mark.parametrize("shared", ["", "1"], ids=["own disk", "network disk"])
def test_a_lock_that_was_taken_over_is_noticed_and_left_to_its_new_holder(
    tmp_path, monkeypatch, shared
):
    monkeypatch.setenv("DR_SHARED_CACHE", shared)
    path = tmp_path / "a.lock"
    with hold(path, "the book", "writing it") as check_held:
        check_held()
        (tmp_path / "a.owner").write_text("process 7 on node7\nanother token\n")
        with pytest.raises(InputError, match="took its lock over while this one was writing it"):
            check_held()
    assert (tmp_path / "a.owner").read_text() == "process 7 on node7\nanother token\n"


@pytest.mark.parametrize("shared", [("", "1"), ("1", "")])
def test_a_lock_that_was_used_on_one_kind_of_disk_serves_on_the_other(
    tmp_path, monkeypatch, shared
):
    for value in shared:
        monkeypatch.setenv("DR_SHARED_CACHE", value)
        with hold(tmp_path / "a.lock", "the book", "writing it") as check_held:
            check_held()


def test_a_lock_that_is_held_on_a_network_disk_is_none_on_the_own_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("DR_SHARED_CACHE", "1")
    with hold(tmp_path / "a.lock", "the book", "writing it"):
        monkeypatch.setenv("DR_SHARED_CACHE", "")
        with pytest.raises(InputError, match="has DR_SHARED_CACHE set"):
            file_lock(tmp_path / "a.lock")


@pytest.mark.parametrize("days", [-400, 400])
def test_a_clock_that_is_set_takes_no_lock_from_a_living_holder(
    tmp_path, monkeypatch, counted, days
):
    monkeypatch.setenv("DR_SHARED_CACHE", "1")
    wall = time.time
    with hold(tmp_path / "a.lock", "the book", "writing it") as check_held:
        monkeypatch.setattr("time.time", lambda: wall() + 86_400 * days)
        for path in tmp_path.rglob("*"):
            os.utime(path, (wall() - 86_400 * days,) * 2)
        assert file_lock(tmp_path / "a.lock").claims
        check_held()
    counted("clocks that are set while something is held or kept", 1)


@pytest.mark.parametrize("fails", [False, True])
def test_a_stage_whose_lock_was_taken_over_is_not_finished_nor_removed(tmp_path, fails):
    @stage()
    def slow(folder):
        (folder / "made.txt").write_text("made")
        (tmp_path / "locks" / f"{made.name}.owner").write_text("another\ntoken\n")
        if fails:
            raise ValueError("half made")

    made, cache = slow(), Cache(tmp_path, announce=str)
    with pytest.raises(InputError, match="took its lock over"):
        cache.get(made)
    assert not cache.finished(made) and not (cache.draft(made) / "manifest.json").exists()
    assert [path.name for path in cache.draft(made).iterdir()] == ["made.txt"]  # the new holder's


BUILD = """
import sys, time
from pathlib import Path
from dr_lib import files
from dr_lib.stages import Cache, stage

files.LOOK_EVERY = 0.1
name, root = sys.argv[1], Path(sys.argv[2])

@stage(resumable=True)
def both(folder):
    for row in range(200):
        (folder / f"{name}-{row}").write_text(name)
        time.sleep(0.02)
        if row == 2:
            (root / f"{name}.begun").touch()
    for _ in range(600):  # until the other one waits, however late a busy machine starts it
        if (root / "said").exists():
            break
        time.sleep(0.1)

def say(line):
    (root / "said").touch()
    print(line, flush=True)

both.body.__qualname__  # the code of both processes is one
cache = Cache(root, announce=say)
print(cache.get(both()), flush=True)
"""


def apart(hostname: str, script: Path, root: Path) -> subprocess.Popen:
    """A process that builds the stage on a machine of that name, in a separate PID namespace."""
    python = f'exec "{sys.executable}" "{script}" {hostname} "{root}"'
    return subprocess.Popen(
        ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c",
         f"hostname {hostname} && {python}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "DR_SHARED_CACHE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


@pytest.mark.faults
@pytest.mark.parametrize(
    "names", [("node10", "node1"), ("node1", "node10"), ("pod", "pod"), ("node2", "node10")]
)
def test_machines_and_containers_that_share_a_cache_build_a_stage_once(
    tmp_path, counted, wait_for, names
):
    try:
        probe = ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "hostname", "x"]
        if subprocess.run(probe, capture_output=True).returncode:
            pytest.skip("namespaces need the right to make them")
    except FileNotFoundError:
        pytest.skip("no unshare here")
    script = tmp_path / "build.py"
    script.write_text(BUILD)
    root = tmp_path / "stages"
    root.mkdir()
    first = apart(names[0], script, root)
    wait_for(lambda: (root / f"{names[0]}.begun").exists(), 60)
    second = apart(names[1], script, root)
    said = [process.communicate(timeout=120)[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], said
    assert said[1].startswith("both-") and f" on {names[0]} (since" in said[1], said
    (folder,) = (path.parent for path in root.glob("*/manifest.json"))
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert files.keys() == {f"{names[0]}-{row}" for row in range(200)}
    counted("stages wanted by two machines or containers at once", 1)


@pytest.mark.faults
def test_a_lock_whose_owners_number_was_given_to_another_process_is_taken_at_once(
    tmp_path, monkeypatch, counted
):
    monkeypatch.setenv("DR_SHARED_CACHE", "1")
    monkeypatch.setattr("dr_lib.files.LOOK_EVERY", 0.1)
    claim(StrictSoftFileLock(tmp_path / "a.shared"), os.getpid(), later=500)
    began = time.monotonic()
    with hold(tmp_path / "a.lock", "the book", "writing it"):
        assert time.monotonic() - began < 20
    counted("locks whose owner's number belongs to another process", 1)
