"""Dialogues for response selection: a context, the right next utterance, and the candidates it
stands among.

DPR-PAQ, sections 3.2.2 and 3.3. A folder has `pairs/<split>.jsonl[.gz]`, one object a line with
`context` (turns), `response` and `candidates`; `dr-lib data` makes those of the book, and
`dr_book.data.published_dialogues.published` those of ConvAI2 (20 candidates), DSTC7 (100) and
Ubuntu v2 (10).
Page of the book: ideas/evaluation.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dr_lib.collections.beir import field_of, read_records
from dr_lib.errors import InputError
from dr_lib.places import find_data


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
        folder: a path, or the name of a folder under ``DR_DATA``, with `pairs/<split>.jsonl[.gz]`.
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
    names = [f"pairs/{split}.jsonl.gz", f"pairs/{split}.jsonl"]
    for name in names:
        if (place / name).is_file():
            return place / name
    raise InputError(
        f"no dialogues of the split {split!r}", where=place, fix=f"Looked for {', '.join(names)}."
    )


def read_exchanges(path: Path) -> Iterator[Exchange]:
    """Exchanges of a file, in its order; a broken line raises `InputError` with its number."""
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
