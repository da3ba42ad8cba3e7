"""Dialogues for response selection: a context, the right next utterance, and the candidates it
stands among.

DPR-PAQ, sections 3.2.2 and 3.3: ConvAI2 (20 candidates), DSTC7 (100), Ubuntu v2 (10); here also any
folder with `pairs/<split>.jsonl`. One reader per format:

- `pairs/<split>.jsonl[.gz]`: one object per line with `context` (turns), `response` and
  `candidates`.
- ConvAI2 (ParlAI's text files): numbered lines that start again at 1 with each dialogue; persona
  lines first, then `utterance TAB response TAB TAB candidate|candidate|...`. The persona counts as
  context (DPR-PAQ, section 3.3).
- DSTC7 track 1, subtask 1: a JSON list; the test set's answers come in a file of their own. An
  answer that is not among the 100 options is added to them.
- Ubuntu v2: CSV with one right and nine wrong utterances a row.

Where no published file is at hand, `made_dialogues` and `made_sentence_pairs` write stand-ins from
a collection: the pages of DPR-PAQ's Table 3 and MASTER's Table 7 run with them, but methods cannot
be compared. Page of the book: ideas/evaluation.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dr_lib.collections.beir import field_of, read_lines, read_records, read_table
from dr_lib.collections.collection import Collection, rows_of
from dr_lib.errors import InputError
from dr_lib.files import read_json, write_text
from dr_lib.places import cache_root, find_data

SILENCE = "__SILENCE__"
PERSONA = ("your persona:", "partner's persona:")
TURN_MARKS = ("__eou__", "__eot__")
DSTC7_FIX = "Use the published files, for test with ubuntu_responses_subtask_1.tsv beside them."
MADE_CANDIDATES = 20  # responses shown with a made context, as many as in ConvAI2


class Exchange(NamedTuple):
    """A context (turns, oldest first) and the next utterance; candidates hold the response and
    wrong ones.
    """

    context: tuple[str, ...]
    response: str
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class CandidateSet:
    """Contexts, each with its own candidates, ready to encode: every distinct text stands once.

    Attributes:
        name: the set's name.
        contexts: one text a context, its turns joined, oldest first.
        texts: the distinct candidates of all contexts.
        candidates: `[contexts, most]` int64, rows of `texts`; -1 fills up a context with fewer.
        correct: `[contexts]` int64, row of the right response in `texts`; it is among the context's
            candidates.

    Example:
        >>> made = CandidateSet.of(
        ...     "tiny", [Exchange(("Hi.", "How are you?"), "Fine.", ("No.", "Fine."))]
        ... )
        >>> made.contexts, made.texts, made.candidates.tolist(), made.correct.tolist()
        (['Hi. How are you?'], ['No.', 'Fine.'], [[0, 1]], [1])
    """

    name: str
    contexts: list[str]
    texts: list[str]
    candidates: np.ndarray
    correct: np.ndarray

    def __len__(self) -> int:
        return len(self.contexts)

    @classmethod
    def of(cls, name: str, exchanges: Iterable[Exchange]) -> "CandidateSet":
        """Collect exchanges that have candidates.

        Args:
            name: the set's name.
            exchanges: in file order.

        Raises:
            InputError: no exchange, or one whose response is not among its candidates.
        """
        rows: dict[str, int] = {}
        contexts, candidates, correct = [], [], []
        for number, exchange in enumerate(exchanges):
            if exchange.response not in exchange.candidates:
                fix = "Give the split that has candidates, or add the response to them."
                raise InputError(
                    "the response is not among the candidates",
                    where=f"{name} row {number}",
                    fix=fix,
                )
            contexts.append(" ".join(exchange.context))
            candidates.append([rows.setdefault(text, len(rows)) for text in exchange.candidates])
            correct.append(rows[exchange.response])
        if not contexts:
            raise InputError(
                "no dialogue in it", where=name, fix="Give at least one context with candidates."
            )
        table = np.full((len(candidates), max(map(len, candidates))), -1, np.int64)
        for place, line in enumerate(candidates):
            table[place, : len(line)] = line
        return cls(name, contexts, list(rows), table, np.array(correct))


def load_candidates(
    folder: str | Path, split: str = "dev", *, limit: int | None = None
) -> CandidateSet:
    """Open a dialogue data set for response selection.

    Args:
        folder: a path, or the name of a folder under ``DR_DATA``: with `pairs/<split>.jsonl[.gz]`,
            or with the files of ConvAI2, DSTC7 (track 1, subtask 1) or Ubuntu v2 as published.
        split: "dev" or "test".
        limit: only the first so many contexts.

    Raises:
        InputError: no such folder, no file for this split, a broken line, with its number, or a
            response that is not among its candidates.
    """
    found = read_exchanges(dialogue_file(folder, split))
    return CandidateSet.of(f"{Path(folder).name}/{split}", islice(found, limit))


def dialogue_file(folder: str | Path, split: str = "dev") -> Path:
    """The file that a split is read from; `InputError` where there is none."""
    place = find_data(folder)
    if place is None or not place.is_dir():
        fix = "Give the path of a folder, or its name under DR_DATA."
        raise InputError(f"there is no folder {str(folder)!r}", where="dialogue", fix=fix)
    valid = "valid" if split == "dev" else split
    names = [f"pairs/{split}.jsonl.gz", f"pairs/{split}.jsonl", f"{valid}_self_original.txt"]
    names += [f"ubuntu_{split}_subtask_1.json", f"{valid}.csv"]
    for name in names:
        if (place / name).is_file():
            return place / name
    raise InputError(
        f"no dialogues of the split {split!r}", where=place, fix=f"Looked for {', '.join(names)}."
    )


def dstc7_answers(path: Path) -> Path | None:
    """The file with the right responses beside the dialogues of DSTC7's test split; None beside any
    other file.
    """
    beside = path.with_name("ubuntu_responses_subtask_1.tsv")
    return beside if "_test_" in path.name and path.suffix == ".json" and beside.is_file() else None


def read_exchanges(path: Path) -> Iterator[Exchange]:
    """Exchanges of a file, in its order; a broken line raises `InputError` with its number."""
    readers = {".txt": _read_convai2, ".json": _read_dstc7, ".csv": _read_ubuntu}
    return readers.get(path.suffix, _read_pairs)(path)


# One reader a format ------------------------------------------------------------------------------


def _read_pairs(path: Path) -> Iterator[Exchange]:
    for where, record in read_records(path):
        context, candidates = (
            field_of(record, "context", list, where),
            field_of(record, "candidates", list, where, []),
        )
        if not all(isinstance(text, str) for text in (*context, *candidates)):
            raise InputError(
                "context and candidates are lists of texts", where=where, fix="Correct the line."
            )
        yield Exchange(tuple(context), field_of(record, "response", str, where), tuple(candidates))


def _read_convai2(path: Path) -> Iterator[Exchange]:
    """Each response has all turns before it, and the persona, as context."""
    persona: list[str] = []
    turns: list[str] = []
    for where, line in read_lines(path):
        place, _, text = line.partition(" ")
        if not line.strip():
            continue
        if not place.isdigit():
            raise InputError("the line has no number", where=where, fix="Use the published file.")
        if place == "1":
            persona, turns = [], []
        if text.startswith(PERSONA):
            persona.append(text)
            continue
        cells = text.split("\t")
        if len(cells) < 2:
            raise InputError("no response behind a tab", where=where, fix="Use the published file.")
        turns += [] if cells[0] == SILENCE else [cells[0]]
        candidates = tuple(cells[-1].split("|")) if len(cells) > 2 and cells[-1] else ()
        yield Exchange((*persona, *turns), cells[1], candidates)
        turns.append(cells[1])


def _read_dstc7(path: Path) -> Iterator[Exchange]:
    answers = {}
    if beside := dstc7_answers(path):
        cells = (line.split("\t") for _, line in read_lines(beside))
        answers = {one[0]: one[2] for one in cells if len(one) >= 3}
    dialogues = read_json(path)
    if not isinstance(dialogues, list):
        raise InputError("a list of dialogues is expected", where=path, fix=DSTC7_FIX)
    for place, dialogue in enumerate(dialogues):
        try:
            context = tuple(turn["utterance"] for turn in dialogue["messages-so-far"])
            options = tuple(option["utterance"] for option in dialogue["options-for-next"])
            given = [
                option["utterance"] for option in dialogue.get("options-for-correct-answers", ())
            ]
            response = (given or [answers[str(dialogue["example-id"])]])[0]
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"dialogue {place} lacks {error}", where=path, fix=DSTC7_FIX) from None
        if not all(isinstance(text, str) for text in (*context, response, *options)):
            raise InputError(
                f"dialogue {place} has an utterance that is no text", where=path, fix=DSTC7_FIX
            )
        yield Exchange(context, response, options if response in options else (response, *options))


def _read_ubuntu(path: Path) -> Iterator[Exchange]:
    """The context is one text, its turns between marks."""
    for where, row in read_table(path):
        wrong = [_plain(cell) for name, cell in row.items() if name.startswith("Distractor_")]
        if not wrong or not {"Context", "Ground Truth Utterance"} <= row.keys():
            raise InputError(
                f"columns {', '.join(row)}",
                where=where,
                fix="Use the published files of Ubuntu v2.",
            )
        turns = tuple(
            turn for part in row["Context"].split(TURN_MARKS[1]) if (turn := _plain(part))
        )
        right = _plain(row["Ground Truth Utterance"])
        yield Exchange(turns, right, (right, *wrong))


def _plain(text: str) -> str:
    """A text without the marks of utterance and turn."""
    for mark in TURN_MARKS:
        text = text.replace(mark, " ")
    return " ".join(text.split())


# Stand-ins made from a collection -----------------------------------------------------------------


def made_dialogues(collection: Collection, *, words: int = 15, folder: Path | None = None) -> Path:
    """Write `pairs/train.jsonl` and `pairs/test.jsonl`: a query is the context, its passage's
    beginning the response.

    The candidates of a test context are its own response and the next nineteen other ones, in the
    order of the queries.

    Args:
        collection: has judgements in the splits train and test.
        words: length of a response, in words.
        folder: where to write; default a folder of the cache.

    Returns:
        The folder, as `load_candidates` and a recipe's `evaluation.dialogue` take it.

    Raises:
        InputError: a split is missing, or a query has no relevant passage.
    """
    folder = folder or cache_root() / "made" / collection.digest[:12] / "made-dialogues"
    for split in ("train", "test"):
        pairs = [
            (query, " ".join(text.split()[:words]))
            for query, text in _with_passages(collection, split)
        ]
        lines, (responses, places) = [], _distinct(pairs)
        shown = min(MADE_CANDIDATES, len(responses)) if split == "test" else 0
        around = responses + responses[:shown]
        for query, response in pairs:
            candidates = around[places[response] : places[response] + shown]
            lines.append(
                json.dumps({"context": [query], "response": response, "candidates": candidates})
                + "\n"
            )
        write_text(folder / "pairs" / f"{split}.jsonl", "".join(lines))
    return folder


def made_sentence_pairs(
    collection: Collection, *, words: int = 12, folder: Path | None = None
) -> Path:
    """Write `train.tsv` and `dev.tsv` in MRPC's format: do a query and the beginning of a passage
    belong together?

    Each query stands twice: with its own passage (1), and with the one before it, of another query
    (0). Of several queries about one passage each has the same other one.

    Args:
        collection: has judgements in the splits train and dev.
        words: length of the second sentence, in words.
        folder: where to write; default a folder of the cache.

    Returns:
        The folder, as a recipe's `evaluation.nlu` takes it for the task "mrpc".

    Raises:
        InputError: a split is missing, a query has no relevant passage, or all passages of a split
            begin alike.
    """
    folder = folder or cache_root() / "made" / collection.digest[:12] / "made-pairs"
    for split in ("train", "dev"):
        pairs = [
            (" ".join(query.split()), " ".join(text.split()[:words]))
            for query, text in _with_passages(collection, split)
        ]
        begun, places = _distinct(pairs)
        if len(begun) < 2:
            fix = "Give a collection with several passages, or more words of each."
            raise InputError("no two passages begin differently", where=f"split {split}", fix=fix)
        lines = ["sentence1\tsentence2\tlabel"]
        for query, text in pairs:
            lines += [f"{query}\t{text}\t1", f"{query}\t{begun[places[text] - 1]}\t0"]
        write_text(folder / f"{split}.tsv", "\n".join(lines) + "\n")
    return folder


def _distinct(pairs: list[tuple[str, str]]) -> tuple[list[str], dict[str, int]]:
    """The distinct second texts and the place of each: neighbouring queries often ask about one
    passage.
    """
    texts = list(dict.fromkeys(text for _, text in pairs))
    return texts, {text: place for place, text in enumerate(texts)}


def _with_passages(collection: Collection, split: str) -> list[tuple[str, str]]:
    """The queries of a split, each with the text of its first relevant passage."""
    queries, judged = collection.queries(split), collection.qrels(split)
    relevant = []
    for query in queries["id"][:]:
        if not (ids := [id_ for id_, grade in judged[query].items() if grade > 0]):
            fix = "Give a collection in which every judged query has a relevant passage."
            raise InputError(
                f"the query {query!r} has no relevant passage", where=f"split {split}", fix=fix
            )
        relevant.append(ids[0])
    passages = collection.passages.select(rows_of(relevant, collection.passages["id"]))
    return list(zip(queries["text"][:], passages["text"][:], strict=True))
