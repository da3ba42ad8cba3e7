"""Faults at random: killed and competing processes, damaged files, a full disk. `make test-faults`,
which keeps the counts.

A child is a fork of a process that has imported everything, so that a trial takes seconds, without
importing torch. Records are compared, which have every score and the digests of all weights.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

from dr_book.data.stand_ins import made_dialogues
from dr_book.pretrain import pretrain
from dr_lib import lab
from dr_lib.errors import InputError
from dr_lib.files import file_digest
from dr_lib.lab import BaseRecipe, Recipe, build_base, pipeline
from dr_lib.stages import Cache, TimeIsUpError, read_manifest
from tests.child import Child, silence

resource = pytest.importorskip("resource", reason="needs Unix")
pytestmark = pytest.mark.faults
ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("DR_KILLS", "200"))  # of all recipes together


def run_of(recipe: Recipe, root: Path, limit: int | None = None, prepare: str = "") -> Child:
    """A run in a separate process, whose files may grow to `limit` bytes."""
    before: list[tuple] = [(exec, prepare)]
    if limit:
        # bars may go to a file that has a limit too
        before += [(silence,), (resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))]
    run = lab.Run("faults/test", "row", "smoke", recipe)
    return Child(lab.execute, run, Cache(root, announce=str), before=before)


RECIPES = (
    "distilled",
    "texts written",
    "labels guessed",
    "pairs generated",
    "late interaction",
    "dialogues",
    "sentences",
)


@pytest.fixture
def recipes(tiny_recipe, tmp_path) -> dict[str, Recipe]:
    """Recipes that together have nearly every stage: both retrievers, re-rankers, teacher,
    distillation; writers, generator, pairs, evaluations.
    """
    labels = {"depth": 6, "s_pos": 1e-6, "s_neg": 0.0}  # a scorer of two steps is sure of nothing
    pairs = {"objective__batch_pairs": 4, "final": "retriever1"}
    talk = str(made_dialogues(lab.open_sample(tiny_recipe.collection)))
    sentences = tmp_path / "sentences"
    sentences.mkdir()
    for split, rows in (("train", 48), ("dev", 20)):
        lines = [
            f"x\t{row % 2}\t\tthe {('decoder', 'vector')[row % 2]} passages" for row in range(rows)
        ]
        (sentences / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    made = {
        "distilled": tiny_recipe.with_(final="distilled", dropout=0.1),
        "texts written": tiny_recipe.with_(objective="master", final="retriever1"),
        "labels guessed": tiny_recipe.with_(
            objective="pair", auxiliary__pseudo_labels=labels, **pairs
        ),
        "pairs generated": tiny_recipe.with_(
            objective="paq",
            auxiliary__paq_pairs={"per_passage": 3, "filter": "none", "depth": 4},
            **pairs,
        ),
        "late interaction": tiny_recipe.with_(
            objective="reddit", reranking__by="late_interaction", **pairs | {"final": "distilled"}
        ),
        "dialogues": tiny_recipe.with_(
            objective="reddit",
            final="reranker",
            auxiliary__reddit_pairs__file=talk,
            auxiliary__cross_encoder__length=40,
            evaluation__kind="dialogue",
            evaluation__dialogue={"folder": talk, "context_length": 24},
        ),
        "sentences": tiny_recipe.with_(
            evaluation__kind="nlu",
            evaluation__nlu={
                "task": "cola",
                "folder": str(sentences),
                "epochs": 2,
                "batch_rows": 8,
                "length": 16,
            },
        ),
    }
    assert made.keys() == {*RECIPES}
    return made


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_killed_at_random_ends_as_if_it_had_not_been(
    recipes, tmp_path, name, without_times, counted
):
    recipe, rng = recipes[name], random.Random(name)
    started = time.perf_counter()
    whole = without_times(run_of(recipe, tmp_path / "whole").result())
    longest = time.perf_counter() - started
    kills = runs = 0
    while kills < max(1, KILLS // len(recipes)):
        root, patience, runs = tmp_path / f"stages{runs}", 0.0, runs + 1
        # Late enough that a part of the way is made; ever later, so that the longest stage without
        # a checkpoint ends.
        while (child := run_of(recipe, root)).killed_after(rng.uniform(0, longest / 3) + patience):
            patience += longest / 50
            kills += 1
        assert without_times(child.result()) == whole
        shutil.rmtree(root)
    counted("kills of a run at random moments, over all stages", kills)


STOPPED = ("distilled", "contrastive", "pretrained", "base")
HOWS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL, None)  # None: its time is up


class Stoppable(Child):
    """A call in a separate process, which a signal or its time budget may end."""

    def ended(self, how: signal.Signals | None, seconds: float | None) -> bool:
        """Whether it finished before it was stopped."""
        try:
            self.future.result(timeout=seconds if how else 600)
        except TimeoutError:
            os.kill(self.pid, how)
            with suppress(BaseException):
                self.future.result(timeout=600)
            return False
        except TimeIsUpError:
            return False
        finally:
            self.pool.shutdown()
        return True


@pytest.mark.parametrize("name", STOPPED)
def test_stops_of_every_kind_end_as_one_run_that_nobody_stopped(
    recipes, tiny_recipe, tmp_path, name, counted
):
    """Compared files: those of all stages, by their manifests, and of the result."""
    rng = random.Random(name)
    base = BaseRecipe(
        name="tiny", sources=[{"name": tiny_recipe.collection.name}], vocabulary=120, layers=1,
        hidden=32, positions=64, length=32, held_out=0.2,
        training={"steps": 8, "tokens_per_batch": 256, "checkpoint_every": 2},
    )  # fmt: skip
    work = {
        "distilled": (lab.execute, lab.Run("faults/test", "row", "smoke", recipes["distilled"])),
        "contrastive": (pretrain, recipes["late interaction"]),
        "pretrained": (pretrain, tiny_recipe.with_(objective="retromae")),
        "base": (build_base, base),
    }
    function, about = work[name]

    def made(place: Path) -> dict[str, object]:
        stages = manifests(place / "stages")
        files = {one["key"]: one["files"] for one in stages}
        for facts in files.values():  # a log has times in it
            for file in [file for file in facts if file.endswith("log.json")]:
                del facts[file]
        out = place / "out"
        weights = {
            path.relative_to(out).as_posix(): file_digest(path)
            for path in out.rglob("*.safetensors")
        }
        return {"stages": files, "weights": weights}

    def call(place: Path, minutes: float | None) -> Stoppable:
        cache = Cache(place / "stages", announce=str)
        more = () if function is lab.execute else (place / "out",)
        if function is build_base:  # takes the folder by name
            bounded = partial(build_base, to=place / "out")
            return Stoppable(bounded, about, cache=cache.within(minutes))
        return Stoppable(function, about, *more, cache=cache.within(minutes))

    started = time.perf_counter()
    assert call(tmp_path / "whole", None).ended(signal.SIGKILL, 600)
    longest, whole = time.perf_counter() - started, made(tmp_path / "whole")
    stops = chains = 0
    while stops < max(2, KILLS // 10):
        place, patience, chains = tmp_path / str(chains), 0.0, chains + 1
        while True:
            how = rng.choice(HOWS)
            seconds = rng.uniform(0.05, longest / 2) + patience
            stopped = call(place, None if how else seconds / 60)
            if stopped.ended(how, seconds):
                break
            stops, patience = stops + 1, patience + longest / 10
        assert made(place) == whole
    counted("stops by TERM, INT, KILL and time budget in one chain", stops)


def manifests(root: Path) -> list[dict]:
    """The manifests of all finished stages in a cache."""
    return [
        read_manifest(path.parent) for path in sorted(root.glob("*-????????????????/manifest.json"))
    ]


def encoded(root: Path) -> tuple[bytes, list[str]]:
    """All vectors of a run in the order of their rows, and the digests of its ranking."""
    made = [one for one in manifests(root) if one["kind"] in ("vectors", "dense_run")]
    *shards, run = sorted(made, key=lambda one: one["parameters"].get("rows", [10**9]))
    folders = [root / f"vectors-{one['key'][:16]}" for one in shards]
    vectors = b"".join(np.load(folder / "vectors.npy").tobytes() for folder in folders)
    return vectors, [facts["sha256"] for _, facts in sorted(run["files"].items())]


def test_shards_killed_at_random_end_as_one_array_does(tiny_recipe, tmp_path, counted):
    recipe, rng, kills = (
        tiny_recipe.with_(objective="none", final="pretrained"),
        random.Random(0),
        0,
    )
    small = (
        "import sys; sys.modules['dr_lib.retrieval.encoding'].SAVE_EVERY = 0;"
        " part = sys.modules['dr_lib.tokens.store']; part.BLOCK, part.SHARD = 4, {}"
    )
    run_of(recipe, tmp_path / "whole", prepare=small.format(400)).result()
    whole = encoded(tmp_path / "whole")
    for trial in range(max(3, KILLS // 20)):
        root, prepare = tmp_path / str(trial), small.format(4 * rng.randint(1, 5))
        child, wanted = run_of(recipe, root, prepare=prepare), rng.randint(1, 3)
        # in the middle of a shard, part of which may be on disk
        while wanted and not child.future.done():
            if list(root.glob("vectors-*.partial")) and child.killed_after(rng.uniform(0, 0.05)):
                child, kills, wanted = run_of(recipe, root, prepare=prepare), kills + 1, wanted - 1
            time.sleep(0.002)
        child.result()
        assert encoded(root) == whole
    counted("kills while vectors were written", kills)


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_that_share_a_cache_and_lose_one_of_them_agree(
    recipes, tmp_path, processes, without_times, counted
):
    recipe, rng = recipes["distilled"], random.Random(processes)
    whole = without_times(run_of(recipe, tmp_path / "whole").result())
    for trial in range(4):
        root = tmp_path / f"stages{trial}"
        children = [run_of(recipe, root) for _ in range(processes)]
        victim = rng.randrange(processes)
        counted(
            f"kills of one of {processes} processes on one cache",
            children[victim].killed_after(rng.uniform(0.1, 1.5)),
        )
        children[victim] = run_of(recipe, root)
        assert all(without_times(child.result()) == whole for child in children)
        assert not list(root.glob("*.partial"))


def damages(path: Path, rng: random.Random) -> dict[str, bytes | None]:
    """Kinds of damage to a file: its new content, or None if it is gone."""
    content = path.read_bytes()
    place = rng.randrange(len(content)) if content else 0
    return {
        "gone": None,
        "empty": b"",
        "cut": content[: len(content) // 2],
        "longer": content + b"\0",
        "flipped": (
            content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]
            if content
            else b"\xff"
        ),
        "noise": rng.randbytes(len(content)),
    }


def test_a_damaged_file_of_any_stage_is_named_or_built_again_and_never_believed(
    recipes, tmp_path, without_times, counted
):
    run, rng, root = (
        lab.Run("faults/test", "row", "smoke", recipes["distilled"]),
        random.Random(0),
        tmp_path / "stages",
    )
    whole = without_times(lab.execute(run, Cache(root, announce=str)))
    refused = rebuilt = harmless = 0
    stages = list(pipeline(run.recipe).end.walk())
    for stage in stages:
        folder = root / stage.name
        for path in rng.sample(
            files := sorted(p for p in folder.rglob("*") if p.is_file()), min(4, len(files))
        ):
            sound = path.read_bytes()
            for kind, content in damages(path, rng).items():
                if content == sound:
                    continue
                path.unlink() if content is None else path.write_bytes(content)
                cache = Cache(root, announce=str)
                try:
                    record = lab.execute(run, cache)
                except InputError as error:
                    assert stage.name in str(error), (stage.name, path.name, kind, str(error))
                    refused += 1
                else:
                    assert without_times(record) == whole, (stage.name, path.name, kind)
                    rebuilt, harmless = rebuilt + bool(cache.built), harmless + (not cache.built)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(sound)
    assert refused and without_times(lab.execute(run, Cache(root, announce=str))) == whole
    counted("damaged files of stages: named with the way out", refused)
    counted("damaged files of stages: built again", rebuilt)
    counted("damaged files of stages: not needed any more", harmless)


def test_a_damaged_file_of_any_kind_of_stage_is_named_to_whoever_wants_it(
    recipes, tmp_path, counted
):
    """Including materials: questions, continuations, generators, word weights, pseudo-labels."""
    rng, root, named = random.Random(1), tmp_path / "stages", 0
    for recipe in recipes.values():
        lab.execute(lab.Run("faults/test", "row", "smoke", recipe), Cache(root, announce=str))
    for stage in {
        one.kind: one for recipe in recipes.values() for one in pipeline(recipe).end.walk()
    }.values():
        for path in sorted(path for path in (root / stage.name).rglob("*") if path.is_file()):
            sound = path.read_bytes()
            for content in damages(path, rng).values():
                if content == sound:
                    continue
                path.unlink() if content is None else path.write_bytes(content)
                with pytest.raises(InputError, match=stage.name):
                    Cache(root, announce=str).get(stage)
                path.write_bytes(sound)
                named += 1
        assert Cache(root, announce=str).get(stage) == root / stage.name
    counted("damaged files of stages: named with the way out", named)


def test_a_full_disk_ends_in_one_line_wherever_it_happens(
    recipes, tmp_path, without_times, counted
):
    """Files may not exceed a limit, which fails like a full disk: in any write, at any place."""
    recipe, root, ends = recipes["distilled"], tmp_path / "stages", set()
    whole = without_times(run_of(recipe, tmp_path / "whole").result())
    for limit in (200, 1_000, 3_000, 8_000, 20_000, 50_000, 100_000, 200_000):
        error = run_of(recipe, root, limit).future.exception(timeout=600)
        assert error is None or isinstance(error, InputError), f"limit {limit}: {error!r}"
        ends.add(type(error))
        counted("writes that the disk refused: one clear error", isinstance(error, InputError))
    assert InputError in ends
    assert without_times(run_of(recipe, root).result()) == whole


def test_a_disk_that_is_really_full_ends_in_one_line_and_not_in_a_signal(
    recipes, tmp_path, without_times, counted
):
    """Mapped files allocate their space when created: otherwise a full disk would cause SIGBUS,
    without a message.
    """
    recipe, disk, ends = recipes["distilled"], tmp_path / "disk", set()
    disk.mkdir()
    whole = without_times(run_of(recipe, tmp_path / "whole").result())
    size = sum(path.stat().st_size for path in (tmp_path / "whole").rglob("*") if path.is_file())
    for share in (0.05, 0.2, 0.4, 0.6, 0.8):
        options = f"size={int(share * size)}"
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], capture_output=True
        ).returncode:
            pytest.skip("small disks need the right to mount")
        try:
            error = run_of(recipe, disk / "stages").future.exception(timeout=600)
            assert error is None or isinstance(error, InputError), f"{options}: {error!r}"
            ends.add(type(error))
            counted("writes that the disk refused: one clear error", isinstance(error, InputError))
            subprocess.run(["mount", "-o", f"remount,size={3 * size}", str(disk)], check=True)
            assert without_times(run_of(recipe, disk / "stages").result()) == whole
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)
    assert InputError in ends


BATCH = """
import os, time
open("PLACE/" + str(os.getpid()), "w").close()
for second in range(600):
    time.sleep(1)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_batch_that_is_stopped_starts_nothing_more_and_leaves_nothing_running(
    tmp_path, how, counted, wait_for
):
    nbformat = pytest.importorskip("nbformat")
    running = tmp_path / "running"
    running.mkdir()
    for name in ("first", "second", "third"):
        book = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(BATCH.replace("PLACE", str(running)))]
        )
        nbformat.write(book, tmp_path / f"{name}.ipynb")
    command = [
        sys.executable,
        str(ROOT / "book" / "_ext" / "run_notebooks.py"),
        str(tmp_path),
        "--jobs",
        "2",
        "--to",
        str(tmp_path / "done"),
    ]
    # a suite in the background has it ignored
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        preexec_fn=heard,
    )
    wait_for(lambda: len(list(running.iterdir())) == 2, 120)
    ours = [one for one in psutil.Process(process.pid).children(recursive=True) if one.is_running()]
    assert len(ours) >= 4  # two notebooks, each with its kernel, however they were started
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[how]
    assert "Traceback" not in errors
    assert not psutil.wait_procs(ours, timeout=20)[1]
    assert len(list(running.iterdir())) == 2  # the third was never begun
    assert not list((tmp_path / "done").glob("*.ipynb"))
    counted("batches of notebooks stopped")
