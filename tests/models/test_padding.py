"""How much of a step's positions is padding, on a GPU at the sizes of the scale `paper`, and that
cutting it changes no loss and no gradient.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dr_lib import losses
from dr_lib.models import encode_by_length, encode_in_chunks, hidden_states
from dr_lib.tokens import TokenBatch


def drawn(rows: int, mean: float, longest: int) -> np.ndarray:
    """Lengths distributed like MS MARCO's passages, with this mean."""
    spread = 0.4
    lengths = np.random.default_rng(0).lognormal(np.log(mean) - spread**2 / 2, spread, rows)
    return np.clip(lengths.round().astype(int), 8, longest)


@pytest.mark.parametrize(
    ("step", "rows", "mean", "longest", "chunk"),
    [
        ("fine-tuning", 64 * 16, 75, 144, None),
        ("distillation", 64 * 24, 75, 144, 512),
        ("fine-tuning on 24 GB", 64 * 16, 75, 144, 192),
        ("cross-encoder", 8 * 64, 90, 192, None),
    ],
)
def test_at_most_a_quarter_of_the_positions_is_padding(step, rows, mean, longest, chunk):
    lengths = drawn(rows, mean, longest)
    ids = torch.zeros(rows, longest, dtype=torch.int64, device="meta")
    flags = ids.bool()
    batch = TokenBatch(ids, ids, ids, flags, flags, ids[:, 0], lengths=lengths)
    assert lengths.sum() < 0.55 * ids.numel(), "half of it was padding"
    read = []

    def encode(part: TokenBatch) -> torch.Tensor:
        read.append(part.input_ids.shape)
        assert part.lengths is None or part.lengths.max() <= part.input_ids.shape[1]
        return part.input_ids[:, :4].float()

    vectors = encode_in_chunks(lambda part: encode_by_length(encode, part), batch, chunk)
    assert vectors.shape == (rows, 4) and sum(shape[0] for shape in read) == rows
    assert 1 - lengths.sum() / sum(shape.numel() for shape in read) <= 0.25


@pytest.mark.parametrize("chunk", [None, 7, 16])
def test_sorted_chunks_have_the_loss_and_the_gradient_of_the_whole(
    chunk, tiny_bert, make_token_batch
):
    rng, model = np.random.default_rng(0), tiny_bert().train()
    with torch.no_grad():  # a gradient between equal vectors is all rounding
        for weight in model.parameters():
            weight.mul_(5 if weight.ndim > 1 else 1)
    lengths = rng.integers(3, 40, 48)
    ids = rng.integers(5, 100, (48, 40))
    ids[:, 0] = 2
    ids[np.arange(40) >= lengths[:, None]] = 0
    batch = make_token_batch(ids, np.arange(48))
    found = []
    for known in (None, lengths):
        model.zero_grad()
        vectors = encode_in_chunks(
            lambda part: hidden_states(model, part)[:, 0],
            replace(batch, lengths=known),
            None if known is None else chunk,
        )
        loss = losses.contrastive(vectors[:12], vectors[12:], temperature=0.1)
        loss.backward()
        slopes = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
        found.append((loss.item(), torch.cat(slopes)))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-5)
    assert (found[1][1] - found[0][1]).norm() < 1e-5 * found[0][1].norm()
