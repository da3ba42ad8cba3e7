"""Contrastive loss of queries and passages with in-batch and hard negatives (SimLM, equation 3 and
its released code).

Named blocks choose which pairs are negatives; the other papers' losses are special cases. Also
here: coCondenser's loss over pairs of spans, and gathering batches across processes. Page:
ideas/negatives.
"""

from typing import Literal, get_args

import torch
from torch import Tensor, distributed
from torch.nn import functional

from dr_lib.losses.checks import check_blocks, check_pairs, check_siblings, check_temperature

Block = Literal[
    "query_passage", "positive_query", "query_query", "positive_positive", "positive_passage"
]
Preset = Literal["released", "paper", "query_passage"]

PRESETS: dict[str, tuple[Block, ...]] = {
    "released": ("query_passage", "positive_query", "query_query", "positive_positive"),
    "paper": ("query_passage", "positive_passage"),
    "query_passage": ("query_passage",),
}


def contrastive(
    queries: Tensor,
    passages: Tensor,
    *,
    temperature: float = 0.02,
    normalise: bool = True,
    blocks: Preset | tuple[Block, ...] = "released",
    passage_ids: Tensor | None = None,
    known_positives: Tensor | None = None,
    own_negatives: bool = True,
) -> Tensor:
    """Mean over queries of the cross-entropy of each query's positive among all candidates of the
    batch.

    The candidates of query i, whose positive is `p_i`, are the union of the chosen blocks:

    - `"query_passage"`, always included: query i with every passage of the batch, its positive (the
      target) among them;
    - `"positive_query"`: `p_i` with every other query;
    - `"query_query"`: query i with every other query;
    - `"positive_positive"`: `p_i` with the positive of every other query;
    - `"positive_passage"`: `p_i` with every other passage, hard negatives and `"positive_positive"`
      included.

    Args:
        queries: `[batch, hidden]` float.
        passages: `[batch * n, hidden]` float; row `i * n` is the positive of query i, the next `n -
            1` its negatives.
        temperature: divides the scores; above 0.
        normalise: compare by cosine; otherwise by inner product.
        blocks: a preset or block names. `"released"` holds the first four, `"paper"` the first and
            the last, `"query_passage"` the first alone (DPR, RetroMAE, Tevatron).
        passage_ids: `[batch * n]` int64; copies of a query's positive are then not its negatives.
        known_positives: `[batch, batch * n]` bool, True where a passage is relevant to a query and
            hence not a negative.
        own_negatives: False uses a query's own hard negatives only for the other queries, for
            distillation, where the teacher judges them (an option of SimLM's code that its scripts
            turn off).

    Returns:
        Float32 scalar, computed in float32 whatever the type of the input. Gradient reaches both
        inputs.

    Raises:
        InputError: shapes do not fit, the temperature is not above 0, or a block is unknown.

    Paper and code: equation 3 of SimLM contrasts the positive with all negatives (`"paper"`); the
    released code, behind the published numbers, uses only the positives of other queries and adds
    two blocks against queries (`"released"`). That code does not mask duplicates, like this
    function without `passage_ids` and `known_positives`. With them, a query and a passage relevant
    to it are never contrasted in any block, nor are two queries, or their positives, if the
    positive of one is relevant to the other.

    Example:
        >>> import torch
        >>> vectors = torch.eye(2)
        >>> round(contrastive(vectors, vectors, temperature=1.0, blocks="query_passage").item(), 4)
        0.3133
    """
    return contrastive_and_accuracy(
        queries,
        passages,
        temperature=temperature,
        normalise=normalise,
        blocks=blocks,
        passage_ids=passage_ids,
        known_positives=known_positives,
        own_negatives=own_negatives,
    )[0]


def contrastive_and_accuracy(
    queries: Tensor,
    passages: Tensor,
    *,
    temperature: float,
    normalise: bool,
    blocks: Preset | tuple[Block, ...],
    passage_ids: Tensor | None = None,
    known_positives: Tensor | None = None,
    own_negatives: bool = True,
    mask_positives: bool = True,
) -> tuple[Tensor, Tensor]:
    """The loss and, from the same scores, the share of queries whose own positive scores above
    every passage of the batch that is not known to be relevant.

    Args:
        queries, passages, temperature, normalise, blocks: as for `contrastive`.
        passage_ids, known_positives, own_negatives: as for `contrastive`.
        mask_positives: False lets the loss, not the accuracy, contrast a query with known
            positives.

    Example:
        >>> vectors = torch.eye(2)
        >>> _, accuracy = contrastive_and_accuracy(
        ...     vectors, vectors, temperature=1.0, normalise=True, blocks="query_passage"
        ... )
        >>> accuracy.item()
        1.0
    """
    check_pairs(queries, passages, passage_ids, known_positives)
    check_temperature(temperature)
    check_blocks(blocks, PRESETS, get_args(Block))
    chosen = ("query_passage", *(PRESETS[blocks] if isinstance(blocks, str) else blocks))
    batch, n = len(queries), len(passages) // len(queries)
    with torch.autocast(queries.device.type, enabled=False):
        queries, passages = queries.float(), passages.float()
        if normalise:
            queries, passages = unit(queries), unit(passages)
        positives = passages[::n]
        # Divide the small factors, not the large products.
        sharp_queries, sharp_positives = queries / temperature, positives / temperature
        query_passage = sharp_queries @ passages.T
        relevant = relevant_passages(batch, n, passage_ids, known_positives, queries.device)
        target = torch.arange(0, len(passages), n, device=queries.device)
        accuracy = share_first(query_passage, target, relevant)

        # Masked: a vector against itself, and relevant passages; not the target column.
        if not mask_positives:
            relevant = relevant_passages(batch, n, None, None, queries.device)
        to_positives = relevant[:, ::n]
        related = to_positives | to_positives.T
        others = relevant.scatter(1, target[:, None], False)
        if not own_negatives:
            column, positive = torch.arange(len(passages), device=queries.device), target[:, None]
            others |= (column > positive) & (column < positive + n)
        beside_positives = relevant | others
        beside_positives[:, ::n] |= related

        compared = {
            "query_passage": lambda: (query_passage, others),
            "positive_query": lambda: (query_passage[:, ::n].T, to_positives.T),
            "query_query": lambda: (sharp_queries @ queries.T, related),
            "positive_positive": lambda: (sharp_positives @ positives.T, related),
            "positive_passage": lambda: (sharp_positives @ passages.T, beside_positives),
        }
        scores, hidden = zip(*(compared[block]() for block in dict.fromkeys(chosen)), strict=True)
        loss = functional.cross_entropy(
            torch.cat(scores, 1).masked_fill(torch.cat(hidden, 1), -torch.inf), target
        )
        return loss, accuracy


