"""Measures against plain calls of ir-measures and loops by hand, answers token by token,
R-precision, and per-query scores.
"""

import json
import math
import unicodedata

import datasets
import ir_measures
import numpy as np
import pytest
import regex

from dr_book.measured import aligned
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores, check_measures, evaluate, evaluate_split
from dr_lib.evaluation.measures import BY_JUDGEMENT, cut_of, parse
from dr_lib.retrieval import Ranking, holds_answer

IDS = [f"p{i}" for i in range(60)]
ALL = ("MRR@10", "MRR@3", "R@5", "R@20", "R@1k", "nDCG@10", "nDCG@25", "P@5", "AP@20", "Success@5")


def random_run(
    queries: int = 40, depth: int = 25, seed: int = 0
) -> tuple[Ranking, dict[str, dict[str, int]]]:
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.permutation(60)[:depth] for _ in range(queries)]).astype(np.int32)
    scores = -np.sort(-rng.standard_normal((queries, depth)), axis=1).astype(np.float32)
    rows[::7, depth // 2 :], scores[::7, depth // 2 :] = -1, -np.inf
    qrels = {
        f"q{i}": {
            IDS[p]: int(rng.integers(0, 4)) for p in rng.permutation(60)[: rng.integers(1, 12)]
        }
        for i in rng.permutation(queries)
    }
    return Ranking([f"q{i}" for i in range(queries)], rows, scores), qrels


@pytest.mark.parametrize("grade", [1, 2])
def test_values_equal_a_plain_call_on_the_whole_run(grade):
    ranking, qrels = random_run()
    run = {
        query: {IDS[row]: float(100 - rank) for rank, row in enumerate(rows.tolist()) if row >= 0}
        for query, rows in zip(ranking.query_ids, ranking.rows, strict=True)
    }
    scores = evaluate(ranking, qrels, IDS, ALL, grade=grade)
    assert scores.query_ids == list(qrels)
    for name in ALL:
        measure = parse(name, grade)[2]
        plain = {m.query_id: m.value for m in ir_measures.iter_calc([measure], qrels, run)}
        np.testing.assert_allclose(
            scores.values[name], [plain[query] for query in qrels], atol=1e-7
        )


@pytest.mark.parametrize("grade", [1, 2, 3])
def test_every_measure_but_ndcg_begins_at_the_grade(grade):
    """Random runs and judgements of grades 0 to 3, query by query, in plain Python."""
    for seed in range(30):
        ranking, qrels = random_run(seed=seed)
        names = [*BY_JUDGEMENT, "Success@5", "P@5"]
        found = evaluate(ranking, qrels, IDS, names, grade=grade)
        for place, (query, grades) in enumerate(qrels.items()):
            listed = [IDS[row] for row in ranking.rows[ranking.query_ids.index(query)] if row >= 0]
            hits = [grades.get(passage, 0) >= grade for passage in listed]
            relevant = sum(own >= grade for own in grades.values())
            gains = [
                grades.get(passage, 0) / math.log2(rank + 2)
                for rank, passage in enumerate(listed[:10])
            ]
            ideal = [
                g / math.log2(i + 2)
                for i, g in enumerate(sorted(grades.values(), reverse=True)[:10])
            ]
            expected = {
                "MRR@10": max(
                    [0.0, *(1 / (rank + 1) for rank, hit in enumerate(hits[:10]) if hit)]
                ),
                "nDCG@10": sum(gains) / sum(ideal) if sum(ideal) else 0.0,
                "Success@5": float(any(hits[:5])),
                "P@5": sum(hits[:5]) / 5,
                **{
                    f"R@{k}": sum(hits[:k]) / relevant if relevant else 0.0
                    for k in (1, 5, 20, 50, 100, 1000)
                },
            }
            for name in names:
                assert found.values[name][place] == pytest.approx(expected[name], abs=1e-6), (
                    name,
                    query,
                )


def test_values_equal_the_formulas_by_hand():
    ranking = Ranking(["q"], np.array([[4, 1, 7, 2]]), np.array([[4.0, 3.0, 2.0, 1.0]]))
    qrels = {"q": {"p1": 1, "p2": 3, "p4": 0, "p50": 2, "not there": 1}}
    scores = evaluate(ranking, qrels, IDS, ("MRR@10", "R@2", "R@4", "nDCG@10", "P@4"))
    ideal = sum(grade / math.log2(rank + 1) for rank, grade in enumerate([3, 2, 1, 1], 1))
    gained = 1 / math.log2(3) + 3 / math.log2(5)
    expected = {"MRR@10": 0.5, "R@2": 0.25, "R@4": 0.5, "nDCG@10": gained / ideal, "P@4": 0.5}
    for name, value in expected.items():
        assert scores.mean(name) == pytest.approx(value, abs=1e-6), name


def test_grades_below_zero_count_as_zero():
    """With -2, TREC's grade for spam, trec_eval's code ends the process in two of five calls."""
    for seed in range(20):
        ranking, qrels = random_run(seed=seed)
        lower = {
            query: {passage: own or -2 for passage, own in grades.items()}
            for query, grades in qrels.items()
        }
        plain, found = (evaluate(ranking, judged, IDS, ALL).values for judged in (qrels, lower))
        for name in ALL:
            np.testing.assert_array_equal(found[name], plain[name])


def test_graded_relevance_moves_recall_and_mrr_but_not_ndcg():
    ranking = Ranking(["q"], np.array([[1, 2]]), np.array([[2.0, 1.0]]))
    qrels = {"q": {"p1": 1, "p2": 2}}
    low, high = (
        evaluate(ranking, qrels, IDS, ("MRR@10", "R@1", "nDCG@10"), grade=r) for r in (1, 2)
    )
    assert (low.mean("MRR@10"), high.mean("MRR@10")) == (1.0, 0.5)
    assert (low.mean("R@1"), high.mean("R@1")) == (0.5, 0.0)
    assert low.mean("nDCG@10") == high.mean("nDCG@10")


def test_equal_scores_keep_the_rankings_order():
    qrels = {"q": {"p3": 1}}
    for rows, expected in (([3, 50], 1.0), ([2, 3], 0.5)):
        ranking = Ranking(["q"], np.array([rows]), np.zeros((1, 2)))
        assert evaluate(ranking, qrels, IDS, ("MRR@10",)).mean("MRR@10") == expected


def test_queries_that_the_run_lacks_count_zero():
    ranking = Ranking(["a"], np.array([[0]]), np.array([[1.0]]))
    scores = evaluate(ranking, {"b": {"p1": 1}, "a": {"p0": 1}}, IDS, ALL)
    assert scores.query_ids == ["b", "a"]
    for name in ALL:
        assert scores.values[name].tolist()[0] == 0.0 and scores.values[name][1] > 0


def test_queries_without_a_relevant_passage_count_zero():
    ranking = Ranking(["a", "b"], np.array([[0], [1]]), np.array([[1.0], [1.0]]))
    scores = evaluate(ranking, {"a": {"p0": 0}, "b": {"p1": 1}}, IDS, ALL)
    assert all(scores.values[name][0] == 0 and scores.values[name][1] > 0 for name in ALL)


def test_queries_without_judgements_are_left_out():
    ranking = Ranking(["a", "b"], np.array([[0], [1]]), np.array([[1.0], [1.0]]))
    assert evaluate(ranking, {"b": {"p1": 1}}, IDS, ("MRR@10",)).query_ids == ["b"]


def test_passages_judged_for_another_query_do_not_count():
    ranking = Ranking(["a", "b"], np.array([[0, 1], [2, 3]]), np.array([[2.0, 1.0], [2.0, 1.0]]))
    scores = evaluate(ranking, {"a": {"p2": 1}, "b": {"p0": 1}}, IDS, ("R@2", "Success@2"))
    assert scores.mean("R@2") == scores.mean("Success@2") == 0


@pytest.mark.parametrize("name", ["MRR", "R@0", "R@x", "Speed@10", "nDCG@10 "])
def test_unknown_measure_is_refused_with_the_known_ones(name):
    ranking, qrels = random_run(4)
    with pytest.raises(InputError, match="MRR@k, R@k, nDCG@k"):
        evaluate(ranking, qrels, IDS, (name,))


def test_ranking_of_another_collection_or_split_is_refused():
    ranking, qrels = random_run(4)
    with pytest.raises(InputError, match="of 5 passages"):
        evaluate(ranking, qrels, IDS[:5])
    with pytest.raises(InputError, match="none of the judged queries"):
        evaluate(ranking, {"other": {"p0": 1}}, IDS)


ANSWER_TEXTS = [
    "In the U.S., winters (of 1999) are cold.",
    "The Café de Flore is in Paris.",
    "Parisian life; U . S . winters",
    "Naïve Bayes, O'Neil and the number 19,990.",
    "",
]


def tokens(text: str) -> list[str]:
    found = regex.finditer(
        r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", unicodedata.normalize("NFD", text)
    )
    return [match.group().lower() for match in found]


def holds(text: str, answer: str) -> bool:
    body, wanted = tokens(text), tokens(answer)
    return any(
        body[i : i + len(wanted)] == wanted for i in range(len(body) - len(wanted) + 1)
    ) and bool(wanted)


def ranked(rows) -> Ranking:
    rows = np.array(rows)
    scores = np.where(rows >= 0, np.arange(rows.shape[1], 0, -1), -np.inf)
    return Ranking([f"q{i}" for i in range(len(rows))], rows, scores)


@pytest.fixture(scope="module")
def passages() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"title": ["Paris"] * 5, "text": ANSWER_TEXTS})


