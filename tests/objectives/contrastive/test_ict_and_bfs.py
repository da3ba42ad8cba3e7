"""The inverse cloze task: the sentence asked and the rest; body first selection: a sentence of the
lead and another passage of the same document; their loss written out.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from dr_lib.errors import InputError
from dr_lib.objectives import Source
from dr_lib.objectives.spans import Sentences
from dr_lib.tokens import Layout


def pieces(batch) -> list[list[int]]:
    return [
        ids[~special].tolist() for ids, special in zip(batch.input_ids, batch.special, strict=True)
    ]


def read_whole(collection, rows: Tensor, length: int = 40) -> list[list[int]]:
    return pieces(collection.batch(rows.numpy(), max_length=length, pad_to_multiple=16))


def without(text: list[int], part: list[int]) -> list[list[int]]:
    """All ways to remove `part` from `text`."""
    starts = [start for start in range(len(text)) if text[start : start + len(part)] == part]
    return [text[:start] + text[start + len(part) :] for start in starts]


def test_the_query_is_a_sentence_and_the_passage_is_what_is_left(batches_of, collection):
    of = batches_of("ict", {"query_length": 40}, keep=0.0)
    for step in range(6):
        batch = of(step)
        assert torch.equal(batch.queries.rows, batch.passage_rows)
        whole = read_whole(collection, batch.passage_rows)
        for asked, left, text in zip(
            pieces(batch.queries), pieces(batch.passages), whole, strict=True
        ):
            assert asked and left in without(text, asked)


def test_a_kept_sentence_leaves_the_passage_whole(batches_of, collection):
    batch = batches_of("ict", keep=1.0)(2)
    assert pieces(batch.passages) == read_whole(collection, batch.passage_rows)


def test_one_sentence_in_ten_stays(batches_of, collection):
    of, stayed = batches_of("ict", {"query_length": 40}), []
    for step in range(150):
        batch = of(step)
        whole = read_whole(collection, batch.passage_rows)
        stayed += [left == text for left, text in zip(pieces(batch.passages), whole, strict=True)]
    assert np.mean(stayed) == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / len(stayed)))


@pytest.mark.parametrize("name", ["ict", "bfs"])
@pytest.mark.parametrize("shortest", [1, 18])
def test_the_shortest_sentence_that_is_drawn_is_a_setting(
    name, shortest, batches_of, collection, tiny_tokenizer
):
    source = Source(
        collection, Layout(passage_length=40), tokens_per_batch=1000, tokenizer=tiny_tokenizer
    )
    found = Sentences.find(source, shortest)
    of, asked, allowed = batches_of(name, {"query_length": 40}, shortest=shortest), set(), set()
    for step in range(30):
        queries = of(step).queries
        asked |= set(zip(queries.rows.tolist(), map(tuple, pieces(queries)), strict=True))
    for row, _ in asked:
        numbers = range(found.offsets[row], found.offsets[row + 1])
        allowed |= {
            (row, tuple(collection.text_ids[found.begin[n] : found.end[n]].tolist()))
            for n in numbers
        }
    lengths = [len(text) for _, text in allowed]
    assert asked <= allowed and (min(lengths) < 18 < max(lengths)) is (shortest == 1)


def test_passages_of_one_sentence_are_left_out(batches_of):
    of = batches_of("ict")
    assert not {1, 4, 10} & {row for step in range(60) for row in of(step).passage_rows.tolist()}


def test_a_passage_is_asked_with_other_sentences_in_other_epochs(batches_of):
    of = batches_of("ict", {"query_length": 40}, batch_pairs=2)
    asked = {}
    for step in range(60):
        batch = of(step)
        for row, text in zip(batch.passage_rows.tolist(), pieces(batch.queries), strict=True):
            asked.setdefault(row, set()).add(tuple(text))
    assert min(len(texts) for texts in asked.values()) >= 2


def test_the_loss_is_the_softmax_over_the_passages_of_the_batch(
    make_loud, batches_of, seeded, vectors_by_hand
):
    objective, batch = make_loud("ict", temperature=4.0), batches_of("ict")(1)
    queries, passages = (
        vectors_by_hand(objective.model, part) for part in (batch.queries, batch.passages)
    )
    scores = queries @ passages.T / 4
    log_share = (
        scores
        - np.log(np.exp(scores - scores.max(1, keepdims=True)).sum(1, keepdims=True))
        - scores.max(1, keepdims=True)
    )
    found = objective(batch, seeded())
    assert found["loss"].item() == pytest.approx(-log_share.diagonal().mean(), rel=1e-4)
    assert found["in_batch_accuracy"].item() == pytest.approx(
        (scores.argmax(1) == np.arange(len(scores))).mean()
    )


def test_cosine_and_temperature_are_parameters(make_loud, batches_of, seeded, vectors_by_hand):
    objective, batch = make_loud("ict", normalise=True, temperature=0.1), batches_of("ict")(1)
    queries, passages = (
        vectors_by_hand(objective.model, part) for part in (batch.queries, batch.passages)
    )
    queries, passages = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, passages)
    )
    scores = np.exp(queries @ passages.T / 0.1)
    expected = -np.log(scores.diagonal() / scores.sum(1)).mean()
    assert objective(batch, seeded())["loss"].item() == pytest.approx(expected, rel=1e-4)


def test_a_passage_that_comes_twice_is_no_negative_of_itself(
    make_loud, batches_of, seeded, vectors_by_hand
):
    objective, once = make_loud("ict", temperature=4.0), batches_of("ict")(1)
    again = torch.tensor([0, 1, 2, 0])
    batch = type(once)(
        once.queries.take(again), once.passages.take(again), once.passage_rows[again]
    )
    queries, passages = (
        vectors_by_hand(objective.model, part) for part in (batch.queries, batch.passages)
    )
    scores = np.exp(queries @ passages.T / 4)
    scores[0, 3] = scores[3, 0] = 0
    expected = -np.log(scores.diagonal() / scores.sum(1)).mean()
    assert objective(batch, seeded())["loss"].item() == pytest.approx(expected, rel=1e-4)


def test_a_collection_of_single_sentences_is_refused_with_the_way_out(batches_of):
    with pytest.raises(InputError, match="no passage has two sentences"):
        batches_of("ict", {"passage_length": 6})


BODIES = {1: {0, 2}, 3: {4}, 5: {6, 7, 8}, 11: {12}}
"""First passage of each document -> its other passages."""


def test_query_and_passage_are_of_one_document_and_the_query_of_its_lead(batches_of, collection):
    of, seen = batches_of("bfs", {"query_length": 40}), {}
    for step in range(60):
        batch = of(step)
        for lead, passage, asked in zip(
            batch.queries.rows.tolist(),
            batch.passages.rows.tolist(),
            pieces(batch.queries),
            strict=True,
        ):
            seen.setdefault(lead, set()).add(passage)
            text = collection.text_ids[
                collection.text_offsets[lead] : collection.text_offsets[lead + 1]
            ].tolist()
            assert any(text[start : start + len(asked)] == asked for start in range(len(text)))
    assert seen == BODIES  # document 3 is out: its second passage has only a title


def test_passages_are_whole(batches_of, collection):
    batch = batches_of("bfs")(0)
    plain = collection.batch(batch.passages.rows.numpy(), max_length=40, pad_to_multiple=16)
    assert (batch.passages.input_ids == plain.input_ids).all()
    assert (batch.passages.token_type_ids == plain.token_type_ids).all()


def test_a_document_comes_once_a_batch_and_is_named_by_its_number(batches_of):
    of = batches_of("bfs")
    for step in range(8):
        assert len(set(of(step).passage_rows.tolist())) == 4


def test_another_passage_of_the_document_is_no_negative(
    make_loud, batches_of, seeded, vectors_by_hand
):
    objective, of = make_loud("bfs", temperature=4.0), batches_of("bfs", batch_pairs=2)
    one = next(of(step) for step in range(20) if 2 in of(step).passage_rows)
    place = one.passage_rows.tolist().index(2)
    two = type(one)(
        one.queries.take(torch.tensor([place] * 2)),
        one.passages.take(torch.tensor([place] * 2)),
        one.passage_rows[[place] * 2],
    )
    assert objective(two, seeded())["loss"].item() == pytest.approx(0, abs=1e-6)
