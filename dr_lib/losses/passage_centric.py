"""PAIR's losses: with the positive passage as anchor and its query as target (equation 5), and
combined with the query-centric loss (equation 6).

Page: ideas/passage-centric.
"""

from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from dr_lib.losses.checks import check_name, check_pairs, check_share, check_temperature
from dr_lib.losses.contrastive import contrastive_and_accuracy, relevant_passages, unit

Candidates = Literal["released", "paper", "positives"]


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
    """Mean over queries of the cross-entropy of the positive passage's own query among its
    candidates.

    Args:
        queries: `[batch, hidden]` float.
        passages: `[batch * n, hidden]` float; row `i * n` is the positive of query i, the next `n -
            1` its negatives.
        temperature: divides the scores; above 0 (PAIR uses none, that is 1).
        normalise: compare by cosine; otherwise by inner product (PAIR).
        candidates: `"released"` compares the positive with all queries of the batch and all hard
            negatives; `"paper"` with its own query and all hard negatives; `"positives"` as
            `"released"`, and with the positives of the other queries.
        passage_ids: `[batch * n]` int64; copies of the positive are then not negatives.
        known_positives: `[batch, batch * n]` bool, True where a passage is relevant to a query.

    Returns:
        Float32 scalar, computed in float32. Gradient reaches both inputs.

    Raises:
        InputError: shapes do not fit, the temperature is not above 0, or `candidates` is unknown.

    Paper and code: the paper's denominator holds negative passages only; the code adds the other
    queries. In neither are the positives of other queries among the negatives; `"positives"` adds
    them.

    Example:
        >>> import torch
        >>> vectors = torch.eye(2)
        >>> round(passage_centric(vectors, vectors).item(), 4)
        0.3133
    """
    check_pairs(queries, passages, passage_ids, known_positives)
    check_temperature(temperature)
    check_name("candidates", candidates, get_args(Candidates))
    batch, n = len(queries), len(passages) // len(queries)
    with torch.autocast(queries.device.type, enabled=False):
        queries, passages = queries.float(), passages.float()
        if normalise:
            queries, passages = unit(queries), unit(passages)
        first = {"released": 1, "paper": 1, "positives": 0}[candidates]
        others = passages.view(batch, n, -1)[:, first:].flatten(0, 1)
        anchors = passages[::n] / temperature
        scores = torch.cat([anchors @ queries.T, anchors @ others.T], dim=1)
        relevant = relevant_passages(batch, n, passage_ids, known_positives, scores.device)
        diagonal = torch.eye(batch, dtype=torch.bool, device=scores.device)
        other_queries = ~diagonal if candidates == "paper" else relevant[:, ::n].T & ~diagonal
        related = relevant.view(batch, batch, n).clone()
        # a positive that is also relevant to another query is related to that query's positive
        related[:, :, 0] |= relevant[:, ::n].T
        hidden = torch.cat([other_queries, related[:, :, first:].flatten(1)], dim=1)
        target = torch.arange(batch, device=scores.device)
        return functional.cross_entropy(scores.masked_fill(hidden, -torch.inf), target)


def pair(
    queries: Tensor,
    passages: Tensor,
    *,
    alpha: float = 0.1,
    temperature: float = 1.0,
    normalise: bool = False,
    candidates: Candidates = "released",
    **known: Tensor | None,
) -> Tensor:
    """`(1 - alpha) * query-centric + alpha * passage-centric` (equation 6); fine-tuning is the case
    `alpha=0`.

    Args:
        queries: `[batch, hidden]` float.
        passages: `[batch * n, hidden]` float; row `i * n` is the positive of query i, the next `n -
            1` its negatives.
        alpha: weight of the passage-centric part, in [0, 1]; 0.1 in the paper and in the code.
        temperature: scores are divided by it; above 0 (PAIR uses none, that is 1).
        normalise: compare by cosine; otherwise by inner product (PAIR).
        candidates: negatives of the passage-centric part, see `passage_centric`.
        known: `passage_ids` and `known_positives`, for both parts.

    Returns:
        Float32 scalar.

    Raises:
        InputError: as `passage_centric`; alpha outside [0, 1].

    Example:
        >>> import torch
        >>> vectors = torch.eye(2)
        >>> round(pair(vectors, vectors).item(), 4)
        0.3133
    """
    check_share("alpha", alpha)
    check_name("candidates", candidates, get_args(Candidates))
    loss, _ = pair_and_accuracy(
        queries,
        passages,
        alpha=alpha,
        temperature=temperature,
        normalise=normalise,
        candidates=candidates,
        blocks="query_passage",
        **known,
    )
    return loss


def pair_and_accuracy(
    queries: Tensor,
    passages: Tensor,
    *,
    alpha: float,
    temperature: float,
    normalise: bool,
    candidates: Candidates = "released",
    mask_positives: bool = True,
    passage_ids: Tensor | None = None,
    known_positives: Tensor | None = None,
    **about_queries: Any,
) -> tuple[Tensor, Tensor]:
    """The combined loss of a batch, and the share of queries whose own positive scores highest.

    Args:
        queries, passages, alpha, temperature, normalise, candidates: as for `pair`.
        passage_ids, known_positives, mask_positives: as for `contrastive_and_accuracy`.
        about_queries: `blocks` and `own_negatives` of the query-centric part.

    Example:
        >>> vectors = torch.eye(2)
        >>> options = {"temperature": 1.0, "normalise": False, "blocks": "query_passage"}
        >>> loss, accuracy = pair_and_accuracy(vectors, vectors, alpha=0.1, **options)
        >>> round(loss.item(), 4), accuracy.item()
        (0.3133, 1.0)
    """
    scale: dict[str, Any] = {"temperature": temperature, "normalise": normalise}
    known = {"passage_ids": passage_ids, "known_positives": known_positives}
    loss, accuracy = contrastive_and_accuracy(
        queries, passages, **scale, **known, mask_positives=mask_positives, **about_queries
    )
    if alpha:
        scale |= known if mask_positives else {}
        about_passages = passage_centric(queries, passages, candidates=candidates, **scale)
        loss = (1 - alpha) * loss + alpha * about_passages
    return loss, accuracy
