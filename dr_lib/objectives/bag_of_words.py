"""DupMAE's second task: which words are in the passage? (Xiao and Liu 2022, RetroMAE v2). Page: ideas/bottleneck."""

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from dr_lib.models import lm_head
from dr_lib.tokens import TokenBatch

NEVER = -1e4
"""Stands for the logit at special positions, below any other, and finite where a passage has no token."""


def bag_of_words(model: PreTrainedModel, hidden: Tensor, batch: TokenBatch, at_a_time: int | None = None) -> Tensor:
    """Cross-entropy of the passage's distinct tokens under its highest logits.

    Each id of the vocabulary gets its highest logit over the passage's tokens; the loss is the mean over passages of
    `-sum(log softmax(highest)[distinct ids]) / tokens`. The division by the tokens, repeated ones included, is the
    released code's; it pools over [SEP] too, here only tokens that are not special count.

    Args:
        model: its head gives the logits.
        hidden: `[batch, length, hidden]` encoder states of the masked passages.
        batch: the clean passages.
        at_a_time: passages whose logits exist at a time; by default what fits the device.

    Returns:
        float32 scalar with gradient; a passage without tokens adds nothing.
    """
    head, (passages, length), vocab = lm_head(model), batch.special.shape, model.config.vocab_size
    at_a_time = at_a_time or max(1, (2**22 if hidden.device.type == "cpu" else 2**28) // (length * vocab))
    parts = zip(*(t.split(at_a_time) for t in (head.transform(hidden), batch.special[..., None])), strict=True)
    highest = torch.cat(
        [functional.linear(part, head.weight, head.bias).masked_fill(special, NEVER).max(1).values
         for part, special in parts]
    )  # fmt: skip
    tokens = (~batch.special).float()
    bag = hidden.new_zeros(passages, vocab, dtype=torch.float32).scatter_add_(1, batch.input_ids, tokens).clamp_(max=1)
    shares = bag / tokens.sum(1, keepdim=True).clamp(min=1)
    return -(shares * functional.log_softmax(highest.float(), dim=-1)).sum(1).mean()
