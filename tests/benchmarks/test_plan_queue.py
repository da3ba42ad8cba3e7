"""The queue of runs: ordered by the decisions it brings, without recorded runs, every recipe
runnable, and shared by workers.
"""

import importlib
import os
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from dr_lib import places
from dr_lib.files import read_yaml, write_json
from dr_lib.lab.pipeline import pipeline
from dr_lib.stages import Cache
from dr_lib.training import TrainLog


@pytest.fixture
def script():
    return importlib.import_module("plan_queue")


def test_what_decides_most_in_a_minute_comes_first(script):
    values = script.decisions_a_minute(script.entries())
    assert values == sorted(values, reverse=True) and values[0] > 0


def test_a_decision_is_shared_by_the_runs_that_it_still_needs(script):
    common = {"block": 1, "recipe": {}, "seconds": 30}
    queue = [
        script.Entry(label="a", seeds=[0, 1, 2], decides=["x", "y"], **common),
        script.Entry(label="b", seeds=[0], decides=["x"], **common),
        script.Entry(label="c", seeds=[4], **common),
    ]
    # x needs four runs, y three; a run takes half a minute
    assert script.decisions_a_minute(queue) == pytest.approx([2 * (1 / 4 + 1 / 3), 2 / 4, 0])


def test_no_row_is_in_the_queue_whose_record_is_in_the_book(script):
    there = [task.name for task in script.tasks() if script.recorded(task)]
    assert not there, f"recorded: run benchmarks/plan_queue.py --tidy, which removes {there}"


def test_a_row_of_another_collection_is_not_the_recorded_one(script, monkeypatch):
    facts = {"label": "simlm", "seed": 0, "data": {"collection": {"name": "reddit-retrieval"}}}
    monkeypatch.setattr(script.lab, "load_records", lambda *_: [SimpleNamespace(**facts)])
    common = {"block": 1, "recipe": {}, "seeds": [0], "seconds": 9}
    for name, there in (("squad", False), ("reddit-retrieval", True)):
        entry = script.Entry(label="simlm", collection=name, **common)
        assert script.recorded(script.Task(entry, 0)) == there


def test_the_evaluations_of_a_run_share_its_time(script, monkeypatch):
    given = []

    class Study:
        def __init__(self, *_, minutes, **options):
            given.append(minutes)

        def run(self):
            return SimpleNamespace(pending={})

    monkeypatch.setattr(script.lab, "Study", Study)
    clock = SimpleNamespace(monotonic=iter([0.0, 0.0, 600.0]).__next__)
    monkeypatch.setattr(script, "time", clock)
    entry = script.Entry(block=1, label="simlm", recipe={}, seeds=[0], seconds=9)
    script.Task(entry, 0, smoke=True).run(None, 1200)
    assert given == [20, 10]


def test_what_is_recorded_is_taken_out_and_what_is_left_is_sorted(script, monkeypatch):
    recorded = {("x", 0), ("y", 0)}
    monkeypatch.setattr(script, "recorded", lambda task: (task.entry.label, task.seed) in recorded)
    rows = {
        "x": "seeds: [0, 1]\n  seconds: 60\n  decides: [a]",
        "y": "seeds: [0]\n  seconds: 60\n  decides: [a]",
        "z": "seeds: [0]\n  seconds: 30\n  decides: [a]",
    }
    text = "# of runs\n" + "".join(
        f"- block: 1\n  label: {name}\n  recipe: {{}}\n  {row}\n" for name, row in rows.items()
    )
    tidied = script.tidy(text)
    assert tidied.startswith("# of runs\n- block: 1\n  label: z\n")
    assert "label: y" not in tidied and "label: x\n  recipe: {}\n  seeds: [1]\n" in tidied
    assert script.tidy(tidied) == tidied


