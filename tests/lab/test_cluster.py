"""Studies on a real Dask cluster: every stage once, a killed worker loses nothing, locks hold on
shared disks.
"""

import multiprocessing
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from dr_lib import lab, stages
from dr_lib.errors import InputError
from dr_lib.files import hold
from dr_lib.lab import Cluster, Study
from dr_lib.stages import Cache, read_manifest

distributed = pytest.importorskip("distributed", reason="the extra `cluster`")
pytestmark = pytest.mark.faults


def runs_on(cluster, recipe, folder, **changes):
    """A study of two runs on a cluster, in a separate cache; what it made and where."""
    recipes = {"slow": recipe, "mean": recipe.with_(pooling="mean")}
    cache = Cache(folder, announce=str)
    return (
        Study("s/t", recipes, scale="smoke", executor=cluster, cache=cache, **changes).run().runs()
    )


@pytest.fixture
def slow(tiny_recipe):
    """A pre-training long enough to be killed."""
    return tiny_recipe.with_(
        objective="mlm", pretraining__steps=50, pretraining__checkpoint_every=2
    )


def test_a_worker_killed_in_mid_training_is_replaced_and_the_records_are_the_same(
    slow, tmp_path, without_times, counted
):
    with Cluster(2) as cluster:
        undisturbed = runs_on(cluster, slow, tmp_path / "one", records=tmp_path / "records")
        assert cluster._max_workers == 2
        with ThreadPoolExecutor(1) as beside:
            killed = beside.submit(kill_the_trainer, tmp_path / "two")
            disturbed = runs_on(cluster, slow, tmp_path / "two", records=tmp_path / "others")
            assert killed.result(timeout=60)
            counted("workers of a cluster killed in mid-training")
    for label, (record,) in undisturbed.items():
        assert without_times(disturbed[label][0]) == without_times(record)
    stages = [
        {path.parent.name for path in (tmp_path / name).glob("*/manifest.json")}
        for name in ("one", "two")
    ]
    assert stages[0] == stages[1]
    trained = [
        read_manifest(path.parent) for path in (tmp_path / "two").glob("pretrained-*/manifest.json")
    ]
    assert [one["resumed"] for one in trained] == [True]  # both runs need it, and it was built once


def kill_the_trainer(root) -> bool:
    """Kill -9 the pre-training process once it has written a checkpoint."""
    for _ in range(3000):
        if list(root.glob("pretrained-*.partial/checkpoint-*")):
            (owner,) = root.glob("locks/pretrained-*.owner")
            os.kill(int(owner.read_text().split()[1]), signal.SIGKILL)
            return True
        time.sleep(0.02)
    return False


def test_a_failing_run_is_named_and_the_other_kept(tiny_recipe, tmp_path):
    with Cluster(2) as cluster:
        broken = tiny_recipe.with_(
            finetuning__learning_rate=1e9, finetuning__steps=40, finetuning__clip=None
        )
        study = Study(
            "s/t", {"good": tiny_recipe, "broken": broken}, scale="smoke", executor=cluster
        )
        with pytest.raises(lab.StudyError) as error:
            study.run()
        assert study.at_once == 2
    assert list(error.value.result.runs()) == ["good"] and [
        run.label for run in error.value.result.failures
    ] == ["broken"]


def test_a_worker_stops_its_training_when_the_time_is_up(slow, tmp_path):
    long = slow.with_(pretraining__steps=1_000_000, pretraining__checkpoint_every=100_000)
    with Cluster(1) as cluster:
        options = {
            "scale": "smoke",
            "cache": Cache(tmp_path / "stages", announce=str),
            "minutes": 0.5,
        }
        result = Study("s/t", {"long": long}, executor=cluster, **options).run()
    ((run, far),) = result.pending.items()
    assert run.name == "long (seed 0)" and "of 1,000,000 steps of pre-training" in far


