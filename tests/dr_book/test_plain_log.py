"""A log holds plain lines: no bar, no carriage return, nothing that moves a cursor."""

import io
import json
import os
import subprocess
import sys

import pytest
from tqdm import tqdm

from dr_book.plain_log import FORM, PlainLines
from dr_lib.places import project_root


def test_bars_within_bars_become_lines():
    log = io.StringIO()
    stream = PlainLines(log)
    options = {"file": stream, "mininterval": 0, "bar_format": FORM}
    print("begins", file=stream)
    for _ in tqdm(range(2), desc="outer", **options):
        for _ in tqdm(range(3), desc="inner", leave=False, **options):
            tqdm.write("a message", file=stream)
    print("ends", file=stream)
    lines = log.getvalue().split("\n")
    assert not {"\r", "\x1b", "█"} & {*log.getvalue()} and "" not in lines[:-1]
    assert lines[0] == "begins" and lines[-2] == "ends" and lines.count("a message") == 6
    assert len(lines) == 9  # what took no second says nothing


def test_a_bar_that_takes_long_is_a_line_each_time_it_is_drawn():
    log = io.StringIO()
    bar = tqdm(total=4, desc="encode", file=PlainLines(log), mininterval=0, bar_format=FORM)
    bar.start_t -= 90
    for _ in range(2):
        bar.update()
    bar.close()
    lines = log.getvalue().splitlines()
    assert any(line.startswith("encode: 1 of 4 after 01:30, ") for line in lines)
    assert lines[-1] == "encode: 2 of 4 after 01:30, 01:30 left"


def test_what_is_printed_in_parts_stays_one_line():
    log = io.StringIO()
    stream = PlainLines(log)
    for part in ("one ", "line", "\n", "\n", "two\n"):
        stream.write(part)
    assert log.getvalue() == "one line\ntwo\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["publish", "your_corpus/x", "--scale", "laptop"], "your_corpus/x: query ids and scores"),
        (["publish", "simlm/table08"], "which scale is not said"),
        (["export", "--to", "x"], "give a record, a folder, or --study"),
        (["export", "README.md", "--to", "x"], "README.md: is no record"),
        (["verify"], "which record is not said"),
        (["verify", "README.md"], "README.md: is no record"),
        (["try", "README.md", "--ask", " "], "the query is empty"),
        (["try", "./nowhere"], "no such file or folder"),
        (["search", "README.md", " "], "the query is empty"),
        (["ledger", "--scale", "nosuch"], "no scale 'nosuch'"),
        (["try", "README.md", "--system", "simml"], "no system 'simml'. Did you mean simlm? Give"),
        (["search", "README.md", "a", "--model", "simml"], "Did you mean simlm? Check the path"),
        (["search", "primmer", "a"], "unknown collection 'primmer'. Did you mean primer? Use"),
        (["try", "EMPTY"], "the folder is empty. Give one with text files"),
    ],
)
def test_what_needs_no_library_is_refused_without_one(command, said, tmp_path):
    """In a process of its own; by the libraries that it has imported, since seconds depend on the
    machine: with none of them it took a tenth of one.
    """
    command = [str(tmp_path) if part == "EMPTY" else part for part in command]
    heavy = ["numpy", "torch", "datasets", "transformers", "pandas", "pydantic"]
    code = f"""
import json, sys
from dr_book.commands import main
status = main({command!r})
print(json.dumps([status, [name for name in {heavy!r} if name in sys.modules]]))
"""
    root = project_root()
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "book")])}
    env |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=root, check=True
    )
    assert json.loads(done.stdout) == [1, []] and said in done.stderr
    assert done.stderr.count("\n") == 1
