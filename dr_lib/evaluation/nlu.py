"""Language understanding: its tasks and their files, fine-tuning on them, measures and intervals
(MASTER, Table 7).

CoLA, MRPC, STS-B, QQP (GLUE) and SICK test whether pre-training for retrieval preserves BERT's
abilities. A split is a tab-separated file `<split>.tsv` without quoting; column names of GLUE's own
files and of common plain ones are known, and CoLA may have no header.

Fine-tuning is BERT's: the sentence, or both as a pair in one sequence, the state of [CLS], a small
head, cross-entropy for classes and squared error for a score; usually batches of 32, three epochs,
and a peak rate of 2e-5 to 5e-5. BERT's pooler is not used, since pre-training for retrieval does
not train it: the head is RoBERTa's (dense layer, tanh, dropout, output). Training uses the common
loop. Page of the book: ideas/evaluation.
"""

import copy
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import datasets
import numpy as np
import scipy
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from dr_lib.collections import read_lines
from dr_lib.errors import InputError
from dr_lib.evaluation.clusters import TaskSettings
from dr_lib.evaluation.measures import Scores
from dr_lib.models import first_states, load_masked_lm
from dr_lib.places import find_data
from dr_lib.settings import Share
from dr_lib.stages import Data, stage
from dr_lib.tokens import TokenBatch, TokenStore, load_tokenizer, plan_by_length
from dr_lib.training import EpochSampler, TrainSettings, machine, train

FIRST = ("sentence1", "sentence", "question1", "#1 String", "sentence_A")
SECOND = ("sentence2", "question2", "#2 String", "sentence_B")
BARE_COLA = ("source", "label", "mark", "sentence")
TOKENS_AT_ONCE = 16_384


