"""A batch of real sentences, cut by the token store, and objectives on small models."""

import datasets
import numpy as np
import pytest
import torch

from dr_lib import objectives
from dr_lib.tokens import TokenBatch, TokenStore


@pytest.fixture(scope="session")
def store(tiny_tokenizer, sentences, tmp_path_factory) -> TokenStore:
    titles = ["bottleneck", "", "negatives", "new york", "", "the decoder"]
    rows = datasets.Dataset.from_dict({"title": titles, "text": [*sentences, "vector"]})
    return TokenStore.build(rows, tiny_tokenizer, tmp_path_factory.mktemp("s") / "tokens", workers=1, progress=False)


@pytest.fixture
def batch(store) -> TokenBatch:
    return store.batch(np.arange(len(store)), max_length=40)


@pytest.fixture
def make(tiny_bert, tiny_tokenizer):
    """Make an objective on fresh small models: `make("simlm", encoder_rate=0.2)`."""

    def build(name: str, model=None, generator_model=None, dropout: float = 0.0, **values) -> objectives.Objective:
        model = model or tiny_bert(seed=0, dropout=dropout)
        generator_model = generator_model or tiny_bert(seed=1, dropout=dropout)
        return objectives.create(name, model, tiny_tokenizer, generator_model=generator_model, **values).train()

    return build


@pytest.fixture
def seeded():
    """A torch generator by seed."""
    return lambda seed=0: torch.Generator().manual_seed(seed)
