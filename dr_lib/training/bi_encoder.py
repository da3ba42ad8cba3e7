"""The dual encoder under training: queries and passages to vectors, vectors to the contrastive loss.

SimLM section 3.2, eq. 3; one encoder serves both sides, as in the released code (others use two). Book:
ideas/dual_encoders.
"""

from functools import partial

import torch
from torch import Tensor, nn

from dr_lib import losses
from dr_lib.errors import check_share
from dr_lib.losses.contrastive import Block, Preset
from dr_lib.models import encode_by_length, encode_in_chunks
from dr_lib.pairs.batches import RetrievalBatch
from dr_lib.pairs.side_by_side import side_by_side
from dr_lib.tokens.batch import TokenBatch


class BiEncoder(nn.Module):
    """An encoder and its contrastive loss, in the form that `train` takes.

    Args:
        encoder: `encoder(batch)` -> `[batch, hidden]`, not normalised.
        temperature: scores are divided by it (SimLM: 0.02).
        blocks: terms of the denominator, a preset or names, see `losses.contrastive`.
        normalise: cosine (SimLM, True) or inner product (MASTER, DPR-PAQ and others, False).
        passage_encoder: a second encoder for passages; None shares the first.
        alpha: weight of PAIR's passage-centric loss, in [0, 1]; the contrastive one keeps the rest. PAIR itself leaves
            it to pre-training (its Table 3, "w/ PSR FT").
        chunk: texts encoded at a time (the gradient cache, see `models.encode_in_chunks`); None encodes all at once.
    """

    def __init__(
        self,
        encoder: nn.Module,
        *,
        temperature: float = 0.02,
        blocks: Preset | tuple[Block, ...] = "released",
        normalise: bool = True,
        passage_encoder: nn.Module | None = None,
        chunk: int | None = None,
        alpha: float = 0.0,
    ):
        super().__init__()
        self.alpha = check_share(alpha, "alpha")
        self.encoder, self.passage_encoder = encoder, passage_encoder
        self.temperature, self.blocks, self.normalise, self.chunk = temperature, blocks, normalise, chunk

    def forward(self, batch: RetrievalBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss of a batch, and the share of queries whose own positive scores highest among its passages.

        With several processes the queries and passages of all of them are compared, in each (`losses.gather`).

        Args:
            batch: `B` queries and `B * n` passages on the encoder's device.
            generator: not used; the loop hands it to every module.
        """
        compared = side_by_side(batch, *self.vectors(batch))
        accuracy = losses.in_batch_accuracy(**compared, normalise=self.normalise)
        return {"loss": self.contrastive(compared), "in_batch_accuracy": accuracy}

    def vectors(self, batch: RetrievalBatch) -> tuple[Tensor, Tensor]:
        """Vectors of the queries `[B, hidden]` and passages `[B * n, hidden]`, float32."""
        queries = self._encode(self.encoder, batch.queries)
        return queries, self._encode(self.passage_encoder or self.encoder, batch.passages)

    def _encode(self, encoder: nn.Module, texts: TokenBatch) -> Tensor:
        return encode_in_chunks(partial(encode_by_length, encoder), texts, self.chunk).float()

    def contrastive(self, compared: dict[str, Tensor | None]) -> Tensor:
        """The contrastive loss of what `side_by_side` gives, with its passage-centric part where `alpha` is above 0."""
        scale = {"temperature": self.temperature, "normalise": self.normalise}
        about_queries = losses.contrastive(**compared, **scale, blocks=self.blocks)
        if self.alpha == 0:
            return about_queries
        return (1 - self.alpha) * about_queries + self.alpha * losses.passage_centric(**compared, **scale)
