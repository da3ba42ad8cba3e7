"""`make gpu`: every part on a processor at the smallest size; the script keeps to its time limit
and continues where it stopped.
"""

import importlib
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dr_book.commands import main as command
from dr_lib import lab, places
from dr_lib.files import read_json

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
FACTS = {
    "device": "cpu",
    "date": "2026-11-26",
    "card": {},
    "cuda": None,
    "commit": {"id": "abc"},
    "machine": {"cpu": "a processor", "cores": 2, "gpus": [], "versions": {"torch": "2.13.0"}},
    "ceilings": {"bf16 operations a second": 2e11, "bytes a second": 1e10},
}


@pytest.fixture
def script():
    return importlib.import_module("gpu")


@pytest.fixture
def made_parts():
    return importlib.import_module("gpu_parts")


@pytest.fixture
def small(script, tmp_path, monkeypatch):
    """The script with one-line parts and without a queue; the commands that it ran."""
    ran = tmp_path / "ran.txt"

    def line(name, code):
        noted = f"open({str(ran)!r}, 'a').write({name!r} + ' ')"
        return [sys.executable, "-c", f"{noted}; {code}"]

    facts = f"open({str(tmp_path / 'gpu' / 'facts.json')!r}, 'w').write({json.dumps(FACTS)!r})"
    parts = [
        script.Part("facts", 20, 5, [line("facts", facts)]),
        script.Part("tests", 20, 5, [line("tests", "print('3 passed')"), line("more", "")]),
        script.Part("bench", 20, 5, [line("bench", "print('broken'); raise SystemExit(3)")]),
    ]
    monkeypatch.setattr(script, "parts", lambda *options: parts)
    monkeypatch.setattr(
        script, "work", lambda *options: {"seconds": 1, "code": 0, "output": "done 1 none"}
    )

    def start(*options):
        monkeypatch.setattr(sys, "argv", ["gpu.py", "--to", str(tmp_path / "gpu"), *options])
        code = script.main()
        names = ran.read_text().split()
        ran.write_text("")
        return code, names

    return start


def test_parts_run_in_order_and_the_next_call_leaves_out_what_went_well(small, tmp_path):
    assert small("--smoke") == (1, ["facts", "tests", "more", "bench"])
    summary = (tmp_path / "gpu" / "summary.md").read_text()
    assert "| tests |" in summary and "with an error (3)" in summary and "broken" in summary
    assert "0.2 TFLOP/s in bfloat16" in summary and "done 1 none" in summary
    assert small("--smoke") == (1, ["bench"])
    assert small("--smoke", "--only", "queue") == (1, [])


def test_files_of_another_commit_or_size_are_made_anew(small, tmp_path):
    small("--smoke")
    state = read_json(tmp_path / "gpu" / "parts.json")
    (tmp_path / "gpu" / "parts.json").write_text(json.dumps(state | {"commit": "another"}))
    (tmp_path / "gpu" / "peers.json").write_text("{}")
    assert small("--smoke")[1] == ["facts", "tests", "more", "bench"]
    assert not (tmp_path / "gpu" / "peers.json").exists()


def test_a_part_has_failed_if_any_of_its_commands_has(script):
    commands = [[sys.executable, "-c", f"raise SystemExit({code})"] for code in (3, 0)]
    assert script.run(script.Part("two", 9, 0, commands), 9)["code"] == 3


def test_without_a_gpu_nothing_but_a_trial_is_run(small, capsys):
    assert small() == (1, ["facts"])
    assert "make gpu SMOKE=1" in capsys.readouterr().out


def test_a_part_that_takes_too_long_is_stopped_with_all_it_started(script, tmp_path):
    late = tmp_path / "late"
    child = f"import time; time.sleep(4); open({str(late)!r}, 'w')"
    code = f"print('begun', flush=True); subprocess.run([sys.executable, '-c', {child!r}])"
    code = f"import subprocess, sys; {code}"
    began = time.monotonic()
    found = script.run(script.Part("long", 1, 0, [[sys.executable, "-c", code]]), 1)
    assert time.monotonic() - began < 3 and found["code"] < 0
    assert "begun" in found["output"] and "stopped after 1 s" in found["output"]
    time.sleep(4)
    assert not late.exists()


def test_a_call_that_is_cut_off_stops_what_it_started_and_has_kept_what_was_done(
    script, small, tmp_path, monkeypatch
):
    def cut_off(*options, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "work", cut_off)
    with pytest.raises(KeyboardInterrupt):
        small("--smoke")
    assert read_json(tmp_path / "gpu" / "parts.json")["parts"].keys() == {"facts", "tests", "bench"}
    late = tmp_path / "late"
    code = f"import time; time.sleep(2); open({str(late)!r}, 'w')"
    monkeypatch.setattr(script.subprocess.Popen, "communicate", cut_off)
    with pytest.raises(KeyboardInterrupt):
        script.run(script.Part("long", 9, 0, [[sys.executable, "-c", code]]), 9)
    time.sleep(2.5)
    assert not late.exists()


