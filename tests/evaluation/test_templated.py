"""Questions that were filled into forms are told from free ones."""

import numpy as np

from dr_lib.evaluation import templated

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


def random_questions(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(count)]


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
