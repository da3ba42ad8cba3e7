"""The edges of the command line: what is no text, no number, no YAML, endless or nowhere to be
written ends in one line.
"""

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dr_book.commands import main
from dr_lib import places
from dr_lib.collections.beir import LONGEST_LINE, read_lines
from dr_lib.errors import InputError
from dr_lib.files import parse_yaml, read_json, read_yaml
from dr_lib.lab.base import BaseRecipe

ROOT = Path(__file__).parents[2]
BILLION = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture
def texts(tmp_path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("The moon pulls the sea.\n\nTides follow the moon.\n")
    return folder


def run(arguments: list[str | bytes], tmp_path: Path, **more) -> subprocess.CompletedProcess:
    """A command in a process of its own, as a shell starts it."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "book")]),
        "DR_CACHE": str(tmp_path / "cache"),
        **more.pop("env", {}),
    }
    command = [sys.executable, "-m", "dr_book", *arguments]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    return subprocess.run(command, env=environment, timeout=300, check=False, **output)


PARAMETERS = {
    "a date that is none": "2001-99-99",
    "a day": "2001-01-01",
    "5,000 digits": "9" * 5000,
    "5,000 brackets": "[" * 5000,
    "open bracket": "[1",
    "an alias": "[&a 1, *a]",
    "aliases of aliases": BILLION,
    "not a number": ".nan",
    "infinite": "1e999",
    "control": "\x1b[2J",
    "binary": "!!python/object/apply:os.system [ls]",
    "a mapping": "{1: 2}",
}


@pytest.mark.parametrize("kind", PARAMETERS)
@pytest.mark.parametrize("key", ["seed", "pretraining__learning_rate"])
def test_odd_values_of_parameters_end_in_one_line(texts, tmp_path, capsys, kind, key, counted):
    given = ["pretrain", str(texts), "--steps", "1", "--to", str(tmp_path / "out")]
    assert main([*given, "-p", key, PARAMETERS[kind]]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and len(said) < 500
    assert said.rstrip("\n").isprintable()
    counted("odd values on the command line", 1)


@pytest.mark.parametrize("content", [BILLION, "1: 2\nseed: 3", "seed: [&a 1, *a]", "- 1", "\0"])
def test_odd_yaml_files_end_in_one_line_at_once(tmp_path, content, counted):
    (tmp_path / "odd.yaml").write_text(content)
    began = time.monotonic()
    with pytest.raises(InputError, match=r"odd\.yaml"):
        read_yaml(tmp_path / "odd.yaml")
    assert time.monotonic() - began < 5
    counted("odd values in files", 1)


def test_an_alias_is_named_with_its_line_and_a_star_is_a_star(tmp_path):
    with pytest.raises(InputError, match="here line 2: an alias"):
        parse_yaml("a: &a 1\nb: *a\n", "here")
    assert parse_yaml("a: '*b'\nc: 2 * 3\nd: |\n  *e*\n", "here") == {
        "a": "*b",
        "c": "2 * 3",
        "d": "*e*\n",
    }


def test_a_base_recipe_of_aliases_ends_at_once(tmp_path):
    recipe = read_yaml(places.scale_file("base-2x128"))
    (tmp_path / "odd.yaml").write_text(f"{BILLION}\nseed: *i\n{json.dumps(recipe)[1:-1]}\n")
    with pytest.raises(InputError, match=r"odd\.yaml line \d+: "):
        BaseRecipe.load(tmp_path / "odd.yaml")


def test_a_file_larger_than_its_bound_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}' + " " * 100)
    with pytest.raises(InputError, match=r"config\.json: has more than 50 bytes"):
        read_json(tmp_path / "config.json", most=50)


def test_one_line_of_a_packed_collection_may_not_fill_the_memory(tmp_path, counted):
    path = tmp_path / "corpus.jsonl.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b'{"_id": "a", "text": "short"}\n')
        for _ in range(40):
            file.write(bytes(2**20))
    lines = read_lines(path)
    next(lines)
    with pytest.raises(InputError, match=rf"line 2: the line has more than {LONGEST_LINE:,}"):
        next(lines)
    counted("packed values that unpack without end", 1)


@pytest.mark.parametrize("kind", [MemoryError, RecursionError, UnicodeEncodeError])
def test_what_no_reader_has_named_is_one_line_from_one_place(monkeypatch, capsys, kind):
    def fail(_):
        raise (
            UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no")
            if kind is UnicodeEncodeError
            else kind
        )

    monkeypatch.setattr("dr_book.commands.check_collection", fail)
    assert main(["search", "primer", "why"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1


@pytest.mark.faults
@pytest.mark.parametrize("how", ["argument", "standard input", "latin-1 output", "full output"])
def test_bytes_that_are_no_text_and_outputs_that_take_none(texts, tmp_path, how, counted):
    search = ["search", str(texts)]
    if how == "argument":
        done = run([*search, b"\xff moon"], tmp_path)
    elif how == "standard input":
        done = run(search, tmp_path, input=b"the moon\n\xff\xfe moon\n")
    elif how == "latin-1 output":
        (texts / "b.txt").write_text("Тhe moon \N{FULL MOON SYMBOL} of \N{SNOWMAN}.\n")
        done = run([*search, "moon"], tmp_path, env={"PYTHONIOENCODING": "latin-1"})
    else:
        with Path("/dev/full").open("w") as full:
            done = run([*search, "moon"], tmp_path, stdout=full)
    said = done.stderr.decode()
    assert "Traceback" not in said and "Exception ignored" not in said, said
    if how == "latin-1 output":
        assert done.returncode == 0 and b"\\u2603" in done.stdout
    else:
        assert done.returncode == 1 and said.splitlines()[-1].startswith("error: "), said
    counted("bytes that are no text, outputs that take none", 1)


@pytest.mark.faults
def test_a_time_that_is_none_is_named(texts, tmp_path, counted):
    given = ["pretrain", str(texts), "--steps", "1", "--to", str(tmp_path / "out")]
    done = run(given, tmp_path, env={"DR_STOP_AT": "abc"})
    said = done.stderr.decode()
    assert done.returncode == 1 and "DR_STOP_AT=abc: is no time" in said and "Traceback" not in said
    counted("odd values on the command line", 1)
