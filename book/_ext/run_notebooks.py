"""Run notebooks through papermill: separate processes for each, several in parallel, complete
outputs or none::

    python book/_ext/run_notebooks.py [NOTEBOOKS] [--scale NAME] [-p NAME VALUE] [--cluster WHERE]

Unchanged notebooks are not run again: an executed notebook contains the digest of everything it
depends on.

Page of the book: practice/ci-batches. Every notebook has its own log; a failing one is reported
with its cell and error, the others still run, and the exit status says so.
"""

import argparse
import ast
import atexit
import gc
import logging
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from importlib.metadata import distributions
from multiprocessing import connection, forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tqdm import tqdm

from dr_book import STOPPED, one_line_if_stopped
from dr_book.commands import Parser, count, parameters

with one_line_if_stopped():
    from dr_lib import places
    from dr_lib.errors import InputError, visible
    from dr_lib.files import (
        file_digest,
        folder_digest,
        json_digest,
        read_json,
        read_yaml,
        write_json,
    )
    from dr_lib.lab import Recipe, open_collection
    from dr_lib.settings import assigned_in, in_recipe
    from dr_lib.stages import drop_docstrings, spell_seconds
    from dr_lib.training import machine

# Half of a small notebook's time is the import of torch and transformers. On Linux one process
# imports them, and kernels are forked from it. If forking it is not safe (on other systems, or if
# it has several threads, for which a forked process might wait for ever), every kernel imports them
# by itself.
IMPORTED = [
    "dr_lib.lab",
    "dr_book.comparison",
    "dr_book.own_corpus",
    "matplotlib.pyplot",
    "papermill",
    "ipykernel.kernelapp",
    "ipykernel.debugger",
]
# with at least this many notebooks, that process also computes what nearly all of them need, which
# takes five seconds
SEVERAL = 4
BAR = re.compile(r"(%\|.*\||\dit \[|: \d+ \S+ \[)")  # tqdm's, with and without a total


