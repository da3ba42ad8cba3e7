"""Auto-encoding: the vector is all that the decoder has."""

import pytest
import torch
from torch.nn import functional


@pytest.mark.parametrize("kind", ["bert", "electra"])
def test_loss_and_gradient_are_those_of_full_logits(
    kind, make_loud, batch, seeded, tiny_electra, all_logits, decoded_by_hand, same_gradients
):
    objective = make_loud("autoencoder", tiny_electra if kind == "electra" else None)
    ids = batch.input_ids.clone()
    ids[0, 2] = 1  # an unknown word is hidden, and not asked for
    batch = batch.with_ids(ids)
    result = objective(batch, seeded())
    first = objective.model.base_model(**batch.model_inputs()).last_hidden_state[:, 0]
    nothing = torch.where(batch.special, ids, 4)
    decoded = decoded_by_hand(objective.decoder.layers, objective.model, batch, first, nothing)
    logits, counted = all_logits(objective.model, decoded), ids >= 5
    expected = functional.cross_entropy(logits[counted], ids[counted])
    assert torch.allclose(result["loss"], expected, atol=1e-5) and result["loss"] == result["decoder_loss"]
    assert torch.allclose(result["decoder_accuracy"], (logits.argmax(-1) == ids)[counted].float().mean())
    assert same_gradients(objective, result["loss"], expected)


def test_the_encoder_has_no_loss_of_its_own(make, batch, seeded):
    assert set(make("autoencoder")(batch, seeded())) == {"loss", "decoder_loss", "decoder_accuracy"}


def test_the_decoder_reads_the_same_of_every_passage_of_a_shape(make, batch, seeded):
    objective, read = make("autoencoder"), []
    objective.decoder.register_forward_pre_hook(lambda _, given: read.append(given))
    other = batch.with_ids(torch.where(batch.special, batch.input_ids, (batch.input_ids + 7) % 90 + 5))
    for one in (batch, other):
        objective(one, seeded())
    (embedded, vector, _), (embedded_again, other_vector, _) = read
    assert torch.equal(embedded, embedded_again)
    assert (vector != other_vector).any(-1).all()
