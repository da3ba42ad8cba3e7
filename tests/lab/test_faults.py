"""Faults at random: killed and competing processes, damaged files, a full disk. `make test-faults`; counts by -rP.

A child is a fork of this process, so that a trial costs seconds and not the import of torch. What is compared is the
record, which holds every score and the digest of all weights.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import psutil
import pytest

from dr_lib import lab
from dr_lib.errors import InputError
from dr_lib.lab import Pipeline, Recipe, Record
from dr_lib.stages import Cache

pytestmark = [pytest.mark.faults, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]
ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("DR_KILLS", "200"))  # of the four recipes together
TIMES = ("resumed_at", "wall_seconds", "train_seconds", "tokens_per_second", "peak_memory")


def execute(recipe: Recipe, root: Path) -> Record:
    return lab.execute(lab.Run("faults/test", "row", "smoke", recipe), Cache(root, announce=lambda line: None))


def result(record: Record) -> dict:
    """A record without what two runs of one recipe may differ in."""
    content = json.loads(record.model_dump_json(exclude={"seconds", "created"}))
    for facts in content["training"].values():
        for name in TIMES:
            facts.pop(name, None)
        facts["curve"].pop("tokens_per_second", None)
    return content


def forked(recipe: Recipe, root: Path, answer: Path) -> int:
    """Run a recipe in a child, which writes its result or what went wrong to `answer`."""
    if child := os.fork():
        return child
    code = 1
    try:
        answer.write_text(json.dumps(result(execute(recipe, root))))
        code = 0
    except BaseException:  # a fork must never return into pytest
        answer.with_suffix(".error").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def wait_for(children: list[int], answers: list[Path]) -> list[dict]:
    for child, answer in zip(children, answers, strict=True):
        _, status = os.waitpid(child, 0)
        error = answer.with_suffix(".error")
        assert status == 0, error.read_text() if error.exists() else f"ended by signal {status}"
    return [json.loads(answer.read_text()) for answer in answers]


@pytest.fixture
def recipes(tiny_recipe) -> dict[str, Recipe]:
    """Together nearly every stage: both retrievers, re-ranker, teacher, distillation; both writers, generator, pairs."""
    labels = {"depth": 6, "s_pos": 1e-6, "s_neg": 0.0}  # a scorer of two steps is sure of nothing
    pair = tiny_recipe.with_(objective="pair", objective__batch_pairs=4, auxiliary__pseudo_labels=labels)
    return {
        "distilled": tiny_recipe.with_(final="distilled", dropout=0.1),
        "texts written": tiny_recipe.with_(objective="master", final="retriever1"),
        "labels guessed": pair.with_(final="retriever1"),
        "checks": tiny_recipe.with_(objective="cdmae", final="distilled", evaluation__kind="checks"),
    }


@pytest.mark.parametrize("name", ["distilled", "texts written", "labels guessed", "checks"])
def test_what_is_killed_at_random_ends_as_if_it_had_not_been(recipes, tmp_path, name):
    recipe, rng = recipes[name], random.Random(name)
    started = time.perf_counter()
    whole = result(execute(recipe, tmp_path / "whole"))
    longest = time.perf_counter() - started
    kills = runs = 0
    while kills < KILLS // len(recipes):
        root, answer, runs = tmp_path / f"stages{runs}", tmp_path / f"answer{runs}", runs + 1
        patience = 0.0
        while True:
            child = forked(recipe, root, answer)
            # Late enough that a part of the way is made; ever later, so that the longest stage without a checkpoint ends.
            time.sleep(rng.uniform(0, longest / 3) + patience)
            patience += longest / 50
            if os.waitpid(child, os.WNOHANG) != (0, 0):
                break
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            kills += 1
        assert answer.exists(), answer.with_suffix(".error").read_text()
        assert json.loads(answer.read_text()) == whole
        shutil.rmtree(root)
    print(f"{name}: {kills} kills, {runs} runs, all as the unbroken one")


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_that_share_a_cache_and_lose_one_of_them_agree(recipes, tmp_path, processes):
    recipe, rng = recipes["distilled"], random.Random(processes)
    whole = result(execute(recipe, tmp_path / "whole"))
    for trial in range(4):
        root = tmp_path / f"stages{trial}"
        answers = [tmp_path / f"answer{trial}-{number}" for number in range(processes)]
        children = [forked(recipe, root, answer) for answer in answers]
        time.sleep(rng.uniform(0.1, 1.5))
        victim = rng.randrange(processes)
        os.kill(children[victim], signal.SIGKILL)
        os.waitpid(children[victim], 0)
        children[victim] = forked(recipe, root, answers[victim])
        assert all(one == whole for one in wait_for(children, answers))
        assert not list(root.glob("*.partial"))


def damages(path: Path, rng: random.Random) -> dict[str, bytes | None]:
    """Ways in which a file is found after an accident: its new content, or None where it is gone."""
    content = path.read_bytes()
    place = rng.randrange(len(content)) if content else 0
    return {
        "gone": None,
        "empty": b"",
        "cut": content[: len(content) // 2],
        "longer": content + b"\0",
        "flipped": content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :] if content else b"\xff",
        "noise": rng.randbytes(len(content)),
    }


def test_a_damaged_file_of_any_stage_is_named_or_built_again_and_never_believed(recipes, tmp_path):
    recipe, rng, root = recipes["distilled"], random.Random(0), tmp_path / "stages"
    whole = result(execute(recipe, root))
    refused = rebuilt = harmless = 0
    stages = list(Pipeline(recipe).evaluation.walk())
    for stage in stages:
        folder = root / stage.name
        for path in rng.sample(files := sorted(p for p in folder.rglob("*") if p.is_file()), min(4, len(files))):
            sound = path.read_bytes()
            for kind, content in damages(path, rng).items():
                if content == sound:
                    continue
                path.unlink() if content is None else path.write_bytes(content)
                cache = Cache(root, announce=lambda line: None)
                try:
                    record = lab.execute(lab.Run("faults/test", "row", "smoke", recipe), cache)
                except InputError as error:
                    assert stage.name in str(error), (stage.name, path.name, kind, str(error))
                    refused += 1
                else:
                    assert result(record) == whole, (stage.name, path.name, kind)
                    rebuilt, harmless = rebuilt + bool(cache.built), harmless + (not cache.built)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(sound)
    assert refused and result(execute(recipe, root)) == whole
    print(f"{len(stages)} stages: {refused} damages named, {rebuilt} built again, {harmless} not needed any more")


def test_a_full_disk_ends_in_one_line_wherever_it_happens(recipes, tmp_path):
    """Files may not grow over a limit, which fails as a full disk does: in any write, at any place."""
    resource = pytest.importorskip("resource")
    recipe = recipes["distilled"]
    whole = result(execute(recipe, tmp_path / "whole"))
    root, seen = tmp_path / "stages", set()
    for number, limit in enumerate([200, 1_000, 3_000, 8_000, 20_000, 50_000, 100_000, 200_000]):
        answer = tmp_path / f"answer{number}"
        if not (child := os.fork()):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            code = 1
            try:
                execute(recipe, root)
                code = 0
            except InputError:
                code = 3
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.WIFEXITED(status), f"limit {limit}: ended by signal {os.WTERMSIG(status)}"
        assert os.WEXITSTATUS(status) in (0, 3), f"limit {limit}: another exception than InputError"
        seen.add(os.WEXITSTATUS(status))
        assert not answer.exists()
    assert 3 in seen
    assert result(execute(recipe, root)) == whole


def test_a_disk_that_is_really_full_ends_in_one_line_and_not_in_a_signal(recipes, tmp_path):
    """Mapped files take their room when they are made: else a full disk would show as SIGBUS, without a word."""
    recipe, disk = recipes["distilled"], tmp_path / "disk"
    disk.mkdir()
    whole = result(execute(recipe, tmp_path / "whole"))
    size = sum(path.stat().st_size for path in (tmp_path / "whole").rglob("*") if path.is_file())
    ends = set()
    for share in (0.05, 0.2, 0.4, 0.6, 0.8):
        options = f"size={int(share * size)}"
        if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], capture_output=True).returncode:
            pytest.skip("small disks need the right to mount")
        try:
            if not (child := os.fork()):
                code = 1
                try:
                    execute(recipe, disk / "stages")
                    code = 0
                except InputError:
                    code = 3
                except BaseException:
                    os.write(2, traceback.format_exc().encode())
                finally:
                    os._exit(code)
            _, status = os.waitpid(child, 0)
            assert os.WIFEXITED(status), f"{options}: ended by signal {os.WTERMSIG(status)}"
            ends.add(os.WEXITSTATUS(status))
            subprocess.run(["mount", "-o", f"remount,size={3 * size}", str(disk)], check=True)
            assert result(execute(recipe, disk / "stages")) == whole
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)  # lazy: this process has files of it mapped
    assert ends <= {0, 3} and 3 in ends


BATCH = """
import time
for second in range(600):
    time.sleep(1)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_batch_that_is_stopped_starts_nothing_more_and_leaves_nothing_running(tmp_path, how):
    nbformat = pytest.importorskip("nbformat")
    for name in ("first", "second", "third"):
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(BATCH)])
        nbformat.write(book, tmp_path / f"{name}.ipynb")
    command = [sys.executable, "-m", "dr_lib", "batch", str(tmp_path), "--jobs", "2", "--to", str(tmp_path / "done")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=ROOT)

    def of_us() -> list:
        return [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(one.info["cmdline"] or [])]

    deadline = time.monotonic() + 120
    while len(of_us()) < 3 and time.monotonic() < deadline:  # the batch and two notebooks
        time.sleep(0.2)
    time.sleep(2)
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[how]
    assert "Traceback" not in errors
    deadline = time.monotonic() + 20
    while of_us() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert (not of_us() and not (tmp_path / "done").exists()) or not list((tmp_path / "done").glob("*.ipynb"))
