"""Searching a collection: every system returns the right passages, indexes are built once, and a
record leads to its models.
"""

import io
import json
import os
import shutil
import sys
from pathlib import Path

import ir_measures
import pytest
import torch
from ir_measures import RR, nDCG
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification

from dr_book import search
from dr_book.commands import main, questions
from dr_book.corpus_study import study_name
from dr_book.export import export
from dr_book.hits import check_queries
from dr_lib import evaluation, lab
from dr_lib.errors import InputError
from dr_lib.files import json_digest
from dr_lib.lab.records import load_record
from dr_lib.models import CrossEncoder, CrossEncoderSettings
from dr_lib.stages import Cache
from dr_lib.tokens import load_tokenizer


def quiet() -> Cache:
    """The cache of this machine."""
    return Cache(announce=lambda line: None)


@pytest.fixture
def here(tmp_path, monkeypatch, finished):
    """The machine of this test: its own records and data, and the stages that all tests share."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "stages").symlink_to(finished)
    return tmp_path


@pytest.fixture
def run(here, own_recipe):
    """A finished run, with its record among this machine's records."""
    recipe = own_recipe.with_(objective="none")
    record = lab.execute(lab.Run("tests/search", "no pre-training", "smoke", recipe), quiet())
    return record, recipe, record.save(here / "cache" / "records" / "smoke")


@pytest.fixture
def scorer(run, here):
    """The folder of a re-ranker that was never trained."""
    tokenizer = load_tokenizer(run[1].base)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        num_labels=1,
    )
    model = CrossEncoder(
        BertForSequenceClassification(config), CrossEncoderSettings(length=32), tokenizer
    )
    model.save(here / "scorer")
    return here / "scorer"


def test_a_dense_system_ranks_as_the_run_did(run):
    record, recipe, _ = run
    collection = lab.open_sample(recipe.collection)
    searcher = search.open_searcher(
        collection, dense={"mine": lab.models_of(record)}, cache=quiet()
    )
    results = searcher.search(collection.queries("test")["text"][:], k=20)
    expected, ids = lab.ranking_of(record, quiet()), collection.passages["id"][:]
    assert len(results) == 6
    for result, rows in zip(results, expected.rows.tolist(), strict=True):
        assert [hit.id for hit in result.hits["mine"]] == [ids[row] for row in rows[:20]]
        assert [hit.rank for hit in result.hits["mine"]] == list(
            range(1, 21)
        ) and result.relevant == 1


def test_two_systems_are_fused_as_their_rankings_are(run):
    collection = lab.open_sample(run[1].collection)
    dense = {"mine": lab.models_of(run[0])}
    searcher = search.open_searcher(collection, dense=dense, fuse=True, cache=quiet())
    queries = collection.queries("test")["text"][:]
    one, other = (searcher.systems[name](queries, 100) for name in ("BM25", "mine"))
    found = searcher.systems["BM25 + mine, by rank"](queries, 7)
    assert found.rows.tolist() == evaluation.fuse(one, other, 7).rows.tolist()
    alone = search.open_searcher(collection, dense=dense, bm25=False, fuse=True, cache=quiet())
    assert list(alone.systems) == ["mine"]


def test_the_collection_of_a_run_has_its_rule_for_passages_that_are_the_query(run):
    record = run[0]
    kept = lab.open_sample(run[1].collection).with_own_passage("keep")
    changed = {
        "data": record.data | {"collection": record.searched_on | {"digest": kept.digest}},
        "recipe": record.recipe | {"evaluation": record.evaluation | {"own_passage": "keep"}},
    }
    made = record.model_copy(update=changed)
    assert search.collection_of(made, place=run[1].collection.name).digest == kept.digest


def test_a_model_that_pools_otherwise_has_vectors_of_its_own(run, tmp_path):
    collection, folder = lab.open_sample(run[1].collection), tmp_path / "other"
    shutil.copytree(lab.models_of(run[0])["retriever"], folder)
    (before,) = search.vectors_of(collection, folder)
    settings = folder / "dense.json"
    settings.write_text(settings.read_text().replace('"cls"', '"mean"'))
    (after,) = search.vectors_of(collection, folder)
    assert before.key != after.key