def test_where_workers_have_gpus_what_needs_one_waits_for_it(tiny_recipe, tmp_path, monkeypatch):
    asked, submit = {}, distributed.Client.submit

    def seen(client, function, *given, **options):
        if options.get("key"):
            asked[options["key"].rpartition("-")[0]] = options["resources"]
        return submit(client, function, *given, **options)

    monkeypatch.setattr(distributed.Client, "submit", seen)
    options = {"threads_per_worker": 1, "dashboard_address": None, "resources": {"GPU": 1}}
    with (
        distributed.LocalCluster(n_workers=1, **options) as ours,
        Cluster(ours.scheduler_address) as cluster,
    ):
        runs_on(
            cluster,
            tiny_recipe.with_(objective="mlm"),
            tmp_path / "one",
            records=tmp_path / "records",
        )
    waiting = {kind for kind, resources in asked.items() if resources}
    assert (
        waiting == {"pretrained", "retriever", "vectors", "dense_run"}
        and {"bm25_run", "scores"} <= asked.keys() - waiting
    )
    assert all(resources == {"GPU": 1} for kind, resources in asked.items() if kind in waiting)


def test_a_stage_waits_for_all_that_it_is_made_from(tiny_recipe, cache):
    waited = {}

    def submit(function, run, made, cache, before, **options):
        waited[made] = before
        return made

    run, cluster = lab.Run("t", "row", "smoke", tiny_recipe), object.__new__(Cluster)
    cluster.client = SimpleNamespace(
        submit=submit,
        scheduler_info=lambda **_: {"workers": {}},
        get_executor=lambda **_: SimpleNamespace(submit=lambda *_: SimpleNamespace()),
    )
    cluster.submit(None, run, cache)
    stages = lab.pipeline(tiny_recipe).end.walk()
    assert waited == {stage.key: [one.key for one in stage.inputs] for stage in stages}


def test_every_stage_whose_code_asks_for_the_device_waits_for_a_gpu():
    marked = re.compile(r"^@stage\((.*)\)\n(?:@.*\n)*def (\w+)", re.MULTILINE)
    package, asking, waiting = Path(lab.__file__).parents[1], set(), set()
    for path in package.rglob("*.py"):
        for options, kind in marked.findall(path.read_text(encoding="utf-8")):
            module, seen = ".".join(path.relative_to(package.parent).with_suffix("").parts), {}
            stages._follow(module, (kind,), seen)
            asking |= {kind} if "dr_lib.training.machine.device" in seen else set()
            waiting |= {kind} if "gpu=True" in options else set()
    assert asking - waiting == {"untuned"}  # which only moves weights
    assert asking >= waiting


def test_without_a_scheduler_it_says_so():
    with pytest.raises(InputError, match="no scheduler answers"):
        Cluster("tcp://127.0.0.1:9")


def hold_for_ever(cache, stage, taken) -> None:
    """Take the lock of a stage and never release it."""
    with hold(cache.root / "locks" / f"{stage.name}.lock", stage.name, "building it"):
        taken.set()
        time.sleep(600)


@pytest.mark.parametrize("when", ["before", "while we wait"])
def test_on_a_shared_disk_the_lock_of_a_killed_process_is_taken_over(
    when, tiny_recipe, tmp_path, monkeypatch
):
    monkeypatch.setenv("DR_SHARED_CACHE", "1")
    monkeypatch.setattr("dr_lib.files.LOOK_EVERY", 0.2)
    context = multiprocessing.get_context("fork")
    taken = context.Event()
    said: list[str] = []

    def kill(*news: str) -> None:
        said.extend(news)
        os.kill(holder.pid, signal.SIGKILL)
        holder.join()

    cache, stage = Cache(tmp_path / "stages", announce=kill), lab.Inputs(tiny_recipe).passages()
    holder = context.Process(target=hold_for_ever, args=(cache, stage, taken))
    holder.start()
    assert taken.wait(30)
    if when == "before":
        kill()
    assert (cache.get(stage) / "manifest.json").is_file()
    waited = [f"{stage.name}: waiting for process {holder.pid}"] if when == "while we wait" else []
    assert [line.partition(" on ")[0] for line in said] == waited
