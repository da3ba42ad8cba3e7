"""Small texts of many lengths, their store, and Hugging Face's own batches."""

import copy

import datasets
import numpy as np
import pytest

from dr_lib.tokens import TokenStore


@pytest.fixture(scope="session")
def passages(sentences) -> datasets.Dataset:
    """Sixty passages: titles and bodies of 0 to 60 words, some of them empty, with odd characters
    and long words.
    """
    random = np.random.default_rng(7)
    odd = ["Zürich's", "naïve", "unseenable", "東京", "x" * 120, "[MASK]", "[SEP]", "it's\n"]
    words = [*" ".join(sentences).split(), *odd]
    titles, bodies = [], []
    for index in range(60):
        titles.append(
            " ".join(random.choice(words, 0 if index % 7 == 0 else random.integers(1, 40)))
        )
        bodies.append(" ".join(random.choice(words, random.integers(1, 60))))
    bodies[5] = ""
    bodies[7] = " "
    return datasets.Dataset.from_dict({"title": titles, "text": bodies})


@pytest.fixture(scope="session")
def store(passages, tiny_tokenizer, tmp_path_factory) -> TokenStore:
    return TokenStore.build(passages, tiny_tokenizer, tmp_path_factory.mktemp("store") / "tokens")


@pytest.fixture
def huggingface(tiny_tokenizer, passages):
    """Encode one row with the tokenizer itself: `huggingface(row, title, max_length, side)`."""
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.split_special_tokens = True  # a literal [MASK] in a passage is text

    def encode(row: int, title: str, max_length: int, side: str = "right"):
        tokenizer.truncation_side = side
        head, body = passages[row]["title"], passages[row]["text"].strip()
        separate = (head, body) if head and body else (head or body,)
        texts = {"pair": separate, "joined": (f"{head} {body}",), "none": (body,)}[title]
        return tokenizer(
            *texts, truncation="longest_first", max_length=max_length, return_token_type_ids=True
        )

    return encode
