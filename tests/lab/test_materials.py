"""Materials that methods need beside the passages: what produces them, which methods share them,
and methods trained on them.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from dr_lib import objectives
from dr_lib.errors import InputError
from dr_lib.files import read_json
from dr_lib.lab import Inputs, Recipe, pipeline, trainings
from dr_lib.materials import Texts, count_ngrams, write_importances
from dr_lib.materials.texts import PassageWriter
from dr_lib.models import load_extra
from dr_lib.retrieval import Ranking
from dr_lib.stages import Stage
from dr_lib.tokens import TokenStore, TokenValues
from dr_lib.training import Examples, RetrievalBatches, TrainLog, training_examples

SURE = {"depth": 6, "s_pos": 1e-6, "s_neg": 0.0}  # a scorer of two steps is sure of nothing
PAIRS = {"per_passage": 3, "top_k": 10, "depth": 4}
LOG = {"pool": "file", "file": "log"}
WORDS = [
    "a",
    "dense",
    "retriever",
    "maps",
    "queries",
    "and",
    "passages",
    "to",
    "vectors",
    "and",
    "compares",
    "them",
]


def material(recipe: Recipe, name: str, **params) -> Stage:
    """The stage of a material, by its name."""
    return trainings.MATERIALS[name](Inputs(recipe), **params)


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe.with_(auxiliary__paq_pairs=PAIRS)


def kinds(stage: Stage) -> set[str]:
    return {one.kind for one in stage.walk()}


def by_kind(stage: Stage) -> dict[str, Stage]:
    return {one.kind: one for one in stage.walk()}


def with_auxiliary(recipe: Recipe, part: str, **chosen) -> Recipe:
    return recipe.with_(**{f"auxiliary__{part}__{name}": value for name, value in chosen.items()})


# Methods and their materials ----------------------------------------------------------------------


@pytest.mark.parametrize("name", objectives.names())
def test_one_word_brings_a_method_with_its_defaults_and_its_materials(name, recipe):
    changed = recipe.with_(objective="mlm", objective__rate=0.4).with_(objective=name)
    assert (
        changed.objective.params["rate"] == 0.4
        if name == "mlm"
        else changed == recipe.with_(objective=name)
    )
    stage = pipeline(changed).pretrained
    assert (stage is None) is (name == "none")
    materials = stage.arguments["materials"] if stage else {}
    assert set(materials) == set(objectives.parameters(name).materials())


@pytest.mark.parametrize(
    ("tasks", "made"),
    [
        (["cmp"], set()),
        (["mkp", "npr"], {"keyword_weights"}),
        (["dor"], {"questions"}),
        (["gor"], {"continuations"}),
    ],
)
def test_a_task_that_is_off_makes_nothing(tasks, made, recipe):
    stage = pipeline(recipe.with_(objective="master", objective__tasks=tasks)).pretrained
    assert kinds(stage) & {"keyword_weights", "questions", "continuations"} == made


def test_a_uniform_mask_needs_no_importances(recipe):
    cdmae = recipe.with_(objective="cdmae")
    assert {"importances", "ngrams"} <= kinds(pipeline(cdmae).end)
    uniform = cdmae.with_(objective__decoder_masking="uniform")
    assert not kinds(pipeline(uniform).end) & {"importances", "ngrams", "keyword_weights"}


def test_cdmae_trains_on_its_importances(recipe, shared):
    folder = shared.get(pipeline(recipe.with_(objective="cdmae")).pretrained)
    assert (folder / "model" / "model.safetensors").is_file() and (
        folder / "model" / "extra.safetensors"
    ).is_file()


def test_master_trains_on_the_materials_of_its_tasks(recipe, shared):
    folder = shared.get(
        pipeline(recipe.with_(objective="master", objective__questions=2)).pretrained
    )
    log = TrainLog.load(folder / "log.json")
    assert {"mkp_loss", "cmp_loss", "npr_loss", "dor_loss", "gor_loss", "encoder_loss"} <= set(
        log.names
    )
    assert np.isfinite(log.column("loss")).all()
    assert {name.split(".")[1] for name in load_extra(folder / "model")} == {
        "mkp",
        "cmp",
        "npr",
        "dor",
        "gor",
    }


def test_pair_trains_on_what_the_scorer_is_sure_of(recipe, shared):
    sure = with_auxiliary(
        recipe.with_(objective="pair", objective__batch_pairs=4), "pseudo_labels", **SURE
    )
    stage = pipeline(sure).pretrained
    assert {"bm25_candidates", "cross_encoder", "candidate_scores", "pseudo_labels"} <= kinds(stage)
    assert np.isfinite(TrainLog.load(shared.get(stage) / "log.json").column("loss")).all()


# Word statistics ----------------------------------------------------------------------------------


def importances_of(recipe: Recipe, **chosen) -> Stage:
    changed = recipe.with_(
        objective="cdmae", **{f"objective__{name}": value for name, value in chosen.items()}
    )
    return pipeline(changed).pretrained.arguments["materials"]["importances"]


def test_importances_are_those_of_the_passages_tokens(recipe, shared, tmp_path):
    folder = shared.get(importances_of(recipe, pmi="minseg", window=3))
    store = TokenStore.open(shared.get(Inputs(recipe).passages()) / "store")
    assert np.diff(store.title_offsets).max() > 0
    counts = count_ngrams(store, tmp_path / "counts", order=3)
    expected = write_importances(counts, store, tmp_path / "values", window=3, pmi="minseg")
    found = TokenValues(folder / "values", store)
    assert np.array_equal(found.title, expected.title) and np.array_equal(found.text, expected.text)


def test_what_decides_only_the_mask_makes_no_new_importances(recipe):
    key = importances_of(recipe).key
    for change in (
        {"decoder_rate": 0.4},
        {"noise": 0.0},
        {"projection": False},
        {"mask_policy": "mask"},
    ):
        assert importances_of(recipe, **change).key == key
    assert importances_of(recipe.with_(seed=3, passage_length=16)).key == key


@pytest.mark.parametrize(
    ("change", "same_counts"),
    [
        ({"pmi": "minseg"}, True),
        ({"window": 2}, True),
        ({"edges": "zero"}, True),
        ({"floor": 0.5}, True),
        ({"window": 5}, False),
        ({"min_count": 2}, False),
        ({"unit": "piece"}, False),
    ],
    ids=str,
)
def test_variants_of_the_importance_share_the_counts(recipe, change, same_counts):
    first, second = importances_of(recipe), importances_of(recipe, **change)
    assert first.key != second.key
    assert (by_kind(first)["ngrams"].key == by_kind(second)["ngrams"].key) is same_counts


def test_keyword_weights_go_by_the_weighting_of_the_method(recipe):
    keys = {
        material(recipe, "keyword_weights", weighting=name).key
        for name in ("inverse_count", "tfidf")
    }
    assert len(keys) == 2


# Texts --------------------------------------------------------------------------------------------


def test_every_passage_gets_questions_and_goes_on(recipe, shared):
    asked = Texts.open(shared.get(material(recipe, "questions", per_passage=3)))
    assert (np.diff(asked.offsets) >= 1).all() and (np.diff(asked.offsets) <= 3).all()
    assert (
        asked.store.tokenizer
        == TokenStore.open(shared.get(Inputs(recipe).passages()) / "store").tokenizer
    )
    goes_on = Texts.open(
        shared.get(material(recipe, "continuations", new_tokens=9, prompt_tokens=12))
    )
    assert np.diff(goes_on.offsets).tolist() == [1] * 40


def test_killed_writing_goes_on_and_ends_in_the_same_texts(recipe, shared, monkeypatch):
    monkeypatch.setattr("dr_lib.materials.texts.ROWS_AT_ONCE", {"cpu": 30})
    monkeypatch.setattr("dr_lib.materials.texts.BATCHES_PER_SHARD", 1)
    stage = replace(material(recipe, "questions", per_passage=3), version=2)
    calls, write = [], PassageWriter.__call__

    def killed(self: PassageWriter, rows: np.ndarray) -> list[list[str]]:
        calls.append(len(rows))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return write(self, rows)

    monkeypatch.setattr(PassageWriter, "__call__", killed)
    with pytest.raises(KeyboardInterrupt):
        shared.get(stage)
    folder = shared.get(stage)
    assert calls == [10] * 5  # four batches, the third of them begun twice
    monkeypatch.setattr(PassageWriter, "__call__", write)
    whole = shared.get(replace(stage, version=3))
    texts = [Texts.open(one).strings["text"][:] for one in (folder, whole)]
    assert texts[0] == texts[1] and not list(folder.glob("checkpoint-*"))


@pytest.mark.parametrize(
    ("change", "questions", "continuations"),
    [
        ({"seed": 1}, True, True),
        ({"auxiliary__questions__steps": 5}, False, True),
        ({"auxiliary__continuations__steps": 5}, True, False),
        ({"auxiliary__questions__log_every": 5}, True, True),
        ({"query_length": 12}, False, True),
        ({"title": "none"}, False, True),
        ({"finetuning__steps": 9}, True, True),
        ({"auxiliary__paq_pairs__top_k": 2}, True, True),
        ({"collection__passages": 30}, False, False),
    ],
    ids=str,
)
def test_texts_are_shared_by_recipes_that_agree_on_what_they_need(
    recipe, change, questions, continuations
):
    after = recipe.with_(**change)
    for name, same in (("questions", questions), ("continuations", continuations)):
        assert (material(recipe, name).key == material(after, name).key) is same, name


@pytest.fixture
def t5_folder(tmp_path, recipe):
    """A public question generator in miniature: T5's format, with a tokenizer of whole words."""
    words = sorted(
        {
            word
            for text in Inputs(recipe).collection.passages["text"]
            for word in text.lower().split()
        }
    )
    special = ["<pad>", "</s>", "<unk>"]
    raw = Tokenizer(
        models.WordLevel(
            {word: id_ for id_, word in enumerate([*special, *words])}, unk_token="<unk>"
        )
    )
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(tokenizer) + 3,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    )
    T5ForConditionalGeneration(config).save_pretrained(tmp_path / "t5")
    tokenizer.save_pretrained(tmp_path / "t5")
    return tmp_path / "t5"


