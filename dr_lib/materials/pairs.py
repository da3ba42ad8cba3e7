"""Pairs of a query and a passage that people wrote: files as others publish them, and titles with their bodies.

Formats of a file, told apart by what a row holds (reference: dpr-scale's loaders and DPR's own files):

- DPR: `question`, `positive_ctxs`, `hard_negative_ctxs` (PAQ as published for DPR-PAQ, NQ, TriviaQA);
- DPR's results: `question`, `ctxs` with `has_answer`; where no passage has it, the first counts as positive;
- pairs: `context` and `response` (dialogues; a list of turns is joined), `title` and `body`, `question` and `passage`;
- a table of tabs: question, passage.

JSON comes as one object a line or as one array; all of it plain or .gz. A file is read row by row: in memory are 16
bytes a text and nothing of the texts themselves. Page: ideas/generators.
"""

import gzip
import json
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from datasets import Dataset
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast

from dr_lib.collections import Collection, read_lines
from dr_lib.errors import InputError
from dr_lib.files import write_json
from dr_lib.materials.texts import open_strings
from dr_lib.stages import stage
from dr_lib.tokens import TokenStore, load_tokenizer
from dr_lib.training import distinct_rows, group_examples, text_hash

PAIRS = (("context", "response"), ("title", "body"), ("question", "passage"), ("query", "passage"))
FORMATS = "question with positive_ctxs, question with ctxs, or one of " + ", ".join(f"{a}/{b}" for a, b in PAIRS)
CHUNK = 1 << 20
LONGEST = 1 << 27  # characters of one item of an array; what is longer is taken for a missing bracket
SPACE = re.compile(r"[\s,]*")
SURROGATE = re.compile("[\ud800-\udfff]")
SCRATCH = "checkpoint-pairs"  # dropped by the cache of stages when the stage is finished

Record = dict[str, Any]


# Stages -------------------------------------------------------------------------------------------------------------


@stage()
def file_pairs(folder: Path, file: Path, tokenizer: Path | str, *, limit: int | None = None, seed: int = 0, depth: int = 0) -> None:
    """`queries/`, `passages/`, `examples/` and `counts.json`: the pairs of a published file, or `limit` of them."""
    counts = store_pairs(pairs_of(file, limit, seed), folder, load_tokenizer(tokenizer), depth=depth)
    write_json(folder / "counts.json", counts)


@stage()
def title_pairs(folder: Path, collection: Collection, tokenizer: Path | str) -> None:
    """The same of a collection's titles, each asking for its body."""
    write_json(folder / "counts.json", store_titles(collection.passages, folder, load_tokenizer(tokenizer)))


# What is stored -----------------------------------------------------------------------------------------------------


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
    rows: Iterable[PairRow], folder: Path, tokenizer: PreTrainedTokenizerFast, *, depth: int = 1, progress: bool = True
) -> dict[str, int]:
    """Write `queries/`, `passages/` and `examples/`: each distinct text once, with all pairs that it is in.

    Of each row the first positive that has text is taken, as the released loader does. Rows with the same question are
    one query with the positives of all of them.

    Args:
        rows: read once.
        folder: an existing folder.
        tokenizer: of the model that will read them.
        depth: hard negatives of a query to keep (PAQ as published: 1 a row).
        progress: show bars.

    Returns:
        Counts: rows, left_out (without a question or a passage with text), queries, passages, and pairs of query and
        positive.

    Raises:
        InputError: a row that cannot be read, or not one pair.
    """
    (folder / SCRATCH).mkdir(exist_ok=True)
    asked, answering, others, left_out = array("q"), array("q"), array("q"), 0
    with (
        open_strings(folder / SCRATCH / "queries.arrow", "text") as queries,
        open_strings(folder / SCRATCH / "passages.arrow", "title", "text") as passages,
    ):
        for row in tqdm(rows, desc="pairs", unit="row", disable=not progress):
            positive = next((one for one in row.positives if one.text.strip()), None)
            if not row.question.strip() or positive is None:
                left_out += 1
                continue
            negatives = [one for one in row.negatives if one.text.strip() and one not in row.positives][:depth]
            queries.write({"text": row.question.strip()})
            asked.append(text_hash(row.question.strip().casefold()))
            for one in (positive, *negatives):
                passages.write(one._asdict())
                answering.append(text_hash(*one))
                others.append(len(asked) - 1)
        queries.finalize()
        passages.finalize()
    if not asked:
        raise InputError("no row with a question and a passage", where=folder, fix="Look at the file.")
    query_rows, first_queries = distinct_rows(np.frombuffer(asked, np.int64))
    passage_rows, first_passages = distinct_rows(np.frombuffer(answering, np.int64))
    stored = (("queries", first_queries, ("text",)), ("passages", first_passages, ("title", "text")))
    for name, first, columns in stored:
        strings = Dataset.from_file(str(folder / SCRATCH / f"{name}.arrow")).select(first)
        TokenStore.build(strings, tokenizer, folder / name, columns=columns, progress=progress)
    of_row = np.frombuffer(others, np.int64)
    is_positive = np.diff(of_row, prepend=-1) > 0  # the first passage of each row
    owners = query_rows[of_row]
    examples = group_examples(
        owners[is_positive],
        passage_rows[is_positive],
        owners[~is_positive],
        passage_rows[~is_positive],
        passages=len(first_passages),
        depth=depth,
    )
    examples.save(folder / "examples")
    counts = {"rows": len(asked) + left_out, "left_out": left_out, "queries": len(examples)}
    return counts | {"passages": len(first_passages), "pairs": len(examples.positives)}


