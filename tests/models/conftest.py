"""Batches and a small ELECTRA for the tests of models."""

import pytest
import torch

from dr_lib.tokens import TokenBatch


def make_batch(tokenizer, texts: list[str], length: int = 32) -> TokenBatch:
    """A padded batch straight from the tokenizer, independent of the token store."""
    coded = tokenizer(
        texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt"
    )
    ids, real = coded["input_ids"], coded["attention_mask"]
    special = torch.isin(
        ids, torch.tensor([tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id])
    )
    pieces = [tokenizer.convert_ids_to_tokens(row) for row in ids.tolist()]
    start = (
        torch.tensor([[not piece.startswith("##") for piece in row] for row in pieces]) & ~special
    )
    types = real * (torch.arange(length) >= 5)
    return TokenBatch(ids, real, types, special, start, torch.arange(len(texts)))


@pytest.fixture
def batch(tiny_tokenizer, sentences) -> TokenBatch:
    return make_batch(tiny_tokenizer, [*sentences, "vector", "the generator and the decoder"])
