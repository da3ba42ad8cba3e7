"""Exact search equals brute force in float64, whatever the shapes, blocks, number types, ties and
duplicates.
"""

import sys
from functools import partial

import faiss
import numpy as np
import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.retrieval import exact_scores, search, vectors_at

MODULE = sys.modules["dr_lib.retrieval.exact"]


def by_hand(queries: np.ndarray, passages: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """All scores in float64, rounded to float32, then a plain sort of (-score, row)."""
    exact = np.stack(
        [np.vecdot(passages.astype(np.float64), query) for query in queries.astype(np.float64)]
    )
    exact = exact.astype(np.float32)
    rows = np.argsort(-exact, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(exact, rows, axis=1), rows


def vectors(count: int, hidden: int = 24, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, hidden)).astype(np.float32)


def whole_numbers(rng: np.random.Generator, shape: tuple[int, int], most: int) -> np.ndarray:
    """Vectors whose inner products are exact in float64, in any order of summation, and often
    equal.
    """
    return rng.integers(-most, most + 1, shape).astype(np.float32) / 64


def make(rng: np.random.Generator, look: str, count: int, hidden: int) -> np.ndarray:
    if look == "gaussian":
        made = rng.standard_normal((count, hidden))
    elif look == "ties":
        made = whole_numbers(rng, (count, hidden), 2)
    elif look == "duplicates":
        made = whole_numbers(rng, (1 + count // 20, hidden), 90)[
            rng.integers(0, 1 + count // 20, count)
        ]
    elif look == "one vector":
        made = np.repeat(whole_numbers(rng, (1, hidden), 90), count, axis=0)
    elif look == "zeros":
        made = whole_numbers(rng, (count, hidden), 90) * rng.integers(0, 2, (count, 1))
    elif look == "cone":  # nearly the same direction: closer than bfloat16 resolves
        made = 1 + 1e-3 * rng.standard_normal((count, hidden))
    elif look == "lengths":
        made = rng.standard_normal((count, hidden)) * 10.0 ** rng.integers(-4, 5, (count, 1))
    else:  # neighbours: they differ in the last bit of one number
        made = np.tile(rng.standard_normal(hidden).astype(np.float32), (count, 1))
        made[np.arange(count), rng.integers(0, hidden, count)] *= np.float32(1 + 2.0**-23)
    return made.astype(np.float32)


def test_products_of_apples_gpus_are_not_relied_on():
    queries, passages = vectors(3), vectors(50, seed=1)
    for found, expected in zip(
        search(queries, passages, 5, device="mps"), by_hand(queries, passages, 5), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


LOOKS = ["gaussian", "ties", "duplicates", "one vector", "zeros", "cone", "lengths", "neighbours"]


@pytest.mark.parametrize("look", LOOKS)
def test_search_equals_brute_force_over_random_shapes_blocks_and_ties(look, monkeypatch):
    for seed in range(25):
        rng = np.random.default_rng([seed, LOOKS.index(look)])
        count, hidden = int(rng.integers(1, 600)), int(rng.integers(1, 70))
        passages, queries = (
            make(rng, look, count, hidden),
            make(rng, look, int(rng.integers(1, 90)), hidden),
        )
        k = int(rng.choice([1, 2, 10, 100, count, count + 5]))
        monkeypatch.setattr(
            MODULE, "BLOCK_ROWS", int(rng.choice([1 + count // 9, 64, 200, 10_000]))
        )
        monkeypatch.setattr(MODULE, "CANDIDATES", int(rng.choice([1, 5_000, 1 << 24])))
        monkeypatch.setattr(MODULE, "MARGIN", int(rng.choice([0, 1, 8, 32])))
        monkeypatch.setenv("DR_THREADS", str(rng.choice([1, 1, 3])))
        if rng.random() < 0.3:
            passages = passages.astype(np.float16)
        shards = np.split(passages, np.sort(rng.integers(0, count + 1, rng.integers(0, 4))))
        scores, rows = search(queries, shards if len(shards) > 1 else passages, k)
        expected_scores, expected_rows = by_hand(queries, passages, k)
        assert (rows == expected_rows).all(), f"seed {seed}"
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-30)
        assert scores.dtype == np.float32 and rows.dtype == np.int64


@pytest.mark.parametrize("k", [1, 10, 100, 1000])
def test_no_query_of_many_loses_a_passage(k):
    """Passages used to be lost if one query of many had fewer candidates than `k`."""
    rng = np.random.default_rng(0)
    queries, passages = (rng.normal(size=(count, 64)).astype("f4") for count in (200, 20_000))
    assert (search(queries, passages, k)[1] == by_hand(queries, passages, k)[1]).all()


@pytest.mark.parametrize("hidden", [64, 768])
def test_vectors_in_one_narrow_cone_are_told_apart(hidden):
    """They differ by less than the error of fast products: only the bound on these errors helps."""
    rng = np.random.default_rng(0)
    middle = rng.standard_normal(hidden)
    queries, passages = (
        (middle + 1e-6 * rng.standard_normal((count, hidden))).astype(np.float32)
        for count in (66, 4_000)
    )
    assert (search(queries, passages, 10)[1] == by_hand(queries, passages, 10)[1]).all()


def test_minus_zero_and_zero_are_one_score():
    """A product too small for float32 is -0.0 on one side of zero and 0.0 on the other."""
    queries = np.array([[-1e-30, 0.0]], np.float32)
    passages = np.array([[1e-30, 0.0], [0.0, 0.0], [-1e-30, 0.0], [0.0, 1.0]], np.float32)
    scores, rows = search(queries, passages, 4)
    assert rows.tolist() == [[0, 1, 2, 3]] and not np.signbit(scores).any()


def test_whatever_fast_products_are_within_their_bound_no_passage_is_lost(monkeypatch):
    """They may overestimate the last counted passage by as much as they underestimate another."""
    rng = np.random.default_rng(0)

    def fast(queries, shards, depth, place):
        true = queries.astype(np.float64) @ shards[0].T.astype(np.float64)
        longest = float(np.linalg.norm(shards[0], axis=1).max())
        off = MODULE._Bounds.of(queries, longest).off[:, None]
        moved = true + 0.9 * off * rng.choice([-1, 1], true.shape)
        rows = np.argsort(-moved, axis=1)[:, :depth]
        return np.take_along_axis(moved, rows, 1).astype(np.float32), rows, longest

    monkeypatch.setattr(MODULE, "_fast_lists", fast)
    for _ in range(30):
        middle, noise = rng.standard_normal(16), 10.0 ** rng.uniform(-6.5, -4)
        queries, passages = (
            (middle + noise * rng.standard_normal((count, 16))).astype(np.float32)
            for count in (5, 400)
        )
        assert (search(queries, passages, 7)[1] == by_hand(queries, passages, 7)[1]).all()


def test_collection_of_one_vector_repeated_comes_back_in_row_order(monkeypatch):
    monkeypatch.setattr(MODULE, "BLOCK_ROWS", 512)
    assert (
        search(vectors(3, seed=1), np.repeat(vectors(1), 5000, axis=0), 10)[1] == np.arange(10)
    ).all()


def test_better_passages_may_come_last(monkeypatch):
    monkeypatch.setattr(MODULE, "BLOCK_ROWS", 100)
    passages = vectors(1, seed=1) * np.linspace(0.1, 1, 1000, dtype=np.float32)[:, None]
    assert (search(vectors(1, seed=1), passages, 30)[1] == np.arange(999, 969, -1)).all()


def test_scores_do_not_depend_on_kind_block_or_company(monkeypatch):
    queries, passages = vectors(130, 100, seed=1), vectors(997, 100)
    expected = search(queries, passages, 50)
    for block in (13, 500):
        with monkeypatch.context() as patch:
            patch.setattr(MODULE, "BLOCK_ROWS", block)
            scores, rows = search(queries, passages, 50)
        assert (scores == expected[0]).all() and (rows == expected[1]).all()
    alone = [search(query[None], passages, 50) for query in queries[:9]]
    assert (np.concatenate([scores for scores, _ in alone]) == expected[0][:9]).all()
    assert (exact_scores(queries, passages, expected[1]) == expected[0]).all()


def test_memory_mapped_float16_vectors_are_searched_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(MODULE, "BLOCK_ROWS", 32)
    passages = vectors(300).astype(np.float16)
    np.save(tmp_path / "v.npy", passages)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    assert (
        search(vectors(4, seed=1), mapped, 10)[1] == by_hand(vectors(4, seed=1), passages, 10)[1]
    ).all()


def test_read_only_float32_memory_map_gives_no_warning(tmp_path, recwarn):
    np.save(tmp_path / "v.npy", vectors(300))
    search(vectors(4, seed=1), np.load(tmp_path / "v.npy", mmap_mode="r"), 10)
    assert not [w for w in recwarn if "writ" in str(w.message)]


def test_tensors_in_bfloat16_are_searched_as_their_values_in_float32():
    queries, passages = (torch.randn(rows, 8).bfloat16() for rows in (3, 20))
    scores, rows = search(queries, passages, 4)
    wide_scores, wide_rows = search(queries.float(), passages.float(), 4)
    assert np.array_equal(rows, wide_rows) and np.array_equal(scores, wide_scores)


def test_tensors_and_arrays_give_the_same():
    queries, passages = vectors(3, seed=1), vectors(50)
    found = search(torch.from_numpy(queries), torch.from_numpy(passages), 5)
    assert (found[1] == search(queries, passages, 5)[1]).all()


def test_global_matmul_precision_is_respected_and_left_alone(monkeypatch):
    monkeypatch.setattr(MODULE, "_OnProcessor", partial(MODULE._OnGpu, place=torch.device("cpu")))
    torch.set_float32_matmul_precision("medium")
    try:
        search(vectors(3, seed=1), vectors(50), 5)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_no_queries_and_no_passages_give_empty_results():
    assert search(vectors(0), vectors(5), 3)[1].shape == (0, 3)
    assert search(vectors(2), vectors(0), 3)[1].shape == (2, 0)
    assert search(vectors(2), [vectors(0), vectors(5)], 3)[1].shape == (2, 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_vectors_that_are_not_finite_are_refused_with_their_row(value):
    odd = np.full((1, 24), value, np.float32)
    with pytest.raises(InputError, match="queries row 2"):
        search(np.vstack([vectors(2), odd]), vectors(3), 1)
    for passages in (np.vstack([vectors(3), odd]), [vectors(3), odd]):
        with pytest.raises(InputError, match="passages row 3"):
            search(vectors(2), passages, 1)


class _FaissForGpus:
    """The functions of faiss for GPUs that the search uses, on a processor."""

    METRIC_INNER_PRODUCT = faiss.METRIC_INNER_PRODUCT
    StandardGpuResources = object

    @staticmethod
    def knn_gpu(resources, queries, vectors, most, metric, device):
        """As `faiss.knn_gpu` with torch's tensors."""
        fast, rows = faiss.knn(queries.numpy(), vectors.numpy(), most, metric)
        return torch.from_numpy(fast), torch.from_numpy(rows)


@pytest.mark.parametrize("by", ["torch", "faiss"])
@pytest.mark.parametrize("look", LOOKS)
def test_lists_that_stay_on_a_gpu_end_as_brute_force(look, by, monkeypatch):
    """By the code for GPUs on a processor, on one device and on three."""
    monkeypatch.setattr(MODULE, "_OnProcessor", partial(MODULE._OnGpu, place=torch.device("cpu")))
    monkeypatch.setattr(MODULE, "_faiss_for_gpus", lambda: _FaissForGpus if by == "faiss" else None)
    searched = []
    proposed = MODULE._proposed
    monkeypatch.setattr(
        MODULE, "_proposed", lambda *a: (searched.append(len(a[0])), proposed(*a))[1]
    )
    again = 0
    for seed in range(25):
        rng = np.random.default_rng([seed, LOOKS.index(look)])
        count, hidden = int(rng.integers(1, 600)), int(rng.integers(1, 70))
        passages = make(rng, look, count, hidden)
        queries = make(rng, look, int(rng.integers(1, 90)), hidden)
        k = int(rng.choice([1, 2, 10, 100, count, count + 5]))
        monkeypatch.setattr(MODULE, "BLOCK_ROWS", int(rng.choice([1 + count // 9, 64, 10_000])))
        monkeypatch.setattr(MODULE, "DEVICE_SCORES", int(rng.choice([1, 5_000, 1 << 24])))
        monkeypatch.setattr(MODULE, "MARGIN", int(rng.choice([1, 8, 32])))
        monkeypatch.setenv("DR_THREADS", str(rng.choice([1, 3])))
        if rng.random() < 0.3:
            passages = passages.astype(np.float16)
        shards = np.split(passages, np.sort(rng.integers(0, count + 1, rng.integers(0, 4))))
        devices = [torch.device("cpu")] * int(rng.choice([1, 3]))
        searched.clear()
        scores, rows = search(queries, shards, k, devices=devices)
        again += sum(searched) - len(queries)
        expected_scores, expected_rows = by_hand(queries, passages, k)
        assert (rows == expected_rows).all(), f"seed {seed}"
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-30)
    if look in ("ties", "duplicates", "one vector", "zeros"):
        assert again, "no list was ever cut where it mattered"


def test_vectors_that_differ_are_searched_once(monkeypatch):
    """The lists for Gaussian vectors are proven complete, whatever the number requested."""
    calls, proposed = [], MODULE._proposed
    monkeypatch.setattr(MODULE, "_proposed", lambda *a: (calls.append(1), proposed(*a))[1])
    queries, passages = vectors(70), vectors(5_000, seed=1)
    for k in (1, 20, 1000):
        assert (search(queries, passages, k)[1] == by_hand(queries, passages, k)[1]).all()
    assert len(calls) == 3


def test_settings_of_faiss_are_left_alone():
    before = faiss.cvar.distance_compute_blas_threshold
    search(vectors(3, seed=1), vectors(50), 5)
    assert faiss.cvar.distance_compute_blas_threshold == before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_finds_what_a_processor_finds():
    queries, passages = vectors(300, 256), vectors(200_000, 256, seed=1)
    on_host, on_gpu = (search(queries, passages, 200, device=name) for name in ("cpu", "cuda"))
    for found, expected in zip(on_gpu, on_host, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("k, width", [(0, 24), (-1, 24), (3, 23)])
def test_no_passage_wanted_and_another_width_are_refused(k, width):
    with pytest.raises(InputError, match="one model"):
        search(vectors(2), vectors(5, width), k)


@pytest.mark.parametrize("row", [-1, 5])
def test_scores_of_a_row_that_is_not_there_are_refused(row):
    with pytest.raises(InputError, match="of 5 passages"):
        exact_scores(vectors(1), vectors(5), np.array([[0, row]]))


@pytest.mark.parametrize("row", [-1, 5])
def test_the_vector_of_a_row_that_is_not_there_is_refused(row):
    for passages in (vectors(5), [vectors(2), vectors(3)]):
        with pytest.raises(InputError, match="of 5 passages"):
            vectors_at(passages, np.array([0, row]))


def test_a_vector_in_place_of_an_array_of_them_is_refused():
    with pytest.raises(InputError, match=r"^queries: "):
        search(vectors(1)[0], vectors(5), 1)
    for passages in (vectors(5)[0], list(vectors(5)), iter([vectors(5)])):
        with pytest.raises(InputError, match=r"^passages: "):
            search(vectors(1), passages, 1)


def test_a_gpu_does_without_faiss(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert MODULE._faiss_for_gpus() is None
    with pytest.raises(InputError, match="faiss-cpu"):
        search(vectors(1), vectors(5), 1)
