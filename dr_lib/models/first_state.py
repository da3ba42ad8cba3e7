"""The last-layer state of the first position alone, which is all that a dense encoder or a cross-encoder reads.

The last layer is computed for that one position: its keys and values are needed everywhere, but query, output and
feed-forward part, five sixths of its products, at one place only. With two layers that saves two fifths of a step,
with twelve a fourteenth; vector and gradient are those of the whole layer but for rounding. Page: reference/speed.
"""

import torch
from torch import Tensor, nn
from transformers import BertModel, ElectraModel, PreTrainedModel

from dr_lib.models.states import attention_bias, check_length, embed, hidden_states
from dr_lib.tokens.batch import TokenBatch


def first_states(model: PreTrainedModel, batch: TokenBatch) -> Tensor:
    """Last-layer states `[batch, hidden]` of position 0: ``hidden_states(model, batch)[:, 0]`` in less time.

    Args:
        model: a BERT or ELECTRA with or without head; of any other kind the whole last layer is computed.
        batch: ids, padding and token types.

    Raises:
        InputError: the batch is longer than the model has positions.
    """
    base = model.base_model
    if not isinstance(base, (BertModel, ElectraModel)):
        return hidden_states(model, batch)[:, 0]
    check_length(model, batch.input_ids)
    states = embed(model, batch.input_ids, batch.token_type_ids)
    bias = attention_bias(batch, states.dtype)
    *lower, last = base.encoder.layer
    for layer in lower:
        states = layer(states, bias)
    first = states[:, :1]
    attended = last.attention.output(_attended(last.attention.self, first, states, bias), first)
    return last.feed_forward_chunk(attended)[:, 0]


def _attended(attention: nn.Module, asking: Tensor, states: Tensor, bias: Tensor) -> Tensor:
    """What some positions `[batch, some, hidden]` take from all; the usual attention with dropout on its weights."""
    heads = (len(states), -1, attention.num_attention_heads, attention.attention_head_size)
    query = attention.query(asking).view(heads).transpose(1, 2)
    key, value = (part(states).view(heads).transpose(1, 2) for part in (attention.key, attention.value))
    weights = torch.softmax(query @ key.transpose(2, 3) * attention.scaling + bias, dim=-1)
    weights = nn.functional.dropout(weights, attention.dropout.p, attention.training)
    return (weights @ value).transpose(1, 2).flatten(2)
