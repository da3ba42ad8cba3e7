"""ELECTRA's discriminator head: was this token replaced? (Clark et al. 2020). Page: ideas/generators."""

import torch
from torch import Tensor, nn
from torch.nn import functional

WEIGHT_SPREAD = 0.02
"""Standard deviation of fresh weights, as in BERT and ELECTRA."""


class ReplacedTokenHead(nn.Module):
    """A dense layer, GELU, and one number a token, the logit of "replaced".

    Args:
        hidden: width of the states.
        seed: of its weights, N(0, 0.02) with biases of zero; the global random state is left as it was.

    Example:
        >>> ReplacedTokenHead(8)(torch.zeros(2, 5, 8)).shape
        torch.Size([2, 5])
    """

    def __init__(self, hidden: int, seed: int = 0):
        super().__init__()
        self.dense = nn.utils.skip_init(nn.Linear, hidden, hidden)
        self.replaced = nn.utils.skip_init(nn.Linear, hidden, 1)
        source = torch.Generator().manual_seed(seed)
        for layer in (self.dense, self.replaced):
            nn.init.normal_(layer.weight, std=WEIGHT_SPREAD, generator=source)
            nn.init.zeros_(layer.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Logits `[batch, length]` of states `[batch, length, hidden]`."""
        logits: Tensor = self.replaced(functional.gelu(self.dense(states)))
        return logits.squeeze(-1)
