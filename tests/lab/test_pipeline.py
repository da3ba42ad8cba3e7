"""From a recipe to its stages: their inputs, what recipes share, what is refused; and that they
run.
"""

import json
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dr_lib import lab, objectives
from dr_lib.errors import InputError
from dr_lib.lab import Inputs, pipeline
from dr_lib.lab.study import data_facts
from dr_lib.lab.trainings import baseline, bm25_negatives, cross_encoder
from dr_lib.models import CrossEncoder, DenseEncoder, load_extra
from dr_lib.retrieval import Ranking
from dr_lib.stages import Stage
from dr_lib.tokens import TokenStore
from dr_lib.training import TeacherScores, TrainLog, training_examples

LOOKS = {"every": 2, "queries": 5, "per_query": 3}
QUERY_WEIGHT = "encoder.layer.0.attention.self.query.weight"


@pytest.fixture
def untrained(tiny_recipe):
    return tiny_recipe.with_(objective="none")


def walked(recipe) -> dict:
    """Key -> stage of everything that a recipe's evaluation depends on."""
    return {one.key: one for one in pipeline(recipe).end.walk()}


def kinds(recipe) -> set[str]:
    return {one.kind for one in walked(recipe).values()}


def fresh(recipe, other) -> list[str]:
    """Kinds of the stages that another recipe adds."""
    before = walked(recipe)
    return sorted(one.kind for key, one in walked(other).items() if key not in before)


# What re-runs -------------------------------------------------------------------------------------

SEARCHED = ["dense_run", "retriever", "scores", "vectors"]
TRAINED = sorted([*SEARCHED, "pretrained"])


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({"objective__decoder_rate": 0.7}, TRAINED),
        ({"pretraining__steps": 5}, TRAINED),
        ({"seed": 1}, TRAINED),
        ({"dropout": 0.2}, TRAINED),
        ({"title": "joined"}, TRAINED),
        (
            {"title": "none"},
            sorted(["bm25_index", "bm25_run", "negatives", "training_set", *TRAINED]),
        ),
        ({"objective": "none"}, SEARCHED),
        ({"finetuning__batch_queries": 6}, SEARCHED),
        ({"finetuning__temperature": 0.05}, SEARCHED),
        ({"query_length": 12}, SEARCHED),
        ({"query_side": "left"}, SEARCHED),
        ({"pooling": "mean"}, SEARCHED),
        ({"few_shot": 0.5}, sorted(["training_set", *SEARCHED])),
        ({"finetuning__negatives": 0}, sorted(["training_set", *SEARCHED])),
        ({"negatives__depth": 4}, sorted(["bm25_run", "negatives", "training_set", *SEARCHED])),
        ({"evaluation__vector_type": "float16"}, ["dense_run", "scores", "vectors"]),
        ({"evaluation__split": "dev"}, ["dense_run", "query_tokens", "scores"]),
        ({"evaluation__depth": 60}, ["dense_run", "scores"]),
        ({"evaluation__measures": ["MRR@10"]}, ["scores"]),
        ({"evaluation__grade": 2}, ["scores"]),
        ({"evaluation__kind": "similarity"}, ["similarities"]),
        ({"evaluation__kind": "bm25"}, ["bm25_run", "scores"]),
        ({"pretraining__checkpoint_every": 3, "finetuning__log_every": 7}, []),
        (
            {
                "mining__depth": 9,
                "reranking__depth": 9,
                "distillation__steps": 9,
                "auxiliary__questions__steps": 9,
            },
            [],
        ),
        ({"final": "retriever1", "finetuning2": {"steps": 9}}, []),
    ],
    ids=str,
)
def test_a_change_re_runs_only_what_depends_on_it(tiny_recipe, change, again):
    assert fresh(tiny_recipe, tiny_recipe.with_(**change)) == again


def test_fewer_passages_keep_nothing_and_fewer_test_queries_all_that_asks_none(tiny_recipe):
    whole = walked(tiny_recipe)
    assert not whole.keys() & walked(tiny_recipe.with_(collection__passages=30)).keys()
    fewer = walked(tiny_recipe.with_(collection__test_queries=4))
    changed = {fewer[key].kind for key in fewer.keys() - whole.keys()}
    assert changed == {"query_tokens", "dense_run", "scores"}


def test_content_counts_and_places_do_not(own_recipe, tiny_recipe, tmp_path):
    there = walked(own_recipe)
    assert there.keys() == walked(tiny_recipe).keys()
    (tmp_path / "elsewhere").mkdir()
    moved = own_recipe.with_(collection=str(shutil.move(tmp_path / "tiny", tmp_path / "elsewhere")))
    assert walked(moved).keys() == there.keys() and moved.digest == own_recipe.digest
    corpus = tmp_path / "elsewhere" / "tiny" / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("vector", "victor"))
    assert not walked(moved).keys() & there.keys()


def test_pre_training_may_read_other_passages(tiny_recipe, beir_folder, tmp_path):
    beir_folder(tmp_path / "other", passages=30)
    elsewhere = tiny_recipe.with_(pretraining__collection=str(tmp_path / "other"))
    assert fresh(tiny_recipe, elsewhere) == sorted(["passage_tokens", *TRAINED])
    itself = tiny_recipe.with_(pretraining__collection=tiny_recipe.collection.name)
    assert walked(itself).keys() == walked(tiny_recipe).keys()