def store_titles(passages: Dataset, folder: Path, tokenizer: PreTrainedTokenizerFast, *, progress: bool = True) -> dict[str, int]:
    """Write `queries/` (distinct titles), `passages/` (bodies without their titles) and `examples/`.

    Oguz et al. 2022 pre-train on 200 million posts and comments of Reddit (section 3.1.2); public files of it hold
    title and body. All bodies under one title are known positives of it, so none of them is ever its negative.

    Args:
        passages: columns title and text.
        folder: an existing folder.
        tokenizer: of the model that will read them.
        progress: show the tokenizer's bar.

    Returns:
        Counts: rows, left_out (no title or no body), queries, passages, pairs.

    Raises:
        InputError: fewer than two distinct titles, which leave nothing to tell apart.
    """
    titles, bodies = ([text.strip() for text in passages[name]] for name in ("title", "text"))
    rows = np.flatnonzero([bool(title and body) for title, body in zip(titles, bodies, strict=True)])
    hashes = (text_hash(titles[row].casefold()) for row in rows)
    query_of, first = distinct_rows(np.fromiter(hashes, np.int64, len(rows)))
    if len(first) < 2:
        fix = "Name a file of pairs (makers.reddit_pairs.file), or take a collection whose passages have titles."
        raise InputError(f"{len(first)} distinct titles", where="reddit_pairs", fix=fix)
    chosen = passages.select(rows)
    TokenStore.build(chosen.select(first), tokenizer, folder / "queries", columns=("title",), progress=progress)
    TokenStore.build(chosen, tokenizer, folder / "passages", columns=("text",), progress=progress)
    examples = group_examples(query_of, np.arange(len(rows)), passages=len(rows))
    examples.save(folder / "examples")
    counts = {"rows": len(titles), "left_out": len(titles) - len(rows), "queries": len(examples)}
    return counts | {"passages": len(rows), "pairs": len(rows)}


# What is read -------------------------------------------------------------------------------------------------------


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
    path = Path(path)
    wanted = None
    if limit is not None:
        drawn = np.random.default_rng(seed).permutation(sum(1 for _ in _raw_rows(path)))[:limit]
        wanted = np.bincount(drawn, minlength=1) > 0
    for row, (where, raw) in enumerate(_raw_rows(path)):
        if wanted is None or (row < len(wanted) and wanted[row]):
            yield _parse(raw, path, where)


def _raw_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """The place that errors name, and the unparsed row: a line as text, or an item of a JSON array as it is."""
    if not path.is_file():
        raise InputError("no such file", where=path, fix="Check the path.")
    if not _is_table(path) and _first_character(path) == "[":
        yield from _array_items(path)
        return
    yield from ((where, line) for where, line in read_lines(path) if line.strip())


def _is_table(path: Path) -> bool:
    return re.search(r"\.tsv(\.gz)?$", path.name) is not None


def _first_character(path: Path) -> str:
    """The first character of a file that is no white space; "" where there is none."""
    with _open_text(path) as file:
        while text := file.read(4096):
            if text.strip():
                return text.lstrip()[0]
    return ""