def test_a_public_generator_is_used_as_it_is_and_counts_by_its_content(
    recipe, shared, t5_folder, tmp_path
):
    named = with_auxiliary(recipe, "questions", model=str(t5_folder))
    stage = material(named, "questions", per_passage=2)
    assert "question_generator" not in kinds(stage)
    texts = Texts.open(shared.get(stage))
    assert (np.diff(texts.offsets) >= 1).all()
    words = {word for text in texts.strings["text"] for word in text.split()}
    assert words and not [word for word in words if word.startswith("<")]
    place = str(t5_folder.rename(tmp_path / "elsewhere"))
    moved = with_auxiliary(recipe, "questions", model=place)
    assert material(moved, "questions", per_passage=2).key == stage.key
    assert str(tmp_path) not in json.dumps([stage.parameters, moved.portable()])


@pytest.fixture
def gpt2_folder(tmp_path, recipe):
    """A public causal LM in miniature: GPT-2's format, its byte-level pieces, and one special token
    for everything.
    """
    raw, end = Tokenizer(models.BPE()), "<|endoftext|>"
    raw.pre_tokenizer, raw.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    texts = Inputs(recipe).collection.passages["text"]
    raw.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=300, special_tokens=[end]))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token=end, eos_token=end, unk_token=end
    )
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=64,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    tokenizer.save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2"


