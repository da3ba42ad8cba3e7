"""Round trips: is a generated question good enough to lead back to the passage it was made from?

PAQ (Lewis et al. 2021) answers every question again and keeps it where the answer is the one it was made for:
*locally*, from its own passage alone, or *globally*, from whatever a retriever finds in all of Wikipedia. The DPR-PAQ
paper's questions went through the global filter. Here questions have no answer and there is no reader, so the passage
takes the answer's place:

- global: the retriever brings the passage back among the first `top_k` of the whole collection;
- local: the same among the passages of its own document. A document of one passage leaves BM25 to ask for a word in
  common, and a dense retriever nothing at all. This is weaker than a reader: it asks whether the question is about this
  passage, not whether the passage answers it.

Page: ideas/generators.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from datasets import Dataset
from tqdm.auto import tqdm

from dr_lib.errors import InputError
from dr_lib.retrieval import Bm25, Ranking, exact_scores, search
from dr_lib.tokens import concat_runs

Filter = Literal["none", "local", "global"]
AT_ONCE = 16_384
PAIRS_AT_ONCE = 1 << 22


class Retriever(Protocol):
    """Whoever is asked the questions again."""

    def best(self, questions: np.ndarray, k: int, progress: bool = False) -> Ranking:
        """The `k` first passages of some questions, with a bar if `progress`."""
        ...

    def scores(self, questions: np.ndarray, owners: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Score `[pairs]` of passage `rows` for question `questions[owners]`; `owners` is ascending."""
        ...


@dataclass(frozen=True)
class ByWords:
    """BM25 over the collection.

    Attributes:
        index: of the passages.
        texts: all questions, column text.
    """

    index: Bm25
    texts: Dataset

    def best(self, questions: np.ndarray, k: int, progress: bool = False) -> Ranking:
        """See `Retriever`; a passage without a word of the question is never found."""
        return self.index.search(self.texts[questions]["text"], k, progress=progress)

    def scores(self, questions: np.ndarray, owners: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """See `Retriever`; minus infinity where no word is shared."""
        found = self.index.pair_scores(self.texts[questions]["text"], owners, rows)
        return np.where(found > 0, found, -np.inf).astype(np.float32)


@dataclass(frozen=True)
class ByVectors:
    """A dense retriever by its vectors.

    Attributes:
        questions: `[questions, hidden]` float.
        passages: `[passages, hidden]` float.
        device: where products are computed.
    """

    questions: np.ndarray
    passages: np.ndarray
    device: torch.device | str = "cpu"

    def best(self, questions: np.ndarray, k: int, progress: bool = False) -> Ranking:
        """See `Retriever`."""
        asked = np.asarray(self.questions[questions])
        scores, rows = search(asked, self.passages, k, device=self.device, progress=progress)
        return Ranking([str(row) for row in range(len(questions))], rows, scores)

    def scores(self, questions: np.ndarray, owners: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """See `Retriever`."""
        asked = np.asarray(self.questions[questions], dtype=np.float32)
        return exact_scores(asked[owners], self.passages, rows[:, None])[:, 0]


def consistent(
    retriever: Retriever | None,
    sources: np.ndarray,
    documents: np.ndarray,
    *,
    how: Filter = "global",
    top_k: int = 1,
    progress: bool = True,
) -> np.ndarray:
    """Which questions lead back to their passage.

    Args:
        retriever: who is asked; None where nobody is.
        sources: `[questions]` int64, the passage that each was made from.
        documents: `[passages]` int64, the document of each passage, for the local filter.
        how: "global", "local" or "none" (keeps all).
        top_k: the passage must be among so many.
        progress: show a bar.

    Returns:
        `[questions]` bool.

    Raises:
        InputError: an unknown filter or a `top_k` below 1.

    Example:
        >>> from datasets import Dataset
        >>> texts = Dataset.from_dict({"title": ["", ""], "text": ["a red fox", "two foxes and a dog"]})
        >>> asked = Dataset.from_dict({"text": ["where is the fox?", "whose dog?", "red or dead?"]})
        >>> retriever = ByWords(Bm25.build(texts, progress=False), asked)
        >>> consistent(retriever, np.array([1, 1, 1]), np.array([0, 1]), progress=False).tolist()
        [False, True, False]
    """
    if how not in ("none", "local", "global"):
        raise InputError(f"unknown value {how!r}", where="filter", fix="Choose none, local or global.")
    if top_k < 1:
        raise InputError(f"{top_k} is below 1", where="top_k", fix="Give 1 or more.")
    kept = np.ones(len(sources), bool)
    if how == "none" or retriever is None:
        return kept
    members = Members(documents)
    with tqdm(total=len(sources), desc=f"{how} filter", unit="question", disable=not progress) as bar:
        for start in range(0, len(sources), AT_ONCE):
            asked = np.arange(start, min(start + AT_ONCE, len(sources)))
            own = sources[asked]
            if how == "global":
                kept[asked] = (retriever.best(asked, top_k).rows == own[:, None]).any(axis=1)
            else:
                kept[asked] = _places(retriever, asked, own, members) < top_k
            bar.update(len(asked))
    return kept


class Members:
    """The passages of each document.

    Args:
        documents: `[passages]` int64, numbers of documents from 0.
    """

    def __init__(self, documents: np.ndarray):
        self.documents = documents
        self.order = np.argsort(documents, kind="stable")
        self.counts = np.bincount(documents)
        self.starts = np.cumsum(self.counts) - self.counts

    def of(self, passages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All passages of the documents of some passages, end to end, and how many for each."""
        chosen = self.documents[passages]
        return concat_runs(self.order, self.starts[chosen], self.counts[chosen]), self.counts[chosen]


def _places(retriever: Retriever, asked: np.ndarray, sources: np.ndarray, members: Members) -> np.ndarray:
    """Place `[questions]` of each source in its document, from 0; past all places where it scores minus infinity."""
    places = np.empty(len(asked), np.int64)
    sizes = np.cumsum(members.counts[members.documents[sources]])
    start = 0
    while start < len(asked):
        stop = max(start + 1, int(np.searchsorted(sizes, (sizes[start - 1] if start else 0) + PAIRS_AT_ONCE, "right")))
        own = sources[start:stop]
        rows, counts = members.of(own)
        owners = np.repeat(np.arange(len(own)), counts)
        scores = retriever.scores(asked[start:stop], owners, rows)
        of_source = scores[rows == own[owners]]
        ahead = (scores > of_source[owners]) | ((scores == of_source[owners]) & (rows < own[owners]))
        behind = np.bincount(owners, weights=ahead, minlength=len(own)).astype(np.int64)
        places[start:stop] = np.where(np.isfinite(of_source), behind, np.iinfo(np.int64).max)
        start = stop
    return places
