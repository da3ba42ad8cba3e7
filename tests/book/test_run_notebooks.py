"""Batches of notebooks: each in a separate process, complete outputs or none, failures reported
with their cell.
"""

import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import run_notebooks as batch
from check_pages import ROOT
from run_notebooks import main

from dr_book import STOPPED
from dr_book.measured import recorded_folder
from dr_lib.errors import InputError
from dr_lib.files import read_json

GOOD = ["import os\nprint(scale, word, os.environ['DR_THREADS'])", "import dr_lib"]
BAD = ["x = 1", "raise ValueError('the third bolt is loose')", "x = 2"]


def write_notebook(path, cells: list[str]) -> None:
    notebook = nbformat.v4.new_notebook()
    first = nbformat.v4.new_code_cell(
        'scale = "laptop"\nword = "none"\ncollection = "primer"\nminutes = None',
        metadata={"tags": ["parameters"]},
    )
    notebook.cells = [first, *(nbformat.v4.new_code_cell(source) for source in cells)]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project folder with one scale; logs and results go below it."""
    root = tmp_path / "project"
    (root / "notebooks" / "scales").mkdir(parents=True)
    (root / "notebooks" / "scales" / "smoke.yaml").write_text("scale: smoke\n")
    monkeypatch.setattr(batch.places, "project_root", lambda: root)
    return root


def test_a_batch_keeps_whole_results_and_names_the_failing_cell(project, capsys):
    write_notebook(project / "notebooks" / "simlm" / "good.ipynb", GOOD)
    write_notebook(project / "notebooks" / "simlm" / "bad.ipynb", BAD)
    assert main(["--scale", "smoke", "-p", "word", "bottleneck", "--jobs", "2"]) == 1
    told = capsys.readouterr().out
    assert told.count("simlm/bad.ipynb: FAILED") == 2  # when it fails, and at the end
    assert "cell [4]: ValueError: the third bolt is loose" in told  # papermill adds a cell
    assert "1 of 2 notebooks ran" in told
    results = project / "_build" / "executed" / "simlm"
    assert [path.name for path in results.iterdir()] == ["good.ipynb"]
    cells = read_json(results / "good.ipynb")["cells"]
    printed = [
        out["text"]
        for cell in cells
        for out in cell.get("outputs", [])
        if out["output_type"] == "stream"
    ]
    assert "".join(printed[0]).strip() == "smoke bottleneck 1"
    assert (project / "_build" / "logs" / "simlm" / "bad.log").is_file()


def test_notebooks_share_nothing_but_what_was_imported(project, capsys):
    mark = "import os, dr_lib\ndr_lib.mark = os.environ['MARK'] = 'seen'"
    shown = (
        "hasattr(dr_lib, 'mark'), 'MARK' in os.environ, multiprocessing.get_start_method(), 'torch'"
        " in sys.modules, os.getcwd()"
    )
    look = f"import multiprocessing, os, sys, dr_lib\nprint({shown})"
    for name, cell in (("a", mark), ("b", look)):
        write_notebook(project / "notebooks" / f"{name}.ipynb", [cell])
    assert main(["--scale", "smoke", "--jobs", "1"]) == 0
    cells = read_json(project / "_build" / "executed" / "b.ipynb")["cells"]
    (printed,) = ["".join(out["text"]).split() for cell in cells for out in cell.get("outputs", [])]
    assert printed == [
        "False",
        "False",
        multiprocessing.get_context().get_start_method(),
        str(sys.platform == "linux"),
        str(project),
    ]


def test_kernels_of_several_threads_import_by_themselves_and_end(project, capsys):
    """Forked while threads are running, they would wait for ever."""
    load = "import sys\nwas = 'torch' in sys.modules\nimport torch\ntorch.set_num_threads(2)"
    write_notebook(
        project / "notebooks" / "a.ipynb",
        [load, "x = torch.ones(700, 700)\nprint(was, int((x @ x)[0, 0]))"],
    )
    assert main(["--scale", "smoke", "--jobs", "1", "--threads", "2"]) == 0
    cells = read_json(project / "_build" / "executed" / "a.ipynb")["cells"]
    assert [out["text"] for cell in cells for out in cell.get("outputs", [])] in (
        ["False 700\n"],
        [["False 700\n"]],
    )


EXT = str(Path(batch.__file__).parent)
PREPARED = """
import sys
from pathlib import Path
from dr_lib import places
places.project_root = lambda: Path(sys.argv[1])
sys.path.insert(0, EXT)
import prepared
from dr_book import measured
from dr_lib.lab import records
from dr_lib.stages import names_in
print(names_in.cache_info().currsize > 50, records._loaded.cache_info().currsize,
      measured.by_configuration.kept.cache_info().currsize)
