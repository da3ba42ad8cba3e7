"""Every mask against a slow twin: plain Python, one word at a time, over hundreds of random batches
with many ties.
"""

import itertools
import math
import sys

import numpy as np
import pytest
import torch

from dr_lib import masking
from dr_lib.masking.words import (
    random_keys,
    ranked_keys,
    take_across,
    take_on_device,
    take_words,
    words_of,
)

SEEDS = range(300)


def columns_of_words(words: np.ndarray, special: np.ndarray) -> dict[int, list[int]]:
    """Word number -> its columns, special ones left out."""
    columns: dict[int, list[int]] = {}
    for column in np.flatnonzero(~special):
        columns.setdefault(int(words[column]), []).append(int(column))
    return columns


def take_one_by_one(priorities, words, special, budget, across=False) -> np.ndarray:
    """The rule: words by rising priority, one that would overshoot is skipped; or `across`, until
    the budget is met.
    """
    mask = np.zeros(special.shape, bool)
    for row in range(len(special)):
        columns, left = columns_of_words(words[row], special[row]), int(budget[row])
        for word in sorted(columns, key=lambda w: (priorities[row, columns[w][0]], w)):
            if left > 0 and (across or len(columns[word]) <= left):
                mask[row, columns[word]] = True
                left -= len(columns[word])
    return mask


def budget_of(batch, rate: float, budget: str) -> list[int]:
    """max(1, round(rate x pieces)), and 0 for a rate of 0."""
    counted = (~batch.special).sum(1) if budget == "maskable" else batch.attention_mask.sum(1)
    return [max(1, round(rate * n)) if rate else 0 for n in counted.tolist()]


@pytest.fixture
def random_batch(batch_of):
    """A batch, a rate and a budget by seed: one to nine passages of 0 to 30 words, some padding."""

    def make(seed: int):
        rng = np.random.default_rng(seed)
        longest, most = rng.integers(1, 9), rng.integers(1, 31)
        sizes = [
            rng.integers(1, longest + 1, rng.integers(0, most + 1)).tolist()
            for _ in range(rng.integers(1, 10))
        ]
        batch = batch_of(sizes, length=max(map(sum, sizes)) + 2 + int(rng.integers(0, 5)))
        return (
            batch,
            round(float(rng.choice([0.0, rng.random(), 0.5, 1.0])), 3),
            str(rng.choice(["maskable", "all"])),
        )

    return make


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def compare_all_ways(batch, scores, budget):
    words = words_of(batch)
    keys = ranked_keys(scores.gather(1, words), words, batch.special)
    expected = take_one_by_one(
        -scores.gather(1, words).numpy(), words.numpy(), batch.special.numpy(), budget.numpy()
    )
    np.testing.assert_array_equal(take_words(keys, budget).numpy(), expected)
    np.testing.assert_array_equal(take_on_device(keys, budget).numpy(), expected)
    return expected


@pytest.mark.parametrize("longest", [1, 2, 5, 17])
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8, 1.0])
def test_words_are_taken_as_one_by_one(batch_of, longest, rate):
    rng = np.random.default_rng(longest)
    batch = batch_of(
        [rng.integers(1, longest + 1, rng.integers(0, 31)).tolist() for _ in range(200)]
    )
    scores = torch.randn(batch.special.shape, generator=torch.Generator().manual_seed(1)).round(
        decimals=1
    )
    budget = ((~batch.special).sum(1) * rate).round().long().clamp(min=1)
    compare_all_ways(batch, scores, budget)


def test_a_staircase_of_overshooting_words_is_resolved_to_the_last_step(batch_of):
    # 10 overshoots what 1 leaves of 10, 9 what the next 1 leaves, and so on: one round a step.
    batch = batch_of([[length for step in range(10, 0, -1) for length in (1, step)]])
    scores = -torch.arange(batch.special.shape[1], dtype=torch.float32)[None]
    mask = compare_all_ways(batch, scores, torch.tensor([10]))
    assert mask.sum() == 10


