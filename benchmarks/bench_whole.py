"""Waiting times of users: importing the package, and building one notebook at smoke scale.

Importing is compared with importing torch, datasets, and BERT with its tokenizer from transformers,
without which nothing here can run; transformers imports only what is named, and BERT takes half of
the time. The notebook's limit is its share of the ten minutes that all notebooks together may take
at smoke scale on two cores, kernel and figures included; it starts with the collection and an
otherwise empty cache. Both run in separate processes and are timed in processor seconds. If `make
book` has built all notebooks, the seconds of that build are a row too. A row that misses its target
prints its profile; for the whole build, the slowest notebooks.

    python benchmarks/bench_whole.py [--notebook notebooks/simlm/table08_replace_rates.ipynb
    --repeats 3]
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import HOTTEST, Timing, keep, missed, show, start

from dr_lib.files import read_json, read_yaml
from dr_lib.places import project_root, scale_file

LIMIT_IMPORT, LIMIT_NOTEBOOK = 1.25, 1.0
MINUTES, CORES = 10, 2
OURS, LIBRARIES, SHARE = "this project", "torch, datasets, BERT", "its share of ten minutes"
WHOLE = "ten minutes on two cores"
IMPORTS = {
    OURS: "import dr_lib.lab",
    LIBRARIES: "import torch, datasets; from transformers import AutoTokenizer, BertForMaskedLM",
}


def seconds_of(*arguments: str, **variables: str) -> float:
    """Processor seconds of a Python process and of all processes that it starts and waits for."""
    before = sum(os.times()[2:4])
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=project_root(),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(
            f"python {' '.join(arguments)} ended with status"
            f" {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return sum(os.times()[2:4]) - before


def build(notebook: Path, cache: Path) -> float:
    """Seconds of one notebook at smoke scale, with a copy of a cache that contains only the
    collection.
    """
    with tempfile.TemporaryDirectory() as folder:
        own = shutil.copytree(cache, Path(folder) / "cache")
        arguments = [
            "book/_ext/run_notebooks.py",
            str(notebook),
            "--scale",
            "smoke",
            "--jobs",
            "1",
            "--to",
            f"{folder}/out",
        ]
        return seconds_of(*arguments, DR_CACHE=str(own))


def built() -> dict[str, float]:
    """Seconds of each notebook in the last build at smoke scale here, from papermill's metadata;
    empty without a build.
    """
    executed, wanted = project_root() / "_build" / "executed", project_root() / "notebooks"
    places = [executed / path.relative_to(wanted) for path in wanted.rglob("*.ipynb")]
    if not all(place.is_file() for place in places):
        return {}
    runs = {
        place.relative_to(executed).as_posix(): read_json(place)["metadata"].get("papermill", {})
        for place in places
    }
    at_smoke = all(run.get("parameters", {}).get("scale") == "smoke" for run in runs.values())
    return {name: run["duration"] for name, run in runs.items()} if at_smoke else {}


def print_imports() -> None:
    """The modules whose own import takes longest."""
    command = [sys.executable, "-X", "importtime", "-c", IMPORTS[OURS]]
    told = subprocess.run(
        command, cwd=project_root(), capture_output=True, text=True, check=True
    ).stderr
    lines = [
        line.removeprefix("import time:").split("|") for line in told.splitlines() if "|" in line
    ]
    slowest = sorted((int(own), name.strip()) for own, _, name in lines if own.strip().isdecimal())[
        -HOTTEST:
    ]
    for own, name in reversed(slowest):
        print(f"    {own / 1e6:7.3f} s  {name}")


def print_hottest(notebook: Path, cache: Path) -> None:
    """The hottest functions of a notebook's cells, run one after the other in one process."""
    cells = []
    for cell in read_json(project_root() / notebook)["cells"]:
        if cell["cell_type"] == "code":
            cells.append("".join(cell["source"]))
        # as papermill puts them behind this cell
        if "parameters" in cell["metadata"].get("tags", []):
            cells.append(f"globals().update({read_yaml(scale_file('smoke'))!r})")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "cells.py"
        script.write_text("\n\n".join(cells), encoding="utf-8")
        command = [sys.executable, "-m", "cProfile", "-s", "tottime", str(script)]
        environment = {**os.environ, "DR_CACHE": str(cache)}
        told = subprocess.run(
            command, env=environment, cwd=project_root(), capture_output=True, text=True
        )
        table = told.stdout[told.stdout.find("   ncalls") :].splitlines()
        print("\n".join(table[:13]) if told.returncode == 0 else told.stderr[-500:])


def main() -> None:
    """Time both, print the times and keep the comparisons."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--notebook",
        default="notebooks/simlm/table08_replace_rates.ipynb",
        help="empty: only the imports",
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    start(1)
    rounds = [
        {name: seconds_of("-c", code) for name, code in IMPORTS.items()}
        for _ in range(chosen.repeats + 1)
    ]
    # the first fills the disk's cache
    timings = {name: Timing.of([one[name] for one in rounds[1:]]) for name in IMPORTS}
    show("import", timings, LIBRARIES)
    keep(chosen.save, "import dr_lib.lab", LIMIT_IMPORT, timings, OURS, LIBRARIES)
    imported = timings[LIBRARIES].median
    if missed(LIMIT_IMPORT, timings, OURS, LIBRARIES):
        print_imports()
    if notebooks := built():
        seconds = sum(notebooks.values())
        timings = {
            OURS: Timing(seconds, seconds),
            WHOLE: Timing(60 * MINUTES * CORES, 60 * MINUTES * CORES),
        }
        show("all notebooks at smoke scale, as last built here", timings, WHOLE)
        keep(
            chosen.save,
            "all notebooks at smoke scale, as last built",
            LIMIT_NOTEBOOK,
            timings,
            OURS,
            WHOLE,
        )
        if missed(LIMIT_NOTEBOOK, timings, OURS, WHOLE):
            for name in sorted(notebooks, key=notebooks.get, reverse=True)[:HOTTEST]:
                print(f"    {notebooks[name]:7.1f} s  {name}")
    if chosen.notebook:
        notebook = Path(chosen.notebook)
        share = 60 * MINUTES * CORES / len(list((project_root() / "notebooks").rglob("*.ipynb")))
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder) / "cache"
            seconds_of(
                "-c",
                "from dr_lib import collections; collections.load('primer')",
                DR_CACHE=str(cache),
            )
            found = Timing.of([build(notebook, cache) for _ in range(chosen.repeats)])
            timings = {OURS: found, SHARE: Timing(share, share)}
            show(f"{notebook.stem} at smoke scale", timings, SHARE)
            keep(
                chosen.save,
                f"a notebook at smoke scale ({notebook.stem})",
                LIMIT_NOTEBOOK,
                timings,
                OURS,
                SHARE,
                least=imported,
            )
            if missed(LIMIT_NOTEBOOK, timings, OURS, SHARE):
                print_hottest(notebook, cache)


if __name__ == "__main__":
    main()
