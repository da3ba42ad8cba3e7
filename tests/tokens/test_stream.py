"""Batches of a stream: every row once per epoch, within the budget, few shapes, the same batch for
the same step.
"""

from collections import defaultdict
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_lib.errors import InputError
from dr_lib.tokens import BatchStream, TokenValues
from dr_lib.tokens.store import plan_epoch

LENGTHS = -(-np.random.default_rng(3).integers(5, 145, 1000) // 8) * 8


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=80),
    budget=st.integers(1, 300),
    seed=st.integers(0, 9),
    epoch=st.integers(0, 3),
)
def test_every_row_comes_once_and_batches_keep_the_budget(lengths, budget, seed, epoch):
    lengths = np.array(lengths)
    plan = plan_epoch(lengths, tokens_per_batch=budget, seed=seed, epoch=epoch)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    for rows in plan:
        assert len(rows) == 1 or len(rows) * lengths[rows].max() <= budget


def test_each_padded_length_has_one_number_of_rows_but_for_one_batch():
    plan = plan_epoch(LENGTHS, tokens_per_batch=2000, seed=0, epoch=0)
    assert sum(len(rows) != 2000 // LENGTHS[rows].max() for rows in plan) <= 1


def test_whole_epochs_have_the_same_shapes_again():
    plans = [plan_epoch(LENGTHS, tokens_per_batch=2000, seed=0, epoch=epoch) for epoch in range(3)]
    shapes = [sorted((len(rows), LENGTHS[rows].max()) for rows in plan) for plan in plans]
    assert shapes[0] == shapes[1] == shapes[2]


def test_sorting_saves_padding():
    plan = plan_epoch(LENGTHS, tokens_per_batch=2000, seed=0, epoch=0)
    assert LENGTHS.sum() / sum(len(rows) * LENGTHS[rows].max() for rows in plan) > 0.97


def test_seed_and_epoch_fix_the_plan_and_change_it():
    def flat(seed, epoch):
        return np.concatenate(
            plan_epoch(LENGTHS, tokens_per_batch=2000, seed=seed, epoch=epoch)
        ).tolist()

    assert flat(0, 0) == flat(0, 0)
    assert len({tuple(flat(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_long_and_short_batches_are_mixed_over_the_epoch():
    plan = plan_epoch(LENGTHS, tokens_per_batch=2000, seed=0, epoch=0)
    means = np.array([LENGTHS[rows].mean() for rows in plan])
    assert abs(means[: len(means) // 2].mean() - means[len(means) // 2 :].mean()) < 25


def test_rows_of_one_length_meet_others_in_the_next_epoch():
    first, second = (
        plan_epoch(LENGTHS, tokens_per_batch=2000, seed=0, epoch=epoch) for epoch in (0, 1)
    )
    assert not {frozenset(rows.tolist()) for rows in first} & {
        frozenset(rows.tolist()) for rows in second
    }


def test_a_row_above_the_budget_is_a_batch_of_its_own():
    plan = plan_epoch(np.array([8, 500, 8]), tokens_per_batch=64, seed=0, epoch=0)
    assert sorted(rows.tolist() for rows in plan if 1 in rows) == [[1]]


def ids(batch):
    return batch.input_ids.tolist()


@pytest.mark.parametrize("window", ["first", "random"])
def test_a_fresh_stream_at_any_step_equals_one_that_ran_up_to_it(store, window):
    options = {"max_length": 40, "tokens_per_batch": 160, "seed": 5, "window": window}
    stream = BatchStream(store, **options)
    run = [ids(stream.batch(step)) for step in range(3 * stream.steps_per_epoch)]
    for step in (len(run) - 1, 0, len(run) // 2):
        assert (
            ids(BatchStream(store, **options).batch(step)) == run[step] == ids(stream.batch(step))
        )


def test_each_epoch_holds_every_row_once(store):
    stream = BatchStream(store, max_length=40, seed=5, tokens_per_batch=160)
    for epoch in range(4):
        steps = range(epoch * stream.steps_per_epoch, (epoch + 1) * stream.steps_per_epoch)
        assert {stream.locate(step)[0] for step in steps} == {epoch}
        rows = [stream.batch(step).rows.tolist() for step in steps]
        assert sorted(chain.from_iterable(rows)) == list(range(len(store)))


def test_batches_keep_the_budget(store):
    stream = BatchStream(store, max_length=40, tokens_per_batch=160)
    assert all(
        stream.batch(step).input_ids.numel() <= 160 for step in range(2 * stream.steps_per_epoch)
    )


def test_the_budget_holds_for_longer_texts_that_go_with_the_rows(store):
    beside = np.where(np.arange(len(store)) % 2, 40, 5)
    stream = BatchStream(store, max_length=40, tokens_per_batch=160, beside=beside)
    batches = [stream.batch(step) for step in range(stream.steps_per_epoch)]
    assert all(
        len(batch) * max(batch.input_ids.shape[1], beside[batch.rows].max()) <= 160
        for batch in batches
    )
    assert max(map(len, batches)) > 1
    assert sorted(row for batch in batches for row in batch.rows.tolist()) == list(
        range(len(store))
    )


def test_another_seed_gives_another_order(store):
    first, second = (
        BatchStream(store, max_length=40, tokens_per_batch=160, seed=seed).batch(0)
        for seed in (0, 1)
    )
    assert first.rows.tolist() != second.rows.tolist()


@pytest.mark.parametrize("title", ["pair", "joined", "none"])
def test_title_and_padding_reach_the_batches(store, title):
    stream = BatchStream(store, max_length=20, tokens_per_batch=80, title=title, pad_to_multiple=4)
    batch = stream.batch(3)
    assert ids(batch) == ids(
        store.batch(batch.rows.numpy(), max_length=20, title=title, pad_to_multiple=4)
    )


def test_random_windows_show_every_part_of_a_long_body_and_all_of_a_short_one(store, tmp_path):
    values = TokenValues.write(store, tmp_path / "values", [(store.title_ids, store.text_ids)])
    stream = BatchStream(
        store, max_length=20, tokens_per_batch=160, title="none", window="random", values=values
    )
    begins = defaultdict(set)
    for step in range(150 * stream.steps_per_epoch):
        batch = stream.batch(step)
        # values move along
        assert torch.equal(batch.values.long(), batch.input_ids.masked_fill(batch.special, 0))
        for row, pieces, special in zip(
            batch.rows.tolist(), batch.input_ids, batch.special, strict=True
        ):
            body, seen = (
                store.text_ids[slice(*store.text_offsets[[row, row + 1]])].tolist(),
                pieces[~special].tolist(),
            )
            begin = next(
                place for place in range(len(body) + 1) if body[place : place + len(seen)] == seen
            )
            begins[row].add(begin)
            assert len(seen) == min(len(body), 18)
    for row, length in enumerate(np.diff(store.text_offsets)):
        places = max(length - 18, 0) + 1
        assert len(begins[row]) > 0.6 * places and (places > 1 or begins[row] == {0})


def test_a_budget_below_one_sequence_is_refused_at_once(store):
    with pytest.raises(InputError, match="cannot hold one sequence of 40"):
        BatchStream(store, max_length=40, tokens_per_batch=39)