def accuracy(
    run: Ranking, passages: datasets.Dataset, answers: list[list[str]], k: int = 1
) -> list[bool]:
    return holds_answer(run.rows[:, :k], passages, answers).any(axis=1).tolist()


@pytest.mark.parametrize(
    "answer",
    [
        "Paris",
        "paris",
        "u.s.",
        "U. S",
        "cafe\u0301 de",
        "Café",
        "cafe",
        "1999",
        "199",
        "19,990",
        "O'Neil",
        "Neil",
        "cold.",
    ],
)
def test_each_match_equals_the_search_token_by_token(passages, answer):
    run = ranked([[row] for row in range(5)])
    assert accuracy(run, passages, [[answer]] * 5) == [holds(text, answer) for text in ANSWER_TEXTS]


def test_title_does_not_count(passages):
    assert accuracy(ranked([[0]]), passages, [["Paris"]]) == [False]


def test_cuts_see_only_their_part_of_the_ranking(passages):
    run = ranked([[0, 3, 1, 2], [1, 0, -1, -1]])
    found = [accuracy(run, passages, [["Paris"], ["1999", "London"]], k) for k in (1, 2, 3, 100)]
    assert found == [[0, 0], [0, 1], [1, 1], [1, 1]]


def test_answer_without_a_token_is_in_no_passage(passages):
    assert accuracy(ranked([[0], [1]]), passages, [[" ", ""], ["Paris"]]) == [0, 1]


