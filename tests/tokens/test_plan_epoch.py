"""Plans: every row once, within the budget, few shapes, fixed by seed and epoch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_lib.errors import InputError
from dr_lib.tokens import plan_epoch

LENGTHS = np.random.default_rng(3).integers(5, 145, 1000)


def padded(lengths, multiple=8):
    return -(-int(np.max(lengths)) // multiple) * multiple


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=80),
    budget=st.integers(1, 300),
    window=st.none() | st.integers(1, 100),
    multiple=st.sampled_from([1, 8]),
    epoch=st.integers(0, 3),
)
def test_every_row_comes_once_and_batches_keep_the_budget(lengths, budget, window, multiple, epoch):
    lengths = np.array(lengths)
    plan = plan_epoch(lengths, tokens_per_batch=budget, seed=1, epoch=epoch, window=window, multiple=multiple)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    for rows in plan:
        assert len(rows) == 1 or len(rows) * padded(lengths[rows], multiple) <= budget


@given(
    size=st.integers(1, 200), fixed_rows=st.integers(1, 40), window=st.none() | st.integers(1, 100), drop=st.booleans()
)
def test_fixed_rows_give_full_batches_and_one_rest(size, fixed_rows, window, drop):
    plan = plan_epoch(LENGTHS[:size], fixed_rows=fixed_rows, seed=0, epoch=0, window=window, drop_last=drop)
    rest = [] if drop or not size % fixed_rows else [size % fixed_rows]
    assert sorted(map(len, plan)) == sorted([fixed_rows] * (size // fixed_rows) + rest)


@pytest.mark.parametrize("window", [None, 300])
def test_each_padded_length_has_one_number_of_rows_but_for_one_batch(window):
    plan = plan_epoch(LENGTHS, tokens_per_batch=2000, seed=0, epoch=0, window=window)
    odd = [rows for rows in plan if len(rows) != 2000 // padded(LENGTHS[rows])]
    assert len(odd) <= 1


def test_whole_epochs_have_the_same_shapes_again():
    shapes = [
        sorted(
            (len(rows), padded(LENGTHS[rows]))
            for rows in plan_epoch(LENGTHS, tokens_per_batch=2000, seed=0, epoch=epoch)
        )
        for epoch in range(3)
    ]
    assert shapes[0] == shapes[1] == shapes[2]


def test_sorting_saves_padding():
    def share(**settings):
        plan = plan_epoch(LENGTHS, seed=0, epoch=0, **settings)
        return LENGTHS.sum() / sum(len(rows) * padded(LENGTHS[rows]) for rows in plan)

    assert share(tokens_per_batch=2000) > 0.9 > 0.6 > share(fixed_rows=20, window=20)


def test_seed_and_epoch_fix_the_plan_and_change_it():
    def flat(seed, epoch):
        return np.concatenate(plan_epoch(LENGTHS, tokens_per_batch=2000, seed=seed, epoch=epoch)).tolist()

    assert flat(0, 0) == flat(0, 0)
    assert len({tuple(flat(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_long_and_short_batches_are_mixed_over_the_epoch():
    plan = plan_epoch(LENGTHS, tokens_per_batch=2000, seed=0, epoch=0)
    means = np.array([LENGTHS[rows].mean() for rows in plan])
    assert abs(means[: len(means) // 2].mean() - means[len(means) // 2 :].mean()) < 25


def test_rows_of_one_length_meet_others_in_the_next_epoch():
    first, second = (plan_epoch(LENGTHS, tokens_per_batch=2000, seed=0, epoch=epoch) for epoch in (0, 1))
    assert not {frozenset(rows.tolist()) for rows in first} & {frozenset(rows.tolist()) for rows in second}


def test_a_row_above_the_budget_is_a_batch_of_its_own():
    plan = plan_epoch(np.array([4, 500, 4]), tokens_per_batch=64, seed=0, epoch=0)
    assert sorted(rows.tolist() for rows in plan if 1 in rows) == [[1]]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "batches"),
        ({"tokens_per_batch": 8, "fixed_rows": 8}, "batches"),
        ({"tokens_per_batch": 0}, "tokens_per_batch"),
        ({"fixed_rows": -1}, "fixed_rows"),
        ({"fixed_rows": 2, "window": 0}, "window"),
        ({"fixed_rows": 2, "multiple": 0}, "multiple"),
        ({"fixed_rows": 2, "seed": -1}, "seed"),
        ({"fixed_rows": 2, "epoch": -1}, "epoch"),
        ({"fixed_rows": 2, "lengths": np.array([], int)}, "lengths"),
        ({"fixed_rows": 2, "lengths": np.array([3, 0])}, "lengths"),
    ],
)
def test_arguments_outside_their_range_are_refused(arguments, named):
    with pytest.raises(InputError, match=named):
        plan_epoch(**({"lengths": LENGTHS, "seed": 0, "epoch": 0} | arguments))
