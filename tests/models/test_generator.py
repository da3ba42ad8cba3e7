"""Drawing ids: the distribution, its edges, and where the generator may write."""

from dataclasses import replace

import pytest
import torch

from dr_lib.models import Generator, hidden_states, masked_positions, new_bert
from dr_lib.models import bottleneck as module
from dr_lib.models.bottleneck import draw_ids, pick_from_logits, pick_from_softmax, sample_by_cdf

SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
NONE = torch.tensor([], dtype=torch.int64)


@pytest.mark.parametrize("vocab", [5, 128, 129, 300, 512])
def test_an_even_grid_of_uniforms_gives_the_softmax(vocab):
    torch.manual_seed(vocab)
    logits, draws = torch.randn(vocab), 40_000
    ids = sample_by_cdf(logits.softmax(0).expand(draws, -1), (torch.arange(draws) + 0.5) / draws)
    shares = torch.bincount(ids, minlength=vocab) / draws
    assert (shares - logits.double().softmax(0)).abs().max() < 2.5 / draws
    assert (ids.diff() >= 0).all()


@pytest.mark.parametrize("rows", [64, 512])
def test_drawing_equals_a_cumulative_sum_over_the_whole_vocabulary(rows, monkeypatch):
    monkeypatch.setattr(module, "LOGITS", rows * 700)
    torch.manual_seed(0)
    states, weight, bias, uniform = (
        torch.randn(500, 16),
        torch.randn(700, 16),
        torch.randn(700),
        torch.rand(500),
    )
    chances = (states.double() @ weight.double().T + bias.double()).softmax(-1)
    expected = (chances.cumsum(-1) <= uniform[:, None]).sum(-1)
    drawn = draw_ids(states, weight, bias, uniform, NONE)
    assert (drawn == expected).float().mean() > 0.99


def test_probability_zero_is_never_drawn_at_either_end():
    uniform = torch.tensor([0.0, 1 - 2**-24])
    logits = torch.full((2, 300), -torch.inf)
    logits[:, 131] = 0.0
    assert sample_by_cdf(logits.softmax(1), uniform).tolist() == [131, 131]
    logits[:, 7] = 0.0
    assert sample_by_cdf(logits.softmax(1), uniform).tolist() == [7, 131]
    peaked = torch.zeros(2, 300)
    peaked[:, 0] = 200.0
    assert sample_by_cdf(peaked.softmax(1), uniform).tolist() == [0, 0]


def test_forbidden_ids_are_never_drawn():
    torch.manual_seed(0)
    states, weight, bias = torch.randn(4000, 8), torch.randn(9, 8), torch.randn(9)
    drawn = draw_ids(states, weight, bias, torch.rand(4000), torch.tensor([0, 2, 8]))
    assert set(drawn.tolist()) == {1, 3, 4, 5, 6, 7}


def test_rows_hold_every_true_position_once_and_fill_up_with_others():
    torch.manual_seed(0)
    mask = torch.rand(40, 30) < 0.3
    rows = masked_positions(mask)
    assert len(rows) % 256 == 0 and len(rows.unique()) == len(rows)
    assert torch.equal(rows[: int(mask.sum())], mask.flatten().nonzero().squeeze(1))
    assert len(masked_positions(torch.zeros(40, 30, dtype=torch.bool))) == 0
    assert len(masked_positions(torch.ones(3, 5, dtype=torch.bool))) == 15


