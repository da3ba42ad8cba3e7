"""Passages of none, one and several sentences, as tokens."""

import datasets
import pytest

from dr_lib.tokens import TokenStore

PASSAGES = [
    ("bottleneck", "A dense retriever maps queries. It compares vectors by product. Hard negatives look relevant."),
    ("", "One sentence alone"),
    ("the decoder", ""),
    ("", "a"),
    ("new york", "New York... is in New York. The generator"),
    ("", "The encoder is asked to predict them. " * 9),
    ("negatives", ". The masked input is. In. York. The vector carries what the decoder cannot see"),
]


@pytest.fixture(scope="session")
def told(tiny_tokenizer, tmp_path_factory) -> TokenStore:
    rows = datasets.Dataset.from_dict(dict(zip(("title", "text"), zip(*PASSAGES, strict=True), strict=True)))
    return TokenStore.build(rows, tiny_tokenizer, tmp_path_factory.mktemp("t") / "tokens", progress=False)