def test_query_without_answers_scores_zero(passages):
    assert accuracy(ranked([[0], [1]]), passages, [[], ["Paris"]]) == [0, 1]


@pytest.fixture
def collection():
    texts = ["The tower stands in Paris.", "Rome is old.", "Paris, Texas", "Nothing."]
    columns = {
        "id": list("abcd"),
        "title": [""] * 4,
        "text": texts,
        "doc": [""] * 4,
        "position": [0] * 4,
    }
    asked = {
        "id": ["q", "r", "s"],
        "text": ["where", "old", "why"],
        "answers": [["paris"], ["Rome", "Rom"], []],
    }
    judged = {"query": ["s", "r", "q"], "passage": ["d", "b", "a"], "grade": [1, 1, 1]}
    tables = [datasets.Dataset.from_dict(one) for one in (columns, asked, judged)]
    return Collection("t", "0" * 64, {}, tables[0], tables[1], {"test": tables[2]})


@pytest.fixture
def three_lists():
    rows = np.array([[2, 0, 1], [3, 0, 1], [3, 1, 0]])
    return Ranking(["q", "r", "s"], rows, np.tile([3.0, 2.0, 1.0], (3, 1)))


def test_values_are_those_of_both_kinds_of_measures(collection, three_lists):
    names = ["MRR@10", "accuracy@1", "R@2", "accuracy@3"]
    found = evaluate_split(three_lists, collection, "test", names)
    assert list(found.values) == names and found.query_ids == ["s", "r", "q"]
    judged = evaluate(three_lists, collection.qrels("test"), list("abcd"), ["MRR@10", "R@2"])
    answers = [["paris"], ["Rome", "Rom"], []]
    for name in ("MRR@10", "R@2"):
        np.testing.assert_array_equal(found.per_query(name), judged.per_query(name))
    for k in (1, 3):
        assert (
            found.per_query(f"accuracy@{k}").tolist()
            == accuracy(three_lists, collection.passages, answers, k)[::-1]
        )
    assert found.per_query("accuracy@1").tolist() == [0, 0, 1]
    assert found.per_query("accuracy@3").tolist() == [0, 1, 1]


