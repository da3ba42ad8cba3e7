"""RetroMAE's decoder layer against the formula of attention, head by head and row by row."""

import pytest
import torch
from torch import nn

from dr_lib.models import EnhancedDecoder, attention_bias


@pytest.fixture
def decoder(tiny_bert) -> EnhancedDecoder:
    return EnhancedDecoder(tiny_bert(), seed=3).eval()


@pytest.fixture
def streams() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, contents, and a mask under which every row sees something."""
    source = torch.Generator().manual_seed(0)
    queries, contents = (torch.randn(3, 6, 32, generator=source) for _ in range(2))
    unseen = torch.rand(3, 6, 6, generator=source) < 0.5
    unseen[:, :, 5] = False
    return queries, contents, unseen


def test_states_are_those_of_the_formula(decoder, streams):
    queries, contents, unseen = streams
    layer = decoder.layer
    q, k, v = (
        linear(x).view(3, 6, 2, 16)
        for linear, x in zip(
            (layer.attention.self.query, layer.attention.self.key, layer.attention.self.value),
            (queries, contents, contents), strict=True,
        )
    )  # fmt: skip
    mixed = torch.zeros(3, 6, 2, 16)
    for passage in range(3):
        for row in range(6):
            seen = (~unseen[passage, row]).nonzero()[:, 0]
            for head in range(2):
                weights = torch.softmax(k[passage, seen, head] @ q[passage, row, head] / 4.0, dim=0)
                mixed[passage, row, head] = weights @ v[passage, seen, head]
    after = layer.attention.output
    attended = after.LayerNorm(after.dense(mixed.flatten(2)) + queries)
    inner = nn.functional.gelu(layer.intermediate.dense(attended))
    expected = layer.output.LayerNorm(layer.output.dense(inner) + attended)
    assert torch.allclose(decoder(queries, contents, unseen), expected, atol=1e-5)


def test_one_stream_and_nothing_unseen_but_padding_is_the_layer_itself(decoder, batch):
    states = torch.randn(*batch.input_ids.shape, 32)
    padding = (batch.attention_mask == 0)[:, None].expand(-1, states.shape[1], -1)
    expected = decoder.layer(states, attention_bias(batch))
    assert torch.allclose(decoder(states, states, padding), expected, atol=1e-5)


def test_a_row_knows_nothing_of_the_columns_it_does_not_see(decoder, streams):
    queries, contents, unseen = streams
    changed = contents.clone()
    changed[:, 2] += 1.0
    first, second = decoder(queries, contents, unseen), decoder(queries, changed, unseen)
    same = (first == second).all(-1)
    assert torch.equal(same, unseen[:, :, 2])


def test_the_query_stream_is_the_residual(decoder, streams):
    queries, contents, unseen = streams
    for linear in (decoder.layer.attention.output.dense, decoder.layer.output.dense):
        nn.init.zeros_(linear.weight)
    expected = nn.functional.layer_norm(nn.functional.layer_norm(queries, [32], eps=1e-12), [32], eps=1e-12)
    assert torch.allclose(decoder(queries, contents, unseen), expected, atol=1e-5)


def test_dropout_of_attention_follows_the_mode(tiny_bert, streams):
    decoder = EnhancedDecoder(tiny_bert(dropout=0.5))
    assert torch.equal(decoder.eval()(*streams), decoder(*streams))
    assert not torch.equal(decoder.train()(*streams), decoder(*streams))


def test_weights_follow_their_seed_are_small_and_its_own(tiny_bert):
    model = tiny_bert()
    first, again, other = (EnhancedDecoder(model, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    name = "layer.intermediate.dense.weight"
    assert not torch.equal(first[name], other[name])
    assert first[name].std() == pytest.approx(0.02, rel=0.1)
    assert not torch.equal(first[name], model.bert.encoder.layer[-1].intermediate.dense.weight)
