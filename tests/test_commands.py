"""The command line itself: help with examples that parse, and completion by the shell."""

import shlex
import subprocess
import sys

import pytest

from dr_lib.__main__ import EXAMPLES, main, parser

COMMANDS = [*next(action for action in parser()._actions if action.choices and action.dest != "print_completion").choices]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_examples_that_it_accepts(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = capsys.readouterr().out
    examples = [line.split(" < ")[0] for line in EXAMPLES.splitlines() if line.startswith(f"  dr-lib {command} ")]
    assert examples and all(line in told for line in examples)
    for line in examples:
        parser().parse_args(shlex.split(line)[1:])


def test_bash_completes_every_command_and_the_names_of_files(tmp_path):
    script = subprocess.check_output([sys.executable, "-m", "dr_lib", "--print-completion", "bash"], text=True)
    (tmp_path / "corpus.jsonl").touch()

    def completed(*words: str) -> list[str]:
        ask = f'COMP_WORDS=({" ".join(words)} "${{1-}}"); COMP_CWORD={len(words)}; _shtab_dr_lib dr-lib "$1" {words[-1]}'
        told = subprocess.run(
            ["bash", "-c", f'{script}\n{ask}; printf "%s\\n" "${{COMPREPLY[@]}}"', "bash", ""],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        return told.stdout.split()

    assert {*COMMANDS} <= {*completed("dr-lib")}
    assert "corpus.jsonl" in completed("dr-lib", "search")


def test_help_imports_neither_the_library_nor_the_completion():
    program = "import sys, dr_lib.__main__ as command; command.parser(); print({'torch', 'numpy', 'shtab'} & {*sys.modules})"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"
