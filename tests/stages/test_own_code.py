"""Which modules are the user's own code, whose edits count, and which belong to libraries."""

import importlib
import sys

import pytest

from dr_lib import stages


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """A function that imports a module from a new folder on `sys.path`, with or without installed
    packages in it.
    """

    def load(name: str, installed: bool):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.py").write_text(
            "from math import pi\n\ndef area(radius):\n    return pi * radius**2\n"
        )
        if installed:
            (folder / f"{name}-1.0.dist-info").mkdir()
        monkeypatch.syspath_prepend(folder)
        stages._libraries.cache_clear()
        # the file is younger than this process
        monkeypatch.setattr(stages, "_started", sys.maxsize)
        return importlib.import_module(name)

    yield load
    for name in ("installed_beside", "of_the_reader"):
        sys.modules.pop(name, None)
    stages._libraries.cache_clear()


def test_a_folder_of_installed_packages_on_the_path_holds_libraries(imported):
    module = imported("installed_beside", installed=True)
    assert stages._source(module.__name__) is None


def test_a_module_on_the_path_is_the_readers_own(imported):
    module = imported("of_the_reader", installed=False)
    assert str(stages._source(module.__name__)) == module.__file__


def test_libraries_of_the_environment_are_none_of_the_readers():
    assert [stages._source(name) for name in ("json", "numpy", "torch")] == [None] * 3
    assert stages._source("dr_lib.stages") is not None


@pytest.mark.parametrize("constant", ["LIMIT: int = {}", "LIMIT = 1\nLIMIT += {}"])
def test_a_constant_counts_however_it_is_assigned(constant, tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "_started", sys.maxsize)
    digests = []
    for number in (3, 4):
        name = f"of_the_reader_{number}"
        (tmp_path / f"{name}.py").write_text(
            f"{constant.format(number)}\n\ndef area(radius):\n    return LIMIT * radius\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        module = importlib.import_module(name)
        seen = {}
        stages._follow(name, ("area",), seen)
        digests.append(seen[f"{name}.LIMIT"])
        sys.modules.pop(module.__name__)
    assert digests[0] != digests[1]