def run_notebooks(
    sources: Sequence[Path] = (),
    *,
    scale: str = "smoke",
    parameters: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    threads: int = 1,
    to: Path | None = None,
) -> int:
    """Execute notebooks and put the results where the book is built from.

    Args:
        sources: notebooks, or folders of them; default: the project's `notebooks`.
        scale: a name in notebooks/scales, or a YAML file, whose keys become parameters.
        parameters: further parameters, which override the scale's.
        jobs: notebooks at a time; default: processor cores divided by `threads`.
        threads: threads of each notebook (`DR_THREADS`).
        to: folder of the executed notebooks, default `_build/executed`; paths below `notebooks` are
            kept.

    Returns:
        0 if every notebook ran, 1 otherwise.

    Raises:
        InputError: there is no notebook or no such scale, none of the notebooks has a parameter, or
            a collection cannot be opened.
    """
    notebooks, settings, parameters = (
        find_notebooks(sources),
        places.find_scale(scale),
        dict(parameters or {}),
    )
    values = read_yaml(settings) | parameters
    # a user's own file is checked too
    check_parameters(notebooks, values if settings.name != f"{scale}.yaml" else parameters)
    if isinstance(place := parameters.get("collection"), str):
        # errors are reported now, not after a kernel has started for each notebook
        open_collection(place)
    target = to or places.project_root() / "_build" / "executed"
    inputs = inputs_digest(values, threads)
    started, failed = time.perf_counter(), []
    under_way: set[BaseProcess] = set()
    unchanged = [
        notebook
        for notebook in notebooks
        if inputs and key_in(target / place_of(notebook)) == key_of(notebook, inputs)
    ]
    due = [notebook for notebook in notebooks if notebook not in unchanged]
    for notebook in unchanged:
        print(f"{place_of(notebook)}: unchanged")
    forked = sys.platform == "linux" and threads == 1 and due
    context = (
        forking(environment(threads), len(due)) if forked else multiprocessing.get_context("spawn")
    )
    workers = jobs or max(1, machine.allowed_cores() // threads)
    with (
        ThreadPoolExecutor(workers) as pool,
        tqdm(total=len(due), unit="notebook", disable=not due) as bar,
    ):
        options = values, environment(threads), target, inputs, context, under_way
        runs = [pool.submit(run_notebook, notebook, *options) for notebook in due]
        try:
            for future in as_completed(runs):
                state, line = future.result()
                failed += [line] if state == "failed" else []
                bar.update()
                tqdm.write(line)
        # Ctrl-C or TERM: waiting notebooks do not start; running ones stop, and continue from their
        # stages next time
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in under_way.copy():
                process.terminate()
            raise
    total = spell_seconds(time.perf_counter() - started)
    print(
        f"{len(due) - len(failed)} of {len(notebooks)} notebooks ran in {total} ({len(unchanged)}"
        f" unchanged), results in {target}"
    )
    print(*failed, sep="\n", end="\n" if failed else "")  # again, where a long batch ends
    return 1 if failed else 0


def find_notebooks(sources: Sequence[Path]) -> list[Path]:
    """Named notebooks and those in folders, each once, in order; in a folder, notebooks come before
    those in subfolders.

    So the last ones to start are short, and no core is idle for long at the end.
    """
    found: dict[Path, None] = {}
    for source in sources or [places.project_root() / "notebooks"]:
        if not source.exists():
            raise InputError("no such notebook or folder", where=source, fix="Check the path.")
        inside = (
            sorted(source.rglob("*.ipynb"), key=lambda path: (path.parent != source, path))
            if source.is_dir()
            else [source]
        )
        found |= dict.fromkeys(
            path.resolve() for path in inside if ".ipynb_checkpoints" not in path.parts
        )
    if not found:
        raise InputError(
            "no notebook here", where=", ".join(map(str, sources)), fix="Name a notebook."
        )
    places_of_results = Counter(map(place_of, found))
    if twice := [name for name, count in places_of_results.items() if count > 1]:
        fix = "Run them one after the other, each with its own --to, or rename one."
        raise InputError("several notebooks would write one result", where=twice[0], fix=fix)
    return list(found)


def check_parameters(notebooks: Sequence[Path], names: Iterable[str]) -> None:
    """Refuse a parameter that none of the notebooks has: it would silently have no effect."""
    contents = {notebook: read_json(notebook) for notebook in notebooks}
    if broken := [
        notebook
        for notebook, content in contents.items()
        if not (isinstance(content, dict) and "cells" in content)
    ]:
        raise InputError(
            "is not a notebook", where=broken[0], fix="Give a file that Jupyter has saved."
        )
    known = set().union(*map(parameters_of, contents.values()))
    for name in names:
        if name not in known:
            fix = f"Known here: {', '.join(sorted(known))}."
            if "recipe" in known and re.split(r"\.|__", name)[0] in Recipe.model_fields:
                fix = f'It is a key of the recipe: give -p recipe "{in_recipe(name)}".'
            raise InputError(f"no notebook has a parameter {name!r}", where="parameters", fix=fix)


def parameters_of(content: Mapping[str, Any]) -> set[str]:
    """The names of a notebook's parameters."""
    tagged = (one for one in content["cells"] if "parameters" in one["metadata"].get("tags", []))
    return set().union(*(assigned_in("".join(cell["source"])) for cell in tagged))


def run_notebook(
    notebook: Path,
    values: Mapping[str, Any],
    variables: Mapping[str, str],
    target: Path,
    inputs: str | None,
    context: Any,
    under_way: set[BaseProcess],
) -> tuple[str, str]:
    """Execute one notebook in separate processes; its result appears under `target` only if all
    cells ran.

    Returns:
        "ran" or "failed", and a line on it. An executed notebook contains the key of everything it
        depends on; the partial result of a failed one is beside its log.
    """
    name = place_of(notebook)
    result = target / name
    log = places.project_root() / "_build" / "logs" / name.with_suffix(".log")
    key = key_of(notebook, inputs) if inputs else None
    known = parameters_of(read_json(notebook))  # it refuses any other
    values = {parameter: value for parameter, value in values.items() if parameter in known}
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="notebook-") as draft:
        output = Path(draft) / notebook.name
        one = context.Process(
            target=execute, args=(notebook, output, values, variables, places.project_root(), log)
        )
        run_process(one, under_way)
        seconds = spell_seconds(time.perf_counter() - started)
        if one.exitcode:
            if output.exists():
                shutil.copyfile(output, log.with_suffix(".failed.ipynb"))
            last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] or [
                "no output"
            ]
            return (
                "failed",
                (
                    f"{name}: FAILED after {seconds} with status {one.exitcode}, {last[0]} (log:"
                    f" {log})"
                ),
            )
        content = without_bars(read_json(output))
        content["metadata"] |= {"execution_key": key} if key else {}
        write_json(result, content)
    return "ran", f"{name}: {seconds}"


PROCESSES = threading.Lock()


def run_process(process: BaseProcess, under_way: set[BaseProcess]) -> None:
    """Start a process and wait for its end; it is in `under_way` meanwhile.

    To start a process, multiprocessing also reads the status of those that have ended. A status can
    be read once, and where two threads try, the second one replaces it by 255: so only one does at
    a time.
    """
    with PROCESSES:
        process.start()
    under_way.add(process)
    connection.wait([process.sentinel])
    with PROCESSES:
        process.join()
    under_way.discard(process)


