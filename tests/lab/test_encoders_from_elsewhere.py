"""Encoders from elsewhere: a ready-made one and a fusion with BM25 as rows of a study, without
training; and training that starts from a sentence-transformers model.
"""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from dr_book.commands import main
from dr_book.export import save_for_others
from dr_book.own_corpus import trained_by
from dr_book.search import open_searcher, searcher_for
from dr_lib import places, retrieval
from dr_lib.errors import InputError
from dr_lib.evaluation import fuse
from dr_lib.lab import (
    Run,
    Study,
    execute,
    models_of,
    open_checkpoint,
    open_sample,
    pipeline,
    ranking_of,
    zero_shot,
)
from dr_lib.lab.inputs import encoding_work, model_digest
from dr_lib.lab.trainings import vectors
from dr_lib.models import DenseEncoder, SentenceEncoder, load_masked_lm, save_masked_lm


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
        "t", recipes, scale="laptop", cache=cache, records=tmp_path / "records", **options
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


def test_what_a_given_encoder_costs_is_told_beforehand(own_recipe, folder):
    """As much as the same model trained here; 0 if its size is unknown."""
    given = own_recipe.with_(retriever=str(folder))
    plan = pipeline(given)
    shape = open_checkpoint(str(folder)).shape
    (shard,) = (stage for stage in plan.end.walk() if stage.kind == "given_vectors")
    passages = len(plan.inputs.collection)
    assert shard.cost == passages * shape.encoding(given.passage_length) > 0
    (folder / "config.json").write_text("{}")
    assert encoding_work(retrieval.given(folder), 64) == 0


def test_prompts_of_a_recipe_are_read_keyed_recorded_and_shown(
    own_recipe, folder, cache, tmp_path, monkeypatch, capsys
):
    from sentence_transformers import SentenceTransformer

    monkeypatch.setattr("dr_lib.training.machine.has_bf16", lambda where: False)
    stated = {"query": "masked ", "passage": "words "}
    plain = own_recipe.with_(retriever=str(folder))
    rows = {"plain": plain, "prompted": plain.with_(prompts=stated)}
    records = {label: own[0] for label, own in run(rows, cache, tmp_path).runs().items()}
    assert records["prompted"].data["retriever"]["prompts"] == stated
    assert records["prompted"].recipe["prompts"] == stated
    assert "prompts" not in records["plain"].data["retriever"]
    assert records["plain"].keys["run"] != records["prompted"].keys["run"]
    collection = open_sample(own_recipe.collection)
    passages, queries = collection.passages, collection.queries("test")
    whole = [f"{p['title']} {p['text']}".strip() for p in passages]
    model = SentenceTransformer(str(folder), device="cpu")
    found = model.encode(whole, prompt=stated["passage"], normalize_embeddings=True)
    asked = model.encode(queries["text"][:], prompt=stated["query"], normalize_embeddings=True)
    ranking = ranking_of(records["prompted"], cache)
    expected = -np.sort(-(asked @ found.T))[:, :10]
    np.testing.assert_allclose(ranking.scores[:, :10], expected, atol=1e-5)
    shown = {label: trained_by(record) for label, record in records.items()}
    assert shown["plain"] == "others; prompts: none"
    # no line ends within a prompt
    assert shown["prompted"] == "others; prompts: query\xa0'masked\xa0', passage\xa0'words\xa0'"

    # the same words on the command line, for the encoder before them
    command = ["search", own_recipe.collection.name, queries["text"][0], "--no-bm25", "--json"]
    command += ["--model", str(folder)]
    scores, _ = [], capsys.readouterr()
    for more in ([], ["--prompts", "masked ", "words "]):
        assert main([*command, *more]) == 0
        scores.append(json.loads(capsys.readouterr().out)["hits"]["given"][0]["score"])
    assert scores[1] == pytest.approx(ranking.scores[0, 0], abs=1e-4) != scores[0]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--prompts", "a", "b"], "name the encoder before it"),
        (
            ["--model", "simlm", "--prompts", "a", "b"],
            "simlm: has prompts, but is not an encoder here",
        ),
    ],
)
def test_prompts_without_an_encoder_are_refused(own_recipe, capsys, more, problem):
    with suppress(SystemExit):
        assert main(["search", own_recipe.collection.name, "tides", *more]) == 1
    assert problem in capsys.readouterr().err
    with pytest.raises(InputError, match="prompts are for a given retriever"):
        own_recipe.with_(prompts={"query": "a"})
    with pytest.raises(InputError, match="Valid keys here: query, passage"):
        own_recipe.with_(retriever="x/y", prompts={"queries": "a"})


def test_a_collection_with_test_queries_alone_will_do(own_recipe, folder, cache, tmp_path):
    for split in ("train", "dev"):
        (tmp_path / "tiny" / "qrels" / f"{split}.tsv").unlink()
    given, options = (
        own_recipe.with_(retriever=str(folder)),
        {"cache": cache, "records": tmp_path / "r"},
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
    assert places.find_model("sentence-transformers/all-MiniLM-L6-v2") == package / "model"
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


@pytest.fixture
def encoder(tmp_path, tiny_bert, tiny_tokenizer):
    """A sentence-transformers folder: a BERT without head, mean pooling, normalised."""
    folder = tmp_path / "encoder"
    tiny_bert().bert.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"pooling_mode_mean_tokens": True})
    )
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in kinds.items()
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


