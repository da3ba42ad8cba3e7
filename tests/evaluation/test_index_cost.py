"""Sizes of indexes against files on disk and against the figures of SimLM's Table 3."""

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.evaluation import IndexCost, load_paper


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_size_is_that_of_the_file_less_its_header(tmp_path, dtype):
    path = tmp_path / "vectors.npy"
    np.save(path, np.zeros((37, 24), dtype))
    cost = IndexCost.of_file(path)
    assert cost == IndexCost.single_vector(37, 24, dtype)
    assert 0 < path.stat().st_size - cost.bytes < 200
    assert len(cost.stages) == 1


def test_papers_sizes_of_ms_marco_come_out():
    """8.8 million passages; 68 tokens a passage are what ColBERT's printed size comes to."""
    table = load_paper("simlm").table("table3")
    assert dict(zip(table.labels(), [row[1] for row in table.rows], strict=True))["SimLM"] == "27GB"
    assert round(IndexCost.single_vector(8_841_823, 768).gigabytes) == 27
    multi = IndexCost.multi_vector(8_841_823 * 68)
    assert 150 < multi.gigabytes < 160 and len(multi.stages) == 2


def test_multi_vector_size_counts_tokens_up_to_the_cut():
    lengths = np.array([3, 50, 400])
    assert IndexCost.multi_vector(lengths, hidden=8, dtype="float32").bytes == 453 * 8 * 4
    assert IndexCost.multi_vector(lengths, hidden=8, dtype="float32", most=180).bytes == (3 + 50 + 180) * 8 * 4


def test_what_is_no_index_is_refused(tmp_path):
    with pytest.raises(InputError, match="whole"):
        IndexCost.of_file(tmp_path / "none.npy")
