"""Stages of texts and pairs on forty passages: what they hold and depend on, and that they go on after a kill."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from dr_lib.lab.cache import Cache
from dr_lib.lab.materials import material
from dr_lib.lab.means import Means
from dr_lib.lab.way import open_means
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from dr_lib.errors import InputError
from dr_lib.lab.recipe import Recipe
from dr_lib.materials import QuestionWriter, Texts, write_all
from dr_lib.tokens import TokenStore
from dr_lib.training import Examples

MAKERS = {
    "questions": {"steps": 4, "tokens_per_batch": 256, "precision": "fp32"},
    "continuations": {"steps": 4, "tokens_per_batch": 128, "precision": "fp32"},
    "paq_pairs": {"per_passage": 3, "top_k": 10, "depth": 4},
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Cache:
    """One for all tests here: keys go by content, so that the tests share what they have in common."""
    return Cache(tmp_path_factory.mktemp("stages"), announce=lambda line: None)


@pytest.fixture
def recipe(tiny_recipe, tmp_path, monkeypatch) -> Recipe:
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("dr_lib.training.machine.has_bf16", lambda where: False)  # no kernels to build: quicker
    return tiny_recipe.with_(makers=MAKERS)


@pytest.fixture
def means(recipe) -> Means:
    return open_means(recipe)


def test_every_passage_gets_questions(means, cache):
    folder = cache.get(material("questions", means, per_passage=3))
    texts, counts = Texts.open(folder), json.loads((folder / "counts.json").read_text())
    assert counts["passages"] == 40 and counts["drawn"] == 120 and counts["kept"] == len(texts)
    assert (np.diff(texts.offsets) >= 1).all() and (np.diff(texts.offsets) <= 3).all()
    assert texts.store.tokenizer == TokenStore.open(cache.get(means.passages) / "store").tokenizer
    assert not list(folder.glob("checkpoint-*"))


def test_every_passage_goes_on(means, cache):
    texts = Texts.open(cache.get(material("continuations", means, new_tokens=9, prompt_tokens=12)))
    assert np.diff(texts.offsets).tolist() == [1] * 40


def test_a_killed_stage_goes_on_and_ends_in_the_same_texts(means, cache, monkeypatch):
    monkeypatch.setattr("dr_lib.lab.material_texts.ROWS_AT_ONCE", {"cpu": 30})
    monkeypatch.setattr(sys.modules[write_all.__module__], "BATCHES_PER_SHARD", 1)
    stage = material("questions", means, per_passage=3)
    whole = Texts.open(cache.get(stage)).strings["text"][:]
    calls, ask = [], QuestionWriter.__call__

    def killed(self: QuestionWriter, rows: np.ndarray) -> list[list[str]]:
        calls.append(len(rows))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return ask(self, rows)

    monkeypatch.setattr(QuestionWriter, "__call__", killed)
    again = replace(stage, version=2)
    with pytest.raises(KeyboardInterrupt):
        cache.get(again)
    assert Texts.open(cache.get(again)).strings["text"][:] == whole
    assert calls == [10] * 5  # four batches, the third of them begun twice


def keys(means: Means, name: str, **params) -> str:
    return material(name, means, **params).key


@pytest.mark.parametrize(
    ("change", "questions", "continuations"),
    [
        ({"seed": 1}, True, True),
        ({"makers__questions__steps": 5}, False, True),
        ({"makers__continuations__steps": 5}, True, False),
        ({"makers__questions__log_every": 5}, True, True),
        ({"query_length": 12}, False, True),
        ({"title": "none"}, False, True),
        ({"finetuning__steps": 9}, True, True),
        ({"makers__paq_pairs__top_k": 2}, True, True),
    ],
)
def test_texts_are_shared_by_recipes_that_agree_on_what_they_need(recipe, change, questions, continuations):
    before, after = open_means(recipe), open_means(recipe.with_(**change))
    assert (keys(before, "questions") == keys(after, "questions")) is questions
    assert (keys(before, "continuations") == keys(after, "continuations")) is continuations


@pytest.fixture
def t5_folder(tmp_path, means):
    """A public question generator in miniature: T5's format, with a tokenizer of whole words."""
    words = sorted({word for text in means.collection.passages["text"] for word in text.lower().split()})
    special = ["<pad>", "</s>", "<unk>"]
    raw = Tokenizer(models.WordLevel({word: id_ for id_, word in enumerate([*special, *words])}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(tokenizer) + 3, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    T5ForConditionalGeneration(config).save_pretrained(tmp_path / "t5")
    tokenizer.save_pretrained(tmp_path / "t5")
    return tmp_path / "t5"


def test_a_public_generator_is_used_as_it_is(recipe, cache, t5_folder, tmp_path):
    named = recipe.with_(makers__questions__model=str(t5_folder))
    stage = material("questions", open_means(named), per_passage=2)
    assert "question_generator" not in {one.kind for one in stage.walk()}
    texts = Texts.open(cache.get(stage))
    assert (np.diff(texts.offsets) >= 1).all()
    words = {word for text in texts.strings["text"] for word in text.split()}
    assert words and not [word for word in words if word.startswith("<")]
    moved = t5_folder.rename(tmp_path / "elsewhere")
    again = material("questions", open_means(recipe.with_(makers__questions__model=str(moved))), per_passage=2)
    assert again.key == stage.key and str(tmp_path) not in json.dumps(dict(stage.params))


@pytest.fixture
def gpt2_folder(tmp_path, means):
    """A public causal LM in miniature: GPT-2's format, its byte-level pieces, and one special token for everything."""
    raw, end = Tokenizer(models.BPE()), "<|endoftext|>"
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    raw.train_from_iterator(
        means.collection.passages["text"], trainers.BpeTrainer(vocab_size=300, special_tokens=[end])
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=end, eos_token=end, unk_token=end)
    torch.manual_seed(0)
    GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer), n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
        )
    ).save_pretrained(tmp_path / "gpt2")
    tokenizer.save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2"


