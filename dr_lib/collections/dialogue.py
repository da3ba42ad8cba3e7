"""Dialogues for response selection: a context, the right next utterance, and the candidates it stands among.

DPR-PAQ, sections 3.2.2 and 3.3: ConvAI2 (20 candidates), DSTC7 (100), Ubuntu v2 (10); here also any folder with
`pairs/<split>.jsonl`. Formats: `dialogue_formats.py`. Book: ideas/evaluation.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dr_lib.collections.dialogue_formats import Exchange, find_file
from dr_lib.errors import InputError
from dr_lib.places import find_data


@dataclass(frozen=True, eq=False)
class CandidateSet:
    """Contexts, each with its own candidates, ready to encode: every distinct text stands once.

    Attributes:
        name: what the set is called.
        query_ids: one id a context, "0", "1", ... in file order.
        contexts: one text a context, its turns joined, oldest first.
        texts: the distinct candidates of all contexts.
        candidates: `[contexts, most]` int64, rows of `texts`; -1 fills up a context with fewer.
        correct: `[contexts]` int64, row of the right response in `texts`; it is among the context's candidates.

    Example:
        >>> made = CandidateSet.of("tiny", [Exchange(("Hi.", "How are you?"), "Fine.", ("No.", "Fine."))])
        >>> made.contexts, made.texts, made.candidates.tolist(), made.correct.tolist()
        (['Hi. How are you?'], ['No.', 'Fine.'], [[0, 1]], [1])
    """

    name: str
    query_ids: list[str]
    contexts: list[str]
    texts: list[str]
    candidates: np.ndarray
    correct: np.ndarray

    def __len__(self) -> int:
        return len(self.contexts)

    @classmethod
    def of(cls, name: str, exchanges: Iterable[Exchange], *, between: str = " ") -> "CandidateSet":
        """Collect exchanges that have candidates.

        Args:
            name: what to call the set.
            exchanges: in file order.
            between: what stands between two turns of a context.

        Raises:
            InputError: no exchange, or one whose response is not among its candidates.
        """
        rows: dict[str, int] = {}
        contexts, own, correct = [], [], []
        for number, exchange in enumerate(exchanges):
            if exchange.response not in exchange.candidates:
                fix = "Give the split that has candidates, or add the response to them."
                raise InputError("the response is not among the candidates", where=f"{name} row {number}", fix=fix)
            contexts.append(between.join(exchange.context))
            own.append([rows.setdefault(text, len(rows)) for text in exchange.candidates])
            correct.append(rows[exchange.response])
        if not contexts:
            raise InputError("no dialogue in it", where=name, fix="Give at least one context with candidates.")
        table = np.full((len(own), max(map(len, own))), -1, np.int64)
        for place, line in enumerate(own):
            table[place, : len(line)] = line
        return cls(name, [str(i) for i in range(len(own))], contexts, list(rows), table, np.array(correct))


def read_exchanges(folder: str | Path, split: str = "dev") -> Iterator[Exchange]:
    """Exchanges of a split, in file order; training splits come without candidates.

    Args:
        folder: a path, or the name of a folder under ``DR_DATA``, holding one of the known formats.
        split: "train", "dev" or "test".

    Raises:
        InputError: no such folder, no file for this split, or a broken line, with its number.
    """
    path, read = find_file(_place(folder), split)
    return read(path)


def dialogue_file(folder: str | Path, split: str = "dev") -> Path:
    """The file that a split is read from; `InputError` where there is none."""
    return find_file(_place(folder), split)[0]


def load_candidates(folder: str | Path, split: str = "dev", *, limit: int | None = None) -> CandidateSet:
    """Open a dialogue data set for response selection.

    Args:
        folder: a path, or the name of a folder under ``DR_DATA``: with `pairs/<split>.jsonl[.gz]`, or with the files
            of ConvAI2, DSTC7 (track 1, subtask 1) or Ubuntu v2 as published.
        split: "dev" or "test".
        limit: only the first so many contexts.

    Raises:
        InputError: as `read_exchanges`, or a response that is not among its candidates.
    """
    taken = (one for number, one in enumerate(read_exchanges(folder, split)) if limit is None or number < limit)
    return CandidateSet.of(f"{Path(folder).name}/{split}", taken)


def _place(folder: str | Path) -> Path:
    found = find_data(folder)
    if found is None or not found.is_dir():
        fix = "Give the path of a folder, or its name under DR_DATA."
        raise InputError(f"there is no folder {str(folder)!r}", where="dialogue", fix=fix)
    return found
