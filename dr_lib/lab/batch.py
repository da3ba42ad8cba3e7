"""Run notebooks through papermill: one operating-system process each, several side by side, whole outputs or none.

Page of the book: practice/ci-batches. Every notebook has its own log; a failing one is named with its cell and error,
the others still run, and the exit status says so.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.stages import spell_seconds


@dataclass(frozen=True)
class Outcome:
    """What became of one notebook: seconds it took, and the error that ended it, if one did."""

    notebook: Path
    seconds: float
    error: str | None


def run_notebooks(
    sources: Sequence[Path] = (),
    *,
    scale: str = "smoke",
    parameters: Mapping[str, str] | None = None,
    jobs: int | None = None,
    threads: int = 1,
    to: Path | None = None,
    progress: bool = True,
) -> int:
    """Execute notebooks and put the results where the book is built from.

    Args:
        sources: notebooks, or folders of them; default the project's `notebooks`.
        scale: a name in notebooks/scales, or a YAML file, whose keys become parameters.
        parameters: further parameters, stronger than the scale's.
        jobs: notebooks at once; default processor cores divided by `threads`.
        threads: threads of each notebook (`DR_THREADS`).
        to: folder of the executed notebooks, default `_build/source/notebooks`; their place below `notebooks` is kept.
        progress: show a bar.

    Returns:
        0 if every notebook ran, 1 otherwise.

    Raises:
        InputError: no notebook found, or no such scale.
    """
    notebooks, settings = find_notebooks(sources), find_scale(scale)
    target = to or places.project_root() / "_build" / "source" / "notebooks"
    jobs = jobs or max(1, usable_cores() // threads)
    started = time.perf_counter()
    outcomes = []
    with ThreadPoolExecutor(jobs) as pool, tqdm(total=len(notebooks), unit="notebook", disable=not progress) as bar:
        waiting = [
            pool.submit(run_notebook, notebook, settings, dict(parameters or {}), threads, target)
            for notebook in notebooks
        ]
        for future in as_completed(waiting):
            outcome = future.result()
            outcomes.append(outcome)
            bar.update()
            tqdm.write(describe(outcome))
    failed = [outcome for outcome in outcomes if outcome.error]
    total = spell_seconds(time.perf_counter() - started)
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} notebooks ran in {total}, results in {target}")
    return 1 if failed else 0


def find_notebooks(sources: Sequence[Path]) -> list[Path]:
    """Notebooks named or found in folders, each once, in order."""
    found: dict[Path, None] = {}
    for source in sources or [places.project_root() / "notebooks"]:
        if not source.exists():
            raise InputError("no such notebook or folder", where=source, fix="Check the path.")
        inside = sorted(source.rglob("*.ipynb")) if source.is_dir() else [source]
        found |= dict.fromkeys(path.resolve() for path in inside if ".ipynb_checkpoints" not in path.parts)
    if not found:
        raise InputError("no notebook here", where=", ".join(map(str, sources)), fix="Name a notebook.")
    return list(found)


def find_scale(scale: str) -> Path:
    """The parameter file of a scale."""
    for path in (Path(scale), places.scale_file(scale)):
        if path.is_file():
            return path.resolve()
    known = ", ".join(places.known_scales())
    raise InputError(f"no scale {scale!r}", where="scale", fix=f"Choose one of {known}, or give a YAML file.")


def run_notebook(
    notebook: Path, settings: Path, parameters: Mapping[str, str], threads: int, target: Path
) -> Outcome:  # fmt: skip
    """Execute one notebook in a process of its own; its result appears under `target` only if all cells ran."""
    result, log = target / place_of(notebook), log_of(notebook)
    result.parent.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="notebook-") as draft:
        output = Path(draft) / notebook.name
        with log.open("w", encoding="utf-8") as file:
            done = subprocess.run(
                papermill_command(notebook, output, settings, parameters),
                stdout=file, stderr=subprocess.STDOUT, cwd=places.project_root(), env=environment(threads),
            )  # fmt: skip
        error = None if done.returncode == 0 else failure(output, log, done.returncode)
        kept = result if error is None else log.with_suffix(".failed.ipynb")
        if output.exists():
            shutil.copyfile(output, kept.with_suffix(".draft"))
            kept.with_suffix(".draft").replace(kept)
    return Outcome(notebook, time.perf_counter() - started, error)


def log_of(notebook: Path) -> Path:
    """The log of a notebook's last execution; a half-executed notebook is kept beside it."""
    return places.project_root() / "_build" / "logs" / place_of(notebook).with_suffix(".log")


def place_of(notebook: Path) -> Path:
    """Where a notebook lies below `notebooks`, or its bare name if it lies elsewhere."""
    root = places.project_root() / "notebooks"
    return notebook.relative_to(root) if notebook.is_relative_to(root) else Path(notebook.name)


def papermill_command(notebook: Path, output: Path, settings: Path, parameters: Mapping[str, str]) -> list[str]:
    """The command that executes a notebook with this interpreter's kernel."""
    given = [part for name, value in parameters.items() for part in ("-p", name, value)]
    command = [sys.executable, "-m", "papermill", str(notebook), str(output), "-f", str(settings), *given]
    return [*command, "--kernel", "python3", "--language", "python", "--no-progress-bar", "--log-output"]


def environment(threads: int) -> dict[str, str]:
    """The process environment: threads, no hidden parallelism, and this checkout first on the path."""
    path = os.pathsep.join(filter(None, [str(places.project_root()), os.environ.get("PYTHONPATH")]))
    number = str(threads)
    own = {"DR_THREADS": number, "OMP_NUM_THREADS": number, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": path}
    return {**os.environ, **own, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def failure(output: Path, log: Path, status: int) -> str:
    """Which cell failed and how, from the half-executed notebook; the end of the log where that says nothing."""
    try:
        cells = json.loads(output.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):
        cells = []
    for cell in cells:
        for shown in cell.get("outputs", []):
            if shown.get("output_type") == "error":
                return f"cell [{cell.get('execution_count')}]: {shown['ename']}: {shown['evalue']}"
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] or ["no output"]
    return f"papermill ended with status {status}: {last[0]}"


def describe(outcome: Outcome) -> str:
    """One line on a notebook that ran or failed."""
    name = place_of(outcome.notebook)
    if outcome.error is None:
        return f"{name}: {spell_seconds(outcome.seconds)}"
    log = log_of(outcome.notebook)
    return f"{name}: FAILED after {spell_seconds(outcome.seconds)}, {outcome.error} (log: {log})"


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