def test_every_row_is_one_run_of_a_block_and_of_contrasts_of_the_plan(script):
    plan = read_yaml(places.project_root() / "book" / "plan.yaml")
    contrasts = {contrast["id"]: contrast["block"] for contrast in plan["contrasts"]}
    for entry in script.entries():
        assert entry.block in script.blocks()
        assert {contrasts[name] for name in entry.decides} <= {entry.block}, entry.label
        assert entry.scale in places.known_scales()
    names = [(task.name, task.scale) for task in script.tasks()]
    assert len(set(names)) == len(names)


def test_every_recipe_becomes_stages_and_no_two_the_same(script, tmp_path, monkeypatch):
    """At the smallest size, which only makes steps and labelled queries equal. Dev and test of the
    smallest collection judge three quarters of it, so fewer of the other documents exist.
    """
    monkeypatch.setenv("DR_CACHE", str(tmp_path))
    ends = set()
    for entry in script.entries():
        others = entry.recipe.get("pretraining", {}).get("others")
        if entry.scale == "laptop" and entry.collection == "squad" and not others:
            task = script.Task(entry, entry.seeds[0], smoke=True)
            at_size = str(sorted(entry.recipe.get("collection", {}).items())) + str(
                entry.recipe.get("auxiliary", {}).get("cross_encoder", {}).get("steps")
            )
            key = pipeline(task.recipe).end.key, task.seed, at_size
            assert key not in ends, entry.label
            ends.add(key)


def test_workers_share_the_queue_and_leave_records(script, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path))
    few = [
        script.Entry(
            block=1, label=name, recipe={"objective": name}, seeds=[0], seconds=9, measured=kinds
        )
        for name, kinds in (("none", ["test", "elsewhere"]), ("bow", ["dev", "coverage"]))
    ]
    monkeypatch.setattr(script, "tasks", lambda smoke: [script.Task(one, 0, True) for one in few])
    claims, cache = tmp_path / "claims", Cache()
    claims.mkdir()
    first, second = (script.take(claims, cache, 60, True) for _ in range(2))
    assert (first.task.entry.label, second.task.entry.label) == ("none", "bow")
    assert script.take(claims, cache, 60, True) is None
    for claim in (first, second):
        claim.lock.release()
    assert script.take(claims, cache, 5, True) is None  # nine seconds do not fit
    script.work(claims, 120, True)
    assert [path.read_text()[:4] for path in sorted(claims.glob("*.end"))] == ["done", "done"]
    made = [(r.study, r.label) for task in script.tasks(True) for r in task.records()]
    assert made == [
        ("plan/core", "none"),
        ("plan/core-elsewhere", "none"),
        ("plan/core-dev", "bow"),
        ("plan/coverage", "bow"),
    ]
    script.work(claims, 60, True)  # nothing is left


