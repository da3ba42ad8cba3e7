"""Encoding in groups of about one length."""

import pytest
import torch

from dr_lib.models import encode_by_length, hidden_states


class Seen:
    """The first state of each sequence, and the shapes that were asked for."""

    def __init__(self, model):
        self.model, self.shapes = model, []

    def __call__(self, batch):
        assert all(tensor.shape == batch.input_ids.shape for tensor in (batch.special, batch.word_start))
        self.shapes.append(tuple(batch.input_ids.shape))
        return hidden_states(self.model, batch)[:, 0]


@pytest.fixture
def encode(tiny_bert):
    return Seen(tiny_bert())


@pytest.fixture
def mixed(batch):
    """32 sentences and as many short texts, one beside the other."""
    return batch.take(torch.stack([torch.arange(32) % 5, 5 + torch.arange(32) % 2], 1).flatten())


def test_vectors_and_gradient_are_those_of_one_call(encode, mixed):
    found = []
    for way in (encode, lambda batch: encode_by_length(encode, batch)):
        encode.model.zero_grad()
        vectors = way(mixed)
        (vectors * torch.arange(vectors.numel()).view_as(vectors)).sum().backward()
        found.append((vectors, encode.model.bert.embeddings.word_embeddings.weight.grad.clone()))
    torch.testing.assert_close(found[1][0], found[0][0])
    torch.testing.assert_close(found[1][1], found[0][1], rtol=1e-4, atol=1e-6 * found[0][1].abs().max().item())


def test_groups_hold_less_padding(encode, mixed):
    encode_by_length(encode, mixed)
    assert [rows for rows, _ in encode.shapes] == [16, 16, 16, 16]
    assert [width for _, width in encode.shapes] == [32, 32, 16, 16]


def test_no_group_is_cut_shorter_than_its_sequences(mixed):
    def told(batch):
        return batch.attention_mask.sum(1, keepdim=True)

    assert torch.equal(encode_by_length(told, mixed), told(mixed))


def test_a_small_batch_stays_whole(encode, mixed):
    encode_by_length(encode, mixed.take(torch.arange(31)))
    assert encode.shapes == [(31, 32)]


def test_the_same_batch_gives_the_same_bits(encode, mixed):
    assert torch.equal(*(encode_by_length(encode, mixed) for _ in range(2)))


def test_values_are_cut_too(mixed):
    values = torch.rand(mixed.input_ids.shape)
    cut = mixed.cut(8)
    assert cut.values is None and cut.rows.shape == mixed.rows.shape
    valued = type(mixed)(**{**vars(mixed), "values": values}).cut(8)
    assert torch.equal(valued.values, values[:, :8])
