"""Contrastive loss of queries and passages with in-batch and hard negatives (SimLM, equation 3 and its released code).

Which pairs count as negatives is a choice of named blocks; the other papers' losses are special cases.
Page: ideas/negatives.
"""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from dr_lib.errors import InputError
from dr_lib.losses.pairs import checked_sizes, relevant_passages, unit

Block = Literal["query_passage", "positive_query", "query_query", "positive_positive", "positive_passage"]
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
) -> Tensor:
    """Mean over queries of the cross-entropy of the own positive among all candidates of the batch.

    The candidates of query i, whose positive is `p_i`, are the sum of the chosen blocks:

    - `"query_passage"`: query i with every passage of the batch, its positive (the target) included;
    - `"positive_query"`: `p_i` with every other query;
    - `"query_query"`: query i with every other query;
    - `"positive_positive"`: `p_i` with the positive of every other query;
    - `"positive_passage"`: `p_i` with every other passage, hard negatives included.

    Args:
        queries: `[batch, hidden]` float.
        passages: `[batch * n, hidden]` float; row `i * n` is the positive of query i, the next `n - 1` its negatives.
        temperature: scores are divided by it; above 0.
        normalise: compare by cosine; otherwise by inner product.
        blocks: a preset or block names. `"released"` holds the first four, `"paper"` the first and the last,
            `"query_passage"` the first alone (DPR, RetroMAE, Tevatron).
        passage_ids: `[batch * n]` int64; another copy of a query's positive is then no negative of it.
        known_positives: `[batch, batch * n]` bool, True where a passage is relevant for a query and hence no negative.

    Returns:
        Float32 scalar, computed in float32 whatever the type of the input. Gradient reaches both inputs.

    Raises:
        InputError: shapes that do not fit, a temperature not above 0, or blocks that are unknown, lack
            `"query_passage"`, or count pairs twice.

    Paper and code: equation 3 of SimLM contrasts the positive with all negatives (`"paper"`); the released code, which
    made the published numbers, uses only the positives of other queries and adds two blocks against queries
    (`"released"`). The code masks no duplicates, as here without `passage_ids` and `known_positives`. With them, a
    query and a passage relevant for it are never contrasted in any block, nor are two queries, or their positives,
    where the positive of one is relevant for the other.

    Example:
        >>> import torch
        >>> vectors = torch.eye(2)
        >>> round(contrastive(vectors, vectors, temperature=1.0, blocks="query_passage").item(), 4)
        0.3133
    """
    chosen = _checked_blocks(blocks)
    negatives = checked_sizes("contrastive", queries, passages, temperature, passage_ids, known_positives)
    with torch.autocast(queries.device.type, enabled=False):
        queries, passages = queries.float(), passages.float()
        if normalise:
            queries, passages = unit(queries), unit(passages)
        scores = _block_scores(queries, passages, negatives, chosen, temperature)
        hidden = _block_masks(len(queries), negatives, chosen, passage_ids, known_positives, scores.device)
        target = torch.arange(0, len(passages), negatives, device=scores.device)
        return functional.cross_entropy(scores.masked_fill(hidden, -torch.inf), target)


def _block_scores(queries: Tensor, passages: Tensor, n: int, blocks: tuple[Block, ...], temperature: float) -> Tensor:
    """Scores of the blocks side by side; the temperature goes into the small factors, not over the large product."""
    positives = passages[::n]
    sharp_queries, sharp_positives = queries / temperature, positives / temperature
    query_passage = sharp_queries @ passages.T
    make = {
        "query_passage": lambda: query_passage,
        "positive_query": lambda: query_passage[:, ::n].T,
        "query_query": lambda: sharp_queries @ queries.T,
        "positive_positive": lambda: sharp_positives @ positives.T,
        "positive_passage": lambda: sharp_positives @ passages.T,
    }
    return torch.cat([make[block]() for block in blocks], dim=1)


def _block_masks(
    batch: int,
    n: int,
    blocks: tuple[Block, ...],
    passage_ids: Tensor | None,
    known_positives: Tensor | None,
    device: torch.device,
) -> Tensor:
    """True at pairs that are no negatives: a vector with itself, and positives; the target column stays."""
    relevant = relevant_passages(batch, n, passage_ids, known_positives, device)
    to_positives = relevant[:, ::n]
    related = to_positives | to_positives.T
    masks = {
        "query_passage": relevant & ~relevant_passages(batch, n, None, None, device),
        "positive_query": to_positives.T,
        "query_query": related,
        "positive_positive": related,
        "positive_passage": relevant,
    }
    return torch.cat([masks[block] for block in blocks], dim=1)


def _checked_blocks(blocks: str | tuple[str, ...]) -> tuple[Block, ...]:
    # "query_passage" is the name of a block and of the preset that holds it alone.
    chosen = PRESETS.get(blocks, (blocks,)) if isinstance(blocks, str) else tuple(blocks)
    unknown = [block for block in chosen if block not in get_args(Block)]
    if unknown:
        raise InputError(
            f"unknown value {unknown[0]!r}",
            where="blocks",
            fix=f"Give a preset ({', '.join(PRESETS)}) or a tuple of {', '.join(get_args(Block))}.",
        )
    if "query_passage" not in chosen:
        raise InputError('without "query_passage" there is no target', where="blocks", fix="Add it.")
    if len(set(chosen)) < len(chosen) or {"positive_positive", "positive_passage"} <= set(chosen):
        raise InputError(
            f"{chosen} counts some pairs twice",
            where="blocks",
            fix='Name each block once; "positive_passage" holds "positive_positive".',
        )
    return chosen
