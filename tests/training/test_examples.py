"""Examples of fine-tuning: drawn, joined by query, concatenated, against sets of single queries."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.training import Examples, training_examples, training_set
from dr_lib.training.examples import (
    distinct_rows,
    draw_negatives,
    group_examples,
    merge_examples,
    text_hash,
)


def test_ragged_positives_are_found_again():
    examples = Examples.of([5, 1, 7], positives=[[2], [0, 3, 4], [9, 8]], passages=10)
    rows, first = examples.positives_of(np.array([2, 0]))
    assert (rows.tolist(), first.tolist()) == ([9, 8, 2], [0, 2])
    assert examples.counts(np.array([1, 2])).tolist() == [3, 2]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"query_rows": [], "positives": [], "negatives": None}, "no training query"),
        ({"positives": [[0], []]}, "one without a positive"),
        ({"positives": [[0], list(range(10))], "negatives": None}, "every passage is positive"),
    ],
)
def test_examples_that_cannot_be_trained_on_are_refused(arguments, told):
    given = {
        "query_rows": [4, 9],
        "positives": [[0], [2, 3]],
        "negatives": [[1, 5], [6, -1]],
        **arguments,
    }
    with pytest.raises(InputError, match=told):
        Examples.of(**given, passages=10)


def test_a_query_that_is_the_only_passage_left_is_refused():
    """No negative could be drawn, and the draw would never end."""
    positive = {"query_rows": np.array([0]), "positives": np.array([1]), "offsets": np.arange(2)}
    none = {"negatives": np.zeros((1, 0), np.int32), "itself": np.array([0])}
    with pytest.raises(InputError, match="or the query itself"):
        Examples(**positive, **none, passages=2)
    examples = Examples(**positive, **none, passages=3)
    for count in (1, 2):
        drawn = draw_negatives(examples, np.array([0]), count, seed=0, epoch=0)
        assert drawn.tolist() == [[2] * count]


def test_training_queries_without_a_positive_are_said_to_be_none(tmp_path):
    collection = SimpleNamespace(positives=lambda split: [np.array([], int)] * 2, passages=range(9))
    np.save(tmp_path / "negatives.npy", np.zeros((2, 3), np.int32))
    with pytest.raises(InputError, match="no training query"):
        training_examples(collection, tmp_path)


@pytest.mark.parametrize("negatives", [None, [[1, -1], [6, 7]]])
def test_saved_examples_open_as_they_were(tmp_path, negatives):
    examples = Examples.of([4, 9], positives=[[0], [2, 3]], negatives=negatives, passages=10)
    examples.save(tmp_path / "examples")
    again = Examples.open(tmp_path / "examples")
    assert again.passages == 10
    for name in ("query_rows", "positives", "offsets", "negatives"):
        kept, read = getattr(examples, name), getattr(again, name)
        assert (kept.dtype, kept.shape, kept.tolist()) == (read.dtype, read.shape, read.tolist())


def test_passages_that_hold_an_answer_stand_behind_the_judged_positives(tmp_path):
    judged = {"train": [np.array([5, 2]), np.array([], int), np.array([0]), np.array([], int)]}
    collection = SimpleNamespace(
        same_text=None, own_texts=lambda split: None, positives=judged.get, passages=range(9)
    )
    np.save(tmp_path / "negatives.npy", np.array([[3, 4], [1, 8], [6, 1], [2, 3]], np.int32))
    np.save(tmp_path / "positives.npy", np.array([[0, 7], [0, 1], [1, 6]], np.int32))
    found = training_examples(collection, tmp_path)
    # the second has no judged passage; the last one has neither
    assert found.query_rows.tolist() == [0, 1, 2]
    assert (found.positives.tolist(), found.offsets.tolist()) == ([2, 5, 7, 1, 6, 0], [0, 4, 5, 6])
    assert found.first_positives().tolist() == [5, 6, 0]
    assert found.negatives.tolist() == [[3, 4], [1, 8], [6, 1]]
    (tmp_path / "positives.npy").unlink()
    assert training_examples(collection, tmp_path).query_rows.tolist() == [0, 2]


def test_the_stage_draws_its_share_by_the_seed_it_is_given(tmp_path):
    relevant = [np.array([row]) for row in range(40)]
    collection = SimpleNamespace(
        same_text=None,
        positives=lambda split: relevant,
        passages=range(40),
        own_texts=lambda split: None,
    )
    drawn = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        folder = tmp_path / name
        folder.mkdir()
        training_set.body(folder, collection, share=0.5, share_seed=seed)
        drawn[name] = Examples.open(folder / "examples").query_rows.tolist()
    assert drawn["a"] == drawn["b"] != drawn["c"]


def drawn(rng: np.random.Generator, rows: list[int], depth: int) -> Examples:
    """Random examples: one to three positives per query, and other passages as negatives, some
    missing.
    """
    orders = [rng.permutation(12) for _ in rows]
    positives = [order[: 1 + place % 3] for place, order in enumerate(orders)]
    negatives = np.stack([order[4 : 4 + depth] for order in orders])
    negatives[rng.random(negatives.shape) < 0.2] = -1
    return Examples.of(rows, positives, negatives, passages=12)


def known(examples: Examples) -> tuple[dict[int, set], dict[int, list]]:
    """Row of a query -> its positives and negatives."""
    ends = zip(examples.offsets[:-1], examples.offsets[1:], strict=True)
    positives = [set(examples.positives[start:stop].tolist()) for start, stop in ends]
    negatives = [[row for row in rows if row >= 0] for rows in examples.negatives.tolist()]
    rows = examples.query_rows.tolist()
    return dict(zip(rows, positives, strict=True)), dict(zip(rows, negatives, strict=True))


@pytest.mark.parametrize("depths", [(4, 3), (0, 5), (5, 0)])
def test_positives_are_united_and_are_nobodys_negatives(depths):
    rng = np.random.default_rng(sum(depths))
    first, second = drawn(rng, [0, 2, 3, 8], depths[0]), drawn(rng, [1, 2, 8, 9], depths[1])
    (own, listed), (more, others), (found, kept) = (
        known(first),
        known(second),
        known(merge_examples(first, second)),
    )
    assert list(found) == [0, 1, 2, 3, 8, 9]
    for row, positives in found.items():
        assert positives == own.get(row, set()) | more.get(row, set())
        wanted = dict.fromkeys([*listed.get(row, []), *others.get(row, [])])
        assert kept[row] == [passage for passage in wanted if passage not in positives]


@pytest.mark.parametrize(("known", "united"), [((5, 7), [5, 6, 7]), (None, [-1, 6, 7])])
def test_queries_that_are_passages_are_known_of_both(known, united):
    first, second = (Examples.of(rows, [[0], [1]], passages=9) for rows in ([0, 2], [1, 2]))
    first = replace(first, itself=None if known is None else np.array(known))
    merged = merge_examples(first, replace(second, itself=np.array([6, 7])))
    assert merged.itself.tolist() == united


def test_equal_hashes_get_one_row_in_order_of_appearance():
    rows, first = distinct_rows(np.array([5, -2, 5, 9, -2, 5]))
    assert rows.tolist() == [0, 1, 0, 2, 1, 0]
    assert first.tolist() == [0, 1, 3]


def test_hashes_are_the_same_in_every_process_and_tell_parts_apart():
    assert text_hash("who?") == 1864739816212138401
    assert (
        len({text_hash("a", "b"), text_hash("ab", ""), text_hash("", "ab"), text_hash("a b")}) == 4
    )
    assert all(-(2**63) <= text_hash(str(number)) < 2**63 for number in range(50))


def test_pairs_are_grouped_as_a_dictionary_would_group_them():
    draw = np.random.default_rng(0)
    queries, passages = draw.integers(0, 30, 200), draw.integers(0, 50, 200)
    others, wrong = draw.integers(0, 35, 300), draw.integers(0, 50, 300)
    made = group_examples(queries, passages, others, wrong, passages=50, depth=4)
    positives: dict[int, set[int]] = {}
    for query, passage in zip(queries, passages, strict=True):
        positives.setdefault(int(query), set()).add(int(passage))
    negatives: dict[int, list[int]] = {}
    for query, passage in zip(others, wrong, strict=True):
        known = negatives.setdefault(int(query), [])
        if int(passage) not in known and passage not in positives.get(int(query), ()):
            known.append(int(passage))
    assert made.query_rows.tolist() == sorted(positives)
    for place, query in enumerate(made.query_rows.tolist()):
        assert made.positives[made.offsets[place] : made.offsets[place + 1]].tolist() == sorted(
            positives[query]
        )
        row = made.negatives[place]
        assert row[row >= 0].tolist() == negatives.get(query, [])[:4]
    assert made.negatives.shape == (len(positives), 4) and made.negatives.dtype == np.int32


def test_without_negatives_the_table_is_empty():
    made = group_examples(np.array([3]), np.array([1]), passages=4)
    assert made.negatives.shape == (1, 0)
    nothing = np.zeros(0, np.int64)
    assert group_examples(
        np.array([3]), np.array([1]), nothing, nothing, passages=4
    ).negatives.shape == (1, 0)


def test_a_row_outside_the_passages_is_refused():
    with pytest.raises(InputError, match="no training query"):
        group_examples(np.zeros(0, np.int64), np.zeros(0, np.int64), passages=4)
