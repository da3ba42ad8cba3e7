"""Samples are deterministic and nested, keep positives and order, and report what does not fit;
ids become rows.
"""

import datasets
import numpy as np
import pytest

from dr_lib.collections import Collection, document_numbers, rows_of
from dr_lib.collections.collection import copy_key
from dr_lib.errors import InputError


@pytest.fixture
def parent() -> Collection:
    """60 passages in 12 documents, 30 queries in three splits; query i has passage 2 i, and 2 i + 1
    with grade 0.
    """
    docs = [f"d{row // 5}" for row in range(60)]
    rows = {
        "id": [f"p{row}" for row in range(60)],
        "title": [""] * 60,
        "text": [f"text {row}" for row in range(60)],
    }
    passages = datasets.Dataset.from_dict(
        rows | {"doc": docs, "position": [row % 5 for row in range(60)]}
    )
    ids = [f"q{row}" for row in range(30)]
    queries = datasets.Dataset.from_dict({"id": ids, "text": ids, "answers": [["a"]] * 30})

    def judged(first: int, last: int) -> datasets.Dataset:
        pairs = [
            (f"q{row}", f"p{2 * row + grade}", 1 - grade)
            for row in range(first, last)
            for grade in (0, 1)
        ]
        return datasets.Dataset.from_dict(
            dict(zip(("query", "passage", "grade"), zip(*pairs, strict=True), strict=True))
        )

    splits = {"train": judged(0, 20), "test": judged(20, 25), "dev/small": judged(25, 30)}
    return Collection("toy", "f" * 64, {"licence": "none"}, passages, queries, splits)


def test_sample_has_the_sizes_asked_for(parent):
    sample = parent.sample(passages=40, train_queries=6, test_queries=2)
    assert len(sample.passages) == 40
    assert len(sample.queries("train")) == 6 and len(sample.queries("test")) == 2


def test_positives_of_drawn_queries_are_kept(parent):
    sample = parent.sample(passages=12, train_queries=8, test_queries=4)
    kept = set(sample.passages["id"][:])
    for split in ("train", "test"):
        for query, judged in sample.qrels(split).items():
            assert f"p{2 * int(query[1:])}" in kept and set(judged) <= kept


def test_passages_and_queries_keep_their_order(parent):
    sample = parent.sample(passages=30, train_queries=9, seed=3)
    for ids in (sample.passages["id"][:], sample.queries()["id"][:]):
        assert ids == sorted(ids, key=lambda id_: int(id_[1:]))


def test_filling_takes_whole_documents(parent):
    sample = parent.sample(passages=20, train_queries=1, test_queries=1)
    sizes = {doc: sample.passages["doc"][:].count(doc) for doc in set(sample.passages["doc"][:])}
    assert sum(size == 5 for size in sizes.values()) >= 3


def test_same_arguments_give_the_same_sample(parent):
    one, two = (
        parent.sample(passages=25, train_queries=5),
        parent.sample(passages=25, train_queries=5),
    )
    assert one.digest == two.digest and one.passages["id"][:] == two.passages["id"][:]
    assert one.qrels("train") == two.qrels("train")


def test_seed_and_sizes_change_the_digest(parent):
    digests = {
        parent.sample(passages=size, train_queries=5, seed=seed).digest
        for size in (25, 26)
        for seed in (0, 1)
    }
    assert len(digests) == 4 and parent.digest not in digests


def test_larger_draw_contains_the_smaller(parent):
    small, large = parent.sample(train_queries=5), parent.sample(train_queries=11)
    assert set(small.qrels("train")) < set(large.qrels("train"))


def test_drawing_from_one_split_leaves_another_alone(parent):
    one, two = (
        parent.sample(train_queries=3, test_queries=2),
        parent.sample(train_queries=9, test_queries=2),
    )
    assert one.qrels("test") == two.qrels("test")


def test_split_without_a_number_is_kept_whole(parent):
    assert parent.sample(test_queries=2).qrels("train") == parent.qrels("train")


def test_other_splits_keep_what_fits(parent):
    fits = parent.sample(passages=40, train_queries=2, test_queries=2)
    kept = set(fits.passages["id"][:])
    assert set(fits.qrels("dev/small")) == {
        f"q{row}" for row in range(25, 30) if f"p{2 * row}" in kept
    }


def test_more_than_there_is_means_all(parent):
    sample = parent.sample(passages=1000, train_queries=1000, dev_queries=7)
    assert len(sample.passages) == 60 and len(sample.queries("train")) == 20


def test_sample_of_a_sample_reads_the_right_rows(parent):
    sample = parent.sample(passages=30, train_queries=6).sample(
        passages=8, train_queries=2, test_queries=1
    )
    assert len(sample.passages) == 8
    for query, judged in sample.qrels("train").items():
        assert f"p{2 * int(query[1:])}" in judged
    assert [row["text"] for row in sample.passages] == [
        f"text {id_[1:]}" for id_ in sample.passages["id"][:]
    ]


def test_sample_remembers_where_it_comes_from(parent):
    info = parent.sample(passages=30, seed=5).info
    assert (
        info["licence"] == "none"
        and info["sample"]["of"] == parent.digest
        and info["sample"]["seed"] == 5
    )


def test_queries_whose_positives_do_not_fit_are_left_out_and_counted(parent):
    sample, again = parent.sample(passages=5), parent.sample(passages=5)
    kept = {split: {*sample.qrels(split)} for split in sample.splits}
    assert (
        kept == {split: {*again.qrels(split)} for split in again.splits}
        and kept["train"]
        and kept["test"]
    )
    # each has one relevant passage
    assert len(sample.passages) == 5 == sum(map(len, kept.values()))
    assert sample.info["sample"]["left_out"] == {
        split: len(parent.qrels(split)) - len(kept[split]) for split in kept
    }
    assert parent.sample(passages=25).info["sample"]["left_out"] == {}


