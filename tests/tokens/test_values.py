"""Numbers beside the pieces: laid out as the pieces are, and refused where they belong to another store."""

import datasets
import numpy as np
import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.tokens import TokenStore, TokenValues


@pytest.fixture(scope="module")
def ids_as_values(store, tmp_path_factory) -> TokenValues:
    """Each piece's own id as its value."""
    return TokenValues.write(store, tmp_path_factory.mktemp("v") / "values", [(store.title_ids, store.text_ids)])


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("title", ["pair", "joined", "none"])
@pytest.mark.parametrize("max_length", [4, 5, 7, 16, 33, 500])
def test_values_lie_where_their_pieces_lie(store, ids_as_values, title, side, max_length):
    rows = np.random.default_rng(0).permutation(len(store))
    for multiple in (1, 8):
        layout = {"max_length": max_length, "title": title, "side": side, "pad_to_multiple": multiple}
        batch = store.batch(rows, **layout)
        values = ids_as_values.batch(rows, **layout)
        assert values.dtype == torch.float32
        assert torch.equal(values.long(), batch.input_ids.masked_fill(batch.special, 0))
        assert torch.equal(ids_as_values.attach(batch, **layout).values, values)


def test_a_store_without_titles_has_values_too(passages, tiny_tokenizer, tmp_path):
    store = TokenStore.build(passages, tiny_tokenizer, tmp_path / "tokens", columns=("text",), progress=False)
    values = TokenValues.write(store, tmp_path / "values", [(store.title_ids, store.text_ids)])
    batch, laid_out = store.batch(np.arange(9), max_length=20), values.batch(np.arange(9), max_length=20)
    assert torch.equal(laid_out.long(), batch.input_ids.masked_fill(batch.special, 0))


def test_blocks_do_not_change_what_is_written(store, ids_as_values, tmp_path):
    def pieces(first, last):
        title, text = store.title_offsets[[first, last]], store.text_offsets[[first, last]]
        return store.title_ids[slice(*title)], store.text_ids[slice(*text)]

    blocks = [pieces(first, first + 15) for first in range(0, 60, 15)]
    again = TokenValues.write(store, tmp_path / "values", blocks)
    assert np.array_equal(again.title, ids_as_values.title) and np.array_equal(again.text, ids_as_values.text)


def test_half_precision_keeps_three_digits(store, tmp_path):
    exact = [np.linspace(-20, 20, len(ids)) for ids in (store.title_ids, store.text_ids)]
    values = TokenValues.write(store, tmp_path / "values", [tuple(exact)], dtype="float16")
    assert values.text.dtype == np.float16
    assert np.allclose(values.text, exact[1], rtol=1e-3)


def test_wrong_values_are_refused_and_leave_nothing(store, tmp_path):
    title, text = (np.zeros(len(ids)) for ids in (store.title_ids, store.text_ids))
    for blocks, dtype, message in [
        ([(title, text[1:])], "float32", "values for"),
        ([(title, np.full(len(text), np.nan))], "float32", "not a finite"),
        ([(title, text + 70_000)], "float16", "not a finite float16"),
    ]:
        with pytest.raises(InputError, match=message):
            TokenValues.write(store, tmp_path / "values", blocks, dtype=dtype)
        assert not (tmp_path / "values").exists()


def test_values_of_another_store_and_altered_ones_are_refused(store, tiny_tokenizer, tmp_path):
    texts = datasets.Dataset.from_dict({"text": ["masked words"]})
    other = TokenStore.build(texts, tiny_tokenizer, tmp_path / "tokens", columns=("text",), progress=False)
    values = TokenValues.write(other, tmp_path / "values", [(other.title_ids, other.text_ids)])
    with pytest.raises(InputError, match="made for store"):
        TokenValues.open(values.folder, store)
    assert np.array_equal(TokenValues.open(values.folder, other).text, values.text)
    path = values.folder / "text.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(InputError, match="altered"):
        TokenValues.open(values.folder, other)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"text\.npy"):
        TokenValues.open(values.folder, other)
    (values.folder / "meta.json").write_text("{}")
    with pytest.raises(InputError, match="no token values"):
        TokenValues.open(values.folder, other)
