from types import SimpleNamespace

import numpy as np
import pytest

from dr_lib.collections import judged_rows
from dr_lib.training import Examples, hash64, training_examples
from dr_lib.training.examples import draw_negatives, draw_positives, known_positives, merge_examples

PASSAGES = 1000


@pytest.fixture(scope="module")
def examples() -> Examples:
    """40 queries: 1 to 4 positives below 160, between 0 and 30 listed negatives above it."""
    rng = np.random.default_rng(0)
    positives = [rng.choice(160, rng.integers(1, 5), replace=False) for _ in range(40)]
    negatives = np.full((40, 30), -1)
    for row, size in enumerate(rng.integers(0, 31, 40)):
        negatives[row, rng.choice(30, size, replace=False)] = rng.choice(
            np.arange(160, 1000), size, replace=False
        )
    negatives[0] = np.arange(200, 230)
    return Examples.of(rng.permutation(100)[:40], positives, negatives, passages=PASSAGES)


ALL = np.arange(40)


def listed(examples, query):
    return set(examples.negatives[query].tolist()) - {-1}


@pytest.mark.parametrize("seed", [0, 3])
def test_the_positive_moves_on_by_one_each_epoch(examples, seed):
    for epoch in range(6):
        drawn = draw_positives(examples, ALL, seed=seed, epoch=epoch)
        for query in ALL:
            own = examples.positives[examples.offsets[query] : examples.offsets[query + 1]]
            assert drawn[query] == own[(epoch + seed) % len(own)]


def test_the_first_positive_alone_is_taken_where_that_is_the_rule(examples):
    for epoch in range(3):
        drawn = draw_positives(examples, ALL, seed=epoch, epoch=epoch, rule="first")
        assert drawn.tolist() == examples.positives[examples.offsets[:-1]].tolist()


def test_the_first_positive_is_the_one_judged_first_and_stays_it_beside_pseudo_labels():
    (annotated,) = judged_rows({"q": {"c": 1, "b": 0, "a": 2}}, ["q"], ["a", "b", "c", "d", "e"])
    collection = SimpleNamespace(
        passages=range(8),
        same_text=None,
        own_texts=lambda split: None,
        positives=lambda split: [np.array([6]), annotated],
    )
    given = training_examples(collection)
    both = merge_examples(given, Examples.of([1, 3], [[1, 2], [5]], passages=8))
    assert both.positives.tolist() == [6, 0, 1, 2, 5] and both.first_positives().tolist() == [
        6,
        2,
        5,
    ]
    for examples, query in ((given, 1), (both, 1)):
        drawn = [
            draw_positives(examples, np.array([query]), seed=0, epoch=epoch, rule="first")[0]
            for epoch in range(3)
        ]
        assert drawn == [2, 2, 2]
    turns = [draw_positives(both, np.array([1]), seed=0, epoch=epoch)[0] for epoch in range(4)]
    assert turns == [0, 1, 2, 0]


def test_windows_of_negatives_are_disjoint_until_the_list_is_used_up(examples):
    """30 negatives, 7 a step: four disjoint windows, the fifth begins again (cyclic)."""
    windows = [
        draw_negatives(examples, np.array([0]), 7, seed=0, epoch=epoch)[0] for epoch in range(5)
    ]
    seen = np.concatenate(windows[:4])
    assert len(set(seen)) == 28
    ring = np.concatenate([seen, windows[4][:2], seen])
    np.testing.assert_array_equal(windows[4], np.concatenate([ring[28:30], seen[:5]]))
    assert set(ring) == listed(examples, 0)


@pytest.mark.parametrize("seed", [0, 3])
def test_window_arithmetic_is_the_loaders(examples, seed):
    """Start at (epoch + seed) * count modulo the length of the list, in one fixed order per query
    and seed.
    """
    order = draw_negatives(examples, np.array([0]), 30, seed=seed, epoch=0)[0]
    for epoch in range(9):
        drawn = draw_negatives(examples, np.array([0]), 4, seed=seed, epoch=epoch)[0]
        np.testing.assert_array_equal(drawn, np.roll(order, -((epoch + seed) * 4 % 30))[:4])


