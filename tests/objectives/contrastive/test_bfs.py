"""Body first selection: a sentence of the lead, another passage of the same document."""

import pytest
import torch

BODIES = {1: {0, 2}, 3: {4}, 5: {6, 7, 8}, 11: {12}}
"""First passage of each document: its others."""


def pieces(batch) -> list[list[int]]:
    return [
        ids[~special].tolist() for ids, special in zip(batch.input_ids, batch.special, strict=True)
    ]


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
    assert seen == BODIES  # document 3 is out: its second passage has a title alone


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
