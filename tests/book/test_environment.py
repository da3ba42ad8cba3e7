"""The lock is exact, and the conda file names the same versions."""

import re

import yaml
from check_pages import ROOT


def pins(lines: list[str]) -> dict[str, str]:
    """Package -> version of `name==version` lines; anything else fails."""
    found = [re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.]+)", line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if not match]
    return {match[1].lower().replace("_", "-"): match[2] for match in found}


def lock() -> dict[str, str]:
    """The pins of requirements.lock."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return pins([line for line in lines if not line.startswith("#")])


def conda() -> tuple[dict[str, str], dict[str, str]]:
    """Pins of environment.yml: those of conda and those of pip."""
    *dependencies, with_pip = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    own = pins([line.replace("=", "==") for line in dependencies if "=" in line])
    return own, pins(with_pip["pip"])


def test_conda_names_the_versions_of_the_lock():
    locked, (own, by_pip) = lock(), conda()
    assert own["faiss-gpu"] == locked.pop("faiss-cpu")
    assert own["numpy"] == locked["numpy"]
    assert by_pip == locked


def test_conda_python_is_one_the_project_supports():
    assert conda()[0]["python"] in ("3.11", "3.12")


def test_make_installs_the_locked_torch_first():
    makefile = (ROOT / "Makefile").read_text()
    torch, everything = f"torch=={lock()['torch']}\n", "-r requirements.lock"
    assert 0 < makefile.index(torch) < makefile.index(everything)


def test_lock_holds_what_builds_the_project():
    assert int(lock()["setuptools"].split(".")[0]) >= 77


def test_no_index_is_named():
    for name in ("requirements.lock", "requirements-bench.lock", "environment.yml", "Makefile", "pyproject.toml"):
        assert not re.search(r"https?://|--index-url|--extra-index|--find-links", (ROOT / name).read_text()), name
