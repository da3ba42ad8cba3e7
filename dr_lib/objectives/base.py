"""What a pre-training method is: a module that turns a batch of passages into a loss.

A new method is one file: a `Settings` class with its parameters, an `Objective` class with `forward`, and one line in
`objectives/__init__.py`. What it needs beside the passages it names in `Settings.materials` and reads in
`Objective.batches`. Page: practice/adding-an-objective.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import masking
from dr_lib.masking import MaskPolicy
from dr_lib.objectives.source import Source
from dr_lib.tokens import TokenBatch, special_ids


class Settings(BaseModel):
    """Parameters of a method: frozen, each with a default, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def materials(self) -> dict[str, dict[str, Any]]:
        """What has to be made before pre-training: name of each material -> the parameters that the method decides."""
        return {}


class Objective(nn.Module, ABC):
    """A masked LM and what a method adds to it in order to pre-train it.

    Attributes:
        model: the masked LM being trained; its encoder is what fine-tuning keeps.
        passage_model: a second one where passages have an encoder of their own, else None.
        settings: the method's parameters.
        special: ids of [PAD], [UNK], [CLS], [SEP] and [MASK] by short name.
    """

    settings_type: ClassVar[type[Settings]] = Settings
    needs_generator: ClassVar[bool] = False
    reads_queries: ClassVar[bool] = False
    """Whether its batches hold queries, so that their longest length can change the result."""
    saved_beside: ClassVar[tuple[str, ...]] = ()
    """Sub-modules whose weights are saved beside the model, so that pre-training can be continued."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: Settings):
        super().__init__()
        self.model, self.settings, self.special = model, settings, special_ids(tokenizer)
        self.passage_model: PreTrainedModel | None = None

    @classmethod
    def batches(cls, settings: Settings, source: Source) -> Callable[[int], Any]:
        """Micro-step -> batch, the same number always the same batch; here the passages alone, as a `TokenBatch`."""
        return source.stream().batch

    @abstractmethod
    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """The loss of a batch.

        Args:
            batch: clean passages, on the model's device.
            generator: source of every random draw but dropout, on the same device.

        Returns:
            ``loss`` (scalar with gradient) and detached scalars to log. Nothing here waits for the device.
        """

    def hide(self, batch: TokenBatch, mask: Tensor, generator: torch.Generator, policy: MaskPolicy = "mask") -> Tensor:
        """Ids `[batch, length]` with the masked pieces hidden (`masking.hide`); no random piece is a special one."""
        return masking.hide(
            batch, mask, self.special["mask"], self.model.config.vocab_size, generator,
            policy=policy, special_ids=tuple(self.special.values()),
        )  # fmt: skip

    def extra_tensors(self) -> dict[str, Tensor]:
        """Weights to save beside the model, by name."""
        kept = tuple(f"{name}." for name in self.saved_beside)
        return {name: tensor for name, tensor in self.state_dict().items() if name.startswith(kept)}
