"""A linear map and LayerNorm over the vectors of a dual encoder, as DPR-PAQ gives RoBERTa (section 3.3).

Page: ideas/pairs.
"""

import torch
from torch import Tensor, nn

WEIGHT_SPREAD = 0.02
"""Standard deviation of fresh weights, as in BERT."""


class Projection(nn.Module):
    """Linear layer of the vectors' own size, N(0, 0.02) with biases of zero, then LayerNorm.

    Args:
        hidden: width of the vectors.
        seed: of the weights; the global random state is left as it was.

    Example:
        >>> Projection(8)(torch.ones(2, 8)).shape
        torch.Size([2, 8])
    """

    def __init__(self, hidden: int, seed: int = 0):
        super().__init__()
        self.linear, self.norm = nn.utils.skip_init(nn.Linear, hidden, hidden), nn.LayerNorm(hidden)
        nn.init.normal_(self.linear.weight, std=WEIGHT_SPREAD, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(self.linear.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Vectors `[batch, hidden]` of the same shape."""
        return self.norm(self.linear(vectors))