def test_a_judged_query_that_the_run_lacks_has_no_answer(collection):
    ranking = Ranking(["q"], np.array([[0, 2]]), np.array([[2.0, 1.0]]))
    found = evaluate_split(ranking, collection, "test", ["accuracy@2"])
    assert found.query_ids == ["s", "r", "q"]
    assert found.per_query("accuracy@2").tolist() == [0, 0, 1]


def test_answers_alone_can_be_measured(collection, three_lists):
    found = evaluate_split(three_lists, collection, "test", ["accuracy@2"])
    assert found.per_query("accuracy@2").tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("name", "cut"), [("accuracy@20", 20), ("R@1k", 1000), ("MRR@10", 10), ("R-precision", None)]
)
def test_a_measure_looks_as_deep_as_its_name_says(name, cut):
    assert cut_of(name) == cut


def test_answers_are_asked_for_where_a_measure_needs_them(collection, three_lists):
    bare = collection.queries("test").remove_columns("answers").add_column("answers", [[], [], []])
    judged = datasets.Dataset.from_dict({"query": ["q"], "passage": ["a"], "grade": [1]})
    without = Collection("t", "0" * 64, {}, collection.passages, bare, {"test": judged})
    check_measures(["R@20"], without, "test")
    with pytest.raises(InputError, match=r"accuracy@20 needs answers"):
        check_measures(["R@20", "accuracy@20"], without, "test")
    with pytest.raises(InputError, match=r"accuracy@20 needs answers"):
        evaluate_split(three_lists, without, "test", ["accuracy@20"])


def scores(values, ids=None, measure="R@1") -> Scores:
    return Scores(ids or [f"q{i}" for i in range(len(values))], {measure: np.array(values)})


def test_saved_scores_load_unchanged(tmp_path):
    rng = np.random.default_rng(0)
    made = Scores([f"query {i} é" for i in range(5000)], {"MRR@10": 1 / rng.integers(1, 11, 5000)})
    made.save(tmp_path / "scores.json")
    loaded = Scores.load(tmp_path / "scores.json")
    assert loaded.query_ids == made.query_ids
    assert (loaded.values["MRR@10"] == made.values["MRR@10"]).all()


@pytest.mark.parametrize("distinct", [2, 300, 70_000])
def test_scores_come_back_to_the_last_digit(distinct):
    rng = np.random.default_rng(distinct)
    queries = [f"q{number}" for number in range(max(distinct, 1000))]
    values = rng.random((2, distinct)).astype(np.float32)[
        :, rng.integers(0, distinct, len(queries))
    ]
    made = Scores(queries, {"b": values[0], "a": values[1]}).to_dict()
    found = Scores.from_dict(json.loads(json.dumps(made)))
    assert found.query_ids == queries and [*found.values] == ["b", "a"]
    assert (
        found.per_query("b").tobytes() == values[0].tobytes()
        and found.per_query("a").tobytes() == values[1].tobytes()
    )


def told(
    queries: object, measures: object = ("R@1",), values: object = (), row: object = ()
) -> str:
    """Scores as saved."""
    return json.dumps({"queries": queries, "measures": measures, "values": values, "row": row})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "null",
        "[]",
        '{"queries": [], "measures": [], "values": []}',
        told(None),
        told(1),
        told([1, 2], values=[[1.0]], row=[0, 0]),
        told([["a"]], values=[[1.0]], row=[0]),
        told(["a"], 1, [[1.0]], [0]),
        told(["a"], ["R@1", "R@5"], [[1.0]], [0]),
        told(["a"], values=[["x"]], row=[0]),
        told(["a"], values=[[1.0]], row=[1]),
        told(["a"], values=[[1.0]], row=[-1]),
        told(["a"], values=[[1.0]], row=[0.0]),
        told(["a"], values=[[1.0]], row=[0, 0]),
        told(["a"], values=[[1.0]], row=["0"]),
        told(["a"], values=[[float("nan")]], row=[0]),
        told(["a", "a"], values=[[1.0]], row=[0, 0]),
    ],
)
def test_broken_file_is_refused(tmp_path, text):
    (tmp_path / "scores.json").write_text(text)
    with pytest.raises(InputError, match=r"scores\.json"):
        Scores.load(tmp_path / "scores.json")