def forking(variables: Mapping[str, str], number: int = 1) -> Any:
    """The context of this many processes, forked from one with `IMPORTED` in memory and these
    environment variables.
    """
    context, before = multiprocessing.get_context("forkserver"), dict(os.environ)
    context.set_forkserver_preload([*IMPORTED, *["prepared"] * (number >= SEVERAL)])
    os.environ.update(variables)  # libraries read the number of threads when imported
    forkserver.ensure_running()
    os.environ.clear()
    os.environ.update(before)
    return context


def execute(
    notebook: Path,
    output: Path,
    values: Mapping[str, Any],
    variables: Mapping[str, str],
    folder: Path,
    log: Path,
) -> None:
    """Run papermill on one notebook, in a separate process; its output goes to the log."""
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(variables)
    os.chdir(folder)
    if multiprocessing.current_process().name.startswith("ForkServer"):
        fork_kernel()
    import papermill  # after the fork: the kernel must not inherit its event loop or sockets

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        papermill.execute_notebook(
            notebook,
            output,
            dict(values),
            kernel_name="python3",
            language="python",
            progress_bar=False,
            log_output=True,
            coalesce_streams=True,  # only the last state of a bar is kept
            # one file at the end, also after a cell's error, not one before and after each cell
            request_save_on_cell_execute=False,
        )
    except papermill.PapermillExecutionError as error:  # the batch reports its last line
        sys.exit(f"cell [{error.exec_count}]: {error.ename}: {' '.join(error.evalue.split())}")


def fork_kernel() -> None:
    """Fork the notebook's kernel from this process, and register a provisioner that hands it to
    jupyter_client instead of starting one.
    """
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        # the libraries' objects are permanent: collecting garbage among them would also copy memory
        # pages
        gc.freeze()
        os.close(writes)
        os.setsid()  # Ctrl-C is for papermill, which ends its kernel
        # processes that a notebook starts begin as in any kernel
        multiprocessing.set_start_method(None, force=True)
        with os.fdopen(reads) as pipe:
            options = pipe.read().split("\0")
        status = 1
        try:
            from ipykernel.kernelapp import IPKernelApp

            if options[0] == "-f":  # otherwise papermill ended before it needed a kernel
                IPKernelApp.launch_instance(
                    [*options, f"--IPKernelApp.parent_handle={os.getppid()}"]
                )
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            atexit._run_exitfuncs()
            os._exit(status)
    os.close(reads)

    # after the fork: nothing of it may be in the kernel
    from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

    class ForkedProvisioner(LocalProvisioner):
        """Tells the waiting kernel where its connection file is."""

        async def launch_kernel(self, cmd: list[str], **options: Any) -> dict[str, Any]:
            with os.fdopen(writes, "w") as pipe:
                pipe.write("\0".join(cmd[cmd.index("-f") :]))
            # it leads its own session, and hence its own process group
            self.process, self.pid, self.pgid = Forked(pid), pid, pid
            self.cwd = options.get("cwd", Path.cwd())
            return self.connection_info

    factory = KernelProvisionerFactory.instance()
    factory.provisioners["forked"] = SimpleNamespace(name="forked", load=lambda: ForkedProvisioner)
    factory.default_provisioner_name = "forked"


class Forked:
    """A forked process with the part of `subprocess.Popen`'s interface that jupyter_client uses."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def poll(self, options: int = os.WNOHANG) -> int | None:
        """The exit status, None while it runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self) -> int | None:
        """The exit status, once it has one."""
        return self.poll(0)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def without_bars(notebook: dict[str, Any]) -> dict[str, Any]:
    """An executed notebook without finished progress bars: a bar is redrawn hundreds of times, each
    time as an output.
    """
    for cell in notebook["cells"]:
        for output in [one for one in cell.get("outputs", []) if one["output_type"] == "stream"]:
            lines = "".join(output["text"]).split("\n")
            output["text"] = "\n".join(line for line in lines if not BAR.search(line)).lstrip("\n")
        if "outputs" in cell:
            cell["outputs"] = [
                one
                for one in cell["outputs"]
                if one["output_type"] != "stream" or one["text"].strip()
            ]
    return notebook


# A notebook is run again only if something that its result depends on has changed. ----------------

SHOWN = ("book/papers", "book/records", "book/weights", "notebooks/scales")
"""What notebooks show or start from; a change of the scales makes records those of an older recipe.
"""


