"""PAIR's joint loss of pre-training: query-centric and passage-centric (PAIR, equation 6).

Page: ideas/passage-centric.
"""

from typing import Any

from torch import Tensor

from dr_lib.errors import check_share
from dr_lib.losses.contrastive import contrastive
from dr_lib.losses.passage_centric import Candidates, passage_centric


def pair(
    queries: Tensor,
    passages: Tensor,
    *,
    alpha: float = 0.1,
    temperature: float = 1.0,
    normalise: bool = False,
    candidates: Candidates = "released",
    passage_ids: Tensor | None = None,
    known_positives: Tensor | None = None,
) -> Tensor:
    """`(1 - alpha) * query-centric + alpha * passage-centric`; fine-tuning is the case `alpha=0`.

    Args:
        queries: `[batch, hidden]` float.
        passages: `[batch * n, hidden]` float; row `i * n` is the positive of query i, the next `n - 1` its negatives.
        alpha: weight of the passage-centric part, in [0, 1]; 0.1 in the paper and in the code.
        temperature: scores are divided by it; above 0 (PAIR uses none, that is 1).
        normalise: compare by cosine; otherwise by inner product (PAIR).
        candidates: negatives of the passage-centric part, see `passage_centric`.
        passage_ids: `[batch * n]` int64; copies of a positive are then no negatives.
        known_positives: `[batch, batch * n]` bool, True where a passage is relevant for a query.

    Returns:
        Float32 scalar.

    Raises:
        InputError: `alpha` outside [0, 1], or what the two parts refuse.

    Example:
        >>> import torch
        >>> vectors = torch.eye(2)
        >>> round(pair(vectors, vectors).item(), 4)
        0.3133
    """
    check_share(alpha, "alpha")
    shared: dict[str, Any] = {
        "temperature": temperature,
        "normalise": normalise,
        "passage_ids": passage_ids,
        "known_positives": known_positives,
    }
    about_queries = contrastive(queries, passages, blocks="query_passage", **shared)
    if alpha == 0:
        return about_queries
    about_passages = passage_centric(queries, passages, candidates=candidates, **shared)
    return (1 - alpha) * about_queries + alpha * about_passages
