"""A given encoder and a fusion with BM25 as rows of a study: nothing is trained, and the record
says what was used.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from dr_book.export import save_for_others
from dr_book.search import open_searcher, searcher_for
from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.evaluation import fuse
from dr_lib.lab import Study, models_of, open_sample, pipeline, ranking_of, zero_shot
from dr_lib.lab.trainings import vectors
from dr_lib.models import DenseEncoder, SentenceEncoder, save_masked_lm


@pytest.fixture
def folder(tmp_path, tiny_bert, tiny_tokenizer):
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "lm")
    encoder = DenseEncoder.from_pretrained(
        tmp_path / "lm", pooling="mean", passage_length=24, title="none"
    )
    save_for_others(encoder, tmp_path / "given")
    (tmp_path / "given" / "dense.json").unlink()
    return tmp_path / "given"


def run(recipes, cache, tmp_path, **options):
    return Study(
        "t",
        recipes,
        scale="laptop",
        cache=cache,
        records=tmp_path / "records",
        progress=False,
        **options,
    ).run()


def test_a_given_encoder_and_its_fusions_are_rows_of_a_study(own_recipe, folder, cache, tmp_path):
    given = own_recipe.with_(retriever=str(folder))
    recipes = {"BM25": given.with_(evaluation__kind="bm25"), "given": given}
    recipes |= {by: given.with_(evaluation__fusion=by) for by in ("rank", "weight")}
    records = {label: own[0] for label, own in run(recipes, cache, tmp_path).runs().items()}
    found = {
        label: ranking_of(record, cache) for label, record in records.items() if label != "BM25"
    }
    passages, queries = (
        open_sample(given.collection).passages,
        open_sample(given.collection).queries("test"),
    )
    encoder = SentenceEncoder(folder)
    scores = (
        encoder.encode(queries["text"][:], queries=True)
        @ encoder.encode(passages["text"][:], passages["title"][:]).T
    )
    np.testing.assert_array_equal(found["given"].rows[:, 0], scores.argmax(1))
    bm25 = ranking_of(
        records["BM25"].model_copy(update={"keys": {"run": records["BM25"].keys["bm25_run"]}}),
        cache,
    )
    np.testing.assert_array_equal(found["rank"].rows, fuse(bm25, found["given"], 50).rows)
    made = {name.split("-")[0] for name in cache.built}
    assert made == {"bm25_index", "bm25_run", "given_vectors", "given_run", "fused", "scores"}
    assert (
        records["given"].recipe["retriever"]
        == "given"
        == records["given"].data["retriever"]["name"]
    )
    assert records["given"].keys.keys() == {"run", "given_vectors", "evaluation"}
    assert "base" not in records["given"].data


def test_a_given_encoder_reads_titles_where_the_other_rows_do(own_recipe, folder, cache):
    passages, encoder = open_sample(own_recipe.collection).passages, SentenceEncoder(folder)
    for title, titles in (("pair", passages["title"][:]), ("none", None)):
        plan = pipeline(own_recipe.with_(retriever=str(folder), title=title))
        (made,) = (
            np.load(cache.get(one) / "vectors.npy") for one in vectors(plan.inputs, plan.retriever)
        )
        np.testing.assert_allclose(made, encoder.encode(passages["text"][:], titles), atol=1e-5)


def test_what_does_not_fit_a_given_retriever_is_refused(own_recipe, folder, cache, tmp_path):
    with pytest.raises(InputError, match="a given retriever"):
        own_recipe.with_(retriever=str(folder), final="reranker")
    fused = own_recipe.with_(
        retriever=str(folder), evaluation__fusion="weight", evaluation__split="dev"
    )
    with pytest.raises(InputError, match='Fuse by "rank"'):
        run({"fused": fused}, cache, tmp_path)
    (tmp_path / "tiny" / "qrels" / "dev.tsv").unlink()
    with pytest.raises(InputError, match="dev"):
        run({"fused": fused.with_(evaluation__split="test")}, cache, tmp_path)
    with pytest.raises(InputError, match="no such model here"):
        run({"given": own_recipe.with_(retriever="nobody/has-this")}, cache, tmp_path)


def test_a_collection_with_test_queries_alone_will_do(own_recipe, folder, cache, tmp_path):
    for split in ("train", "dev"):
        (tmp_path / "tiny" / "qrels" / f"{split}.tsv").unlink()
    given, options = (
        own_recipe.with_(retriever=str(folder)),
        {"cache": cache, "records": tmp_path / "r", "progress": False},
    )
    found = zero_shot(
        {"given": given}, {"tiny": str(tmp_path / "tiny")}, bm25=False, scale="laptop", **options
    ).by_collection()
    assert [record.label for record in found["tiny"]["given"]] == ["given"]


def test_search_takes_a_given_encoder_by_folder_and_by_name_of_its_package(
    own_recipe, folder, cache, tmp_path, monkeypatch
):
    package = tmp_path / "site" / "packaged_encoder"
    shutil.copytree(folder, package / "model")
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setitem(places.PACKAGED, "all-MiniLM-L6-v2", "packaged_encoder")
    assert places.find_encoder("sentence-transformers/all-MiniLM-L6-v2") == package / "model"
    collection = open_sample(own_recipe.collection)
    searcher = open_searcher(collection, bm25=False, dense={"given": folder}, cache=cache)
    text = collection.passages[7]["text"]
    (expected,) = searcher.search([text], k=3)
    named = searcher_for(own_recipe.collection.name, [Path("all-MiniLM-L6-v2")], bm25=False)
    (answer,) = named.search([text], k=3)
    assert list(answer.hits) == ["all-MiniLM-L6-v2"]
    assert [hit.id for hit in answer.hits["all-MiniLM-L6-v2"]] == [
        hit.id for hit in expected.hits["given"]
    ]
    records = run({"given": own_recipe.with_(retriever="all-MiniLM-L6-v2")}, cache, tmp_path).runs()
    assert models_of(records["given"][0]) == {"retriever": package / "model"}
