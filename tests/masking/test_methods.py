"""CDMAE's mask on the worked example `new york is in new york` and at its edges; MASTER's keywords
and complement; RetroMAE's masks, one a row of the decoder's attention.
"""

import numpy as np
import pytest
import torch

from dr_lib import masking
from dr_lib.masking.words import words_of

# AMI of the six words, rounded so that exact ties stay ties.
AMI = {
    "naive, renorm": [5.710503, 4.367234, 5.259161, 5.259161, 4.367234, 5.710503],
    "naive, zero": [2.855252, 3.513279, 4.611891, 4.611891, 3.513279, 2.855252],
    "minseg, renorm": [2.659323, 2.610595, 2.862055, 2.862055, 2.610595, 2.659323],
}
DRAWN = [-1.0, 0.5, -0.2, 0.3, 1.5, -2.0]


def on_pieces(values, sizes, length):
    """Values of words, spread over the pieces of one passage after [CLS]."""
    row = torch.zeros(1, length)
    flat = [value for value, size in zip(values, sizes, strict=True) for _ in range(size)]
    row[0, 1 : 1 + len(flat)] = torch.tensor(flat)
    return row


def masked(batch_of, source, values, sizes, **options):
    batch = batch_of([sizes])
    importances = on_pieces(values, sizes, batch.special.shape[1])
    mask = masking.importance(batch, importances, 0.5, source, noise=0.0, **options)
    return mask[0, 1:-1].long().tolist()


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("naive, renorm", [1, 0, 1, 0, 0, 1]),
        ("naive, zero", [0, 1, 1, 1, 0, 0]),
        ("minseg, renorm", [1, 0, 1, 1, 0, 0]),
    ],
)
def test_the_three_most_important_words_are_hidden_ties_from_the_left(
    batch_of, source, variant, expected
):
    assert masked(batch_of, source, AMI[variant], [1] * 6) == expected


def test_noise_changes_the_order(batch_of, source):
    noisy = [a + b for a, b in zip(AMI["naive, renorm"], DRAWN, strict=True)]
    assert masked(batch_of, source, noisy, [1] * 6) == [0, 0, 1, 1, 1, 0]


def test_words_of_two_pieces_are_hidden_whole(batch_of, source):
    sizes = [1, 2, 1, 1, 1, 2]
    assert masked(batch_of, source, AMI["naive, renorm"], sizes) == [1, 0, 0, 1, 0, 0, 1, 1]


def test_a_word_that_does_not_fit_is_skipped_for_a_shorter_one(batch_of, source):
    noisy = [a + b for a, b in zip(AMI["naive, renorm"], DRAWN, strict=True)]
    assert masked(batch_of, source, noisy, [1, 2, 1, 1, 1, 2]) == [1, 0, 0, 1, 1, 1, 0, 0]


def test_single_pieces_may_split_a_word(batch_of, source):
    assert masked(batch_of, source, [1.0, 3.0, 2.0], [1, 3, 1], unit="piece") == [0, 1, 1, 0, 0]


def test_importances_are_not_modified_by_drawing(batch_of, source):
    batch = batch_of([[1] * 20])
    importances = torch.randn(batch.special.shape, generator=source)
    before = importances.clone()
    for unit in ("word", "piece"):
        masking.importance(batch, importances, 0.5, source, unit=unit, noise_scale="relative")
    assert torch.equal(importances, before)


def test_the_same_seed_gives_the_same_mask(batch_of):
    batch = batch_of([[1, 2] * 10] * 5)
    importances = torch.randn(batch.special.shape, generator=torch.Generator().manual_seed(1))
    first, second = (
        masking.importance(batch, importances, 0.5, torch.Generator().manual_seed(3))
        for _ in range(2)
    )
    assert torch.equal(first, second)


def test_noise_is_one_draw_a_word(batch_of, source):
    batch = batch_of([[3] * 20] * 50)
    mask = masking.importance(batch, torch.zeros(batch.special.shape), 0.5, source)
    assert (mask.sum(1) == 30).all()
    assert torch.equal(mask[:, 1:-1:3], mask[:, 2:-1:3])


