"""Sentences and the rest of their passages, against plain loops over lists of pieces; which are
visited at which step.
"""

import copy

import datasets
import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.objectives import Source
from dr_lib.objectives import spans as spans_module
from dr_lib.objectives.contrastive import pairs_at_once
from dr_lib.objectives.spans import (
    Documents,
    EpochSampler,
    Sentences,
    Spans,
    passages_without,
    spans_alone,
)
from dr_lib.tokens import Layout, TokenStore

PASSAGES = [
    (
        "bottleneck",
        (
            "A dense retriever maps queries. It compares vectors by product. Hard negatives look"
            " relevant."
        ),
    ),
    ("", "One sentence alone"),
    ("the decoder", ""),
    ("", "a"),
    ("new york", "New York... is in New York. The generator"),
    ("", "The encoder is asked to predict them. " * 9),
    (
        "negatives",
        ". The masked input is. In. York. The vector carries what the decoder cannot see",
    ),
]
ROWS = np.arange(7)


@pytest.fixture(scope="module")
def told(tiny_tokenizer, tmp_path_factory) -> TokenStore:
    """Passages of none, one and several sentences, as tokens."""
    rows = datasets.Dataset.from_dict(
        dict(zip(("title", "text"), zip(*PASSAGES, strict=True), strict=True))
    )
    return TokenStore.build(rows, tiny_tokenizer, tmp_path_factory.mktemp("t") / "tokens")


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
    return [
        ids[~special].tolist() for ids, special in zip(batch.input_ids, batch.special, strict=True)
    ]


def source(store, tokenizer, max_length=40, title="pair"):
    layout = Layout(passage_length=max_length, title=title)
    return Source(store, layout, tokens_per_batch=1000, tokenizer=tokenizer)


@pytest.fixture
def found(told, tiny_tokenizer):
    def find(max_length=40, title="pair", shortest=1):
        return Sentences.find(source(told, tiny_tokenizer, max_length, title), shortest)

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
def test_sentences_are_those_of_a_plain_loop_over_what_a_batch_reads(
    title, max_length, told, found, tiny_tokenizer
):
    dot = tiny_tokenizer.convert_tokens_to_ids(".")
    read = texts_of(told.batch(ROWS, max_length=max_length, title=title))
    expected = []
    for row, pieces in enumerate(read):
        from_title = (
            0 if title == "none" else int(told.title_offsets[row + 1] - told.title_offsets[row])
        )
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
        assert all(
            np.array_equal(a, b)
            for a, b in zip(vars(whole).values(), vars(again).values(), strict=True)
        )


def test_every_sentence_of_a_passage_is_equally_likely(found):
    sentences = found()
    rows = np.full(9000, 5)
    random_ints = np.random.default_rng(0).integers(0, 2**63, 9000).astype(np.uint64)
    drawn, counts = np.unique(sentences.draw(rows, random_ints).begin, return_counts=True)
    assert len(drawn) == sentences.counts[5] > 3
    assert abs(counts - 9000 / len(drawn)).max() < 6 * np.sqrt(9000 / len(drawn))


def test_a_span_alone_is_cut_at_the_longest_query(told, found):
    drawn = found().draw(np.array([0, 3, 5]), np.zeros(3, np.uint64))
    batch = spans_alone(told, drawn, max_length=6)
    expected = [
        told.text_ids[begin:end].tolist()[:4]
        for begin, end in zip(drawn.begin, drawn.end, strict=True)
    ]
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
        before, behind = (
            told.text_ids[told.text_offsets[row] : begin],
            told.text_ids[end : sentences.limits[row]],
        )
        assert text == [*(heading if title != "none" else []), *before.tolist(), *behind.tolist()]
        assert len(before) + len(behind) > 0


@pytest.mark.parametrize("max_length", [40, 16])
def test_an_empty_span_leaves_the_passage_as_every_method_reads_it(max_length, told, found):
    sentences = found(max_length=max_length)
    whole = passages_without(
        told,
        Spans(ROWS, sentences.limits, sentences.limits),
        sentences.limits,
        max_length=max_length,
    )
    plain = told.batch(ROWS, max_length=max_length, pad_to_multiple=16)
    for name in ("input_ids", "attention_mask", "token_type_ids", "special", "word_start", "rows"):
        assert (getattr(whole, name) == getattr(plain, name)).all()


