"""The structure of the two packages: imports run in one direction and without circles, everything
public has a docstring.

`python tests/style/report.py` prints their sizes.
"""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
from report import (
    APPARATUS,
    LIBRARY,
    ROOT,
    circles,
    fragments,
    imported,
    modules,
    name_of,
    public,
    tree,
)

ORDER = """
__init__ errors files places locks words
settings stages
collections
tokens
masking losses
models
training
objectives retrieval
materials evaluation
lab
dr_book
"""
LEVEL = {
    name: level for level, names in enumerate(ORDER.strip().splitlines()) for name in names.split()
}
TEXT = {".py", ".md", ".yml", ".yaml", ".ipynb", ".css", ".bib", ".toml", ".json", ".lock"}


def place(path: Path) -> str:
    """The folder of the library, its top module, or the book's package to which a file belongs."""
    return name_of(path).split("/")[0].removesuffix(".py")


def test_every_folder_has_its_place_in_the_order():
    assert {place(path) for path in modules()} <= LEVEL.keys()


def test_the_order_that_the_library_says_of_itself_is_of_folders_that_are_there():
    words = ast.get_docstring(tree(LIBRARY / "__init__.py")).split("order only:")[1]
    said = re.findall(r"\w+", words)
    assert sorted(said) == sorted(path.parent.name for path in LIBRARY.glob("*/__init__.py"))
    assert [LEVEL[name] for name in said] == sorted(LEVEL[name] for name in said)


def test_commands_that_run_a_notebook_show_progress_and_the_first_is_done_in_minutes():
    practice = sorted((ROOT / "book" / "practice").glob("*.md"))
    pages = [ROOT / "book" / "quickstart.md", *practice]
    commands = [
        re.findall(r"papermill notebooks/(?:[^\n]*\\\n)*[^\n]*", page.read_text("utf-8"))
        for page in pages
    ]
    assert "scales/smoke.yaml" in commands[0][0]
    assert all("--log-output" in command for of_page in commands for command in of_page)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_run_one_way(path):
    above = {
        name_of(target) for target, _ in imported(path) if LEVEL[place(target)] > LEVEL[place(path)]
    }
    assert not above, f"{place(path)} may not import these"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_everything_public_has_a_docstring(path):
    assert len(ast.get_docstring(tree(path)) or "") > 12
    assert not [node.name for node in public(path) if not ast.get_docstring(node)]


VAGUE = {"one", "own", "found", "told", "kept", "given", "said"}


@pytest.mark.parametrize("path", modules(LIBRARY), ids=name_of)
def test_a_variable_is_named_for_the_thing(path):
    named = {node.id for node in ast.walk(tree(path)) if isinstance(node, ast.Name)}
    named |= {node.arg for node in ast.walk(tree(path)) if isinstance(node, ast.arg)}
    assert not named & VAGUE


HOMES = {
    path.stem: f"{package.name}.{path.stem}"
    for package in (APPARATUS, LIBRARY)
    for path in package.iterdir()
    if (path.suffix == ".py" and path.stem[0] != "_") or (path / "__init__.py").is_file()
}
NAMED = re.compile(rf"`(?:dr_lib\.|dr_book\.)?((?:{'|'.join(HOMES)})(?:\.\w+)+)`")
"""A name of one of the packages in a text, such as `collections.load`."""
TEXTS = [
    path
    for folder, kind in (("dr_lib", "py"), ("book", "py"), ("book", "md"), ("notebooks", "ipynb"))
    for path in sorted((ROOT / folder).rglob(f"*.{kind}"))
]


def is_there(name: str) -> bool:
    """Whether a name refers to a module, to something in one, or to a field of that."""
    first, *parts = name.split(".")
    home = import_module(HOMES[first])
    for place, part in enumerate(parts, 1):
        try:
            home = import_module(".".join([HOMES[first], *parts[:place]]))
        except ImportError:
            if not hasattr(home, part):
                return part in getattr(home, "__annotations__", {})
            home = getattr(home, part)
    return True