def test_a_public_language_model_goes_on_from_every_passage(recipe, shared, gpt2_folder):
    recipe = with_auxiliary(recipe, "continuations", model=str(gpt2_folder))
    stage = material(recipe, "continuations", new_tokens=9, prompt_tokens=12)
    assert "continuation_model" not in kinds(stage)
    texts = Texts.open(shared.get(stage))
    assert np.diff(texts.offsets).tolist() == [1] * 40
    assert (
        texts.store.tokenizer
        == TokenStore.open(shared.get(Inputs(recipe).passages()) / "store").tokenizer
    )
    assert not [text for text in texts.strings["text"] if "endoftext" in text]
    with pytest.raises(InputError, match="reads 64"):
        shared.get(material(recipe, "continuations", new_tokens=32, prompt_tokens=64))


def test_a_writer_that_is_not_there_is_refused_before_anything_runs(recipe):
    with pytest.raises(InputError, match="nowhere"):
        material(with_auxiliary(recipe, "questions", model="/nowhere/at/all"), "questions")


# Pairs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["none", "local", "global"])
def test_questions_become_pairs_with_negatives(recipe, shared, how):
    folder = shared.get(material(with_auxiliary(recipe, "paq_pairs", filter=how), "paq_pairs"))
    examples, counts = Examples.open(folder / "examples"), read_json(folder / "counts.json")
    assert (
        counts["generated"]
        >= counts["deduplicated"]
        >= counts["filtered"]
        >= counts["queries"]
        == len(examples)
    )
    assert (counts["filtered"] == counts["deduplicated"]) is (how == "none")
    assert examples.negatives.shape == (len(examples), 4) and (examples.negatives >= 0).all()
    assert examples.passages == 40 and len(TokenStore.open(folder / "queries")) == len(examples)


