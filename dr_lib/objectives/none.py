"""No pre-training: the base model goes to fine-tuning as it is, the first row of most tables."""

from typing import ClassVar

import torch
from torch import Tensor

from dr_lib.errors import InputError
from dr_lib.objectives.base import Objective, Settings
from dr_lib.tokens import TokenBatch


class NoObjective(Objective):
    """The baseline that trains nothing; asking for its loss is an error."""

    settings_type: ClassVar[type[Settings]] = Settings

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Refuse: there is nothing to train."""
        raise InputError('"none" trains nothing', where="objective", fix="Skip the pre-training stage.")
