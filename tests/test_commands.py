"""The command line itself: help with examples that parse."""

import shlex
import subprocess
import sys

import pytest

from dr_lib.__main__ import EXAMPLES, main, parser

COMMANDS = [*next(action for action in parser()._actions if action.choices).choices]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_examples_that_it_accepts(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = capsys.readouterr().out
    examples = [line.split(" < ")[0] for line in EXAMPLES.splitlines() if line.startswith(f"  dr-lib {command} ")]
    assert examples and all(line in told for line in examples)
    for line in examples:
        parser().parse_args(shlex.split(line)[1:])


def test_help_imports_no_library():
    program = "import sys, dr_lib.__main__ as command; command.parser(); print({'torch', 'numpy'} & {*sys.modules})"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"