def test_a_dense_first_retriever_may_filter_and_mine(recipe, shared):
    words, dense = (
        material(with_auxiliary(recipe, "paq_pairs", filter_by=by, negatives=by), "paq_pairs")
        for by in ("bm25", "dense")
    )
    assert {"retriever", "vectors"} <= kinds(dense) and not {"retriever", "vectors"} & kinds(words)
    assert by_kind(dense)["retriever"].key == pipeline(recipe.with_(objective="none")).retriever.key
    assert (Examples.open(shared.get(dense) / "examples").negatives >= 0).all()


def test_titles_are_the_pairs_where_no_file_is_named(recipe, shared):
    folder = shared.get(material(recipe, "reddit_pairs"))
    counts = read_json(folder / "counts.json")
    assert counts["rows"] == counts["passages"] == len(TokenStore.open(folder / "passages")) == 40


def test_peoples_questions_are_those_fine_tuning_learns_from(recipe, shared):
    recipe = recipe.with_(objective="paq", auxiliary__paq_pairs__labels="given")
    drawn = []
    for limit in (3, 7, 1000, None):
        plan = pipeline(with_auxiliary(recipe, "paq_pairs", limit=limit))
        stage = by_kind(plan.retriever)["given_labels"]
        assert "questions" not in kinds(stage)
        found = Examples.open(shared.get(stage) / "examples")
        assert found.positives.tolist() == found.query_rows.tolist()  # query r is about passage r
        assert (found.negatives >= 0).all()
        drawn.append(set(found.query_rows.tolist()))
    assert [len(rows) for rows in drawn] == [3, 7, 12, 12] and drawn[0] < drawn[1] < drawn[2]
    trained = shared.get(plan.retriever) / "model" / "model.safetensors"
    assert trained.is_file()


@pytest.mark.parametrize("name", ["paq_pairs", "reddit_pairs"])
def test_a_file_of_pairs_counts_by_its_content(recipe, shared, tmp_path, monkeypatch, name):
    rows = [{"context": [f"word {row}"], "response": f"text {row // 2}"} for row in range(20)]
    path = tmp_path / "data" / "posts" / "pairs" / "train.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    by_path = with_auxiliary(recipe, name, file=str(path))
    stage = material(by_path, name)
    monkeypatch.setenv("DR_DATA", str(tmp_path / "data"))
    assert material(with_auxiliary(recipe, name, file="posts"), name).key == stage.key
    assert str(tmp_path) not in json.dumps(by_path.portable()["auxiliary"])
    counts = read_json(shared.get(stage) / "counts.json")
    assert (counts["queries"], counts["passages"], counts["pairs"]) == (20, 10, 20)
    drawn = material(with_auxiliary(by_path, name, limit=6), name)
    assert drawn.key != stage.key and len(Examples.open(shared.get(drawn) / "examples")) == 6
    path.write_text(path.read_text() + json.dumps(rows[0]) + "\n")
    assert material(by_path, name).key != stage.key


def test_a_file_that_is_not_there_is_refused_before_anything_runs(recipe):
    with pytest.raises(InputError, match=r"nothing\.jsonl"):
        _ = pipeline(
            with_auxiliary(recipe.with_(objective="paq"), "paq_pairs", file="nothing.jsonl")
        ).end
    with pytest.raises(InputError, match=r"nowhere.*queries\.jsonl"):
        material(recipe.with_(auxiliary__pseudo_labels=LOG | {"file": "nowhere"}), "pseudo_labels")


# Pseudo-labels ------------------------------------------------------------------------------------


def labelled(recipe: Recipe, **chosen) -> tuple[Inputs, Stage]:
    inputs = Inputs(recipe.with_(auxiliary__pseudo_labels=chosen))
    return inputs, trainings.pseudo_labels(inputs)


@pytest.fixture
def queries_file(tmp_path, monkeypatch):
    """A file of fourteen distinct unlabelled queries, under DR_DATA."""
    texts = [" ".join(WORDS[place : place + 4]) for place in range(9)] + ["a dense retriever"]
    texts += [
        "what does the decoder see",
        "how are vectors compared",
        "hard negatives",
        "masked input",
    ]
    path = tmp_path / "data" / "log" / "queries.jsonl"
    path.parent.mkdir(parents=True)
    rows = enumerate([*texts, texts[0].upper(), " "])
    path.write_text(
        "".join(json.dumps({"_id": str(row), "text": text}) + "\n" for row, text in rows)
    )
    monkeypatch.setenv("DR_DATA", str(tmp_path / "data"))
    return path


