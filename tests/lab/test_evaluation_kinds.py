"""Kinds of evaluation: search, BM25, similarities, checks, language understanding, dialogues."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dr_book.data.stand_ins import made_dialogues
from dr_lib import evaluation, lab
from dr_lib.errors import InputError
from dr_lib.evaluation import DialogueSettings, Scores
from dr_lib.evaluation.dialogue import dialogue
from dr_lib.lab import pipeline
from dr_lib.lab.checks import steps_of
from dr_lib.lab.trainings import vectors
from dr_lib.retrieval import Ranking
from dr_lib.stages import Cache, stage


@pytest.fixture
def untrained(tiny_recipe):
    return tiny_recipe.with_(objective="none")


@pytest.fixture
def acceptable(tmp_path):
    """A folder in CoLA's format: a sentence is acceptable if it mentions a vector."""
    folder, rng = tmp_path / "tiny-cola", np.random.default_rng(0)
    folder.mkdir()
    for split, rows in (("train", 48), ("dev", 20)):
        answers = rng.integers(0, 2, rows)
        lines = [
            f"x\t{answer}\t\tthe {('decoder', 'vector')[answer]}"
            f" {rng.choice(['passages', 'queries'])}"
            for answer in answers
        ]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def dialogues(tmp_path):
    """Six contexts with four candidates each, in the plain format."""
    folder, rng = tmp_path / "tiny-talk", np.random.default_rng(1)
    (folder / "pairs").mkdir(parents=True)
    words = [
        "vector",
        "decoder",
        "passage",
        "query",
        "bottleneck",
        "retriever",
        "negatives",
        "masked",
    ]
    lines = []
    for _ in range(6):
        texts = [" ".join(rng.choice(words, 3)) for _ in range(4)]
        lines.append(
            json.dumps({"context": [texts[2], "and?"], "response": texts[2], "candidates": texts})
        )
    (folder / "pairs" / "test.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def measuring(recipe, kind, **settings):
    values = recipe.evaluation.model_dump(mode="json")
    return recipe.with_(
        evaluation=values | {"kind": kind, **({kind: settings} if settings else {})}
    )


def cola(recipe, folder, **more):
    training = {"epochs": 10, "batch_rows": 8, "learning_rate": 5e-3, "length": 16}
    return measuring(recipe, "nlu", **{"task": "cola", "folder": str(folder)} | training | more)


def talk(recipe, folder, **more):
    return measuring(recipe, "dialogue", **{"folder": str(folder), "context_length": 24} | more)


@stage(reads=("split",))
def title_words(folder, run, collection, *, split, grade, title):
    """`scores.json`: words in the title of the first passage found."""
    ranking = Ranking.open(run / "ranking")
    titles = collection.passages.select(ranking.rows[:, 0])["title"] if title else []
    Scores(ranking.query_ids, {"words": [len(text.split()) for text in titles]}).save(
        folder / "scores.json"
    )


def run(recipe, cache):
    return lab.execute(lab.Run("t", "row", "smoke", recipe), cache)


def test_two_recipes_with_one_digest_have_one_result(
    tiny_recipe, own_recipe, acceptable, dialogues
):
    recipes = [
        *(
            measuring(one, kind)
            for one in (tiny_recipe, own_recipe)
            for kind in ("search", "bm25", "similarity")
        ),
        measuring(tiny_recipe.with_(final="distilled"), "search"),
        cola(tiny_recipe, acceptable),
        talk(tiny_recipe, dialogues),
    ]
    ends = {(recipe.digest, pipeline(recipe).end.key) for recipe in recipes}
    assert len(ends) == len(dict(ends)) == len({key for _, key in ends}) == len(recipes) - 3


def test_a_new_kind_is_its_stage_and_a_line_of_the_table(untrained, shared, monkeypatch):
    with pytest.raises(InputError, match=r"^evaluation\.kind: unknown kind 'titles'"):
        measuring(untrained, "titles")
    monkeypatch.setitem(evaluation.KINDS, "titles", evaluation.Kind(title_words, "run"))
    record = run(measuring(untrained, "titles"), shared)
    assert record.query_ids and set(record.means) == {"words"}
    assert record.clusters.by and len(record.clusters.of) == len(record.query_ids)
    search = pipeline(untrained)
    assert record.keys["run"] == search.run.key and record.keys["evaluation"] != search.end.key


@pytest.mark.parametrize("name", evaluation.KINDS)
def test_a_kind_with_settings_of_its_own_has_a_key_for_them(name):
    settings, fields = evaluation.KINDS[name].settings, lab.EvaluationSettings.model_fields
    assert (settings is not None) is (name in fields)
    if settings:
        assert fields[name].annotation == settings | None
        assert settings.longest in settings.model_fields


# BM25 ---------------------------------------------------------------------------------------------


def test_bm25_is_measured_on_the_same_queries_and_trains_nothing(tiny_recipe, cache):
    record = run(tiny_recipe.with_(evaluation__kind="bm25"), cache)
    assert [name.rsplit("-", 1)[0] for name in cache.built] == ["bm25_index", "bm25_run", "scores"]
    assert not record.training and set(record.keys) == {"bm25_index", "bm25_run", "evaluation"}
    # each query is three words of its passage
    assert len(record.query_ids) == 6 and record.means["MRR@10"] > 0.6


# Similarities -------------------------------------------------------------------------------------


def test_similarities_are_those_of_the_runs_vectors(untrained, shared):
    plan = pipeline(untrained.with_(evaluation__kind="similarity"))
    record = run(plan.inputs.recipe, shared)
    assert record.keys["evaluation"] == plan.end.key
    queries = np.load(shared.get(plan.run) / "queries.npy")
    passages = np.load(shared.get(*vectors(plan.inputs, plan.retriever)) / "vectors.npy")
    ranking = Ranking.open(shared.get(plan.run) / "ranking")
    columns = [record.per_query(name) for name in ("s(p+, q) mean", "s(p+, p-) mean")]
    assert record.query_ids
    for query, near, far in zip(record.query_ids, *columns, strict=True):
        place, right = ranking.query_ids.index(query), int(query[1:])  # query r is about passage r
        others = [row for row in ranking.rows[place].tolist() if row not in (right, -1)]
        assert near == pytest.approx(queries[place] @ passages[right], abs=1e-4)
        assert far == pytest.approx((passages[others] @ passages[right]).mean(), abs=1e-4)


def test_similarities_share_everything_with_a_search(untrained):
    own, search = (
        {stage.key for stage in pipeline(one).end.walk()}
        for one in (untrained.with_(evaluation__kind="similarity"), untrained)
    )
    assert len(own - search) == 1


# Language understanding ---------------------------------------------------------------------------


def test_a_task_is_learned_by_the_pre_trained_encoder_and_no_retriever_is_trained(
    tiny_recipe, acceptable, cache, tmp_path
):
    recipe = cola(tiny_recipe, acceptable)
    record = run(recipe, cache)
    assert set(record.keys) == {"passage_tokens", "pretrained", "evaluation"}
    assert [name.rsplit("-", 1)[0] for name in cache.built] == [
        "passage_tokens",
        "pretrained",
        "nlu",
    ]
    assert (
        set(record.means) == {"predicted", "actual", "accuracy"} and record.means["accuracy"] == 1.0
    )
    facts = record.data["collection"]
    assert (facts["name"], facts["task"]) == ("tiny-cola", "cola") and len(
        facts["digest"].split()
    ) == 2
    assert record.data["trained_on"]["name"] == "tiny"
    assert str(tmp_path) not in record.model_dump_json()
    assert lab.load_record(record.save(tmp_path / "records")).means == record.means
    folder = cache.folder(pipeline(recipe).end)
    assert sorted(path.name for path in folder.iterdir()) == [
        "log.json",
        "manifest.json",
        "scores.json",
    ]


def test_a_task_that_was_cut_off_goes_on_to_the_same_answers(
    untrained, acceptable, shared, cache, monkeypatch
):
    end = pipeline(cola(untrained, acceptable)).end
    whole = (shared.get(end) / "scores.json").read_text()
    with monkeypatch.context() as broken:
        broken.setattr(sys.modules["dr_lib.evaluation.nlu"], "predict", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cache.get(end)
    assert list(cache.root.glob(f"{end.name}.partial/checkpoint-work/training/checkpoint-*"))
    assert (cache.get(end) / "scores.json").read_text() == whole
    assert cache.manifest(end)["resumed"]


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 1},
        {"learning_rate": 1e-3},
        {"split": "train"},
        {"dropout": 0.5},
        {"task": "mrpc"},
    ],
    ids=str,
)
def test_every_setting_of_a_task_makes_another_stage(tiny_recipe, acceptable, change):
    one, other = (pipeline(cola(tiny_recipe, acceptable, **more)).end.key for more in ({}, change))
    assert one != other