def test_every_name_that_a_text_gives_is_there():
    """Finds names of renamed or moved functions in docstrings, pages and notebooks."""
    keys = {key.replace("__", ".") for key in import_module("dr_lib.lab.recipe").all_keys()}
    files = {"bib", "ipynb", "json", "md", "py", "yaml"}
    names = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in TEXTS
        for name in NAMED.findall(path.read_text(encoding="utf-8"))
        if name not in keys and name.rpartition(".")[2] not in files
    }
    assert len(names) > 80
    assert not sorted(where for where in names if not is_there(where[1]))


def test_every_member_that_an_api_page_lists_is_there():
    text = "".join(path.read_text(encoding="utf-8") for path in TEXTS if path.suffix == ".md")
    listed = re.findall(r"automodule:: (\S+)\n +:members: (.+)", text)
    names = [(module, name) for module, members in listed for name in members.split(", ")]
    assert names and all(hasattr(import_module(module), name) for module, name in names)


def test_no_files_import_each_other():
    assert circles() == []


def test_no_file_is_a_piece_cut_off_another():
    assert fragments() == []


def test_the_library_knows_nothing_of_the_book():
    assert not [
        name_of(path)
        for path in modules()
        if APPARATUS not in path.parents
        and any(APPARATUS in target.parents for target, _ in imported(path))
    ]


def test_no_room_for_odds_and_ends():
    assert not [
        path for path in modules() if path.stem in ("utils", "util", "helpers", "misc", "common")
    ]


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_modules_that_windows_lacks_are_imported_where_their_lack_is_caught(path):
    nodes = [*ast.walk(tree(path))]
    caught = {part for node in nodes if isinstance(node, ast.Try) for part in node.body}
    imports = [
        node
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in caught
    ]
    names = {one.name for node in imports for one in node.names} | {
        getattr(node, "module", None) for node in imports
    }
    assert not names & {"resource", "fcntl", "pwd", "grp", "termios", "pty", "tty", "syslog"}


def project_files() -> list[Path]:
    """Text files that are part of the project."""
    folders = [
        ROOT / name for name in ("dr_lib", "book", "notebooks", "tests", "benchmarks", ".ci")
    ]
    inside = [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in TEXT or path.name == "run"
    ]
    top = [
        path
        for path in ROOT.iterdir()
        if path.is_file() and (path.suffix in TEXT or path.name == "Makefile")
    ]
    return [
        path
        for path in inside + top
        if path != Path(__file__) and ".ipynb_checkpoints" not in path.parts
    ]


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
    found = [
        name_of_file(path)
        for path in project_files()
        if re.search(pattern, path.read_text(encoding="utf-8"))
    ]
    assert not [name for name in found if name != "tests/book/test_environment.py"]


def test_modules_that_readers_are_told_to_run_can_be_run():
    told = {
        module
        for path in project_files()
        for module in re.findall(r"-m\W+(dr_\w+)", path.read_text(encoding="utf-8"))
    }
    assert told == {"dr_book"} and (ROOT / "book" / "dr_book" / "__main__.py").is_file()


def test_folders_are_removed_by_their_one_writer_and_by_the_cache_alone():
    paths = [path for name in ("dr_lib", "book") for path in (ROOT / name).rglob("*.py")]
    removing = {
        name_of_file(path)
        for path in paths
        if re.search(r"\brmtree\b|\bremovedirs\b|\brm -r", path.read_text(encoding="utf-8"))
    }
    # the last two clear output of the book's build in _build
    allowed = {"dr_lib/files.py", "dr_lib/stages.py"}
    assert removing <= allowed | {"book/_ext/staging.py", "book/_ext/whole_book.py"}


def name_of_file(path: Path) -> str:
    """Path inside the project."""
    return path.relative_to(ROOT).as_posix()