@dataclass(frozen=True)
class NluTask:
    """One task.

    Attributes:
        name: "cola", "mrpc", ...
        pair: two sentences, read as one sequence, or one.
        target: names of the answer column in known files.
        classes: the answers as in the file; empty if the answer is a number.
        scale: lowest and highest number, for numeric answers.
        measures: what is reported, by the names of `MEASURES`.
        leave_out_broken: skip lines with a wrong number of cells (QQP's file has some) instead of
            refusing them.
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
        NluTask(
            "qqp",
            True,
            ("is_duplicate", "label"),
            BINARY,
            measures=("accuracy", "F1"),
            leave_out_broken=True,
        ),
        NluTask("stsb", True, ("score",), scale=(0, 5), measures=("Pearson", "Spearman")),
        NluTask(
            "sick-relatedness",
            True,
            ("score", "relatedness_score"),
            (),
            (1, 5),
            ("Pearson", "Spearman"),
        ),
        NluTask("sick-entailment", True, ("entailment", "entailment_judgment"), ENTAILMENT),
    )
}


class NluSettings(TaskSettings):
    """Fine-tune the pre-trained encoder on a task of language understanding (MASTER, Table 7).

    Args:
        task: a name in `TASKS`: "cola", "mrpc", "stsb", "qqp", "sick-relatedness",
            "sick-entailment".
        folder: holds `<split>.tsv`: a path, or a name under ``DR_DATA``, such as "glue-cola".
        train, split: the files for training and evaluation; GLUE's test files have no answers.
        epochs, batch_rows, learning_rate, warmup, weight_decay: of the training. BERT's: 2 to 4
            epochs, batches of 16 or 32, rates of 2e-5 to 5e-5.
        length: maximum sequence length in pieces.
        dropout: of the head; that of the encoder is the recipe's.
    """

    # the stage receives the files themselves
    unkeyed: ClassVar[frozenset[str]] = frozenset({"folder", "train", "split"})
    task: str
    folder: str
    train: str = "train"
    split: str = "dev"
    epochs: PositiveFloat = 3.0
    batch_rows: PositiveInt = 32
    learning_rate: PositiveFloat = 2e-5
    warmup: Share = 0.1
    weight_decay: NonNegativeFloat = 0.01
    length: int = Field(128, gt=3)
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _known(self) -> Self:
        task_of(self.task)
        return self

    def arguments(self) -> dict[str, Any]:
        """The files of the split that is trained on and of the one that is read."""
        learned, unseen = (
            Data.file(nlu_file(self.folder, split)) for split in (self.train, self.split)
        )
        return {"learned": learned, "unseen": unseen, "task": self}


@stage(resumable=True, gpu=True)
def nlu(
    folder: Path,
    start: Path | str,
    learned: Path,
    unseen: Path,
    *,
    task: NluSettings,
    dropout: float | None,
    seed: int,
) -> None:
    """Fine-tune an encoder on one split of a task and evaluate it on another: `scores.json` and
    `log.json`.

    The scores are "predicted" and "actual" for every row, class numbers or scores in the task's own
    scale, and for classes "accuracy", 0 or 1; `MEASURES` aggregate them. Tokens and checkpoints are
    in a folder that is deleted when the stage is finished.

    Args:
        folder: where to write; an interrupted run is resumed.
        start: a masked LM or bare encoder, or the stage that makes one.
        learned, unseen: files of the training split and the evaluation split.
        task: settings of the training.
        dropout: of the encoder; None keeps its own.
        seed: of the head's initial weights and the order of rows.

    Raises:
        InputError: a batch larger than the training split, or a model with too few positions.
    """
    place = Path(start) / "model" if (Path(start) / "model").is_dir() else start
    encoder = load_masked_lm(place, dropout=dropout, device=machine.device())
    tokenizer = load_tokenizer(place)
    rows, others = (load_nlu(task.task, file.parent, file.stem) for file in (learned, unseen))
    if task.batch_rows > len(rows):
        problem = f"batches of {task.batch_rows} rows, but only {len(rows)} to train on"
        raise InputError(problem, where="evaluation.nlu", fix="Give smaller batches or more rows.")
    work, named = folder / "checkpoint-work", {"train": rows, "test": others}
    store, unseen_store = (
        TokenStore.build(
            split.texts, tokenizer, work / f"{name}-tokens", tuple(split.texts.column_names)
        )
        for name, split in named.items()
    )
    classifier = SentenceClassifier(encoder, rows.task, dropout=task.dropout, seed=seed)
    batches = _batches(store, rows, task.batch_rows, task.length, seed)
    steps = max(1, round(task.epochs * (len(rows) // task.batch_rows)))  # full batches only
    numbers = TrainSettings(
        steps=steps,
        seed=seed,
        **task.model_dump(include={"learning_rate", "warmup", "weight_decay"}),
    )
    train(classifier, batches, numbers, work / "training", title=task.task)
    columns = {
        "predicted": predict(classifier, unseen_store, task.length),
        "actual": others.targets,
    }
    columns |= {"accuracy": columns["predicted"] == columns["actual"]} if rows.task.classes else {}
    Scores([str(row) for row in range(len(others))], columns).save(folder / "scores.json")
    shutil.copy(work / "training" / "log.json", folder / "log.json")


@dataclass(frozen=True, eq=False)
class NluSplit:
    """The rows of one file.

    Attributes:
        task: what is asked.
        texts: columns `sentence1` and, for a pair, `sentence2`.
        targets: `[rows]`, int64 number of the class, or float32 in the task's own scale.
    """

    task: NluTask
    texts: datasets.Dataset
    targets: np.ndarray

    def __len__(self) -> int:
        return len(self.targets)


def task_of(name: str) -> NluTask:
    """A task by its name; an unknown one raises `InputError` that lists the known ones."""
    if name not in TASKS:
        raise InputError(f"unknown task {name!r}", where="task", fix=f"Known: {', '.join(TASKS)}.")
    return TASKS[name]


def nlu_file(folder: str | Path, split: str) -> Path:
    """The file of a split; `InputError` where there is none."""
    path = (find_data(folder) or Path(folder)) / f"{split}.tsv"
    if not path.is_file():
        raise InputError("no such file", where=path, fix="Name a folder that holds this split.")
    return path


def load_nlu(task: str, folder: str | Path, split: str) -> NluSplit:
    """Read a split of a task.

    Args:
        task: a name in `TASKS`.
        folder: a path, or the name of a folder under ``DR_DATA`` (such as "glue-cola").
        split: "train", "dev" or "test", the name of the file without ".tsv".

    Raises:
        InputError: an unknown task, no such file, a missing column, or a line that breaks the
            format, with its number.
    """
    kind, path = task_of(task), nlu_file(folder, split)
    lines = [(where, line.split("\t")) for where, line in read_lines(path) if line.strip()]
    if not lines:
        raise InputError("the file is empty", where=path, fix="Copy it again.")
    bare = task == "cola" and len(lines[0][1]) == len(BARE_COLA) and lines[0][1][1] in BINARY
    header = list(BARE_COLA) if bare else lines.pop(0)[1]
    *sentences, answer = [
        _column(header, names, path) for names in (FIRST, *([SECOND] * kind.pair), kind.target)
    ]
    texts, targets = [], []
    for where, cells in lines:
        if len(cells) == len(header):
            targets.append(_target(kind, cells[answer], where))
            texts.append([cells[column] for column in sentences])
        elif not kind.leave_out_broken:
            raise InputError(
                f"{len(cells)} cells, {len(header)} columns", where=where, fix="Correct the line."
            )
    if not texts:
        raise InputError("no row in it", where=path, fix="Copy the file again.")
    columns = dict(
        zip(("sentence1", "sentence2"), map(list, zip(*texts, strict=True)), strict=False)
    )
    dtype = np.int64 if kind.classes else np.float32
    return NluSplit(kind, datasets.Dataset.from_dict(columns), np.array(targets, dtype))


@dataclass(frozen=True)
class NluBatch:
    """Sentences and their answers, on one device.

    Attributes:
        tokens: `batch` sequences.
        targets: `[batch]`, int64 class or float32 score brought to [0, 1].
    """

    tokens: TokenBatch
    targets: Tensor


class SentenceClassifier(nn.Module):
    """An encoder with the head of a task, as `train` expects it.

    Args:
        encoder: a masked LM or bare encoder; a copy is trained, without its own head.
        task: decides the number of outputs and the loss.
        dropout: before the output, in [0, 1].
        seed: of the head's first weights.
    """

    def __init__(
        self, encoder: PreTrainedModel, task: NluTask, *, dropout: float = 0.1, seed: int = 0
    ):
        super().__init__()
        self.encoder, self.task = copy.deepcopy(encoder.base_model), task
        hidden = encoder.config.hidden_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.dense = nn.Linear(hidden, hidden)
            self.output = nn.Linear(hidden, max(1, len(task.classes)))
            for layer in (self.dense, self.output):
                nn.init.normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.dropout = nn.Dropout(dropout)

    def logits(self, batch: TokenBatch) -> Tensor:
        """Output `[batch, classes]` (or `[batch, 1]`) float32."""
        state = torch.tanh(self.dense(first_states(self.encoder, batch)))
        return self.output(self.dropout(state)).float()

    def forward(self, batch: NluBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss of a batch, and for classes the accuracy; `generator` is not used."""
        logits = self.logits(batch.tokens)
        if not self.task.classes:
            return {"loss": functional.mse_loss(logits[:, 0], batch.targets)}
        right = (logits.detach().argmax(dim=1) == batch.targets).float().mean()
        return {"loss": functional.cross_entropy(logits, batch.targets), "accuracy": right}


