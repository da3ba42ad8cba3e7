"""CDMAE against full logits, what each side may see, and where its importances come from."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from dr_lib import masking, objectives
from dr_lib.materials.ngrams import count_ngrams, write_importances
from dr_lib.tokens import Layout, TokenBatch


@pytest.fixture
def weighted(batch) -> TokenBatch:
    """The batch with an importance for each word."""
    words = batch.word_start.cumsum(1)
    values = (
        torch.randn(batch.special.shape, generator=torch.Generator().manual_seed(1))
        .mul(4)
        .gather(1, words)
    )
    return replace(batch, values=values.masked_fill(batch.special, 0))


@pytest.mark.parametrize("kind", ["bert", "electra"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"projection": False, "decoder_init": "copy_last"},
        {"decoder_masking": "uniform", "mask_policy": "mask"},
    ],
    ids=str,
)
def test_losses_and_gradients_are_those_of_full_logits(
    kind,
    values,
    make,
    weighted,
    seeded,
    tiny_electra,
    hidden_inputs,
    all_logits,
    decoded_by_hand,
    same_gradients,
):
    objective = make("cdmae", tiny_electra if kind == "electra" else None, **values)
    result = objective(weighted, seeded())
    (encoder_mask, encoder_ids), (decoder_mask, decoder_ids) = hidden_inputs
    output = objective.model(
        **weighted.with_ids(encoder_ids).model_inputs(), output_hidden_states=True
    )
    first = output.hidden_states[-1][:, 0]
    if values.get("projection", True):
        projection = objective.decoder.projection
        first = first @ projection.weight.T + projection.bias
    decoded = decoded_by_hand(
        objective.decoder.layers, objective.model, weighted, first, decoder_ids
    )
    expected = 0
    for name, mask, logits in (
        ("encoder", encoder_mask, output.logits),
        ("decoder", decoder_mask, all_logits(objective.model, decoded)),
    ):
        counted = mask & (weighted.input_ids >= 5)
        loss = functional.cross_entropy(logits[counted], weighted.input_ids[counted])
        right = (logits.argmax(-1) == weighted.input_ids)[counted].float().mean()
        assert torch.allclose(result[f"{name}_loss"], loss, atol=1e-5)
        assert torch.allclose(result[f"{name}_accuracy"], right)
        expected = expected + loss
    assert torch.allclose(result["loss"], expected, atol=1e-5)
    assert same_gradients(objective, result["loss"], expected)


def masks_of(objective, batch, source, hidden_inputs) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        objective(batch, source)
    encoder, decoder = (mask for mask, _ in hidden_inputs[-2:])
    return encoder, decoder


def test_the_decoder_loses_the_most_important_words_and_the_encoder_any(
    make, weighted, seeded, hidden_inputs
):
    objective = make("cdmae", noise=0.0)
    pairs = [masks_of(objective, weighted, seeded(seed), hidden_inputs) for seed in range(3)]
    expected = masking.importance(weighted, weighted.values, 0.5, seeded(), noise=0.0)
    assert all(torch.equal(decoder, expected) for _, decoder in pairs)
    assert not torch.equal(pairs[0][0], pairs[1][0]) and not torch.equal(pairs[1][0], pairs[2][0])


def test_importances_of_the_decoder_leave_the_encoders_mask_as_it_is(
    make, weighted, seeded, hidden_inputs
):
    objective = make("cdmae")
    encoder, decoder = masks_of(objective, weighted, seeded(), hidden_inputs)
    turned = replace(weighted, values=-weighted.values)
    same, other = masks_of(objective, turned, seeded(), hidden_inputs)
    assert torch.equal(encoder, same) and not torch.equal(decoder, other)


@pytest.fixture
def long_batch() -> TokenBatch:
    ids = torch.randint(5, 100, (300, 60), generator=torch.Generator().manual_seed(0))
    special = torch.zeros_like(ids, dtype=torch.bool)
    values = torch.zeros(ids.shape)
    return TokenBatch(
        ids,
        torch.ones_like(ids),
        torch.zeros_like(ids),
        special,
        ~special,
        torch.arange(300),
        values,
    )


def test_masks_are_independent_draws_at_their_rates(make, long_batch, seeded):
    objective = make("cdmae")
    source = seeded()
    encoder = objective.random_mask(long_batch, 0.3, source)
    decoder = objective.decoder_mask(long_batch, source)
    assert (encoder.sum(1) == 18).all() and (decoder.sum(1) == 30).all()
    assert (encoder & decoder).float().mean() == pytest.approx(0.15, abs=0.02)


def test_a_uniform_decoder_mask_reads_no_importances(make, batch, seeded, hidden_inputs):
    objective = make("cdmae", decoder_masking="uniform")
    encoder, decoder = masks_of(objective, batch, seeded(), hidden_inputs)
    source = seeded()
    assert torch.equal(encoder, masking.whole_word(batch, 0.3, source))
    assert torch.equal(decoder, masking.whole_word(batch, 0.5, source))


def test_rarity_hides_the_words_of_the_smallest_counts(make, weighted, seeded):
    counts = weighted.values.abs().add(1).round()
    rare = replace(weighted, values=(1 / counts).masked_fill(weighted.special, 0))
    quiet = make("cdmae", decoder_masking="rarity", noise=0.0).decoder_mask(rare, seeded())
    assert torch.equal(quiet, masking.importance(rare, -counts.log(), 0.5, seeded(), noise=0.0))
    for scale in ("absolute", "relative"):
        loud = make("cdmae", decoder_masking="rarity", noise_scale=scale).decoder_mask(
            rare, seeded()
        )
        assert torch.equal(
            loud, masking.importance(rare, -counts.log(), 0.5, seeded(), noise_scale=scale)
        )


def test_settings_of_the_mask_reach_the_mask(make, weighted, seeded):
    spread = replace(weighted, values=weighted.values * 100)
    quiet = make("cdmae", noise=0.0).decoder_mask(spread, seeded())
    assert torch.equal(make("cdmae", noise=1.0).decoder_mask(spread, seeded()), quiet)
    loud = make("cdmae", noise=3.0, noise_scale="relative").decoder_mask(spread, seeded())
    assert not torch.equal(loud, quiet)
    pieces = make("cdmae", unit="piece", noise=0.0).decoder_mask(spread, seeded())
    assert torch.equal(
        pieces, masking.importance(spread, spread.values, 0.5, seeded(), noise=0.0, unit="piece")
    )
    uniform = make("cdmae", unit="piece").random_mask(spread, 0.3, seeded())
    assert torch.equal(uniform, masking.uniform(spread, 0.3, seeded()))
    assert not torch.equal(uniform, make("cdmae").random_mask(spread, 0.3, seeded()))


def test_neither_side_sees_a_clean_token_under_its_mask(make, weighted, seeded, hidden_inputs):
    make("cdmae", mask_policy="mask")(weighted, seeded())
    assert len(hidden_inputs) == 2
    for mask, ids in hidden_inputs:
        assert mask.any() and (ids[mask] == 4).all()
        assert torch.equal(ids[~mask], weighted.input_ids[~mask])


def test_the_projection_is_kept_for_pretraining_alone(make, tmp_path, tiny_tokenizer):
    objective = make("cdmae")
    saved = objective.extra_tensors()
    assert {"decoder.projection.weight", "decoder.projection.bias"} <= saved.keys()
    assert not any("projection" in name for name in objective.model.state_dict())
    assert not any("projection" in name for name in make("cdmae", projection=False).extra_tensors())


def test_a_method_asks_for_the_importances_that_its_settings_describe():
    chosen = objectives.parameters("cdmae", window=2, pmi="minseg", noise=0.5)
    assert chosen.materials() == {
        "importances": {
            "window": 2,
            "pmi": "minseg",
            "edges": "renorm",
            "floor": 1.0,
            "ppmi": False,
            "min_count": None,
            "unit": "word",
        }
    }
    assert objectives.parameters("cdmae", decoder_masking="uniform").materials() == {}
    counted = objectives.parameters("cdmae", decoder_masking="rarity").materials()
    assert counted == {"keyword_weights": {"weighting": "inverse_count"}}


@pytest.mark.parametrize("title", ["pair", "none"])
def test_batches_carry_the_importance_of_every_piece(store, tmp_path, title):
    counts = count_ngrams(store, tmp_path / "counts")
    values = write_importances(counts, store, tmp_path / "importances" / "values")
    layout, materials = (
        Layout(passage_length=20, title=title),
        {"importances": tmp_path / "importances"},
    )
    source = objectives.Source(store, layout, tokens_per_batch=80, materials=materials)
    method, settings = objectives.method("cdmae"), objectives.parameters("cdmae")
    batches = method.batches(settings, source)
    for step in range(8):
        batch = batches(step)
        expected = values.batch(batch.rows.numpy(), max_length=20, title=title)
        assert torch.equal(batch.values, expected) and torch.equal(batches(step).values, expected)
        assert (batch.values[batch.special] == 0).all() and (batch.values > 0).any()
    plain = method.batches(objectives.parameters("cdmae", decoder_masking="uniform"), source)
    assert plain(0).values is None and torch.equal(plain(0).input_ids, batches(0).input_ids)
