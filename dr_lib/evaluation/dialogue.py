"""Response selection: a context's own candidates, ranked and measured (DPR-PAQ, Table 3).

A folder has `pairs/<split>.jsonl[.gz]`, one object a line with `context` (turns), `response` and
`candidates`; `dr-lib data` makes those of the book, and `dr_book.data.published_dialogues` those of
ConvAI2 (20 candidates), DSTC7 (100) and Ubuntu v2 (10). Each context is compared with its own
candidates only, so sets with different numbers of candidates are not comparable. Ties count against
the right candidate, so equal vectors get the worst rank; a candidate with the same text as the
right one is right, too. Contexts are truncated at the beginning (DPR-PAQ, section 3.3: 256 tokens).
The ranker is a dual encoder or a cross-encoder, whose results that table copies from Humeau et al.
2019. Page of the book: ideas/evaluation.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import datasets
import numpy as np
from pydantic import Field, PositiveInt

from dr_lib.collections import field_of, read_records
from dr_lib.errors import InputError
from dr_lib.evaluation.clusters import Clusters, TaskSettings
from dr_lib.evaluation.measures import Scores
from dr_lib.models import CrossEncoder, DenseEncoder, response_pairs
from dr_lib.places import find_file
from dr_lib.retrieval import encode, exact_scores, score_candidates
from dr_lib.stages import Data, stage
from dr_lib.tokens import Side, TokenStore
from dr_lib.training import machine

# What is ranked -----------------------------------------------------------------------------------


class Exchange(NamedTuple):
    """A context (turns, oldest first) and the next utterance; candidates include the response."""

    context: tuple[str, ...]
    response: str
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class CandidateSet:
    """Contexts, each with its own candidates, ready to encode: every distinct text is stored once.

    Attributes:
        name: the set's name.
        contexts: one text a context, its turns joined, oldest first.
        texts: the distinct candidates of all contexts.
        candidates: `[contexts, most]` int64, rows of `texts`, padded with -1.
        correct: `[contexts]` int64, row of the right response in `texts`, which is among the
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
        limit: only this many contexts, from the start.

    Raises:
        InputError: no such folder or split, an invalid line, with its number, or a response that is
            not among its candidates.
    """
    return candidates_in(dialogue_file(folder, split), limit)


def candidates_in(file: Path, limit: int | None = None) -> CandidateSet:
    """The contexts of a file, or the first `limit` of them, named after its folder and split."""
    name = f"{file.parent.parent.name}/{file.name.partition('.')[0]}"
    return CandidateSet.of(name, islice(read_exchanges(file), limit))


def dialogue_file(folder: str | Path, split: str = "dev") -> Path:
    """The file of a split; `InputError` if there is none."""
    return find_file(folder, f"pairs/{split}.jsonl")


def read_exchanges(path: Path) -> Iterator[Exchange]:
    """Exchanges of a file, in order; an invalid line raises `InputError` with its number."""
    for where, record in read_records(path):
        context = field_of(record, "context", list, where)
        candidates = field_of(record, "candidates", list, where, [])
        if not all(isinstance(text, str) for text in (*context, *candidates)):
            raise InputError(
                "context and candidates are lists of texts", where=where, fix="Correct the line."
            )
        yield Exchange(tuple(context), field_of(record, "response", str, where), tuple(candidates))


def dialogues_of(exchanges: Iterable[Exchange]) -> Clusters:
    """The dialogue of each row of a file, inferred from neighbouring rows.

    Example:
        >>> turns = (("Hi.", "Hello."), ("Hello.", "Bye."), ("So?", "Yes."))
        >>> talk = [Exchange((said,), answer) for said, answer in turns]
        >>> dialogues_of(talk).of
        (0, 0, 1)
    """
    names, turns, dialogue = [], set[str](), -1
    for exchange in exchanges:
        dialogue += not turns.intersection(exchange.context)
        turns = {*exchange.context, exchange.response}
        names.append(f"dialogue {dialogue}")
    return Clusters.named("dialogue", names)


class DialogueSettings(TaskSettings):
    """Rank each dialogue's own candidates with the retriever or a cross-encoder (DPR-PAQ, Table 3).

    Args:
        folder: as for `evaluation.load_candidates`, such as "topical-chat".
        split: "dev" or "test".
        limit: only this many contexts, from the start; None takes all.
        context_length: maximum context length in pieces (DPR-PAQ: 256).
        side: the side from which a long context is truncated.
    """

    unkeyed: ClassVar[frozenset[str]] = frozenset({"folder"})  # the stage gets the file itself
    longest: ClassVar[str] = "context_length"
    folder: str
    split: str = "test"
    limit: PositiveInt | None = None
    context_length: int = Field(256, gt=3)
    side: Side = "left"

    def arguments(self) -> dict[str, Any]:
        """The file of the dialogues."""
        return {"data": Data.file(dialogue_file(self.folder, self.split)), "settings": self}

    def clusters(self, rows: int) -> Clusters:
        """The dialogue of each context."""
        exchanges = read_exchanges(dialogue_file(self.folder, self.split))
        return dialogues_of(islice(exchanges, rows))


@stage(gpu=True)
def dialogue(folder: Path, retriever: Path, data: Path, *, settings: DialogueSettings) -> None:
    """`scores.json`: "R@1" and "MRR" of every context among its own candidates.

    Args:
        folder: where to write; tokens and vectors are in a folder that is deleted when the stage is
            finished.
        retriever: encodes the contexts, and the responses, truncated to its `passage_length`,
            unless it has a second encoder.
        data: the file of the dialogues.
        settings: how many of them, and how contexts are cut.

    Raises:
        InputError: a context longer than the encoder has positions, or encoders of different
            widths.
    """
    places = [path for path in (retriever / "model", retriever / "passage_model") if path.is_dir()]
    readers = [DenseEncoder.from_pretrained(place, device=machine.device()) for place in places]
    dialogues = candidates_in(data, settings.limit)
    work = folder / "checkpoint-vectors"
    stores = token_stores(dialogues, work, readers[0].tokenizer, readers[-1].tokenizer)
    vectors = []
    cuts = (
        {"max_length": settings.context_length, "side": settings.side},
        {"max_length": readers[-1].settings.passage_length},
    )
    for reader, store, name, cut in zip(
        (readers[0], readers[-1]), stores, ("contexts", "texts"), cuts, strict=True
    ):
        shape = {"title": "none", "normalise": reader.settings.normalise}
        vectors.append(encode(reader, store, work / f"{name}.npy", **shape, **cut))
    contexts, texts = vectors
    scores = exact_scores(
        np.ascontiguousarray(contexts, np.float32), texts, np.maximum(dialogues.candidates, 0)
    )
    save_ranks(dialogues, scores, folder)


@stage(gpu=True)
def cross_encoded_dialogue(
    folder: Path, scorer: Path, data: Path, *, settings: DialogueSettings
) -> None:
    """`scores.json`: "R@1" and "MRR" of every context by a cross-encoder, which reads it with each
    of its candidates.

    Args:
        folder: where to write; tokens are in a folder that is deleted when the stage is finished.
        scorer: the cross-encoder (`model/`).
        data: the file of the dialogues.
        settings: how many of them, and how contexts are cut; what a response keeps, see
            `models.response_pairs`.

    Raises:
        InputError: a score that is not finite.
    """
    encoder = CrossEncoder.from_pretrained(scorer / "model", device=machine.device())
    dialogues = candidates_in(data, settings.limit)
    work = folder / "checkpoint-tokens"
    stores = token_stores(dialogues, work, encoder.tokenizer, encoder.tokenizer)
    pairs = response_pairs(
        encoder, *stores, context_length=settings.context_length, side=settings.side
    )
    asked = np.arange(len(dialogues))
    scores = score_candidates(encoder, pairs, asked, dialogues.candidates, title="score candidates")
    save_ranks(dialogues, scores, folder)


def token_stores(dialogues: CandidateSet, work: Path, *tokenizers: Any) -> list[TokenStore]:
    """Token stores of contexts and responses for their tokenizers, under `work`."""
    sides = {"contexts": dialogues.contexts, "texts": dialogues.texts}
    return [
        TokenStore.build(
            datasets.Dataset.from_dict({"text": texts}), by, work / name, columns=("text",)
        )
        for (name, texts), by in zip(sides.items(), tokenizers, strict=True)
    ]


def save_ranks(dialogues: CandidateSet, scores: np.ndarray, folder: Path) -> None:
    """`scores.json`: "R@1" and "MRR" of every context, by the scores `[contexts, most]` of its
    candidates.
    """
    ranks = rank_candidates(scores, dialogues.candidates, dialogues.correct)
    Scores([str(row) for row in range(len(ranks))], {"R@1": ranks == 1, "MRR": 1 / ranks}).save(
        folder / "scores.json"
    )


def rank_candidates(scores: np.ndarray, candidates: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Rank of the right candidate among each context's own, from 1.

    Args:
        scores: `[contexts, most]` float32, of each candidate.
        candidates: `[contexts, most]` int64, rows of texts; -1 for none.
        correct: `[contexts]` int64, row of the right one, which is among the candidates.

    Returns:
        `[contexts]` int64: 1 plus the number of wrong candidates that score at least as high.

    Example:
        >>> rank_candidates(
        ...     np.array([[0.5, 0.5, 0.9]]), np.array([[1, 0, -1]]), np.array([0])
        ... ).tolist()
        [2]
    """
    right = candidates == correct[:, None]
    best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
    return 1 + ((candidates >= 0) & ~right & (scores >= best)).sum(axis=1)
