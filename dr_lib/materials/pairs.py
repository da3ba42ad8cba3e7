"""Pairs of a query and a passage that people wrote: files as others publish them, and titles with
their bodies.

Formats of a file, recognised by the content of a row (reference: dpr-scale's loaders and DPR's own
files):

- DPR: `question`, `positive_ctxs`, `hard_negative_ctxs` (PAQ as published for DPR-PAQ, NQ,
  TriviaQA);
- pairs: `context` and `response` (dialogues; a list of turns is joined), `title` and `body`,
  `question` or `query` and `passage`.

A line is a JSON object; the file is plain or .gz. It is read line by line: in memory are 16 bytes
per text and nothing of the texts themselves. Page: ideas/generators.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
from dr_lib.words import SURROGATE

PAIRS = (("context", "response"), ("title", "body"), ("question", "passage"), ("query", "passage"))
FORMATS = "question with positive_ctxs, or one of " + ", ".join(f"{a}/{b}" for a, b in PAIRS)
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
    """`queries/`, `passages/`, `examples/` and `counts.json`: a collection's titles, each asking
    for its body, which stands there without it.

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
        path: a JSON object a line, with or without .gz.
        limit: number of rows to draw; None takes all. A larger limit contains a smaller one.
        seed: of the draw.

    Raises:
        InputError: no such file, or a row that cannot be read (names file and line).

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "pairs.jsonl"
        >>> _ = path.write_text('{"question": "who wrote it?", "passage": "Nobody."}\\n')
        >>> [row.question for row in pairs_of(path)]
        ['who wrote it?']
    """
    wanted = None
    if limit is not None:
        drawn = np.random.default_rng(seed).permutation(sum(1 for _ in _raw_rows(path)))[:limit]
        wanted = np.bincount(drawn, minlength=1) > 0
    for row, (where, raw) in enumerate(_raw_rows(path)):
        if wanted is None or (row < len(wanted) and wanted[row]):
            yield _parse(raw, where)


def _raw_rows(path: Path) -> Iterator[tuple[str, str]]:
    """The place that errors name, and the unparsed row."""
    if not path.is_file():
        raise InputError("no such file", where=path, fix="Check the path.")
    yield from ((where, line) for where, line in read_lines(path) if line.strip())


def _parse(raw: str, where: str) -> PairRow:
    """Turn an unparsed row into a question with its passages; `InputError` names file and line."""
    if raw.lstrip().startswith("["):
        fix = "Write an object a line: jq -c '.[]' FILE."
        raise InputError("an array in place of an object", where=where, fix=fix)
    record = record_of(raw, where)
    if "positive_ctxs" in record:
        positives = _contexts(record, "positive_ctxs", where)
        return PairRow(
            _joined(record, "question", where),
            positives,
            _contexts(record, "hard_negative_ctxs", where),
        )
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
