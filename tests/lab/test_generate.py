"""Queries for a collection that has none: an ordinary folder, split without overlap, the same every
time.
"""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_book import corpus_study, search
from dr_book.export import card
from dr_book.generated_queries import asked_once, draw_splits, first_of_each, shared_words
from dr_lib import collections, lab, places
from dr_lib.errors import InputError
from dr_lib.files import read_json
from dr_lib.models import DenseSettings
from dr_lib.stages import Cache
from dr_lib.tokens import load_tokenizer, tokenizer_digest

SPLITS = ("train", "dev", "test")


@pytest.fixture
def bare(own_recipe, tmp_path):
    """The recipe on a copy of its collection with only the passages."""
    (tmp_path / "bare").mkdir()
    shutil.copy(tmp_path / "tiny" / "corpus.jsonl", tmp_path / "bare")
    return own_recipe.with_(collection=str(tmp_path / "bare"))


@pytest.fixture
def write(bare, shared, tmp_path):
    """`write(per_passage=3)`: the generator learns on the same passages with their queries."""

    def write(recipe=bare, cache=shared, **options) -> corpus_study.GeneratedQueries:
        return corpus_study.generate_queries(
            recipe, learn_from=str(tmp_path / "tiny"), cache=cache, **options
        )

    return write


def test_passages_alone_become_a_collection_with_three_splits(write):
    written = write()
    found = collections.load(written.folder)
    assert found.name == "bare-questions" and found.splits == SPLITS and len(found.passages) == 40
    assert {split: len(found.qrels(split)) for split in SPLITS} == written.counts["queries"]
    judged = [
        {passage for own in found.qrels(split).values() for passage in own} for split in SPLITS
    ]
    assert all(judged) and not (
        judged[0] & judged[1] or judged[0] & judged[2] or judged[1] & judged[2]
    )
    assert len(set(found.queries()["text"][:])) == len(found.queries())


def test_dev_and_test_have_one_question_a_passage(write):
    found = collections.load(write(per_passage=6).folder)
    for split in ("dev", "test"):
        passages = [passage for own in found.qrels(split).values() for passage in own]
        assert len(passages) == len(set(passages))


def test_counts_fall_from_step_to_step(write):
    counts = write().counts
    steps = [counts[name] for name in ("written", "distinct", "asked_once", "found_again")]
    assert steps[0] == 120 and steps == sorted(steps, reverse=True)
    assert 0 <= counts["shared_words"] <= 1


def test_a_second_call_finds_what_was_written_and_another_cache_ends_in_the_same_files(
    write, shared, cache
):
    first, again = write(), Cache(shared.root, announce=lambda line: None)
    assert write(cache=again) == first and not again.built
    one, two = first.folder, write(cache=cache).folder
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(two) for path in two.rglob("*") if path.is_file())
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)


def test_a_recipe_runs_on_the_new_collection_and_the_models_card_says_who_wrote_the_queries(
    write, shared
):
    written = write(per_passage=12)
    recipe = written.recipe.with_(objective="none")
    record = lab.execute(lab.Run("tests/generated", "none", "smoke", recipe), shared)
    assert record.data["collection"]["name"] == "bare-questions"
    assert len(record.query_ids) == written.counts["queries"]["test"]
    assert np.isfinite(record.means["MRR@10"])
    trained_on = search.collection_of(record, shared)
    assert trained_on.digest == record.data["collection"]["digest"]
    model = SimpleNamespace(
        settings=DenseSettings(), encoder=SimpleNamespace(config=SimpleNamespace(hidden_size=32))
    )
    text = str(card(model, "x", record, trained_on))
    assert (
        "**The queries were generated**: written by a model trained on the queries of tiny." in text
    )
    assert "generated**" not in str(card(model, "x", record))


def test_judged_test_queries_stay_and_their_passages_are_not_trained_on(
    own_recipe, write, tmp_path
):
    shutil.copytree(tmp_path / "tiny", tmp_path / "judged")
    for split in ("train", "dev"):
        (tmp_path / "judged" / "qrels" / f"{split}.tsv").unlink()
    found = collections.load(write(own_recipe.with_(collection=str(tmp_path / "judged"))).folder)
    before = collections.load(tmp_path / "judged")
    assert found.qrels("test") == before.qrels("test")
    assert found.queries("test")[:] == before.queries("test")[:]
    tested, trained = (
        {passage for own in found.qrels(split).values() for passage in own}
        for split in ("test", "train")
    )
    assert trained and not trained & tested


def test_what_people_ask_is_no_training_question(own_recipe, write, tmp_path):
    shutil.copytree(tmp_path / "tiny", tmp_path / "judged")
    for split in ("train", "dev"):
        (tmp_path / "judged" / "qrels" / f"{split}.tsv").unlink()
    recipe, lines = (
        own_recipe.with_(collection=str(tmp_path / "judged")),
        tmp_path / "judged" / "queries.jsonl",
    )

    def written():
        found = collections.load(write(recipe).folder)
        return {text for split in ("train", "dev") for text in found.queries(split)["text"]}

    before = written()
    queries = [json.loads(line) for line in lines.read_text().splitlines()]
    queries[-1]["text"] = (asked := min(before)).upper()  # of the split test
    lines.write_text("".join(json.dumps(query) + "\n" for query in queries))
    assert written() == before - {asked}


def test_judgements_are_left_out_where_one_says_so(own_recipe, write, tmp_path):
    found = collections.load(write(own_recipe, use_judgements=False).folder)
    assert not {*found.queries()["id"][:]} & {
        *collections.load(tmp_path / "tiny").queries()["id"][:]
    }


