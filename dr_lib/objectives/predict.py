"""Score the tokens that a method asks for: vocabulary logits only at those positions, chunk by chunk."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from dr_lib import losses
from dr_lib.models import lm_head, masked_positions

IGNORED = -100


def predict_tokens(
    model: PreTrainedModel, hidden: Tensor, labels: Tensor, at_most: int | None = None, *, by_passage: bool = False
) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of the labelled positions under the model's own head, and the share it gets right.

    Args:
        hidden: `[batch, length, hidden]` last-layer states of encoder or decoder.
        labels: `[batch, length]` int64 clean ids, -100 where there is nothing to predict.
        at_most: a bound on the number of labels, known without looking (see `models.masked_positions`).
        by_passage: average within each passage first, then over passages; otherwise every token weighs the same.

    Returns:
        The loss (float32 scalar with gradient; 0 without labels) and the accuracy (detached).
    """
    counted = labels != IGNORED
    rows = masked_positions(counted, at_most)
    weights = (counted / counted.sum(1, keepdim=True).clamp(min=1)).flatten()[rows] if by_passage else None
    head = lm_head(model)
    states = head.transform(hidden.flatten(0, 1)[rows])
    loss, correct = losses.chunked_cross_entropy(
        states, head.weight, head.bias, labels.flatten()[rows], weights=weights
    )
    return loss, torch.as_tensor(correct) / counted.sum().clamp(min=1)


def labels_at(input_ids: Tensor, positions: Tensor) -> Tensor:
    """Clean ids where `positions` is True, -100 elsewhere."""
    return input_ids.masked_fill(~positions, IGNORED)


def two_sides(encoder: tuple[Tensor, Tensor], decoder: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    """What a step reports: the sum of both losses, and loss and accuracy of each side.

    Args:
        encoder, decoder: loss and accuracy of a side, as `predict_tokens` gives them.
    """
    return {
        "loss": encoder[0] + decoder[0],
        "encoder_loss": encoder[0].detach(),
        "decoder_loss": decoder[0].detach(),
        "encoder_accuracy": encoder[1],
        "decoder_accuracy": decoder[1],
    }
