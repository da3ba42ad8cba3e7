"""Enc-Dec MLM and auto-encoding against full logits, and what each side may see."""

import pytest
import torch
from torch.nn import functional

from dr_lib.objectives.bottleneck import EncoderDecoder
from dr_lib.tokens import TokenBatch


@pytest.mark.parametrize("kind", ["bert", "electra"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"targets": "all", "decoder_token_types": "released"},
        {"decoder_mask": "independent", "mask_policy": "mask", "decoder_init": "random"},
    ],
)
def test_losses_and_gradients_are_those_of_full_logits(
    kind,
    values,
    make_loud,
    batch,
    seeded,
    tiny_electra,
    hidden_inputs,
    all_logits,
    decoded_by_hand,
    same_gradients,
):
    objective = make_loud("encdec_mlm", tiny_electra if kind == "electra" else None, **values)
    result = objective(batch, seeded())
    (encoder_mask, encoder_ids), (decoder_mask, decoder_ids) = hidden_inputs
    output = objective.model(
        **batch.with_ids(encoder_ids).model_inputs(), output_hidden_states=True
    )
    first, types = output.hidden_states[-1][:, 0], "decoder_token_types" not in values
    decoded = decoded_by_hand(
        objective.decoder.layers, objective.model, batch, first, decoder_ids, types=types
    )
    expected = 0
    for name, mask, logits in (
        ("encoder", encoder_mask, output.logits),
        ("decoder", decoder_mask, all_logits(objective.model, decoded)),
    ):
        counted = batch.input_ids >= 5 if values.get("targets") == "all" else mask
        loss = functional.cross_entropy(logits[counted], batch.input_ids[counted])
        right = (logits.argmax(-1) == batch.input_ids)[counted].float().mean()
        assert torch.allclose(result[f"{name}_loss"], loss, atol=1e-5)
        assert torch.allclose(result[f"{name}_accuracy"], right)
        expected = expected + loss
    assert same_gradients(objective, result["loss"], expected)


@pytest.fixture
def long_batch() -> TokenBatch:
    ids = torch.randint(5, 100, (200, 60), generator=torch.Generator().manual_seed(0))
    special = torch.zeros_like(ids, dtype=torch.bool)
    return TokenBatch(
        ids, torch.ones_like(ids), torch.zeros_like(ids), special, ~special, torch.arange(200)
    )


def test_decoder_mask_contains_the_encoders_or_is_a_draw_of_its_own(make, long_batch, seeded):
    encoder, decoder, _ = make("encdec_mlm").masks(long_batch, seeded())
    assert (decoder >= encoder).all()
    assert (encoder.sum(1) == 18).all() and decoder.float().mean() == pytest.approx(0.5, abs=0.02)
    encoder, decoder, _ = make("encdec_mlm", decoder_mask="independent").masks(long_batch, seeded())
    assert (encoder.sum(1) == 18).all() and (decoder.sum(1) == 30).all()
    assert (encoder & decoder).float().mean() == pytest.approx(0.15, abs=0.02)


def test_at_the_encoders_rate_the_superset_is_the_same_mask(make, long_batch, seeded):
    encoder, decoder, _ = make("encdec_mlm", decoder_rate=0.3).masks(long_batch, seeded())
    assert torch.equal(encoder, decoder)


def test_neither_side_sees_a_clean_token_under_its_mask(make, batch, seeded, hidden_inputs):
    make("encdec_mlm", mask_policy="mask")(batch, seeded())
    assert len(hidden_inputs) == 2
    for mask, ids in hidden_inputs:
        assert mask.any() and (ids[mask] == 4).all()
        assert torch.equal(ids[~mask], batch.input_ids[~mask])


@pytest.mark.parametrize("kind", ["bert", "electra"])
def test_loss_and_gradient_of_auto_encoding_are_those_of_full_logits(
    kind, make_loud, batch, seeded, tiny_electra, all_logits, decoded_by_hand, same_gradients
):
    objective = make_loud("autoencoder", tiny_electra if kind == "electra" else None)
    ids = batch.input_ids.clone()
    ids[0, 2] = 1  # an unknown word stays visible and is not asked for
    batch = batch.with_ids(ids)
    result = objective(batch, seeded())
    first = objective.model.base_model(**batch.model_inputs()).last_hidden_state[:, 0]
    nothing = torch.where(batch.special | (ids == 1), ids, 4)
    decoded = decoded_by_hand(objective.decoder.layers, objective.model, batch, first, nothing)
    logits, counted = all_logits(objective.model, decoded), ids >= 5
    expected = functional.cross_entropy(logits[counted], ids[counted])
    assert (
        torch.allclose(result["loss"], expected, atol=1e-5)
        and result["loss"] == result["decoder_loss"]
    )
    assert torch.allclose(
        result["decoder_accuracy"], (logits.argmax(-1) == ids)[counted].float().mean()
    )
    assert same_gradients(objective, result["loss"], expected)


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_the_auto_encoders_encoder_reads_as_much_as_its_rate_leaves(
    rate, make, batch, seeded, monkeypatch
):
    objective, read = make("autoencoder", encoder_rate=rate), []
    whole = EncoderDecoder.states
    monkeypatch.setattr(
        EncoderDecoder,
        "states",
        lambda self, batch, *ids: read.append(ids) or whole(self, batch, *ids),
    )
    objective(batch, seeded())
    ((encoder_ids, decoder_ids),) = read
    hidden, maskable = encoder_ids != batch.input_ids, ~batch.special
    assert (encoder_ids[hidden] == 4).all() and (hidden <= maskable).all()
    pieces = maskable.sum(1)
    most = (rate * pieces).round().clamp(min=1 if rate else 0)
    assert (hidden.sum(1) <= most).all() and hidden.any() == (rate > 0)
    assert rate < 1 or torch.equal(hidden, maskable)
    # whatever the encoder reads
    assert torch.equal(decoder_ids, torch.where(maskable, 4, batch.input_ids))


def test_the_encoder_has_no_loss_of_its_own(make, batch, seeded):
    assert set(make("autoencoder")(batch, seeded())) == {"loss", "decoder_loss", "decoder_accuracy"}


def test_the_decoder_reads_the_same_of_every_passage_of_a_shape(make, batch, seeded):
    objective, read = make("autoencoder"), []
    objective.decoder.register_forward_pre_hook(lambda _, given: read.append(given))
    other = batch.with_ids(
        torch.where(batch.special, batch.input_ids, (batch.input_ids + 7) % 90 + 5)
    )
    for one in (batch, other):
        objective(one, seeded())
    (embedded, vector, _), (embedded_again, other_vector, _) = read
    assert torch.equal(embedded, embedded_again)
    assert (vector != other_vector).any(-1).all()
