"""Every benchmark runs once at the smallest sizes, without peers that are not installed; and counts
of a step are those by hand.
"""

import importlib
import json
import re
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from bench_device import BASE, SMALL, encoding, padding, padding_rows, simlm_step
from counting import compiled_step, count_step, planned
from torch import nn
from torch.nn import functional

from dr_lib.files import file_digest, read_json, write_text
from dr_lib.losses import cross_entropy
from dr_lib.models import bottleneck
from dr_lib.places import data_root

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
TINY = {
    "bench_bm25": "--collection {texts} --passages 30 --queries 10 --top 5 --repeats 1",
    "bench_device": "--to {folder} --smoke",
    "bench_encode": "--collection {texts} --passages 30 --repeats 1 --layers 1 --hidden 32",
    "bench_losses": "--tokens 8 --vocab 16 --hidden 8 --repeats 1",
    "bench_masks": "--batch 4 --length 30 --vocab 50 --repeats 1",
    "bench_methods": None,  # trains materials for every method: only read here
    "bench_ngrams": "--passages 20 40 --words 10 --min-count 1 --folder {folder}",
    "bench_search": "--passages 500 --queries 5 --hidden 8 --repeats 1 --top 3",
    "bench_simlm_step": "--layers 2 --hidden 32 --vocab 60 --batch 3 --length 24 --steps 1",
    "bench_step": (
        "--collection {texts} --passages 30 --queries 2 --passages-per-query 2 --steps 1 --rounds 1"
        " --layers 1 --hidden 32"
    ),
    "bench_tokens": "--passages 50 --batch 8 --repeats 1",
    "bench_whole": "--notebook= --repeats 1",  # only the import
    "growth": (
        "--collection {texts} --passages 40 --queries 20 --hidden 16 --sizes 300 600 --save"
        " {folder}/growth.json"
    ),
    "speed": "--collection {texts} --layers 1 --hidden 32 --passages 50 --seconds 0",
}
COMPARED = ("bench_bm25", "bench_search", "bench_simlm_step")


