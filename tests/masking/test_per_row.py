"""RetroMAE's masks, one a row of the decoder's attention."""

import numpy as np
import pytest
import torch

from dr_lib import masking
from dr_lib.masking.words import words_of

WAYS = [None, 8, 256]


@pytest.mark.parametrize("draws", WAYS)
def test_rows_see_cls_and_sep_but_never_themselves_nor_padding(batch_of, source, draws):
    batch = batch_of([[1, 2] * 10, [1] * 5, []], length=36)
    hidden = masking.per_row(batch, 0.5, source, draws=draws)
    length = hidden.shape[1]
    for row, pieces in enumerate((30, 5, 0)):
        seen = ~hidden[row]
        assert not seen.diagonal().any()
        assert not seen[:, pieces + 2 :].any()
        assert seen[1:, 0].all()
        assert all(seen[i, pieces + 1] for i in range(length) if i != pieces + 1)


@pytest.mark.parametrize("draws", WAYS)
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_a_row_hides_whole_words_until_no_other_fits_its_budget(batch_of, source, draws, rate):
    batch = batch_of([[1, 1, 3, 2, 1, 5, 1, 2, 1, 1]] * 30 + [[4] * 5] * 3)
    hidden, words = masking.per_row(batch, rate, source, draws=draws), words_of(batch)
    for passage, row in np.ndindex(hidden.shape[:2]):
        if not batch.special[passage, row]:
            continue  # the diagonal may split a word of such a row
        maskable = ~batch.special[passage]
        mask, numbers = hidden[passage, row][maskable], words[passage][maskable]
        taken, visible = numbers[mask].bincount(minlength=99), numbers[~mask].bincount(minlength=99)
        assert not (taken * visible).any(), "a word was split"
        left = max(1, round(rate * len(mask))) - int(mask.sum())
        assert left >= 0
        assert all(size > left for size in visible.tolist() if size), (
            "a word that fits was left out"
        )


@pytest.mark.parametrize("draws", WAYS)
def test_rows_of_pieces_hide_what_was_drawn_and_themselves(batch_of, source, draws):
    batch = batch_of([[2] * 20] * 20)
    pieces = masking.per_row(batch, 0.5, source, draws=draws)[:, 1:-1, 1:-1]
    others = pieces.clone()
    others.diagonal(dim1=1, dim2=2).fill_(False)
    assert set(others.sum(2).unique().tolist()) == {19, 20}
    assert (pieces.sum(2) - others.sum(2) == 1).all()


@pytest.mark.parametrize("draws", WAYS)
def test_each_row_by_itself_follows_the_law_of_whole_word(batch_of, draws):
    sizes = [3, 1, 2, 1, 4, 1]
    batch = batch_of([sizes] * 4000)
    hidden = masking.per_row(batch, 0.4, torch.Generator().manual_seed(1), draws=draws)[:, 0, 1:-1]
    single = masking.whole_word(batch, 0.4, torch.Generator().manual_seed(2))[:, 1:-1]
    powers = 2 ** torch.arange(hidden.shape[1])
    found, expected = (
        torch.bincount((mask * powers).sum(1), minlength=2**12).double() / 4000
        for mask in (hidden, single)
    )
    assert (found - expected).abs().max() < 0.03
    # total variation; about 0.03 between two samples of this size
    assert 0.5 * (found - expected).abs().sum() < 0.06


@pytest.mark.parametrize("draws", [None, 256])
def test_about_half_of_the_other_columns_is_visible_and_rows_differ(batch_of, source, draws):
    batch = batch_of([[1] * 100] * 5)
    hidden = masking.per_row(batch, 0.5, source, draws=draws)[:, 1:-1, 1:-1]
    assert abs(hidden.double().mean() - 0.505) < 0.002
    others = hidden.clone()
    others.diagonal(dim1=1, dim2=2).fill_(False)
    agreement = (others[:, :50] & others[:, 50:]).double().mean()
    assert abs(agreement - 0.25) < 0.03
    assert len(np.unique(others[0].numpy(), axis=0)) > 50


@pytest.mark.parametrize("draws", WAYS)
def test_rates_zero_and_one(batch_of, source, draws):
    batch = batch_of([[1, 2, 3], []], length=9)
    nothing = masking.per_row(batch, 0.0, source, draws=draws)
    assert torch.equal(nothing[0, :8, :8], torch.eye(8, dtype=torch.bool))
    everything = masking.per_row(batch, 1.0, source, draws=draws)
    assert everything[0, :, 1:7].all()
    assert torch.equal(everything[1, :2, :2], torch.eye(2, dtype=torch.bool))


@pytest.mark.parametrize("draws", WAYS)
def test_the_same_seed_gives_the_same_masks(batch_of, draws):
    batch = batch_of([[1, 2, 3] * 5] * 3)
    one, two = (
        masking.per_row(batch, 0.5, torch.Generator().manual_seed(4), draws=draws) for _ in range(2)
    )
    assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("draws", "deviation"),
    # Two draws of half of 100 pieces share a hypergeometric number of them. Rows that pick one of
    # 102 draws pick the same one in a pair of 102, and then share all of it.
    [(None, 2.5126), (256, (2.5126**2 * 101 / 102 + 25**2 * 101 / 102**2) ** 0.5)],
)
def test_rows_overlap_as_draws_of_their_own_do(batch_of, source, draws, deviation):
    batch = batch_of([[1] * 100] * 4000)
    shared = torch.cat(
        [
            # rows of [CLS] and [SEP], whose own places do not count
            (hidden[:, 0] & hidden[:, -1])[:, 1:-1].sum(1)
            for hidden in (
                masking.per_row(batch.take(some), 0.5, source, draws=draws)
                for some in torch.arange(4000).split(500)
            )
        ]
    ).double()
    # Bounds are four standard errors of a mean and of a standard deviation (the released law has
    # heavy tails).
    assert abs(shared.mean() - (25 if draws is None else 25 + 25 / 102)) < 4 * deviation / 4000**0.5
    assert abs(shared.std() - deviation) < (0.12 if draws is None else 0.5)


def test_a_long_passage_is_fine(batch_of, source):
    batch = batch_of([[1, 2] * 160, [1] * 300])
    hidden = masking.per_row(batch, 0.5, source)
    assert (hidden[0, 0] & ~batch.special[0]).sum() == 240
    assert (hidden[1, 0] & ~batch.special[1]).sum() == 150
