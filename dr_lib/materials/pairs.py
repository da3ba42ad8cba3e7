"""Pairs of a query and a passage that people wrote: files as others publish them, and titles with
their bodies.

Formats of a file, recognised by the content of a row (reference: dpr-scale's loaders and DPR's own
files):

- DPR: `question`, `positive_ctxs`, `hard_negative_ctxs` (PAQ as published for DPR-PAQ, NQ,
  TriviaQA);
- DPR's results: `question`, `ctxs` with `has_answer`; where no passage has it, the first counts as
  positive;
- pairs: `context` and `response` (dialogues; a list of turns is joined), `title` and `body`,
  `question` and `passage`;
- a table of tabs: question, passage.

JSON comes as one object per line or as one array over many lines; all of it plain or .gz. A file is
read line by line: in memory are 16 bytes per text and nothing of the texts themselves. Page:
ideas/generators.
"""

import json
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from datasets import Dataset
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast

from dr_lib.collections import Collection, field_of, read_lines, record_of
from dr_lib.errors import InputError
from dr_lib.files import write_json
from dr_lib.materials.texts import open_strings
from dr_lib.stages import stage
from dr_lib.tokens import TokenStore, load_tokenizer
from dr_lib.training.examples import distinct_rows, group_examples, text_hash

PAIRS = (("context", "response"), ("title", "body"), ("question", "passage"), ("query", "passage"))
FORMATS = "question with positive_ctxs, question with ctxs, or one of " + ", ".join(
    f"{a}/{b}" for a, b in PAIRS
)
CHUNK = 256  # lines that are read at a time, or as many as an item has so far
# characters of one item of an array; what is longer is taken for a missing bracket
LONGEST = 1 << 27
SPACE = re.compile(r"[\s,]*")
SURROGATE = re.compile("[\ud800-\udfff]")
SCRATCH = "checkpoint-pairs"  # dropped by the cache of stages when the stage is finished

Record = dict[str, Any]


# Stages -------------------------------------------------------------------------------------------


@stage()
def file_pairs(
    folder: Path,
    file: Path,
    tokenizer: Path | str,
    *,
    limit: int | None = None,
    seed: int = 0,
    depth: int = 0,
) -> None:
    """`queries/`, `passages/`, `examples/` and `counts.json`: the pairs of a published file, or
    `limit` of them.
    """
    counts = store_pairs(
        pairs_of(file, limit, seed), folder, load_tokenizer(tokenizer), depth=depth
    )
    write_json(folder / "counts.json", counts)


@stage(reads=())
def title_pairs(folder: Path, collection: Collection, tokenizer: Path | str) -> None:
    """The same of a collection's titles, each asking for its body, which stands there without it.

    Oguz et al. 2022 pre-train on 200 million posts and comments of Reddit (section 3.1.2); public
    files of it hold title and body. All bodies under one title are known positives of it, so none
    of them is ever its negative.
    """
    rows = (
        PairRow(passage["title"], (Context("", passage["text"].strip()),))
        for passage in collection.passages
    )
    write_json(folder / "counts.json", store_pairs(rows, folder, load_tokenizer(tokenizer)))


# What is stored -----------------------------------------------------------------------------------


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


