"""The README fits one screen, its commands exist, and its table has every paper."""

import re
import shlex

from readme_table import BEGIN, END, PAPERS, with_table

from dr_book.commands import parser
from dr_lib import objectives
from dr_lib.places import project_root

README = (project_root() / "README.md").read_text(encoding="utf-8")


def test_it_is_short():
    assert len(README.split()) < 450


def test_its_targets_of_make_and_its_places_exist():
    makefile = (project_root() / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert targets and all(f"\n{target}:" in makefile for target in targets)
    places = re.findall(r"`((?:book|dr_lib|notebooks)/[\w./]*)`|\]\(([\w./-]+)\)", README)
    assert places and all((project_root() / (code or link)).exists() for code, link in places)


def test_its_commands_are_taken():
    commands = re.findall(r"^\.venv/bin/dr-lib ([^#\n]*)", README, re.MULTILINE)
    assert commands
    for command in commands:
        parser().parse_args(shlex.split(command))


def test_it_names_every_method():
    (listed,) = re.findall(r"^Methods: `(.*)`", README, re.MULTILINE)
    assert sorted(listed.split()) == sorted(objectives.names())


def test_the_table_counts_the_pairs_of_each_paper():
    pairs = [{"state": state} for state in ("supported", "open", "open", "not run")]
    pairs.append({"state": "open", "waits": 1})
    made = with_table(f"a {BEGIN}\nold\n{END} z", [{"paper": "pair", "pairs": pairs}])
    rows = [line for line in made.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(PAPERS) and made.startswith("a ") and made.endswith(" z")
    assert rows[-1] == "| PAIR | 4 | 1 | 2 | 1 | 0 |"
