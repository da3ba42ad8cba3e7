"""How many generated questions are left after each step on the way to training pairs. Page: ideas/generators."""

from collections.abc import Mapping
from pathlib import Path

from IPython.display import HTML

from dr_lib.files import read_json
from dr_lib.report.tables import Cell, table

STEPS = {
    "generated": "written",
    "deduplicated": "without empty and repeated ones",
    "filtered": "after the filter",
    "queries": "distinct questions",
    "passages": "passages with a question",
}


def counts_table(folders: Mapping[str, Path]) -> HTML:
    """A row for each way to filter, a column for each step, and the share of the written questions that is left.

    Args:
        folders: label -> finished folder of the material `paq_pairs`, with its `counts.json`.

    Raises:
        InputError: a folder without counts.
    """
    rows: list[list[Cell]] = []
    for label, folder in folders.items():
        counts = read_json(Path(folder) / "counts.json")
        written = counts.get("generated")
        share = 100 * counts["filtered"] / written if written else None
        rows.append([label, *(counts.get(step) for step in STEPS), share])
    return table(["filter", *STEPS.values(), "kept, %"], rows, caption="Generated questions, step by step.")