def test_documents_of_the_test_may_stay_unread_until_fine_tuning(tiny_recipe):
    unread = tiny_recipe.with_(pretraining__without_documents_of=["test"])
    assert fresh(tiny_recipe, unread) == sorted(["passage_tokens", *TRAINED])
    inputs = pipeline(unread).inputs
    passages, tested = inputs.collection.passages, inputs.collection.qrels("test").values()
    documents = dict(zip(passages["id"][:], passages["doc"][:], strict=True))
    judged = {documents[id_] for grades in tested for id_ in grades}
    left = [id_ for id_ in passages["id"][:] if documents[id_] not in judged]
    assert inputs.corpus.passages["id"][:] == left and 0 < len(left) < len(passages)
    assert inputs.searched.passages["id"][:] == passages["id"][:], "all are searched"
    with pytest.raises(InputError, match=r"pretraining\.without_documents_of: pair"):
        pipeline(unread.with_(objective="pair", auxiliary__pseudo_labels__labels="given"))
    with pytest.raises(InputError, match=r"pretraining\.without_documents_of: paq"):
        pipeline(unread.with_(objective="paq", auxiliary__paq_pairs__labels="given"))
    with pytest.raises(InputError, match="there is no split 'tests'"):
        pipeline(unread.with_(pretraining__without_documents_of=["tests"]))


def test_as_many_passages_of_other_documents_may_stay_unread(tiny_recipe):
    unread = tiny_recipe.with_(pretraining__without_documents_of=["test"])
    kept = pipeline(unread).inputs.corpus.passages["id"][:]
    others = unread.with_(pretraining__others=True)
    passages = pipeline(others).inputs.collection.passages
    documents = dict(zip(passages["id"][:], passages["doc"][:], strict=True))
    for seed in range(20):
        read = pipeline(others.with_(seed=seed)).inputs.corpus.passages["id"][:]
        out = {*passages["id"][:]} - {*read}
        assert len(read) == len(kept) and out <= {*kept}, "every document of the test is read"
        cut = {documents[id_] for id_ in out} & {documents[id_] for id_ in read}
        assert len(cut) <= 1, "all are left out whole but the last"
    assert fresh(unread, others) == sorted(["passage_tokens", *TRAINED])
    with pytest.raises(InputError, match="in place of"):
        tiny_recipe.with_(pretraining__others=True)


def test_what_is_read_first_needs_a_method_that_reads_it(tiny_recipe, beir_folder, tmp_path):
    beir_folder(tmp_path / "general", passages=30)
    general = str(tmp_path / "general")
    masked = tiny_recipe.with_(pretraining__first=general, pretraining__first_by="mlm")
    for wrong in (
        {"pretraining__first_by": "mlm"},
        {"pretraining__first": general, "pretraining__first_by": "none"},
    ):
        with pytest.raises(InputError, match="first_by names the method that pre-trains"):
            tiny_recipe.with_(**wrong)
    with pytest.raises(InputError, match="no method 'bert'"):
        masked.with_(pretraining__first_by="bert")
    with pytest.raises(
        InputError, match=r"pretraining\.first: objective \"none\" pre-trains on nothing"
    ):
        pipeline(masked.with_(objective="none"))
    with pytest.raises(InputError, match="first_by names the method that learns the pairs"):
        tiny_recipe.with_(auxiliary__reddit_pairs__first_by="nsp")
    with pytest.raises(InputError, match=r"pretraining\.first: pair learns from judged passages"):
        pipeline(masked.with_(pretraining__first_by="pair"))
    assert pipeline(
        tiny_recipe.with_(objective="pair", pretraining__first=general, pretraining__first_by="mlm")
    ).pretrained


def test_a_place_of_pairs_is_no_part_of_a_recipes_digest(tiny_recipe, tmp_path):
    (tmp_path / "posts.jsonl").touch()
    recipe = tiny_recipe.with_(auxiliary__reddit_pairs__first=str(tmp_path / "posts.jsonl"))
    assert recipe.portable()["auxiliary"]["reddit_pairs"]["first"] == "posts.jsonl"


def test_a_cross_encoder_has_one_start(tiny_recipe):
    chosen = {"model": "embedded", "start": "mlm"}
    with pytest.raises(InputError, match="either model or start"):
        tiny_recipe.with_(
            **{f"auxiliary__cross_encoder__{name}": value for name, value in chosen.items()}
        )


@pytest.mark.parametrize("name", ["paq", "reddit"])
def test_pairs_of_other_passages_are_trained_on(tiny_recipe, shared, beir_folder, tmp_path, name):
    beir_folder(tmp_path / "other", passages=52)
    changes = {
        "auxiliary__paq_pairs__filter": "none",
        "pretraining__collection": str(tmp_path / "other"),
    }
    plan = pipeline(tiny_recipe.with_(objective=name, **changes))
    assert np.isfinite(TrainLog.load(shared.get(plan.pretrained) / "log.json").column("loss")).all()


