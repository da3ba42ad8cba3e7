"""How many pieces of each passage a mask hides: max(1, round(rate x pieces)), the same for every draw of that passage.

SimLM's and RetroMAE's code counts [CLS] and [SEP] among the pieces, Condenser's and MASTER's does not.
Page: ideas/masking.
"""

from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from dr_lib.errors import InputError, check_share
from dr_lib.tokens import TokenBatch

Budget = Literal["maskable", "all"]


def piece_budget(batch: TokenBatch, rate: float, budget: Budget, where: str = "rate") -> Tensor:
    """Most pieces to hide in each passage, `[batch]` int64; halves are rounded to even, as Python's `round` does.

    Args:
        batch: the passages.
        rate: share of the pieces, in [0, 1]; 0 gives 0 everywhere, any other rate at least 1.
        budget: `"maskable"` counts non-special pieces, `"all"` counts [CLS] and [SEP] too.
        where: name of the rate in an error message.

    Raises:
        InputError: the rate is outside [0, 1] or `budget` is unknown.
    """
    check_share(rate, where)
    if budget not in get_args(Budget):
        raise InputError(
            f"unknown budget {budget!r}", where="budget", fix=f"Choose one of {', '.join(get_args(Budget))}."
        )
    if rate == 0:
        return torch.zeros(len(batch), dtype=torch.int64, device=batch.special.device)
    counted = batch.special.shape[1] - batch.special.sum(1) if budget == "maskable" else batch.attention_mask.sum(1)
    if counted.device.type == "cpu":  # of arrays this small numpy makes shorter work
        return torch.from_numpy(np.maximum(np.rint(counted.numpy() * rate), 1).astype(np.int64))
    return counted.double().mul_(rate).round_().clamp_(min=1).long()
