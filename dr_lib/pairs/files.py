"""Files of questions with passages as others publish them, read row by row: nothing but one row is in memory.

Formats, told apart by what a row holds (reference: dpr-scale's loaders and DPR's own files):

- DPR: `question`, `positive_ctxs`, `hard_negative_ctxs` (PAQ as published for DPR-PAQ, NQ, TriviaQA);
- DPR's results: `question`, `ctxs` with `has_answer`; where no passage has it, the first counts as positive;
- pairs: `context` and `response` (dialogues; a list of turns is joined), `title` and `body`, `question` and `passage`;
- a table of tabs: question, passage.

JSON comes as one object a line or as one array; all of it plain or .gz. Page: ideas/generators.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dr_lib.collections.beir import read_lines
from dr_lib.errors import InputError
from dr_lib.pairs.arrays import array_items, open_text

Record = dict[str, Any]
PAIRS = (("context", "response"), ("title", "body"), ("question", "passage"), ("query", "passage"))
FORMATS = "question with positive_ctxs, question with ctxs, or one of " + ", ".join(f"{a}/{b}" for a, b in PAIRS)


class Context(NamedTuple):
    """A passage as it stands in a file."""

    title: str
    text: str


@dataclass(frozen=True)
class PairRow:
    """One row of a file.

    Attributes:
        question: the query.
        positives: passages that answer it, the best first.
        negatives: passages given as not answering it, hardest first.
    """

    question: str
    positives: tuple[Context, ...]
    negatives: tuple[Context, ...] = ()


def read_pairs(path: Path) -> Iterator[tuple[int, PairRow]]:
    """Read a file of any of the formats.

    Args:
        path: ends in .tsv, .json or .jsonl, with or without .gz.

    Yields:
        Line number and row; a blank line is passed over.

    Raises:
        InputError: names file and line of a row that cannot be read.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "pairs.tsv"
        >>> _ = path.write_text("who wrote it?\\tIt was written by nobody.\\n")
        >>> [row.question for _, row in read_pairs(path)]
        ['who wrote it?']
    """
    for number, raw in raw_rows(Path(path)):
        yield number, parse_row(raw, Path(path), number)


def raw_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Line number and unparsed row: a line as text, or an item of a JSON array as it is."""
    if not path.is_file():
        raise InputError("no such file", where=path, fix="Check the path.")
    if not is_table(path) and first_character(path) == "[":
        yield from array_items(path)
        return
    yield from ((number, line) for number, line in read_lines(path) if line.strip())


def parse_row(raw: Any, path: Path, number: int) -> PairRow:
    """Turn an unparsed row into a question with its passages; `InputError` names file and line."""
    where = f"{path} line {number}"
    if isinstance(raw, str) and is_table(path):
        cells = raw.split("\t")
        if len(cells) != 2:
            raise InputError(f"{len(cells)} columns instead of 2", where=where, fix="Give question and passage.")
        return PairRow(cells[0], (Context("", cells[1]),))
    record = raw
    if isinstance(raw, str):
        try:
            record = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a JSON object ({error})", where=where, fix="Write one object a line.") from None
    if not isinstance(record, dict):
        raise InputError("not a JSON object", where=where, fix="Write one object a row.")
    return _parser(record, where)(record, where)


def is_table(path: Path) -> bool:
    """Whether a file's name says that it is a table of tabs."""
    return re.search(r"\.tsv(\.gz)?$", path.name) is not None


def first_character(path: Path) -> str:
    """The first character of a file that is no white space; "" where there is none."""
    with open_text(path) as file:
        while text := file.read(4096):
            if text.strip():
                return text.lstrip()[0]
    return ""


def _parser(record: Record, where: str) -> Callable[[Record, str], PairRow]:
    if "positive_ctxs" in record:
        return _dpr
    if "ctxs" in record:
        return _results
    for left, right in PAIRS:
        if left in record and right in record:
            return lambda record, where: PairRow(
                _joined(record, left, where), tuple(Context("", text) for text in _texts(record, right, where))
            )
    raise InputError(
        f"no known kind of row (it has {', '.join(record) or 'nothing'})", where=where, fix=f"Known: {FORMATS}."
    )


def _dpr(record: Record, where: str) -> PairRow:
    positives = _contexts(record, "positive_ctxs", where)
    return PairRow(_joined(record, "question", where), positives, _contexts(record, "hard_negative_ctxs", where))


def _results(record: Record, where: str) -> PairRow:
    contexts = _contexts(record, "ctxs", where)
    answering = [bool(context.get("has_answer")) for context in record["ctxs"]]
    if contexts and not any(answering):
        answering[0] = True
    kinds = list(zip(contexts, answering, strict=True))
    positives, others = (tuple(one for one, has in kinds if has is wanted) for wanted in (True, False))
    return PairRow(_joined(record, "question", where), positives, others)


def _contexts(record: Record, name: str, where: str) -> tuple[Context, ...]:
    given = record.get(name) or []
    if not isinstance(given, list) or not all(isinstance(context, dict) for context in given):
        raise InputError(
            f"field {name} is not a list of passages", where=where, fix="Give objects with title and text."
        )
    return tuple(Context(_text(one, "title", where, needed=False), _text(one, "text", where)) for one in given)


def _joined(record: Record, name: str, where: str) -> str:
    """A text, or the turns of a dialogue with a blank between."""
    return " ".join(_texts(record, name, where))


def _texts(record: Record, name: str, where: str) -> list[str]:
    given = record.get(name)
    if isinstance(given, list) and all(isinstance(text, str) for text in given):
        return given
    return [_text(record, name, where)]


def _text(record: Record, name: str, where: str, needed: bool = True) -> str:
    value = record.get(name)
    if value is None and not needed:
        return ""
    if not isinstance(value, str):
        problem = f"field {name} is missing" if value is None else f"field {name} is {type(value).__name__}, not a text"
        raise InputError(problem, where=where, fix=f"Give {name} as a text.")
    return value