def test_a_summary_can_be_made_of_nothing_yet(script, tmp_path):
    assert script.summary(tmp_path).startswith("# A device, not finished")


def test_a_summary_has_the_rows_that_a_stopped_bench_left(script, tmp_path):
    bench = importlib.import_module("bench_device")
    rows = [
        bench.Row("a step", "measured", 1234.56, "ms", 35.0),
        bench.Row("x", "counted", 2, "GB"),
    ]
    (tmp_path / "bench.json").write_text(json.dumps({"rows": [row.as_dict() for row in rows]}))
    lines = script.summary(tmp_path).splitlines()
    assert "| a step | 1,234.6 | ms, measured | 35.0 | not met |" in lines
    assert "| x | 2.0 | GB, counted |  |  |" in lines


def test_every_part_has_its_script_and_a_call_has_time_for_the_first_ones(script, tmp_path):
    parts = script.parts(tmp_path, False, True)
    for part in parts:
        for line in part.commands:
            assert "pytest" in line or Path(line[1]).parent == FOLDER
    assert all(0 < part.least < part.seconds for part in parts)
    assert sum(part.least for part in parts) <= 9 * 60 * script.QUEUE_SHARE
    assert len(script.FILES) <= 8 and script.FILES[-1] == "summary.md"


def test_half_of_a_call_is_the_queues_whatever_the_parts_would_take(
    script, tmp_path, monkeypatch, capsys
):
    """400 seconds, on a clock that only the parts advance."""
    now, ran = [0.0], {}
    monkeypatch.setattr(script, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def run(part, seconds):
        ran[part.name] = seconds
        now[0] += min(seconds, {"facts": 18, "tests": 56, "training": 65}.get(part.name, 999))
        (tmp_path / "facts.json").write_text(
            json.dumps(FACTS | {"machine": FACTS["machine"] | {"gpus": ["A"]}})
        )
        code = script.IN_PART if part.name == "bench" else 0
        return {"seconds": seconds, "code": code, "output": ""}

    monkeypatch.setattr(script, "run", run)
    given = []
    monkeypatch.setattr(script, "cores", lambda: 2)
    monkeypatch.setattr(
        script,
        "work",
        lambda to, seconds, smoke, count: (
            given.append(seconds) or {"seconds": seconds, "code": 0, "output": ""}
        ),
    )

    def call(*options):
        options = ["--to", str(tmp_path), "--minutes", str(400 / 60), *options]
        monkeypatch.setattr(sys, "argv", ["gpu.py", *options])
        return script.main()

    assert call() == 0
    assert list(ran) == ["facts", "training", "tests", "bench"]
    assert given[0] >= 200 and ran["bench"] == pytest.approx(200 - 18 - 65 - 56 - script.LAST)
    printed = capsys.readouterr().out
    assert "peers: left for the next call" in printed and "| in part |" in printed
    ran.clear()
    assert call() == 0 and list(ran) == ["bench"]  # and goes on with its rows
    ran.clear()
    assert call("--only", "bench", "peers") == 0  # no queue: they have all the time
    assert ran["bench"] == 150 and len(given) == 2


def test_what_runs_share_is_prepared_beside_the_parts_on_a_machine_of_many_cores(
    script, small, tmp_path, monkeypatch
):
    facts = FACTS | {"machine": FACTS["machine"] | {"gpus": ["A"]}}
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "facts.json").write_text(json.dumps(facts))
    (tmp_path / "ran.txt").touch()
    head = "import sys, time; print(sys.argv[1:], flush=True); time.sleep(60)"
    monkeypatch.setattr(
        script,
        "script",
        lambda name, *options: [sys.executable, "-c", head, name, *map(str, options)],
    )
    log, prepared = tmp_path / "gpu-queue" / "prepare.log", []

    def work(*options):
        while not (log.is_file() and log.read_text()):
            time.sleep(0.05)
        prepared.append(log.read_text())
        return {"seconds": 1, "code": 0, "output": ""}

    monkeypatch.setattr(script, "work", work)
    monkeypatch.setattr(
        script, "begin", lambda *options: {"parts": {"facts": {"seconds": 1, "code": 0}}}
    )
    for count, expected in ((16, 1), (2, 0)):
        monkeypatch.setattr(script, "cores", lambda count=count: count)
        if not expected:
            log.write_text("nobody")
        began = time.monotonic()
        small("--only", "queue")
        assert time.monotonic() - began < 30  # it is stopped with the call
    assert "'plan_queue', '--prepare', '--seconds', '5" in prepared[0] and prepared[1] == "nobody"


def test_a_part_is_told_its_seconds(script):
    part = script.Part("told", 9, 1, [[sys.executable, "-c", "print('has SECONDS')"]])
    assert script.run(part, 7.5)["output"] == "has 7\n"


