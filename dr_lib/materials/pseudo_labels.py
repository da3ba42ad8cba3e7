"""Pseudo-labels: a cross-encoder decides which retrieved passages are confidently relevant or
irrelevant.

PAIR section 3.3 (after RocketQA): a passage whose score is above s_pos is a positive, one below
s_neg a hard negative, one in between neither. Page: ideas/passage-centric.
"""

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import expit, softmax

from dr_lib.collections import Collection, query_text, read_records
from dr_lib.errors import InputError
from dr_lib.files import write_json
from dr_lib.materials.texts import Texts, distinct
from dr_lib.retrieval import Bm25, Ranking
from dr_lib.retrieval.ranking import also_in
from dr_lib.stages import stage
from dr_lib.tokens import load_tokenizer
from dr_lib.training import Examples
from dr_lib.training.examples import merge_duplicates, without_copies

Pool = Literal["train", "questions", "file"]
Probability = Literal["sigmoid", "softmax"]
PAPERS_THRESHOLDS = ((0.9, 0.1), (0.8, 0.2), (0.7, 0.3), (0.6, 0.4))
"""The rows of PAIR's Table 5."""


def probabilities(scores: np.ndarray, how: Probability) -> np.ndarray:
    """The logits of each query's candidates as probabilities in [0, 1].

    Args:
        scores: `[queries, depth]` float logits, -inf where a query has no candidate.
        how: "sigmoid" for each pair separately (PAIR, with a pointwise teacher); "softmax" over a
            query's candidates, for a listwise teacher, whose logits have no absolute level; with
            several relevant passages none is near 1.

    Returns:
        `[queries, depth]` float32, NaN where there is no candidate.

    Example:
        >>> probabilities(np.array([[0.0, 0.0, -np.inf]]), "softmax")
        array([[0.5, 0.5, nan]], dtype=float32)
    """
    present = np.isfinite(scores)
    if how == "sigmoid":
        probs = expit(scores)
    else:
        none = ~present.any(axis=1, keepdims=True)
        probs = softmax(np.where(none, 0.0, scores), axis=1)
    return np.where(present, probs, np.nan).astype(np.float32)


def label(
    rows: np.ndarray, probs: np.ndarray, *, passages: int, s_pos: float = 0.9, s_neg: float = 0.1
) -> Examples:
    """Queries with the positives and hard negatives of which the teacher is confident.

    A query without a positive is dropped; one without a negative is kept, and training draws random
    passages for it.

    Args:
        rows: `[queries, depth]` rows of the retrieved passages, -1 for none.
        probs: `[queries, depth]` from `probabilities`.
        s_pos, s_neg: thresholds in [0, 1], the first above the second.
        passages: number of passages in the collection.

    Returns:
        Examples whose `query_rows` count the rows given; negatives are in the order retrieved.

    Raises:
        InputError: no query with a positive.

    Example:
        >>> found = label(
        ...     np.array([[4, 2, 7], [1, 0, 5]]),
        ...     np.array([[0.95, 0.5, 0.0], [0.3, 0.2, 0.1]]),
        ...     passages=9,
        ... )
        >>> found.query_rows.tolist(), found.positives.tolist(), found.negatives.tolist()
        ([0], [4], [[7]])
    """
    positive, negative = judged(rows, probs, s_pos, s_neg)
    number = positive.sum(axis=1)
    usable = np.flatnonzero((number > 0) & (number < passages))
    if not len(usable):
        highest = np.nanmax(probs, initial=0.0)
        problem = f"no query has a passage scored above {s_pos} (the highest is {highest:.3f})"
        raise InputError(
            problem, where="s_pos", fix="Lower s_pos, or train the cross-encoder longer."
        )
    positive, negative, rows = positive[usable], negative[usable], np.asarray(rows)[usable]
    first = np.argsort(~negative, axis=1, kind="stable")[:, : negative.sum(axis=1).max()]
    negatives = np.where(
        np.take_along_axis(negative, first, 1), np.take_along_axis(rows, first, 1), -1
    )
    offsets = np.append(0, np.cumsum(number[usable]))
    return Examples(
        usable, rows[positive].astype(np.int64), offsets, negatives.astype(np.int32), passages
    )


def judged(
    rows: np.ndarray, probs: np.ndarray, s_pos: float, s_neg: float
) -> tuple[np.ndarray, np.ndarray]:
    """`[queries, depth]` bool twice: passages above `s_pos`, and passages below `s_neg`."""
    present = np.asarray(rows) >= 0
    return present & (probs > s_pos), present & (probs < s_neg)