@pytest.mark.parametrize("key", ["collection", "first"])
def test_labels_of_one_collection_are_no_pairs_of_another(tiny_recipe, beir_folder, tmp_path, key):
    beir_folder(tmp_path / "other", passages=30)
    pair = tiny_recipe.with_(objective="pair", **{f"pretraining__{key}": str(tmp_path / "other")})
    with pytest.raises(InputError, match=rf"pretraining\.{key}: pair learns from judged passages"):
        pipeline(pair)
    assert pipeline(pair.with_(**{f"pretraining__{key}": tiny_recipe.collection.name})).pretrained
    assert pipeline(pair.with_(objective="mlm")).pretrained


def test_a_generator_of_its_own_changes_only_methods_that_read_one(tiny_recipe):
    assert fresh(tiny_recipe, tiny_recipe.with_(generator="embedded")) == TRAINED
    masked = tiny_recipe.with_(objective="mlm")
    assert not fresh(masked, masked.with_(generator="embedded"))


def test_queries_of_another_length_change_only_methods_that_read_them(tiny_recipe):
    for name in objectives.names():
        recipe = tiny_recipe.with_(objective=name, auxiliary__pseudo_labels__labels="given")
        reads = objectives.method(name).reads_queries or "questions" in kinds(recipe)
        assert ("pretrained" in fresh(recipe, recipe.with_(query_length=12))) is reads, name


# Retrievers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"finetuning__temperature": 0.05}, {"pooling": "mean"}]
)
def test_untuned_retrievers_with_fresh_parts_or_other_settings_are_never_one_stage(
    untrained, change
):
    recipe = untrained.with_(final="pretrained", finetuning__projection=True)
    one, other = (pipeline(each).retriever for each in (recipe, recipe.with_(**change)))
    assert one.kind == other.kind == "untuned" and one.key != other.key


@pytest.mark.parametrize("name", ["bfs", "ict", "paq", "reddit", "pair"])
def test_what_is_not_fine_tuned_is_compared_as_in_its_pre_training(tiny_recipe, name):
    recipe = tiny_recipe.with_(
        objective=name, auxiliary__pseudo_labels__labels="given", final="pretrained"
    )
    by_product = pipeline(recipe).retriever
    assert not by_product.arguments["training"].normalise
    assert (
        by_product.key
        == pipeline(recipe.with_(finetuning__normalise=False, pooling="mean")).retriever.key
    )
    assert (
        pipeline(recipe.with_(objective__normalise=True)).retriever.arguments["training"].normalise
    )


def test_a_trained_projection_stays_where_nothing_is_fine_tuned_and_none_is_drawn(tiny_recipe):
    plain = tiny_recipe.with_(objective="paq", final="pretrained")
    projected = pipeline(plain.with_(objective__projection=True)).retriever
    assert projected.arguments["training"].projection
    assert (
        pipeline(plain.with_(finetuning__projection=True))
        .retriever.arguments["training"]
        .projection
        is None
    )


@pytest.mark.parametrize("name", ["none", "simlm", "cdmae"])
def test_what_compared_no_vectors_in_pre_training_is_compared_as_fine_tuning_says(
    tiny_recipe, name
):
    recipe = tiny_recipe.with_(objective=name, final="pretrained")
    assert pipeline(recipe).retriever.arguments["training"] == recipe.finetuning


def learned_from(one: Stage) -> dict:
    """The sources of a stage's training examples."""
    return one.arguments["examples"].stage.arguments


def test_a_teacher_reads_as_many_negatives_as_it_is_told_to(tiny_recipe):
    recipe = tiny_recipe.with_(final="distilled", mining__with_bm25=True)
    cut, whole = (
        pipeline(recipe.with_(distillation__teacher_negatives=number)) for number in (4, None)
    )
    assert cut.teacher_negatives.arguments["also"] is None
    assert cut.teacher_negatives.arguments["keep"] == 4
    assert whole.teacher_negatives.arguments["also"].key == bm25_negatives(whole.inputs).key
    assert cut.mined.arguments["also"].key == bm25_negatives(cut.inputs).key
    assert whole.teacher_scores.cost / cut.teacher_scores.cost == pytest.approx(
        (1 + 6 + 6) / (1 + 4)
    )


def test_the_second_retriever_can_have_settings_of_its_own(tiny_recipe):
    plain = tiny_recipe.with_(final="retriever2")
    other = plain.with_(finetuning2=plain.finetuning.model_dump() | {"learning_rate": 1e-5})
    assert fresh(plain, other) == SEARCHED
    same = plain.with_(finetuning2=plain.finetuning.model_dump())
    assert not fresh(plain, same)


def test_answers_are_dropped_from_either_kind_of_negatives(own_recipe, tmp_path):
    queries = [
        json.loads(line) for line in (tmp_path / "tiny" / "queries.jsonl").read_text().splitlines()
    ]
    lines = (json.dumps(query | {"answers": ["x"]}) + "\n" for query in queries)
    (tmp_path / "tiny" / "queries.jsonl").write_text("".join(lines))
    plain = own_recipe.with_(final="retriever2")
    bm25, mined = (
        pipeline(plain.with_(**{f"{part}__answers": "drop"})) for part in ("negatives", "mining")
    )
    assert (
        bm25_negatives(bm25.inputs).key
        != bm25_negatives(Inputs(plain)).key
        == bm25_negatives(mined.inputs).key
    )
    assert len({bm25.mined.key, mined.mined.key, pipeline(plain).mined.key}) == 3


