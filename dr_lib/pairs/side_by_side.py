"""What a contrastive loss compares: the vectors of a batch, and beside them those of all other processes.

Page: ideas/negatives.
"""

from torch import Tensor

from dr_lib.losses.gather import gather
from dr_lib.pairs.batches import RetrievalBatch


def side_by_side(batch: RetrievalBatch, queries: Tensor, passages: Tensor) -> dict[str, Tensor | None]:
    """Arguments of `losses.contrastive`, `losses.pair` and `losses.in_batch_accuracy`, the same in every process.

    Args:
        batch: this process's own.
        queries: `[B, hidden]` its vectors, any float type: scores need more than the eight bits of bf16.
        passages: `[B * n, hidden]`.

    Returns:
        ``queries`` `[W * B, hidden]` and ``passages`` `[W * B * n, hidden]` of all W processes, float32, with gradient;
        ``passage_ids`` `[W * B * n]` and ``known_positives`` `[W * B, W * B * n]` or None.
    """
    known = batch.known_positives
    return {
        "queries": gather(queries.float()),
        "passages": gather(passages.float()),
        "passage_ids": gather(batch.passage_rows),
        "known_positives": None if known is None else gather(known),
    }
