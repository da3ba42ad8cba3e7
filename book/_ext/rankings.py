"""Words or meaning: a question's two rankings connected by lines, and the ranks of all SQuAD
questions before and after pre-training.

Its script is `book/extra/explorers/rankings.js`. Page: ideas/dual-encoders.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from home import METHOD, Searched
from IPython.display import HTML
from pieces import place, write_data, write_place
from search_page import by_kind

from dr_book.figures import sourced
from dr_book.measured import per_query, recorded
from dr_book.tables import QUESTION_KINDS, folded, named, provenance, table
from dr_lib.lab import Record

NAME = "rankings"
DEPTH, EACH = 10, 14
"""Number of passages in a ranking, and of questions of each kind."""
STUDY, BEFORE = "plan/core", "none"
AFTER = ("autoencoder", "bow", "retromae", "simlm", "mlm")
SIDES = {"words": "BM25", "meaning": "retriever"}
CLASSES = ("1", "2–3", "4–10", "11–100", "beyond")
"""Classes of the relevant passage's rank, as far as MRR@10 and R@100 of a question determine it."""


def ranked(found: Searched) -> tuple[list[str], list[dict[str, Any]]]:
    """Titles, and some questions with the indices of the titles ranked first by words and by
    vectors.

    The questions of each kind are drawn with a fixed seed; none is chosen for its result.
    """
    kinds = by_kind(found.queries["id"]) or {"": [*range(len(found.queries["id"]))]}
    shown: dict[int, int] = {}
    questions = []
    for kind, rows in kinds.items():
        for row in sorted(np.random.default_rng(0).permutation(rows)[:EACH].tolist()):
            right = int(found.relevant[row][0])
            question: dict[str, Any] = {
                "kind": QUESTION_KINDS.get(kind, "questions"),
                "text": found.queries["text"][row],
                "right": shown.setdefault(right, len(shown)),
                "passage": found.passages["text"][right],
            }
            for side in ("words", "meaning"):
                hits = [shown.setdefault(hit, len(shown)) for hit in found.first(side, row, DEPTH)]
                question[side] = {"first": hits, "rank": int(found.ranks[side][row])}
            questions.append(question)
    return [found.passages["title"][row] for row in shown], questions


def classes(records: Sequence[Record]) -> np.ndarray:
    """Index in `CLASSES` of each question's relevant passage: `[runs, queries]` int, for questions
    with exactly one.
    """
    reciprocal, within = (per_query(records, measure) for measure in ("MRR@10", "R@100"))
    return np.select(
        [reciprocal > 99, reciprocal > 33, reciprocal > 0, within > 0], [0, 1, 2, 3], default=4
    )


def moved(before: np.ndarray, after: np.ndarray | None = None) -> np.ndarray:
    """How many questions move from one class to another, averaged over all pairs of runs.

    Args:
        before: classes `[runs, queries]`.
        after: those of other runs; None takes pairs of different runs in `before`.

    Returns:
        `[classes before, classes after]` float.
    """
    pairs = [
        (one, other)
        for i, one in enumerate(before)
        for j, other in enumerate(before if after is None else after)
        if after is not None or i != j
    ]
    counts = np.zeros((len(CLASSES), len(CLASSES)))
    for pair in pairs:
        np.add.at(counts, pair, 1 / len(pairs))
    return counts


def matrices() -> list[dict[str, Any]]:
    """The matrix of no pre-training against itself, then that of each method, rounded."""
    runs = recorded(STUDY)
    if len(runs.get(BEFORE, ())) < 2:
        return []
    before = classes(runs[BEFORE])
    made = {label: moved(before, classes(runs[label])) for label in AFTER if label in runs}
    made["again"] = moved(before)
    names = {"again": "nothing, in another run"}
    return [
        {"name": names.get(label) or named(label), "counts": np.rint(counts).astype(int).tolist()}
        for label, counts in made.items()
    ]


def ranks_table(questions: Sequence[Mapping[str, Any]], titles: Sequence[str]) -> HTML:
    """Rank of each question's passage by words and by vectors, folded."""
    rows = [
        [one["text"], titles[one["right"]], *(one[side]["rank"] or None for side in SIDES)]
        for one in questions
    ]
    columns = ["question", "relevant passage", *SIDES.values()]
    about = "Rank of the relevant passage by words and by meaning; a dash: not found."
    return folded("The same as a table", table(columns, rows, caption=about))


def matrix_table(matrix: Mapping[str, Any]) -> HTML:
    """One matrix as a table, for pages without JavaScript."""
    rows = [[rank, *counts] for rank, counts in zip(CLASSES, matrix["counts"], strict=True)]
    about = f"Questions by rank without pre-training (rows) and with {matrix['name']} (columns)."
    return table(["before", *CLASSES], rows, caption=about)


def write_rankings(to: Path, found: Searched | None) -> list[Path]:
    """Write the piece into the staged source of the book; its searches come from `home`."""
    titles, questions = ranked(found) if found else ([], [])
    data = {"titles": titles, "questions": questions, "classes": CLASSES, "moves": matrices()}
    runs = {label: rows for label, rows in recorded(STUDY).items() if label in (BEFORE, *AFTER)}
    note = f"Rankings: {named(METHOD)}, trained for the page that searches. Matrix: "
    parts = [place(NAME), HTML(f'<p class="dr-source">{note}{sourced(provenance(runs))}</p>')]
    parts += [ranks_table(questions, titles)]
    parts += [folded("The matrix as a table", matrix_table(one)) for one in data["moves"][:1]]
    return [write_data(to, NAME, data), write_place(to, NAME, *parts)]