@pytest.mark.parametrize("length", [*range(1, 10), 14, 144])
def test_a_gpu_takes_words_of_any_sizes_within_any_budget(length):
    """All ways to divide a short row into words, and many for a long one."""
    rng = np.random.default_rng(length)
    if length < 10:
        cuts = np.array(list(itertools.product((0, 1), repeat=length - 1)), int)
        cuts, budget = np.repeat(cuts, length, 0), np.tile(np.arange(length) + 1, 2 ** (length - 1))
    else:
        cuts = rng.random((2000, length - 1)) < rng.choice([0.02, 0.1, 0.3, 0.7], (2000, 1))
        budget = rng.integers(1, length + 1, 2000)
    keys = np.hstack([np.zeros((len(cuts), 1), int), cuts.cumsum(1)])
    expected = np.zeros(keys.shape, bool)
    for row, left, mask in zip(keys, budget, expected, strict=True):
        for word, size in enumerate(np.bincount(row)):
            if size <= left:
                mask[row == word], left = True, left - size
    mixed = rng.permuted(np.tile(np.arange(length), (len(keys), 1)), axis=1)
    keys, expected = np.take_along_axis(keys, mixed, 1), np.take_along_axis(expected, mixed, 1)
    found = take_on_device(torch.from_numpy(keys), torch.from_numpy(budget))
    np.testing.assert_array_equal(found.numpy(), expected)


def test_words_and_pieces(random_batch):
    for seed in SEEDS:
        batch, rate, budget = random_batch(seed)
        special, limit = batch.special.numpy(), budget_of(batch, rate, budget)
        pieces = torch.arange(special.shape[1]).expand(special.shape)
        for draw, words, numbered in (
            (masking.whole_word, words_of(batch), words_of(batch)),
            (masking.uniform, pieces, None),
        ):
            keys = random_keys(batch.special, seeded(seed), numbered)
            expected = take_one_by_one(keys.numpy(), words.numpy(), special, limit)
            found = draw(batch, rate, seeded(seed), budget=budget)
            np.testing.assert_array_equal(
                found.numpy(), expected, err_msg=f"{draw.__name__}, seed {seed}"
            )


def test_the_way_of_a_gpu_takes_what_that_of_a_cpu_does(random_batch):
    for seed in SEEDS:
        batch, rate, _ = random_batch(seed)
        words = words_of(batch)
        keys = random_keys(batch.special, seeded(seed), words)
        limit = torch.tensor(budget_of(batch, rate or 0.5, "maskable"))
        np.testing.assert_array_equal(
            take_words(keys, limit).numpy(), take_on_device(keys, limit).numpy(), err_msg=seed
        )
        expected = take_one_by_one(
            keys.numpy(), words.numpy(), batch.special.numpy(), limit, across=True
        )
        np.testing.assert_array_equal(
            take_across(keys, limit).numpy(), expected, err_msg=f"across, seed {seed}"
        )


def test_keys_are_31_random_bits():
    keys = (
        2**30
        + random_keys(torch.zeros(100, 101, dtype=torch.bool), seeded(0), draws=2).long().numpy()
    )
    shares = [(keys >> bit & 1).mean() for bit in range(31)]
    assert 0 <= keys.min() <= keys.max() < 2**31 and np.abs(
        np.array(shares) - 0.5
    ).max() < 4 * 0.5 / np.sqrt(keys.size)


@pytest.mark.parametrize("rates", [(0.3, 0.5), (0.0, 0.5), (0.3, 0.3), (0.5, 0.2), (0, 0), (1, 1)])
@pytest.mark.parametrize("way", [take_words, take_on_device])
def test_two_masks_at_once_are_those_of_two_draws(random_batch, monkeypatch, rates, way):
    monkeypatch.setattr(sys.modules["dr_lib.masking.words"], "take_words", way)
    rate, more = rates
    for seed in SEEDS[::5]:
        batch, _, budget = random_batch(seed)
        source, twin = seeded(seed), seeded(seed)
        mask = masking.whole_word(batch, rate, twin, budget=budget)
        union = masking.superset(batch, mask, more, twin, encoder_rate=rate, budget=budget)
        found = masking.nested(batch, rate, more, source, budget=budget)
        assert all(map(torch.equal, found, (mask, union))), seed
        assert torch.equal(source.get_state(), twin.get_state())  # no number more or less


def test_supersets_and_complements(random_batch):
    for seed in SEEDS:
        batch, rate, budget = random_batch(seed)
        mask = masking.whole_word(batch, 0.3, seeded(seed))
        union = masking.superset(
            batch, mask, rate, seeded(seed + 1), encoder_rate=0.3, budget=budget
        )
        extra = (rate - 0.3) / 0.7
        second = (
            masking.whole_word(batch, extra, seeded(seed + 1), budget=budget)
            if extra > 1e-4
            else mask
        )
        assert torch.equal(union, mask | second)
        assert torch.equal(masking.complementary(batch, mask), ~mask & ~batch.special)


