"""PAQ, Reddit and PAIR: batches of a material of pairs, and their losses written out."""

import shutil

import numpy as np
import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.tokens import TokenStore
from dr_lib.training import Examples

NEGATIVES = {"paq": 1, "reddit": 0, "pair": 1}


def scores_by_hand(objective, batch, vectors_by_hand):
    """Scores `[queries, passages]`, and the vectors of both."""
    queries, passages = (
        vectors_by_hand(objective.model, part) for part in (batch.queries, batch.passages)
    )
    return queries @ passages.T, queries, passages


def forbidden(batch, examples) -> np.ndarray:
    """Columns that are not negatives of a query: its positives, except for its own column."""
    rows, n = batch.passage_rows.tolist(), len(batch.passages) // len(batch.queries)
    known = [
        set(examples.positives_of(np.array([query]))[0].tolist())
        for query in batch.queries.rows.tolist()
    ]
    return np.array(
        [
            [row in known[i] and column != i * n for column, row in enumerate(rows)]
            for i in range(len(known))
        ]
    )


def cross_entropy(scores: np.ndarray, hidden: np.ndarray, own: np.ndarray) -> float:
    shares = np.where(hidden, 0, np.exp(scores - scores.max()))
    return float(-np.log(shares[np.arange(len(own)), own] / shares.sum(1)).mean())


@pytest.mark.parametrize("name", NEGATIVES)
def test_each_query_brings_a_positive_and_its_negatives(name, batches_of, pairs_folder):
    examples, of = Examples.open(pairs_folder / "examples"), batches_of(name)
    for step in range(6):
        batch = of(step)
        groups = batch.passage_rows.reshape(len(batch), 1 + NEGATIVES[name]).tolist()
        for query, (positive, *negatives) in zip(batch.queries.rows.tolist(), groups, strict=True):
            own = set(examples.positives_of(np.array([query]))[0].tolist())
            assert positive in own and not own & set(negatives)
            listed = set(examples.negatives[query].tolist()) - {-1}
            assert set(negatives) <= listed or not listed


@pytest.mark.parametrize("name", ["paq", "reddit"])
@pytest.mark.parametrize("step", [0, 3])
def test_the_loss_is_the_softmax_over_all_passages_but_known_positives(
    name, step, make_loud, batches_of, pairs_folder, seeded, vectors_by_hand
):
    objective, batch = (
        make_loud(name, temperature=2.0),
        batches_of(name, {"tokens_per_batch": 800})(step),
    )
    scores, *_ = scores_by_hand(objective, batch, vectors_by_hand)
    hidden = forbidden(batch, Examples.open(pairs_folder / "examples"))
    assert hidden.any()
    own = np.arange(len(batch)) * (1 + NEGATIVES[name])
    found = objective(batch, seeded())
    assert found["loss"].item() == pytest.approx(
        cross_entropy(scores / 2, hidden, own), rel=1e-4, abs=1e-5
    )
    best = np.where(hidden, -np.inf, scores).argmax(1) == own
    assert found["in_batch_accuracy"].item() == pytest.approx(best.mean())


@pytest.mark.parametrize("candidates", ["released", "paper"])
def test_pairs_loss_is_the_weighted_sum_of_both_directions(
    candidates, make_loud, batches_of, pairs_folder, seeded, vectors_by_hand
):
    values = {"alpha": 0.3, "candidates": candidates, "temperature": 2.0}
    objective, batch = make_loud("pair", **values), batches_of("pair", {"tokens_per_batch": 800})(0)
    scores, queries, passages = scores_by_hand(objective, batch, vectors_by_hand)
    hidden, count = forbidden(batch, Examples.open(pairs_folder / "examples")), len(batch)
    about_queries = cross_entropy(scores / 2, hidden, np.arange(count) * 2)
    anchors, others = passages[::2], np.eye(count, dtype=bool)
    to_queries, to_negatives = anchors @ queries.T / 2, anchors @ passages[1::2].T / 2
    no_query = hidden[:, ::2].T if candidates == "released" else ~others
    about_passages = cross_entropy(
        np.concatenate([to_queries, to_negatives], 1),
        np.concatenate([no_query & ~others, hidden[:, 1::2]], 1),
        np.arange(count),
    )
    expected = 0.7 * about_queries + 0.3 * about_passages
    assert objective(batch, seeded())["loss"].item() == pytest.approx(expected, rel=1e-4)


def test_without_the_passage_centric_part_pair_is_paq(make_loud, batches_of, seeded):
    batch = batches_of("pair")(0)
    losses = [
        make_loud(name, **values)(batch, seeded())["loss"]
        for name, values in (("pair", {"alpha": 0}), ("paq", {}))
    ]
    assert losses[0] == losses[1]


def test_the_projection_is_linear_and_layer_norm_learns_and_is_saved_beside(
    make_loud, batches_of, seeded
):
    objective, batch = make_loud("paq", projection=True, init_seed=1), batches_of("paq")(0)
    plain = make_loud("paq")
    vectors = plain.encode(plain.model, batch.queries)
    rows = vectors @ objective.projection.linear.weight.T
    expected = (rows - rows.mean(1, keepdim=True)) / (
        rows.var(1, keepdim=True, unbiased=False) + 1e-5
    ).sqrt()
    assert torch.allclose(objective.encode(objective.model, batch.queries), expected, atol=1e-4)
    objective(batch, seeded())["loss"].backward()
    assert objective.projection.linear.weight.grad.abs().sum() > 0
    assert set(objective.extra_tensors()) == {
        f"projection.{name}" for name in objective.projection.state_dict()
    }
    assert not plain.extra_tensors()


def test_pairs_of_other_passages_than_those_of_the_store_are_refused(
    batches_of, pairs_folder, tmp_path
):
    shutil.copytree(pairs_folder / "queries", tmp_path / "queries")
    Examples.of(np.arange(9), np.arange(9)[:, None], passages=20).save(tmp_path / "examples")
    with pytest.raises(InputError, match="count 20 passages, and 14 are there"):
        batches_of("paq", {"materials": {"paq_pairs": tmp_path}})


def test_a_material_may_bring_passages_of_its_own(
    batches_of, pairs_folder, tiny_tokenizer, tmp_path
):
    folder = tmp_path / "pairs"
    shutil.copytree(pairs_folder / "queries", folder / "queries")
    own = TokenStore.open(pairs_folder / "queries")
    shutil.copytree(own.folder, folder / "passages")
    Examples.of(np.arange(9), np.arange(9)[:, None], passages=9).save(folder / "examples")
    batch = batches_of("reddit", {"materials": {"reddit_pairs": folder}})(0)
    assert torch.equal(batch.queries.rows, batch.passages.rows)
    for asked, answer in zip(batch.queries.input_ids, batch.passages.input_ids, strict=True):
        assert answer[answer > 4].tolist()[:10] == asked[asked > 4].tolist()
