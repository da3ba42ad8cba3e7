"""ConvAI2, DSTC7 and Ubuntu v2 (DPR-PAQ, Table 3) as published, converted to pairs.

- ConvAI2 (ParlAI's text files): lines numbered from 1 in each dialogue; persona lines first, then
  `utterance TAB response TAB TAB candidate|candidate|...`. The persona is part of the context
  (DPR-PAQ, section 3.3). 20 candidates.
- DSTC7 track 1, subtask 1: a JSON list; the test set's answers are in a separate file. An answer
  that is not among the 100 options is added to them.
- Ubuntu v2: CSV with one correct and nine wrong utterances a row; its training file has one
  utterance a row, with a label.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from dr_book.data.dialogues import Row
from dr_book.data.files import write
from dr_lib.errors import InputError
from dr_lib.files import check_replaceable, fresh_folder

SILENCE = "__SILENCE__"
PERSONA = ("your persona:", "partner's persona:")
ANSWERS = "ubuntu_responses_subtask_1.tsv"
SPLITS = {"train": "train", "valid": "dev", "dev": "dev", "test": "test"}
"""Name of a split in file names -> in folders of pairs."""
BROKEN = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


def published(folder: Path, to: Path) -> Path:
    """Write `pairs/<split>.jsonl.gz` of every file of ConvAI2, DSTC7 or Ubuntu v2 in a folder.

    Args:
        folder: with the published files.
        to: the new folder, or one that an earlier call made.

    Returns:
        The folder, as `evaluation.load_candidates` and a recipe's `evaluation.dialogue` take it.

    Raises:
        InputError: the folder has none of these files, or one is not as published.
    """
    check_replaceable(to, "collection")
    made = {}
    for name, split in SPLITS.items():
        for pattern, read in READERS.items():
            if (file := folder / pattern.format(name)).is_file():
                try:
                    made[f"pairs/{split}.jsonl.gz"] = [*read(file)]
                except BROKEN as error:
                    problem = f"not as published ({type(error).__name__}: {error})"
                    fix = f"Get it again; DSTC7's test split has its answers in {ANSWERS}."
                    raise InputError(problem, where=file, fix=fix) from None
    if not made:
        known = ", ".join(pattern.format("test") for pattern in READERS)
        raise InputError("no dialogues", where=folder, fix=f"Give the folder of {known}.")
    with fresh_folder(to, "collection") as draft:
        write(draft, made)
    return to


def convai2(path: Path) -> Iterator[Row]:
    """The context of a response is the persona and all turns before it."""
    persona, turns = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        number, _, text = line.partition(" ")
        if int(number) == 1:
            persona, turns = [], []
        if text.startswith(PERSONA):
            persona.append(text)
            continue
        said, response, *cells = text.split("\t")
        turns += [] if said == SILENCE else [said]
        candidates = cells[-1].split("|") if cells and cells[-1] else []
        yield {"context": [*persona, *turns], "response": response, "candidates": candidates}
        turns.append(response)


def dstc7(path: Path) -> Iterator[Row]:
    """The answers are in the row, or, for the test split, in the file beside it."""
    beside, answers = path.with_name(ANSWERS), {}
    if "_test_" in path.name and beside.is_file():
        for line in beside.read_text(encoding="utf-8").splitlines():
            number, _, answers[number], *_ = line.split("\t")
    for row in json.loads(path.read_text(encoding="utf-8")):
        options = [option["utterance"] for option in row["options-for-next"]]
        right = [option["utterance"] for option in row.get("options-for-correct-answers", [])]
        response = right[0] if right else answers[str(row["example-id"])]
        candidates = options if response in options else [response, *options]
        context = [turn["utterance"] for turn in row["messages-so-far"]]
        yield {"context": context, "response": response, "candidates": candidates}


def ubuntu(path: Path) -> Iterator[Row]:
    """The context is one text with marks between turns."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    wrong = [name for name in table if name.startswith("Distractor_")]
    right = "Ground Truth Utterance" if wrong else "Utterance"
    for row in table.to_dict("records"):
        if wrong or float(row["Label"]) == 1:
            context = [turn for part in row["Context"].split("__eot__") if (turn := _plain(part))]
            candidates = [_plain(row[name]) for name in (right, *wrong)] if wrong else []
            yield {"context": context, "response": _plain(row[right]), "candidates": candidates}


def _plain(text: str) -> str:
    """A text without the marks of utterance and turn."""
    return " ".join(text.replace("__eou__", " ").replace("__eot__", " ").split())


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "{}_self_original.txt": convai2,
    "ubuntu_{}_subtask_1.json": dstc7,
    "{}.csv": ubuntu,
}
"""Name of a split's file -> its reader."""
