"""States of every layer and raw positions."""

import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.models import embed, hidden_states, layer_states, position_vectors


@pytest.fixture(params=["bert", "electra"])
def model(request, tiny_bert, tiny_electra):
    return tiny_bert(layers=3) if request.param == "bert" else tiny_electra


def test_layer_states_run_from_the_embedding_to_the_last_layer(model, batch):
    with torch.no_grad():
        states = layer_states(model, batch)
        assert len(states) == model.config.num_hidden_layers + 1
        assert torch.equal(states[0], embed(model, batch.input_ids, batch.token_type_ids))
        assert torch.equal(states[-1], hidden_states(model, batch))
        library = model(**batch.model_inputs(), output_hidden_states=True).hidden_states
    real = batch.attention_mask == 1
    assert all(torch.allclose(a[real], b[real], atol=1e-6) for a, b in zip(states, library, strict=True))


def test_layer_states_of_a_batch_longer_than_the_model_has_positions_are_refused(model, batch):
    model.config.max_position_embeddings = 16
    with pytest.raises(InputError, match="32 tokens are more than the model's 16 positions"):
        layer_states(model, batch)


def test_position_vectors_are_what_the_embedding_adds_before_its_norm(model, batch):
    base = model.base_model
    with torch.no_grad():
        found = position_vectors(model, 7)
        base.embeddings.LayerNorm, base.embeddings.word_embeddings.weight[:] = torch.nn.Identity(), 0.0
        base.embeddings.token_type_embeddings.weight[:] = 0.0
        assert torch.allclose(found, embed(model, batch.input_ids[:1, :7])[0], atol=1e-7)