def test_indexes_are_made_once(run, here, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(here / "own"))
    collection, models, made = (
        lab.open_sample(run[1].collection),
        lab.models_of(run[0], Cache(here / "cache/stages")),
        [],
    )
    for _ in range(2):
        cache = quiet()
        search.open_searcher(collection, dense={"mine": models}, cache=cache)
        made.append([name.rsplit("-", 1)[0] for name in cache.built])
    assert made == [["bm25_index", "passage_tokens", "vectors"], []]


def test_judged_passages_are_known_by_the_text_of_the_query(run):
    collection = lab.open_sample(run[1].collection)
    searcher = search.open_searcher(collection, cache=quiet())
    query = collection.queries("train")[0]
    (judged,) = searcher.search([query["text"]], k=40)
    (relevant,) = (hit.id for hit in judged.hits["BM25"] if hit.grade)
    assert collection.qrels("train")[query["id"]] == {relevant: 1}
    assert searcher.search(["a question of my own"])[0].relevant is None


def test_a_re_ranker_orders_what_the_first_search_found(run, scorer):
    searcher = search.open_searcher(
        lab.open_sample(run[1].collection), reranker=scorer, cache=quiet()
    )
    (result,) = searcher.search(["dense retriever maps queries"], k=40)
    first, second = result.hits["BM25"], result.hits["BM25, re-ranked"]
    assert {hit.id for hit in first} == {hit.id for hit in second}
    assert [hit.score for hit in second] == sorted((hit.score for hit in second), reverse=True)
    assert [hit.id for hit in first] != [hit.id for hit in second]


@pytest.mark.parametrize(("query", "k", "problem"), [("  ", 5, "empty"), ("a", 0, "k is 0")])
def test_an_empty_question_is_refused(tiny_recipe, shared, query, k, problem):
    searcher = search.open_searcher(lab.open_sample(tiny_recipe.collection), cache=shared)
    with pytest.raises(InputError, match=problem):
        searcher.search([query], k)


def test_a_search_needs_a_system(tiny_recipe, shared):
    with pytest.raises(InputError, match="nothing to search with"):
        search.open_searcher(lab.open_sample(tiny_recipe.collection), bm25=False, cache=shared)