def test_values_that_do_not_fit_are_refused():
    for ids, values in ((["a"], [1, 2]), (["a", "a"], [1, 2]), (["a", "b"], [1, np.nan])):
        with pytest.raises(InputError):
            Scores(ids, {"R@1": np.array(values)})
    with pytest.raises(InputError, match="Measured were: R@1"):
        scores([1]).mean("MRR@10")


def test_queries_are_matched_by_id():
    first, second = scores([1, 0, 0.5], ["a", "b", "c"]), scores([0, 0, 1], ["c", "b", "a"])
    assert aligned([first, second], first, "R@1").tolist() == [[1, 0, 0.5], [1, 0, 0]]


def test_different_queries_cannot_be_compared():
    with pytest.raises(InputError, match="'q1'"):
        aligned([scores([1])], scores([1, 0]), "R@1")


def test_judged_passages_that_the_collection_lacks_all_count_as_missed():
    ranking = Ranking(["q"], np.array([[0, 1]]), np.array([[2.0, 1.0]]))
    qrels = {"q": {"a": 1, "gone": 1, "lost": 1, "away": 1}}
    values = evaluate(ranking, qrels, ["a", "b"], ["R@2", "AP@2"]).values
    assert values["R@2"].tolist() == [0.25] and values["AP@2"].tolist() == [0.25]


FORTY = [f"p{i}" for i in range(40)]


def tied_ranking(queries: int = 30, depth: int = 40, seed: int = 0) -> Ranking:
    """Integer scores, so that many are tied."""
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.permutation(40)[:depth] for _ in range(queries)])
    scores = np.round(3 * rng.standard_normal((queries, depth)))
    rows[::4, depth // 3 :], scores[::4, depth // 3 :] = -1, -np.inf
    order = np.lexsort((np.where(rows < 0, 99, rows), -scores), axis=1)
    names = [f"q{i}" for i in range(queries)]
    return Ranking(names, np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1))


def tied_qrels(seed: int = 1) -> dict[str, dict[str, int]]:
    rng = np.random.default_rng(seed)
    return {
        f"q{i}": {
            FORTY[p]: int(rng.integers(0, 3)) for p in rng.permutation(40)[: rng.integers(1, 9)]
        }
        for i in range(30)
    }


def precision_by_hand(found: list, relevant: set) -> float:
    return len(set(found[: len(relevant)]) & relevant) / len(relevant) if relevant else 0.0


@pytest.mark.parametrize("grade", [1, 2])
def test_r_precision_is_the_share_of_relevant_ones_among_the_first_r(grade):
    ranking, qrels = tied_ranking(), tied_qrels()
    values = evaluate(ranking, qrels, FORTY, ["R-precision"], grade=grade).per_query("R-precision")
    for place, (query, grades) in enumerate(qrels.items()):
        found = [FORTY[row] for row in ranking.rows[place] if row >= 0]
        expected = precision_by_hand(found, {p for p, own in grades.items() if own >= grade})
        assert values[place] == pytest.approx(expected), query


def test_relevant_passages_that_the_collection_lacks_lower_r_precision():
    ranking = Ranking(["q"], np.array([[0, 1]]), np.array([[2.0, 1.0]]))
    assert (
        evaluate(ranking, {"q": {"p0": 1, "gone": 1}}, FORTY, ["R-precision"]).mean("R-precision")
        == 0.5
    )


def test_a_ranking_too_short_for_r_precision_is_refused():
    ranking = Ranking(["q"], np.array([[0]]), np.array([[1.0]]))
    with pytest.raises(InputError, match="2 relevant passages, the ranking 1"):
        evaluate(ranking, {"q": {"p0": 1, "p1": 1}}, FORTY, ["R-precision"])