@contextmanager
def _open_text(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 file, plain or .gz; broken compression or encoding, whenever met, ends in `InputError`."""
    packed = path.suffix == ".gz"
    try:
        with gzip.open(path, "rt", encoding="utf-8-sig") if packed else path.open(encoding="utf-8-sig") as file:
            yield file
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 ({error.reason})", where=path, fix="Save the file as UTF-8.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        fix = "Copy or compress it again."
        raise InputError(f"the gzip file is cut off or damaged ({error})", where=path, fix=fix) from None


def _array_items(path: Path) -> Iterator[tuple[str, Any]]:
    """The items of the one array that a file of any size holds (DPR's training data), with their places."""
    decoder = json.JSONDecoder()
    with _open_text(path) as file:
        text = file.read(CHUNK)
        while "[" not in text:  # white space before it, however much
            text = file.read(CHUNK)
        place = text.index("[") + 1
        line = 1 + text.count("\n", 0, place)
        while True:
            start = SPACE.match(text, place).end()  # type: ignore[union-attr]
            line, place = line + text.count("\n", place, start), start
            if text[place : place + 1] == "]":
                return
            try:
                item, end = decoder.raw_decode(text, place)
            except (ValueError, RecursionError) as error:
                # Mostly the item only goes on behind what was read: read as much again, so that no text is tried often.
                cut = isinstance(error, json.JSONDecodeError) and len(text) - place < LONGEST
                if more := file.read(max(CHUNK, len(text) - place)) if cut else "":
                    text, place = text[place:] + more, 0
                    continue
                problem = "the file ends inside the array" if place == len(text) else f"not JSON ({error})"
                at = line + text.count("\n", place, getattr(error, "pos", place))
                raise InputError(problem, where=f"{path} line {at}", fix="Copy the file again, or mend it.") from None
            yield f"{path} line {line}", item
            line, place = line + text.count("\n", place, end), end


def _parse(raw: Any, path: Path, where: str) -> PairRow:
    """Turn an unparsed row into a question with its passages; `InputError` names file and line."""
    record = raw
    if isinstance(raw, str) and _is_table(path):
        cells = raw.split("\t")
        if len(cells) != 2:
            raise InputError(f"{len(cells)} columns instead of 2", where=where, fix="Give question and passage.")
        return PairRow(cells[0], (Context("", cells[1]),))
    if isinstance(raw, str):
        try:
            record = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a JSON object ({error})", where=where, fix="Write one object a line.") from None
    if not isinstance(record, dict):
        raise InputError("not a JSON object", where=where, fix="Write one object a row.")
    if "positive_ctxs" in record:
        positives = _contexts(record, "positive_ctxs", where)
        return PairRow(_joined(record, "question", where), positives, _contexts(record, "hard_negative_ctxs", where))
    if "ctxs" in record:
        contexts = _contexts(record, "ctxs", where)
        answering = [bool(context.get("has_answer")) for context in record["ctxs"] or []]
        if contexts and not any(answering):
            answering[0] = True
        kinds = list(zip(contexts, answering, strict=True))
        split = (tuple(one for one, has in kinds if has is wanted) for wanted in (True, False))
        return PairRow(_joined(record, "question", where), *split)
    for left, right in PAIRS:
        if left in record and right in record:
            passages = tuple(Context("", text) for text in _texts(record, right, where))
            return PairRow(_joined(record, left, where), passages)
    problem = f"no known kind of row (it has {', '.join(record) or 'nothing'})"
    raise InputError(problem, where=where, fix=f"Known: {FORMATS}.")


def _contexts(record: Record, name: str, where: str) -> tuple[Context, ...]:
    given = record.get(name) or []
    if not isinstance(given, list) or not all(isinstance(context, dict) for context in given):
        fix = "Give objects with title and text."
        raise InputError(f"field {name} is not a list of passages", where=where, fix=fix)
    return tuple(Context(_text(one, "title", where, needed=False), _text(one, "text", where)) for one in given)


def _joined(record: Record, name: str, where: str) -> str:
    """A text, or the turns of a dialogue with a blank between."""
    return " ".join(_texts(record, name, where))


def _texts(record: Record, name: str, where: str) -> list[str]:
    given = record.get(name)
    return [_text({name: one}, name, where) for one in (given if isinstance(given, list) else [given])]


def _text(record: Record, name: str, where: str, needed: bool = True) -> str:
    value = record.get(name)
    if value is None and not needed:
        return ""
    if not isinstance(value, str):
        problem = f"field {name} is missing" if value is None else f"field {name} is {type(value).__name__}, not a text"
        raise InputError(problem, where=where, fix=f"Give {name} as a text.")
    if SURROGATE.search(value):
        problem = f"field {name} holds half of a surrogate pair, which no UTF-8 file can hold"
        raise InputError(problem, where=where, fix="Write the whole character.")
    return value
