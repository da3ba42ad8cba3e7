"""Edit distances to the nearest question against the textbook recursion."""

from functools import cache

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.evaluation import nearest_questions, templated
from dr_lib.evaluation.question_overlap import edit_distances

WORDS = [
    "who",
    "what",
    "when",
    "wrote",
    "sang",
    "the",
    "a",
    "book",
    "song",
    "in",
    "of",
    "city",
    "river",
]


def levenshtein(a: tuple, b: tuple) -> int:
    @cache
    def to(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(to(i - 1, j) + 1, to(i, j - 1) + 1, to(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return to(len(a), len(b))


def random_questions(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(count)]


def test_distances_equal_the_recursion():
    rng = np.random.default_rng(0)
    texts, lengths = rng.integers(0, 5, (60, 9)), rng.integers(0, 10, 60)
    for size in (0, 1, 4, 12):
        words = rng.integers(0, 5, size)
        expected = [
            levenshtein(tuple(words), tuple(text[:n]))
            for text, n in zip(texts, lengths, strict=True)
        ]
        assert edit_distances(words, texts, lengths).tolist() == expected


def test_templates_are_told_from_free_wordings():
    names = [f"name{number}" for number in range(400)]
    forms = ["What are the symptoms of {}?", "How to treat {} ?", "Is {} inherited"]
    training = [forms[n % 3].format(name) for n, name in enumerate(names)]
    assert (
        templated(
            ["What are the symptoms of gout or a broken arm?", "is Gout inherited?"], training
        )
        == 1.0
    )
    assert (
        templated(["gout", "Gout: what helps", "is it true that gout is inherited", ""], training)
        == 0.0
    )
    assert templated([], training) == templated(["Is it?"], []) == 0.0
    for times, share in ((4, 0.0), (5, 1.0)):  # so many ask with these frequent words
        assert (
            templated(
                ["What are bruises?"], training + [f"What are {name}?" for name in names[:times]]
            )
            == share
        )
    often = [form.format(name) for form in forms for name in names] + [
        f"so so so {name}" for name in names[:6]
    ]
    # 18 times, but in 6 of 1,206 questions: no frequent word
    assert templated(["so so so gout"], often) == 0.0
    free = [one for one in random_questions(600, 3) if len(one.split()) > 4]
    assert templated(free[:100], free[100:]) < 0.05


def test_nearest_of_all_equals_brute_force():
    questions, pool = random_questions(40, 1), random_questions(300, 2)
    found = nearest_questions(questions, pool)
    for question, distance, row in zip(questions, found.distances, found.rows, strict=True):
        every = [levenshtein(tuple(question.split()), tuple(other.split())) for other in pool]
        assert distance == min(every) == every[row]


def test_verbatim_ignores_case_punctuation_and_spaces():
    pool = ["who wrote the book", "What's the song", "", "café in the city"]
    asked = [
        "Who wrote  the book?",
        "what s the song",
        "who wrote a book",
        "CAFE\u0301 in the city",
    ]
    found = nearest_questions(asked, pool)
    assert found.verbatim.tolist() == [True, True, False, True]
    assert found.distances.tolist() == [0, 0, 1, 0]


def test_the_nearest_is_kept_though_others_looked_promising():
    """The bounds are 0 and 1, the distances 2 and 4."""
    assert nearest_questions(
        ["who wrote the book"], ["book who wrote the", "the book who sang"]
    ).distances.tolist() == [2]


def test_repeated_words_count_as_often_as_they_stand():
    assert nearest_questions(["the the the"], ["the", "the the book song"]).distances.tolist() == [
        2
    ]


def test_unknown_words_and_empty_questions_have_a_distance():
    found = nearest_questions(["zebra quagga", ""], ["who", "when in the city"])
    assert found.distances.tolist() == [2, 1] and found.rows[1] == 0
    assert nearest_questions(["who", ""], ["", "?"]).distances.tolist() == [1, 0]


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="no question"):
        nearest_questions(["who"], [])