def test_changed_rows_make_another_stage_and_another_folder_does_not(
    tiny_recipe, acceptable, tmp_path
):
    first = pipeline(cola(tiny_recipe, acceptable)).end.key
    moved = acceptable.rename(tmp_path / "elsewhere")
    assert pipeline(cola(tiny_recipe, moved)).end.key == first
    with (moved / "dev.tsv").open("a") as file:
        file.write("x\t1\t\tanother vector\n")
    assert pipeline(cola(tiny_recipe, moved)).end.key != first


# Dialogues ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False])
def test_candidates_are_ranked_by_the_retriever_of_the_recipe(
    untrained, dialogues, shared, tmp_path, together
):
    recipe = talk(untrained.with_(finetuning__shared=together), dialogues)
    record, folder = run(recipe, shared), shared.get(pipeline(recipe).retriever)
    assert (folder / "passage_model").is_dir() is not together
    settings = DialogueSettings(folder=str(dialogues), context_length=24)
    dialogue.body(tmp_path, folder, dialogues / "pairs" / "test.jsonl", settings=settings)
    again = Scores.load(tmp_path / "scores.json")
    assert set(record.means) == {"R@1", "MRR"} and "pretrained" not in record.keys
    assert np.array_equal(record.per_query("MRR"), again.per_query("MRR"))
    assert (
        record.data["collection"]["name"] == "tiny-talk"
        and record.data["trained_on"]["name"] == "tiny"
    )


