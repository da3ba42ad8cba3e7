"""Notebooks are stored without outputs, take parameters, and stay short; scale files are valid."""

import ast
from pathlib import Path

import nbformat
import pytest
import yaml

from dr_lib.lab import BaseRecipe, Recipe

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(
    path for path in (ROOT / "notebooks").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts
)
STUDIES = [
    path
    for path in NOTEBOOKS
    if "lab.Study(" in path.read_text() or "lab.zero_shot(" in path.read_text()
]
# pages of a command, a game and other pages' curves
TOOLS = ("pretrain", "bakeoff", "reference_curves")
TABLES = [path for path in STUDIES if path.stem not in TOOLS]
LESSONS = [path for path in NOTEBOOKS if path.parent.name == "lessons"]
FILES = sorted((ROOT / "notebooks" / "scales").glob("*.yaml"))
BASES = [path for path in FILES if path.stem.startswith("base-")]
QUEUE = ROOT / "notebooks" / "scales" / "queue.yaml"  # of runs, no scale
SCALES = [path for path in FILES if path not in (*BASES, QUEUE)]


def parameters(path: Path) -> list[nbformat.NotebookNode]:
    """Cells that papermill sets."""
    return [
        cell
        for cell in nbformat.read(path, as_version=4).cells
        if "parameters" in cell.metadata.get("tags", [])
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    ran = [cell for cell in cells if cell.outputs or cell.execution_count is not None]
    assert not ran, f"strip it: .venv/bin/nbstripout {path.relative_to(ROOT)}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_has_one_cell_of_parameters(path):
    assert len(parameters(path)) == 1


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_parameters_are_one_assignment_a_line_and_lists_are_checked_before_anything_runs(path):
    """papermill reads line by line, and passes a string as a list."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    place = next(i for i, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", []))
    assigned = ast.parse(cells[place].source).body
    for statement in assigned:
        targets = [statement.target] if isinstance(statement, ast.AugAssign) else statement.targets
        assert [type(target) for target in targets] == [ast.Name]
        assert statement.lineno == statement.end_lineno
    several = {
        statement.targets[0].id
        for statement in assigned
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.List | ast.Dict)
    }
    following = ast.parse(cells[place + 1].source).body
    calls = [one for one in following if not isinstance(one, ast.Import | ast.ImportFrom)][:1]
    checked = {
        keyword.arg
        for call in calls
        if ast.unparse(call).startswith("lab.check_parameters(")
        for keyword in call.value.keywords
    }
    assert several == checked


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_short_and_defines_no_class(path):
    cells = nbformat.read(path, as_version=4).cells
    longest = {"": 40, "hide-input": 60} if path in LESSONS else {"": 40, "hide-input": 40}
    code = [cell for cell in cells if cell.cell_type == "code"]
    # in lessons drawings and mark schemes are separate, folded cells
    assert len(cells) <= (32 if path in LESSONS else 20)
    assert not [cell.source for cell in code if "\nclass " in f"\n{cell.source}"]
    assert not [
        cell.source
        for cell in code
        if len(cell.source.splitlines())
        > longest["hide-input" if "hide-input" in cell.metadata.get("tags", []) else ""]
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_begins_with_its_title(path):
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown" and first.source.startswith("# ")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_lays_its_recipe_over_its_scale(path):
    """Otherwise a few keys given by hand would drop all others of the scale, down to the number of
    steps, which would be the papers'.
    """
    assert "lab.Recipe(" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_page_that_runs_a_study_shows_one_step_by_hand(path):
    if path.stem in (
        "reference_curves",
        "your_corpus",
        "traps",
    ):  # curves of another page's runs; one's own text; nothing but steps
        return
    cells = nbformat.read(path, as_version=4).cells
    headings = [
        i
        for i, cell in enumerate(cells)
        if cell.cell_type == "markdown" and "by hand" in cell.source.split("\n\n")[0]
    ]
    assert headings and cells[headings[0] + 1].cell_type == "code"


FOLDED = {"parameters", "hide-input", "hide-cell", "remove-input", "remove-cell"}


def in_sight(path: Path) -> list[str]:
    """Lines of code that a page shows without a click."""
    return [
        line
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code" and not FOLDED & {*cell.metadata.get("tags", [])}
        for line in cell.source.splitlines()
        if line.strip()
    ]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_lesson_shows_at_most_100_lines_of_at_most_80_characters(path):
    shown = in_sight(path)
    assert len(shown) <= 100
    assert not [line for line in shown if len(line) > 80]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_lesson_ends_by_comparing_with_the_library(path):
    cells = nbformat.read(path, as_version=4).cells
    assert cells[-1].cell_type == "code" and "assert " in cells[-1].source
    assert sum("$$" in cell.source for cell in cells if cell.cell_type == "markdown") >= 1


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_exercises_of_a_lesson_are_stubs_with_a_mark_scheme(path):
    cells = nbformat.read(path, as_version=4).cells
    asked = sum(cell.source.count("{admonition} Exercise") for cell in cells)
    checked = [cell for cell in cells if "\ncheck(scheme_" in cell.source]
    assert asked == len(checked) >= 2
    assert not any(FOLDED & {*cell.metadata.get("tags", [])} for cell in checked)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_folded_code_of_a_lesson_is_folded_in_a_notebook_too(path):
    """JupyterLab reads another key than the book's pages."""
    for cell in nbformat.read(path, as_version=4).cells:
        folded = bool({"hide-input", "hide-cell"} & {*cell.metadata.get("tags", [])})
        assert cell.metadata.get("jupyter", {}).get("source_hidden", False) == folded


def test_all_scales_are_there():
    assert {"smoke", "laptop", "gpu", "paper", "paper-24gb"} == {path.stem for path in SCALES}


@pytest.mark.parametrize("path", SCALES, ids=lambda path: path.stem)
def test_scale_gives_a_valid_recipe(path):
    values = yaml.safe_load(path.read_text())
    Recipe(**values.get("recipe", {}))


@pytest.mark.parametrize("path", SCALES, ids=lambda path: path.stem)
def test_scale_sets_only_what_notebooks_take(path):
    names = set(yaml.safe_load(path.read_text()))
    for notebook in NOTEBOOKS:
        source = parameters(notebook)[0].source
        assert not {
            name for name in names if f"{name} =" not in source and f"{name}:" not in source
        }, notebook.name


@pytest.mark.parametrize("path", BASES, ids=lambda path: path.stem)
def test_base_recipe_is_valid_and_named_as_its_file(path):
    assert BaseRecipe.load(path).name == path.stem