def test_the_command_line_answers_from_a_record(run, here, capsys, monkeypatch):
    monkeypatch.setenv("DR_DATA", str(here))  # a record has names, not paths
    monkeypatch.setattr(sys, "stdin", io.StringIO("dense retriever\n\nhard negatives\n"))
    assert main(["search", str(run[2]), "--json", "-k", "3"]) == 0
    lines = [
        json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")
    ]
    assert [line["query"] for line in lines] == ["dense retriever", "hard negatives"]
    assert (
        set(lines[0]["hits"]) == {"BM25", "no pre-training", "BM25 + no pre-training, by rank"}
        and len(lines[0]["hits"]["no pre-training"]) == 3
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert (
        main(["search", str(run[2])]) == 1
        and "standard input: no question" in capsys.readouterr().err
    )


def test_the_command_line_exports_by_the_names_of_a_study(run, here, capsys):
    to = here / "exported"
    assert main(["export", "--study", "tests/search", "--scale", "smoke", "--to", str(to)]) == 0
    text = (to / "README.md").read_text()
    assert "no pre-training: tests/search" in text and run[0].data["collection"]["digest"] in text
    assert (
        main(["search", run[1].collection.name, "dense vectors", "--model", str(to), "--no-bm25"])
        == 0
    )
    assert "exported" in capsys.readouterr().out


def test_exports_of_one_run_are_equal_byte_by_byte_fresh_and_read_back(run, here):
    sources = {"fresh": run[0], "again": run[0], "file": run[2], "read": load_record(run[2])}
    state = {}
    for name, source in sources.items():
        (folder,) = export(source, here / name / "exported")
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        state[name] = {path.relative_to(folder): path.read_bytes() for path in files}
    assert len(run[0].means) > 1 and all(files == state["fresh"] for files in state.values())


def test_a_run_and_its_judgements_leave_as_files_that_other_tools_measure_alike(
    run, here, capsys, monkeypatch
):
    monkeypatch.setenv("DR_DATA", str(here))
    record, file = run[0], here / "found.trec"
    assert main(["export", str(run[2]), "--run", "--to", str(file)]) == 0
    assert capsys.readouterr().out.split() == [str(file), f"{file}.qrels"]
    judged = list(ir_measures.read_trec_qrels(f"{file}.qrels"))
    found = ir_measures.calc_aggregate(
        [RR @ 10, nDCG @ 10], judged, ir_measures.read_trec_run(str(file))
    )
    ours = {
        str(one): record.means.get(name)
        for one, name in ((RR @ 10, "MRR@10"), (nDCG @ 10, "nDCG@10"))
    }
    ours = {name: value for name, value in ours.items() if value is not None}
    assert ours and {
        str(one): value for one, value in found.items() if str(one) in ours
    } == pytest.approx(ours, abs=1e-6)
    assert main(["export", str(run[2]), "--run", "--to", str(file)]) == 1
    assert "already exists" in capsys.readouterr().err


def test_what_was_searched_may_be_another_collection_than_what_was_trained_on(
    here, own_recipe, monkeypatch
):
    monkeypatch.setenv("DR_DATA", str(here))
    other = own_recipe.collection.model_dump() | {
        "passages": len(lab.open_sample(own_recipe.collection)) - 3
    }
    record = lab.execute(
        lab.Run("t", "x", "smoke", own_recipe.with_(objective="none", evaluation__on=other)),
        quiet(),
    )
    learned, searched = search.collection_of(record), search.collection_of(record, searched=True)
    assert (
        searched.digest
        == record.data["collection"]["digest"]
        != learned.digest
        == record.trained_on["digest"]
    )


def zeroed(folder):
    file = folder / "model.safetensors"
    zeros = {name: torch.zeros_like(tensor) for name, tensor in load_file(file).items()}
    save_file(zeros, file, {"format": "pt"})


def more_labels(folder):
    weights = load_file(file := folder / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        weights[name] = weights[name].repeat_interleave(3, 0)
    save_file(weights, file, {"format": "pt"})
    names = {"id2label": dict.fromkeys("012", "x"), "label2id": {"x": 0}}
    config = json.loads((folder / "config.json").read_text()) | names
    (folder / "config.json").write_text(json.dumps(config))


FAULTY = {
    "missing": (shutil.rmtree, "no such file or folder"),
    "empty": (lambda folder: [path.unlink() for path in folder.iterdir()], "neither cross_enc"),
    "an encoder": (
        lambda folder: (folder / "cross_encoder.json").rename(folder / "dense.json"),
        "neither cross_encoder.json nor late_interaction.json",
    ),
    "cut": (
        lambda folder: os.truncate(folder / "model.safetensors", 5000),
        "model.safetensors: cannot be loaded",
    ),
    "zeros": (zeroed, "gives all passages one score"),
    "labels": (more_labels, "config.json: names 3 labels, a re-ranker has one"),
}


def test_a_faulty_re_ranker_ends_in_one_line(run, scorer, here, capsys, monkeypatch):
    monkeypatch.setenv("DR_DATA", str(here))
    for kind, (change, said) in FAULTY.items():
        change(shutil.copytree(scorer, here / kind) and here / kind)
        arguments = [run[1].collection.name, "masks", "--reranker", str(here / kind)]
        assert main(["search", *arguments]) == 1, kind
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {here / kind}") and said in line, (kind, line)


@pytest.mark.parametrize("query", ["t\0i\0d\0e\0", "\x1b$B7n$O3$", "mar\udce9e"])
def test_a_question_in_another_encoding_is_refused(query):
    with pytest.raises(InputError, match="a question is not UTF-8"):
        check_queries(["tides", query], 1)


def test_a_mark_before_the_questions_is_no_part_of_the_first(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("\ufefftides\n\nsalt\n"))
    assert [*questions()] == ["tides", "salt"]


def test_mistakes_at_the_command_line_end_in_one_line_that_names_the_place(
    run, scorer, here, capsys, monkeypatch
):
    monkeypatch.setenv("DR_DATA", str(here))
    (here / "file").write_text("")
    collection = run[1].collection.name
    for arguments, said in (
        (["search", collection, "masks", "--model", scorer], "cannot search by itself"),
        (
            ["search", collection, "masks", "--model", here / "tiny"],
            "a folder with modules.json, dense.json",
        ),
        (
            ["search", here / "gone.json", "masks"],
            "gone.json: no such file or folder. Check the path",
        ),
        (
            ["export", "--study", "tests/none", "--to", here / "e"],
            "tests/none: no record of this study",
        ),
        (["export", run[2], "--to", here / "file" / "e"], "file"),
    ):
        assert main([str(one) for one in arguments]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and said in line


# From the command line ----------------------------------------------------------------------------


@pytest.fixture
def ask(here, capsys, monkeypatch):
    """A search's output as JSON: `ask("mine", "words of a question")`."""
    monkeypatch.setenv("DR_DATA", str(here))

    def search(source, query, *models):
        capsys.readouterr()
        named = [text for model in models for text in ("--model", str(model))]
        assert main(["search", str(source), query, *named, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return search


def test_a_record_whose_file_or_collection_has_changed_is_refused(run, here, ask, capsys):
    systems = {"BM25", "no pre-training", "BM25 + no pre-training, by rank"}
    assert set(ask(run[2], "dense retriever")["hits"]) == systems
    with (here / "tiny" / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "new", "text": "a dense retriever"}\n')
    assert main(["search", str(run[2]), "dense retriever"]) == 1
    assert "has changed since" in capsys.readouterr().err
    run[2].write_bytes(run[2].read_bytes()[:-40] + b"0" * 40)
    assert main(["search", str(run[2]), "dense retriever"]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_the_name_of_a_method_means_the_newest_record_of_it(run, here, ask):
    record, recipe, _ = run
    other = lab.execute(
        lab.Run("tests/search", "no pre-training", "smoke", recipe.with_(seed=7, objective="none")),
        quiet(),
    )
    study, folder = study_name(lab.open_sample(recipe.collection)), lab.live_folder("laptop")

    def save(made, created):
        made.model_copy(update={"study": study, "label": "none", "created": created}).save(folder)

    save(record, "2026-01-01T00:00:00+00:00")
    first = ask("tiny", "dense retriever", Path("none"))
    save(other, "2026-01-02T00:00:00+00:00")
    second = ask("tiny", "dense retriever", Path("none"))
    assert second["hits"]["BM25"] == first["hits"]["BM25"]
    assert second["hits"]["no pre-training"] != first["hits"]["no pre-training"]
    save(record, "2026-01-03T00:00:00+00:00")  # of a lower seed, and so before the other in order
    assert ask("tiny", "dense retriever", Path("none"))["hits"] == first["hits"]


def test_a_record_with_a_re_ranker_is_searched_with_it(tiny_recipe, shared, here, ask):
    recipe = tiny_recipe.with_(objective="none", final="reranker")
    shutil.copytree(tiny_recipe.collection.name, here / "tiny")
    path = lab.execute(lab.Run("t", "row", "smoke", recipe), quiet()).save(here)
    systems = ["BM25", "row", "BM25, re-ranked", "row, re-ranked"]
    assert list(ask(path, "dense retriever")["hits"]) == systems


def test_without_a_question_a_person_is_asked_until_an_empty_line(run, here, capsys, monkeypatch):
    monkeypatch.setenv("DR_DATA", str(here))
    answers = iter(["dense retriever", "the encoder", ""])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
    assert main(["search", "tiny", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["query"] for line in lines] == ["dense retriever", "the encoder"]


# From a record to its models ----------------------------------------------------------------------


def test_a_record_leads_to_every_model_it_ended_with(tiny_recipe, shared):
    recipe = tiny_recipe.with_(objective="none", final="reranker", finetuning__shared=False)
    record = lab.execute(lab.Run("t", "row", "smoke", recipe), shared)
    models, plan = lab.models_of(record, shared), lab.pipeline(recipe)
    assert set(models) == {"query-encoder", "passage-encoder", "re-ranker"}
    assert (
        models["query-encoder"].parent
        == models["passage-encoder"].parent
        == shared.folder(plan.retriever)
    )
    assert models["re-ranker"].parent == shared.folder(plan.reranker)


def test_a_record_whose_stages_are_gone_or_altered_says_so(run, here):
    with pytest.raises(InputError, match="is not in"):
        lab.models_of(run[0], Cache(here / "elsewhere"))
    with pytest.raises(InputError, match=r"no stage 'pretrained'.*It has: .*retriever"):
        lab.stage_folder(run[0], "pretrained")
    copy = Cache(here / "copy")
    shutil.copytree(
        lab.stage_folder(run[0], "retriever"),
        copy.root / f"retriever-{run[0].keys['retriever'][:16]}",
    )
    (file,) = copy.root.glob("*/model/model.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"model\.safetensors"):
        lab.models_of(run[0], copy)


def test_a_collection_that_has_changed_is_not_searched_under_a_record(run):
    record, recipe, _ = run
    changed = record.model_copy(
        update={"data": {**record.data, "collection": {"name": "tiny", "digest": "0" * 64}}}
    )
    changed.recipe["collection"]["name"] = recipe.collection.name
    with pytest.raises(InputError, match="has changed since"):
        search.collection_of(changed)


def test_a_collection_that_is_not_found_by_its_name_says_where_to_stand(run, monkeypatch, tmp_path):
    record, recipe, _ = run
    monkeypatch.delenv("DR_DATA", raising=False)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    moved = record.model_copy(deep=True)
    moved.recipe["collection"]["name"] = "tiny"
    with pytest.raises(InputError, match=r"'tiny'.*folder above it, or set DR_DATA") as caught:
        search.collection_of(moved)
    assert caught.value.where == moved.name
    monkeypatch.chdir(Path(recipe.collection.name).parent)
    assert search.collection_of(moved).digest == record.data["collection"]["digest"]


def test_a_collection_is_found_in_the_folder_that_a_notebook_was_given(run):
    record, recipe, _ = run
    found = search.collection_of(record, place=recipe.collection.name)
    assert found.digest == record.data["collection"]["digest"]


def test_the_newest_run_of_the_lowest_seed_is_found(run):
    record = run[0]
    for seed, created, key in [(0, "2099-01-01", "a" * 64), (1, "2100-01-01", "b" * 64)]:
        recipe = record.recipe | {"seed": seed}
        changed = {
            "seed": seed,
            "recipe": recipe,
            "recipe_digest": json_digest(recipe),
            "created": created,
        }
        changed["keys"] = record.keys | {"evaluation": key}
        record.model_copy(update=changed).save(lab.live_folder("laptop"))
    record.save(lab.live_folder("laptop"))
    assert search.find_record("tests/search").created == "2099-01-01"
    assert search.find_record("tests/search", seed=1).created == "2100-01-01"


def test_labels_to_choose_from_are_named(run):
    with pytest.raises(InputError, match="'no pre-training'"):
        search.find_record("tests/search", "other", scale="smoke")


def test_models_of_one_name_are_told_apart(run, here):
    places = [here / name for name in ("a/model", "b/model", "BM25")]
    for place in places:
        shutil.copytree(lab.models_of(run[0])["retriever"], place)
    found = search.searcher_for(run[1].collection.name, places)
    names = ["model", f"model ({places[1]})", f"BM25 ({places[2]})"]
    fused = [f"BM25 + {name}, by rank" for name in names]
    assert list(found.systems) == ["BM25", *names, *fused]


def test_two_exported_encoders_are_opened_by_the_folder_that_holds_both(run, here):
    models = {kind: here / "both" / kind for kind in ("query-encoder", "passage-encoder")}
    for place in models.values():
        shutil.copytree(lab.models_of(run[0])["retriever"], place)
    assert search.open_models(here / "both") == (models, None)
    shutil.rmtree(models["query-encoder"])
    with pytest.raises(InputError, match=r"a folder with modules\.json, dense"):
        search.open_models(here / "both")