def test_what_is_not_carried_is_named_and_the_rest_is_run(script, tmp_path, monkeypatch, capsys):
    """Two of three collections are here: `gpu`'s base model reads the third, and so do searches."""
    for name in ("squad", "npl"):
        (tmp_path / "data" / name).mkdir(parents=True)
    monkeypatch.setenv("DR_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    every = {"recipe": {"objective": "none"}, "seeds": [0], "seconds": 9}
    few = [
        script.Entry(block=3, label="none", scale="gpu", measured=["test", "elsewhere"], **every),
        script.Entry(block=1, label="none", collection="reddit-retrieval", **every),
        script.Entry(block=1, label="none", measured=["test", "elsewhere"], **every),
    ]
    monkeypatch.setattr(script, "tasks", lambda smoke: [script.Task(one, 0) for one in few])
    monkeypatch.setattr(script.Task, "seconds", lambda self, cache: 9)
    monkeypatch.setattr(script, "under_way", lambda task, cache: False)
    ran = []
    monkeypatch.setattr(script.Task, "run", lambda self, cache, left: ran.append(self.entry))
    script.work(tmp_path / "claims", 60, False)
    assert ran == [few[2]]
    printed = capsys.readouterr().out.splitlines()
    assert "lacks wikipedia-nq: 1 runs that are trained on it stay in the queue" in printed
    assert "lacks reddit-retrieval: 1 runs that are trained on it stay in the queue" in printed
    assert "lacks wikipedia-nq: 1 runs are not measured on it" in printed
    assert "lacks npl: 1 runs are not measured on it" not in printed
    assert not [line for line in printed if line.startswith(("failed", "left"))]


def test_what_is_made_for_a_gpu_waits_for_one_unless_it_is_asked_for(
    script, tmp_path, monkeypatch, capsys
):
    """A base model of six layers is not trained on a core, however short it would be on a GPU."""
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    common = {"block": 3, "recipe": {"objective": "none"}, "seeds": [0], "seconds": 9}
    few = [script.Entry(label=name, scale=name, **common) for name in ("gpu", "laptop")]
    monkeypatch.setattr(script, "tasks", lambda smoke: [script.Task(one, 0) for one in few])
    monkeypatch.setattr(script, "is_here", lambda name: True)
    monkeypatch.setattr(script.Task, "seconds", lambda self, cache: 9)
    monkeypatch.setattr(script, "under_way", lambda task, cache: False)
    ran = []
    monkeypatch.setattr(script.Task, "run", lambda self, cache, left: ran.append(self.scale))
    for kind, options, made in (
        ("cpu", {}, ["laptop"]),
        ("cpu", {"without_gpu": True}, ["gpu", "laptop"]),
        ("cuda", {}, ["gpu", "laptop"]),
    ):
        monkeypatch.setattr(script.machine, "device", lambda kind=kind: SimpleNamespace(type=kind))
        script.work(tmp_path / f"{kind} {len(options)}", 60, False, **options)
        printed = capsys.readouterr().out
        assert ran == made and "left" not in printed
        line = "lacks a GPU: 1 runs of scale gpu stay in the queue without --without-gpu"
        assert (line in printed) is (kind == "cpu")
        ran.clear()


def test_where_all_that_fits_is_being_built_nothing_is_taken_that_does_not_fit_here(
    script, tmp_path, monkeypatch
):
    """The row's seconds are for a GPU: on a processor the last one takes hours."""
    monkeypatch.setenv("DR_CACHE", str(tmp_path))
    sizes = {"simlm": 2, "none": 2, "mlm": 10**7}
    few = [
        script.Entry(block=1, label=name, recipe={"objective": name}, seeds=[0], seconds=9)
        for name in sizes
    ]
    monkeypatch.setattr(script, "tasks", lambda smoke: [script.Task(one, 0, True) for one in few])
    small = script.Task.recipe.fget
    monkeypatch.setattr(
        script.Task,
        "recipe",
        property(lambda task: small(task).with_(finetuning__steps=sizes[task.entry.label])),
    )
    monkeypatch.setattr(script, "under_way", lambda task, cache: task.entry.label != "mlm")
    claims, cache = tmp_path / "claims", Cache()
    claims.mkdir()
    assert script.take(claims, cache, 60, True).task.entry.label == "simlm"
    assert script.Task(few[2], 0, True).seconds(cache) > 3600
    on_gpu = SimpleNamespace(device=lambda: SimpleNamespace(type="cuda"))
    monkeypatch.setattr(script, "machine", on_gpu)
    assert script.Task(few[2], 0, True).seconds(cache) == pytest.approx(9)


def test_a_block_that_a_later_commit_adds_is_there_for_a_worker_that_began_before(
    script, tmp_path, monkeypatch
):
    plan = tmp_path / "book" / "plan.yaml"
    plan.parent.mkdir()
    plan.write_text("blocks: [{number: 1, name: core}]")
    monkeypatch.setattr(script.places, "project_root", lambda: tmp_path)
    assert script.blocks().keys() == {1} and script.plan() is script.plan()
    plan.write_text("blocks: [{number: 1, name: core}, {number: 99, name: later}]")
    assert script.blocks()[99]["name"] == "later"


@pytest.mark.parametrize("hours", [-5, 5])
def test_what_is_kept_goes_by_what_ended_and_not_by_the_clock(
    script, tmp_path, monkeypatch, counted, hours
):
    saved = []
    monkeypatch.setattr(script, "tasks", lambda smoke: [SimpleNamespace(records=lambda: [1])])
    monkeypatch.setattr(
        script, "save_records", lambda made, path: (saved.append(made), path.touch())
    )
    claims, path = tmp_path / "claims", tmp_path / "records"
    claims.mkdir()
    for number in range(2):
        end = claims / f"{number}.end"
        end.write_text("done")
        os.utime(end, (time.time() + 3600 * hours,) * 2)
        for _ in range(2):
            script.keep(path, claims, True)
        assert len(saved) == number + 1
    counted("clocks that are set while something is held or kept", 1)


def test_a_stage_that_another_worker_builds_is_waited_for_last(script, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path))
    few = [
        script.Entry(block=1, label=name, recipe={"objective": name}, seeds=[0], seconds=9)
        for name in ("simlm", "none")
    ]
    monkeypatch.setattr(script, "tasks", lambda smoke: [script.Task(one, 0, True) for one in few])
    claims, cache = tmp_path / "claims", Cache()
    claims.mkdir()
    built = pipeline(few_recipe(script, few[0])).pretrained
    with cache.lock(built.name):
        claim = script.take(claims, cache, 60, True)
        assert claim.task.entry.label == "none"
        assert script.take(claims, cache, 60, True).task.entry.label == "simlm"


