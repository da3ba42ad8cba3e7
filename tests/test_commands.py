"""The command line itself: help with examples that parse."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from dr_book import systems
from dr_book.commands import EXAMPLES, main, parser
from dr_book.corpus_study import FEWEST_PASSAGES
from dr_lib import objectives
from dr_lib.errors import InputError

COMMANDS = [*next(action for action in parser()._actions if action.choices).choices]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_examples_that_it_accepts(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = capsys.readouterr().out
    examples = [
        line.split(" < ")[0]
        for line in EXAMPLES.splitlines()
        if line.startswith(f"  dr-lib {command} ")
    ]
    assert examples and all(line in told for line in examples)
    for line in examples:
        parser().parse_args(shlex.split(line)[1:])


def test_help_imports_no_library():
    program = (
        "import sys, dr_book.commands as command; command.parser(); print({'torch', 'numpy'}"
        " & {*sys.modules})"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"


def test_the_methods_of_commands_are_those_of_the_library():
    assert list(systems.methods().items()) == list(objectives.NAMES.items())
    assert systems.word("SimLM") == "simlm" and systems.word("no pre-training") == "none"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["serch", "primer"], "Did you mean search? "),
        (["try", "primer", "--minuts", "3"], "Did you mean --minutes? "),
        (["try", "primer", "--qqqqqq=3"], ""),
    ],
)
def test_a_slip_of_the_pen_is_told_what_was_perhaps_meant(arguments, meant, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert capsys.readouterr().err.endswith(f". {meant}See: dr-lib --help\n")


def test_help_says_how_many_passages_are_needed(capsys):
    with pytest.raises(SystemExit):
        main(["try", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert f"of {FEWEST_PASSAGES} passages at least" in told


def test_a_search_waits_for_no_library_that_it_does_not_use():
    program = (
        "import sys, dr_book.search; print({'scipy.stats', 'matplotlib', 'sentence_transformers'} &"
        " {*sys.modules})"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"


@pytest.mark.parametrize(
    "command", ["try nowhere", "search nowhere x", "pretrain nowhere --steps 1 --to x"]
)
def test_a_collection_that_cannot_be_opened_waits_for_no_model_library(command):
    program = (
        f"import sys; from dr_book.commands import main; print(main({command.split()}), 'torch' in"
        " sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "1 False\n" and ended.stderr.startswith(
        "error: collection: unknown collection 'nowhere'"
    )


MISTAKES = {
    "": "error: the following arguments are required: COMMAND. See: dr-lib --help",
    "frob": "error: argument COMMAND: invalid choice: 'frob'",
    "search x y -k 0": (
        "error: argument -k: '0' is no whole number above 0. See: dr-lib search --help"
    ),
    "search x y -k two": "error: argument -k: 'two' is no whole number above 0",
    "pretrain x --steps 0 --to y": "error: argument --steps: '0' is no whole number above 0",
    "try x --minutes soon": "error: argument --minutes: invalid float value: 'soon'",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_in_the_options_costs_one_line(line, capsys):
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.startswith(MISTAKES[line]) and said.count("\n") == 1


def test_a_value_that_is_no_yaml_is_named(capsys):
    assert main(["pretrain", "primer", "--steps", "2", "--to", "x", "-p", "seed", "["]) == 1
    assert (
        capsys.readouterr().err == "error: -p seed '[' line 2: not valid YAML. Correct the line.\n"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("record.json --label simlm", "--label says nothing here. It names a run of --study."),
        ("record.json --seed 0", "--seed says nothing here. It names a run of --study."),
        ("record.json --scale smoke", "--scale says nothing here. It names a run of --study."),
        (
            "--study a --run --name mine",
            "--name says nothing here. It is the title of a model's card: leave --run out.",
        ),
    ],
)
def test_export_refuses_what_it_would_not_read(options, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("record.json").touch()
    assert main(["export", *options.split(), "--to", "out"]) == 1
    assert capsys.readouterr().err == f"error: export: {said}\n"


def test_a_folder_has_no_run_to_export(tmp_path, capsys):
    assert main(["export", str(tmp_path), "--run", "--to", str(tmp_path / "out")]) == 1
    assert "a folder of a model, which has no run. Give the record" in capsys.readouterr().err


def test_a_notebook_shows_bad_input_in_one_line(capsys):
    run = InteractiveShell().run_cell("from dr_lib import collections; collections.load('nowhere')")
    (line,) = capsys.readouterr().out.strip().splitlines()
    assert isinstance(run.error_in_exec, InputError) and line == f"InputError: {run.error_in_exec}"


def test_a_folder_without_a_model_is_no_system(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("The moon pulls.")
    assert (
        main(["try", str(tmp_path), "--system", str(tmp_path), "--to", str(tmp_path / "out")]) == 1
    )
    assert (
        f"error: {tmp_path}: no model here" in (said := capsys.readouterr().err)
        and said.count("\n") == 1
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [
        "verify nothere.json",
        "export nothere.json --to out",
        "search primer x --reranker nothere.json",
        "search primer x --model nothere.json",
    ],
)
def test_a_path_that_is_not_there_is_refused_before_anything_is_opened(options, capsys):
    assert main(options.split()) == 1
    assert (
        capsys.readouterr().err == "error: nothere.json: no such file or folder. Check the path.\n"
    )


def test_a_model_that_nobody_has_is_refused_before_the_collection_is_read(monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("dr_book.commands.check_collection", lambda name: pytest.fail("read"))
    assert main(["search", "primer", "x", "--model", "nobody/has-this"]) == 1
    assert capsys.readouterr().err.startswith(
        "error: nobody/has-this: no such model here, and none fetched before."
    )


@pytest.mark.parametrize("command", [["ledger"], ["publish", "simlm/table08"], ["try", "primer"]])
def test_an_unknown_scale_is_refused_everywhere(command, capsys):
    assert main([*command, "--scale", "nosuch"]) == 1
    assert "no scale 'nosuch'. Choose one of gpu, laptop" in capsys.readouterr().err


def test_an_error_writes_out_what_a_terminal_would_act_on(capsys, tmp_path):
    assert main(["verify", str(tmp_path / "\x9b31m\x1b[2J.json")]) == 1
    said = capsys.readouterr().err
    assert said.rstrip("\n").isprintable() and "31m" in said
