"""Response selection: rank a context's own candidates, and measure R@1 and MRR (DPR-PAQ, Table 3).

Each context is compared with its own candidates only (20 in ConvAI2, 100 in DSTC7, 10 in Ubuntu
v2), so values of sets with different numbers of candidates do not compare. Rules: a wrong candidate
with the score of the right one counts as above it, so equal vectors score the worst rank; a
candidate with the very text of the right one is right, too. Contexts are cut at their beginning
(DPR-PAQ, section 3.3: 256 tokens). A dual encoder ranks, or a cross-encoder, which that table
copies from Humeau et al. 2019. Page of the book: ideas/evaluation.
"""

from pathlib import Path
from typing import Any, ClassVar

import datasets
import numpy as np
from pydantic import Field

from dr_lib.collections import CandidateSet, load_candidates
from dr_lib.evaluation.measures import Scores
from dr_lib.models import CrossEncoder, DenseEncoder, response_pairs
from dr_lib.retrieval import encode, exact_scores, score_candidates
from dr_lib.settings import Settings
from dr_lib.stages import stage
from dr_lib.tokens import Side, TokenStore
from dr_lib.training import machine


class DialogueSettings(Settings):
    """Rank each dialogue's own candidates with the retriever or a cross-encoder (DPR-PAQ, Table 3).

    Args:
        folder: as `collections.load_candidates` takes it, such as "topical-chat".
        split: "dev" or "test".
        limit: only the first so many contexts; None takes all.
        context_length: longest context in pieces (DPR-PAQ: 256).
        side: the end that a long context loses.
    """

    unkeyed: ClassVar[frozenset[str]] = frozenset({"folder"})  # the stage gets the file itself
    folder: str
    split: str = "test"
    limit: int | None = Field(default=None, gt=0)
    context_length: int = Field(default=256, gt=3)
    side: Side = "left"


@stage(gpu=True)
def dialogue(folder: Path, retriever: Path, data: Path, *, settings: DialogueSettings) -> None:
    """`scores.json`: "R@1" and "MRR" of every context among its own candidates.

    Args:
        folder: where to write; tokens and vectors lie in a folder that is dropped once the stage is
            finished.
        retriever: of the contexts, and of the responses where it has no second encoder; these are
            cut to its `passage_length`.
        data: the file of the dialogues, for the key.
        settings: which dialogues, and how contexts are cut.

    Raises:
        InputError: a context longer than the encoder has positions, or encoders of different
            widths.
    """
    places = [one for one in (retriever / "model", retriever / "passage_model") if one.is_dir()]
    readers = [DenseEncoder.from_pretrained(place, device=machine.device()) for place in places]
    dialogues, work = (
        load_candidates(settings.folder, settings.split, limit=settings.limit),
        folder / "checkpoint-vectors",
    )
    stores = token_stores(dialogues, work, readers[0].tokenizer, readers[-1].tokenizer)
    vectors = []
    cuts = (
        {"max_length": settings.context_length, "side": settings.side},
        {"max_length": readers[-1].settings.passage_length},
    )
    for reader, store, name, cut in zip(
        (readers[0], readers[-1]), stores, ("contexts", "texts"), cuts, strict=True
    ):
        shape = {
            "title": "none",
            "normalise": reader.settings.normalise,
            "tokens_per_batch": machine.encoding_budget(),
        }
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
    """`scores.json`: the same of a cross-encoder, which reads each context with each of its
    candidates.

    Args:
        folder: where to write; tokens lie in a folder that is dropped once the stage is finished.
        scorer: the cross-encoder (`model/`).
        data: the file of the dialogues, for the key.
        settings: which dialogues, and how contexts are cut; what a response keeps, see
            `models.response_pairs`.

    Raises:
        InputError: a score that is not finite.
    """
    encoder = CrossEncoder.from_pretrained(scorer / "model", device=machine.device())
    dialogues, work = (
        load_candidates(settings.folder, settings.split, limit=settings.limit),
        folder / "checkpoint-tokens",
    )
    stores = token_stores(dialogues, work, encoder.tokenizer, encoder.tokenizer)
    pairs = response_pairs(
        encoder, *stores, context_length=settings.context_length, side=settings.side
    )
    asked, budget = np.arange(len(dialogues)), machine.encoding_budget()
    scores = score_candidates(
        encoder,
        pairs,
        asked,
        dialogues.candidates,
        tokens_per_batch=budget,
        title="score candidates",
    )
    save_ranks(dialogues, scores, folder)


def token_stores(dialogues: CandidateSet, work: Path, *tokenizers: Any) -> list[TokenStore]:
    """Contexts and responses in the tokens of their tokenizers, under `work`."""
    sides = zip(
        ("contexts", "texts"), (dialogues.contexts, dialogues.texts), tokenizers, strict=True
    )
    rows = (
        (name, datasets.Dataset.from_dict({"text": texts}), tokenizer)
        for name, texts, tokenizer in sides
    )
    return [
        TokenStore.build(own, by, work / name, columns=("text",), progress=False)
        for name, own, by in rows
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
        `[contexts]` int64: 1 and the number of wrong candidates that score as high or higher.

    Example:
        >>> rank_candidates(
        ...     np.array([[0.5, 0.5, 0.9]]), np.array([[1, 0, -1]]), np.array([0])
        ... ).tolist()
        [2]
    """
    right = candidates == correct[:, None]
    own = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
    return 1 + ((candidates >= 0) & ~right & (scores >= own)).sum(axis=1)
