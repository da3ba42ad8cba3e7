"""What lies on this machine, by study, and how it is removed."""

import os
import shutil
import subprocess
import sys

import pytest

from dr_book import status
from dr_book.commands import main
from dr_lib import lab, places
from dr_lib.errors import InputError
from dr_lib.locks import reading

DAMAGED = (
    ("bm25_index", "index/*.npy"),
    ("bm25_run", "ranking/rows.npy"),
    ("scores", "manifest.json"),
)


@pytest.fixture
def two_studies(tiny_recipe, cache):
    """Two studies of BM25 with records; the second one's run is its own, the index is shared."""
    for name, depth in (("own/first", 20), ("own/second", 10)):
        measured = {"kind": "bm25", "depth": depth, "measures": ["MRR@10"]}
        recipe = tiny_recipe.with_(objective="none", evaluation=measured)
        lab.Study(name, {"BM25": recipe}, scale="smoke", cache=cache, progress=False).run()
    return cache


def names(cache) -> set[str]:
    return {path.parent.name.rpartition("-")[0] for path in cache.root.glob("*/manifest.json")}


def test_status_counts_by_study_with_sizes_and_ages(two_studies):
    lines = [line for line in status.status_lines(cache=two_studies) if "own/" in line]
    assert len(lines) == 2
    assert all(
        "1 records (smoke)" in line and "MB of its own" in line and "0 days ago" in line
        for line in lines
    )
    (line,) = (
        line
        for line in status.status_lines(cache=two_studies, study="own/first")
        if "'BM25' seed 0" in line
    )
    assert "MRR@10" in line


def test_every_damaged_stage_is_listed_and_not_the_first_alone(two_studies, capsys, monkeypatch):
    monkeypatch.setattr(
        "dr_book.status.Cache", lambda: lab.Cache(two_studies.root, announce=lambda line: None)
    )
    index, *runs = (next(two_studies.root.glob(f"{name}-*/{file}")) for name, file in DAMAGED)
    content = index.read_bytes()
    index.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    runs[0].unlink()
    runs[1].write_text("{")
    assert main(["status", "--verify"]) == 0
    damaged = [line for line in capsys.readouterr().out.splitlines() if "DAMAGED" in line]
    assert len(damaged) == 3 and all("Remove" in line for line in damaged)
    assert all(any(str(path.parent) in line for line in damaged) for path in (index, *runs))


def test_files_of_finished_stages_can_be_read_by_everybody(tiny_recipe, cache):
    umask = os.umask(0o022)
    try:
        lab.execute(
            lab.Run("t", "read", "smoke", tiny_recipe.with_(objective="cdmae", final="retriever1")),
            cache,
        )
    finally:
        os.umask(umask)
    finished = [
        path
        for manifest in cache.root.glob("*/manifest.json")
        for path in manifest.parent.rglob("*")
    ]
    assert {oct(path.stat().st_mode & 0o777) for path in finished if path.is_file()} == {"0o644"}
    assert {oct(path.stat().st_mode & 0o777) for path in finished if path.is_dir()} <= {"0o755"}


def test_clean_removes_a_study_and_keeps_what_another_one_uses(two_studies):
    before = sorted(path.name for path in two_studies.root.iterdir())
    planned = status.clean("own/second", dry_run=True, cache=two_studies)
    assert (
        sorted(path.name for path in two_studies.root.iterdir()) == before
        and "would be removed" in planned[-1]
    )
    removed = status.clean("own/second", cache=two_studies)
    assert removed[:-1] == planned[:-1] and any(line.startswith("bm25_run-") for line in removed)
    assert names(two_studies) >= {"bm25_index", "bm25_run", "scores"}
    records = lab.load_records(places.cache_root() / "records" / "smoke")
    assert [record.study for record in records] == ["own/first"]
    with pytest.raises(InputError, match="no record of 'own/second' here"):
        status.clean("own/second", cache=two_studies)


@pytest.mark.parametrize("shared", ["", "1"], ids=["own disk", "network disk"])
def test_clean_leaves_what_is_being_built(cache, monkeypatch, shared):
    monkeypatch.setenv("DR_SHARED_CACHE", shared)
    for name in ("retriever-1", "retriever-2"):
        (cache.root / f"{name}.partial").mkdir(parents=True)
    with cache.lock("retriever-1"):
        assert status.clean(partials=True, cache=cache) == [
            "retriever-2.partial: 0.0 MB",
            "1 removed, 0.0 MB",
        ]
        assert status.clean(partials=True, cache=cache) == ["0 removed, 0.0 MB"]
    assert [path.name for path in cache.root.glob("*.partial")] == ["retriever-1.partial"]


def test_clean_removes_what_a_killed_process_left_on_a_network_disk(cache, monkeypatch):
    monkeypatch.setenv("DR_SHARED_CACHE", "1")
    (cache.root / "retriever-1.partial").mkdir(parents=True)
    take = (
        f"from dr_lib.lab import Cache; lock = Cache({str(cache.root)!r}).lock('retriever-1');"
        " lock.acquire()"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", f"{take}; import os; os._exit(9)"], check=False
        ).returncode
        == 9
    )
    assert any((cache.root / "locks").iterdir()), "the lock has outlived its owner"
    assert status.clean(partials=True, cache=cache)[-1] == "1 removed, 0.0 MB"


def test_clean_that_was_stopped_is_finished_by_the_same_call(two_studies, monkeypatch):
    remove, calls = shutil.rmtree, []

    def stopped(path, **options) -> None:
        if calls:
            raise KeyboardInterrupt
        calls.append(remove(path, **options))

    planned = status.clean("own/second", dry_run=True, cache=two_studies)
    with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
        interrupted.setattr("dr_lib.stages.shutil.rmtree", stopped)
        status.clean("own/second", cache=two_studies)
    assert status.clean("own/second", cache=two_studies)[:-1] == planned[2:-1] and len(planned) > 3
    assert not list(two_studies.root.glob(".*"))


def test_clean_leaves_what_a_process_under_way_reads(two_studies, counted):
    planned = status.clean("own/second", dry_run=True, cache=two_studies)
    folder = two_studies.root / planned[0].partition(":")[0]
    before = sorted(path.name for path in two_studies.root.iterdir())
    with reading(two_studies.root / "locks", [folder.name]):
        with pytest.raises(InputError, match="are read by a process under way"):
            status.clean("own/second", cache=two_studies)
        assert sorted(path.name for path in two_studies.root.iterdir()) == before
    assert status.clean("own/second", cache=two_studies)[:-1] == planned[:-1]
    counted("stages to be removed that another process reads", 1)


def test_clean_without_anything_named_is_refused(capsys):
    assert main(["clean"]) == 1
    assert "--study" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["ledger"], ["publish", "simlm/table08"], ["try", "primer"]])
def test_an_unknown_scale_is_refused_everywhere(command, capsys):
    assert main([*command, "--scale", "nosuch"]) == 1
    assert "no scale 'nosuch'. Choose one of gpu, laptop" in capsys.readouterr().err


def test_an_error_writes_out_what_a_terminal_would_act_on(capsys, tmp_path):
    assert main(["verify", str(tmp_path / "\x9b31m\x1b[2J.json")]) == 1
    said = capsys.readouterr().err
    assert said.rstrip("\n").isprintable() and "31m" in said


def test_every_command_shows_examples_or_its_options(capsys):
    with pytest.raises(SystemExit):
        main(["try", "--help"])
    assert "dr-lib try docs/ --ask" in capsys.readouterr().out