def test_dialogues_count_by_their_content(untrained, dialogues, tmp_path):
    first = pipeline(talk(untrained, dialogues)).end.key
    moved = dialogues.rename(tmp_path / "elsewhere")
    assert pipeline(talk(untrained, moved)).end.key == first
    assert pipeline(talk(untrained, moved, limit=3)).end.key != first
    path = moved / "pairs" / "test.jsonl"
    path.write_text(path.read_text().replace("vector", "decoder"))
    assert pipeline(talk(untrained, moved)).end.key != first


@pytest.fixture
def crossed(tiny_recipe):
    """A recipe that ranks the candidates of made dialogues with a cross-encoder trained on them."""
    folder = str(made_dialogues(lab.open_sample(tiny_recipe.collection)))
    recipe = talk(
        tiny_recipe.with_(objective="reddit", auxiliary__reddit_pairs__file=folder), folder
    )
    return recipe.with_(final="reranker", auxiliary__cross_encoder__length=40)


def test_candidates_are_ranked_by_a_cross_encoder_of_the_dialogues_own_pairs(crossed, tmp_path):
    results = lab.Study(
        "t",
        {"row": crossed},
        scale="smoke",
        cache=Cache(tmp_path / "stages"),
        records=tmp_path / "records",
    ).run()
    (record,) = results.runs()["row"]
    assert set(record.keys) == {"file_pairs", "dialogue_cross_encoder", "evaluation"}
    assert (
        set(record.means) == {"R@1", "MRR"} and 0 < record.means["R@1"] <= record.means["MRR"] <= 1
    )
    assert (
        record.training["dialogue_cross_encoder"]["steps"] == 2
        and record.recipe["final"] == "reranker"
    )


def test_a_cross_encoder_of_dialogues_needs_no_training_queries_and_no_memory_for_a_retriever(
    crossed,
):
    unasked = crossed.with_(finetuning__batch_queries=10_000)
    steps = steps_of(pipeline(unasked).inputs)
    assert set(steps) == {"pretraining", "auxiliary.cross_encoder"}
    with pytest.raises(InputError, match="cannot fill a batch of 10000"):
        pipeline(unasked.with_(final="retriever1"))


def test_where_nothing_is_trained_no_base_model_is_looked_for(tiny_recipe):
    recipe = tiny_recipe.with_(evaluation__kind="bm25")
    assert steps_of(SimpleNamespace(recipe=recipe)) == {}


def scorer(recipe):
    """The cross-encoder of dialogues."""
    (made,) = (one for one in pipeline(recipe).end.walk() if one.kind == "dialogue_cross_encoder")
    return made


def test_it_starts_from_the_encoder_that_learned_the_pairs_before_them(crossed):
    folder = crossed.evaluation.dialogue.folder
    before = scorer(crossed.with_(auxiliary__reddit_pairs__first=folder))
    posts = crossed.with_(final="pretrained", query_side="left")
    assert (
        before.arguments["start"].stage.key
        == pipeline(crossed.with_(final="pretrained")).pretrained.key
    )
    assert before.arguments["start"].stage.key != pipeline(posts).pretrained.key
    assert scorer(crossed).arguments["start"] == pipeline(crossed).inputs.base.model


# What is refused before anything is built ---------------------------------------------------------


def test_a_task_that_cannot_work_is_refused_before_anything_runs(
    tiny_recipe, acceptable, dialogues
):
    for recipe, said in (
        (lambda: cola(tiny_recipe, "/nowhere"), "no such file"),
        (lambda: cola(tiny_recipe, acceptable, task="rte"), "unknown task"),
        (lambda: cola(tiny_recipe, acceptable, length=600), r"nlu\.length"),
        (lambda: talk(tiny_recipe, "/nowhere"), "no such file"),
        (lambda: talk(tiny_recipe, dialogues, context_length=600), "context_length"),
    ):
        with pytest.raises(InputError, match=said):
            _ = pipeline(recipe()).end