@pytest.fixture
def judged(parent):
    """`judged(test=[("q1", "p2", 1)])`: the parent with other judgements."""

    def make(**splits: list[tuple[str, str, int]]) -> Collection:
        names = ("query", "passage", "grade")
        tables = {
            split: datasets.Dataset.from_list([dict(zip(names, row, strict=True)) for row in rows])
            for split, rows in splits.items()
        }
        queries = parent.queries().map(
            lambda row: row | {"text": row["text"].replace("q29", "q28")}
        )
        return Collection("own", "0", {}, parent.passages, queries, tables)

    return make


def test_a_passage_that_answers_two_queries_takes_one_place(judged):
    rows = [("q0", "p0", 1), ("q1", "p0", 1), ("q2", "p2", 1)]
    found = [{*judged(test=rows).sample(passages=1, seed=seed).qrels("test")} for seed in range(9)]
    assert all(one in ({"q0", "q1"}, {"q2"}) for one in found) and {"q0", "q1"} in found


def test_splits_of_one_size_are_drawn_apart(judged):
    rows = [(f"q{row}", f"p{row}", 1) for row in range(20)]
    drawn = judged(train=rows[:10], test=rows[10:]).sample(train_queries=5, test_queries=5)
    train, test = ({int(query[1:]) % 10 for query in drawn.qrels(s)} for s in ("train", "test"))
    assert train != test


def test_judged_passages_that_are_not_there_take_no_place_in_a_sample(judged):
    sample = judged(test=[("q0", "p0", 1), ("q0", "gone", 1)]).sample(passages=9)
    assert len(sample.passages) == 9


def test_a_split_of_another_name_keeps_no_query_without_a_relevant_passage(judged):
    rows = [("q1", "p1", 0), ("q2", "p2", 1)]
    made = judged(test=[("q0", "p0", 1)], other=rows)
    assert {*made.sample(passages=59).qrels("other")} <= {"q2"} < {*made.qrels("other")}


def test_queries_of_one_text_share_their_passages_each_with_its_own_first(judged):
    made = judged(train=[("q28", "p3", 1), ("q29", "p5", 1)])
    assert [rows.tolist() for rows in made.positives("train")] == [[3, 5], [5, 3]]


def test_a_title_counts_in_a_copy_unless_it_is_the_name_of_a_file():
    assert copy_key("Tides", "Salt.", "Tides") == ("Tides", "Salt.")  # the name of a document
    assert copy_key("Tides", "Salt.", "Tides.txt") == ("", "Salt.")


def test_a_sample_that_holds_the_positives_of_no_query_is_refused(judged):
    alone = judged(test=[("q20", f"p{row}", 1) for row in range(6)])
    with pytest.raises(InputError, match="5 passages cannot hold the positives of any query"):
        alone.sample(passages=5)


def test_a_notebook_shows_a_collection_with_everything_escaped(parent):
    rows = parent.passages.map(
        lambda row: row | {"title": "<b>", "text": "<script>" + "word " * 90}
    )
    shown = Collection(
        "<i>", "f" * 64, {"licence": "<u>"}, rows, parent.queries(), parent._judgements
    )._repr_html_()
    assert all(
        f"&lt;{tag}&gt;" in shown and f"<{tag}>" not in shown for tag in ("i", "u", "b", "script")
    )
    assert (
        "<td>60</td>" in shown
        and "queries, train</th><td>20</td>" in shown
        and "f" * 16 in shown
        and "word …</td>" in shown
    )
    assert (
        "<td></td>"
        in Collection("none", "f", {}, rows.select([]), parent.queries(), {})._repr_html_()
    )


@pytest.mark.parametrize("name", ["passages", "train_queries", "dev_queries"])
def test_empty_sample_is_refused(parent, name):
    with pytest.raises(InputError, match="a sample of 0 is empty"):
        parent.sample(**{name: 0})


def test_a_minimum_grade_leaves_out_lower_ones(parent):
    rows = (
        parent.relevant_rows("test"),
        parent.relevant_rows("test", grade=0),
        parent.relevant_rows("test", grade=2),
    )
    assert [row.tolist() for row in rows[0]] == [[2 * query] for query in range(20, 25)]
    assert [row.tolist() for row in rows[1]] == [
        [2 * query, 2 * query + 1] for query in range(20, 25)
    ]
    assert [row.tolist() for row in rows[2]] == [[]] * 5


def test_documents_are_numbered_by_name_and_a_passage_without_one_stands_alone(parent):
    numbers, positions = parent.documents()
    names = parent.passages["doc"][:]
    assert numbers.tolist() == [sorted(set(names)).index(name) for name in names]
    assert positions.tolist() == [row % 5 for row in range(60)]
    assert len(set(document_numbers(["", "a", "", "a"]).tolist())) == 3


def test_one_long_document_name_among_many_costs_its_own_length():
    # A table of fixed-width names would hold 100,000 times two million characters.
    names = [f"d{row // 5}" for row in range(100_000)]
    names[777] = "x" * 2_000_000
    numbers = document_numbers(names)
    expected = np.unique(names[:777] + names[778:], return_inverse=True)[1]
    assert numbers[777] == numbers.max() and np.array_equal(np.delete(numbers, 777), expected)


def test_ids_that_are_numbers_are_refused():
    for ids, passage_ids in (([1], ["1"]), (["1"], [1])):
        with pytest.raises(InputError, match=r"^ids: 1 is not a text"):
            rows_of(ids, passage_ids)
