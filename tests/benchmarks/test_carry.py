"""The folder for a machine without network: within its size limit, and unchanged on arrival."""

import gzip
import importlib
import json
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def script():
    return importlib.import_module("carry")


@pytest.fixture
def small(script, tmp_path, monkeypatch):
    """Two collections, one of them gzipped and of random text, and a checkout of 1,000 bytes."""
    for name, count in (("first", 10), ("second", 3000)):
        (tmp_path / "data" / name / "qrels").mkdir(parents=True)
        lines = "".join(json.dumps({"_id": str(row), "text": f"{row**7}"}) for row in range(count))
        (tmp_path / "data" / name / "qrels" / "test.tsv").write_text("a\tb\t1\n")
        with gzip.open(tmp_path / "data" / name / "corpus.jsonl.gz", "wt") as file:
            file.write(lines)
    folders = [tmp_path / "data" / name for name in ("second", "first")]
    monkeypatch.setattr(script, "collections", lambda: folders)
    monkeypatch.setattr(script, "checkout_size", lambda: 1000)

    def wheel(to, names, python):
        (to / "thing-1-py3-none-any.whl").write_bytes(bytes(500))

    monkeypatch.setattr(script, "wheels", wheel)
    return tmp_path


def test_what_does_not_fit_is_left_out_and_said(script, small, capsys):
    assert script.pack(small / "all", [], "3.12", 1) == []
    sizes = {path.stem: path.stat().st_size for path in (small / "all").glob("*.xz")}
    room = (1500 + sizes["first.tar"] + 10) / 2**20
    assert script.pack(small / "few", [], "3.12", room) == ["second"]
    assert "left out, as they do not fit: second" in capsys.readouterr().out
    assert sorted(path.name for path in (small / "few").iterdir()) == [
        "carried.json",
        "first.tar.xz",
        "thing-1-py3-none-any.whl",
    ]
    with pytest.raises(SystemExit, match=r"alone are 0\.0 MiB too large"):
        script.pack(small / "none", [], "3.12", 0.001)


def test_what_was_packed_is_there_as_plain_text_and_a_changed_file_is_refused(
    script, small, monkeypatch
):
    script.pack(small / "all", [], "3.12", 1)
    installed = []
    monkeypatch.setattr(subprocess, "run", lambda command, **options: installed.append(command))
    found = script.unpack(small / "all")
    (command,) = installed
    assert "--no-index" in command and command[-1].endswith("thing-1-py3-none-any.whl")
    text = (Path(found["DR_DATA"]) / "first" / "corpus.jsonl").read_text()
    assert text.startswith('{"_id": "0"') and len(text.split("{")) == 11
    assert (Path(found["DR_DATA"]) / "second" / "qrels" / "test.tsv").read_text() == "a\tb\t1\n"
    script.unpack(small / "all")
    assert len(installed) == 1  # once
    (small / "all" / "first.tar.xz").write_bytes(b"x")
    with pytest.raises(SystemExit, match=r"first.tar.xz differs from what was packed"):
        script.unpack(small / "all")


def test_what_the_machine_lacks_is_named(script, small, monkeypatch):
    monkeypatch.setattr(script, "unpack", lambda to: {"PYTHONPATH": ""})
    said = subprocess.CompletedProcess([], 1, "", "ModuleNotFoundError: No module named 'lxml'\n")
    monkeypatch.setattr(subprocess, "run", lambda command, **options: said)
    with pytest.raises(SystemExit, match="this machine lacks lxml too: pack it with --lacks"):
        script.run(small, [])


def test_wheels_are_of_the_locked_versions(script, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(subprocess, "run", lambda command, **options: asked.extend(command))
    script.wheels(tmp_path, script.LACKS, "3.12")
    pins = [word for word in asked if "==" in word]
    assert len(pins) == len(script.LACKS) and "--no-deps" in asked and ":all:" in asked


def test_the_collections_that_runs_need_come_first(script, monkeypatch, tmp_path):
    for name in ("squad", "reddit-retrieval", "wikipedia-nq", "npl", "cacm"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "corpus.jsonl").write_text("x" * len(name))
    monkeypatch.setenv("DR_DATA", str(tmp_path))
    names = [folder.name for folder in script.collections()]
    # the base model of the scale `gpu` is trained on Wikipedia
    assert {*names[:2]} == {"squad", "wikipedia-nq"}
    assert names[2:] == ["npl", "cacm", "reddit-retrieval"], "only searched: the smallest first"
