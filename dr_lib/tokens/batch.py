"""The batch that every later step works on: padded ids and what is known of each position."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenBatch:
    """Padded token ids of some passages or queries.

    All tensors are on one device.

    Attributes:
        input_ids: `[batch, length]` int64.
        attention_mask: `[batch, length]` int64, 1 at real tokens, 0 at padding.
        token_type_ids: `[batch, length]` int64, 0 for title (or the only segment), 1 for the body of a pair.
        special: `[batch, length]` bool, True at [CLS], [SEP] and padding.
        word_start: `[batch, length]` bool, True at the first piece of each word, never at a special position.
        rows: `[batch]` int64, the row of each sequence in its token store.
        values: `[batch, length]` float32, a number for each piece (importance, keyword weight), 0 at special positions;
            None where a method needs none.
    """

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    special: Tensor
    word_start: Tensor
    rows: Tensor
    values: Tensor | None = None

    def to(self, device: torch.device | str) -> "TokenBatch":
        """The same batch on another device."""
        return self._changed(lambda tensor: tensor.to(device, non_blocking=True))

    def take(self, index: Tensor) -> "TokenBatch":
        """The sequences that `index` `[n]` int64 names, in its order; repeats allowed."""
        return self._changed(lambda tensor: tensor[index])

    def cut(self, length: int) -> "TokenBatch":
        """The first `length` positions of every sequence, where the others are padding."""
        return self._changed(lambda tensor: tensor[:, :length] if tensor.ndim == 2 else tensor)

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "TokenBatch":
        named = ((field.name, getattr(self, field.name)) for field in fields(self))
        return TokenBatch(**{name: None if tensor is None else change(tensor) for name, tensor in named})

    def with_ids(self, input_ids: Tensor) -> "TokenBatch":
        """The same positions with other ids, for masked or replaced input."""
        return replace(self, input_ids=input_ids)

    def model_inputs(self) -> dict[str, Tensor]:
        """Keyword arguments of a Hugging Face encoder."""
        return {name: getattr(self, name) for name in ("input_ids", "attention_mask", "token_type_ids")}

    def __len__(self) -> int:
        return self.input_ids.shape[0]