def test_the_tests_of_a_gpu_are_found_by_their_mark(script):
    names = {Path(word).name for word in script.cuda_tests(True) if word.endswith(".py")}
    assert {"test_devices.py", "test_encode.py", "test_rerank.py", "test_reranker.py"} <= names


def test_no_more_share_a_device_than_its_cores_and_its_memory_allow(script, monkeypatch):
    monkeypatch.setattr(script, "cores", lambda: 16)
    assert script.workers({"card": {"memory.total": "81559 MiB"}}, False) == 16
    assert script.workers({"card": {"memory.total": "24564 MiB"}}, False) == 5
    assert script.workers({"card": {"memory.total": "2000 MiB"}}, False) == 1
    assert script.workers({}, True) == 2


def test_facts_and_ceilings(made_parts, tmp_path, monkeypatch):
    made_parts.facts(tmp_path)
    facts = read_json(tmp_path / "facts.json")
    assert FACTS.keys() <= facts.keys() and FACTS["machine"].keys() <= facts["machine"].keys()
    assert all(value > 1e8 for value in facts["ceilings"].values())


def test_a_training_alone_leaves_its_speed_and_a_profile_of_one_step(
    made_parts, tmp_path, monkeypatch
):
    for name in ("DR_CACHE", "DR_PROFILE"):  # it sets both
        monkeypatch.setenv(name, "")
    monkeypatch.delenv("DR_PROFILE")
    made_parts.training(tmp_path, True, ways=("eager", "graphs"))
    row, replayed = read_json(tmp_path / "training.json")["rows"]
    assert row["tokens a second"] > 0 and row["memory, GiB"] > 0
    assert [row["way"], replayed["way"]] == ["eager", "graphs"]
    assert replayed["loss"] == row["loss"]  # a processor has no graphs
    assert row["seconds a step"] * row["tokens a second"] == pytest.approx(row["tokens a step"])
    table = (tmp_path / "profile.txt").read_text()
    assert "steps 5 to 5" in table and "aten::" in table
    assert len(row["tokens a second, row by row"]) == 4 and "DR_PROFILE" not in os.environ


def test_the_speed_of_a_training_is_that_of_its_second_half_and_of_no_profiled_step(
    made_parts, tmp_path, monkeypatch
):
    """Two rows of equally many steps at 100 and 300 tokens per second: 150 in all, not the mean."""
    rows = [{"tokens_per_second": rate, "loss": 1.0} for rate in (1, 2, 100, 300)]
    log = SimpleNamespace(
        rows=rows, tokens=80, step=8, peak_memory={"host": 2**30}, precision="fp32"
    )
    profiled, names = [], ("DR_CACHE", "DR_PROFILE")

    def load(path):
        if asked := os.environ.get("DR_PROFILE"):
            place = Path(os.environ["DR_CACHE"]) / "profiles" / "one"
            place.mkdir(parents=True)
            (place / "table.txt").write_text(asked)
        profiled.append(asked)
        return log

    for name in names:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    get = made_parts.Cache.get
    monkeypatch.setattr(
        made_parts.Cache,
        "get",
        lambda self, stage: tmp_path if stage.kind == "pretrained" else get(self, stage),
    )
    monkeypatch.setattr(made_parts.TrainLog, "load", load)
    made_parts.training(tmp_path, True, ways=("eager", "compiled"))
    assert profiled == [None, "5:6", None]
    assert (tmp_path / "profile.txt").read_text() == "5:6"
    for row in read_json(tmp_path / "training.json")["rows"]:
        assert row["tokens a second"] == pytest.approx(150)
        assert row["seconds a step"] == pytest.approx(10 / 150)

    made_parts.training(tmp_path, True, ways=("eager", "compiled", "graphs"))  # a later call
    assert profiled == [None, "5:6", None, None]
    rows = read_json(tmp_path / "training.json")["rows"]
    assert [row["way"] for row in rows] == ["eager", "compiled", "graphs"]


@pytest.mark.slow
def test_the_queue_at_the_smallest_size_leaves_records_that_the_book_takes(
    script, tmp_path, monkeypatch
):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    (tmp_path / "gpu").mkdir()
    found = script.work(tmp_path / "gpu", 150, True, 2)
    assert found["code"] == 0 and found["output"].count("done ") == 2, found["output"]
    monkeypatch.setattr(places, "records_root", lambda: tmp_path / "book")
    assert command(["publish", str(tmp_path / "gpu" / "records.jsonl.xz")]) == 0
    published = lab.load_records(tmp_path / "book" / "smoke")
    tried = importlib.import_module("plan_queue").tasks(smoke=True)
    assert len(published) == sum(len(task.entry.measured) for task in tried) > 4
    assert {record.scale for record in published} == {"smoke"}