@pytest.mark.parametrize("first", ["bm25", "dense"])
@pytest.mark.parametrize(
    "pool", [{"pool": "train"}, {"pool": "questions"}, LOG], ids=lambda one: one["pool"]
)
def test_pairs_come_from_each_pool_and_each_retriever(pool, first, recipe, queries_file, shared):
    inputs, stage = labelled(recipe, first=first, **pool, **SURE)
    folder = shared.get(stage)
    examples, queries = Examples.open(folder / "examples"), TokenStore.open(folder / "queries")
    found = Ranking.open(shared.get(stage.arguments["candidates"]) / "ranking").rows
    assert len(found) == len(queries) and examples.passages == 40
    for place, row in enumerate(examples.query_rows):
        own = examples.positives[examples.offsets[place] : examples.offsets[place + 1]]
        assert own.tolist() == [passage for passage in found[row].tolist() if passage >= 0]
    passages = TokenStore.open(shared.get(inputs.passages()) / "store")
    batch = RetrievalBatches(
        queries, passages, examples, batch_queries=4, passages_per_query=3
    ).batch(0)
    assert len(batch) == 4 and len(batch.passages) == 12
    if pool["pool"] != "questions":
        assert len(queries) == {"train": 12, "file": 14}[pool["pool"]]


def test_of_unlabelled_queries_no_passage_is_known(recipe, queries_file, shared):
    _, stage = labelled(recipe, **LOG, **SURE)
    counts = read_json(shared.get(stage) / "counts.json")["chosen"]
    assert counts["queries"] == 14 and counts["positives"] > 0 and counts["known_retrieved"] == 0
    read = read_json(shared.get(by_kind(stage)["unlabelled_queries"]) / "counts.json")
    assert read == {"read": 16, "empty": 1, "repeated": 1, "held_out": 0}


def test_queries_that_are_tested_with_are_no_unlabelled_ones(recipe, queries_file, shared):
    """The collection's own file of queries contains those of all its splits."""
    own, collection = Path(recipe.collection.name) / "queries.jsonl", Inputs(recipe).collection
    stage = by_kind(labelled(recipe, pool="file", file=str(own), **SURE)[1])["unlabelled_queries"]
    kept = {text.casefold() for text in Texts.open(shared.get(stage)).strings["text"]}
    held = {
        text.casefold() for split in ("dev", "test") for text in collection.queries(split)["text"]
    }
    assert kept == {text.casefold() for text in collection.queries("train")["text"]} - held
    assert read_json(shared.get(stage) / "counts.json")["held_out"] == len(held)


def test_a_file_of_queries_counts_by_its_content(recipe, queries_file):
    by_name, by_path = (
        labelled(recipe, pool="file", file=name) for name in ("log", str(queries_file))
    )
    assert by_name[1].key == by_path[1].key != labelled(recipe)[1].key
    assert str(queries_file.parent) not in json.dumps(by_path[0].recipe.portable())
    queries_file.write_text(
        queries_file.read_text() + json.dumps({"_id": "n", "text": "one more"}) + "\n"
    )
    assert labelled(recipe, **LOG)[1].key != by_name[1].key


def test_a_line_that_is_no_query_is_named(recipe, queries_file, cache):
    queries_file.write_text(queries_file.read_text() + '{"_id": "n", "words": "who?"}\n')
    with pytest.raises(InputError, match=r"queries\.jsonl line 17: field text is missing"):
        cache.get(by_kind(labelled(recipe, **LOG)[1])["unlabelled_queries"])


def test_counts_are_of_the_labels_and_of_what_nobody_looked_at(recipe, shared):
    folder = shared.get(labelled(recipe, **SURE)[1])
    counts, examples = read_json(folder / "counts.json"), Examples.open(folder / "examples")
    chosen = counts["chosen"]
    assert (chosen["queries"], chosen["queries_kept"]) == (12, len(examples))
    assert chosen["positives"] == len(examples.positives) and chosen["negatives"] == 0
    assert chosen["kept_without_negative"] == len(examples)
    assert 0 < chosen["known_retrieved"] == chosen["known_positive"] <= 12
    assert [row["s_pos"] for row in counts["thresholds"]] == [0.9, 0.8, 0.7, 0.6]


