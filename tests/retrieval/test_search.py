"""Exact search: one order for every precision, block size and number type."""

import numpy as np
import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.retrieval import search
from dr_lib.retrieval.products import Products, choose
from dr_lib.training.machine import has_bf16

PRECISIONS = ["fp32", "bf16"]


def by_hand(queries: np.ndarray, passages: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """All scores in float64, one pair at a time, then a plain sort of (-score, row)."""
    scores, rows = [], []
    for query in queries.astype(np.float64):
        exact = [np.float32((query * passage).sum()) for passage in passages.astype(np.float64)]
        best = sorted(range(len(passages)), key=lambda row: (-exact[row], row))[:k]
        rows.append(best)
        scores.append([exact[row] for row in best])
    return np.array(scores, np.float32), np.array(rows)


def vectors(count: int, hidden: int = 24, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, hidden)).astype(np.float32)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("block", [None, 1, 7, 64])
def test_search_equals_a_sort_of_all_scores(precision, block):
    queries, passages = vectors(9, seed=1), vectors(200)
    scores, rows = search(queries, passages, 20, precision=precision, block=block)
    expected_scores, expected_rows = by_hand(queries, passages, 20)
    assert (rows == expected_rows).all()
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-6)
    assert scores.dtype == np.float32 and rows.dtype == np.int64


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("block", [3, 50, 1000])
def test_ties_fall_by_row_also_across_blocks(precision, block):
    distinct = vectors(7)
    passages = distinct[np.random.default_rng(2).integers(0, 7, 300)]
    scores, rows = search(vectors(5, seed=3), passages, 60, precision=precision, block=block)
    for line_scores, line in zip(scores, rows, strict=True):
        assert line.tolist() == sorted(line.tolist(), key=lambda row: (-line_scores[list(line).index(row)], row))
        for value in np.unique(line_scores):
            tied = line[line_scores == value]
            twins = np.flatnonzero((passages == passages[tied[0]]).all(axis=1))
            assert tied.tolist() == twins[: len(tied)].tolist()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_collection_of_one_vector_repeated_comes_back_in_row_order(precision):
    passages = np.repeat(vectors(1), 5000, axis=0)
    _, rows = search(vectors(3, seed=1), passages, 10, precision=precision, block=512)
    assert (rows == np.arange(10)).all()


def test_scores_do_not_depend_on_precision_or_block():
    queries, passages = vectors(13, 100, seed=1), vectors(997, 100)
    found = [
        search(queries, passages, 50, precision=precision, block=block)
        for precision in PRECISIONS
        for block in (None, 1, 63, 500)
    ]
    for scores, rows in found[1:]:
        assert (scores == found[0][0]).all() and (rows == found[0][1]).all()


def test_a_query_alone_gets_the_scores_it_gets_in_a_batch():
    queries, passages = vectors(13, 100, seed=1), vectors(500, 100)
    scores, rows = search(queries, passages, 30)
    alone = [search(query[None], passages, 30) for query in queries]
    assert (np.concatenate([a[0] for a in alone]) == scores).all()
    assert (np.concatenate([a[1] for a in alone]) == rows).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_near_ties_beyond_float32_products_are_decided_exactly(precision):
    rng = np.random.default_rng(5)
    base = rng.standard_normal(256).astype(np.float32)
    passages = np.tile(base, (400, 1))
    passages[np.arange(400), rng.integers(0, 256, 400)] *= 1 + 2.0**-23
    queries = vectors(4, 256, seed=6)
    scores, rows = search(queries, passages, 25, precision=precision, block=37)
    expected_scores, expected_rows = by_hand(queries, passages, 25)
    assert (rows == expected_rows).all() and (scores == expected_scores).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_k_beyond_the_collection_returns_all_rows(precision):
    scores, rows = search(vectors(2, seed=1), vectors(5), 1000, precision=precision)
    assert rows.shape == scores.shape == (2, 5)
    assert (np.sort(rows, axis=1) == np.arange(5)).all()


def test_memory_mapped_float16_vectors_are_searched_as_they_are(tmp_path):
    passages = vectors(300).astype(np.float16)
    np.save(tmp_path / "v.npy", passages)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    found = search(vectors(4, seed=1), mapped, 10, block=32)
    expected = by_hand(vectors(4, seed=1), passages, 10)
    assert (found[1] == expected[1]).all()
    assert (search(vectors(4, seed=1), mapped, 10, precision="fp32", block=32)[0] == found[0]).all()


