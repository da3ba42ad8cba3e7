"""Primer, the built-in collection, is what its sheet says: book/data/primer.md."""

import re
from collections import Counter
from itertools import pairwise

import pytest
import Stemmer

from dr_lib import collections, places
from dr_lib.retrieval import Bm25

DIGEST = "76fb19b14957187ea94f22dac2698fd93d3011ccb2545a2d56b2f89468f3aa19"
KINDS = ("words", "paraphrase", "meaning")
FUNCTION_WORDS = {
    *re.findall(
        r"\w+",
        """
    a about above across after again against all almost along already also although always am
    among an and another any anybody anyone anything are around as at away be became because
    become becomes been before behind being below beneath beside between beyond both but by can
    cannot cant could did didnt do does doesnt doing done dont down during each either else
    enough even ever every everyone everything except few for from get gets getting got had has
    hasnt have havent having he her here hers herself him himself his how however i if in inside
    instead into is isnt it its itself just let like many may me might mine more most much must
    my myself near neither never no nobody none nor not nothing now of off often on once one
    ones only onto or other others ought our ours ourselves out outside over own perhaps quite
    rather really same shall she should so some somebody someone something sometimes somewhere
    soon still such than that the their theirs them themselves then there these they this those
    though through thus till to together too toward towards under unless until up upon us very
    via was wasnt we were what whatever when whenever where wherever whether which whichever
    while who whoever whole whom whose why will with within without wont would yet you your
    yours yourself
    """,
    )
}


@pytest.fixture(scope="module")
def primer():
    return collections.load("primer")


@pytest.fixture(scope="module")
def passages(primer) -> dict[str, dict]:
    return {row["id"]: row for row in primer.passages}


@pytest.fixture(scope="module")
def questions(primer) -> dict[str, str]:
    """Id -> text of every question, of all splits."""
    return {row["id"]: row["text"] for split in primer.splits for row in primer.queries(split)}


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower().replace("'", ""))


def content_stems(text: str) -> set[str]:
    stem = Stemmer.Stemmer("english").stemWord
    return {stem(word) for word in words(text) if word not in FUNCTION_WORDS}


def sentences(text: str) -> list[str]:
    return [" ".join(words(part)) for part in re.split(r"(?<=[.!?])\s+", text)]


def test_it_is_the_collection_of_the_records_and_of_its_sheet(primer):
    assert primer.digest == DIGEST
    assert primer.info["licence"].startswith("CC0")
    sheet = places.primer().with_suffix(".md").read_text(encoding="utf-8")
    assert DIGEST in sheet


def test_a_readers_folder_of_that_name_is_read_in_its_place(tmp_path, monkeypatch):
    (tmp_path / "primer").mkdir()
    (tmp_path / "primer" / "tea.txt").write_text("a kettle of my own", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = collections.load("primer", cache=tmp_path / "cache")
    assert found.passages["text"][:] == ["a kettle of my own"]


def test_passages_have_60_to_90_words_a_title_of_their_own_and_a_chapter(passages):
    assert list(passages) == [f"p{number:03d}" for number in range(1, 401)]
    for row in passages.values():
        assert 60 <= len(row["text"].split()) <= 90, row["id"]
        assert 2 <= len(row["title"].split()) <= 5, row["id"]
        assert re.fullmatch(r"\S+( \S+)*[.!?]", row["text"]), row["id"]
    assert len({row["title"].lower() for row in passages.values()}) == 400


def test_a_chapter_is_five_or_ten_passages_in_a_row(passages):
    chapters = Counter(row["doc"] for row in passages.values())
    assert len(chapters) == 44 and set(chapters.values()) == {5, 10}
    rows = list(passages.values())
    for before, row in pairwise(rows):
        assert row["position"] == (before["position"] + 1 if row["doc"] == before["doc"] else 0)


def test_no_sentence_and_no_question_stands_twice(passages, questions):
    written = [part for row in passages.values() for part in sentences(row["text"])]
    written += [" ".join(words(text)) for text in questions.values()]
    assert not [text for text, count in Counter(written).items() if count > 1]


def test_every_passage_is_asked_for_by_one_question_of_each_kind_in_one_split(primer, passages):
    asked = {}
    for split, queries in {"train": 798, "dev": 201, "test": 201}.items():
        judgements = primer.qrels(split)
        assert len(judgements) == queries
        for query, relevant in judgements.items():
            passage, kind = query.split("-")
            assert relevant == {passage: 1} and kind in KINDS
            asked.setdefault(passage, []).append((split, kind))
    assert set(asked) == set(passages)
    for found in asked.values():
        assert len({split for split, _ in found}) == 1 and {kind for _, kind in found} == {*KINDS}


def test_every_chapter_is_trained_on(primer, passages):
    trained = {passages[query.split("-")[0]]["doc"] for query in primer.qrels("train")}
    assert trained == {row["doc"] for row in passages.values()}


def test_questions_share_with_their_passage_what_their_kind_promises(passages, questions):
    """At least half of the content words, at most about a third of them, none."""
    for id_, text in questions.items():
        passage, kind = id_.split("-")
        assert 6 <= len(text.split()) <= 16 and text.endswith("?"), id_
        asked = content_stems(text)
        shared = asked & content_stems(passages[passage]["title"] + " " + passages[passage]["text"])
        if kind == "words":
            assert len(shared) >= len(asked) / 2, (id_, asked - shared)
        elif kind == "paraphrase":
            assert len(shared) <= 0.34 * len(asked), (id_, shared)
        else:
            assert len(asked) >= 2 and not shared, (id_, shared)


def test_words_alone_find_what_repeats_them_and_not_what_means_the_same(primer, questions):
    """The sheet's counts for BM25: first place for `words`, the first ten for the others."""
    ids, ranks = list(questions), dict.fromkeys(KINDS, 0)
    rows = Bm25.build(primer.passages).search([*questions.values()], 10).rows
    passages = primer.passages["id"][:]
    for id_, best in zip(ids, rows, strict=True):
        passage, kind = id_.split("-")
        considered = best[:1] if kind == "words" else best
        ranks[kind] += passage in [passages[row] for row in considered if row >= 0]
    assert ranks["words"] == 400
    assert 50 <= ranks["paraphrase"] <= 100
    assert ranks["meaning"] <= 4
