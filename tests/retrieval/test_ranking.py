"""Rankings and run files: order, what is written, refused input."""

from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_lib.collections import judged_rows, rows_of
from dr_lib.errors import InputError
from dr_lib.retrieval import Ranking, one_word, write_run
from dr_lib.retrieval.ranking import also_in

IDS = [f"p{i}" for i in range(20)]


def ranking(queries: int = 3, depth: int = 5, seed: int = 0) -> Ranking:
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.permutation(20)[:depth] for _ in range(queries)])
    scores = -np.sort(-rng.standard_normal((queries, depth)).astype(np.float32) * 1e-3, axis=1)
    return Ranking([f"q{i}" for i in range(queries)], rows, scores)


def test_saved_ranking_opens_unchanged(tmp_path):
    made = ranking()
    made.save(tmp_path / "run")
    opened = Ranking.open(tmp_path / "run")
    assert opened.query_ids == made.query_ids
    assert (opened.rows == made.rows).all() and (opened.scores == made.scores).all()


ODD_IDS = [
    "NA",
    "nan",
    "null",
    "1e5",
    "#",
    '"',
    "'",
    "a,b",
    "\\",
    "\u00e4\u00df",
    "\u4e2d",
    "0",
    "00",
    "-1",
    "inf",
    "True",
    "q;r",
]


def test_run_files_hold_every_rank_and_score_whatever_ids_scores_and_ties(tmp_path):
    path = tmp_path / "run.txt"
    for seed in range(150):
        rng = np.random.default_rng(seed)
        ids = list(rng.permutation(ODD_IDS + [f"p{i}" for i in range(rng.integers(0, 30))]))
        queries, depth = int(rng.integers(1, 12)), int(rng.integers(1, len(ids) + 1))
        rows, scores = np.full((queries, depth), -1), np.full((queries, depth), -np.inf, np.float32)
        for line, values in zip(rows, scores, strict=True):
            count = int(rng.integers(0, depth + 1))
            size = 10.0 ** rng.integers(-42, 38)
            fresh = (
                rng.standard_normal(count) * size
                if rng.random() < 0.5
                else rng.integers(-2, 3, count)
            ) + 0.0
            chosen = rng.permutation(len(ids))[:count]
            order = np.lexsort((chosen, -fresh.astype(np.float32)))
            line[:count], values[:count] = chosen[order], fresh.astype(np.float32)[order]
        made = Ranking(list(rng.permutation(ODD_IDS)[:queries]), rows, scores, len(ids))
        if (rows < 0).all():
            continue
        write_run(made, path, ids, "tag")
        lines = [line.split(" ") for line in path.read_text().splitlines()]
        by_hand = [
            (query, ids[row])
            for query, line in zip(made.query_ids, rows, strict=True)
            for row in line
            if row >= 0
        ]
        assert [(line[0], line[2]) for line in lines] == by_hand
        falling = []  # equal scores are each lowered to the next float32
        for row, values in zip(rows, scores, strict=True):
            last = np.float32(np.inf)
            for score in values[row >= 0]:
                last = score if score < last else np.nextafter(last, np.float32(-np.inf))
                falling.append(last)
        assert np.array([line[4] for line in lines]).astype(np.float32).tolist() == falling


def test_padding_is_not_written(tmp_path):
    made = Ranking(
        ["q", "r"], np.array([[1, -1], [-1, -1]]), np.array([[0.5, -np.inf], [-np.inf, -np.inf]])
    )
    write_run(made, tmp_path / "run.txt", IDS, "tag")
    assert (tmp_path / "run.txt").read_text() == "q Q0 p1 1 0.5 tag\n"


def test_an_id_with_blanks_is_written_as_one_word(tmp_path):
    made = Ranking(["q 1", "q%201"], np.array([[0, 1], [1, 2]]), np.array([[2.0, 1.0]] * 2))
    write_run(made, tmp_path / "run.txt", ["a\u3000\tb", 'the "one"', "x%25"], "tag")
    lines = [line.split() for line in (tmp_path / "run.txt").read_text().splitlines()]
    assert [(line[0], line[2]) for line in lines] == [
        ("q%201", "a%E3%80%80%09b"),
        ("q%201", 'the%20"one"'),
        ("q%25201", 'the%20"one"'),
        ("q%25201", "x%2525"),
    ]


@given(st.lists(st.text(st.sampled_from("a%20 5\t\u2003é"), min_size=1), unique=True))
def test_two_ids_never_become_one_word(names):
    words = [one_word(name) for name in names]
    assert len({*words}) == len(names) and all(word.split() == [word] for word in words)
    for name, word in zip(names, words, strict=True):
        assert word == name or unquote(word) == name


