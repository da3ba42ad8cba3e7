"""Tables that train auxiliary models run on a reader's own folder, given by its path, without
DR_DATA, to their last cell.
"""

import re

import nbformat
import papermill
import pytest

from dr_lib import lab
from dr_lib.files import read_yaml
from dr_lib.places import project_root, scale_file

SHORT = {"steps": 2, "checkpoint_every": 2, "log_every": 1}
RECIPE = {
    "pretraining": SHORT,
    "finetuning": SHORT,
    "distillation": SHORT,
    "auxiliary": dict.fromkeys(("questions", "continuations", "cross_encoder"), SHORT),
}
TABLES = {  # the notebook, and its studies with the number of their rows
    "simlm/table06_stages": {"simlm/table06": 4},
    "pair/table03_ablations": {"pair/table03": 6, "pair/alpha": 4},
    "master/table06_tasks": {"master/table06": 2, "master/table06-second": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_table_runs_on_a_folder_by_its_path(name, tmp_path, monkeypatch, beir_folder):
    # the name "mine" finds nothing
    folder, out = tmp_path / "elsewhere" / "mine", tmp_path / "out.ipynb"
    beir_folder(folder, passages=60, queries=48)
    monkeypatch.delenv("DR_DATA", raising=False)
    parameters = read_yaml(scale_file("smoke")) | {"collection": str(folder), "recipe": RECIPE}
    notebook = project_root() / "notebooks" / f"{name}.ipynb"
    papermill.execute_notebook(
        notebook, out, parameters, kernel_name="python3", progress_bar=False, cwd=tmp_path
    )
    for study, rows in TABLES[name].items():
        records = lab.load_records(lab.live_folder("smoke"), study)
        assert len(records) == rows and {
            record.data["collection"]["name"] for record in records
        } == {"mine"}
    outputs = [
        one for cell in nbformat.read(out, as_version=4).cells for one in cell.get("outputs", [])
    ]
    won_and_lost = re.findall(
        r"missed by [^<]*: \d+ of 12 queries", "".join(str(one.get("data")) for one in outputs)
    )
    assert len(won_and_lost) == 2  # which needs the texts of the folder
