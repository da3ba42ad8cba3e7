"""The counter of a step by hand, and what steps of the scale `paper` may ask of a GPU."""

import pytest
import torch
from bench_device import BASE, encoding, padding_rows, simlm_step
from counting import compiled_step, count_step, planned
from torch import nn
from torch.nn import functional

from dr_lib.losses import cross_entropy
from dr_lib.models import generator


def test_a_product_reads_its_factors_and_writes_its_result():
    with torch.device("meta"):
        states, layer = torch.zeros(10, 6), nn.Linear(6, 4, bias=False)
        layer.requires_grad_(False)
    count = count_step(lambda: layer(states), autocast=False)
    assert (count.kernels, count.products) == (1, 2 * 10 * 6 * 4)
    assert count.moved == count.moved_by_products == 4 * (10 * 6 + 6 * 4 + 10 * 4)
    halved = count_step(lambda: layer(states))  # both factors are cast first
    assert halved.kernels == 3
    assert halved.moved == 6 * (10 * 6 + 6 * 4) + 2 * (10 * 6 + 6 * 4 + 10 * 4)


def test_a_product_with_a_vector_is_as_slow_as_its_bytes():
    with torch.device("meta"):
        row, matrix = torch.zeros(1, 6), torch.zeros(6, 4)
    assert count_step(lambda: row @ matrix, autocast=False).moved_by_products == 0


def test_inductors_plan_reads_and_writes_once_what_it_takes_together():
    with torch.device("meta"):
        first, second = torch.zeros(1000, 64), torch.zeros(1000, 64)

    def function(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return functional.gelu(first + second) * second

    size = 4 * 64_000
    assert count_step(lambda: function(first, second)).moved == size * (3 + 2 + 3)
    plan = planned(function, first, second)
    assert (plan.kernels, plan.moved) == (1, 3 * size)
    learned = planned(function, first, second, gradient=True)  # reads them again, and a slope
    assert (learned.kernels, learned.moved) == (2, (3 + 5) * size)


def test_logits_are_read_and_slopes_are_written_once():
    rows, vocab = 4096, 30_522
    with torch.device("meta"):
        logits = torch.zeros(rows, vocab, dtype=torch.bfloat16)
        offset, shares = torch.zeros(vocab), torch.zeros(rows, 1)
        targets = torch.zeros(rows, 1, dtype=torch.int64)
    slopes = planned(cross_entropy.row_slopes, logits, offset, targets, shares)
    assert slopes.kernels == 1 and slopes.moved == pytest.approx(2 * logits.nbytes, rel=0.01)
    # sums of 239 blocks, in float32, are a sixteenth of the logits
    sums = planned(generator.block_sums, logits)
    assert sums.kernels == 2 and sums.moved == pytest.approx(logits.nbytes, rel=0.1)


@pytest.mark.slow
def test_simlms_step_keeps_to_its_traffic():
    step, simlm = simlm_step(BASE)
    plain, compiled = count_step(step), compiled_step(step, simlm, BASE.rows, BASE.length)
    assert compiled.moved < plain.moved < 290e9
    assert compiled.seconds() < 0.1501 < plain.seconds() < 0.155
    assert compiled.share_of_peak() > 0.48 and plain.memory < 27 * 2**30


def test_encoding_a_batch_moves_what_weights_in_bfloat16_allow():
    count = encoding(BASE, smoke=False)
    assert count.moved < 95e9 and count.kernels < 170


def test_no_step_of_the_papers_scale_pads_more_than_a_quarter():
    assert all(row.as_dict()["met"] for row in padding_rows())