def test_a_tag_with_a_blank_is_refused(tmp_path):
    with pytest.raises(InputError, match="the tag 'a b' is not one word"):
        write_run(
            Ranking(["q"], np.array([[0]]), np.array([[1.0]])), tmp_path / "run.txt", IDS, "a b"
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "scores"),
    [
        ([[1, 2]], [[1.0, 2.0]]),
        ([[2, 1]], [[1.0, 1.0]]),
        ([[-1, 1]], [[-np.inf, 1.0]]),
        ([[1, 2]], [[1.0, np.nan]]),
        ([[1, 2]], [[np.inf, 1.0]]),
        ([[1, -1]], [[1.0, np.nan]]),
        ([[1, -1]], [[1.0, 0.5]]),
        ([[1, 2]], [[1.0, -np.inf]]),
    ],
)
def test_rows_out_of_order_and_scores_that_are_no_numbers_are_refused(rows, scores):
    good = [3, 4], [2.0, 1.0]
    with pytest.raises(
        InputError, match=r"ranking of query 'second': scores are not finite, or not in the order"
    ):
        Ranking(["first", "second"], np.array([good[0], *rows]), np.array([good[1], *scores]))


def test_the_order_is_checked_of_more_queries_than_are_read_at_a_time():
    rows, scores = np.tile([3, 4], (70_000, 1)), np.tile([2.0, 1.0], (70_000, 1))
    scores[69_999] = 1.0, 2.0
    with pytest.raises(InputError, match="ranking of query '69999'"):
        Ranking([str(query) for query in range(70_000)], rows, scores)


@pytest.mark.parametrize("row", [-2, 20, 2**31, 2**32 - 1])
def test_rows_outside_the_collection_are_refused(row, tmp_path):
    with pytest.raises(InputError, match="from 0 to 19"):
        Ranking(["q", "r"], np.array([[1, 2], [row, 3]]), np.array([[2.0, 1.0]] * 2), passages=20)
    if not 0 <= row < 2**31:
        with pytest.raises(InputError, match="rows from"):
            Ranking(["q"], np.array([[row]]), np.array([[1.0]]))


def test_saved_rows_outside_the_collection_are_refused(tmp_path):
    Ranking(["q"], np.array([[19]]), np.array([[1.0]]), passages=20).save(tmp_path / "run")
    assert Ranking.open(tmp_path / "run").passages == 20
    np.save(tmp_path / "run" / "rows.npy", np.array([[20]], np.int32))
    with pytest.raises(InputError, match="from 0 to 19"):
        Ranking.open(tmp_path / "run")


def test_truncated_file_of_a_ranking_is_refused(tmp_path):
    ranking().save(tmp_path / "run")
    path = tmp_path / "run" / "scores.npy"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InputError, match=r"scores\.npy"):
        Ranking.open(tmp_path / "run")


@pytest.mark.parametrize("rows", [[[0, 1, 2], [5, 7, 5]], [[0, 1, 2], [5, 5, -1]]])
def test_a_passage_that_a_query_has_twice_is_refused(rows):
    """Measures count it once, which moves up the passages below it."""
    rows = np.array(rows)
    scores = np.where(rows < 0, -np.inf, [3.0, 2.0, 1.0])
    with pytest.raises(InputError, match="ranking of query 'b': row 5 stands there twice"):
        Ranking(["a", "b"], rows, scores)


def test_query_named_twice_is_refused():
    with pytest.raises(InputError, match="query id 'q' occurs twice"):
        Ranking(["p", "q", "q"], np.zeros((3, 1)), np.zeros((3, 1)))


def test_rows_are_found_in_lists_and_dataset_columns():
    import datasets

    column = datasets.Dataset.from_dict({"id": IDS})
    for ids in (IDS, column["id"], column.select([0, 3, 5])["id"]):
        listed = list(ids)
        expected = [listed.index("p5"), 0, -1, listed.index("p5")]
        assert rows_of(["p5", "p0", "none", "p5"], ids).tolist() == expected


def test_only_judgements_at_or_above_the_minimum_count():
    qrels = {"a": {"p3": 1, "p1": 2, "gone": 2}, "b": {"p4": 0}}
    assert [rows.tolist() for rows in judged_rows(qrels, ["b", "a", "c"], IDS)] == [[], [3, 1], []]
    assert [rows.tolist() for rows in judged_rows(qrels, ["a"], IDS, minimum=2)] == [[1]]
    assert judged_rows({}, [], IDS) == []


def test_lists_compared_by_numbers_are_those_compared_one_by_one():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        queries, depth, passages = rng.integers(1, 8), rng.integers(1, 6), rng.integers(1, 12)
        lists = rng.integers(-1, passages, (queries, depth))
        others = [rng.integers(-1, passages + 5, rng.integers(0, 5)) for _ in range(queries)]
        slow = [
            [row >= 0 and row in own for row in listed]
            for listed, own in zip(lists.tolist(), others, strict=True)
        ]
        assert also_in(lists, others).tolist() == slow


def test_lists_are_compared_query_by_query():
    lists = np.array([[4, 7, -1], [7, 4, 1]])
    assert also_in(lists, np.array([[7, 9], [-1, 3]])).tolist() == [
        [False, True, False],
        [False, False, False],
    ]
    assert also_in(lists, [np.array([]), np.array([1, 4])]).tolist() == [
        [False, False, False],
        [False, True, True],
    ]
    assert also_in(lists[:0], []).shape == (0, 3)


def test_a_run_file_needs_the_id_of_every_row(tmp_path):
    ranking = Ranking(["q"], np.array([[2, 0]]), np.array([[2.0, 1.0]]))
    with pytest.raises(InputError, match="row 2 of 2 passages"):
        write_run(ranking, tmp_path / "run.txt", ["a", "b"], "tag")
