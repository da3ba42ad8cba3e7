"""PAIR's passage-centric loss: the positive passage is the anchor, its query the target (PAIR, equation 5).

Page: ideas/passage-centric.
"""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from dr_lib.errors import InputError
from dr_lib.losses.pairs import checked_sizes, relevant_passages, unit

Candidates = Literal["released", "paper"]


def passage_centric(
    queries: Tensor,
    passages: Tensor,
    *,
    temperature: float = 1.0,
    normalise: bool = False,
    candidates: Candidates = "released",
    passage_ids: Tensor | None = None,
    known_positives: Tensor | None = None,
) -> Tensor:
    """Mean over queries of the cross-entropy of the own query among what is compared with the positive passage.

    Args:
        queries: `[batch, hidden]` float.
        passages: `[batch * n, hidden]` float; row `i * n` is the positive of query i, the next `n - 1` its negatives.
        temperature: scores are divided by it; above 0 (PAIR uses none, that is 1).
        normalise: compare by cosine; otherwise by inner product (PAIR).
        candidates: `"released"` compares the positive with all queries of the batch and all hard negatives; `"paper"`
            with its own query and all hard negatives.
        passage_ids: `[batch * n]` int64; copies of the positive are then no negatives.
        known_positives: `[batch, batch * n]` bool, True where a passage is relevant for a query.

    Returns:
        Float32 scalar, computed in float32. Gradient reaches both inputs.

    Raises:
        InputError: shapes that do not fit, a temperature not above 0, or unknown candidates.

    Paper and code: the paper's denominator holds negative passages only; the code adds the other queries. In neither
    are the positives of other queries among the negatives.

    Example:
        >>> import torch
        >>> vectors = torch.eye(2)
        >>> round(passage_centric(vectors, vectors).item(), 4)
        0.3133
    """
    if candidates not in get_args(Candidates):
        raise InputError(f"unknown value {candidates!r}", where="candidates", fix='Choose "released" or "paper".')
    n = checked_sizes("passage_centric", queries, passages, temperature, passage_ids, known_positives)
    batch = len(queries)
    with torch.autocast(queries.device.type, enabled=False):
        queries, passages = queries.float(), passages.float()
        if normalise:
            queries, passages = unit(queries), unit(passages)
        groups = passages.view(batch, n, -1)
        anchors = groups[:, 0] / temperature
        scores = torch.cat([anchors @ queries.T, anchors @ groups[:, 1:].flatten(0, 1).T], dim=1)
        relevant = relevant_passages(batch, n, passage_ids, known_positives, scores.device)
        own = torch.eye(batch, dtype=torch.bool, device=scores.device)
        other_queries = relevant[:, ::n].T if candidates == "released" else ~own
        negatives = relevant.view(batch, batch, n)[:, :, 1:].flatten(1)
        hidden = torch.cat([other_queries & ~own, negatives], dim=1)
        target = torch.arange(batch, device=scores.device)
        return functional.cross_entropy(scores.masked_fill(hidden, -torch.inf), target)
