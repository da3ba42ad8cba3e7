"""Micro-batches of one update count by their size, in one process or in several, as `torchrun` or
`accelerate launch` would start them.
"""

from dataclasses import dataclass, replace
from functools import partial

import datasets
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.testing import assert_close

from dr_lib.tokens import BatchStream, TokenBatch, TokenStore
from dr_lib.training import TrainLog, TrainSettings, train
from dr_lib.training.loop import share_of
from tests.child import side_by_side

PASSAGES, BUDGET = 17, 1024


@pytest.fixture(scope="module")
def store(tmp_path_factory, tiny_tokenizer) -> TokenStore:
    """17 passages of 62 pieces: with a budget of 1,024 tokens, 16 make a batch, and one is left."""
    vocabulary = [
        piece for piece in tiny_tokenizer.get_vocab() if piece.isalpha() and len(piece) > 1
    ]
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(sorted(vocabulary), 80)) for _ in range(PASSAGES)]
    rows = datasets.Dataset.from_dict({"title": [""] * PASSAGES, "text": texts})
    return TokenStore.build(rows, tiny_tokenizer, tmp_path_factory.mktemp("store") / "tokens")


class Counted(nn.Module):
    """A mean over tokens, like the loss of a masked LM."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Embedding(200, 3)
        nn.init.normal_(self.weight.weight, generator=torch.Generator().manual_seed(0))

    def forward(self, batch, generator):
        batch = getattr(batch, "passages", batch)
        return {"loss": self.weight(batch.input_ids).tanh().square().mean()}


def stream(store: TokenStore, budget: int) -> BatchStream:
    return BatchStream(
        store, tokens_per_batch=budget, max_length=64, title="none", pad_to_multiple=64
    )


def weights(batches, accumulation: int, folder, steps: int = 1) -> torch.Tensor:
    module = Counted()
    settings = TrainSettings(
        steps=steps, learning_rate=0.1, precision="fp32", accumulation=accumulation, clip=None
    )
    train(module, batches, settings, folder, title="t", progress=False)
    return module.weight.weight.detach()


def test_a_last_batch_of_one_passage_says_which_part_of_a_full_one_it_is(store):
    made = stream(store, BUDGET)
    batches = [made.batch(step) for step in range(4)]
    assert sorted((len(batch), batch.share) for batch in batches[:2]) == [(1, 1 / 16), (16, 1.0)]
    assert [batch.take(torch.tensor([0])).share for batch in batches] == [b.share for b in batches]
    assert [batch.to("cpu").cut(8).share for batch in batches] == [b.share for b in batches]
    assert [stream(store, 17 * 64).batch(step).share for step in range(3)] == [1.0] * 3


def test_accumulated_batches_give_the_gradient_of_the_whole_batch(store, tmp_path):
    """The single passage had half of the update's weight instead of a seventeenth."""
    gradients = {}
    for name, batches in {"one": [stream(store, 17 * 64).batch(0)], "two": None}.items():
        module, total = Counted(), 0.0
        made = stream(store, BUDGET)
        for batch in batches or [made.batch(0), made.batch(1)]:
            share = share_of(batch)
            (module(batch, None)["loss"] * share).backward()
            total += share
        gradients[name] = module.weight.weight.grad / total
    torch.testing.assert_close(gradients["one"], gradients["two"], rtol=1e-5, atol=1e-8)
    # and so in the loop, whose optimiser turns the sign of a gradient into a step
    whole = weights(stream(store, 17 * 64).batch, 1, tmp_path / "whole", steps=3)
    parts = weights(stream(store, BUDGET).batch, 2, tmp_path / "parts", steps=3)
    torch.testing.assert_close(whole, parts, rtol=0, atol=2e-5)
    made = stream(store, BUDGET)

    def unweighed(step: int) -> TokenBatch:
        return replace(made.batch(step), share=1.0)

    other = weights(unweighed, 2, tmp_path / "other", steps=3)
    assert (other - whole).abs().max() > 1e-3