"""


def test_what_kernels_share_is_prepared_and_a_broken_record_ends_nothing(tmp_path):
    """An error in the preparing process would end all kernels; each page reports unreadable
    records itself.
    """
    few = sorted(recorded_folder("laptop").glob("cdmae-*.jsonl.xz"))  # all take half a minute
    printed = []
    for name in ("whole", "broken"):
        folder = tmp_path / name / "book" / "records" / "laptop"
        folder.mkdir(parents=True)
        for path in few:
            shutil.copy(path, folder)
        if name == "broken":
            (folder / "broken.jsonl.xz").write_text("{")
        done = subprocess.run(
            [sys.executable, "-c", PREPARED.replace("EXT", repr(EXT)), tmp_path / name],
            capture_output=True,
            text=True,
            check=True,
        )
        printed.append(done.stdout.split())
    assert printed == [["True", f"{len(few)}", "1"], ["True", f"{len(few) + 1}", "1"]]


def test_a_kernel_that_dies_is_a_failed_notebook(project, capsys):
    write_notebook(
        project / "notebooks" / "dies.ipynb",
        ["import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"],
    )
    assert main(["--scale", "smoke"]) == 1
    assert "dies.ipynb: FAILED" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked under Linux only")
def test_a_process_that_ended_well_is_never_taken_for_a_failed_one():
    """Without turns, every sixth of these has status 255."""
    context, under_way = multiprocessing.get_context("forkserver"), set()
    processes = [context.Process(target=os.getpid) for _ in range(60)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(partial(batch.run_process, under_way=under_way), processes))
    assert {one.exitcode for one in processes} == {0}
    assert not under_way


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked under Linux only")
def test_a_kernel_ends_with_its_papermill(project, wait_for):
    """A killed run leaves no kernel that continues training or waits for ever."""
    pid = project / "pid"
    write_notebook(
        project / "notebooks" / "long.ipynb",
        [f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"],
    )
    values, log = {"scale": "smoke"}, project / "log"
    context = batch.forking({})
    target = project / "notebooks" / "long.ipynb", project / "out.ipynb", values, {}, project, log
    papermill = context.Process(target=batch.execute, args=target)
    papermill.start()
    wait_for(lambda: pid.exists() and pid.read_text())
    papermill.kill()
    kernel = Path("/proc", pid.read_text())
    wait_for(lambda: not kernel.exists() or "(zombie)" in (kernel / "status").read_text())


def test_an_unknown_scale_or_notebook_is_refused(project):
    with pytest.raises(InputError, match=r"no scale 'huge'.*smoke"):
        batch.places.find_scale("huge")
    with pytest.raises(InputError, match="no such notebook"):
        batch.find_notebooks([project / "missing.ipynb"])
    with pytest.raises(InputError, match="no notebook here"):
        batch.find_notebooks([])


def test_notebooks_are_found_once_and_in_order(project):
    for name in ("b", "a"):
        write_notebook(project / "notebooks" / f"{name}.ipynb", [])
    folder = project / "notebooks"
    assert [path.stem for path in batch.find_notebooks([folder, folder / "a.ipynb"])] == ["a", "b"]


def test_two_notebooks_of_one_name_elsewhere_are_refused(project):
    for folder in ("a", "b"):
        write_notebook(project / folder / "mine.ipynb", [])
        write_notebook(project / "notebooks" / folder / "table.ipynb", [])
    assert len(batch.find_notebooks([project / "notebooks"])) == 2, "these keep their folders"
    with pytest.raises(InputError, match=r"mine.ipynb: several notebooks would write one result"):
        batch.find_notebooks([project / "a", project / "b"])


def run(project, capsys, *options: str) -> str:
    """Run the only notebook; returns `ran` or `unchanged`."""
    assert main(["--scale", "smoke", "--jobs", "1", *options]) == 0
    return "unchanged" if "0 of 1 notebooks ran" in capsys.readouterr().out else "ran"


class Copy:
    """Replaces a process: copies the notebook."""

    exitcode = 0

    def __init__(self, target, args) -> None:
        self.start = lambda: shutil.copy(*args[:2])


@pytest.fixture
def once(project, monkeypatch, capsys):
    """A notebook that has run once, on a collection in a folder; papermill is replaced by a
    copy.
    """
    files = {"texts/a.txt": "a", "dr_lib/a.py": '"""Doc."""\nx = 1\n', "book/papers/p.yaml": "x: 1"}
    files |= {"notebooks/scales/laptop.yaml": "x: 1", "book/dr_book/page.html": "<b>x = 1</b>"}
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    monkeypatch.chdir(project)
    monkeypatch.setattr(batch, "run_process", lambda process, _: process.start())
    monkeypatch.setattr(
        batch.multiprocessing, "get_context", lambda _: SimpleNamespace(Process=Copy)
    )
    monkeypatch.setattr(
        batch, "forking", lambda *_: batch.multiprocessing.get_context("forkserver")
    )
    write_notebook(project / "notebooks" / "one.ipynb", GOOD)
    assert run(project, capsys, "-p", "collection", "texts") == "ran"
    assert run(project, capsys, "-p", "collection", "texts") == "unchanged"
    return project


BEHIND = ["notebooks/one.ipynb", "dr_lib/a.py", "texts/a.txt", "book/papers/p.yaml"]
BEHIND += ["notebooks/scales/smoke.yaml", "notebooks/scales/laptop.yaml", "book/dr_book/page.html"]


@pytest.mark.parametrize("name", BEHIND)
def test_a_notebook_is_run_again_where_anything_behind_it_changed(once, capsys, name):
    text = (once / name).read_text()
    (once / name).write_text(
        text.replace("x = 1", "x = 2").replace("word", "term")
        + "\nb: 2" * name.endswith(("yaml", "txt"))
    )
    assert run(once, capsys, "-p", "collection", "texts") == "ran"
    assert run(once, capsys, "-p", "collection", "texts") == "unchanged"


def test_a_changed_comment_or_docstring_runs_nothing(once, capsys):
    (once / "dr_lib" / "a.py").write_text('"""Another."""\n\n# why\nx = 1\n')
    assert run(once, capsys, "-p", "collection", "texts") == "unchanged"


def test_another_parameter_runs_again_and_a_time_budget_always(once, capsys):
    options = ("-p", "collection", "texts", "-p", "word", "another")
    assert run(once, capsys, *options) == "ran"
    assert run(once, capsys, *options) == "unchanged"
    assert run(once, capsys, *options, "-p", "minutes", "5") == "ran"
    assert run(once, capsys, *options, "-p", "minutes", "5") == "ran"


@pytest.mark.parametrize(
    "value", ["{base: model}", "{auxiliary: {questions: {model: model}}}", "[one, model]", "model"]
)
def test_a_folder_that_any_parameter_names_counts_by_its_content(once, capsys, value):
    (once / "model").mkdir()
    (once / "model" / "weights").write_text("1")
    options = ("-p", "collection", "texts", "-p", "word", value)
    assert [run(once, capsys, *options) for _ in range(2)] == ["ran", "unchanged"]
    (once / "model" / "weights").write_text("2")
    assert [run(once, capsys, *options) for _ in range(2)] == ["ran", "unchanged"]


def test_a_folder_that_a_notebook_names_itself_counts_by_its_content(once, capsys):
    (once / "none").mkdir()  # the value that the notebook gives its parameter
    options = ("-p", "collection", "texts")
    assert [run(once, capsys, *options) for _ in range(2)] == ["ran", "unchanged"]
    (once / "none" / "pairs").write_text("1")
    assert [run(once, capsys, *options) for _ in range(2)] == ["ran", "unchanged"]


def test_what_a_notebook_writes_is_not_what_it_depends_on(tmp_path):
    (tmp_path / "out").mkdir()
    given = {"export_to": str(tmp_path / "out")}
    before = batch.inputs_digest(given, 1)
    (tmp_path / "out" / "model").write_text("1")
    assert batch.inputs_digest(given, 1) == before
    given = {"systems": [str(tmp_path / "out")], "export_to": None}
    before = batch.inputs_digest(given, 1)
    (tmp_path / "out" / "model").write_text("2")
    assert batch.inputs_digest(given, 1) != before


def test_a_result_that_is_gone_is_made_again(once, capsys):
    (once / "_build" / "executed" / "one.ipynb").unlink()
    assert run(once, capsys, "-p", "collection", "texts") == "ran"


def test_a_collection_that_cannot_be_opened_is_refused_before_a_kernel_starts(project, capsys):
    write_notebook(project / "notebooks" / "simlm" / "good.ipynb", GOOD)
    (project / "mine.jsonl").write_text('{"text": "a"}\n{')
    assert main(["-p", "collection", str(project / "mine.jsonl")]) == 1
    told, said = capsys.readouterr()
    assert told == "" and "mine.jsonl line 2: not a JSON object" in said and said.count("\n") == 1
    assert not (project / "_build").exists()


def test_a_parameter_that_no_notebook_has_is_refused(project):
    write_notebook(project / "notebooks" / "one.ipynb", [])
    with pytest.raises(
        InputError,
        match=r"no notebook has a parameter 'wrod'\. Known here: collection, minutes, scale, word",
    ):
        batch.run_notebooks(scale="smoke", parameters={"wrod": "x"})
    for name in ("pretraining.steps", "pretraining__steps"):
        notebooks = [ROOT / "notebooks" / "simlm" / "fig3_steps.ipynb"]
        fix = re.escape('give -p recipe "{pretraining: {steps: ...}}".')
        with pytest.raises(InputError, match=rf"no notebook has a parameter '{name}'\. .*{fix}"):
            batch.check_parameters(notebooks, [name])
    (project / "own.yaml").write_text("wrod: x\n")
    with pytest.raises(InputError, match="no notebook has a parameter 'wrod'"):
        batch.run_notebooks(scale=str(project / "own.yaml"))


def test_a_file_that_is_no_notebook_is_named(project, capsys):
    (project / "notebooks").mkdir(exist_ok=True)
    (project / "notebooks" / "one.ipynb").write_text("{}")
    assert main([str(project / "notebooks" / "one.ipynb")]) == 1
    assert capsys.readouterr().err.endswith(
        "one.ipynb: is not a notebook. Give a file that Jupyter has saved.\n"
    )


def test_bars_are_cleared_and_everything_else_is_kept():
    def stream(name: str, text: str) -> dict:
        return {"output_type": "stream", "name": name, "text": text}

    bars = "Tokens: 100%|####| 40/40 [00:01<00:00, 40.0it/s]\nWords: 12 words [00:01]\n"
    shown, done = {"output_type": "display_data", "data": {}}, stream("stdout", "done\n")
    cell = {
        "cell_type": "code",
        "outputs": [
            stream("stderr", bars + "A warning: 3 of 40 |x|\n"),
            shown,
            stream("stderr", bars),
            done,
        ],
    }
    (cleared,) = batch.without_bars({"cells": [cell]})["cells"]
    assert cleared["outputs"] == [stream("stderr", "A warning: 3 of 40 |x|\n"), shown, done]


@pytest.mark.parametrize(
    ("script", "imports", "ends"),
    [
        ("run_notebooks.py", "dr_lib.lab", (130, [STOPPED])),
        # in the background of a shell, which makes it ignore the signal
        ("generated_pages.py", "claims_glance", (-signal.SIGINT, [])),
    ],
)
def test_ctrl_c_ends_both_parts_of_a_build_while_they_import(script, imports, ends):
    path = Path(batch.__file__).with_name(script)
    stopped = f"""
import os, runpy, signal, sys
ignored = {script == "generated_pages.py"}
signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)

class Finder:
    def find_spec(self, name, *_):
        if name == "{imports}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.path.insert(0, "{path.parent}")
runpy.run_path("{path}", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", stopped], capture_output=True, text=True)
    assert (done.returncode, done.stderr.splitlines()) == ends
