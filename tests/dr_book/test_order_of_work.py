"""The order of `try`'s work when time is limited, by a clock that only work advances."""

import json
import math
import shutil
import sys
from functools import partial

import pytest

from dr_book import corpus_study, own_corpus
from dr_book.commands import main
from dr_book.export import save_for_others
from dr_lib import stages
from dr_lib.lab import open_sample
from dr_lib.models import DenseEncoder, save_masked_lm

MINUTES = {"questions": 1, "given_vectors": 4, "pretrained": 5, "retriever": 3}
"""Minutes that a stage takes; any other takes a second."""


class Begun(list):
    """Kinds of stages in order of their start, and the seconds of the clock."""


@pytest.fixture
def clock(monkeypatch):
    """Minutes since the start; kinds of stages in order of their start."""
    begun = Begun()
    now = begun.now = [1000.0]
    build = stages.Cache._build

    def timed(self, one, check_held):
        begun.append(one.kind)
        takes = 60 * MINUTES.get(one.kind, 1 / 60)
        if self.stop_at is not None and now[0] + takes > self.stop_at:
            now[0] = self.stop_at
            raise stages.TimeIsUpError("the time is up")
        build(self, one, check_held)
        now[0] += takes

    monkeypatch.setattr(stages.Cache, "_build", timed)
    for module in (stages, corpus_study):
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return begun


@pytest.fixture
def encoder(tmp_path, tiny_bert, tiny_tokenizer):
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "lm")
    options = {"pooling": "mean", "passage_length": 24, "title": "none"}
    save_for_others(DenseEncoder.from_pretrained(tmp_path / "lm", **options), tmp_path / "public")
    (tmp_path / "public" / "dense.json").unlink()
    return tmp_path / "public"


@pytest.fixture
def bare(own_recipe, tmp_path):
    """Passages alone."""
    shutil.rmtree(tmp_path / "tiny" / "qrels")
    (tmp_path / "tiny" / "queries.jsonl").unlink()
    return own_recipe


@pytest.fixture
def compare(tmp_path, monkeypatch, encoder):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))

    def run(recipe, minutes, **options):
        keys = recipe.model_dump(mode="json")
        return own_corpus.compare(
            recipe.collection.name, [str(encoder), "simlm"], recipe=keys, minutes=minutes, **options
        )

    return run


def order(begun, *kinds):
    """The kinds that matter, in order of their first start."""
    return list(dict.fromkeys(kind for kind in begun if kind in kinds))


KINDS = "questions", "question_collection", "bm25_run", "given_vectors", "fused", "pretrained"


def test_with_judgements_the_page_comes_before_questions_and_training(
    compare, own_recipe, clock, tmp_path
):
    for split in ("train", "dev"):
        (tmp_path / "tiny" / "qrels" / f"{split}.tsv").unlink()
    shown = []

    def show(compared):
        shown.append((list(clock), compared.save_page(tmp_path / "first.html")))
        assert {"simlm"} <= {*compared.pending} and compared.verdict.plain

    compared = compare(own_recipe, 100, show=show)
    first = ["bm25_run", "given_vectors", "fused"]
    assert order(clock, *KINDS) == [*first, "questions", "question_collection", "pretrained"]
    assert order(shown[0][0], *KINDS) == first
    assert compared.pending == {} and "simlm" in compared.runs


def test_without_judgements_only_test_questions_come_first(compare, bare, clock, tmp_path):
    compared = compare(bare, 100)
    assert order(clock, *KINDS) == ["questions", *KINDS[1:5], "pretrained"]
    assert clock.index("fused") < len(clock) - 1 - clock[::-1].index("questions")
    assert compared.pending == {} and {*compared.generated.counts["queries"]} >= {"train", "test"}
    # no passage is asked about for both
    written = open_sample(compared.generated.recipe.collection)
    qrels = {
        split: {passage for own in written.qrels(split).values() for passage in own}
        for split in ("train", "dev", "test")
    }
    assert not qrels["test"] & (qrels["train"] | qrels["dev"]) and all(qrels.values())
    assert {record.data["collection"]["digest"] for own in compared.runs.values() for record in own}
    assert len(compared.searched) == 40


