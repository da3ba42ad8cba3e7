"""Batches of notebooks: each in a process of its own, whole outputs or none, failures named with their cell."""

import nbformat
import pytest

from dr_lib.__main__ import main
from dr_lib.errors import InputError
from dr_lib.files import read_json
from dr_lib.lab import batch

GOOD = ["import os\nprint(scale, word, os.environ['DR_THREADS'])", "import dr_lib"]
BAD = ["x = 1", "raise ValueError('the third bolt is loose')", "x = 2"]


def write_notebook(path, cells: list[str]) -> None:
    notebook = nbformat.v4.new_notebook()
    first = nbformat.v4.new_code_cell('scale = "laptop"\nword = "none"', metadata={"tags": ["parameters"]})
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
    assert main(["batch", "--scale", "smoke", "-p", "word", "bottleneck", "--jobs", "2"]) == 1
    told = capsys.readouterr().out
    assert "simlm/bad.ipynb: FAILED" in told
    assert "cell [4]: ValueError: the third bolt is loose" in told  # papermill adds a cell
    assert "1 of 2 notebooks ran" in told
    results = project / "_build" / "source" / "notebooks" / "simlm"
    assert [path.name for path in results.iterdir()] == ["good.ipynb"]
    cells = read_json(results / "good.ipynb")["cells"]
    printed = [out["text"] for cell in cells for out in cell.get("outputs", []) if out["output_type"] == "stream"]
    assert "".join(printed[0]).strip() == "smoke bottleneck 1"
    assert (project / "_build" / "logs" / "simlm" / "bad.log").is_file()


def test_an_unknown_scale_or_notebook_is_refused(project):
    with pytest.raises(InputError, match=r"no scale 'huge'.*smoke"):
        batch.find_scale("huge")
    with pytest.raises(InputError, match="no such notebook"):
        batch.find_notebooks([project / "missing.ipynb"])
    with pytest.raises(InputError, match="no notebook here"):
        batch.find_notebooks([])


def test_notebooks_are_found_once_and_in_order(project):
    for name in ("b", "a"):
        write_notebook(project / "notebooks" / f"{name}.ipynb", [])
    folder = project / "notebooks"
    assert [path.stem for path in batch.find_notebooks([folder, folder / "a.ipynb"])] == ["a", "b"]
