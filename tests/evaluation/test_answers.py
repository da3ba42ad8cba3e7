"""Answer accuracy against a token-by-token search."""

import unicodedata

import datasets
import numpy as np
import pytest
import regex

from dr_lib.errors import InputError
from dr_lib.evaluation import answer_accuracy
from dr_lib.retrieval import Ranking

TEXTS = [
    "In the U.S., winters (of 1999) are cold.",
    "The Café de Flore is in Paris.",
    "Parisian life; U . S . winters",
    "Naïve Bayes, O'Neil and the number 19,990.",
    "",
]


def tokens(text: str) -> list[str]:
    found = regex.finditer(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", unicodedata.normalize("NFD", text))
    return [match.group().lower() for match in found]


def holds(text: str, answer: str) -> bool:
    body, wanted = tokens(text), tokens(answer)
    return any(body[i : i + len(wanted)] == wanted for i in range(len(body) - len(wanted) + 1)) and bool(wanted)


def ranking(rows) -> Ranking:
    rows = np.array(rows)
    scores = np.where(rows >= 0, np.arange(rows.shape[1], 0, -1), -np.inf)
    return Ranking([f"q{i}" for i in range(len(rows))], rows, scores)


@pytest.fixture(scope="module")
def passages() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"title": ["Paris"] * 5, "text": TEXTS})


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
    run = ranking([[row] for row in range(5)])
    found = answer_accuracy(run, passages, [[answer]] * 5, ks=(1,))
    assert found.values["accuracy@1"].tolist() == [float(holds(text, answer)) for text in TEXTS]


def test_title_does_not_count(passages):
    assert answer_accuracy(ranking([[0]]), passages, [["Paris"]], ks=(1,)).mean("accuracy@1") == 0


def test_cuts_see_only_their_part_of_the_ranking(passages):
    run = ranking([[0, 3, 1, 2], [1, 0, -1, -1]])
    found = answer_accuracy(run, passages, [["Paris"], ["1999", "London"]], ks=(1, 2, 3, 100))
    assert [found.values[f"accuracy@{k}"].tolist() for k in (1, 2, 3, 100)] == [[0, 0], [0, 1], [1, 1], [1, 1]]
    assert found.query_ids == ["q0", "q1"]


def test_answer_without_a_token_is_in_no_passage(passages):
    assert answer_accuracy(ranking([[0], [1]]), passages, [[" ", ""], ["Paris"]], ks=(1,)).values[
        "accuracy@1"
    ].tolist() == [0, 1]


def test_query_without_answers_scores_zero(passages):
    assert answer_accuracy(ranking([[0], [1]]), passages, [[], ["Paris"]], ks=(1,)).mean("accuracy@1") == 0.5


def test_bad_input_is_refused(passages):
    for answers, ks in (([["a"], ["b"]], (1,)), ([[]], (1,)), ([["a"]], (0,))):
        with pytest.raises(InputError):
            answer_accuracy(ranking([[0]]), passages, answers, ks=ks)
