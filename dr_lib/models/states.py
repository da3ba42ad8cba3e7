"""What a masked LM is made of: embedding output, attention mask, hidden states, and its head taken apart.

BERT and ELECTRA differ in two places: ELECTRA may project its embeddings, and the two name their heads differently.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from dr_lib.errors import InputError
from dr_lib.tokens.batch import TokenBatch


class LmHead(NamedTuple):
    """A masked-LM head: logits are ``transform(hidden) @ weight.T + bias``, so they can be made where needed only."""

    transform: Callable[[Tensor], Tensor]
    weight: Tensor
    bias: Tensor


def lm_head(model: PreTrainedModel) -> LmHead:
    """Take the head of a masked LM apart: transform, output weight `[vocab, width]` (tied), bias `[vocab]`."""
    output = model.get_output_embeddings()
    if hasattr(model, "generator_predictions"):
        return LmHead(model.generator_predictions, output.weight, output.bias)
    if hasattr(model, "cls") and hasattr(model.cls, "predictions"):
        return LmHead(model.cls.predictions.transform, output.weight, output.bias)
    raise InputError(
        f"{type(model).__name__} has a head of an unknown kind",
        where="model",
        fix="Use a BERT or an ELECTRA generator.",
    )


def attention_bias(batch: TokenBatch, dtype: torch.dtype = torch.float32) -> Tensor:
    """`[batch, 1, 1, length]`, 0 at tokens and very negative at padding, for encoder and decoder layers alike.

    Made here once a batch: the library would make it in every pass, and on a GPU ask the host whether there is padding.
    """
    padding = batch.attention_mask[:, None, None, :] == 0
    return torch.zeros(padding.shape, dtype=dtype, device=padding.device).masked_fill_(padding, torch.finfo(dtype).min)


def embed(model: PreTrainedModel, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
    """Embedding output `[batch, length, hidden]`: word + position + type, LayerNorm, dropout (ELECTRA: projection)."""
    base = model.base_model
    embedded = base.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
    project: nn.Module | None = getattr(base, "embeddings_project", None)
    return embedded if project is None else project(embedded)


def position_vectors(model: PreTrainedModel, length: int) -> Tensor:
    """Raw position embeddings `[length, hidden]`: no token type, no LayerNorm, no dropout (ELECTRA: projected)."""
    base = model.base_model
    vectors = base.embeddings.position_embeddings.weight[:length]
    project: nn.Module | None = getattr(base, "embeddings_project", None)
    return vectors if project is None else project(vectors)


def hidden_states(model: PreTrainedModel, batch: TokenBatch, input_ids: Tensor | None = None) -> Tensor:
    """Last-layer states `[batch, length, hidden]` of an encoder with or without head.

    Args:
        model: a masked LM or a bare encoder.
        batch: positions, padding and token types; its ids are read where `input_ids` is None.
        input_ids: `[batch, length]`, masked or replaced ids of the same positions.

    Raises:
        InputError: the batch is longer than the model has positions.
    """
    return _run(model, batch, input_ids).last_hidden_state


def layer_states(model: PreTrainedModel, batch: TokenBatch, input_ids: Tensor | None = None) -> tuple[Tensor, ...]:
    """States `[batch, length, hidden]` after the embedding and after each layer, the last as `hidden_states` has it."""
    return _run(model, batch, input_ids, output_hidden_states=True).hidden_states


def _run(model: PreTrainedModel, batch: TokenBatch, input_ids: Tensor | None, **options: bool) -> BaseModelOutput:
    ids = batch.input_ids if input_ids is None else input_ids
    check_length(model, ids)
    return model.base_model(
        input_ids=ids, attention_mask=attention_bias(batch, model.dtype), token_type_ids=batch.token_type_ids, **options
    )


def check_length(model: PreTrainedModel, ids: Tensor) -> None:
    """Raise `InputError` where ids `[batch, length]` are longer than the model has positions."""
    positions = model.config.max_position_embeddings
    if ids.shape[1] > positions:
        raise InputError(
            f"{ids.shape[1]} tokens are more than the model's {positions} positions", where="length",
            fix="Cut passages shorter, or use a model with more positions.",
        )  # fmt: skip