def test_full_batches_train_bit_for_bit_as_without_shares(store, tmp_path):
    half = stream(store, 8 * 64)  # 8, 8 and 1: the first two full

    def full(step: int) -> TokenBatch:
        return next(
            batch for batch in map(half.batch, range(3 * step, 3 * step + 3)) if len(batch) == 8
        )

    @dataclass(frozen=True)
    class Wrapped:
        passages: torch.Tensor

    @dataclass(frozen=True)
    class Silent:
        input_ids: torch.Tensor

    made = [
        weights(batches, 2, tmp_path / name, steps=4)
        for name, batches in {
            "shares": full,
            "none": lambda step: Silent(full(step).input_ids),
            "inside": lambda step: Wrapped(full(step)),
        }.items()
    ]
    assert torch.equal(made[0], made[1]) and torch.equal(made[0], made[2])
    assert share_of(Wrapped(half.batch(0))) == half.batch(0).share


def test_alone_an_incomplete_micro_batch_is_the_whole_update(store, tmp_path):
    batch = min(map(stream(store, BUDGET).batch, range(2)), key=len)
    settings, norms = TrainSettings(steps=1, learning_rate=0.1, precision="fp32"), []
    for share in (batch.share, 1.0):
        made, place = replace(batch, share=share), tmp_path / str(share)
        log = train(Counted(), lambda _, made=made: made, settings, place, title="t")
        norms += [log.rows[0]["loss"], log.rows[0]["grad_norm"]]
    assert batch.share == 1 / 16 and norms[:2] == norms[2:]


def test_of_several_texts_the_share_is_that_of_the_incomplete_one(store):
    @dataclass(frozen=True)
    class Both:
        first: TokenBatch
        second: TokenBatch

    pair = list(map(stream(store, BUDGET).batch, range(2)))
    assert [share_of(Both(*pair)), share_of(Both(*reversed(pair)))] == [1 / 16, 1 / 16]


def test_processes_that_take_turns_draw_as_one_would_and_those_that_share_a_batch_apart(
    tmp_path, killable
):
    alone = killable.seeds_of_draws(tmp_path / "alone", False)
    assert len({*alone}) == len(alone) == 48
    first, second = side_by_side(killable.seeds_of_draws, tmp_path / "turns", False)
    assert sorted([*first, *second]) == sorted(alone)
    first, second = side_by_side(killable.seeds_of_draws, tmp_path / "together", True)
    assert len({*first, *second}) == len(first) + len(second) == 2 * len(alone)


@pytest.mark.slow
def test_two_processes_share_the_micro_batches_of_an_update(tmp_path, killable):
    """Each takes every second one, with the same dropout and masks as a single process."""
    settings = killable.SETTINGS.model_copy(update={"steps": 8, "precision": "fp32"})
    killable.run(killable.Miniature(), tmp_path / "one", settings=settings)
    side_by_side(partial(killable.run, settings=settings), killable.Miniature(), tmp_path / "two")
    one, two = (
        load_file(tmp_path / name / "checkpoint-8" / "model.safetensors") for name in ("one", "two")
    )
    assert one.keys() == two.keys()
    for name in one:
        assert_close(one[name], two[name], rtol=1e-3, atol=1e-5)
    logs = [TrainLog.load(tmp_path / name / "log.json") for name in ("one", "two")]
    assert [log.processes for log in logs] == [1, 2]
    np.testing.assert_allclose(logs[0].column("loss"), logs[1].column("loss"), rtol=1e-4)


@pytest.mark.slow
def test_two_processes_fine_tune_with_the_gradient_of_one_with_the_whole_batch(
    tmp_path, fine_tuned
):
    whole = fine_tuned.run(tmp_path / "one", 8)
    side_by_side(fine_tuned.run, tmp_path / "two", 8)
    for kind, expected in whole.items():
        found = fine_tuned.gradient_of(tmp_path / "two" / kind)
        assert (found - expected).norm() < 1e-5 * expected.norm(), kind
        logs = [TrainLog.load(tmp_path / name / kind / "log.json") for name in ("one", "two")]
        assert logs[1].processes == 2
        np.testing.assert_allclose(logs[1].column("loss"), logs[0].column("loss"), rtol=1e-5)
    for kind in ("cross-encoder", "late interaction"):  # with a gradient cache and without
        cached = whole[f"{kind}, gradient cache"]
        assert (cached - whole[kind]).norm() < 1e-5 * cached.norm() and cached.norm() > 0
    halves = whole["cross-encoder, micro-batches"]
    assert (halves - whole["cross-encoder"]).norm() < 1e-5 * halves.norm()
