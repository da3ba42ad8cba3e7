"""The counts of `book/_ext/prose.py` against pages that were counted by hand."""

import prose

PAGE = """# A heading is not counted, nor is 1

One passage has no answer. {doc}`A page <../ideas/masking>` says why, in 2 ways:

- MRR@10 rises by {measured}`simlm/table07; SimLM; MRR@10`;
- it never falls ({difference}`simlm/table07; SimLM minus MLM; MRR@10`).

| a table | of 3 |
|---|---|
| nothing | 4 |

```{admonition} A note
:class: note
It is not long.
```

```python
nothing = 5  # code does not count
```

$$
6 \\ne 7
$$
"""


def test_a_page_is_counted_as_it_is_read():
    counted = prose.count(PAGE)
    assert counted == prose.Prose(
        words=12 + 4 + 7 + 4,
        paragraphs=4,
        sentences=5,
        long=0,
        negations=3,  # "no answer", "never falls", "not long"
        numbers=1 + 1 + 3,  # "2", a mean, and a difference with its interval
        links=1,
    )


def test_a_sentence_of_36_words_is_long_and_one_of_35_is_not():
    for words, long in ((35, 0), (36, 1)):
        assert prose.count(" ".join(["word"] * words) + ".").long == long


def test_the_sum_of_pages_is_that_of_their_counts():
    assert prose.count(PAGE) + prose.count("No.") == prose.Prose(
        **{
            name: value + (name in ("words", "paragraphs", "sentences", "negations"))
            for name, value in vars(prose.count(PAGE)).items()
        }
    )