def few_recipe(script, entry):
    return script.Task(entry, 0, True).recipe


def test_what_is_left_is_priced_by_its_operations(script, tmp_path, monkeypatch):
    """A hundred seconds of trainings, fifty of shared stages: nothing done, half done, shared
    stages done, and only the search left.
    """
    monkeypatch.setenv("DR_CACHE", str(tmp_path))
    cache, every = Cache(), {"block": 1, "label": "x", "seeds": [0], "seconds": 100}
    task = script.Task(script.Entry(recipe={"objective": "simlm"}, **every), 0, True)
    plan = pipeline(task.recipe)
    pretrained, retriever = plan.pretrained, plan.retriever
    whole = sum(stage.cost for stage in plan.end.walk())
    assert whole > pretrained.cost + retriever.cost  # vectors, too
    assert task.seconds(cache) == pytest.approx(100)
    assert not task.begun(cache)

    done = set()
    monkeypatch.setattr(Cache, "finished", lambda self, stage: stage.key in done)
    done |= {stage.key for stage in pretrained.walk()}
    rest = 100 * (whole - pretrained.cost) / whole
    assert 0 < rest < 100 and task.seconds(cache) == pytest.approx(rest)
    draft = cache.draft(retriever)
    draft.mkdir(parents=True)
    write_json(draft / "log.json", TrainLog(title="x", steps=8, step=6).as_dict())
    left = 100 * (whole - pretrained.cost - 0.75 * retriever.cost) / whole
    assert task.begun(cache) and task.seconds(cache) == pytest.approx(left)
    done |= {stage.key for stage in plan.end.walk() if stage.cost}
    assert task.seconds(cache) < 1  # the search


@pytest.mark.parametrize("final", ["retriever1", "reranker"])
def test_what_a_block_rests_on_counts_until_it_is_there(script, tmp_path, monkeypatch, final):
    monkeypatch.setenv("DR_CACHE", str(tmp_path))
    recipe = {"objective": "simlm", "final": final}
    entry = script.Entry(block=1, label="x", seeds=[0], seconds=100, once=50, recipe=recipe)
    task, cache = script.Task(entry, 0, True), Cache()
    plan = pipeline(task.recipe)
    rests = plan.retriever2.walk() if plan.reranker else []  # its base model is a folder
    assert task.seconds(cache) == pytest.approx(150 if rests else 100)
    monkeypatch.setattr(
        Cache, "finished", lambda self, stage: stage.key in {one.key for one in rests}
    )
    assert task.seconds(cache) == pytest.approx(100)


