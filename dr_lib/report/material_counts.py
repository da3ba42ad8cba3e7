"""What is in a material of pairs: how many generated questions are left after each step, how many pseudo-labels.

Pages: ideas/generators, ideas/passage-centric.
"""

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


def labels_table(folders: Mapping[str, Path]) -> HTML:
    """A row for each pair of thresholds: how many pseudo-labels, and what became of the passages known to be relevant.

    Args:
        folders: label -> finished folder of the material `pseudo_labels`, with its `counts.json`.

    Raises:
        InputError: a folder without counts.
    """
    columns = [
        "s_pos / s_neg", "queries", "with a positive, %", "positives", "hard negatives",
        "of the labelled: positive, %", "negative, %",
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for name, folder in folders.items():
        counts = read_json(Path(folder) / "counts.json")["chosen"]
        kept = 100 * counts["queries_kept"] / max(counts["queries"], 1)
        found = max(counts["known_retrieved"], 1)
        shares = [100 * counts[f"known_{side}"] / found for side in ("positive", "negative")]
        rows.append([name, counts["queries"], kept, counts["positives"], counts["negatives"], *shares])
    return table(
        columns, rows, caption="Pseudo-labels by thresholds; the last two are shares of the labelled passages found."
    )
