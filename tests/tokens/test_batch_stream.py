"""The stream: the same step is the same batch, in any order, from any start, over all epochs."""

from itertools import chain

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.tokens import BatchStream

SETTINGS = [
    {"tokens_per_batch": 160},
    {"tokens_per_batch": 160, "window": 13},
    {"fixed_rows": 8},
    {"fixed_rows": 8, "window": 8, "drop_last": True},
]


def ids(batch):
    return batch.input_ids.tolist()


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_fresh_stream_at_any_step_equals_one_that_ran_up_to_it(store, settings):
    stream = BatchStream(store, max_length=40, seed=5, **settings)
    run = [ids(stream.batch(step)) for step in range(3 * stream.steps_per_epoch())]
    for step in (len(run) - 1, 0, len(run) // 2):
        assert ids(BatchStream(store, max_length=40, seed=5, **settings).batch(step)) == run[step]
        assert ids(stream.batch(step)) == run[step]


@pytest.mark.parametrize("settings", SETTINGS[:3])
def test_each_epoch_holds_every_row_once(store, settings):
    stream = BatchStream(store, max_length=40, seed=5, **settings)
    step = 0
    for epoch in range(4):
        rows = [stream.batch(step + index).rows.tolist() for index in range(stream.steps_per_epoch(epoch))]
        step += len(rows)
        assert sorted(chain.from_iterable(rows)) == list(range(len(store)))


def test_locate_counts_steps_over_epochs(store):
    stream = BatchStream(store, max_length=40, tokens_per_batch=160, window=13)
    steps = sum(stream.steps_per_epoch(epoch) for epoch in range(5))
    assert stream.locate(0) == (0, 0)
    assert stream.locate(steps) == (5, 0)
    assert stream.locate(steps - 1) == (4, stream.steps_per_epoch(4) - 1)


def test_batches_keep_the_budget(store):
    stream = BatchStream(store, max_length=40, tokens_per_batch=160)
    assert all(stream.batch(step).input_ids.numel() <= 160 for step in range(2 * stream.steps_per_epoch()))


def test_the_budget_holds_for_longer_texts_that_go_with_the_rows(store):
    beside = np.where(np.arange(len(store)) % 2, 40, 5)
    stream = BatchStream(store, max_length=40, tokens_per_batch=160, beside=beside)
    batches = [stream.batch(step) for step in range(stream.steps_per_epoch())]
    assert all(len(batch) * max(batch.input_ids.shape[1], beside[batch.rows].max()) <= 160 for batch in batches)
    assert max(map(len, batches)) > 1
    assert sorted(row for batch in batches for row in batch.rows.tolist()) == list(range(len(store)))


def test_a_subset_is_all_that_is_drawn(store):
    rows = np.array([40, 3, 17, 21])
    stream = BatchStream(store, max_length=40, fixed_rows=2, rows=rows)
    drawn = np.concatenate([stream.batch(step).rows for step in range(stream.steps_per_epoch())])
    assert sorted(drawn.tolist()) == [3, 17, 21, 40]


def test_another_seed_gives_another_order(store):
    first, second = (BatchStream(store, max_length=40, fixed_rows=8, seed=seed).batch(0) for seed in (0, 1))
    assert first.rows.tolist() != second.rows.tolist()


@pytest.mark.parametrize("title", ["pair", "joined", "none"])
def test_title_side_and_padding_reach_the_batches(store, title):
    stream = BatchStream(store, max_length=20, fixed_rows=4, title=title, side="left", pad_to_multiple=4)
    batch = stream.batch(3)
    expected = store.batch(batch.rows.numpy(), max_length=20, title=title, side="left", pad_to_multiple=4)
    assert ids(batch) == ids(expected)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"tokens_per_batch": 39}, "cannot hold one sequence of 40"),
        ({}, "batches"),
        ({"fixed_rows": 4, "rows": np.array([60])}, "row 60 of 60"),
        ({"fixed_rows": 4, "rows": np.array([1, 1])}, "twice"),
        ({"fixed_rows": 4, "rows": np.array([True, False])}, "rows"),
        ({"fixed_rows": 61, "drop_last": True}, "no full batch"),
        ({"fixed_rows": 4, "pad_to_multiple": 0}, "below 1"),
        ({"fixed_rows": 4, "title": "both"}, "title"),
        ({"fixed_rows": 4, "side": "middle"}, "side"),
        ({"fixed_rows": 4, "seed": -3}, "seed"),
    ],
)
def test_arguments_outside_their_range_are_refused_at_once(store, arguments, named):
    with pytest.raises(InputError, match=named):
        BatchStream(store, max_length=40, **arguments)


def test_a_step_below_zero_is_refused(store):
    with pytest.raises(InputError, match="step"):
        BatchStream(store, max_length=40, fixed_rows=4).batch(-1)