@pytest.mark.parametrize("kind", ["bert", "electra"])
def test_generator_changes_masked_positions_only_and_follows_its_seed(
    kind, tiny_bert, tiny_electra, batch
):
    generator = Generator(tiny_bert() if kind == "bert" else tiny_electra, SPECIAL)
    mask = (
        torch.rand(batch.input_ids.shape, generator=torch.Generator().manual_seed(1)) < 0.4
    ) & ~batch.special
    masked = batch.input_ids.masked_fill(mask, 4)
    first, again, other = (
        generator.sample(batch, masked, mask, torch.Generator().manual_seed(seed))
        for seed in (5, 5, 6)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(first[~mask], batch.input_ids[~mask])
    assert not torch.isin(first[mask], torch.tensor([0, 2, 3, 4])).any()


def test_a_spare_row_of_the_model_is_never_sampled(batch):
    model, pieces = new_bert(1100, layers=1, hidden=32, max_positions=64), 1000
    with torch.no_grad():
        model.get_output_embeddings().bias[pieces:] = 30.0
    everything = torch.ones_like(batch.special)
    for forbid in (False, True):
        generator = Generator(model, SPECIAL, forbid_special=forbid, pieces=pieces)
        assert (
            generator.sample(batch, batch.input_ids, everything, torch.Generator().manual_seed(0))
            < pieces
        ).all()


def test_sampled_frequencies_are_those_of_full_logits(tiny_bert, batch):
    model = tiny_bert()
    generator = Generator(model, SPECIAL, forbid_special=False)
    mask = torch.zeros_like(batch.special)
    mask[0, 3] = True
    masked = batch.input_ids.masked_fill(mask, 4)
    with torch.no_grad():
        expected = model(
            masked, attention_mask=batch.attention_mask, token_type_ids=batch.token_type_ids
        ).logits[0, 3]
        hidden = hidden_states(model, batch, masked)[:1].expand(20_000, -1, -1)
    many = replace(batch, input_ids=batch.input_ids[:1].expand(20_000, -1))
    drawn = generator.fill(
        hidden, many, mask[:1].expand(20_000, -1), torch.Generator().manual_seed(0)
    )[:, 3]
    shares = torch.bincount(drawn, minlength=len(expected)) / len(drawn)
    assert (shares - expected.softmax(0)).abs().sum() < 0.1


@pytest.mark.parametrize("dropout_active", [False, True])
def test_frozen_generator_has_dropout_only_where_asked(tiny_bert, dropout_active):
    generator = Generator(tiny_bert(dropout=0.1), SPECIAL, dropout_active=dropout_active).train()
    assert generator.model.training is dropout_active
    assert not any(weight.requires_grad for weight in generator.parameters())


def test_learning_generator_follows_the_trainer(tiny_bert):
    generator = Generator(tiny_bert(dropout=0.1), SPECIAL, frozen=False)
    assert generator.train().model.training and not generator.eval().model.training
    assert all(weight.requires_grad for weight in generator.parameters())


def test_nothing_masked_gives_the_clean_ids(tiny_bert, batch):
    mask = torch.zeros_like(batch.special)
    ids = Generator(tiny_bert(), SPECIAL).sample(batch, batch.input_ids, mask, torch.Generator())
    assert torch.equal(ids, batch.input_ids)


def test_a_frozen_generator_on_a_gpu_has_weights_in_bfloat16(tiny_bert, batch, monkeypatch):
    monkeypatch.setattr("dr_lib.models.bottleneck.ROUNDED", ("cpu",))
    masked = batch.input_ids.masked_fill(~batch.special, 4)
    drawn = {}
    for frozen in (True, False):
        model = Generator(tiny_bert(), SPECIAL, frozen=frozen).eval()
        draws = torch.Generator().manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16):
            drawn[frozen] = model.sample(batch, masked, ~batch.special, draws)
        assert bool(model._rounded) == frozen
        assert model.model.dtype == torch.float32
        assert [*model.state_dict()] == [*Generator(tiny_bert(), SPECIAL).state_dict()]
    # the same numbers decide, by chances that differ in the third digit
    assert (drawn[True] == drawn[False]).float().mean() > 0.95


@pytest.mark.parametrize("vocab", [5, 128, 129, 300, 30_522])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ids_drawn_from_sums_of_blocks_are_those_of_the_softmax(vocab, dtype, monkeypatch):
    monkeypatch.setattr(module, "_compiled", lambda: module.block_sums)
    source = torch.Generator().manual_seed(vocab)
    logits = (4 * torch.randn(400, vocab, generator=source)).to(dtype)
    logits[:, 1] = -torch.inf
    uniform = torch.rand(400, generator=source)
    uniform[:2] = torch.tensor([0.0, 1 - 2**-24])
    drawn = pick_from_logits(logits, uniform)
    assert (drawn == pick_from_softmax(logits, uniform)).float().mean() > 0.99
    assert (drawn != 1).all() and drawn.max() < vocab and drawn.min() >= 0