def key_of(notebook: Path, inputs: str) -> str:
    """The key of a notebook and of everything else that its result depends on; folders and files
    named by its own parameters count by content.
    """
    texts = [
        part.value
        for cell in read_json(notebook)["cells"]
        if "parameters" in cell["metadata"].get("tags", [])
        for part in ast.walk(ast.parse("".join(cell["source"])))
        if isinstance(part, ast.Constant)
    ]
    return json_digest([file_digest(notebook), inputs, contents_of(texts)])


def key_in(result: Path) -> str | None:
    """The key in an executed notebook; None if there is none."""
    return read_json(result)["metadata"].get("execution_key") if result.is_file() else None


def inputs_digest(values: Mapping[str, Any], threads: int) -> str | None:
    """Digest of everything that an executed notebook depends on besides itself; None if it has to
    run again in any case.

    That is: its parameters and the content of every folder or file that they name, the code of both
    packages, what it shows of the book, the installed packages. A run with a time budget is never
    final: the next continues where it stopped.
    """
    root = places.project_root()
    if values.get("minutes"):
        return None
    code = {
        path.relative_to(root).as_posix(): (
            code_of(path) if path.suffix == ".py" else file_digest(path)
        )
        for package in (root / "dr_lib", root / "book" / "dr_book")
        for path in sorted(package.rglob("*.*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    folders = [folder_digest(root / name) for name in SHOWN if (root / name).exists()]
    read = {name: value for name, value in values.items() if name not in WRITTEN}
    packages = sorted({f"{one.name}=={one.version}" for one in distributions()})
    device = {name: os.environ.get(name) for name in ("DR_DATA", "DR_DEVICE")}
    given = contents_of(read)
    return json_digest([values, threads, code, folders, packages, sys.version, device, given])


WRITTEN = ("export_to",)
"""Parameters that name outputs of a notebook."""


def contents_of(value: Any) -> dict[str, str]:
    """The digest of every file and folder named by a value, or in lists and mappings inside it: a
    collection, an encoder, a base model, a file of pairs.
    """
    if isinstance(value, Mapping | list | tuple):
        parts = value.values() if isinstance(value, Mapping) else value
        return {name: digest for part in parts for name, digest in contents_of(part).items()}
    if isinstance(value, str) and value.strip() and (place := places.find_data(value)):
        return {value: folder_digest(place)}
    return {}


def code_of(path: Path) -> str:
    """A module without comments, docstrings and layout, which cannot change a result."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    drop_docstrings(tree)
    return ast.dump(tree)


def place_of(notebook: Path) -> Path:
    """A notebook's path below `notebooks`, or its bare name if it is elsewhere."""
    root = places.project_root() / "notebooks"
    return notebook.relative_to(root) if notebook.is_relative_to(root) else Path(notebook.name)


def environment(threads: int) -> dict[str, str]:
    """Environment variables: threads, no hidden parallelism, this checkout first on the path."""
    # this folder too: a process that starts without it on its path imports `prepared`
    first = [str(places.project_root()), str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
    path = os.pathsep.join(filter(None, first))
    quiet = {"TOKENIZERS_PARALLELISM": "false", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    return {
        **os.environ,
        "DR_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": path,
        **quiet,
    }


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = Parser(prog="run_notebooks.py", description=__doc__.splitlines()[0])
    add = made.add_argument
    add("notebooks", nargs="*", type=Path, help="notebooks or folders (default: notebooks/)")
    add(
        "--scale",
        default="smoke",
        help="a name in notebooks/scales, or a YAML file (default: smoke)",
    )
    add("-p", "--parameter", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    add("--jobs", type=count, help="notebooks at a time (default: cores / threads per notebook)")
    add("--threads", type=count, default=1, help="threads per notebook (default: 1)")
    add(
        "--cluster",
        help="address of a Dask scheduler, or a number of workers to start: they build the stages",
    )
    add("--to", type=Path, help="folder for the executed notebooks (default: _build/executed)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them; return 0, or 1 if one failed or after one clear line on stderr."""
    options = parser().parse_args(arguments)
    # in a log each bar gets a line per minute; a terminal shows ten per second
    if not sys.stderr.isatty():
        for name in ("TQDM_MININTERVAL", "TQDM_MAXINTERVAL"):
            os.environ.setdefault(name, "60")
    # also ends running notebooks, which the default action would not
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = {name: getattr(options, name) for name in ("scale", "jobs", "threads", "to")}
    try:
        with ExitStack() as stack:
            if options.cluster:
                from dr_lib.lab import Cluster

                os.environ["DR_CLUSTER"] = stack.enter_context(Cluster(options.cluster)).address
            values = parameters(options.parameter)
            return run_notebooks(options.notebooks, parameters=values, **given)
    except InputError as error:
        print(f"error: {visible(str(error))}", file=sys.stderr)
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
