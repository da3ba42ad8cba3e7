"""Chunks with recomputed activations have the same gradient as chunks with kept activations."""

import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from dr_lib import losses
from dr_lib.models import encode_in_chunks, hidden_states

QUERIES, PER_QUERY, LENGTH = 5, 3, 24


def scores_of(queries, passages):
    return torch.einsum("qh,qnh->qn", queries, passages.view(len(queries), -1, queries.shape[1]))


LOSSES = {
    **{
        blocks: lambda q, p, blocks=blocks: losses.contrastive(
            q, p, temperature=0.05, blocks=blocks
        )
        for blocks in ("released", "paper", "query_passage")
    },
    "passage_centric": losses.passage_centric,
    "pair": lambda q, p: losses.pair(q, p, alpha=0.3, temperature=0.5, normalise=True),
    "siblings": lambda q, p: losses.siblings(torch.cat([q, p]) / 4),
    "listwise": lambda q, p: losses.listwise(scores_of(q, p)),
    "distillation": lambda q, p: losses.distillation(
        scores_of(q, p),
        torch.arange(QUERIES * PER_QUERY).view(QUERIES, -1).sin() * 3,
        student_temperature=0.7,
    ),
}


@pytest.fixture
def sides(make_token_batch):
    """Five queries and fifteen passages of differing lengths."""
    rng = np.random.default_rng(0)

    def side(rows: int, length: int):
        ids = rng.integers(5, 100, (rows, length))
        ids[:, 0] = 2
        ids[np.arange(length) >= rng.integers(2, length, (rows, 1))] = 0
        return make_token_batch(ids, np.arange(rows))

    return side(QUERIES, 8), side(QUERIES * PER_QUERY, LENGTH)


@pytest.fixture
def telling(tiny_bert):
    """A small model with weights large enough for its vectors to differ: a gradient between equal
    vectors is only rounding.
    """

    def make(dropout: float = 0.0):
        model = tiny_bert(dropout=dropout).train()
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(5 if weight.ndim > 1 else 1)
        return model

    return make


def first_states(model):
    return lambda batch: hidden_states(model, batch)[:, 0].float()


def kept(function, batch, rows, *beside):
    """The same chunks with all activations kept, encoded in a plain loop."""
    parts = [function(batch.take(index)) for index in torch.arange(len(batch)).split(rows)]
    return torch.cat(parts)