@pytest.fixture
def texts(tmp_path):
    """A folder with two text files."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text(f"Some words of text {name}.\n")
    return folder


def test_a_fresh_head_is_drawn_and_the_encoder_kept(encoder, shared):
    found = open_checkpoint(str(encoder))
    assert found.pooling == "mean" and found.fresh_head and found.name == "encoder"
    folder = shared.get(found.model.stage) / "model"
    headed, plain = load_masked_lm(folder), DenseEncoder.from_pretrained(encoder).encoder
    for name, weight in plain.named_parameters():
        if "pooler" not in name:
            assert torch.equal(weight, headed.base_model.get_parameter(name)), name
    assert headed.cls.predictions.transform.dense.weight.std() > 0


def test_weights_in_several_files_are_the_same_start(encoder, tiny_bert, shared):
    whole = load_masked_lm(shared.get(open_checkpoint(str(encoder)).model.stage) / "model")
    (encoder / "model.safetensors").unlink()
    tiny_bert().bert.save_pretrained(encoder, max_shard_size="20KB")
    assert len([*encoder.glob("model-*.safetensors")]) > 1
    found = open_checkpoint(str(encoder))
    assert found.fresh_head
    parts = load_masked_lm(shared.get(found.model.stage) / "model")
    for name, weight in whole.named_parameters():
        assert torch.equal(weight, parts.get_parameter(name)), name


def test_a_projection_that_a_training_would_lose_is_refused(encoder):
    modules = json.loads((encoder / "modules.json").read_text())
    kinds = {"2_Normalize": "Normalize", "3_Dense": "Dense"}
    for path, kind in kinds.items():
        modules.append({"path": path, "type": f"sentence_transformers.models.{kind}"})
        (encoder / path).mkdir()
        (encoder / path / "config.json").write_text("{}")
    (encoder / "modules.json").write_text(json.dumps(modules[:3]))
    assert open_checkpoint(str(encoder)).pooling == "mean"
    (encoder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match="has a module Dense, which trainings from it would"):
        open_checkpoint(str(encoder))


def test_every_file_that_decides_how_it_encodes_is_in_its_digest(encoder):
    digests = [model_digest(encoder)]
    for name in (
        "extra.safetensors",
        "model-00001-of-00002.safetensors",
        "model.safetensors",
        "README.md",
    ):
        (encoder / name).write_bytes(b"other")
        digests.append(model_digest(encoder))
    assert len({*digests[:4]}) == 4 and digests[4] == digests[3]


@pytest.mark.parametrize("objective", ["none", "mlm", "retromae"])
def test_it_is_trained_with_its_own_pooling(encoder, tiny_recipe, shared, objective):
    recipe = tiny_recipe.with_(base=str(encoder), pooling="mean", objective=objective)
    record = execute(Run("t", objective, "smoke", recipe), shared)
    assert (
        record.recipe["pooling"] == "mean"
        and record.data["base"]["name"] == "encoder"
        and 0 <= record.means["MRR@10"] <= 1
    )


def test_another_pooling_and_a_method_that_needs_a_trained_head_are_refused(encoder, tiny_recipe):
    start = tiny_recipe.with_(base=str(encoder), objective="none")
    with pytest.raises(InputError, match=r"pooling: encoder makes its vectors by 'mean'"):
        pipeline(start)
    with pytest.raises(
        InputError,
        match="simlm replaces words by the guesses of a masked LM, and encoder came without",
    ):
        pipeline(start.with_(pooling="mean", objective="simlm"))
    assert (
        pipeline(
            start.with_(pooling="mean", objective="simlm", generator=tiny_recipe.base)
        ).pretrained.kind
        == "pretrained"
    )


def test_an_unknown_name_is_refused_before_a_hub_is_asked_for_long(monkeypatch):
    with pytest.raises(InputError, match="no such model here, and none fetched before"):
        open_checkpoint("nobody/nothing")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}, "cannot be used"),
        ({"model_type": "resnet"}, "no attribute"),
        (["not", "a", "configuration"], "config.json: is no JSON object"),
        ("{", "not valid JSON"),
    ],
)
def test_a_base_whose_configuration_is_no_encoders_ends_in_one_line(
    config, problem, tiny_tokenizer, texts, tmp_path, capsys
):
    base, proof = tmp_path / "base", tmp_path / "proof"
    tiny_tokenizer.save_pretrained(base)
    (base / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    (base / "evil.py").write_text(
        f"import pathlib\npathlib.Path({str(proof)!r}).write_text('ran')\n"
    )
    told = [
        "pretrain",
        str(texts),
        "--base",
        str(base),
        "--objective",
        "mlm",
        "--steps",
        "2",
        "--to",
        str(tmp_path / "out"),
    ]
    assert main(told) == 1
    error = capsys.readouterr().err
    assert (
        error.startswith("error: ")
        and error.count("\n") == 1
        and str(base) in error
        and problem in error
    )
    assert not proof.exists()
