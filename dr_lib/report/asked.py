"""Generated questions as tables: what was left after each step, and some of them beside their passages.

Page of the book: practice/own-corpus.
"""

import numpy as np
from IPython.display import HTML

from dr_lib import collections
from dr_lib.lab.asked import Asked
from dr_lib.report.tables import Cell, table

STEPS = {
    "written": "written",
    "distinct": "not empty, no second time for the same passage",
    "asked_once": "written for one passage only",
    "found_again": "passage found again by BM25",
}
SNIPPET = 200


def asked_steps(asked: Asked) -> HTML:
    """How many questions each step of the filter left, and how many became queries of each split."""
    counts = asked.counts
    rows: list[list[Cell]] = [
        [told, counts[name], 100 * counts[name] / counts["written"]] for name, told in STEPS.items()
    ]
    rows += [[f"queries, split {split}", size, None] for split, size in counts["queries"].items()]
    shared = f"{100 * counts['shared_words']:.0f} % of a question's words stand in its passage too"
    caption = f"Questions about {counts['passages']:,} passages, step by step; {shared}."
    return table(["step", "questions", "% of the written"], rows, caption=caption)


def asked_examples(asked: Asked, number: int = 5, seed: int = 0) -> HTML:
    """Some test questions with the beginning of the passage they were written about, drawn at random.

    Args:
        asked: what `lab.ask` gave.
        number: how many at most.
        seed: of the draw.
    """
    found = collections.load(asked.folder, allow_duplicates=asked.recipe.collection.allow_duplicates)
    split = next(split for split in ("test", "train", "dev") if split in asked.counts["queries"])
    queries, grades = found.queries(split), found.qrels(split)
    rows = np.sort(np.random.default_rng(seed).permutation(len(queries))[:number])
    places = {name: row for row, name in enumerate(found.passages["id"][:])}
    cells: list[list[Cell]] = []
    for query in queries.select(rows):
        passage = found.passages[places[next(iter(grades[query["id"]]))]]
        text = f"{passage['title']}: {passage['text']}" if passage["title"] else passage["text"]
        cells.append([query["text"], text if len(text) <= SNIPPET else f"{text[:SNIPPET]} …"])
    return table(["question", "passage"], cells, caption=f"Questions of the split {split}, drawn at random.")