# Few labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["simlm", "paq", "pair", "master"])
def test_few_labels_leave_pre_training_and_what_it_is_made_from_alone(tiny_recipe, name):
    recipe = tiny_recipe.with_(objective=name)
    whole, few = pipeline(recipe), pipeline(recipe.with_(few_shot=0.5))
    assert (
        few.pretrained.key == whole.pretrained.key
        and bm25_negatives(few.inputs).key == bm25_negatives(whole.inputs).key
    )
    assert few.retriever.key != whole.retriever.key


def test_the_draw_of_few_labels_is_that_of_the_collection_and_not_of_a_run(tiny_recipe):
    one, other = (
        learned_from(pipeline(tiny_recipe.with_(few_shot=0.5, seed=seed)).retriever)
        for seed in (0, 1)
    )
    assert (one["share"], one["share_seed"]) == (other["share"], other["share_seed"]) == (0.5, 0)
    drawn_anew = pipeline(
        tiny_recipe.with_(few_shot=0.5, collection__passages=40, collection__seed=3)
    )
    assert learned_from(drawn_anew.retriever)["share_seed"] == 3


def test_smaller_shares_lie_inside_larger_ones_and_come_from_everywhere():
    class Thousand:
        passages = range(1000)

        def relevant_rows(self, split):
            return [np.array([row]) for row in range(1000)]

        positives, same_text = relevant_rows, None

        def own_texts(self, split):
            return None

    drawn = [
        training_examples(Thousand(), share=share, share_seed=3)
        for share in (0.05, 0.1, 0.2, 0.5, None)
    ]
    rows = [set(part.query_rows.tolist()) for part in drawn]
    assert [len(one) for one in rows] == [50, 100, 200, 500, 1000]
    assert all(smaller < larger for smaller, larger in pairwise(rows))
    assert abs(np.mean(list(rows[0])) - 499.5) < 4 * 289 / np.sqrt(50)
    again, other = (training_examples(Thousand(), share=0.05, share_seed=seed) for seed in (3, 4))
    assert np.array_equal(again.query_rows, drawn[0].query_rows)
    assert not np.array_equal(other.query_rows, drawn[0].query_rows)
    assert len(training_examples(Thousand(), share=1e-6)) == 1


# Validation ---------------------------------------------------------------------------------------


def test_a_training_with_looks_is_a_stage_of_its_own(untrained):
    settings = (None, LOOKS, LOOKS | {"every": 3})
    keys = {
        pipeline(untrained.with_(finetuning__validation=looks)).retriever.key for looks in settings
    }
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("split", "reported", "said"), [("dev", "dev", "reported"), ("train", "test", "trained on")]
)
def test_queries_that_are_reported_or_trained_on_choose_nothing(untrained, split, reported, said):
    looks = LOOKS | {"split": split}
    with pytest.raises(InputError, match=rf"finetuning\.validation\.split: .*{said}"):
        pipeline(untrained.with_(evaluation__split=reported, finetuning__validation=looks))
    with pytest.raises(InputError, match=r"distillation\.validation\.split"):
        pipeline(untrained.with_(evaluation__split=reported, distillation__validation=looks))


@pytest.mark.parametrize("change", ["id", "text", "case and blanks"])
def test_queries_that_are_reported_are_not_trained_on(own_recipe, tmp_path, change):
    """Otherwise a retriever that has seen the test finds everything: 100.0, and significant."""
    recipe = own_recipe.with_(final="retriever1")
    train, test = (tmp_path / "tiny" / "qrels" / f"{split}.tsv" for split in ("train", "test"))
    before = pipeline(recipe)
    lines = test.read_text().splitlines()[1:]
    if change == "id":
        train.write_text("\n".join([*train.read_text().splitlines(), lines[0], ""]))
    else:
        file = tmp_path / "tiny" / "queries.jsonl"
        rows = {row["_id"]: row for row in map(json.loads, file.read_text().splitlines())}
        for number, line in enumerate(lines):
            copy = dict(rows[line.split("\t")[0]], _id=f"copy-{number}")
            if change != "text":
                copy["text"] = f" {copy['text'].upper()}  "
            rows[copy["_id"]] = copy
            with train.open("a") as judged:
                judged.write(line.replace(line.split("\t")[0], copy["_id"], 1) + "\n")
        file.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    for strict in (True, False):  # of published data too
        plan = pipeline(recipe.with_(collection__strict=strict))
        assert plan.inputs.collection.qrels("train") == before.inputs.collection.qrels("train")
        assert len(plan.inputs.searched.qrels("test")) == len(lines)
        assert plan.retriever.key == before.retriever.key


def test_dev_queries_may_choose_what_is_reported_on_another_collection(
    untrained, beir_folder, tmp_path
):
    beir_folder(tmp_path / "other", passages=30)
    recipe = untrained.with_(finetuning__validation=LOOKS)
    there = recipe.with_(evaluation__split="dev", evaluation__on=str(tmp_path / "other"))
    assert pipeline(there).retriever.key == pipeline(recipe).retriever.key


