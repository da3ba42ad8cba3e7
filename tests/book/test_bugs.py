"""Find the bug: each mark scheme fails on the faulty function, for a reason it names, and passes on
the mended one.
"""

from pathlib import Path

import nbformat
import pytest
from check_pages import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks" / "teaching").glob("bugs_*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_schemes_fail_on_the_fault_and_pass_on_the_solution(path: Path, capsys):
    space: dict = {}
    faults, mended = [], 0
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        exec(compile(cell.source, path.name, "exec"), space)
        said = capsys.readouterr().out
        if "hide-cell" in cell.metadata.get("tags", []):
            assert said == "correct\n"
            mended += 1
        elif "scheme_" in cell.source:
            assert said.startswith("not yet: ")
            faults.append(said)
    assert len(set(faults)) == mended == 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_fault_has_one_function_one_scheme_and_a_folded_solution(path: Path):
    cells = nbformat.read(path, as_version=4).cells[3:-1]
    kinds = ["markdown", "code", "code"] * 5
    assert [cell.cell_type for cell in cells] == kinds
    for number, (text, faulty, solution) in enumerate(zip(*[iter(cells)] * 3, strict=True), 1):
        assert text.source.startswith(f"## {number}. ")
        assert f"def scheme_{number}(" in faulty.source and faulty.source.count("\ndef ") == 1
        assert solution.metadata["mystnb"]["code_prompt_show"] == f"Solution {number}"
        name = faulty.source.split("def ", 1)[1].split("(")[0]
        assert (
            f"def {name}(" in solution.source and f"\nscheme_{number}({name})\n" in solution.source
        )