def test_a_list_that_is_long_enough_gives_distinct_listed_negatives(examples):
    long = [query for query in ALL if len(listed(examples, query)) >= 5]
    assert len(long) > 1
    for epoch in range(5):
        drawn = draw_negatives(examples, ALL, 5, seed=1, epoch=epoch)
        for query in long:
            assert len(set(drawn[query])) == 5
            assert set(drawn[query]) <= listed(examples, query)


def test_a_short_list_is_taken_whole_and_filled_with_other_passages(examples):
    first, second = (draw_negatives(examples, ALL, 20, seed=1, epoch=epoch) for epoch in (0, 1))
    short = [query for query in ALL if len(listed(examples, query)) < 20]
    assert len(short) > 1
    for query in short:
        own = listed(examples, query)
        assert set(first[query, : len(own)]) == own
        assert not np.array_equal(first[query, len(own) :], second[query, len(own) :])


def test_a_negative_is_never_a_known_positive():
    positives = [[0, 1, 2, 3, 5, 6, 7], [4]]
    crowded = Examples.of([0, 1], positives, passages=8)
    for epoch in range(50):
        drawn = draw_negatives(crowded, np.array([0, 1]), 6, seed=0, epoch=epoch)
        assert set(drawn[0]) == {4}
        assert 4 not in drawn[1]
        assert drawn.min() >= 0
        assert drawn.max() < 8


def test_what_fills_a_list_is_neither_in_it_nor_drawn_twice_while_there_are_other_passages():
    few = Examples.of(
        [0, 1, 2], [[0], [1, 2], [3]], [[4, 5, -1], [-1, 9, -1], [0, 1, 2]], passages=12
    )
    for epoch in range(50):
        drawn = draw_negatives(few, np.arange(3), 8, seed=0, epoch=epoch)
        for row, own in enumerate(([0], [1, 2], [3])):
            assert len(set(drawn[row])) == 8 and not set(own) & set(drawn[row])
        whole = draw_negatives(few, np.arange(3), 11, seed=0, epoch=epoch)
        # all that there are; of the second query there are ten
        assert len(set(whole[0])) == len(set(whole[2])) == 11 and not {1, 2} & {*whole[1]}


def test_a_query_gets_the_same_negatives_in_any_company(examples):
    together = draw_negatives(examples, ALL, 12, seed=5, epoch=2)
    for query in (0, 17, 39):
        np.testing.assert_array_equal(
            together[query], draw_negatives(examples, np.array([query]), 12, seed=5, epoch=2)[0]
        )


def test_seeds_shuffle_the_lists_differently(examples):
    orders = {
        tuple(draw_negatives(examples, np.array([0]), 30, seed=seed, epoch=-seed)[0])
        for seed in range(10)
    }
    assert len(orders) == 10


def test_known_positives_equal_a_plain_double_loop(examples):
    rng = np.random.default_rng(1)
    chosen = rng.permutation(40)[:12]
    columns = rng.integers(0, 160, 36)
    columns[::3] = draw_positives(examples, chosen, seed=0, epoch=0, rule="first")
    known = known_positives(examples, chosen, columns, passages_per_query=3)
    for i, query in enumerate(chosen):
        own = examples.positives[examples.offsets[query] : examples.offsets[query + 1]]
        for j, passage in enumerate(columns):
            assert known[i, j] == (passage in own and j != 3 * i)
    assert known.sum() > 5


def test_a_hash_of_one_number_is_the_first_that_splitmix64_draws():
    """Numbers published with the reference implementation and its well-known ports, for the seeds 0
    and 1234567.
    """
    assert hash64(np.array([0, 1234567])).tolist() == [0xE220A8397B1DCDAF, 6457827717110365317]


def test_hash_values_look_uniform():
    values = hash64(1, np.arange(2000)[:, None], np.arange(10)[None, :]) % np.uint64(16)
    counts = np.bincount(values.reshape(-1).astype(int), minlength=16)
    assert abs(counts - 1250).max() < 6 * np.sqrt(1250)