def test_looks_read_passages_with_the_encoder_of_passages(untrained, shared, tmp_path, monkeypatch):
    recipe = untrained.with_(finetuning__shared=False, finetuning__validation=LOOKS)
    chosen, seen = pipeline(recipe).retriever, []

    def mrr(pool, queries, passages, *encoders, **_):
        seen.append(encoders)
        return np.zeros(1)

    def train(module, *_, validation, **__):
        validation.score(module)
        assert seen == [(module.encoder, module.passage_encoder)] and None not in seen[0]

    monkeypatch.setattr("dr_lib.training.bi_encoder.pool_mrr", mrr)
    monkeypatch.setattr("dr_lib.training.bi_encoder.train", train)
    chosen.function(tmp_path, **shared.inputs(chosen))
    assert len(seen) == 1


def test_the_looks_are_logged_and_the_best_of_them_is_kept(untrained, shared, monkeypatch):
    recipe = untrained.with_(finetuning__steps=6, finetuning__validation=LOOKS)
    scores = iter([0.1, 0.9, 0.2])
    monkeypatch.setattr(
        "dr_lib.training.bi_encoder.pool_mrr", lambda *_, **__: np.array([next(scores)])
    )
    folder = shared.get(pipeline(recipe).retriever)
    log = json.loads((folder / "log.json").read_text())
    assert [(row["step"], row["score"]) for row in log["validation"]] == [
        (2, 0.1),
        (4, 0.9),
        (6, 0.2),
    ]
    scores = iter([0.1, 0.2, 0.9])
    to_the_end = pipeline(recipe.with_(finetuning__validation=LOOKS | {"keep": "last"})).retriever
    last = load_file(shared.get(to_the_end) / "model" / "model.safetensors")
    best = load_file(folder / "model" / "model.safetensors")
    assert any((best[name] != last[name]).any() for name in best)


def test_the_pool_holds_dev_queries_their_passages_and_what_bm25_finds(
    untrained, shared, monkeypatch
):
    pools = []

    def look(pool, *_, **__):
        pools.append(pool)
        return np.array([0.5])

    monkeypatch.setattr("dr_lib.training.bi_encoder.pool_mrr", look)
    plan = pipeline(untrained.with_(finetuning__validation=LOOKS | {"seed": 5}))
    shared.get(plan.retriever)
    (pool,) = {id(one): one for one in pools}.values()
    assert len(pool.query_rows) == 5
    collection = plan.inputs.collection
    dev = collection.queries("dev")["id"][:]
    relevant = {
        int(name[1:]) for row in pool.query_rows for name in collection.qrels("dev")[dev[row]]
    }
    found = Ranking.open(shared.get(plan.inputs.bm25_run("dev", 3)) / "ranking").rows[
        pool.query_rows
    ]
    assert set(pool.passage_rows.tolist()) == relevant | set(found[found >= 0].tolist())
    pools.clear()
    other = pipeline(untrained.with_(finetuning__validation=LOOKS | {"seed": 8}))
    shared.get(other.retriever)
    assert set(pools[0].query_rows.tolist()) != set(pool.query_rows.tolist())


# Cross-encoders -----------------------------------------------------------------------------------


def scorer(recipe, negatives=True, loss="listwise", seed=0):
    inputs = Inputs(recipe)
    listed = bm25_negatives(inputs) if negatives else None
    return cross_encoder(inputs, listed, baseline(inputs), loss, seed)


def test_the_key_of_a_cross_encoder_is_made_of_what_can_change_it(untrained):
    same = [untrained, untrained.with_(finetuning__temperature=0.5), untrained.with_(seed=4)]
    (key,) = {scorer(recipe).key for recipe in same}
    others = [
        scorer(untrained, negatives=False),
        scorer(untrained, loss="pointwise"),
        scorer(untrained, seed=1),
        scorer(untrained.with_(auxiliary__cross_encoder__r_drop=True)),
        scorer(untrained.with_(auxiliary__cross_encoder__negatives=2)),
        scorer(untrained.with_(auxiliary__cross_encoder__start="retriever")),
        scorer(untrained.with_(title="none")),
    ]
    assert len({one.key for one in others} | {key}) == 8


def test_another_reader_has_tokens_of_its_own_only_where_its_tokenizer_differs(untrained):
    recipe = untrained.with_(final="reranker")
    same, other = (
        pipeline(recipe.with_(auxiliary__cross_encoder__model=model))
        for model in (recipe.base, "embedded")
    )
    assert same.reranker.arguments["passages"].key == same.inputs.passages().key
    assert same.reranker.arguments["queries"].key == same.inputs.queries("train").key
    assert other.reranker.arguments["passages"].key != other.inputs.passages().key
    assert other.run.arguments["queries"].key != other.inputs.queries("test").key


