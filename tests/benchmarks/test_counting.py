"""The counter of a step by hand, and what steps of the scale `paper` may ask of a GPU."""

import pytest
import torch
from bench_device import BASE, encoding, padding_rows, simlm_step
from counting import count_step
from torch import nn
from torch.nn import functional


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


def test_compiled_operations_that_follow_each_other_read_and_write_once():
    with torch.device("meta"):
        first, second = torch.zeros(10, 6), torch.zeros(10, 6)

    def step() -> torch.Tensor:
        return functional.gelu(first + second) * second

    assert count_step(step).moved == 4 * 60 * (3 + 2 + 3)
    fused = count_step(step, compiled=(6,))
    assert (fused.kernels, fused.moved) == (1, 4 * 60 * 3)


@pytest.mark.slow
def test_simlms_step_keeps_to_its_traffic():
    step = simlm_step(BASE)
    plain, compiled = count_step(step), count_step(step, compiled=(768, 3072))
    assert plain.moved < 360e9 and compiled.moved < 330e9
    assert compiled.share_of_peak() > 0.45 and plain.memory < 27 * 2**30


def test_encoding_a_batch_moves_what_weights_in_bfloat16_allow():
    count = encoding(BASE, smoke=False)
    assert count.moved < 95e9 and count.kernels < 170


def test_no_step_of_the_papers_scale_pads_more_than_a_quarter():
    assert all(row.as_dict()["met"] for row in padding_rows())
