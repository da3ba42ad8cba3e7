"""The files in which dialogue data sets are published, one reader each; all give exchanges.

- `pairs/<split>.jsonl[.gz]`: one object a line with `context` (turns), `response` and, outside training, `candidates`.
- ConvAI2 (ParlAI's text files): numbered lines that start again at 1 with each dialogue; persona lines first, then
  `utterance TAB response TAB TAB candidate|candidate|...`. The persona counts as context (DPR-PAQ, section 3.3).
- DSTC7 track 1, subtask 1: a JSON list; the test set's answers come in a file of their own. An answer that is not
  among the 100 options is added to them. Where the augmented training file lies beside the plain one, it is taken:
  each utterance of the second speaker is a response there (in ParlAI's release; DPR-PAQ trains on it).
- Ubuntu v2: CSV; `valid` and `test` with one right and nine wrong utterances, `train` with a label.

Book: ideas/evaluation.
"""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dr_lib.collections.beir import read_lines
from dr_lib.errors import InputError
from dr_lib.files import read_json

Reader = Callable[[Path], Iterator["Exchange"]]
SILENCE = "__SILENCE__"
PERSONA = ("your persona:", "partner's persona:")
TURN_MARKS = ("__eou__", "__eot__")
DSTC7_FIX = "Use the published files, for test with ubuntu_responses_subtask_1.tsv beside them."


class Exchange(NamedTuple):
    """A context (turns, oldest first) and the next utterance; candidates hold the response and wrong ones."""

    context: tuple[str, ...]
    response: str
    candidates: tuple[str, ...] = ()


def find_file(folder: Path, split: str) -> tuple[Path, Reader]:
    """The file of a split and its reader; a folder without one raises `InputError` that lists what was looked for."""
    known: dict[str, Reader] = {
        f"pairs/{split}.jsonl.gz": read_pairs,
        f"pairs/{split}.jsonl": read_pairs,
        f"{_valid(split)}_self_original.txt": read_convai2,
        f"ubuntu_{split}_subtask_1_augmented.json": read_dstc7,
        f"ubuntu_{split}_subtask_1.json": read_dstc7,
        f"{_valid(split)}.csv": read_ubuntu,
    }
    for name, reader in known.items():
        if (folder / name).is_file():
            return folder / name, reader
    raise InputError(f"no dialogues of the split {split!r}", where=folder, fix=f"Looked for {', '.join(known)}.")


def _valid(split: str) -> str:
    return "valid" if split == "dev" else split


def read_pairs(path: Path) -> Iterator[Exchange]:
    """Read one JSON object a line."""
    for number, line in read_lines(path):
        where = f"{path} line {number}"
        try:
            record = json.loads(line)
            lists = record["context"], record.get("candidates", [])
            texts = (*lists[0], record["response"], *lists[1])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            fix = "Give context (a list), response and, outside training, candidates (a list)."
            raise InputError(f"not an exchange ({error!r})", where=where, fix=fix) from None
        if not all(isinstance(text, str) for text in texts) or any(isinstance(one, str) for one in lists):
            raise InputError("context and candidates are lists of texts", where=where, fix="Correct the line.")
        yield Exchange(tuple(lists[0]), record["response"], tuple(lists[1]))


def read_convai2(path: Path) -> Iterator[Exchange]:
    """Read ParlAI's text file of ConvAI2; each response has all turns before it, and the persona, as context."""
    persona: list[str] = []
    turns: list[str] = []
    for number, line in read_lines(path):
        if not line.strip():
            continue
        place, _, text = line.partition(" ")
        if not place.isdigit():
            raise InputError("the line has no number", where=f"{path} line {number}", fix="Use the published file.")
        if place == "1":
            persona, turns = [], []
        if text.startswith(PERSONA):
            persona.append(text)
            continue
        cells = text.split("\t")
        if len(cells) < 2:
            raise InputError("no response behind a tab", where=f"{path} line {number}", fix="Use the published file.")
        turns += [] if cells[0] == SILENCE else [cells[0]]
        candidates = tuple(cells[-1].split("|")) if len(cells) > 2 and cells[-1] else ()
        yield Exchange((*persona, *turns), cells[1], candidates)
        turns.append(cells[1])


def read_dstc7(path: Path) -> Iterator[Exchange]:
    """Read a file of DSTC7's Ubuntu subtask 1; for the test set `ubuntu_responses_subtask_1.tsv` must lie beside it."""
    answers = _dstc7_answers(path)
    for place, dialogue in enumerate(read_json(path)):
        try:
            context = tuple(turn["utterance"] for turn in dialogue["messages-so-far"])
            options = tuple(option["utterance"] for option in dialogue["options-for-next"])
            given = [option["utterance"] for option in dialogue.get("options-for-correct-answers", ())]
            response = (given or [answers[str(dialogue["example-id"])]])[0]
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"dialogue {place} lacks {error}", where=path, fix=DSTC7_FIX) from None
        if not all(isinstance(text, str) for text in (*context, response, *options)):
            raise InputError(f"dialogue {place} has an utterance that is no text", where=path, fix=DSTC7_FIX)
        yield Exchange(context, response, options if response in options else (response, *options))


def _dstc7_answers(path: Path) -> dict[str, str]:
    beside = path.with_name("ubuntu_responses_subtask_1.tsv")
    if "_test_" not in path.name or not beside.is_file():
        return {}
    cells = (line.split("\t") for _, line in read_lines(beside))
    return {one[0]: one[2] for one in cells if len(one) >= 3}


def read_ubuntu(path: Path) -> Iterator[Exchange]:
    """Read a CSV file of Ubuntu v2; of a training file only the rows with label 1."""
    rows = csv.DictReader(f"{line}\n" for _, line in read_lines(path))
    columns = rows.fieldnames or []
    wrong = [name for name in columns if name.startswith("Distractor_")]
    right = "Utterance" if "Label" in columns else "Ground Truth Utterance"
    if "Context" not in columns or right not in columns:
        raise InputError(f"columns {', '.join(columns)}", where=path, fix="Use the published files of Ubuntu v2.")
    for row in _whole_rows(rows, path):
        if row.get("Label", "1") in ("1", "1.0"):
            response = _plain(row[right])
            candidates = (response, *(_plain(row[name]) for name in wrong)) if wrong else ()
            yield Exchange(_turns(row["Context"]), response, candidates)


def _whole_rows(rows: csv.DictReader, path: Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV file; one with too few or too many cells, or a quote without end, names its line."""
    try:
        for row in rows:
            if None in row or None in row.values():
                where = f"{path} line {rows.line_num}"
                raise InputError(
                    "a row with another number of cells than the header", where=where, fix="Generate the file again."
                )
            yield row
    except csv.Error as error:
        fix = "Look for a quote that is not closed, or generate the file again."
        raise InputError(f"not CSV ({error})", where=f"{path} line {rows.line_num}", fix=fix) from None


def _turns(context: str) -> tuple[str, ...]:
    return tuple(turn for part in context.split(TURN_MARKS[1]) if (turn := _plain(part)))


def _plain(text: Any) -> str:
    """A text without the marks of utterance and turn."""
    for mark in TURN_MARKS:
        text = text.replace(mark, " ")
    return " ".join(text.split())