def test_a_cross_encoder_may_start_from_the_retriever(untrained, shared):
    chosen = {"start": "retriever", "learning_rate": 1e-9}
    recipe = untrained.with_(
        **{f"auxiliary__cross_encoder__{name}": value for name, value in chosen.items()}
    )
    stage, retriever = scorer(recipe), baseline(Inputs(recipe))
    assert stage.arguments["start"].stage.key == retriever.key
    trained = load_file(shared.get(stage) / "model" / "model.safetensors")
    start = load_file(shared.get(retriever) / "model" / "model.safetensors")
    common = [name for name in start if f"bert.{name}" in trained]
    assert len(common) > 30
    for name in common:
        torch.testing.assert_close(trained[f"bert.{name}"], start[name], rtol=0, atol=1e-7)


# What is refused before anything is built ---------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"evaluation__split": "tests"}, "tests"),
        ({"evaluation__measures": ["MMR@10"]}, "MMR@10"),
        ({"evaluation__measures": ["MRR@10", "accuracy@20"]}, "accuracy@20 needs answers"),
        ({"evaluation__depth": 5}, r"evaluation\.depth: MRR@10 of a ranking of 5 passages"),
        ({"evaluation__on": "/nowhere/at/all"}, "nowhere"),
        ({"base": "/nowhere/at/all"}, "nowhere"),
        ({"collection": "/nowhere/at/all"}, "nowhere"),
        ({"passage_length": 200}, r"passage_length: sequences of 200 pieces, but base reads 64"),
        ({"query_length": 65}, "65 pieces"),
        (
            {"finetuning__batch_queries": 100},
            r"batch_queries: 12 training queries cannot fill a batch of 100",
        ),
        ({"few_shot": 0.1}, r"batch_queries: 1 training queries"),
        ({"negatives__answers": "drop"}, r"negatives\.answers: no training query has an answer"),
        (
            {"final": "retriever2", "mining__answers": "drop"},
            r"mining\.answers: no training query has an answer",
        ),
        (
            {"objective": "ict", "objective__separate": True},
            r"finetuning\.shared: pre-training makes two",
        ),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_anything_runs(tiny_recipe, change, said):
    with pytest.raises(InputError, match=said):
        pipeline(tiny_recipe.with_(**change))


@pytest.mark.parametrize("name", ["bfs", "cocondenser"])
def test_two_passages_of_a_document_are_asked_for_before_anything_runs(
    tiny_recipe, monkeypatch, name
):
    first = {"pretraining__first": tiny_recipe.collection, "pretraining__first_by": name}
    recipes = [tiny_recipe.with_(objective=name), tiny_recipe.with_(objective="mlm", **first)]
    assert all(map(pipeline, recipes))

    def alone(collection):
        rows = np.arange(len(collection.passages))
        return rows, np.zeros_like(rows)

    monkeypatch.setattr("dr_lib.collections.Collection.documents", alone)
    for recipe in recipes:
        with pytest.raises(
            InputError, match=f"{name} on tiny: no document of this collection has two"
        ):
            pipeline(recipe)
    assert pipeline(tiny_recipe.with_(objective="mlm"))


def test_nothing_is_trained_for_a_search_that_nothing_installed_can_do(tiny_recipe, monkeypatch):
    bm25 = tiny_recipe.with_(objective="none", evaluation__kind="bm25")
    monkeypatch.setattr("dr_lib.lab.checks.find_spec", lambda name: None)
    assert pipeline(bm25)
    with pytest.raises(InputError, match=r"faiss is not installed, .*the extra `cpu` of dr_lib"):
        pipeline(tiny_recipe)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch_queries": 100}, r"auxiliary\.cross_encoder\.batch_queries: 12 training queries"),
        (
            {"length": 65},
            r"auxiliary\.cross_encoder\.length: sequences of 65 pieces, but base reads 64",
        ),
        ({"model": "/nowhere/at/all"}, "nowhere"),
    ],
)
def test_a_cross_encoder_that_cannot_be_trained_is_refused_before_anything_runs(
    tiny_recipe, change, said
):
    changes = {f"auxiliary__cross_encoder__{name}": value for name, value in change.items()}
    with pytest.raises(InputError, match=said):
        _ = pipeline(tiny_recipe.with_(final="reranker", **changes)).end
    # where nothing needs one, nothing is refused
    assert pipeline(tiny_recipe.with_(**changes)).end


# Runs ---------------------------------------------------------------------------------------------


@pytest.fixture
def masked(tiny_recipe):
    return tiny_recipe.with_(objective="mlm")


def run(recipe, cache, label="row"):
    return lab.execute(lab.Run("t", label, "smoke", recipe), cache)


def test_bm25_has_the_k1_and_b_that_a_recipe_names(tiny_recipe):
    plan = pipeline(tiny_recipe.with_(evaluation__kind="bm25", evaluation__weights=(1.5, 0.75)))
    index = next(stage for stage in plan.end.walk() if stage.kind.endswith("bm25_index"))
    assert (index.arguments["k1"], index.arguments["b"]) == (1.5, 0.75)


def test_an_untuned_retriever_has_the_pre_trained_weights(masked, shared):
    plan = pipeline(masked.with_(final="pretrained"))
    record = run(plan.inputs.recipe, shared)
    before, after = (
        load_file(shared.get(one) / "model" / "model.safetensors")
        for one in (plan.pretrained, plan.retriever)
    )
    assert torch.equal(before[f"bert.{QUERY_WEIGHT}"], after[QUERY_WEIGHT])
    assert list(record.training) == ["pretrained"]


