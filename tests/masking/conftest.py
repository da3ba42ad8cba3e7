"""Batches with known word borders."""

import numpy as np
import pytest
import torch

from dr_lib.tokens import TokenBatch


@pytest.fixture
def batch_of():
    """Make a batch from word lengths: `batch_of([[1, 3, 2], []], length=12)`; each row is [CLS]
    words [SEP] padding.
    """

    def make(word_lengths: list[list[int]], length: int | None = None) -> TokenBatch:
        length = length or max(map(sum, word_lengths)) + 2
        shape = len(word_lengths), length
        ids, attention = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        special, start = np.ones(shape, bool), np.zeros(shape, bool)
        for row, sizes in enumerate(word_lengths):
            pieces = sum(sizes)
            ids[row, : pieces + 2] = [2, *range(10, 10 + pieces), 3]
            attention[row, : pieces + 2] = 1
            special[row, 1 : pieces + 1] = False
            start[row, (1 + np.cumsum([0, *sizes])[:-1]).astype(int)] = True
            start[row] &= ~special[row]
        tensors = map(torch.from_numpy, (ids, attention, np.zeros(shape, np.int64), special, start))
        return TokenBatch(*tensors, rows=torch.arange(shape[0]))

    return make


@pytest.fixture
def source():
    """A generator with a fixed seed."""
    return torch.Generator().manual_seed(7)
