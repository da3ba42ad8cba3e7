"""Stages on disk: found and skipped, shared between processes, continued after a kill, checked before use."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dr_lib.errors import InputError
from dr_lib.files import read_json
from dr_lib.lab.cache import Cache, check_folder
from dr_lib.lab.stage import Stage

# A stage of 40 short steps; each is noted outside the cache, progress is kept in the stage's own folder.
SLOW = """
import sys, time
from pathlib import Path
from dr_lib.lab.cache import Cache
from dr_lib.lab.stage import Stage

root, steps, pause = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

def build(folder, inputs):
    done = folder / "done.txt"
    while (root / "hold").exists():
        time.sleep(0.02)
    for step in range(int(done.read_text()) if done.exists() else 0, steps):
        with (root / "log.txt").open("a") as log:
            log.write(f"{step}\\n")
        time.sleep(pause)
        done.write_text(str(step + 1))
    (folder / "result.txt").write_text(str(sum(range(steps))))

def tell(line):
    with (root / "told.txt").open("a") as file:
        file.write(line + "\\n")

stage = Stage("slow", 1, {"steps": steps}, build, resumable=True)
print((Cache(root / "stages", tell).get(stage) / "result.txt").read_text(), flush=True)
"""


def start(tmp_path: Path, steps: int, pause: float) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tmp_path), str(steps), str(pause)], stdout=subprocess.PIPE, text=True
    )


def wait_for(path: Path, lines: int = 0) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not path.exists() or len(path.read_text().split()) < lines):
        time.sleep(0.02)
    assert path.exists()


def test_a_finished_stage_is_found_and_skipped(cache, counting):
    words = counting("words")
    joined = counting("joined", {"words": words})
    first = (cache.get(joined) / "words.txt").read_text()
    again = Cache(cache.root, announce=lambda line: None)
    assert (again.get(joined) / "words.txt").read_text() == first
    assert counting.builds == ["words", "joined"]
    assert again.built == []


def test_a_changed_parameter_rebuilds_only_what_depends_on_it(cache, counting):
    tokens = counting("tokens")
    for rate in (0.3, 0.5):
        trained = counting("trained", {"tokens": tokens}, rate=rate)
        cache.get(counting("scores", {"trained": trained, "other": counting("negatives", {"tokens": tokens})}))
    assert counting.builds == ["tokens", "trained", "negatives", "scores", "trained", "scores"]


def test_the_key_depends_on_version_parameters_and_inputs_only(counting):
    base = counting("a", rate=1)
    assert counting("a", rate=1).key == base.key
    assert counting("a", rate=1, cost=9.0).key == base.key
    others = [counting("a", rate=2), counting("b", rate=1), counting("a", version=2, rate=1)]
    others.append(counting("a", {"up": counting("x")}, rate=1))
    assert len({base.key, *(other.key for other in others)}) == 5


def test_the_manifest_names_every_file_with_size_and_checksum(cache, counting):
    stage = counting("words", size=3)
    folder = cache.get(stage)
    manifest = read_json(folder / "manifest.json")
    assert manifest["key"] == stage.key
    assert manifest["params"] == {"size": 3}
    assert manifest["files"]["words.txt"]["bytes"] == (folder / "words.txt").stat().st_size
    assert manifest["versions"]["torch"]


@pytest.mark.parametrize("damage", ["cut", "gone", "same size"])
def test_a_damaged_stage_is_refused_with_file_and_way_out(cache, counting, damage, monkeypatch):
    stage = counting("words")
    file = cache.get(stage) / "words.txt"
    text = file.read_text()
    if damage == "gone":
        file.unlink()
    else:
        file.write_text(text[:-1] if damage == "cut" else "X" + text[1:])
    monkeypatch.setattr("dr_lib.lab.cache._checked", set())  # as a new process would see it
    with pytest.raises(InputError, match=r"words\.txt.*Remove .*words-") as error:
        cache.get(stage)
    assert str(file.parent) in str(error.value)
    assert counting.builds == ["words"]


def test_a_deep_check_finds_what_changed_after_the_first_use(cache, counting):
    folder = cache.get(counting("words"))
    (folder / "words.txt").write_text("X" + (folder / "words.txt").read_text()[1:])
    check_folder(folder)
    with pytest.raises(InputError, match="checksum"):
        check_folder(folder, deep=True)


def test_a_broken_manifest_is_refused_with_the_way_out(cache, counting):
    stage = counting("words")
    (cache.get(stage) / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest.*Remove"):
        cache.get(stage)


def test_a_failed_build_leaves_nothing_that_counts_as_finished(cache):
    def fail(folder: Path, inputs: dict[str, Path]) -> None:
        (folder / "half.txt").write_text("half")
        raise RuntimeError("out of luck")

    stage = Stage("failing", 1, {}, fail)
    with pytest.raises(RuntimeError):
        cache.get(stage)
    assert not cache.finished(stage)
    found = []
    cache.get(Stage("failing", 1, {}, lambda folder, inputs: found.extend(folder.iterdir())))
    assert found == []


def test_checkpoints_are_no_part_of_the_result_and_go_when_it_is_there(cache):
    def build(folder: Path, inputs: dict[str, Path]) -> None:
        for place in (folder / "checkpoint-20", folder / "model"):
            place.mkdir()
            (place / "weights.bin").write_text("1")

    stage = Stage("training", 1, {}, build, resumable=True)
    folder = cache.get(stage)
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "model"]
    assert list(cache.manifest(stage)["files"]) == ["model/weights.bin"]


def test_a_build_killed_in_the_middle_continues_to_the_same_result(tmp_path):
    log = tmp_path / "log.txt"
    process = start(tmp_path, steps=40, pause=0.05)
    wait_for(log, 5)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = len(log.read_text().split())
    assert before < 40
    result, _ = start(tmp_path, steps=40, pause=0.0).communicate(timeout=60)
    steps = [int(step) for step in log.read_text().split()]
    assert result.split()[-1] == str(sum(range(40)))
    assert steps[before] >= before - 1  # went on where it was, the last step at most once more
    assert sorted(set(steps)) == list(range(40))


def test_two_processes_that_want_one_stage_build_it_once(tmp_path):
    (tmp_path / "hold").touch()
    both = [start(tmp_path, steps=5, pause=0.01) for _ in range(2)]
    wait_for(tmp_path / "told.txt", lines=1)
    (tmp_path / "hold").unlink()
    told = [process.communicate(timeout=90)[0] for process in both]
    assert [text.split()[-1] for text in told] == ["10", "10"]
    assert len((tmp_path / "log.txt").read_text().split()) == 5
    (waited,) = (tmp_path / "told.txt").read_text().splitlines()
    assert re.search(rf"waiting for process ({both[0].pid}|{both[1].pid}) ", waited)


def test_processes_that_train_together_do_not_wait_for_each_other_here(cache, counting, monkeypatch):
    stage = counting("a")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="WORLD_SIZE: stages are built by one process alone"):
        cache.get(stage)
    monkeypatch.delenv("WORLD_SIZE")
    built = cache.get(stage)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert cache.get(stage) == built
