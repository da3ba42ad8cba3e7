"""Scattered words as queries: in order, of their own passage, near passages as negatives, the same every time."""

import datasets
import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.materials.span_pairs import KEPT, LONGEST, NEAR, WITHIN, near_passages, scattered_words, store_spans
from dr_lib.tokens import TokenStore
from dr_lib.training import Examples

ORDER = np.random.default_rng(3).permutation(40)


@pytest.fixture(scope="module")
def passages(tiny_tokenizer, sentences, tmp_path_factory) -> TokenStore:
    """Forty passages; number 7 has no text, number 9 one word."""
    text = [" ".join(np.roll(sentences, -row)) for row in range(40)]
    text[7], text[9] = "", "a"
    rows = datasets.Dataset.from_dict({"title": [""] * 40, "text": text})
    return TokenStore.build(rows, tiny_tokenizer, tmp_path_factory.mktemp("p") / "s", progress=False)


def pieces_of(store: TokenStore, row: int) -> list[int]:
    return store.text_ids[store.text_offsets[row] : store.text_offsets[row + 1]].tolist()


def in_order(few: list[int], many: list[int]) -> bool:
    left = iter(many)
    return all(piece in left for piece in few)


def test_words_keep_their_order_and_about_half_of_a_run_is_left(passages):
    rows = np.tile(np.delete(np.arange(40), [7, 9]), 40)
    found = scattered_words(passages, rows, np.random.default_rng(0))
    assert len(found) == len(rows)
    assert all(in_order(own.tolist(), pieces_of(passages, row)) for row, own in zip(rows, found, strict=True))
    sizes = np.array(list(map(len, found)))
    assert sizes.min() >= 1 and sizes.max() < LONGEST
    assert sizes.mean() == pytest.approx(KEPT * 16.5, rel=0.1)  # runs of 10 to 23 pieces, less a word cut in two


def words_of(tokenizer, pieces) -> set[str]:
    return {*" ".join(tokenizer.convert_ids_to_tokens(pieces)).replace(" ##", "").split()}


def test_words_stay_whole(passages, tiny_tokenizer):
    rows = np.delete(np.arange(40), [7, 9])
    for row, own in zip(rows, scattered_words(passages, rows, np.random.default_rng(1)), strict=True):
        words = words_of(tiny_tokenizer, own)
        assert words <= words_of(tiny_tokenizer, pieces_of(passages, row)) or len(words) == 1


def test_a_passage_of_one_piece_asks_with_it(passages):
    rows = np.full(20, 9)
    assert [own.tolist() for own in scattered_words(passages, rows, np.random.default_rng(0))] == [
        pieces_of(passages, 9)
    ] * 20


def test_near_passages_stand_nearby_in_the_order_and_are_never_the_own_one():
    rows = np.repeat(np.arange(40), 50)
    near, place = near_passages(rows, ORDER, np.random.default_rng(0)), np.argsort(ORDER)
    assert near.shape == (2000, NEAR) and not (near == rows[:, None]).any()
    known = near >= 0
    apart = np.abs(place[near] - place[rows][:, None])[known]
    assert apart.max() == WITHIN and apart.min() == 1 and known.mean() > 0.9


def test_stored_queries_are_examples_of_their_passages(passages, tiny_tokenizer, tmp_path):
    store_spans(passages, ORDER, tmp_path, tiny_tokenizer, count=100, seed=1, progress=False)
    queries, examples = TokenStore.open(tmp_path / "store"), Examples.open(tmp_path / "examples")
    assert len(queries) == len(examples) == 100
    visits = np.bincount(examples.positives, minlength=40)
    assert visits[7] == 0 and set(np.delete(visits, 7)) <= {2, 3}  # each passage with text about as often
    shared = [len({*pieces_of(queries, at)} & {*pieces_of(passages, row)}) for at, row in enumerate(examples.positives)]
    assert np.mean([one > 0 for one in shared]) == 1


def test_same_seed_same_files_and_another_seed_other_words(passages, tiny_tokenizer, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        store_spans(passages, ORDER, tmp_path / name, tiny_tokenizer, count=30, seed=seed, progress=False)
    ids = [TokenStore.open(tmp_path / name / "store").text_ids for name in "abc"]
    assert np.array_equal(ids[0], ids[1]) and not np.array_equal(ids[0], ids[2])


def test_nothing_to_tell_apart_is_refused(tiny_tokenizer, tmp_path):
    rows = datasets.Dataset.from_dict({"title": [""], "text": ["the decoder"]})
    alone = TokenStore.build(rows, tiny_tokenizer, tmp_path / "s", progress=False)
    with pytest.raises(InputError, match="nothing to tell apart"):
        store_spans(alone, np.arange(1), tmp_path, tiny_tokenizer, count=4)