@pytest.fixture(scope="module")
def texts(tmp_path_factory, sentences):
    """A collection of 60 passages; queries are their first words."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "qrels").mkdir()
    words = " ".join(sentences).split()
    rows = [
        {"_id": f"p{i}", "title": "", "text": " ".join(words[i % 40 :] + words[: i + 1])}
        for i in range(60)
    ]
    asked = [{"_id": f"q{i}", "text": " ".join(rows[i]["text"].split()[:4])} for i in range(40)]
    for name, lines in (("corpus", rows), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for split, numbers in (("train", range(30)), ("dev", range(30, 35)), ("test", range(35, 40))):
        lines = ["query-id\tcorpus-id\tscore", *(f"q{i}\tp{i}\t1" for i in numbers)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def run(tmp_path, texts, monkeypatch):
    """Run a script of the folder as `python benchmarks/<name>.py <options>` would."""
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DR_THREADS", "1")
    threads = torch.get_num_threads()

    def start(name, options):
        module = importlib.import_module(name)
        if name == "bench_ngrams":
            monkeypatch.setattr(module, "KNOWN", 30_000)
        monkeypatch.setattr(
            sys, "argv", [f"{name}.py", *options.format(texts=texts, folder=tmp_path).split()]
        )
        assert not module.main()

    yield start
    torch.set_num_threads(threads)


def test_every_script_is_known_here():
    scripts = {path.stem for path in FOLDER.glob("bench_*.py")} | {"speed", "growth"}
    assert scripts == TINY.keys()


def test_make_runs_every_script():
    makefile = (FOLDER.parent / "Makefile").read_text()
    compared = re.search(r"COMPARED := (.*)", makefile)[1].split()
    others = re.search(r"for name in ([a-z_ ]+);.*bench_\$\$name\.py; done", makefile)[1].split()
    # for an idle machine, and for one with a GPU; their results are on pages
    by_hand = {"growth", "bench_device"}
    assert {f"bench_{name}" for name in compared + others} | {"speed"} | by_hand == TINY.keys()


@pytest.mark.parametrize("name", sorted(name for name, options in TINY.items() if options))
def test_script_runs(name, run, monkeypatch, capsys):
    if name == "bench_whole":  # libraries take many seconds, this takes none
        script = importlib.import_module(name)
        monkeypatch.setattr(script, "IMPORTS", dict.fromkeys(script.IMPORTS, "import json"))
    run(name, TINY[name])
    assert capsys.readouterr().out


def test_a_whole_notebook_is_run_by_a_command_that_is_there(tmp_path, monkeypatch):
    script, commands = importlib.import_module("bench_whole"), []
    monkeypatch.setattr(script, "seconds_of", lambda *given, **_: commands.append(given) or 1.0)
    notebook = "notebooks/simlm/table08_replace_rates.ipynb"
    (tmp_path / "cache").mkdir()
    assert script.build(Path(notebook), tmp_path / "cache") == 1.0
    ((program, *arguments),) = commands
    chosen = importlib.import_module("run_notebooks").parser().parse_args(arguments)
    assert (FOLDER.parent / program).name == "run_notebooks.py"
    assert (FOLDER.parent / program).is_file() and (FOLDER.parent / notebook).is_file()
    assert chosen.notebooks == [Path(notebook)] and (chosen.scale, chosen.jobs) == ("smoke", 1)


def test_search_that_misses_a_passage_fails(run, monkeypatch):
    script = importlib.import_module("bench_search")
    exact = script.search
    monkeypatch.setattr(script, "search", lambda *given: [part[:, ::-1] for part in exact(*given)])
    with pytest.raises(SystemExit, match="ranks differ from brute force"):
        run("bench_search", TINY["bench_search"])


def test_what_misses_its_target_shows_where_the_time_goes(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.import_module("bench_search"), "LIMIT", 0.0)
    run("bench_search", f"{TINY['bench_search']} --save {{folder}}/speed.json")
    printed = capsys.readouterr().out
    assert "more than 0.0 of faiss" in printed and "exact.py" in printed[printed.index("tottime") :]


def test_rounds_of_the_warm_up_are_not_timed(monkeypatch):
    timing, took = importlib.import_module("timing"), [9.0, 8.0, 1.0, 2.0, 3.0]
    now, rounds = [0.0], iter(took)

    def way():
        now[0] += next(rounds)

    monkeypatch.setattr(timing, "clock", lambda device: lambda: now[0])
    assert timing.alternate({"": way}, 3) == {"": timing.Timing(median=2.0, quickest=1.0)}


def test_what_growth_keeps_is_per_million_and_names_what_is_good_enough(run, tmp_path, monkeypatch):
    script = importlib.import_module("growth")
    monkeypatch.setattr(script, "spent", lambda work: (0.5, work()))
    run("growth", TINY["growth"])
    found = json.loads((tmp_path / "growth.json").read_text())
    for step in found["steps"].values():
        assert step["seconds a million"] == step["seconds"] * 1e6 / step["passages"]
    queries = found["settings"]["queries"]
    for name in ("BM25: search", "exact search"):  # of a thousand queries
        assert found["steps"][name]["seconds"] == 1000 * 0.5 / queries
    assert [row["vectors"] for row in found["search"]] == [300, 600]
    for row in found["search"]:
        for name in ("IVF-PQ", "HNSW"):
            assert row[name]["chosen"] in row[name]["tried"] and row[name]["chosen"]["recall"] > 0.5
    last = found["search"][-1]
    assert found["limits"]["HNSW, by memory"] == 64e9 / last["HNSW"]["bytes a vector"]


def test_every_mask_is_a_row_with_its_target_and_a_missed_one_has_its_profile(
    run, tmp_path, monkeypatch, capsys
):
    wanted = importlib.import_module("bench_masks").WANTED
    monkeypatch.setitem(wanted, "per_row", 1e-6)
    run("bench_masks", f"{TINY['bench_masks']} --save {{folder}}/speed.json")
    printed = capsys.readouterr().out
    rows = {row["ours"]: row for row in json.loads((tmp_path / "speed.json").read_text())["rows"]}
    assert (
        rows.keys()
        == wanted.keys()
        == {
            "uniform",
            "whole_word",
            "superset",
            "importance",
            "keyword",
            "complementary",
            "per_row",
        }
    )
    assert all(
        row["what"] == f"mask of 4 x 30: {name}" and row["at_least"] > 0
        for name, row in rows.items()
    )
    assert (
        "per_row: more than 1.0 of 1e-06 ms" in printed
        and "words.py" in printed[printed.index("tottime") :]
    )
    run("timing", str(tmp_path / "speed.json"))
    (line,) = (
        line for line in capsys.readouterr().out.splitlines() if "mask of 4 x 30: per_row" in line
    )
    assert line.endswith("not met")


def test_a_built_book_is_a_row(run, tmp_path, monkeypatch, capsys):
    script = importlib.import_module("bench_whole")
    monkeypatch.setattr(script, "project_root", lambda: tmp_path)
    monkeypatch.setattr(script, "seconds_of", lambda *given, **options: 1.0)
    for folder, metadata in (
        ("notebooks", {}),
        ("_build/executed", {"papermill": {"parameters": {"scale": "smoke"}, "duration": 300}}),
    ):
        for name in ("one", "two"):
            place = tmp_path / folder / "simlm" / f"{name}.ipynb"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps({"metadata": metadata}))
    run("bench_whole", "--notebook= --repeats 1 --save {folder}/speed.json")
    (row,) = (
        row
        for row in json.loads((tmp_path / "speed.json").read_text())["rows"]
        if "all notebooks" in row["what"]
    )
    assert row["by_median"] == 0.5  # 600 of the 1,200 seconds of two cores
    assert "300.0 s" not in capsys.readouterr().out
    monkeypatch.setattr(script, "LIMIT_NOTEBOOK", 0.4)
    run("bench_whole", "--notebook= --repeats 1 --save {folder}/speed.json")
    printed = capsys.readouterr().out
    # missed: which of them take so long
    assert "300.0 s  simlm/one.ipynb" in printed and "300.0 s  simlm/two.ipynb" in printed
    place.unlink()
    assert script.built() == {}


def test_the_row_of_the_import_has_target_and_verdict_and_a_missed_one_its_profile(
    run, tmp_path, monkeypatch, capsys
):
    script = importlib.import_module("bench_whole")
    seconds = {script.IMPORTS[script.OURS]: 8.0, script.IMPORTS[script.LIBRARIES]: 4.0}
    monkeypatch.setattr(script, "seconds_of", lambda *given, **options: seconds[given[-1]])
    monkeypatch.setattr(script, "print_imports", lambda: print("the slowest imports"))
    run("bench_whole", "--notebook= --repeats 1 --save {folder}/speed.json")
    assert "the slowest imports" in capsys.readouterr().out
    run("timing", str(tmp_path / "speed.json"))
    (line,) = (
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("import dr_lib.lab")
    )
    assert line.split()[2:] == ["1.25", "2.00", "2.00", "not", "met"]


def test_methods_script_can_be_read():
    assert callable(importlib.import_module("bench_methods").main)


def test_what_comparisons_keep_becomes_a_table(run, tmp_path, capsys):
    kept = tmp_path / "speed.json"
    for name in COMPARED:
        run(name, f"{TINY[name]} --save {{folder}}/speed.json")
    capsys.readouterr()
    run("timing", str(kept))
    found = json.loads(kept.read_text())
    assert found["threads"] == 1 and "cpu" in found["machine"]
    # BM25: index and search; search: two settings of faiss; SimLM: two precisions
    assert len(found["rows"]) == 6
    printed = capsys.readouterr().out
    for row in found["rows"]:
        seconds = row["seconds"]
        assert row["by_median"] == seconds[row["ours"]]["median"] / seconds[row["peer"]]["median"]
        assert 0 < row["at_least"] < row["by_quickest"] * 100  # a share of the peer's time, too
        line = next(line for line in printed.splitlines() if line.startswith(row["what"]))
        assert line.endswith("not met") == (row["by_median"] > row["wanted"])


def test_contexts_candidates_and_rows_are_counted_by_split(run, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_DATA", str(tmp_path))
    line = {"context": ["Hi."], "response": "Hello.", "candidates": ["No.", "Hello."]}
    for split in ("train", "dev", "test"):
        write_text(tmp_path / "sgd" / "pairs" / f"{split}.jsonl", 3 * (json.dumps(line) + "\n"))
    write_text(tmp_path / "glue-cola" / "train.tsv", "sentence\tlabel\nOne.\t1\nTwo.\t0\n")
    run("splits", "--save {folder}/splits.json")
    found = read_json(tmp_path / "splits.json")
    assert found.keys() == {"sgd", "glue-cola"} and found["sgd"].keys() == {"train", "dev", "test"}
    assert (found["sgd"]["test"]["contexts"], found["sgd"]["test"]["candidates"]) == (3, 2)
    digest = file_digest(tmp_path / "glue-cola" / "train.tsv")
    assert found["glue-cola"] == {"train": {"rows": 2, "digest": digest}}


@pytest.mark.slow
@pytest.mark.skipif(data_root() is None, reason="needs DR_DATA")
def test_the_data_sheets_have_the_counts_of_the_files_that_are_here(run, tmp_path):
    run("splits", "--save {folder}/splits.json")
    kept = read_json(FOLDER.parent / "book" / "reference" / "measured" / "splits.json")
    counted = read_json(tmp_path / "splits.json")
    assert counted and all(kept[name] == splits for name, splits in counted.items())


def test_rows_on_a_device_are_kept_as_they_come(tmp_path, monkeypatch, capsys):
    script = importlib.import_module("bench_device")
    ran = []

    def rows(name):
        ran.append(name)
        if name == "late":
            time.sleep(5)
        if name == "broken":
            raise ValueError("no such kernel")
        if name == "killed":
            raise KeyboardInterrupt
        return [script.Row(name, "measured", 1.0, "ms", goal=2.0)]

    def groups(*names):
        some = [script.Group(name, 1, partial(rows, name)) for name in names]
        monkeypatch.setattr(script, "groups", lambda *options: some)

    path = tmp_path / "bench.json"
    groups("first", "late", "broken", "last")
    assert script.work(path, "cpu", False, 60, goes_on=True) == 1
    assert "late: not done in 1 s" in capsys.readouterr().out
    assert read_json(path)["groups"] == ["first", "last"]
    groups("first", "second", "killed")
    with pytest.raises(KeyboardInterrupt):
        script.work(path, "cpu", False, 60, goes_on=True)
    kept = read_json(path)
    assert kept["groups"] == ["first", "last", "second"] and ran.count("first") == 1
    assert [row["what"] for row in kept["rows"]] == kept["groups"] and kept["rows"][0]["met"]
    groups("third")
    assert script.work(path, "cpu", False, 0.3, goes_on=True) == script.IN_PART
    assert "left for the next call: third" in capsys.readouterr().out
    assert script.work(path, "cpu", False, 60, goes_on=False) == 0
    assert read_json(path)["groups"] == ["third"]


def test_a_product_reads_its_factors_and_writes_its_result():
    with torch.device("meta"):
        states, layer = torch.zeros(10, 6), nn.Linear(6, 4, bias=False)
        layer.requires_grad_(False)
    count = count_step(lambda: layer(states), autocast=False)
    assert (count.kernels, count.products) == (1, 2 * 10 * 6 * 4)
    assert count.moved == count.moved_by_products == 4 * (10 * 6 + 6 * 4 + 10 * 4)
    halved = count_step(lambda: layer(states))  # both factors are cast first
    assert halved.kernels == 3
    assert halved.moved == 6 * (10 * 6 + 6 * 4) + 2 * (10 * 6 + 6 * 4 + 10 * 4)


def test_a_product_with_a_vector_is_as_slow_as_its_bytes():
    with torch.device("meta"):
        row, matrix = torch.zeros(1, 6), torch.zeros(6, 4)
    assert count_step(lambda: row @ matrix, autocast=False).moved_by_products == 0


def test_inductors_plan_reads_and_writes_once_what_it_takes_together():
    with torch.device("meta"):
        first, second = torch.zeros(1000, 64), torch.zeros(1000, 64)

    def function(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return functional.gelu(first + second) * second

    size = 4 * 64_000
    assert count_step(lambda: function(first, second)).moved == size * (3 + 2 + 3)
    plan = planned(function, first, second)
    assert (plan.kernels, plan.moved) == (1, 3 * size)
    learned = planned(function, first, second, gradient=True)  # reads them again, and a gradient
    assert (learned.kernels, learned.moved) == (2, (3 + 5) * size)


def test_logits_are_read_and_gradients_are_written_once():
    rows, vocab = 4096, 30_522
    with torch.device("meta"):
        logits = torch.zeros(rows, vocab, dtype=torch.bfloat16)
        offset, shares = torch.zeros(vocab), torch.zeros(rows, 1)
        targets = torch.zeros(rows, 1, dtype=torch.int64)
    gradients = planned(cross_entropy.row_gradients, logits, offset, targets, shares)
    assert gradients.kernels == 1
    assert gradients.moved == pytest.approx(2 * logits.nbytes, rel=0.01)
    # sums of 239 blocks, in float32, are a sixteenth of the logits
    sums = planned(bottleneck.block_sums, logits)
    assert sums.kernels == 2 and sums.moved == pytest.approx(logits.nbytes, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "moved", "kernels", "seconds", "compiled_seconds"),
    [(BASE, 285e9, 2240, 0.154, 0.1495), (SMALL, 90e9, 1340, 0.035, 0.0338)],
    ids=["BERT-base", "6 x 384"],
)
def test_simlms_step_keeps_to_its_traffic(size, moved, kernels, seconds, compiled_seconds):
    step, simlm = simlm_step(size)
    plain, compiled = count_step(step), compiled_step(step, simlm, size.rows, size.length)
    assert compiled.moved < plain.moved < moved
    assert compiled.kernels < plain.kernels < kernels
    assert compiled.seconds() < compiled_seconds < plain.seconds() < seconds
    if size == BASE:
        assert compiled.share_of_peak() > 0.48 and plain.memory < 27 * 2**30


def test_encoding_a_batch_moves_what_weights_in_bfloat16_allow():
    count = encoding(BASE, smoke=False)
    assert count.moved < 95e9 and count.kernels < 170


def test_no_step_of_the_papers_scale_pads_more_than_a_quarter():
    rows = {row.what: row for row in padding_rows()}
    assert all(row.as_dict()["met"] for row in rows.values() if row.goal)
    assert rows["padding of encoding passages"].value < 6 > rows["padding of scoring pairs"].value


def test_padding_of_what_is_sorted_counts_whole_batches():
    # 20 + 17 pieces in 2 x 24 positions, then 9 + 3 in 2 x 16
    assert padding(np.array([3, 20, 9, 17]), 48, 144) == pytest.approx(1 - 49 / 80)