def gradient(model, loss):
    model.zero_grad()
    loss.backward()
    return torch.cat(
        [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
    )


def far(found, expected):
    """Relative distance of two gradients."""
    return ((found - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize(("name", "rows"), [*((name, 4) for name in LOSSES), ("released", 1)])
def test_with_dropout_loss_and_gradient_are_those_of_kept_activations(name, rows, telling, sides):
    model, found = telling(dropout=0.1), {}
    for encode in (kept, encode_in_chunks):
        torch.manual_seed(7)
        loss = LOSSES[name](*(encode(first_states(model), side, rows) for side in sides))
        found[encode] = loss.item(), gradient(model, loss)
    assert found[encode_in_chunks][0] == pytest.approx(found[kept][0], rel=1e-5)
    assert far(found[encode_in_chunks][1], found[kept][1]) < 1e-5


@pytest.mark.parametrize("name", LOSSES)
def test_without_dropout_they_are_those_of_the_whole_batch(name, telling, sides):
    model, found = telling(), {}
    for rows in (None, 4):
        loss = LOSSES[name](*(encode_in_chunks(first_states(model), side, rows) for side in sides))
        found[rows] = loss.item(), gradient(model, loss)
    assert found[4][0] == pytest.approx(found[None][0], rel=1e-5)
    assert far(found[4][1], found[None][1]) < 1e-5


def test_the_gradient_is_that_of_the_method_in_three_steps(telling, sides):
    """Vectors without a graph, the gradient of the loss to them, then each chunk again with its
    random state.
    """
    model, (_, passages) = telling(dropout=0.1), sides
    encode, chunks = first_states(model), torch.arange(len(passages)).split(4)

    def loss_of(vectors):
        return losses.contrastive(vectors[:3] * 1.5, vectors[3:], temperature=0.1)

    torch.manual_seed(7)
    states, cached = [], []
    with torch.no_grad():
        for index in chunks:
            states.append(torch.get_rng_state())
            cached.append(encode(passages.take(index)))
    vectors = torch.cat(cached).requires_grad_()
    (slope,) = torch.autograd.grad(loss_of(vectors), vectors)
    surrogate = torch.zeros(())
    for index, state in zip(chunks, states, strict=True):
        torch.set_rng_state(state)
        surrogate = surrogate + (encode(passages.take(index)) * slope[index]).sum()
    expected = gradient(model, surrogate)

    torch.manual_seed(7)
    assert far(gradient(model, loss_of(encode_in_chunks(encode, passages, 4))), expected) < 1e-5


def test_a_loss_made_inside_the_chunks_keeps_its_weight(telling, sides):
    model, (_, passages) = telling(dropout=0.1), sides
    labels = passages.input_ids.masked_fill(passages.special, -100)

    def function(chunk, wanted):
        logits = model(**chunk.model_inputs(), output_hidden_states=True)
        total = functional.cross_entropy(
            logits.logits.flatten(0, 1), wanted.flatten(), reduction="sum"
        )
        return logits.hidden_states[-1][:, 0], total, (wanted != -100).sum()

    def plain(batch, rows, wanted):
        parts = [
            function(batch.take(index), wanted[index])
            for index in torch.arange(len(batch)).split(rows)
        ]
        return torch.cat([part[0] for part in parts]), *(
            sum(part[place] for part in parts) for place in (1, 2)
        )

    found = []
    for encode in (
        plain,
        lambda batch, rows, wanted: encode_in_chunks(function, batch, rows, wanted),
    ):
        torch.manual_seed(3)
        vectors, total, count = encode(passages, 4, labels)
        loss = losses.contrastive(vectors[:5], vectors[5:], temperature=0.1) + 0.5 * total / count
        found.append((loss.item(), gradient(model, loss)))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-6)
    assert far(found[1][1], found[0][1]) < 1e-5


def test_bf16_autocast_is_the_same_forward_and_backward(telling, sides):
    model, found = telling(dropout=0.1), {}
    for encode in (kept, encode_in_chunks):
        torch.manual_seed(7)
        with torch.autocast("cpu", torch.bfloat16):
            loss = LOSSES["released"](*(encode(first_states(model), side, 4) for side in sides))
        found[encode] = loss.item(), gradient(model, loss)
    assert found[encode_in_chunks][0] == pytest.approx(found[kept][0], rel=1e-3)
    assert far(found[encode_in_chunks][1], found[kept][1]) < 1e-2  # numbers of eight bits


def test_two_micro_batches_add_their_gradients(telling, sides):
    model, (_, passages) = telling(), sides
    expected, found = 0.0, 0.0
    for begin in (0, 6):
        part = passages.take(torch.arange(begin, begin + 6))
        expected = expected + gradient(
            model, LOSSES["paper"](*first_states(model)(part).split((2, 4)))
        )
    model.zero_grad()
    for begin in (0, 6):
        part = passages.take(torch.arange(begin, begin + 6))
        LOSSES["paper"](*encode_in_chunks(first_states(model), part, 4).split((2, 4))).backward()
    found = torch.cat(
        [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
    )
    assert far(found, expected) < 1e-5


def test_the_random_state_after_a_step_does_not_depend_on_the_way_back(telling, sides):
    model, after = telling(dropout=0.1), []
    for encode in (kept, encode_in_chunks):
        torch.manual_seed(7)
        encode(first_states(model), sides[1], 4).sum().backward()
        after.append(torch.get_rng_state())
    assert torch.equal(*after)


class Held(TorchDispatchMode):
    """Current and peak bytes of large results of operations."""

    def __init__(self, large: int):
        super().__init__()
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.large, self.peak = large, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.nbytes >= self.large:
                storage = tensor.untyped_storage()
                self.alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
                self.alive = {
                    key: held for key, held in self.alive.items() if not held[0].expired()
                }
                self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return result


def test_memory_falls_with_the_size_of_a_chunk(tiny_bert, sides):
    model, peaks = tiny_bert(hidden=16).train(), {}
    batch = sides[1].take(torch.arange(16) % 15)
    gradient(model, first_states(model)(batch).sum())  # gradients themselves are there before
    for rows in (None, 8, 4):
        with Held(large=4 * 24 * 16 * 4) as held:
            losses.contrastive(
                *encode_in_chunks(first_states(model), batch, rows).split((4, 12))
            ).backward()
        peaks[rows] = held.peak
    assert peaks[8] < 0.6 * peaks[None]
    assert peaks[4] < 0.6 * peaks[8]


def test_a_chunk_as_large_as_the_batch_is_one_plain_pass(tiny_bert, sides):
    calls, encode = [], first_states(tiny_bert())
    encode_in_chunks(
        lambda batch: (calls.append(len(batch)), encode(batch))[1], sides[0], 5
    ).sum().backward()
    assert calls == [5]
