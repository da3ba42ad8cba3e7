"""The cross-encoder under training: scores of a query's passages, and the loss that puts the positive first.

SimLM section 3.2, eq. 4, and what its released code does besides; PAIR's teacher judges pair by pair instead. Book:
ideas/distillation.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from dr_lib import losses
from dr_lib.tokens import TokenBatch

RerankerLoss = Literal["listwise", "pointwise"]
Gradient = Literal["paper", "released"]


class Reranker(nn.Module):
    """A cross-encoder and its loss, in the form that `train` takes.

    Args:
        cross_encoder: `cross_encoder(batch)` -> `[pairs]` scores.
        passages_per_query: n, the positive first.
        loss: "listwise" (SimLM) or "pointwise" (RocketQA and PAIR: a probability for each pair).
        gradient: through all n passages (paper), or through the positive and the hardest others only, n / `keep_one_in`
            in all: first all are scored without gradient or dropout, then those once more (released).
        keep_one_in: SimLM's code scores 64 and keeps 16: 4; for NQ 32 and 16: 2.
        r_drop: score each pair twice, with dropout drawn anew, and ask for agreement (released).
    """

    def __init__(
        self,
        cross_encoder: nn.Module,
        *,
        passages_per_query: int,
        loss: RerankerLoss = "listwise",
        gradient: Gradient = "paper",
        keep_one_in: int = 4,
        r_drop: bool = False,
    ):
        super().__init__()
        self.cross_encoder, self.passages_per_query = cross_encoder, passages_per_query
        self.loss, self.gradient, self.keep_one_in, self.r_drop = loss, gradient, keep_one_in, r_drop

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss of a batch, and the share of queries whose positive scores highest among the passages with gradient.

        Args:
            batch: `B * n` pairs, pair i * n with the positive of query i.
            generator: not used; the loop hands it to every module.
        """
        n = self.passages_per_query
        kept = max(2, n // self.keep_one_in)
        if self.gradient == "released" and kept < n:
            batch, n = batch.take(self.hardest(batch, kept)), kept
        passes = 2 if self.r_drop else 1
        copies = batch if passes == 1 else batch.take(torch.arange(len(batch), device=batch.rows.device).repeat(2))
        lists = self.cross_encoder(copies).view(passes, -1, n)
        with torch.autocast(lists.device.type, enabled=False):
            means = torch.stack([getattr(losses, self.loss)(scores) for scores in lists])
            result = {"loss": means.mean(), "accuracy": positives_first(lists[0])}
            if self.r_drop:
                apart = losses.r_drop(lists[0], lists[1])
                result |= {"loss": result["loss"] + apart, "r_drop_loss": apart.detach()}
        return result

    @torch.no_grad()
    def hardest(self, batch: TokenBatch, kept: int) -> Tensor:
        """Numbers `[B * kept]` of the pairs with each query's positive and its highest-scored negatives."""
        training = self.cross_encoder.training
        scores = self.cross_encoder.eval()(batch).view(-1, self.passages_per_query)
        self.cross_encoder.train(training)
        negatives = scores[:, 1:].topk(kept - 1).indices + 1
        columns = torch.cat([torch.zeros_like(negatives[:, :1]), negatives], 1)
        first = torch.arange(len(scores), device=scores.device)[:, None] * self.passages_per_query
        return (first + columns).flatten()


def positives_first(scores: Tensor) -> Tensor:
    """Share of lists `[queries, passages]` whose first score is above all others; a tie counts as a miss."""
    scores = scores.detach()
    return (scores[:, 0] > scores[:, 1:].amax(1)).float().mean()