def test_mined_negatives_are_the_first_of_the_retrievers_ranking_less_the_positive(masked, shared):
    plan = pipeline(masked.with_(final="retriever2", mining__random_negatives=0))
    drawn = np.load(shared.get(plan.mined) / "negatives.npy")
    run = plan.mined.arguments["run"]
    assert run.kind == "dense_run" and run.arguments["encoder"].key == plan.retriever1.key
    ranking = Ranking.open(shared.get(run) / "ranking")
    depth, above = masked.mining.depth, 0
    assert drawn.shape == (12, depth)
    for query, (listed, found) in enumerate(zip(drawn, np.asarray(ranking.rows), strict=True)):
        others = [row for row in found.tolist() if row != query]  # query r is about passage r
        assert sorted(listed.tolist()) == sorted(others[:depth])
        above += query in found[:depth]
    assert above  # otherwise keeping positives would change nothing


def test_bm25_negatives_can_be_put_behind_the_mined_ones(masked, shared):
    plan = pipeline(masked.with_(final="retriever2", mining__with_bm25=True))
    both = np.load(shared.get(plan.mined) / "negatives.npy")
    alone = np.load(shared.get(pipeline(masked.with_(final="retriever2")).mined) / "negatives.npy")
    given = np.load(shared.get(bm25_negatives(plan.inputs)) / "negatives.npy")
    assert np.array_equal(both[:, :6], alone)
    expected = [
        [-1 if row in first else row for row in own]
        for first, own in zip(alone, given, strict=True)
    ]
    assert both[:, 6:].tolist() == expected


def test_the_re_ranked_run_keeps_the_passages_of_the_second_retriever(masked, shared):
    second, reranked = (pipeline(masked.with_(final=final)) for final in ("retriever2", "reranker"))
    record = run(reranked.inputs.recipe, shared)
    assert {"cross_encoder", "retriever"} <= record.training.keys()
    before, after = (Ranking.open(shared.get(one.run) / "ranking") for one in (second, reranked))
    assert after.query_ids == before.query_ids
    first, moved = np.asarray(before.rows), np.asarray(after.rows)
    np.testing.assert_array_equal(np.sort(first[:, :6]), np.sort(moved[:, :6]))
    np.testing.assert_array_equal(first[:, 6:], moved[:, 6:])
    assert (
        CrossEncoder.from_pretrained(shared.get(reranked.reranker) / "model").settings.length == 40
    )


def test_the_distilled_retriever_learns_from_the_re_rankers_scores(masked, shared):
    plan = pipeline(masked.with_(final="distilled"))
    assert 0 <= run(plan.inputs.recipe, shared).means["MRR@10"] <= 1
    listed = np.load(shared.get(plan.teacher_negatives) / "negatives.npy")
    teacher = TeacherScores.open(shared.get(plan.teacher_scores))
    assert listed.shape == teacher.negatives.shape == (12, 3)
    assert (
        np.isfinite(teacher.positives).all() and (np.isnan(teacher.negatives) == (listed < 0)).all()
    )


def test_few_examples_are_some_of_all(tiny_recipe):
    collection = lab.open_sample(tiny_recipe.collection)
    whole, few = training_examples(collection), training_examples(collection, share=0.5)
    assert (len(whole), len(few)) == (12, 6) and set(few.query_rows) < set(whole.query_rows)
    assert np.array_equal(
        few.positives, whole.positives[np.searchsorted(whole.query_rows, few.query_rows)]
    )


def test_two_encoders_are_trained_and_searched_with(untrained, shared):
    record = run(untrained.with_(finetuning__shared=False), shared)
    assert set(record.training["retriever"]["weights"]) == {
        "model/model.safetensors",
        "passage_model/model.safetensors",
    }


def test_a_long_query_can_lose_its_beginning_in_training_and_in_search(untrained, shared):
    plan = pipeline(untrained.with_(query_length=5, query_side="left"))
    shared.get(plan.run)
    encoder = DenseEncoder.from_pretrained(shared.get(plan.retriever) / "model")
    assert encoder.settings.query_side == "left"
    store = TokenStore.open(shared.get(plan.inputs.queries("test")) / "store")
    assert (store.lengths(99, "none") > 5).any()
    last = store.batch(np.arange(len(store)), max_length=5, title="none", side="left")
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(encoder.eval()(last), dim=1).numpy()
    np.testing.assert_allclose(np.load(shared.get(plan.run) / "queries.npy"), expected, atol=1e-4)