def store_pairs(
    rows: Iterable[PairRow], folder: Path, tokenizer: PreTrainedTokenizerFast, *, depth: int = 1
) -> dict[str, int]:
    """Write `queries/`, `passages/` and `examples/`: each distinct text once, with all pairs that
    it is in.

    Of each row the first positive that has text is taken, as the released loader does. Rows with
    the same question are one query with the positives of all of them; what any of them gives as a
    positive, its further ones too, is in no row a hard negative of that question.

    Args:
        rows: read once.
        folder: an existing folder.
        tokenizer: of the model that will read them.
        depth: hard negatives of a query to keep (PAQ as published: 1 per row).

    Returns:
        Counts of rows, left_out (no question, or no passage with text), queries, passages, and
        pairs of query and positive.

    Raises:
        InputError: a row that cannot be read, or not one pair.
    """
    (folder / SCRATCH).mkdir(exist_ok=True)
    asked, answering, others, left_out = array("q"), array("q"), array("q"), 0
    # positives that are not stored as such, and their rows
    further, further_of = array("q"), array("q")
    with (
        open_strings(folder / SCRATCH / "queries.arrow", "text") as queries,
        open_strings(folder / SCRATCH / "passages.arrow", "title", "text") as passages,
    ):
        for row in tqdm(rows, desc="pairs", unit="row"):
            positive = next((context for context in row.positives if context.text.strip()), None)
            if not row.question.strip() or positive is None:
                left_out += 1
                continue
            negatives = [
                context
                for context in row.negatives
                if context.text.strip() and context not in row.positives
            ][:depth]
            queries.write({"text": row.question.strip()})
            asked.append(text_hash(row.question.strip().casefold()))
            further.extend(text_hash(*context) for context in row.positives if context != positive)
            further_of.extend([len(asked) - 1] * (len(further) - len(further_of)))
            for context in (positive, *negatives):
                passages.write(context._asdict())
                answering.append(text_hash(*context))
                others.append(len(asked) - 1)
        queries.finalize()
        passages.finalize()
    if not asked:
        fix = "Look at the file of pairs, or take a collection whose passages have titles."
        raise InputError("no row with a question and a passage", where=folder, fix=fix)
    query_rows, first_queries = distinct_rows(np.frombuffer(asked, np.int64))
    passage_rows, first_passages = distinct_rows(np.frombuffer(answering, np.int64))
    stored = (
        ("queries", first_queries, ("text",)),
        ("passages", first_passages, ("title", "text")),
    )
    for name, first, columns in stored:
        strings = Dataset.from_file(str(folder / SCRATCH / f"{name}.arrow")).select(first)
        TokenStore.build(strings, tokenizer, folder / name, columns=columns)
    of_row = np.frombuffer(others, np.int64)
    is_positive = np.diff(of_row, prepend=-1) > 0  # the first passage of each row
    owners = query_rows[of_row]
    # Another row of a question may list as negative what this one gives as a further positive.
    known = pd.Index(np.frombuffer(answering, np.int64)[first_passages]).get_indexer(
        np.array(further, np.int64)
    )
    right = (query_rows[np.array(further_of, np.int64)] * len(first_passages) + known)[known >= 0]
    is_negative = ~is_positive & ~np.isin(owners * len(first_passages) + passage_rows, right)
    examples = group_examples(
        owners[is_positive],
        passage_rows[is_positive],
        owners[is_negative],
        passage_rows[is_negative],
        passages=len(first_passages),
        depth=depth,
    )
    examples.save(folder / "examples")
    counts = {"rows": len(asked) + left_out, "left_out": left_out, "queries": len(examples)}
    return counts | {"passages": len(first_passages), "pairs": len(examples.positives)}


# What is read -------------------------------------------------------------------------------------


def pairs_of(path: Path, limit: int | None = None, seed: int = 0) -> Iterator[PairRow]:
    """The rows of a file of any of the formats, or a random part of them.

    Args:
        path: ends in .tsv, .json or .jsonl, with or without .gz.
        limit: number of rows to draw; None takes all. A larger limit contains a smaller one.
        seed: of the draw.

    Raises:
        InputError: no such file, or a row that cannot be read (names file and line).

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "pairs.tsv"
        >>> _ = path.write_text("who wrote it?\\tIt was written by nobody.\\n")
        >>> [row.question for row in pairs_of(path)]
        ['who wrote it?']
    """
    wanted = None
    if limit is not None:
        drawn = np.random.default_rng(seed).permutation(sum(1 for _ in _raw_rows(path)))[:limit]
        wanted = np.bincount(drawn, minlength=1) > 0
    for row, (where, raw) in enumerate(_raw_rows(path)):
        if wanted is None or (row < len(wanted) and wanted[row]):
            yield _parse(raw, path, where)


def _raw_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """The place that errors name, and the unparsed row: a line as text, or an item of a JSON array
    as it is.
    """
    if not path.is_file():
        raise InputError("no such file", where=path, fix="Check the path.")
    lines = enumerate(read_lines(path), start=1)
    begin = next(((number, *line) for number, line in lines if line[1].strip()), None)
    if begin is None:
        return
    number, where, first = begin
    if first.lstrip().startswith("[") and not _is_table(path):
        yield from _array_items(path, number, first, (line for _, (_, line) in lines))
    else:
        yield where, first
        yield from ((where, line) for _, (where, line) in lines if line.strip())