def test_the_folder_says_what_it_is_and_no_place(write, cache, tmp_path):
    (tmp_path / "bare" / "README.md").write_text("- Licence: CC0 1.0\n", encoding="utf-8")
    folder = write(cache=cache).folder  # a licence is not part of a collection's digest
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert (
        "trained on the queries of tiny" in text
        and "Licence: CC0 1.0" in text
        and str(tmp_path) not in text
    )
    assert "trained on the queries of tiny" in collections.load(folder).info["questions"]
    assert json.loads((folder / "corpus.jsonl").read_text().splitlines()[5])["position"] == 1


def test_a_collection_without_training_queries_teaches_nobody(bare, shared):
    with pytest.raises(InputError, match="there is no split 'train'"):
        corpus_study.generate_queries(bare, learn_from=bare.collection.name, cache=shared)


def test_the_generator_of_the_book_writes_questions_about_what_it_reads(shared):
    """It was not trained on Primer, and uses no word list or template."""
    recipe = lab.recipe_at("smoke", {}, "primer")
    written = corpus_study.generate_queries(
        recipe, use_judgements=False, per_passage=1, cache=shared
    )
    found = collections.load(written.folder)
    texts = found.queries()["text"][:]
    assert np.mean([text.endswith("?") for text in texts]) > 0.9
    asking = {"what", "who", "how", "when", "where", "which", "why", "in", "whose"}
    assert np.mean([text.split()[0] in asking for text in texts]) > 0.8
    assert written.counts["shared_words"] > 0.2
    assert "written by the question generator questions-2x128" in (
        written.folder / "README.md"
    ).read_text(encoding="utf-8")


def test_a_generator_that_the_recipe_names_writes_and_is_named_whatever_else_is_given(
    own_recipe, shared
):
    recipe = own_recipe.with_(auxiliary__questions__model="embedded")
    options = {"use_judgements": False, "per_passage": 1, "cache": shared}
    first, second = (
        corpus_study.generate_queries(recipe, learn_from=name, **options)
        for name in (own_recipe.collection.name, None)
    )
    assert first.folder == second.folder
    assert "written by the question generator questions-2x128" in (
        first.folder / "README.md"
    ).read_text(encoding="utf-8")


def test_the_generator_of_the_book_is_the_one_of_its_record():
    record = read_json(places.embedded_writer() / "record.json")
    assert record["base"]["digest"] == lab.open_checkpoint("embedded").model.digest
    assert record["training"]["step"] == record["settings"]["steps"]
    assert tokenizer_digest(load_tokenizer(places.embedded_writer())) == tokenizer_digest(
        load_tokenizer("embedded")
    )


SHARES = {"train": 0.75, "dev": 0.05, "test": 0.2}
NONE_HELD = np.array([], np.int64)


def test_shares_are_met_by_document():
    documents = np.arange(2000) // 2
    found = draw_splits(documents, np.arange(2000), SHARES, held=NONE_HELD, seed=0)
    assert np.bincount(found).tolist() == [1500, 100, 400]
    assert (found[::2] == found[1::2]).all()


def test_few_documents_are_split_by_passage():
    found = draw_splits(np.zeros(100, np.int64), np.arange(100), SHARES, held=NONE_HELD, seed=0)
    assert np.bincount(found).tolist() == [75, 5, 20]


def test_a_passage_without_question_is_in_no_split():
    found = draw_splits(np.arange(100), np.arange(0, 100, 2), SHARES, held=NONE_HELD, seed=0)
    assert (found[1::2] == -1).all() and (found[::2] >= 0).all()


def test_judged_passages_are_left_out_and_their_neighbours_are_not():
    documents = np.arange(400) // 4
    found = draw_splits(
        documents, np.arange(400), {"train": 1.0}, held=np.array([9, 10, 400 - 1]), seed=0
    )
    assert np.flatnonzero(found == -1).tolist() == [9, 10, 399]


def test_draws_depend_on_the_seed_alone():
    one, two, other = (
        draw_splits(np.arange(90), np.arange(90), SHARES, held=NONE_HELD, seed=s) for s in (0, 0, 1)
    )
    assert (one == two).all() and (one != other).any()


def test_too_few_passages_are_refused():
    with pytest.raises(InputError, match=r"about 2 passages .* at least 3 are needed"):
        draw_splits(np.arange(5), np.array([1, 1, 4]), SHARES, held=NONE_HELD, seed=0)
    with pytest.raises(InputError, match=r"about 0 .*language.*queries\.jsonl.*dr-lib search"):
        draw_splits(np.arange(5), np.array([], np.int64), SHARES, held=NONE_HELD, seed=0)


@settings(max_examples=50, deadline=None)
@given(st.integers(3, 200), st.integers(1, 40), st.integers(0, 5))
def test_every_split_gets_a_passage(passages, per_document, seed):
    found = draw_splits(
        np.arange(passages) // per_document, np.arange(passages), SHARES, held=NONE_HELD, seed=seed
    )
    assert set(found.tolist()) == {0, 1, 2}


def test_a_question_of_two_passages_is_asked_of_neither():
    assert asked_once(["What is it?", "Who?", "WHAT IS IT?"]).tolist() == [False, True, False]


@given(st.lists(st.integers(0, 6), max_size=20))
def test_the_first_question_of_each_passage_is_marked_in_whatever_order_they_stand(sources):
    expected = [source not in sources[:place] for place, source in enumerate(sources)]
    assert first_of_each(np.array(sources, np.int64)).tolist() == expected


def test_words_are_shared_whatever_their_case_and_number():
    assert shared_words(["The tide, the tide!", "no word"], ["A Tide.", "else"]) == 0.25
    assert shared_words([], []) == 0.0
