"""Real collections load, or fail for a stated reason; skipped if `DR_DATA` names no folder."""

from pathlib import Path

import pytest

from dr_lib import collections
from dr_lib.errors import InputError
from dr_lib.places import data_root

WITH_REPEATED_PASSAGES = {"cacm": 193, "lisa": 1, "liveqa-med": 6, "npl": 16, "trecdl-mini": 1}
COUNTS = {
    "cacm": (3204, 52),
    "cranfield": (1398, 225),
    "dbpedia-mini": (5000, 40),
    "lisa": (5999, 35),
    "liveqa-med": (1926, 103),
    "medline": (1033, 30),
    "medquad": (27111, 1278),
    "npl": (11426, 93),
    "scifact": (5183, 300),
    "squad": (20958, 10534),
    "trecdl-mini": (5000, 43),
    "wikipedia-nq": (90160, 1423),
}
LARGE = {"medquad", "squad", "wikipedia-nq"}


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for this file, so that a collection is converted once."""
    return tmp_path_factory.mktemp("collections")


def need(name: str) -> None:
    root = data_root()
    if not root or not (root / name).is_dir():
        pytest.skip(f"needs the folder {name} under DR_DATA")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in COUNTS]
)
def test_collection_has_the_counts_of_its_readme(name, shared_cache):
    need(name)
    collection = collections.load(name, cache=shared_cache, allow_duplicates=True)
    assert (len(collection.passages), len(collection.queries("test"))) == COUNTS[name]
    assert collection.info["counts"]["duplicate_texts"] == WITH_REPEATED_PASSAGES.get(name, 0)
    assert not collection.info["licence"].startswith("unknown")


@pytest.mark.parametrize("name", WITH_REPEATED_PASSAGES)
def test_repeated_passages_are_refused_unless_allowed(name, cache):
    need(name)
    with pytest.raises(
        InputError,
        match=rf"repeats title and text .*\({WITH_REPEATED_PASSAGES[name]} such in all\)",
    ):
        collections.load(name, cache=cache, allow_duplicates=False)


def test_passages_without_judgements_serve_as_text(cache):
    need("marco-sample-1k")
    collection = collections.load("marco-sample-1k", cache=cache)
    assert (
        collection.splits == ()
        and len(collection.passages) == 1000
        and len(collection.queries()) == 20
    )


def test_questions_without_passages_are_refused(cache):
    need("nq-open-questions")
    with pytest.raises(InputError, match="It holds queries only"):
        collections.load("nq-open-questions", cache=cache)


@pytest.mark.slow
def test_sample_of_squad_is_quick_and_holds_its_positives(shared_cache):
    need("squad")
    sample = collections.load("squad", cache=shared_cache, allow_duplicates=True).sample(
        2000, train_queries=300, dev_queries=50, test_queries=100
    )
    kept = set(sample.passages["id"][:])
    assert len(sample.passages) == 2000
    assert all(
        id_ in kept
        for split in sample.splits
        for judged in sample.qrels(split).values()
        for id_ in judged
    )