@torch.inference_mode()
def predict(classifier: SentenceClassifier, store: TokenStore, max_length: int) -> np.ndarray:
    """The class number, or the score in the task's own scale, of every row of a store: `[rows]`."""
    outputs = torch.empty(len(store), classifier.output.out_features)
    device = classifier.output.weight.device
    classifier.eval()
    for rows in plan_by_length(store.lengths(max_length, "pair"), TOKENS_AT_ONCE, max_length):
        batch = store.batch(rows, max_length=max_length, title="pair").to(device)
        outputs[torch.from_numpy(rows)] = classifier.logits(batch).cpu()
    if classifier.task.classes:
        return outputs.argmax(dim=1).numpy()
    low, high = classifier.task.scale
    return (low + (high - low) * outputs[:, 0]).numpy()


def f1(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Harmonic mean of precision and recall of class 1; 0 if class 1 does not occur."""
    both = (predicted == 1).sum() + (actual == 1).sum()
    return float(2 * ((predicted == 1) & (actual == 1)).sum() / max(both, 1))


def pearson(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Pearson's correlation; 0 if one side is constant, so that an untrained model has a value."""
    sides = np.array([predicted, actual], np.float64)
    return float(np.corrcoef(sides)[0, 1]) if np.ptp(sides, axis=1).all() else 0.0


MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda predicted, actual: float((predicted == actual).mean()),
    "F1": f1,
    "Matthews": lambda predicted, actual: pearson(predicted == 1, actual == 1),  # of two classes
    "Pearson": pearson,
    "Spearman": lambda predicted, actual: pearson(
        scipy.stats.rankdata(predicted), scipy.stats.rankdata(actual)
    ),
}
"""Measures of a whole set, `(predicted, actual) -> value`. scikit-learn has them too, 1 ms a call:
50 times as slow.
"""


def _column(header: list[str], names: tuple[str, ...], path: Path) -> int:
    columns = [header.index(name) for name in names if name in header]
    if not columns:
        fix = f"One of {', '.join(names)} is needed."
        raise InputError(f"columns {', '.join(header)[:120]}", where=f"{path} line 1", fix=fix)
    return columns[0]


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


def _batches(
    store: TokenStore, split: NluSplit, batch_rows: int, max_length: int, seed: int
) -> Callable[[int], NluBatch]:
    """Micro-step -> batch; rows are shuffled in every epoch, and an incomplete last batch is
    dropped.
    """
    low, high = split.task.scale
    targets = (
        split.targets
        if split.task.classes
        else (split.targets - np.float32(low)) / np.float32(high - low)
    )
    sampler = EpochSampler(np.arange(len(split)), batch_rows, seed)

    def batch(step: int) -> NluBatch:
        _, rows = sampler.of(step)
        return NluBatch(
            store.batch(rows, max_length=max_length, title="pair"), torch.from_numpy(targets[rows])
        )

    return batch
