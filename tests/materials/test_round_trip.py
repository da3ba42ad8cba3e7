"""The filters of generated questions against ranking every passage by hand, with words and with vectors."""

import numpy as np
import pytest
from datasets import Dataset

from dr_lib.errors import InputError
from dr_lib.materials import round_trip
from dr_lib.materials.round_trip import ByVectors, ByWords, consistent
from dr_lib.retrieval import Bm25

WORDS = ["river", "mountain", "harbour", "violin", "compass", "lantern", "orchard", "saddle"]
DOCUMENTS = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 3, 2])


@pytest.fixture
def asked() -> tuple[np.ndarray, Dataset, Dataset]:
    """Sources, questions and passages of random words."""
    draw = np.random.default_rng(5)
    passages = [" ".join(draw.choice(WORDS, 6)) for _ in DOCUMENTS]
    sources = draw.integers(0, len(DOCUMENTS), 60)
    questions = [" ".join(draw.choice(passages[row].split(), 2)) if row % 3 else "violin" for row in sources]
    questions[7] = "unheard of"
    rows = {"title": [""] * len(passages), "text": passages}
    return sources, Dataset.from_dict({"text": questions}), Dataset.from_dict(rows)


@pytest.fixture(params=["words", "vectors"])
def retriever(request, asked):
    """A retriever with a full table of its scores beside it, minus infinity for what it never finds."""
    sources, questions, passages = asked
    if request.param == "vectors":
        draw = np.random.default_rng(1)
        vectors = [draw.standard_normal((size, 4)).astype(np.float32) for size in (len(sources), len(passages))]
        return ByVectors(*vectors), (vectors[0].astype(np.float64) @ vectors[1].T.astype(np.float64)).astype(np.float32)
    index = Bm25.build(passages, progress=False)
    ranking = index.search(questions["text"], len(passages))
    table = np.full((len(sources), len(passages)), -np.inf, np.float32)
    for row, (places, scores) in enumerate(zip(ranking.rows, ranking.scores, strict=True)):
        table[row, places[places >= 0]] = scores[places >= 0]
    return ByWords(index, questions), table


def leads_back(scores: np.ndarray, source: int, candidates: np.ndarray, top_k: int) -> bool:
    """Whether a passage is among the first of some candidates; ties go to the lower row."""
    found = sorted((row for row in candidates if scores[row] > -np.inf), key=lambda row: (-scores[row], row))
    return source in found[:top_k]


@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize("how", ["global", "local"])
def test_what_is_kept_leads_back_to_its_passage(asked, retriever, monkeypatch, how, top_k):
    sources, (found, table) = asked[0], retriever
    expected = []
    for row, source in enumerate(sources):
        same = DOCUMENTS[source]
        candidates = np.flatnonzero((same == DOCUMENTS) | (how == "global"))
        expected.append(leads_back(table[row], source, candidates, top_k))
    kept = consistent(found, sources, DOCUMENTS, how=how, top_k=top_k, progress=False)
    assert kept.tolist() == expected
    assert 0 < kept.sum() < len(kept)
    monkeypatch.setattr(round_trip, "AT_ONCE", 7)
    monkeypatch.setattr(round_trip, "PAIRS_AT_ONCE", 6)
    assert np.array_equal(consistent(found, sources, DOCUMENTS, how=how, top_k=top_k, progress=False), kept)


def test_the_global_filter_keeps_no_more_than_the_local_one(asked, retriever):
    kept = {how: consistent(retriever[0], asked[0], DOCUMENTS, how=how, progress=False) for how in ("local", "global")}
    assert not (kept["global"] & ~kept["local"]).any()
    assert kept["local"].sum() > kept["global"].sum()


def test_without_a_filter_all_stay(asked):
    assert consistent(None, asked[0], DOCUMENTS, how="none", progress=False).all()


def test_a_lone_passage_asks_for_a_common_word_only(asked):
    sources, questions, passages = asked
    alone = consistent(
        ByWords(Bm25.build(passages, progress=False), questions), sources, np.arange(12), how="local", progress=False
    )
    assert [row for row, kept in enumerate(alone) if not kept] == [
        row
        for row, source in enumerate(sources)
        if not set(questions[row]["text"].split()) & set(passages[int(source)]["text"].split())
    ]


@pytest.mark.parametrize("options", [{"how": "worldwide"}, {"top_k": 0}])
def test_unknown_filters_are_refused(asked, options):
    with pytest.raises(InputError):
        consistent(None, asked[0], DOCUMENTS, progress=False, **options)