def count_labels(
    rows: np.ndarray, probs: np.ndarray, s_pos: float, s_neg: float, known: Sequence[np.ndarray]
) -> dict[str, Any]:
    """How many labels two thresholds give, and how they treat passages that are known to be
    relevant.

    Args:
        rows, probs: as in `label`.
        s_pos, s_neg: thresholds.
        known: rows of the passages known to be relevant to each query, hidden from the labelling.
            Other positives need not be wrong: most relevant passages are unjudged.

    Returns:
        The thresholds; numbers of queries, of those with a positive, of those with a positive and
        no negative; numbers of positives and negatives; and how many known ones were retrieved,
        became positives, became negatives.
    """
    positive, negative = judged(rows, probs, s_pos, s_neg)
    relevant = also_in(rows, known)
    labelled = positive.any(axis=1)
    counts = {
        "queries": np.int64(len(rows)),
        "queries_kept": labelled.sum(),
        "kept_without_negative": (labelled & ~negative.any(axis=1)).sum(),
        "positives": positive[labelled].sum(),
        "negatives": negative[labelled].sum(),
        "known_retrieved": relevant.sum(),
        "known_positive": (relevant & positive).sum(),
        "known_negative": (relevant & negative).sum(),
    }
    return {
        "s_pos": s_pos,
        "s_neg": s_neg,
        **{name: int(number) for name, number in counts.items()},
    }


@stage()
def unlabelled_queries(
    folder: Path, file: Path, tokenizer: Path | str, collections: Sequence[Collection]
) -> None:
    """The queries of a file as `Texts` without passages; empty, repeated and held-out ones are
    dropped; `counts.json`.

    Held-out queries are those of splits other than train, since the file may be a collection's
    queries.jsonl.
    """
    counts, held = Counter(), set()
    for collection in collections:
        for split in [name for name in collection.splits if name != "train"]:
            held |= {text.strip().casefold() for text in collection.queries(split)["text"]}
    texts = distinct([text for _, text in read_records(file, query_text)], counts)
    unseen = [text for text in texts if text.casefold() not in held]
    Texts.write(folder, [[unseen]], load_tokenizer(tokenizer))
    left_out = {
        "empty": counts["empty"],
        "repeated": counts["repeated"],
        "held_out": len(texts) - len(unseen),
    }
    write_json(folder / "counts.json", {"read": counts["drawn"]} | left_out)


@stage()
def bm25_candidates(
    folder: Path, queries: Path, index: Path, collection: Collection, *, pool: Pool, depth: int
) -> None:
    """`ranking/`: the first passages of BM25 for each query of the pool."""
    if pool == "train":
        asked, itself = collection.queries("train"), collection.own_rows("train")
    else:
        asked, itself = Texts.open(queries).strings, None
    deep = depth + (itself is not None)
    ranking = Bm25.open(index / "index").search(asked["text"][:], deep)
    ranking.without(itself, depth).save(folder / "ranking")


@stage()
def pseudo_labels(
    folder: Path,
    queries: Path,
    candidates: Path,
    scores: Path,
    collection: Collection,
    *,
    pool: Pool,
    s_pos: float,
    s_neg: float,
    probability: Probability,
) -> None:
    """`queries/` and `examples/`; `counts.json` for the thresholds given and for those of PAIR's
    Table 5.

    Args:
        folder: where to write.
        queries: tokens of the pool (`store/`), with their texts beside them unless it is the
            training queries.
        candidates: what was retrieved for each (`ranking/`).
        scores: the cross-encoder's logits of these (`scores.npy`).
        collection: that was searched.
        pool: whose queries they are.
        s_pos, s_neg, probability: see `label` and `probabilities`.
    """
    rows = np.array(Ranking.open(candidates / "ranking").rows)
    probs = probabilities(np.load(scores / "scores.npy"), probability)
    # Hidden from the labelling: the judged passages of a training query, or the passage a question
    # was made from.
    if pool == "train":
        known = collection.relevant_rows("train")
    else:
        owners = Texts.open(queries).owners()[:, None]
        known = list(owners if pool == "questions" else owners[:, :0])
    table = [count_labels(rows, probs, *thresholds, known) for thresholds in PAPERS_THRESHOLDS]
    counts = count_labels(rows, probs, s_pos, s_neg, known)
    labels = label(rows, probs, s_pos=s_pos, s_neg=s_neg, passages=len(collection.passages))
    if pool == "train":
        labels = without_copies(labels, collection)
    else:
        labels = merge_duplicates(labels, collection.same_text)
    labels.save(folder / "examples")
    shutil.copytree(queries / "store", folder / "queries")
    write_json(folder / "counts.json", {"chosen": counts, "thresholds": table})


@stage()
def given_labels(folder: Path, queries: Path, examples: Path) -> None:
    """`queries/` and `examples/` of the labelled training queries, in the folder format of all
    pairs.
    """
    shutil.copytree(examples, folder / "examples")
    shutil.copytree(queries / "store", folder / "queries")