def test_other_thresholds_score_nothing_again(recipe):
    stages = [labelled(recipe, s_pos=high, s_neg=0.1)[1] for high in (0.9, 0.8)]
    first, second = ({one.key for one in stage.walk()} for stage in stages)
    assert first ^ second == {stage.key for stage in stages}


def test_the_scorer_is_trained_for_the_probability_that_is_read_from_it(recipe):
    losses = [
        by_kind(labelled(recipe, probability=name)[1])["cross_encoder"].arguments["loss"]
        for name in ("sigmoid", "softmax")
    ]
    assert losses == ["pointwise", "listwise"]


def test_labels_depend_on_the_seed_of_a_run_only_through_a_dense_first_retriever(recipe):
    for first, number in (("bm25", 1), ("dense", 2)):
        assert (
            len({labelled(recipe.with_(seed=seed), first=first)[1].key for seed in (0, 5)})
            == number
        )


def test_softmax_thresholds_share_one_among_the_candidates(recipe, shared):
    _, stage = labelled(recipe, depth=6, probability="softmax", s_pos=0.1, s_neg=0.05)
    scores = np.load(shared.get(by_kind(stage)["candidate_scores"]) / "scores.npy")
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    counts = read_json(shared.get(stage) / "counts.json")["chosen"]
    assert (counts["queries_kept"], counts["positives"]) == (
        (chances > 0.1).any(1).sum(),
        (chances > 0.1).sum(),
    )


def test_an_unsure_scorer_is_named_with_the_way_out(recipe, shared):
    with pytest.raises(
        InputError, match=r"no query has a passage scored above 0.9999 .*Lower s_pos"
    ):
        shared.get(labelled(recipe, depth=6, s_pos=0.9999)[1])


@pytest.mark.parametrize(
    ("pool", "kind"), [({"pool": "questions"}, "questions"), (LOG, "unlabelled_queries")]
)
def test_texts_are_read_in_the_scorers_own_tokens(pool, kind, recipe, queries_file, shared):
    same, other = (
        by_kind(labelled(one, **pool)[1])["candidate_scores"].arguments["queries"]
        for one in (recipe, with_auxiliary(recipe, "cross_encoder", model="embedded"))
    )
    assert (same.kind, other.kind) == (kind, "text_tokens")
    stores = [TokenStore.open(shared.get(stage) / "store") for stage in (same, other)]
    assert len(stores[0]) == len(stores[1]) and stores[0].tokenizer != stores[1].tokenizer


def test_given_labels_make_pairs_without_any_scorer(recipe, shared):
    inputs, stage = labelled(recipe, labels="given")
    assert not {"cross_encoder", "bm25_candidates"} & kinds(stage)
    found = Examples.open(shared.get(stage) / "examples")
    assert found.positives.tolist() == list(range(12))  # query r is about passage r
    negatives = np.load(shared.get(trainings.bm25_negatives(inputs)) / "negatives.npy")
    np.testing.assert_array_equal(found.negatives, negatives)
    assert len(TokenStore.open(shared.get(stage) / "queries")) == 12


def pairs_of(examples: Examples) -> set[tuple[int, int]]:
    owners = np.repeat(examples.query_rows, examples.counts())
    return set(zip(owners.tolist(), examples.positives.tolist(), strict=True))


def test_fine_tuning_can_learn_from_pseudo_labels_too(recipe, shared):
    plain = recipe.with_(objective="none", auxiliary__pseudo_labels=SURE)
    assert pipeline(plain).retriever.key == pipeline(recipe.with_(objective="none")).retriever.key
    plan = pipeline(plain.with_(finetuning__pseudo_labels=True))
    learned_from = plan.retriever.arguments["examples"].stage.arguments
    labels, negatives = (shared.get(learned_from[name]) for name in ("pseudo_labels", "negatives"))
    given = training_examples(plan.inputs.collection, negatives)
    learned = pairs_of(training_examples(plan.inputs.collection, negatives, labels))
    assert learned == pairs_of(given) | pairs_of(Examples.open(labels / "examples")) and len(
        learned
    ) > len(given)
    assert (shared.get(plan.retriever) / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize("pool", [{"pool": "questions"}, LOG])
def test_fine_tuning_reads_no_labels_of_other_queries(pool, recipe):
    with pytest.raises(InputError, match=r'auxiliary\.pseudo_labels\.pool="train"'):
        recipe.with_(finetuning__pseudo_labels=True, auxiliary__pseudo_labels=pool)
