"""How the code reads: sizes, docstrings, annotations, direction of imports, words and addresses that have no place."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "dr_lib"
MODULES = sorted(path for path in LIBRARY.rglob("*.py"))
ORDER = (
    ("errors", "files", "places"), ("settings", "stages"), ("collections",), ("tokens",), ("masking", "losses"),
    ("models",), ("training",), ("pairs",), ("objectives", "retrieval"), ("materials", "evaluation"), ("lab",),
    ("report",), ("__main__",),
)  # fmt: skip
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
LONGEST_FILE, LONGEST_FUNCTION = 300, 60
TEXT = {".py", ".md", ".yml", ".yaml", ".ipynb", ".css", ".bib", ".toml", ".json", ".lock"}


def name_of(path: Path) -> str:
    """Path inside the project, for test ids."""
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods of a file."""
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def public(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Public functions, classes, and methods of public classes; overrides of dunder methods are not asked for."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [node for node in tree(path).body if isinstance(node, kinds) and not node.name.startswith("_")]
    inner = [part for node in found if isinstance(node, ast.ClassDef) for part in node.body if isinstance(part, kinds)]
    return found + [node for node in inner if not node.name.startswith("_")]


def imported(path: Path) -> set[str]:
    """Folders and top modules of the library that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dr_lib":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("dr_lib.")}
    return found & LEVEL.keys()


def project_files() -> list[Path]:
    """Text files that are part of the project."""
    folders = [ROOT / name for name in ("dr_lib", "book", "notebooks", "tests", "benchmarks")]
    inside = [path for folder in folders for path in folder.rglob("*") if path.suffix in TEXT]
    top = [path for path in ROOT.iterdir() if path.is_file() and (path.suffix in TEXT or path.name == "Makefile")]
    return [
        path for path in inside + top if path != Path(__file__).resolve() and ".ipynb_checkpoints" not in path.parts
    ]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_file_is_short_and_says_what_it_is(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST_FILE
    assert len(ast.get_docstring(tree(path)) or "") > 12


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_functions_are_short(path):
    long = {node.name: node.end_lineno - node.lineno + 1 for node in functions(path)}
    docs = {node.name: len((ast.get_docstring(node) or "").splitlines()) for node in functions(path)}
    assert not {name: lines for name, lines in long.items() if lines - docs[name] > LONGEST_FUNCTION}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_everything_public_has_a_docstring(path):
    assert not [node.name for node in public(path) if not ast.get_docstring(node)]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_public_functions_are_annotated(path):
    bare = []
    for node in public(path):
        if isinstance(node, ast.ClassDef):
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        missing = [one.arg for one in arguments if one.annotation is None and one.arg not in ("self", "cls")]
        bare += [f"{node.name}: {', '.join(missing)}"] if missing else []
    assert not bare


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_run_one_way(path):
    own = path.relative_to(LIBRARY).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    assert not {name for name in imported(path) if LEVEL[name] > LEVEL[own]}, f"{own} may not import these"


def test_no_room_for_odds_and_ends():
    assert not [path for path in MODULES if path.stem in ("utils", "util", "helpers", "misc", "common")]


@pytest.mark.parametrize(
    "pattern",
    [
        r"\b(?:TODO|FIXME|XXX|HACK)\b",
        r"\bpickle\.(?:load|dump)|import pickle|torch\.load\(|trust_remote_code\s*=\s*True",
        r"(?<![\w.])/(?:root|home|work|mnt|Users)/\w",
        r"pypi\.org|pythonhosted|index-url",
    ],
)
def test_words_that_have_no_place(pattern):
    found = [name_of(path) for path in project_files() if re.search(pattern, path.read_text(encoding="utf-8"))]
    assert not [name for name in found if name != "tests/book/test_environment.py"]
