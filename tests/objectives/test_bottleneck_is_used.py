"""The one vector between encoder and decoder: gradient goes through it, and what was learned lies
in it.
"""

import pytest
import torch

from dr_lib.tokens import TokenBatch

METHODS = {
    "encdec_mlm": {"encoder_rate": 0.0},
    "autoencoder": {},
    "condenser": {"late_mlm": False},
    "retromae": {"encoder_rate": 0.0},
}
"""Each so that only the decoder (or head) has a loss."""


def replaced_vector(objective, change) -> None:
    """Let `change` see every vector `[batch, hidden]` on its way to the decoder, and pass on what
    it returns.
    """
    if hasattr(objective, "decode"):
        decode = objective.decode
        objective.decode = lambda batch, first, generator: decode(
            batch, change(first[:, 0])[:, None], generator
        )
    else:
        part = getattr(objective, "head", None) or objective.decoder
        part.register_forward_pre_hook(lambda _, given: (given[0], change(given[1]), given[2]))


@pytest.mark.parametrize("name", METHODS)
def test_the_decoders_loss_reaches_the_last_encoder_layer_through_the_vector_alone(
    name, make, batch, seeded
):
    objective = make(name, **METHODS[name])
    last = list(objective.model.bert.encoder.layer[-1].parameters())
    gradients = torch.autograd.grad(objective(batch, seeded())["loss"], last)
    assert any(gradient.abs().max() > 0 for gradient in gradients)
    replaced_vector(objective, torch.Tensor.detach)
    gradients = torch.autograd.grad(objective(batch, seeded())["loss"], last, allow_unused=True)
    assert not any(gradient is not None and gradient.any() for gradient in gradients)


def test_another_passages_vector_raises_the_decoders_loss_after_training(make, seeded):
    # eight passages, each one word said six times
    ids = torch.arange(20, 28)[:, None].expand(-1, 8).clone()
    ids[:, 0], ids[:, -1] = 2, 3
    special, blank = ids < 5, torch.zeros_like(ids)
    batch = TokenBatch(ids, blank + 1, blank, special, ~special, torch.arange(8))
    objective = make("retromae", encoder_rate=0.0, decoder_rate=1.0)
    optimiser = torch.optim.AdamW(objective.parameters(), lr=5e-3)
    for step in range(40):
        optimiser.zero_grad()
        objective(batch, seeded(step))["loss"].backward()
        optimiser.step()
    with torch.no_grad():
        own = objective(batch, seeded(1000))["decoder_loss"]
        replaced_vector(objective, lambda vectors: vectors.roll(1, 0))
        shuffled = objective(batch, seeded(1000))["decoder_loss"]
    assert shuffled > own + 1.0
