"""`ir_datasets` ids become collections: tested with small data sets registered from local files,
without a network.
"""

from collections.abc import Iterator
from itertools import count
from multiprocessing.reduction import ForkingPickler
from typing import NamedTuple

import ir_datasets
import numpy as np
import pytest
from ir_datasets.datasets.base import Dataset
from ir_datasets.formats import BaseDocs, TrecQrels, TsvDocs, TsvQueries
from ir_datasets.util import LocalDownload

from dr_lib import collections, evaluation, lab
from dr_lib.errors import InputError
from dr_lib.evaluation import evaluate_split
from dr_lib.retrieval import Bm25, Ranking

NUMBERS = count()


@pytest.fixture
def registered(tmp_path) -> str:
    """A data set with the structure of msmarco-passage: passages at the top, queries and judgements
    in sub-ids.
    """
    name = f"toy-passage-{next(NUMBERS)}"

    def local(path: str, text: str) -> LocalDownload:
        (tmp_path / path).write_text(text, encoding="utf-8")
        return LocalDownload(tmp_path / path)

    docs = TsvDocs(local("docs.tsv", "7\tAir flows.\n8\tHeat passes.\n9\tAir flows.\n10\t\n"))
    train = TsvQueries(local("train.tsv", "1\twhat flows\n5\twhat is passed\n"))
    small = TsvQueries(
        local("small.tsv", "2\twhat passes\n3\twhat is judged twice\n4\tnot judged\n")
    )
    judged = TrecQrels(local("train.qrels", "1 0 7 1\n5 0 8 1\n"), {})
    graded = TrecQrels(local("small.qrels", "2 0 8 3\n3 0 9 0\n3 0 404 2\n"), {})
    ir_datasets.registry.register(name, Dataset(docs))
    ir_datasets.registry.register(f"{name}/train", Dataset(docs, train, judged))
    ir_datasets.registry.register(f"{name}/dev/small", Dataset(docs, small, graded))
    ir_datasets.registry.register(f"{name}/eval", Dataset(docs, small))
    return name


def test_sub_ids_with_judgements_are_the_splits(registered, cache):
    collection = collections.load(f"ir_datasets:{registered}", cache=cache)
    assert collection.splits == ("train", "dev/small")
    assert collection.qrels("train") == {"1": {"7": 1}, "5": {"8": 1}}
    assert collection.queries("dev/small")["id"][:] == ["2", "3"]
    assert collection.queries()["id"][:] == ["1", "5", "2", "3", "4"]