@pytest.mark.parametrize(
    ("minutes", "compares", "waits"),
    [
        (0.5, [], "questions to test on"),
        (2, ["BM25", corpus_study.SECOND], "public"),
        (6, ["BM25", corpus_study.SECOND, "public", "BM25 + public, by rank"], "simlm"),
    ],
)
def test_a_bounded_run_ends_with_a_verdict_on_what_there_is(
    compare, bare, clock, tmp_path, minutes, compares, waits
):
    compared = compare(bare, minutes)
    assert [*compared.runs] == compares and waits in compared.pending
    assert "Not compared yet, because the time was up" in compared.verdict.plain
    page = compared.save_page(tmp_path / "index.html", ["what carries the vector"])
    text = page.read_text(encoding="utf-8")
    assert f"give <code>--minutes {compared.enough}" in text.replace("Give", "give")
    assert ("<h2>Answers side by side</h2>" in text) == (len(compared.runs) > 2)
    assert "<h2>Answers" in text
    # BM25 with BM25 is not a comparison
    alone = {*compared.runs} == {"BM25", corpus_study.SECOND}
    assert ("no difference is established" in text) == alone
    assert ("smallest detectable" in text) == (len(compared.runs) > 2)
    assert ("A generator wrote these questions" in text) == bool(compared.runs)
    assert not compared.runs or text.count("<strong>BM25, k1 1.5") == 0
    assert compared.further and compared.enough > minutes
    assert (compared.export(tmp_path / "won") / "search.py").is_file()
    again = compare(bare, 100)
    assert again.pending == {} and "simlm" in again.runs
    # passages encoded in time are not encoded again
    assert clock.count("given_vectors") == 1 + ("public" in compared.pending and bool(compares))


def test_more_minutes_are_asked_for_than_were_given_to_all_of_it(compare, bare, clock):
    """On a busy machine where imports took one of three, as if two had been given."""
    compared = compare(bare, 3, gone=1)
    assert [*compared.runs] == ["BM25", corpus_study.SECOND] and compared.enough == 4


def test_a_first_page_that_takes_long_leaves_more_time_for_the_last(compare, bare, clock):
    """Of 20 minutes 18 are for work; a page of two leaves room for three more: 14."""

    def show(compared):
        clock.now[0] += 120

    compared = compare(bare, 20, show=show)
    assert clock.now[0] <= 1000 + 60 * (20 - 2 * corpus_study.PAGES_AT_THE_END) + 1
    assert "simlm" in compared.pending and "pretrained" in clock


def test_a_call_that_finishes_nothing_says_that_another_would_not_either(compare, bare, clock):
    told = "the same command would get no further: give --minutes"
    assert compare(bare, 9).further
    for minutes in (4, 0.1):
        again = compare(bare, minutes)
        assert not again.further and again.needed > 0
        assert f"{told} {again.enough}." in again.verdict.plain
        assert "continues" not in again.verdict.plain
    with_more = compare(bare, 100)
    assert with_more.pending == {} and with_more.unfinished == ""


def test_on_a_busy_machine_more_minutes_are_asked_for():
    whole = partial(corpus_study.Compared, None, None, None, {}, [], {}, {"simlm": ""})
    assert whole(needed=8, minutes=14).enough == 15
    assert whole(needed=8, minutes=14, pace=8).enough == math.ceil(1 + 4 / 3 * 64)


def test_questions_to_test_on_that_are_written_in_time_will_do(compare, bare, clock, monkeypatch):
    monkeypatch.setattr(sys.modules["dr_book.generated_queries"], "TESTED_AT_ONCE", 5)
    compared = compare(bare, 6)
    # a part takes a minute, a third of the time is for four parts, and one begins too late
    assert clock.count("questions") >= 2
    assert 0 < len(compared.searched.qrels("test")) < 10 and "BM25" in compared.runs


def test_try_without_time_or_judgements_leaves_a_page(bare, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["try", "tiny", "--system", "none", "--minutes", "0.0001", "--ask", "vector"]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert "Nothing is compared yet. Use BM25" in told
    assert "\nsearch by BM25, not yet compared: " in told and "\nsearch: " not in told
    assert (tmp_path / "tiny-tried" / "index.html").is_file()
    found = (tmp_path / "tiny-tried" / "retriever" / "search.py").read_text()
    assert json.dumps("tiny")[1:-1] in found
