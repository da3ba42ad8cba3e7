"""RetroMAE against attention written out row by row, and what a row may know."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from dr_lib import masking
from dr_lib.objectives import retromae
from dr_lib.objectives.bow import bag_of_words
from dr_lib.objectives.retromae import passage_logits


@pytest.fixture
def row_masks(monkeypatch) -> list[tuple[torch.Tensor, dict]]:
    """The masks returned by `masking.per_row`, and its arguments."""
    seen, per_row = [], masking.per_row

    def remember(*given, **options):
        seen.append((per_row(*given, **options), options))
        return seen[-1][0]

    monkeypatch.setattr(masking, "per_row", remember)
    return seen


def test_rows_are_drawn_at_the_rate_of_the_decoder(make, batch, seeded, monkeypatch):
    rates, per_row = [], masking.per_row

    def remember(batch, rate, *rest, **options):
        rates.append(rate)
        return per_row(batch, rate, *rest, **options)

    monkeypatch.setattr(masking, "per_row", remember)
    make("retromae", encoder_rate=0.2, decoder_rate=0.7)(batch, seeded())
    assert rates == [0.7]


def test_both_sides_count_the_tokens_that_the_budget_names(make, batch, seeded, monkeypatch):
    counted = []

    def noting(draw):
        def drawn(*given, **options):
            counted.append(options["budget"])
            return draw(*given, **options)

        return drawn

    for name in ("whole_word", "per_row"):
        monkeypatch.setattr(masking, name, noting(getattr(masking, name)))
    make("retromae", budget="all")(batch, seeded())
    assert counted == ["all", "all"]


def decode_by_hand(objective, batch, first, unseen):
    """Decoder states of BERT: queries are the vector plus raw positions, contents the vector
    followed by the clean embeddings.
    """
    embeddings, layer = objective.model.bert.embeddings, objective.decoder.layer
    queries = first[:, None] + embeddings.position_embeddings.weight[: unseen.shape[1]]
    contents = torch.cat(
        [first[:, None], embeddings(batch.input_ids, batch.token_type_ids)[:, 1:]], 1
    )
    q, k, v = (
        linear(x).view(*x.shape[:2], 2, 16)
        for linear, x in (
            (layer.attention.self.query, queries),
            (layer.attention.self.key, contents),
            (layer.attention.self.value, contents),
        )
    )
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / 4.0
    weights = torch.softmax(scores.masked_fill(unseen[:, None], -torch.inf), -1)
    mixed = torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2)
    attended = layer.attention.output.LayerNorm(layer.attention.output.dense(mixed) + queries)
    inner = functional.gelu(layer.intermediate.dense(attended))
    return layer.output.LayerNorm(layer.output.dense(inner) + attended)


@pytest.mark.parametrize(
    "values", [{}, {"draws": "released", "budget": "all"}, {"bag_weight": 0.1}]
)
def test_losses_and_gradients_are_those_of_full_logits(
    values, make_loud, batch, seeded, hidden_inputs, row_masks, same_gradients
):
    ids = batch.input_ids.clone()
    ids[0, 2] = 1  # an unknown word, which the settings below take for a word
    batch, objective = batch.with_ids(ids), make_loud("retromae", mask_unknown=True, **values)
    result = objective(batch, seeded())
    ((mask, masked_ids),), ((unseen, _),) = hidden_inputs, row_masks
    output = objective.model(**batch.with_ids(masked_ids).model_inputs(), output_hidden_states=True)
    states = decode_by_hand(objective, batch, output.hidden_states[-1][:, 0], unseen)
    expected = 0
    for name, counted, logits in (
        ("encoder", mask, output.logits),
        ("decoder", ~batch.special, objective.model.cls(states)),
    ):
        loss = functional.cross_entropy(logits[counted], ids[counted])
        right = (logits.argmax(-1) == ids)[counted].float().mean()
        assert torch.allclose(result[f"{name}_loss"], loss, atol=1e-5)
        assert torch.allclose(result[f"{name}_accuracy"], right)
        expected = expected + loss
    if "bag_weight" in values:
        bag = bag_by_hand(output.logits, batch)
        assert torch.allclose(result["bag_loss"], bag, atol=1e-5)
        expected = expected + 0.1 * bag
    assert same_gradients(objective, result["loss"], expected)


def bag_by_hand(logits, batch):
    """The distinct tokens of each passage under its highest logits."""
    losses = []
    for row, ids, special in zip(logits, batch.input_ids, batch.special, strict=True):
        highest = functional.log_softmax(row[~special].max(0).values, -1)
        losses.append(-highest[ids[~special].unique()].sum() / (~special).sum())
    return torch.stack(losses).mean()


@pytest.mark.parametrize(("draws", "asked"), [("paper", None), ("released", 256)])
def test_rows_are_drawn_as_asked(draws, asked, make, batch, seeded, row_masks):
    make("retromae", draws=draws)(batch, seeded())
    assert row_masks[0][1] == {"budget": "maskable", "draws": asked}


def test_a_row_knows_no_token_that_it_does_not_see_its_own_least(make, batch, seeded, row_masks):
    objective, bottleneck = make("retromae"), torch.randn(len(batch), 1, 32)
    column, ids = 3, batch.input_ids.clone()
    ids[:, column] = (ids[:, column] + 7) % 90 + 5
    with torch.no_grad():
        first, second = (
            objective.decode(one, bottleneck, seeded()) for one in (batch, batch.with_ids(ids))
        )
    unseen = row_masks[0][0]
    assert torch.equal(unseen, row_masks[1][0]) and unseen[:, column, column].all()
    assert torch.equal((first == second).all(-1), unseen[:, :, column])


def test_the_decoder_is_given_raw_positions_the_vector_and_the_clean_embedding(make, batch, seeded):
    objective, given = make("retromae"), []
    objective.decoder.register_forward_pre_hook(lambda _, arguments: given.extend(arguments))
    bottleneck = torch.randn(len(batch), 1, 32)
    objective.decode(batch, bottleneck, seeded())
    queries, contents, unseen = given
    embeddings = objective.model.bert.embeddings
    assert torch.equal(
        queries, bottleneck + embeddings.position_embeddings.weight[: contents.shape[1]]
    )
    assert torch.equal(contents[:, :1], bottleneck)
    assert torch.equal(contents[:, 1:], embeddings(batch.input_ids, batch.token_type_ids)[:, 1:])
    assert unseen[:, 0, 0].all() and not unseen[:, 1:, 0].any()


@pytest.mark.parametrize("at_a_time", [1, 4, 999])
def test_bag_of_words_is_the_same_however_many_passages_are_worked_on_at_a_time(
    at_a_time, tiny_bert, batch, monkeypatch
):
    model, hidden = tiny_bert(), torch.randn(*batch.input_ids.shape, 32, requires_grad=True)
    a_passage = batch.input_ids.shape[1] * model.config.vocab_size
    monkeypatch.setattr(retromae, "LOGITS", at_a_time * a_passage)
    found, expected = (
        bag_of_words(passage_logits(model, hidden, batch), batch, per="token"),
        bag_by_hand(model.cls(hidden), batch),
    )
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(
        *(torch.autograd.grad(loss, hidden)[0] for loss in (found, expected)), atol=1e-6
    )


def test_a_passage_without_tokens_adds_nothing_to_the_bag_of_words(tiny_bert, make_token_batch):
    model, hidden = tiny_bert(), torch.randn(2, 4, 32)
    both = make_token_batch(np.array([[2, 7, 8, 3], [2, 3, 0, 0]]), np.arange(2))
    one = make_token_batch(np.array([[2, 7, 8, 3]]), np.arange(1))
    losses = [
        bag_of_words(passage_logits(model, states, passages), passages, per="token")
        for states, passages in ((hidden, both), (hidden[:1], one))
    ]
    assert torch.allclose(losses[0], losses[1] / 2)