def test_what_is_tested_is_left_out_of_train_where_both_are_read(registered, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    (tmp_path / "small.tsv").write_text("2\t What  FLOWS\n3\twhat is judged twice\n")
    keys = {"split": "dev/small", "measures": ["MRR@10"]}
    recipe = lab.Recipe(collection=f"ir_datasets:{registered}", evaluation=keys)
    untrained = lab.Inputs(recipe.with_(evaluation__kind="bm25")).collection
    assert not untrained._asked  # without training, no training queries are read
    inputs = lab.Inputs(recipe)
    assert inputs.collection is inputs.searched and [*inputs.collection.qrels("train")] == ["5"]
    assert [*inputs.searched.qrels("dev/small")] == ["2", "3"]
    told = "training queries that are asked in dev or test too, left out of train"
    assert inputs.collection.irregular[told] == 1


def test_a_sub_id_gives_its_split_alone_over_all_passages(registered, cache):
    collection = collections.load(f"ir_datasets:{registered}/dev/small", cache=cache)
    assert collection.splits == ("dev/small",) and collection.passages["id"][:] == ["7", "8", "9"]


def test_defects_of_published_data_are_left_out_and_counted(registered, cache):
    collection = collections.load(f"ir_datasets:{registered}", cache=cache)
    for split in collection.splits:
        collection.qrels(split)
    counts = collection.info["counts"]
    assert (
        counts["empty_passage_left_out"],
        counts["duplicate_texts"],
        counts["judgements_of_absent_passages"],
    ) == (1, 1, 1)
    # a passage that cannot be found stays judged: recall refers to all judgements
    assert collection.qrels("dev/small") == {"2": {"8": 3}, "3": {"9": 0, "404": 2}}
    ranking = Ranking(["2", "3"], np.array([[1], [2]]), np.ones((2, 1)))
    scores = evaluate_split(ranking, collection, "dev/small", ["R@1", "nDCG@10"])
    assert scores.per_query("R@1").tolist() == [1, 0]
    shown = collection._repr_html_()
    assert "passages without title and text, left out</th><td>1<" in shown
    assert "judgements of passages that are not there, counted as not found</th><td>1<" in shown
    # and so in a sample
    assert collection.sample(train_queries=1).qrels("dev/small") == collection.qrels("dev/small")


def test_a_published_passage_with_a_title_alone_is_a_passage(tmp_path, cache, registered):
    class Titles(Pieces):
        def docs_iter(self) -> Iterator[Piece]:
            yield Piece("a", "", "Remdesivir in adults", "")
            yield Piece("b", " ", "", "")

    name = f"{registered}-titles"
    path = tmp_path / "titles.qrels"
    path.write_text("1 0 a 2\n", encoding="utf-8")
    queries = tmp_path / "titles.tsv"
    queries.write_text("1\tremdesivir\n", encoding="utf-8")
    parts = TsvQueries(LocalDownload(queries)), TrecQrels(LocalDownload(path), {})
    ir_datasets.registry.register(name, Dataset(Titles(), *parts))
    collection = collections.load(f"ir_datasets:{name}", cache=cache)
    assert collection.passages["id"][:] == ["a"] and collection.qrels("test") == {"1": {"a": 2}}
    ranking = Bm25.build(collection.passages).search(["remdesivir"], 1)
    assert ranking.rows.tolist() == [[0]]


def test_version_of_the_library_is_kept(registered, cache):
    info = collections.load(f"ir_datasets:{registered}", cache=cache).info
    assert info["versions"] == {"ir_datasets": ir_datasets.__version__}


class Piece(NamedTuple):
    doc_id: str
    text: str
    title: str
    parent_doc_id: str


class Pieces(BaseDocs):
    """Passages with the id of their document."""

    def docs_iter(self) -> Iterator[Piece]:
        yield Piece("a", "One.", "Top", "page")
        yield Piece("b", "Two.", "Top", "page")
        yield Piece("c", "Three.", "Other", "leaf")

    def docs_cls(self) -> type:
        return Piece


def test_title_document_and_position_are_taken_over(cache):
    name = f"toy-pieces-{next(NUMBERS)}"
    ir_datasets.registry.register(name, Dataset(Pieces()))
    rows = collections.load(f"ir_datasets:{name}", cache=cache).passages
    assert [(row["id"], row["title"], row["doc"], row["position"]) for row in rows] == [
        ("a", "Top", "page", 0), ("b", "Top", "page", 1), ("c", "Other", "leaf", 0),
    ]  # fmt: skip


def test_an_id_with_passages_and_judgements_of_its_own_has_a_test_split(tmp_path, cache):
    paths = [tmp_path / name for name in ("docs.tsv", "queries.tsv", "qrels")]
    for path, text in zip(paths, ("1\tOne.\n", "1\tone\n", "1 0 1 1\n"), strict=True):
        path.write_text(text, encoding="utf-8")
    name = f"toy-whole-{next(NUMBERS)}"
    ir_datasets.registry.register(name, ir_datasets.create_dataset(*map(str, paths)))
    assert collections.load(f"ir_datasets:{name}", cache=cache).qrels("test") == {"1": {"1": 1}}


def test_one_query_id_with_two_texts_is_refused(registered, tmp_path, cache):
    (tmp_path / "other.tsv").write_text("1\tsomething else\n", encoding="utf-8")
    base = ir_datasets.load(f"{registered}/train")
    other = Dataset(
        base.docs_handler(), TsvQueries(LocalDownload(tmp_path / "other.tsv")), base.qrels_handler()
    )
    ir_datasets.registry.register(f"{registered}/other", other)
    with pytest.raises(InputError, match="query id '1' has another text"):
        collections.load(f"ir_datasets:{registered}", cache=cache).queries()


def test_unknown_id_offers_near_names(cache):
    with pytest.raises(InputError, match=r"has no 'msmarco-pasage'.*ir_datasets:msmarco-passage"):
        collections.load("ir_datasets:msmarco-pasage", cache=cache)


def test_real_ids_have_the_splits_the_book_names():
    from dr_lib.collections.published import source

    splits = source("msmarco-passage").parts
    assert {"train", "dev/small", "trec-dl-2019/judged", "trec-dl-2020/judged"} <= set(splits)
    assert set(source("beir/scifact").parts) == {"train", "test"}
    assert set(source("beir/nq").parts) == {"test"}


def test_failed_download_says_what_to_do_and_leaves_nothing(tmp_path, cache):
    name = f"toy-missing-{next(NUMBERS)}"
    ir_datasets.registry.register(name, Dataset(TsvDocs(LocalDownload(tmp_path / "nowhere.tsv"))))
    with pytest.raises(InputError, match=r"could not be had \(FileNotFoundError.*IR_DATASETS_HOME"):
        collections.load(f"ir_datasets:{name}", cache=cache)
    assert not [path for path in cache.iterdir() if path.name != "locks"]


@pytest.fixture
def out_of_reach(registered, tmp_path) -> str:
    """The same data set with a further split whose mirror is dead."""
    base = ir_datasets.load(f"{registered}/train")
    lost = TrecQrels(LocalDownload(tmp_path / "nowhere.qrels"), {})
    split = Dataset(base.docs_handler(), base.queries_handler(), lost)
    ir_datasets.registry.register(f"{registered}/hard", split)
    return f"ir_datasets:{registered}"


def test_a_split_is_read_when_it_is_first_asked_for(out_of_reach, cache):
    collection = collections.load(out_of_reach, cache=cache)
    assert collection.splits == ("train", "dev/small", "hard")
    read = [path.name for path in cache.iterdir() if path.name.startswith("split_files")]
    assert read == [] and "queries, hard</th><td>not read yet" in collection._repr_html_()
    assert collection.qrels("train") == {"1": {"7": 1}, "5": {"8": 1}}
    assert collection.only("train", "dev/small").queries("dev/small")["id"][:] == ["2", "3"]
    with pytest.raises(InputError, match="hard: its files could not be had"):
        collection.qrels("hard")
    with pytest.raises(InputError, match=r"no split 'eval'.*train, dev/small, hard"):
        collection.qrels("eval")
    again = collections.load(out_of_reach, cache=cache)
    assert again.digest == collection.digest and again.qrels("dev/small")["2"] == {"8": 3}


def test_a_stage_is_keyed_by_the_split_it_reads_and_not_by_the_others(out_of_reach, cache):
    collection = collections.load(out_of_reach, cache=cache)
    alone = collections.load(f"{out_of_reach}/train", cache=cache)
    assert alone.only("train").digest == collection.only("train").digest
    assert alone.only().digest == collection.only().digest == collection.passages_digest


def test_a_recipe_names_its_splits(out_of_reach, cache, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(cache))
    named = {"train": "train", "test": "dev/small"}
    collection = collections.load(out_of_reach, cache=cache, splits=named)
    assert collection.splits == ("train", "test") and collection.qrels("test")["2"] == {"8": 3}
    assert collection.sample(train_queries=1).splits == ("train", "test")
    recipe = lab.Recipe(collection={"name": out_of_reach, "splits": named}, final="retriever1")
    assert lab.Inputs(recipe).collection.queries("test")["id"][:] == ["2", "3"]
    assert recipe.portable()["collection"]["splits"] == named
    assert "splits" not in lab.Recipe().portable()["collection"]
    with pytest.raises(InputError, match=r"no split 'dev'.*train, dev/small, hard"):
        collections.load(out_of_reach, cache=cache, splits={"dev": "dev"})


def test_a_recipe_with_named_splits_trains_and_is_evaluated(
    registered, cache, monkeypatch, tiny_recipe
):
    monkeypatch.setenv("DR_CACHE", str(cache))
    splits = {"train": "train", "test": "dev/small"}
    recipe = tiny_recipe.with_(
        collection={"name": f"ir_datasets:{registered}", "splits": splits},
        objective="none",
        final="retriever1",
        finetuning__batch_queries=2,
        finetuning__negatives=1,
        evaluation__depth=2,
        evaluation__measures=["R@2"],
    )
    end = lab.Cache(cache).get(lab.pipeline(recipe).end)
    assert evaluation.Scores.load(end / "scores.json").query_ids == ["2", "3"]
    corpus = ForkingPickler.loads(ForkingPickler.dumps(lab.Inputs(recipe).collection))
    assert corpus.qrels("train")["1"] == {"7": 1}


def test_splits_of_a_folder_are_named_the_same_way(cache):
    renamed = collections.load("primer", cache=cache, splits={"held out": "test"})
    whole = collections.load("primer", cache=cache)
    assert renamed.splits == ("held out",) and renamed.qrels("held out") == whole.qrels("test")


def test_what_cannot_be_had_is_told_before_anything_is_read(out_of_reach, cache, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(cache))
    names = {"train": "hard", "test": "dev/small"}
    recipe = lab.Recipe(collection={"name": out_of_reach, "splits": names})
    with pytest.raises(InputError, match=r"split train cannot be had: .*IR_DATASETS_HOME"):
        lab.Inputs(recipe)
    assert not cache.exists() or not list(cache.rglob("*.arrow"))


def test_a_missing_package_of_a_format_is_named(registered, monkeypatch):
    from dr_lib.collections import published

    def lost(dataset):
        raise ImportError("This dataset requires ijson. Run 'pip install ir_datasets[ijson]'")
        yield

    monkeypatch.setattr(published, "_judgements", lost)
    part = published.source(registered).parts["train"]
    with pytest.raises(InputError, match=r"ir_datasets\[ijson\]"):
        list(part.judgements["train"]())


def test_natural_questions_of_dpr_have_the_splits_the_book_names():
    from dr_lib.collections.published import source

    found = source("dpr-w100").named(
        {"train": "natural-questions/train", "dev": "natural-questions/dev"}
    )
    assert [part.name for part in found.parts.values()] == [
        "ir_datasets:dpr-w100/natural-questions/train",
        "ir_datasets:dpr-w100/natural-questions/dev",
    ]