def siblings(vectors: Tensor, documents: Tensor | None = None) -> Tensor:
    """Mean over spans of the cross-entropy of the sibling among all other spans, by raw inner
    product (coCondenser).

    Args:
        vectors: `[2 * pairs, hidden]` float; the spans 2 i and 2 i + 1 are siblings.
        documents: `[2 * pairs]` int64; other spans of the same document are not negatives.

    Returns:
        Float32 scalar, computed in float32. Neither paper nor code has a temperature.

    Raises:
        InputError: an odd number of spans, or another number of documents.

    Example:
        >>> vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> round(siblings(vectors).item(), 4)
        0.5514
    """
    check_siblings(vectors, documents)
    with torch.autocast(vectors.device.type, enabled=False):
        vectors = vectors.float()
        scores, number = vectors @ vectors.T, torch.arange(len(vectors), device=vectors.device)
        target = number ^ 1
        related = number[:, None] == number
        if documents is not None:
            related = related | ((documents[:, None] == documents) & (target[:, None] != number))
        return functional.cross_entropy(scores.masked_fill(related, -torch.inf), target)


def share_first(scores: Tensor, target: Tensor, relevant: Tensor | None = None) -> Tensor:
    """Share of rows whose score at `target` is above all others; a tie is a miss.

    Args:
        scores: `[rows, columns]`, without gradient here.
        target: `[rows]` int64.
        relevant: `[rows, columns]` bool, columns to ignore; None ignores none.

    Example:
        >>> share_first(torch.tensor([[2.0, 1.0], [3.0, 3.0]]), torch.tensor([0, 0])).item()
        0.5
    """
    scores, target = scores.detach(), target[:, None]
    others = scores if relevant is None else scores.masked_fill(relevant, -torch.inf)
    best = others.scatter(1, target, -torch.inf).amax(1, keepdim=True)
    return (scores.gather(1, target) > best).float().mean()


def unit(vectors: Tensor) -> Tensor:
    """Unit vectors, like `torch.nn.functional.normalize` but with fewer passes in the backward."""
    return (
        vectors
        * torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp(min=1e-12).reciprocal()
    )


def relevant_passages(
    batch: int,
    n: int,
    passage_ids: Tensor | None,
    known_positives: Tensor | None,
    device: torch.device,
) -> Tensor:
    """`[batch, batch * n]` bool, True where a passage is the query's positive, a copy of it, or
    known to be relevant.
    """
    relevant = torch.zeros(batch, batch * n, dtype=torch.bool, device=device)
    relevant[:, ::n] = torch.eye(batch, dtype=torch.bool, device=device)
    if passage_ids is not None:
        relevant |= passage_ids[::n, None] == passage_ids
    if known_positives is not None:
        relevant |= known_positives
    return relevant


def world_size() -> int:
    """Number of processes that train together, 1 if this one is alone."""
    return (
        distributed.get_world_size()
        if distributed.is_available() and distributed.is_initialized()
        else 1
    )


def gather(tensor: Tensor) -> Tensor:
    """Rows of all processes, process 0 first; the tensor itself if the process is alone.

    So every query is compared with the passages of every device, and each process computes the loss
    of all rows. The backward pass sums gradients over processes and data-parallel training averages
    them: the result is the gradient of one process with the whole batch.

    Args:
        tensor: `[rows, ...]`, of one shape and type in every process.

    Returns:
        `[processes * rows, ...]`, with gradient if `tensor` has one.

    Paper and code: DPR-PAQ (section 3.3) and PAIR gather like this. SimLM and coCondenser gather
    without gradient and multiply the loss by the number of processes, which is equivalent; without
    that factor the gradient shrinks.
    """
    if world_size() == 1:
        return tensor
    from torch.distributed import _functional_collectives as collectives

    # renamed in torch 2.13
    name = "all_gather_single_autograd"
    all_gather = getattr(collectives, name, None) or collectives.all_gather_tensor_autograd
    return all_gather(tensor.contiguous(), 0, distributed.group.WORLD)
