"""Tasks of language understanding, and the files they come in: CoLA, MRPC, STS-B, QQP (GLUE) and SICK.

MASTER, Table 7, asks whether pre-training for retrieval keeps what BERT knows. A split is a file `<split>.tsv`, tabs
between cells, no quoting; the columns of GLUE's own files and of the common plain ones are known by name, and those of
CoLA may come without a header. Page of the book: ideas/evaluation.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import datasets
import numpy as np

from dr_lib.collections.beir import read_lines
from dr_lib.errors import InputError
from dr_lib.places import find_data

FIRST = ("sentence1", "sentence", "question1", "#1 String", "sentence_A")
SECOND = ("sentence2", "question2", "#2 String", "sentence_B")
BARE_COLA = ("source", "label", "mark", "sentence")


@dataclass(frozen=True)
class NluTask:
    """One task.

    Attributes:
        name: "cola", "mrpc", ...
        pair: two sentences, read as one sequence, or one.
        target: names that the column of the answer has in known files.
        classes: the answers as they stand in the file; empty where the answer is a number.
        scale: lowest and highest number, where it is one.
        measures: what is reported, by the names of `nlu_measures`.
        leave_out_broken: skip lines with a wrong number of cells (QQP's file has some) in place of refusing them.
    """

    name: str
    pair: bool
    target: tuple[str, ...]
    classes: tuple[str, ...] = ()
    scale: tuple[float, float] = (0.0, 1.0)
    measures: tuple[str, ...] = ("accuracy",)
    leave_out_broken: bool = False


BINARY = ("0", "1")
ENTAILMENT = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
TASKS = {
    task.name: task
    for task in (
        NluTask("cola", False, ("label",), BINARY, measures=("Matthews", "accuracy")),
        NluTask("mrpc", True, ("label", "Quality"), BINARY, measures=("accuracy", "F1")),
        NluTask("qqp", True, ("is_duplicate", "label"), BINARY, measures=("accuracy", "F1"), leave_out_broken=True),
        NluTask("stsb", True, ("score",), scale=(0, 5), measures=("Pearson", "Spearman")),
        NluTask("sick-relatedness", True, ("score", "relatedness_score"), (), (1, 5), ("Pearson", "Spearman")),
        NluTask("sick-entailment", True, ("entailment", "entailment_judgment"), ENTAILMENT),
    )
}


@dataclass(frozen=True, eq=False)
class NluSplit:
    """The rows of one file.

    Attributes:
        task: what is asked.
        texts: columns `sentence1` and, for a pair, `sentence2`.
        targets: `[rows]`, int64 number of the class, or float32 in the task's own scale.
        left_out: lines that had a wrong number of cells.
    """

    task: NluTask
    texts: datasets.Dataset
    targets: np.ndarray
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.targets)

    def first(self, rows: int | None) -> "NluSplit":
        """The same split with at most so many rows, the first ones."""
        if rows is None or rows >= len(self):
            return self
        return replace(self, texts=self.texts.select(range(rows)), targets=self.targets[:rows])


def load_nlu(task: str | NluTask, folder: str | Path, split: str) -> NluSplit:
    """Read a split of a task.

    Args:
        task: a name in `TASKS`.
        folder: a path, or the name of a folder under ``DR_DATA`` (such as "glue-cola").
        split: "train", "dev" or "test", the name of the file without ".tsv".

    Raises:
        InputError: an unknown task, no such file, a missing column, or a line that breaks the format, with its number.
    """
    task = task_of(task)
    path = file_of(folder, split)
    lines = [(number, line.split("\t")) for number, line in read_lines(path) if line.strip()]
    if not lines:
        raise InputError("the file is empty", where=path, fix="Copy it again.")
    bare = task.name == "cola" and len(lines[0][1]) == len(BARE_COLA) and lines[0][1][1] in BINARY
    header = list(BARE_COLA) if bare else lines.pop(0)[1]
    wanted = [FIRST, *([SECOND] if task.pair else []), task.target]
    columns = [_column(header, names, path) for names in wanted]
    return _rows(task, lines, header, columns, path)


def task_of(task: str | NluTask) -> NluTask:
    """A task by its name; an unknown one raises `InputError` that lists the known ones."""
    if isinstance(task, NluTask):
        return task
    if task not in TASKS:
        raise InputError(f"unknown task {task!r}", where="task", fix=f"Known: {', '.join(TASKS)}.")
    return TASKS[task]


def file_of(folder: str | Path, split: str) -> Path:
    """The file of a split; `InputError` where there is none."""
    path = (find_data(folder) or Path(folder)) / f"{split}.tsv"
    if not path.is_file():
        raise InputError("no such file", where=path, fix="Name a folder that holds this split.")
    return path


def _rows(task: NluTask, lines: list, header: list[str], columns: list[int], path: Path) -> NluSplit:
    kept, targets = [], []
    for number, cells in lines:
        where = f"{path} line {number}"
        if len(cells) != len(header):
            if task.leave_out_broken:
                continue
            raise InputError(f"{len(cells)} cells, {len(header)} columns", where=where, fix="Correct the line.")
        targets.append(_target(task, cells[columns[-1]], where))
        kept.append([cells[column] for column in columns[:-1]])
    if not kept:
        raise InputError("no row in it", where=path, fix="Copy the file again.")
    names = ("sentence1", "sentence2")[: len(columns) - 1]
    texts = datasets.Dataset.from_dict({name: [row[place] for row in kept] for place, name in enumerate(names)})
    dtype = np.int64 if task.classes else np.float32
    return NluSplit(task, texts, np.array(targets, dtype), len(lines) - len(kept))


def _target(task: NluTask, cell: str, where: str) -> float:
    if task.classes:
        if cell in task.classes:
            return task.classes.index(cell)
        raise InputError(f"answer {cell!r}", where=where, fix=f"Known: {', '.join(task.classes)}.")
    try:
        value = float(cell)
    except ValueError:
        value = np.nan
    if not task.scale[0] <= value <= task.scale[1]:
        fix = f"Give a number from {task.scale[0]:g} to {task.scale[1]:g}."
        raise InputError(f"score {cell!r}", where=where, fix=fix)
    return value


def _column(header: list[str], names: tuple[str, ...], path: Path) -> int:
    found = [header.index(name) for name in names if name in header]
    if not found:
        fix = f"One of {', '.join(names)} is needed."
        raise InputError(f"columns {', '.join(header)[:120]}", where=f"{path} line 1", fix=fix)
    return found[0]