def test_relative_noise_follows_the_spread_of_the_passage(batch_of):
    batch = batch_of([[1] * 60] * 40)
    importances = torch.randn(batch.special.shape, generator=torch.Generator().manual_seed(1))

    def draw(scale):
        source = torch.Generator().manual_seed(9)
        return masking.importance(
            batch, importances * scale, 0.5, source, noise=0.5, noise_scale="relative"
        )

    assert (draw(1.0) != draw(1000.0)).sum() <= 2  # rounding aside, scaling changes nothing
    quiet = masking.importance(batch, importances, 0.5, torch.Generator(), noise=0.0)
    agreement = (draw(1.0) & quiet).sum() / quiet.sum()
    assert 0.75 < agreement < 0.95


@pytest.mark.parametrize(
    ("rate", "pieces", "count"),
    [(0.5, 7, 3), (0.29, 100, 29), (0.01, 5, 1), (1.0, 5, 5), (0.0, 5, 0)],
)
def test_the_count_is_rounded_down_but_never_to_zero(batch_of, source, rate, pieces, count):
    batch = batch_of([[1] * pieces])
    assert masking.importance(batch, torch.zeros(batch.special.shape), rate, source).sum() == count


def test_an_empty_passage_has_no_mask(batch_of, source):
    batch = batch_of([[], [1]])
    mask = masking.importance(batch, torch.full(batch.special.shape, 9.0), 0.5, source)
    assert mask.sum(1).tolist() == [0, 1]


def test_negative_and_infinite_importances_keep_their_order(batch_of, source):
    inf = float("inf")
    assert masked(batch_of, source, [-inf, -0.0, -2.0, 0.5, inf, -1.0], [1] * 6) == [
        0,
        1,
        0,
        1,
        1,
        0,
    ]


def test_a_word_is_drawn_first_in_proportion_to_its_weight(batch_of, source):
    batch = batch_of([[1, 1, 1, 1]] * 20_000)
    weights = torch.tensor([9.0, 1.0, 2.0, 3.0, 4.0, 9.0]).expand(batch.special.shape)
    share = masking.keyword(batch, weights, 0.25, source)[:, 1:5].double().mean(0)
    assert (share - torch.tensor([0.1, 0.2, 0.3, 0.4])).abs().max() < 0.015


def test_the_second_word_is_drawn_among_those_left(batch_of, source):
    batch = batch_of([[1, 1, 1]] * 20_000)
    weights = torch.tensor([0.0, 1.0, 2.0, 3.0, 0.0]).expand(batch.special.shape)
    mask = masking.keyword(batch, weights, 0.67, source)[:, 1:4]
    left_out = (~mask).double().mean(0)
    # Left out is the last of three, after the other two in either order.
    last = [
        (2 / 6 * 3 / 4, 3 / 6 * 2 / 3),
        (1 / 6 * 3 / 5, 3 / 6 * 1 / 3),
        (1 / 6 * 2 / 5, 2 / 6 * 1 / 4),
    ]
    expected = torch.tensor([sum(orders) for orders in last])
    assert (left_out - expected).abs().max() < 0.015


def test_the_last_word_may_pass_the_budget(batch_of, source):
    batch = batch_of([[3, 3]] * 100)
    weights = torch.ones(batch.special.shape)
    assert (masking.keyword(batch, weights, 0.5, source).sum(1) == 3).all()
    assert (masking.keyword(batch, weights, 0.6, source).sum(1) == 6).all()


def test_words_of_weight_zero_come_last(batch_of, source):
    batch = batch_of([[1] * 10] * 50)
    weights = torch.zeros(batch.special.shape)
    weights[:, 4] = 0.001
    assert masking.keyword(batch, weights, 0.1, source)[:, 4].all()
    assert (masking.keyword(batch, weights, 1.0, source) == ~batch.special).all()


def test_keywords_at_the_edges(batch_of, source):
    batch = batch_of([[], [1], [1, 1, 2]], length=9)
    weights = torch.ones(batch.special.shape)
    assert not masking.keyword(batch, weights, 0.0, source).any()
    assert masking.keyword(batch, weights, 0.01, source).any(1).tolist() == [False, True, True]
    assert torch.equal(masking.keyword(batch, weights, 1.0, source), ~batch.special)


def test_complementary_masks_are_disjoint_and_cover_all_maskable_pieces(batch_of, source):
    batch = batch_of([[1, 2, 3] * 5, [], [1]])
    mask = masking.whole_word(batch, 0.5, source)
    other = masking.complementary(batch, mask)
    assert not (mask & other).any()
    assert torch.equal(mask | other, ~batch.special)


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