def test_two_encoders_of_pre_training_go_on_as_two(tiny_recipe, shared):
    recipe = tiny_recipe.with_(objective="bfs", finetuning__shared=False)
    one, two = pipeline(recipe), pipeline(recipe.with_(objective__separate=True))
    assert one.pretrained.key != two.pretrained.key
    made, tuned = shared.get(two.pretrained), shared.get(two.retriever)
    start = {
        name: load_file(made / name / "model.safetensors") for name in ("model", "passage_model")
    }
    weight = f"bert.{QUERY_WEIGHT}"
    assert not torch.equal(start["model"][weight], start["passage_model"][weight])
    for name, tensors in start.items():
        found = load_file(tuned / name / "model.safetensors")[QUERY_WEIGHT]
        nearest = min(start, key=lambda other: (start[other][weight] - found).abs().sum())
        assert nearest == name and not torch.equal(tensors[weight], found)
    bare = shared.get(
        pipeline(recipe.with_(objective__separate=True, final="pretrained")).retriever
    )
    assert (bare / "passage_model" / "model.safetensors").is_file()


def test_the_projection_of_pre_training_goes_on_in_fine_tuning(tiny_recipe, shared, tmp_path):
    lines = [
        json.dumps(
            {
                "question": f"what is {row}",
                "positive_ctxs": [{"title": "", "text": f"text of {row}"}],
                "hard_negative_ctxs": [],
            }
        )
        for row in range(12)
    ]
    (tmp_path / "paq.jsonl").write_text("\n".join(lines) + "\n")
    recipe = tiny_recipe.with_(
        objective="paq",
        objective__projection=True,
        auxiliary__paq_pairs__file=str(tmp_path / "paq.jsonl"),
        finetuning__projection=True,
        finetuning__learning_rate=1e-9,
    )
    with_it, without = pipeline(recipe), pipeline(recipe.with_(finetuning__projection=None))
    assert (
        with_it.pretrained.key == without.pretrained.key
        and with_it.retriever.key != without.retriever.key
    )
    made, tuned = (
        load_extra(shared.get(one) / "model") for one in (with_it.pretrained, with_it.retriever)
    )
    assert made.keys() == tuned.keys()
    for name, tensor in made.items():
        torch.testing.assert_close(tuned[name], tensor, atol=1e-5, rtol=1e-4)
    assert not load_extra(shared.get(without.retriever) / "model")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("pretrained", {"objective": "condenser"}),
        ("retriever", {"objective": "none"}),
        ("question_generator", {"objective": "master"}),
        ("continuation_model", {"objective": "master"}),
    ],
)
def test_the_seed_of_a_training_is_that_of_its_loop_and_of_its_batches(
    kind, changes, tiny_recipe, shared, tmp_path, monkeypatch
):
    (chosen,) = (one for one in walked(tiny_recipe.with_(**changes)).values() if one.kind == kind)
    inputs, seen = shared.inputs(chosen), []

    def train(module, batches, settings, *_, **__):
        seen.append((settings.seed, repr(batches(0))))

    monkeypatch.setattr(sys.modules[chosen.function.__module__], "train", train)
    for number, seed in enumerate((3, 3, 4)):
        (tmp_path / str(number)).mkdir()
        chosen.function(tmp_path / str(number), **inputs | {"seed": seed})
    first, again, other = seen
    assert first == again and (first[0], other[0]) == (3, 4) and first[1] != other[1]


def write_collection(folder: Path, **judged: list[tuple[int, int]]) -> Path:
    """Thirty passages and five queries, query i judged on passage i + 1; by split, queries with
    their grades.
    """
    (folder / "qrels").mkdir(parents=True)
    texts = [f"passage number {row} about things" for row in range(30)]
    for name, rows in (("corpus", texts), ("queries", texts[:5])):
        lines = [json.dumps({"_id": str(row), "text": text}) for row, text in enumerate(rows)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    for split, grades in judged.items():
        lines = "".join(f"{row}\t{row + 1}\t{grade}\n" for row, grade in grades)
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")
    return folder


@pytest.mark.parametrize(
    "changes",
    [{"final": "pretrained"}, {"evaluation__kind": "overlap"}, {"evaluation__kind": "coverage"}],
)
def test_what_is_not_fine_tuned_needs_no_training_queries(tiny_recipe, tmp_path, changes):
    folder = write_collection(tmp_path / "tested", test=[(row, 1) for row in range(5)])
    recipe = tiny_recipe.with_(
        collection={"name": str(folder)}, evaluation__split="test", evaluation__own_passage="keep"
    )
    recipe = recipe.with_(evaluation__measures=["MRR@10"], evaluation__depth=20)
    plan = pipeline(recipe.with_(**changes))
    assert data_facts(plan)["collection"]["train_queries"] == 0
    with pytest.raises(InputError, match="there is no split 'train'"):
        pipeline(recipe)


def test_queries_without_a_relevant_passage_fill_no_batch(tiny_recipe, tmp_path):
    """An error that only fine-tuning would notice is reported before pre-training."""
    grades = [(0, 1), (1, 1), (2, 0), (3, 0)]
    folder = write_collection(tmp_path / "few", train=grades, test=[(4, 1)])
    recipe = tiny_recipe.with_(collection={"name": str(folder)}, finetuning__batch_queries=3)
    recipe = recipe.with_(evaluation__own_passage="keep", evaluation__measures=["MRR@10"])
    recipe = recipe.with_(evaluation__depth=20, evaluation__split="test")
    with pytest.raises(InputError, match="2 training queries cannot fill a batch of 3"):
        pipeline(recipe)
    assert Inputs(recipe.with_(negatives__answers="positive")).labelled_queries == 4
