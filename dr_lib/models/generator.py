"""The generator: a masked LM that fills masked positions (SimLM section 3.1). Page: ideas/generators.

A replaced token may equal the original one; nothing forces a difference, in paper and code alike.
"""

import copy
from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from dr_lib.models.rows import rows_of
from dr_lib.models.sampling import draw_ids
from dr_lib.models.states import hidden_states, lm_head
from dr_lib.tokens.batch import TokenBatch


class Generator(nn.Module):
    """Sample replacements at masked positions; logits are made there and nowhere else.

    Args:
        model: masked LM with the encoder's vocabulary (ids are passed on unchanged).
        special_ids: ids by short name, as from `models.special_ids`.
        frozen: no parameter has a gradient.
        dropout_active: False keeps a frozen generator in eval mode for good (the paper's "frozen"). True follows the
            trainer's mode, which is what the released code really does. A generator that learns always follows it.
        forbid_special: never sample [PAD], [CLS], [SEP] or [MASK] (the released code allows them).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        special_ids: Mapping[str, int],
        *,
        frozen: bool = True,
        dropout_active: bool = False,
        forbid_special: bool = True,
    ):
        super().__init__()
        self.model = model.requires_grad_(not frozen)
        self.always_eval = frozen and not dropout_active
        banned = [special_ids[name] for name in ("pad", "cls", "sep", "mask")] if forbid_special else []
        ids = torch.tensor(banned, dtype=torch.int64, device=model.device)
        self.register_buffer("forbidden", ids, persistent=False)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Switch the mode; a frozen generator without dropout stays in eval mode."""
        super().train(mode)
        if self.always_eval:
            self.model.eval()
        return self

    @torch.no_grad()
    def sample(
        self,
        batch: TokenBatch,
        masked_ids: Tensor,
        mask: Tensor,
        generator: torch.Generator,
        at_most: int | None = None,
    ) -> Tensor:
        """Ids `[batch, length]`: sampled where `mask` is True, those of the batch elsewhere; never differentiated.

        Args:
            masked_ids: `[batch, length]` what the generator reads, [MASK] at the masked positions.
            mask: `[batch, length]` bool.
            at_most: a bound on the masked positions of the batch (see `rows_of`).
        """
        return self.fill(hidden_states(self.model, batch, masked_ids), batch, mask, generator, at_most)

    @torch.no_grad()
    def fill(
        self, hidden: Tensor, batch: TokenBatch, mask: Tensor, generator: torch.Generator, at_most: int | None = None
    ) -> Tensor:
        """The second half of `sample`, from the generator's `[batch, length, hidden]` states."""
        rows = rows_of(mask, at_most)
        uniform = torch.rand(mask.shape, generator=generator, device=mask.device).flatten()[rows]
        head = lm_head(self.model)
        drawn = draw_ids(head.transform(hidden.flatten(0, 1)[rows]), head.weight, head.bias, uniform, self.forbidden)
        filled = batch.input_ids.flatten().scatter(0, rows, drawn).view_as(mask)
        return torch.where(mask, filled, batch.input_ids)


def fresh_copy(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """A model of the same shape with weights drawn anew from `seed`; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return type(model)(copy.deepcopy(model.config)).to(model.device)
