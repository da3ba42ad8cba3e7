"""The dual encoder under training: queries and passages to vectors, vectors to the contrastive loss.

SimLM section 3.2, eq. 3; one encoder serves both sides, as in the released code (others use two). Book:
ideas/dual_encoders.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from dr_lib import losses
from dr_lib.losses.contrastive import Block, Preset
from dr_lib.pairs.batches import RetrievalBatch


class BiEncoder(nn.Module):
    """An encoder and its contrastive loss, in the form that `train` takes.

    Args:
        encoder: `encoder(batch)` -> `[batch, hidden]`, not normalised.
        temperature: scores are divided by it (SimLM: 0.02).
        blocks: terms of the denominator, a preset or names, see `losses.contrastive`.
        normalise: cosine (SimLM, True) or inner product (MASTER, DPR-PAQ and others, False).
        passage_encoder: a second encoder for passages; None shares the first.
    """

    def __init__(
        self,
        encoder: nn.Module,
        *,
        temperature: float = 0.02,
        blocks: Preset | tuple[Block, ...] = "released",
        normalise: bool = True,
        passage_encoder: nn.Module | None = None,
    ):
        super().__init__()
        self.encoder, self.passage_encoder = encoder, passage_encoder
        self.temperature, self.blocks, self.normalise = temperature, blocks, normalise

    def forward(self, batch: RetrievalBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss of a batch, and the share of queries whose own positive scores highest among its passages.

        Args:
            batch: `B` queries and `B * n` passages on the encoder's device.
            generator: not used; the loop hands it to every module.
        """
        queries, passages = self.vectors(batch)
        # Scores at a temperature of 0.02 need more than the eight bits of bf16.
        with torch.autocast(queries.device.type, enabled=False):
            loss = self.contrastive(queries, passages, batch)
            accuracy = in_batch_accuracy(queries, passages, batch.known_positives, normalise=self.normalise)
        return {"loss": loss, "in_batch_accuracy": accuracy}

    def vectors(self, batch: RetrievalBatch) -> tuple[Tensor, Tensor]:
        """Vectors of the queries `[B, hidden]` and passages `[B * n, hidden]`, float32."""
        queries = self.encoder(batch.queries)
        passages = (self.passage_encoder or self.encoder)(batch.passages)
        return queries.float(), passages.float()

    def contrastive(self, queries: Tensor, passages: Tensor, batch: RetrievalBatch) -> Tensor:
        """The contrastive loss of a batch's vectors, outside of autocast."""
        return losses.contrastive(
            queries,
            passages,
            temperature=self.temperature,
            normalise=self.normalise,
            blocks=self.blocks,
            passage_ids=batch.passage_rows,
            known_positives=batch.known_positives,
        )


@torch.no_grad()
def in_batch_accuracy(queries: Tensor, passages: Tensor, known_positives: Tensor, *, normalise: bool) -> Tensor:
    """Share of queries whose own positive scores above every passage of the batch that is not known to be positive.

    Args:
        queries: `[B, hidden]`.
        passages: `[B * n, hidden]`, query i's positive in row i * n.
        known_positives: `[B, B * n]` bool, columns that do not count.
        normalise: compare by cosine instead of inner product.

    Returns:
        Scalar in [0, 1]; a tie with another passage counts as a miss, so that equal vectors score 0.
    """
    if normalise:
        queries, passages = functional.normalize(queries, dim=-1), functional.normalize(passages, dim=-1)
    scores = queries @ passages.T
    own = torch.arange(len(queries), device=scores.device)[:, None] * (len(passages) // len(queries))
    positive = scores.gather(1, own)
    others = scores.masked_fill(known_positives, float("-inf")).scatter(1, own, float("-inf"))
    return (positive[:, 0] > others.amax(dim=1)).float().mean()
