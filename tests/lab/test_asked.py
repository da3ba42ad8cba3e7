"""Questions for a collection that has none: an ordinary folder, split without overlap, the same every time."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dr_lib.lab.asked import ask
from dr_lib.lab.cache import Cache
from dr_lib.lab.finished import collection_of
from dr_lib.lab.job import Job, run_job

from dr_lib import collections
from dr_lib.errors import InputError
from dr_lib.models import DenseSettings
from dr_lib.report import card

MAKERS = {"questions": {"steps": 2, "tokens_per_batch": 256, "precision": "fp32"}}
SPLITS = ("train", "dev", "test")


@pytest.fixture(scope="module")
def stages(tmp_path_factory) -> Path:
    """One folder for all tests here: keys go by content, so that the tests share what they have in common."""
    return tmp_path_factory.mktemp("stages")


@pytest.fixture
def cache(stages, tmp_path, monkeypatch) -> Cache:
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("dr_lib.training.machine.has_bf16", lambda where: False)  # no kernels to build: quicker
    return Cache(stages, announce=lambda line: None)


@pytest.fixture
def bare(tiny_recipe, tmp_path):
    """The recipe on a copy of its collection's passages alone."""
    (tmp_path / "bare").mkdir()
    shutil.copy(tmp_path / "tiny" / "corpus.jsonl", tmp_path / "bare")
    return tiny_recipe.with_(makers=MAKERS, collection=str(tmp_path / "bare"))


def asked_of(bare, cache, **options):
    return ask(bare, learn_from=str(bare.collection.name).replace("bare", "tiny"), cache=cache, **options)


def test_passages_alone_become_a_collection_with_three_splits(bare, cache):
    asked = asked_of(bare, cache)
    found = collections.load(asked.folder)
    assert found.name == "bare-questions" and found.splits == SPLITS and len(found.passages) == 40
    assert {split: len(found.qrels(split)) for split in SPLITS} == asked.counts["queries"]
    judged = [{passage for own in found.qrels(split).values() for passage in own} for split in SPLITS]
    assert all(judged) and not (judged[0] & judged[1] or judged[0] & judged[2] or judged[1] & judged[2])
    assert len(set(found.queries()["text"][:])) == len(found.queries())


def test_dev_and_test_ask_once_about_a_passage(bare, cache):
    found = collections.load(asked_of(bare, cache, per_passage=6).folder)
    for split in ("dev", "test"):
        passages = [passage for own in found.qrels(split).values() for passage in own]
        assert len(passages) == len(set(passages))


def test_counts_fall_from_step_to_step(bare, cache):
    counts = asked_of(bare, cache).counts
    steps = [counts[name] for name in ("written", "distinct", "asked_once", "found_again")]
    assert steps[0] == 120 and steps == sorted(steps, reverse=True)
    assert 0 <= counts["shared_words"] <= 1


def test_asking_again_finds_what_was_written(bare, cache):
    first = asked_of(bare, cache)
    again = Cache(cache.root, announce=lambda line: None)
    assert asked_of(bare, again).folder == first.folder and not again.built


def test_another_cache_ends_in_the_same_files(bare, cache, tmp_path):
    other = Cache(tmp_path / "other", announce=lambda line: None)
    one, two = (asked_of(bare, where).folder for where in (cache, other))
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(two) for path in two.rglob("*") if path.is_file())
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)


def test_a_recipe_runs_on_the_new_collection(bare, cache):
    asked = asked_of(bare, cache, per_passage=12)
    record = run_job(Job("tests/asked", "none", "smoke", asked.recipe.with_(objective="none")), cache)
    assert record.data["collection"]["name"] == "bare-questions"
    assert len(record.query_ids) == asked.counts["queries"]["test"]
    assert np.isfinite(record.means["MRR@10"])
    trained_on = collection_of(record, cache)
    assert trained_on.digest == record.data["collection"]["digest"]
    model = SimpleNamespace(settings=DenseSettings(), encoder=SimpleNamespace(config=SimpleNamespace(hidden_size=32)))
    text = str(card(model, "x", record, trained_on))
    assert "**The queries were generated**: written by a model trained on the queries of tiny." in text
    assert "generated**" not in str(card(model, "x", record))


def test_judged_test_queries_are_kept_and_their_passages_not_trained_on(tiny_recipe, cache, tmp_path):
    own = tmp_path / "tiny"
    shutil.copytree(own, tmp_path / "judged")
    for split in ("train", "dev"):
        (tmp_path / "judged" / "qrels" / f"{split}.tsv").unlink()
    recipe = tiny_recipe.with_(makers=MAKERS, collection=str(tmp_path / "judged"))
    found = collections.load(ask(recipe, learn_from=str(own), cache=cache).folder)
    before = collections.load(tmp_path / "judged")
    assert found.qrels("test") == before.qrels("test")
    assert found.queries("test")[:] == before.queries("test")[:]
    docs = dict(zip(found.passages["id"][:], found.passages["doc"][:], strict=True))
    tested = {passage for own in before.qrels("test").values() for passage in own}
    trained = {passage for own in found.qrels("train").values() for passage in own}
    assert trained and not trained & tested
    assert len({docs[passage] for passage in tested}) < 50  # so few documents are split by passage


def test_judgements_are_left_out_where_asked(tiny_recipe, cache, tmp_path):
    recipe = tiny_recipe.with_(makers=MAKERS)
    found = collections.load(ask(recipe, learn_from=str(tmp_path / "tiny"), use_judgements=False, cache=cache).folder)
    assert not {*found.queries()["id"][:]} & {*collections.load(tmp_path / "tiny").queries()["id"][:]}


def test_the_folder_says_what_it_is(bare, cache, tmp_path):
    (tmp_path / "bare" / "README.md").write_text("- Licence: CC0 1.0\n", encoding="utf-8")
    folder = asked_of(bare, cache).folder
    told = (folder / "README.md").read_text(encoding="utf-8")
    assert "trained on the queries of tiny" in told and "Licence: CC0 1.0" in told and str(tmp_path) not in told
    assert "trained on the queries of tiny" in collections.load(folder).info["questions"]
    assert json.loads((folder / "corpus.jsonl").read_text().splitlines()[5])["position"] == 1


def test_a_collection_without_training_queries_teaches_nobody(bare, cache):
    with pytest.raises(InputError, match="there is no split 'train'"):
        ask(bare, learn_from=bare.collection.name, cache=cache)
