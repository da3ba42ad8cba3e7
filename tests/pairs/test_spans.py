"""Sentences and what is left without them, against plain loops over lists of pieces."""

import copy

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.pairs import spans as spans_module
from dr_lib.pairs.spans import Sentences, Spans, passages_without, random_runs, spans_alone

ROWS = np.arange(7)


def body(store, row):
    return store.text_ids[store.text_offsets[row] : store.text_offsets[row + 1]].tolist()


def split_by_hand(pieces: list[int], dot: int) -> list[list[int]]:
    sentences, open_one = [], []
    for place, piece in enumerate(pieces):
        open_one.append(piece)
        if piece == dot and pieces[place + 1 : place + 2] != [dot]:
            sentences.append(open_one)
            open_one = []
    return [*sentences, open_one] if open_one else sentences


def texts_of(batch):
    """Pieces of each sequence without special tokens."""
    return [ids[~special].tolist() for ids, special in zip(batch.input_ids, batch.special, strict=True)]


@pytest.fixture
def found(told, tiny_tokenizer):
    def find(**values):
        return Sentences.find(told, tiny_tokenizer, **{"max_length": 40, "shortest": 1, **values})

    return find


def listed(store, sentences):
    return [
        [
            store.text_ids[sentences.begin[number] : sentences.end[number]].tolist()
            for number in range(sentences.offsets[row], sentences.offsets[row + 1])
        ]
        for row in range(len(store))
    ]


@pytest.mark.parametrize("max_length", [40, 12])
@pytest.mark.parametrize("title", ["pair", "joined", "none"])
def test_sentences_are_those_of_a_plain_loop_over_what_a_batch_reads(title, max_length, told, found, tiny_tokenizer):
    dot = tiny_tokenizer.convert_tokens_to_ids(".")
    read = texts_of(told.batch(ROWS, max_length=max_length, title=title))
    expected = []
    for row, pieces in enumerate(read):
        from_title = 0 if title == "none" else int(told.title_offsets[row + 1] - told.title_offsets[row])
        kept = [
            pieces[start:]
            for start in range(from_title + 1)
            if pieces[start:] == body(told, row)[: len(pieces) - start]
        ]
        expected.append(split_by_hand(kept[0], dot))
    sentences = found(max_length=max_length, title=title)
    assert listed(told, sentences) == expected
    assert sentences.counts.tolist() == [len(one) for one in expected]


def test_short_sentences_are_drawn_only_where_there_is_no_other(told, found):
    every, long = listed(told, found()), listed(told, found(shortest=6))
    for whole, kept in zip(every, long, strict=True):
        of_length = [sentence for sentence in whole if len(sentence) >= 6]
        assert kept == (of_length or whole)
    assert found(shortest=6).counts.tolist() == found().counts.tolist()
    assert long != every


def test_blocks_change_nothing(told, found, monkeypatch):
    whole = found()
    for size in (1, 2, 7):
        monkeypatch.setattr(spans_module, "BLOCK", size)
        again = found()
        assert all(np.array_equal(a, b) for a, b in zip(vars(whole).values(), vars(again).values(), strict=True))


def test_every_sentence_of_a_passage_is_equally_likely(found):
    sentences = found()
    rows = np.full(9000, 5)
    lots = np.random.default_rng(0).integers(0, 2**63, 9000).astype(np.uint64)
    drawn, counts = np.unique(sentences.draw(rows, lots).begin, return_counts=True)
    assert len(drawn) == sentences.counts[5] > 3
    assert abs(counts - 9000 / len(drawn)).max() < 6 * np.sqrt(9000 / len(drawn))


def test_a_span_alone_is_cut_at_the_longest_query(told, found):
    drawn = found().draw(np.array([0, 3, 5]), np.zeros(3, np.uint64))
    batch = spans_alone(told, drawn, max_length=6)
    expected = [told.text_ids[begin:end].tolist()[:4] for begin, end in zip(drawn.begin, drawn.end, strict=True)]
    assert texts_of(batch) == expected
    assert batch.rows.tolist() == [0, 3, 5]
    assert batch.input_ids.shape == (3, 6) and not batch.token_type_ids.any()
    assert batch.input_ids[:, 0].tolist() == [2, 2, 2]


@pytest.mark.parametrize("title", ["pair", "joined", "none"])
def test_a_passage_without_a_span_is_its_title_and_the_text_on_both_sides(title, told, found):
    sentences, rows = found(title=title), np.array([0, 4, 5, 6])
    drawn = sentences.draw(rows, np.array([1, 1, 2, 3], np.uint64))
    batch = passages_without(told, drawn, sentences.limits[rows], max_length=40, title=title)
    for row, text, begin, end in zip(rows, texts_of(batch), drawn.begin, drawn.end, strict=True):
        heading = told.title_ids[told.title_offsets[row] : told.title_offsets[row + 1]].tolist()
        before, behind = told.text_ids[told.text_offsets[row] : begin], told.text_ids[end : sentences.limits[row]]
        assert text == [*(heading if title != "none" else []), *before.tolist(), *behind.tolist()]
        assert len(before) + len(behind) > 0


@pytest.mark.parametrize("max_length", [40, 16])
def test_an_empty_span_leaves_the_passage_as_every_method_reads_it(max_length, told, found):
    sentences = found(max_length=max_length)
    whole = passages_without(
        told, Spans(ROWS, sentences.limits, sentences.limits), sentences.limits, max_length=max_length
    )
    plain = told.batch(ROWS, max_length=max_length, pad_to_multiple=16)
    for name in ("input_ids", "attention_mask", "token_type_ids", "special", "word_start", "rows"):
        assert (getattr(whole, name) == getattr(plain, name)).all()


def test_a_run_is_half_of_the_text_at_most_and_lies_inside(told):
    lots = np.random.default_rng(1).integers(0, 2**63, 500).astype(np.uint64)
    begin, end = np.full(500, 10), np.full(500, 21)
    runs = random_runs(np.zeros(500, int), begin, end, lots, longest=30)
    assert set(runs.end - runs.begin) == {5}
    assert set(runs.begin) == set(range(10, 17))
    assert set((lambda run: run.end - run.begin)(random_runs(begin, begin, end, lots, longest=3))) == {3}
    assert set((lambda run: run.end - run.begin)(random_runs(begin, begin, begin + 2, lots, longest=3))) == {1}


def test_a_store_of_another_tokenizer_is_refused(told, tiny_tokenizer):
    other = copy.deepcopy(tiny_tokenizer)
    other.add_tokens(["zzz"])
    with pytest.raises(InputError, match="built with tokenizer"):
        Sentences.find(told, other, max_length=40)
