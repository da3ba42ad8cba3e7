"""Generated questions as training pairs: those that passed the filter, with their passages and hard negatives.

Oguz et al. 2022, section 3.1.1 and "Data preparation": the task is to find the passage that a question was made from.
Page: ideas/generators.
"""

from pathlib import Path

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.materials.round_trip import Retriever
from dr_lib.retrieval import mine_negatives
from dr_lib.tokens import TokenStore
from dr_lib.training import Examples, distinct_rows, group_examples, text_hash


def store_questions(
    questions: Dataset,
    sources: np.ndarray,
    kept: np.ndarray,
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
    *,
    passages: int,
    retriever: Retriever | None = None,
    depth: int = 20,
    seed: int = 0,
    progress: bool = True,
) -> dict[str, int]:
    """Write `queries/` and `examples/`; equal questions of several passages are one query with several positives.

    Args:
        questions: all questions, column text.
        sources: `[questions]` int64, the passage that each was made from.
        kept: `[questions]` bool, what the filter let through.
        folder: an existing folder.
        tokenizer: of the model that will read them.
        passages: passages of the collection.
        retriever: who finds hard negatives; None leaves them to training, which draws random passages.
        depth: hard negatives a query, random ones where the retriever finds fewer.
        seed: of the order of negatives.
        progress: show bars.

    Returns:
        Counts: filtered (questions that passed), queries (distinct ones), pairs, and passages that have a question.

    Raises:
        InputError: no question passed.
    """
    rows = np.flatnonzero(kept)
    if not len(rows):
        fix = "Use a weaker filter or a larger top_k, or train the question generator longer."
        raise InputError("no question passed the filter", where="filter", fix=fix)
    hashes = (text_hash(text.casefold()) for text in questions.select(rows)["text"])
    query_of, first = distinct_rows(np.fromiter(hashes, np.int64, len(rows)))
    found = group_examples(query_of, sources[rows], passages=passages)
    if retriever is not None and depth:
        found = with_negatives(found, retriever, rows[first], depth, seed, progress)
    TokenStore.build(questions.select(rows[first]), tokenizer, folder / "queries", columns=("text",), progress=progress)
    found.save(folder / "examples")
    covered = len(np.unique(found.positives))
    return {"filtered": len(rows), "queries": len(found), "pairs": len(found.positives), "passages": covered}


def with_negatives(
    examples: Examples, retriever: Retriever, asked: np.ndarray, depth: int, seed: int, progress: bool = True
) -> Examples:
    """The same examples with what a retriever finds for each query, its positives left out.

    Args:
        examples: their query i is the question `asked[i]` of the retriever.
        retriever: see `round_trip.Retriever`.
        asked: `[queries]` int64.
        depth: negatives a query.
        seed: of their order, and of random ones that fill up short lists.
        progress: show a bar.
    """
    ranking = retriever.best(asked, depth + int(examples.counts().max()), progress)
    positives = np.split(examples.positives, examples.offsets[1:-1])
    negatives = mine_negatives(
        ranking, positives, passages=examples.passages, depth=depth, random_negatives=0, seed=seed
    )
    return Examples(examples.query_rows, examples.positives, examples.offsets, negatives, examples.passages)