def test_what_was_begun_is_taken_with_little_time_and_what_is_not_allowed_in_no_time(
    script, tmp_path, monkeypatch, capsys
):
    few = [
        script.Entry(block=1, label=name, recipe={"objective": name}, seeds=[0], seconds=90)
        for name in ("cocondenser", "simlm", "none")
    ]
    monkeypatch.setattr(script, "tasks", lambda smoke: [script.Task(one, 0, True) for one in few])
    monkeypatch.setenv("DR_CACHE", str(tmp_path))
    claims, cache = tmp_path / "claims", Cache()
    claims.mkdir()

    def alone(collection):
        rows = np.arange(len(collection.passages))
        return rows, np.zeros_like(rows)

    monkeypatch.setattr("dr_lib.collections.Collection.documents", alone)
    monkeypatch.setattr(script.Task, "begun", lambda self, cache: self.entry.label == "none")
    claim = script.take(claims, cache, 20, True)
    assert claim.task.entry.label == "none"
    claim.lock.release()
    monkeypatch.setattr(script.Task, "begun", lambda self, cache: False)
    assert script.take(claims, cache, 20, True) is None
    printed = capsys.readouterr().out
    assert printed.count("seed 0: cocondenser on primer: no document") == 1
    (end,) = claims.glob("*.end")
    assert end.read_text().startswith("refused: cocondenser on primer: no document of this")


def test_what_no_gpu_makes_is_prepared(script, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path))
    entry = script.Entry(block=1, label="x", recipe={"objective": "simlm"}, seeds=[0], seconds=9)
    monkeypatch.setattr(script, "tasks", lambda smoke: [script.Task(entry, 0, True)] * 20)
    monkeypatch.setattr(sys, "argv", ["plan_queue.py", "--prepare", "--seconds", "90"])
    script.main()
    cache, walked = Cache(), pipeline(script.Task(entry, 0, True).recipe).end.walk()
    made = {stage.kind for stage in walked if cache.finished(stage)}
    assert {"passage_tokens", "bm25_run", "negatives"} <= made
    assert not any(stage.gpu for stage in walked if cache.finished(stage))
    assert {stage.kind for stage in walked if stage.gpu} & {"pretrained", "retriever"}


def test_what_is_stopped_is_taken_again_and_what_fails_is_said(script, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path))
    entry = script.Entry(block=1, label="none", recipe={"objective": "none"}, seeds=[0], seconds=1)
    monkeypatch.setattr(script, "tasks", lambda smoke: [script.Task(entry, 0, True)])

    def stopped(self, cache, seconds):
        time.sleep(0.3)
        raise script.TimeIsUpError("half")

    def broken(self, cache, seconds):
        raise ValueError("no such thing")

    claims = tmp_path / "claims"
    monkeypatch.setattr(script.Task, "run", stopped)
    script.work(claims, 1.2, True)
    assert not list(claims.glob("*.end"))
    monkeypatch.setattr(script.Task, "run", broken)
    script.work(claims, 5, True)
    assert next(claims.glob("*.end")).read_text() == "failed: ValueError: no such thing\n"


def test_no_run_of_the_plan_begins_with_code_that_no_commit_has(script, monkeypatch, tmp_path):
    begun = []
    monkeypatch.setattr(script, "work", lambda *given: begun.append(given))
    for changed, options, begins in (
        (True, [], False),
        (True, ["--changed"], True),
        (True, ["--smoke"], True),
        (False, [], True),
        (None, [], True),  # no checkout
    ):
        monkeypatch.setattr(
            "dr_lib.lab.records.commit", lambda changed=changed: {"changed": changed}
        )
        monkeypatch.setattr(sys, "argv", ["plan_queue.py", "--work", str(tmp_path), *options])
        if begins:
            script.main()
        else:
            with pytest.raises(SystemExit, match=r"failed: .*uncommitted changes\..* --changed"):
                script.main()
        assert len(begun) == begins
        begun.clear()


def test_the_script_prints_the_queue(script, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["plan_queue.py"])
    script.main()
    assert len(capsys.readouterr().out.splitlines()) == len(script.entries())