def _is_table(path: Path) -> bool:
    return re.search(r"\.tsv(\.gz)?$", path.name) is not None


def _array_items(
    path: Path, line: int, text: str, lines: Iterator[str]
) -> Iterator[tuple[str, Any]]:
    """The items, with their places, of the one array that begins in a line and goes on in others
    (DPR's training data).
    """
    decoder, place = json.JSONDecoder(), text.index("[") + 1
    while True:
        start = SPACE.match(text, place).end()  # type: ignore[union-attr]
        line, place = line + text.count("\n", place, start), start
        if text[place : place + 1] == "]":
            return
        try:
            item, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            # Mostly the item only goes on in lines not read yet: read as much again, so that no
            # text is tried often.
            cut = isinstance(error, json.JSONDecodeError) and len(text) - place < LONGEST
            if (
                more := "".join(
                    f"\n{piece}" for piece in islice(lines, max(CHUNK, text.count("\n", place)))
                )
                if cut
                else ""
            ):
                text, place = text[place:] + more, 0
                continue
            problem = (
                "the file ends inside the array" if place == len(text) else f"not JSON ({error})"
            )
            at = line + text.count("\n", place, getattr(error, "pos", place))
            raise InputError(
                problem, where=f"{path} line {at}", fix="Copy the file again, or mend it."
            ) from None
        yield f"{path} line {line}", item
        line, place = line + text.count("\n", place, end), end


def _parse(raw: Any, path: Path, where: str) -> PairRow:
    """Turn an unparsed row into a question with its passages; `InputError` names file and line."""
    if isinstance(raw, str) and _is_table(path):
        cells = raw.split("\t")
        if len(cells) != 2:
            raise InputError(
                f"{len(cells)} columns instead of 2", where=where, fix="Give question and passage."
            )
        return PairRow(cells[0], (Context("", cells[1]),))
    record = record_of(raw, where)
    if "positive_ctxs" in record:
        positives = _contexts(record, "positive_ctxs", where)
        return PairRow(
            _joined(record, "question", where),
            positives,
            _contexts(record, "hard_negative_ctxs", where),
        )
    if "ctxs" in record:
        contexts = _contexts(record, "ctxs", where)
        answering = [bool(context.get("has_answer")) for context in record["ctxs"] or []]
        if contexts and not any(answering):
            answering[0] = True
        kinds = list(zip(contexts, answering, strict=True))
        split = (tuple(kind for kind, has in kinds if has is wanted) for wanted in (True, False))
        return PairRow(_joined(record, "question", where), *split)
    for left, right in PAIRS:
        if left in record and right in record:
            passages = tuple(Context("", text) for text in _texts(record, right, where))
            return PairRow(_joined(record, left, where), passages)
    problem = f"no known kind of row (it has {', '.join(record) or 'nothing'})"
    raise InputError(problem, where=where, fix=f"Known: {FORMATS}.")


def _contexts(record: Record, name: str, where: str) -> tuple[Context, ...]:
    items = record.get(name) or []
    if not isinstance(items, list) or not all(isinstance(context, dict) for context in items):
        fix = "Give objects with title and text."
        raise InputError(f"field {name} is not a list of passages", where=where, fix=fix)
    return tuple(
        Context(_text(item, "title", where, default=""), _text(item, "text", where))
        for item in items
    )


def _joined(record: Record, name: str, where: str) -> str:
    """A text, or the turns of a dialogue with a blank between."""
    return " ".join(_texts(record, name, where))


def _texts(record: Record, name: str, where: str) -> list[str]:
    value = record.get(name)
    return [
        _text({name: text}, name, where) for text in (value if isinstance(value, list) else [value])
    ]


def _text(record: Record, name: str, where: str, default: str | None = None) -> str:
    value = field_of(record, name, str, where, default)
    if SURROGATE.search(value):
        problem = f"field {name} holds half of a surrogate pair, which no UTF-8 file can hold"
        raise InputError(problem, where=where, fix="Write the whole character.")
    return value