def test_read_only_float32_memory_map_gives_no_warning(tmp_path, recwarn):
    np.save(tmp_path / "v.npy", vectors(300))
    search(vectors(4, seed=1), np.load(tmp_path / "v.npy", mmap_mode="r"), 10, precision="fp32")
    assert not [w for w in recwarn if "writ" in str(w.message)]


def test_tensors_and_arrays_give_the_same():
    queries, passages = vectors(3, seed=1), vectors(50)
    found = search(torch.from_numpy(queries), torch.from_numpy(passages), 5)
    assert (found[1] == search(queries, passages, 5)[1]).all()


def test_global_matmul_precision_is_respected_and_left_alone():
    torch.set_float32_matmul_precision("medium")
    try:
        search(vectors(3, seed=1), vectors(50), 5, precision="fp32")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_many_queries_are_searched_in_groups(monkeypatch):
    import sys

    whole = search(vectors(40, seed=1), vectors(300), 10)
    monkeypatch.setattr(sys.modules["dr_lib.retrieval.search"], "STATE_BYTES", 8 * 13 * 10 * 7)
    parts = search(vectors(40, seed=1), vectors(300), 10)
    assert (whole[0] == parts[0]).all() and (whole[1] == parts[1]).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_sample_that_misleads_is_noticed(precision):
    passages, queries = vectors(20_000, seed=4), vectors(3, seed=5)
    passages[::5] = 0.1 * passages[::5] + queries.mean(axis=0)  # every fifth one is looked at first
    found = search(queries, passages, 40, precision=precision)
    expected = np.argsort(-(queries.astype(np.float64) @ passages.T.astype(np.float64)), axis=1, kind="stable")
    assert (found[1] == expected[:, :40]).all()


def test_products_off_by_more_than_is_possible_are_made_again_in_float32(monkeypatch):
    queries, passages = vectors(3, seed=1), vectors(50)
    right = Products.columns
    noise = torch.from_numpy(vectors(50, seed=9).T.copy())
    monkeypatch.setattr(
        Products, "columns", lambda self, v: right(self, v) + noise.to(self.dtype) * (self.dtype == torch.bfloat16)
    )
    assert (search(queries, passages, 5, precision="bf16")[1] == by_hand(queries, passages, 5)[1]).all()


def test_scores_within_the_error_of_bfloat16_call_for_float32():
    queries, passages = vectors(64, seed=1), vectors(500)
    collapsed = passages * 1e-3 + 1
    assert choose("auto", queries, collapsed, 10, "cpu") == "fp32"
    assert choose("auto", queries[:3], passages, 10, "cpu") == "fp32"
    spread = choose("auto", queries, passages, 10, "cpu")
    assert spread == ("bf16" if has_bf16(torch.device("cpu")) else "fp32")


def test_several_threads_find_the_same(monkeypatch):
    queries, passages = vectors(300, seed=1), vectors(400)
    alone = search(queries, passages, 7)
    monkeypatch.setenv("DR_THREADS", "3")
    assert (search(queries, passages, 7)[1] == alone[1]).all()


def test_no_queries_and_no_passages_give_empty_results():
    assert search(vectors(0), vectors(5), 3)[1].shape == (0, 3)
    assert search(vectors(2), vectors(0), 3)[1].shape == (2, 0)


@pytest.mark.parametrize(
    ("queries", "passages", "k", "options", "problem"),
    [
        (vectors(2, 8), vectors(3, 9), 1, {}, "do not fit"),
        (vectors(2), vectors(3), 0, {}, "k is 0"),
        (vectors(2), vectors(3).astype(np.float64), 1, {}, "float64"),
        (vectors(2), vectors(3), 1, {"precision": "fp8"}, "no precision"),
        (vectors(2) * np.nan, vectors(3), 1, {}, "queries row 0"),
        (vectors(2), np.vstack([vectors(3), np.full((1, 24), np.inf, np.float32)]), 1, {}, "passages row 3"),
    ],
)
def test_bad_input_is_refused(queries, passages, k, options, problem):
    with pytest.raises(InputError, match=problem):
        search(queries, passages, k, **options)
