"""Query and passage in one sequence, against Hugging Face's own tokenizer."""

import copy

import datasets
import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.tokens import QueryPassagePairs, TokenStore, train_wordpiece


@pytest.fixture(scope="module")
def queries(sentences, tiny_tokenizer, tmp_path_factory) -> tuple[list[str], TokenStore]:
    words = " ".join(sentences).split()
    texts = [" ".join(words[5 * row : 5 * row + length]) for row, length in enumerate([1, 3, 8, 20, 4, 0])]
    rows = datasets.Dataset.from_dict({"text": texts})
    folder = tmp_path_factory.mktemp("queries") / "store"
    return texts, TokenStore.build(rows, tiny_tokenizer, folder, columns=("text",), progress=False)


@pytest.mark.parametrize("max_length", [8, 17, 40])
@pytest.mark.parametrize("title", [True, False])
def test_pairs_are_those_of_the_tokenizer_itself(queries, store, passages, tiny_tokenizer, max_length, title):
    texts, query_store = queries
    asked = np.repeat(np.arange(len(texts) - 1), len(store))
    rows = np.tile(np.arange(len(store)), len(texts) - 1)
    crossing = QueryPassagePairs(query_store, store, tiny_tokenizer, max_length=max_length, title=title)
    batch = crossing.batch(asked, rows)
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.split_special_tokens = True
    compared = 0
    for index, (query, row) in enumerate(zip(asked, rows, strict=True)):
        name, body = passages[int(row)]["title"], passages[int(row)]["text"]
        text = f"{name}: {body}" if title and name else body
        if not text.strip():
            continue
        wanted = tokenizer(texts[query], text, truncation="longest_first", max_length=max_length,
                           return_token_type_ids=True)  # fmt: skip
        real = batch.attention_mask[index] == 1
        assert batch.input_ids[index][real].tolist() == wanted["input_ids"]
        assert batch.token_type_ids[index][real].tolist() == wanted["token_type_ids"]
        compared += 1
    assert compared > 250
    assert crossing.lengths(asked, rows).tolist() == batch.attention_mask.sum(1).tolist()
    assert batch.rows.tolist() == rows.tolist()


def test_special_positions_are_those_of_no_text(queries, store, tiny_tokenizer):
    batch = QueryPassagePairs(queries[1], store, tiny_tokenizer, max_length=30).batch(
        np.array([1, 2]), np.array([9, 3])
    )
    assert batch.special.sum() == (batch.attention_mask == 0).sum() + 2 * 3
    assert not (batch.word_start & batch.special).any()


def test_a_query_or_passage_without_text_leaves_one_segment(queries, store, tiny_tokenizer):
    crossing = QueryPassagePairs(queries[1], store, tiny_tokenizer, max_length=30, title=False)
    batch = crossing.batch(np.array([5, 1]), np.array([3, 5]))  # an empty query, an empty passage
    assert not batch.token_type_ids.any()
    assert ((batch.input_ids == 3).sum(1) == 1).all()


def test_what_does_not_fit_is_refused(queries, store, tiny_tokenizer):
    with pytest.raises(InputError, match="built with tokenizer"):
        QueryPassagePairs(queries[1], store, train_wordpiece(["another one"], 60))
    crossing = QueryPassagePairs(queries[1], store, tiny_tokenizer)
    with pytest.raises(InputError, match="2 queries for 1 passages"):
        crossing.batch(np.array([0, 1]), np.array([0]))
    with pytest.raises(InputError, match="row 60 of 60"):
        crossing.batch(np.array([0]), np.array([60]))
