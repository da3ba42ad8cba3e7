"""Pseudo-labels against a loop over queries, their counts, and what is refused."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.materials.pseudo_labels import (
    count_labels,
    label,
    probabilities,
    pseudo_labels,
    unlabelled_queries,
)
from dr_lib.materials.texts import Texts
from dr_lib.retrieval import Ranking
from dr_lib.training import Examples


@pytest.fixture
def scores():
    scores = np.random.default_rng(0).normal(0, 3, (40, 8)).astype(np.float32)
    scores[3, 5:], scores[7, :] = -np.inf, -np.inf
    return scores


@pytest.fixture
def rows(scores):
    rng = np.random.default_rng(1)
    rows = np.array([rng.choice(60, 8, replace=False) for _ in range(40)])
    return np.where(np.isfinite(scores), rows, -1)


def test_sigmoid_takes_each_pair_for_itself(scores):
    found = probabilities(scores, "sigmoid")
    assert found.dtype == np.float32
    for value, chance in zip(scores.flat, found.flat, strict=True):
        expected = 1 / (1 + math.exp(-value)) if np.isfinite(value) else math.nan
        assert chance == pytest.approx(expected, rel=1e-5, nan_ok=True)


def test_softmax_shares_one_among_the_candidates_of_a_query(scores):
    found = probabilities(scores, "softmax")
    assert np.isnan(found[7]).all() and np.isnan(found[3, 5:]).all()
    kept = [row for row in range(40) if row != 7]
    np.testing.assert_allclose(np.nansum(found[kept], axis=1), 1, atol=1e-6)
    expected = [math.exp(value) for value in scores[3, :5]]
    np.testing.assert_allclose(found[3, :5], np.array(expected) / sum(expected), rtol=1e-5)
    np.testing.assert_allclose(probabilities(scores + 4, "softmax"), found, rtol=1e-4)


@pytest.mark.parametrize(("s_pos", "s_neg"), [(0.9, 0.1), (0.6, 0.4), (0.5, 0.0), (0.99, 0.98)])
def test_labels_are_those_of_a_loop_over_queries(scores, rows, s_pos, s_neg):
    chances = probabilities(scores, "sigmoid")
    found = label(rows, chances, s_pos=s_pos, s_neg=s_neg, passages=60)
    kept = 0
    for query in range(40):
        pairs = [
            (row, chance)
            for row, chance in zip(rows[query], chances[query], strict=True)
            if row >= 0
        ]
        positives = [row for row, chance in pairs if chance > s_pos]
        negatives = [row for row, chance in pairs if chance < s_neg]
        if positives:
            assert found.query_rows[kept] == query
            assert (
                found.positives[found.offsets[kept] : found.offsets[kept + 1]].tolist() == positives
            )
            listed = found.negatives[kept].tolist()
            assert listed == negatives + [-1] * (len(listed) - len(negatives))
            kept += 1
    assert len(found) == kept and 0 < kept < 40 and found.passages == 60


def test_a_query_without_negatives_is_kept_and_one_without_positives_is_not():
    rows = np.array([[4, 2, 7], [1, 0, 5], [3, 6, -1]])
    chances = np.array([[0.95, 0.5, 0.92], [0.3, 0.2, 0.05], [0.97, 0.01, np.nan]])
    found = label(rows, chances, passages=9)
    assert found.query_rows.tolist() == [0, 2]
    assert found.negatives.tolist() == [[-1], [6]]
    assert found.offsets.tolist() == [0, 2, 3]


def test_a_threshold_itself_is_on_neither_side():
    with pytest.raises(InputError, match=r"above 0.5 \(the highest is 0.500\)"):
        label(np.array([[0, 1]]), np.array([[0.5, 0.1]]), s_pos=0.5, s_neg=0.1, passages=9)
    found = label(np.array([[0, 1]]), np.array([[0.6, 0.1]]), s_pos=0.5, s_neg=0.1, passages=9)
    assert found.negatives.shape == (1, 0)


def test_a_query_to_which_all_passages_are_positive_is_left_out():
    rows, chances = np.array([[0, 1], [1, 0]]), np.array([[0.95, 0.95], [0.95, 0.5]])
    assert label(rows, chances, passages=2).query_rows.tolist() == [1]


def test_counts_are_those_of_the_labels(scores, rows):
    chances = probabilities(scores, "sigmoid")
    known = [own[:2] if query % 3 else own[:0] for query, own in enumerate(rows)]
    for s_pos, s_neg in ((0.9, 0.1), (0.7, 0.3)):
        counts, found = count_labels(rows, chances, s_pos, s_neg, known), label(
            rows, chances, s_pos=s_pos, s_neg=s_neg, passages=60
        )  # fmt: skip
        assert counts["queries"] == 40 and counts["queries_kept"] == len(found)
        assert counts["positives"] == len(found.positives)
        assert counts["negatives"] == (found.negatives >= 0).sum()
        assert counts["kept_without_negative"] == (found.negatives < 0).all(1).sum()
        ours = [
            [row in own.tolist() and row >= 0 for row in line]
            for line, own in zip(rows, known, strict=True)
        ]
        assert counts["known_retrieved"] == np.sum(ours)
        assert counts["known_positive"] == (np.array(ours) & (chances > s_pos)).sum()
        assert counts["known_negative"] == (np.array(ours) & (chances < s_neg)).sum()
        assert all(type(number) in (int, float) for number in counts.values())


def test_queries_of_every_split_but_train_are_held_out(tmp_path, tiny_tokenizer):
    asked = {"train": "who wrote it", "dev": "what is dense", "test": "where is york"}
    collection = SimpleNamespace(
        splits=list(asked), queries=lambda split: {"text": [f" {asked[split]} "]}
    )
    lines = [{"_id": str(row), "text": text} for row, text in enumerate([*asked.values(), "why"])]
    file = tmp_path / "queries.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tiny_tokenizer.save_pretrained(tmp_path / "tokenizer")
    folder = tmp_path / "made"
    folder.mkdir()
    unlabelled_queries.body(folder, file, tmp_path / "tokenizer", [collection])
    assert Texts.open(folder).strings["text"][:] == ["who wrote it", "why"]
    assert json.loads((folder / "counts.json").read_text())["held_out"] == 2


def test_a_copy_of_what_the_teacher_takes_is_no_negative(tmp_path, tiny_tokenizer):
    """Of three passages the last repeats the first."""
    asked, found = tmp_path / "asked", tmp_path / "found"
    for folder in (asked, found):
        folder.mkdir()
    Texts.write(asked, [[["what is masked"]]], tiny_tokenizer)
    Ranking(["q"], np.array([[0, 1, 2]]), np.array([[3.0, 2.0, 1.0]])).save(found / "ranking")
    np.save(found / "scores.npy", np.float32([[9, -9, -9]]))
    collection = SimpleNamespace(passages=range(3), same_text=np.array([0, 1, 0]))
    how = {"pool": "file", "s_pos": 0.9, "s_neg": 0.1, "probability": "sigmoid"}
    pseudo_labels.body(tmp_path, asked, found, found, collection, **how)
    made = Examples.open(tmp_path / "examples")
    assert (made.positives.tolist(), made.negatives.tolist()) == ([0], [[1, -1]])