def test_a_public_language_model_goes_on_from_every_passage(recipe, cache, gpt2_folder):
    means = open_means(recipe.with_(makers__continuations__model=str(gpt2_folder)))
    stage = material("continuations", means, new_tokens=9, prompt_tokens=12)
    assert "continuation_model" not in {one.kind for one in stage.walk()}
    texts = Texts.open(cache.get(stage))
    assert np.diff(texts.offsets).tolist() == [1] * 40
    assert texts.store.tokenizer == TokenStore.open(cache.get(means.passages) / "store").tokenizer
    assert not [text for text in texts.strings["text"] if "endoftext" in text]
    with pytest.raises(InputError, match="reads 64"):
        cache.get(material("continuations", means, new_tokens=32, prompt_tokens=32))


def test_a_generator_that_is_not_there_is_refused_before_anything_runs(recipe):
    with pytest.raises(InputError, match="nowhere"):
        material("questions", open_means(recipe.with_(makers__questions__model="/nowhere/at/all")))


@pytest.mark.parametrize("how", ["none", "local", "global"])
def test_questions_become_pairs_with_negatives(recipe, cache, how):
    means = open_means(recipe.with_(makers__paq_pairs__filter=how))
    folder = cache.get(material("paq_pairs", means))
    examples, counts = Examples.open(folder / "examples"), json.loads((folder / "counts.json").read_text())
    assert counts["generated"] >= counts["deduplicated"] >= counts["filtered"] >= counts["queries"] == len(examples)
    assert (counts["filtered"] == counts["deduplicated"]) is (how == "none")
    assert examples.negatives.shape == (len(examples), 4) and (examples.negatives >= 0).all()
    assert examples.passages == 40 and len(TokenStore.open(folder / "queries")) == len(examples)


def test_a_dense_first_retriever_may_filter_and_mine(recipe, cache):
    chosen = {**MAKERS["paq_pairs"], "filter_by": "dense", "negatives": "dense"}
    stage = material("paq_pairs", open_means(recipe.with_(makers={**MAKERS, "paq_pairs": chosen})))
    kinds = {one.kind for one in stage.walk()}
    assert {"retriever", "vectors"} <= kinds
    folder = cache.get(stage)
    assert (Examples.open(folder / "examples").negatives >= 0).all()
    assert not list(folder.glob("checkpoint-*"))


def test_titles_are_the_pairs_where_no_file_is_named(means, cache):
    folder = cache.get(material("reddit_pairs", means))
    counts = json.loads((folder / "counts.json").read_text())
    assert counts["rows"] == counts["passages"] == 40
    assert len(TokenStore.open(folder / "passages")) == 40
    assert Examples.open(folder / "examples").passages == 40


@pytest.mark.parametrize("name", ["paq_pairs", "reddit_pairs"])
def test_a_file_counts_by_its_content(recipe, cache, tmp_path, monkeypatch, name):
    rows = [{"context": [f"word {row}"], "response": f"text {row // 2}"} for row in range(20)]
    path = tmp_path / "data" / "posts" / "pairs" / "train.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    by_path = recipe.with_(**{f"makers__{name}__file": str(path)})
    stage = material(name, open_means(by_path))
    monkeypatch.setenv("DR_DATA", str(tmp_path / "data"))
    by_name = recipe.with_(**{f"makers__{name}__file": "posts"})
    assert material(name, open_means(by_name)).key == stage.key
    assert str(tmp_path) not in json.dumps(by_path.portable()["makers"])
    folder = cache.get(stage)
    counts = json.loads((folder / "counts.json").read_text())
    assert (counts["queries"], counts["passages"], counts["pairs"]) == (20, 10, 20)
    drawn = material(name, open_means(by_path.with_(**{f"makers__{name}__limit": 6})))
    assert drawn.key != stage.key and len(Examples.open(cache.get(drawn) / "examples")) == 6
    path.write_text(path.read_text() + json.dumps(rows[0]) + "\n")
    assert material(name, open_means(by_path)).key != stage.key


def test_a_file_that_is_not_there_is_refused_with_where_it_was_looked_for(recipe):
    with pytest.raises(InputError, match=r"nothing\.jsonl"):
        material("paq_pairs", open_means(recipe.with_(makers__paq_pairs__file="nothing.jsonl")))


def test_means_of_another_collection_make_other_texts(means):
    other = replace(means, collection=means.collection.sample(passages=30))
    assert keys(replace(other, passages=open_means(means.recipe, other.collection).passages), "questions") != keys(
        means, "questions"
    )