@pytest.mark.parametrize("draws", [None, 3])
def test_rows(random_batch, monkeypatch, draws):
    monkeypatch.setattr("dr_lib.masking.words.AT_ONCE", 2000)  # several passages at a time, not all
    for seed in SEEDS[::3]:
        batch, rate, budget = random_batch(seed)
        (rows, length), source = batch.special.shape, seeded(seed)
        pool = length if draws is None else min(draws, length)
        masks = np.zeros((rows, pool, length), bool)
        if rate:
            keys = random_keys(batch.special, source, words_of(batch), pool).numpy()
            several = (
                np.repeat(one.numpy(), pool, axis=0) for one in (words_of(batch), batch.special)
            )
            limit = np.repeat(budget_of(batch, rate, budget), pool)
            masks = take_one_by_one(keys, *several, limit).reshape(masks.shape)
        if draws is not None:
            picks = torch.randint(pool, (rows, length), generator=source).numpy()
            masks = np.stack([masks[row][picks[row]] for row in range(rows)])
        expected = masks | np.eye(length, dtype=bool) | (batch.attention_mask == 0).numpy()[:, None]
        found = masking.per_row(batch, rate, seeded(seed), budget=budget, draws=draws)
        np.testing.assert_array_equal(found.numpy(), expected, err_msg=f"seed {seed}")


@pytest.mark.parametrize("unit", ["word", "piece"])
def test_importances(random_batch, unit):
    for seed in SEEDS:
        batch, rate, _ = random_batch(seed)
        special, rng = batch.special.numpy(), np.random.default_rng(seed)
        values = torch.from_numpy(
            rng.normal(0, 2, special.shape).round(int(rng.integers(0, 3))).astype(np.float32)
        )
        relative, noise = bool(seed % 2), float(rng.choice([0.0, 0.7]))
        found = masking.importance(
            batch,
            values,
            rate,
            seeded(seed),
            noise=noise,
            noise_scale="relative" if relative else "absolute",
            unit=unit,
        )
        lots = torch.randn(values.shape, generator=seeded(seed)).numpy() * np.float32(noise)
        words = (
            words_of(batch).numpy()
            if unit == "word"
            else np.tile(np.arange(special.shape[1]), (len(batch), 1))
        )
        worth, limit = np.zeros(special.shape, np.float32), []
        for row in range(len(batch)):
            columns = columns_of_words(words[row], special[row])
            own = values.numpy()[row, [first for first, *_ in columns.values()]]
            spread = np.float32(own.std()) if relative and len(own) else np.float32(1)
            for first, *rest in columns.values():
                worth[row, [first, *rest]] = values[row, first] + lots[row, first] * spread
            limit.append(max(1, math.floor(rate * (~special[row]).sum() + 1e-9)) if rate else 0)
        expected = take_one_by_one(-worth.astype(np.float64), words, special, limit)
        np.testing.assert_array_equal(found.numpy(), expected, err_msg=f"seed {seed}")


def test_keywords(random_batch):
    for seed in SEEDS:
        batch, rate, _ = random_batch(seed)
        special, words = batch.special.numpy(), words_of(batch).numpy()
        weights = torch.from_numpy(
            np.random.default_rng(seed).integers(0, 3, special.shape).astype(np.float32)
        )
        uniform = torch.rand(special.shape, generator=seeded(seed)).clamp(min=1.2e-38)
        worth = (weights.log() - uniform.log().neg().log()).numpy()
        first = np.zeros(special.shape, np.float32)
        for row in range(len(batch)):
            for columns in columns_of_words(words[row], special[row]).values():
                first[row, columns] = worth[row, columns[0]]
        expected = take_one_by_one(
            -first, words, special, budget_of(batch, rate, "maskable"), across=True
        )
        found = masking.keyword(batch, weights, rate, seeded(seed))
        np.testing.assert_array_equal(found.numpy(), expected, err_msg=f"seed {seed}")


def test_hidden_pieces(random_batch):
    for seed in SEEDS:
        batch, rate, _ = random_batch(seed)
        special, vocabulary = sorted({0, 1, 2, 3, 4, 4 + seed % 9}), 40
        mask = masking.uniform(batch, rate, seeded(seed))
        found = masking.hide(
            batch, mask, 4, vocabulary, seeded(seed), "80_10_10", special_ids=special
        )
        lots = torch.rand(mask.shape, generator=seeded(seed), dtype=torch.float64).numpy() * 10
        free = [id_ for id_ in range(vocabulary) if id_ not in special]
        for row, column in np.ndindex(mask.shape):
            lot, expected = lots[row, column], int(batch.input_ids[row, column])
            if mask[row, column] and lot < 9:
                expected = 4 if lot < 8 else free[int((lot - 8) * len(free))]
            assert found[row, column] == expected