def test_a_store_of_another_tokenizer_is_refused(told, tiny_tokenizer):
    other = copy.deepcopy(tiny_tokenizer)
    other.add_tokens(["zzz"])
    with pytest.raises(InputError, match="built with tokenizer"):
        Sentences.find(source(told, other), 4)


DOCUMENTS, POSITIONS = np.array([3, 1, 3, 2, 1, 3, 0, 4, 4]), np.array([5, 1, 0, 0, 0, 2, 0, 1, 0])


def test_an_epoch_visits_each_thing_at_most_once_and_the_next_in_another_order():
    sampler = EpochSampler(np.arange(100, 111), 3, seed=5)
    epochs = [[sampler.of(step) for step in range(first, first + 3)] for first in (0, 3)]
    for number, epoch in enumerate(epochs):
        rows = np.concatenate([chosen for _, chosen in epoch])
        assert {found for found, _ in epoch} == {number}
        assert len(set(rows)) == 9 and set(rows) <= set(range(100, 111))
    assert not np.array_equal(epochs[0][0][1], epochs[1][0][1])


def test_a_step_is_the_same_whenever_it_is_asked_for():
    forward = [EpochSampler(np.arange(11), 3, seed=5).of(step)[1].tolist() for step in range(9)]
    sampler = EpochSampler(np.arange(11), 3, seed=5)
    assert [sampler.of(step)[1].tolist() for step in reversed(range(9))] == forward[::-1]
    assert EpochSampler(np.arange(11), 3, seed=6).of(0)[1].tolist() != forward[0]


def test_documents_keep_their_order_and_lose_those_of_one_passage():
    found = Documents.of(DOCUMENTS, POSITIONS, np.ones(9, bool))
    groups = [
        found.rows[a:b].tolist() for a, b in zip(found.offsets, found.offsets[1:], strict=False)
    ]
    assert groups == [[4, 1], [2, 5, 0], [8, 7]]
    assert found.first(np.array([2, 0])).tolist() == [8, 4]


def test_passages_that_cannot_be_used_are_passed_over():
    usable = np.ones(9, bool)
    usable[[2, 8]] = False
    found = Documents.of(DOCUMENTS, POSITIONS, usable)
    groups = [
        found.rows[a:b].tolist() for a, b in zip(found.offsets, found.offsets[1:], strict=False)
    ]
    assert groups == [[4, 1], [5, 0]]


def test_two_passages_of_a_document_are_distinct_and_every_pair_comes_up():
    found = Documents.of(DOCUMENTS, POSITIONS, np.ones(9, bool))
    rng = np.random.default_rng(0)
    random_ints = [rng.integers(0, 2**63, 3000).astype(np.uint64) for _ in range(2)]
    pairs, counts = np.unique(
        np.stack(found.two(np.full(3000, 1), *random_ints), 1), axis=0, return_counts=True
    )
    assert {tuple(pair) for pair in pairs.tolist()} == {
        (a, b) for a in (0, 2, 5) for b in (0, 2, 5) if a != b
    }
    assert abs(counts - 500).max() < 6 * np.sqrt(500)


def test_another_passage_is_never_the_first():
    found = Documents.of(DOCUMENTS, POSITIONS, np.ones(9, bool))
    assert set(found.another(np.full(100, 1), np.arange(100, dtype=np.uint64)).tolist()) == {5, 0}


def test_a_collection_without_documents_is_refused():
    with pytest.raises(InputError, match="no document of this collection has two passages"):
        Documents.of(np.arange(5), np.zeros(5, int), np.ones(5, bool))


@pytest.mark.parametrize(
    ("values", "expected"),
    [((None, 1000, 100, 99), 10), ((None, 1000, 100, 7), 7), ((12, 1000, 100, 99), 12)],
)
def test_a_batch_fills_the_budget_or_is_what_was_asked_for(values, expected):
    assert pairs_at_once(*values) == expected


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ((None, 150, 100, 99), "a batch of 150 tokens holds 1 pairs of 100, and 99 are there"),
        ((None, 1000, 100, 1), "holds 10 pairs of 100, and 1 are there"),
        ((8, 1000, 100, 7), "7 pairs do not fill a batch of 8"),
    ],
)
def test_too_few_pairs_are_refused(values, told):
    with pytest.raises(InputError, match=told):
        pairs_at_once(*values)
