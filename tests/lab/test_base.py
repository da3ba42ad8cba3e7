"""Base models: what they may read, what is held out, how they get into the book with their
record.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

from dr_lib import lab
from dr_lib.errors import InputError
from dr_lib.files import read_json
from dr_lib.lab import BaseRecipe, ObjectiveSettings, build_base
from dr_lib.lab.base import TextSource, allowed_rows, base_stage, base_text, is_held_out, measure
from dr_lib.models import load_masked_lm, save_masked_lm
from dr_lib.stages import Cache
from dr_lib.tokens import load_tokenizer


@pytest.fixture
def recipe(tiny_recipe) -> BaseRecipe:
    """One layer on the forty passages of `tiny_recipe`, without the documents of the test split."""
    return BaseRecipe(
        name="tiny-base",
        sources=[{"name": tiny_recipe.collection.name, "without_documents_of": ["test"]}],
        vocabulary=120,
        layers=1,
        hidden=32,
        heads=2,
        positions=48,
        length=32,
        training={
            "steps": 6,
            "learning_rate": 1e-3,
            "tokens_per_batch": 256,
            "checkpoint_every": 2,
        },
        held_out=0.2,
    )


@pytest.fixture
def collection(recipe):
    return lab.open_collection(recipe.sources[0].name)


def test_documents_of_a_left_out_split_are_never_read(collection):
    rows, documents = allowed_rows(collection, ["test"])
    unseen = {row // 4 for row in range(18, 24)}  # passages of the test queries, four to a document
    assert rows.tolist() == [row for row in range(40) if row // 4 not in unseen]
    assert len(set(documents.tolist())) == 10 - len(unseen)


def test_a_document_is_left_out_if_only_the_very_first_passage_is_judged():
    collection = SimpleNamespace(
        documents=lambda: (np.array([0, 0, 1]), None),
        qrels=lambda split: {"q": {"a": 1}},
        passages={"id": ["a", "b", "c"]},
    )
    assert allowed_rows(collection, ["test"])[0].tolist() == [2]


def test_every_source_leaves_out_its_own_splits(recipe):
    sources = (*recipe.sources, TextSource(name=recipe.sources[0].name))
    stages = base_stage(recipe.model_copy(update={"sources": sources})).walk()
    (words,) = (one for one in stages if one.kind == "vocabulary")
    assert words.arguments["left_out"] == [["test"], []]


def test_losses_on_held_out_text_are_weighted_by_real_tokens_and_without_dropout(make_token_batch):
    class Rows(torch.nn.Linear):
        def forward(self, batch, generator):
            return {"loss": 1.0 + batch.rows[0] + self.training, "seed": generator.initial_seed()}

    ids = np.array([[2, 5, 5, 5, 5, 3, 0, 0], [2, 3, 0, 0, 0, 0, 0, 0]])
    batches = SimpleNamespace(
        steps_per_epoch=2, batch=lambda step: make_token_batch(ids[[step]], np.array([step]))
    )
    found = measure(Rows(1, 1), batches, 7)  # six tokens of loss 1, two of loss 2
    assert found == {"loss": 1.25, "seed": 7, "perplexity": np.exp(1.25), "tokens": 8}


def test_whole_documents_are_held_out_and_nothing_is_lost(collection):
    rows, documents = allowed_rows(collection, ["test"])
    outside = is_held_out(documents, 0.2, 0)
    assert not set(documents[outside]) & set(documents[~outside])
    learned, unseen = base_text([collection], [["test"]], 0.2, 0)
    assert (len(learned), len(unseen)) == ((~outside).sum(), outside.sum())
    assert sorted([*learned["text"], *unseen["text"]]) == sorted(collection.passages[rows]["text"])
    assert np.array_equal(outside, is_held_out(documents, 0.2, 0))


def test_leaving_everything_out_is_refused(collection):
    with pytest.raises(InputError, match="no passage is left"):
        allowed_rows(collection.sample(passages=24, seed=0), ["train", "dev", "test"])


def test_a_base_model_lands_in_a_folder_with_its_record(recipe, shared, tmp_path):
    folder = build_base(recipe, shared, to=tmp_path / "weights")
    model, tokenizer = load_masked_lm(folder), load_tokenizer(folder)
    assert model.config.vocab_size == len(tokenizer)
    record = read_json(folder / "record.json")
    assert record["text"][0]["name"] == "tiny" and record["text"][0]["passages"] == 32
    assert record["training"]["steps"] == 6 and record["curve"]["step"]
    assert record["held_out"]["perplexity"] == pytest.approx(
        np.exp(record["held_out"]["loss"]), rel=1e-5
    )
    text = (folder / "record.json").read_text()
    assert str(tmp_path) not in text and recipe.sources[0].name not in text
    again = Cache(shared.root, announce=lambda line: None)
    build_base(recipe, again, to=tmp_path / "again")
    assert again.built == []
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        folder / "model.safetensors"
    ).read_bytes()


def test_a_method_with_weights_of_its_own_trains_a_base_model_too(recipe, shared):
    condenser = ObjectiveSettings(name="condenser", skip_from=0, head_layers=1)
    made = shared.get(base_stage(recipe.model_copy(update={"objective": condenser})))
    assert "decoder_loss" in read_json(made / "held_out.json")


def test_another_size_shares_vocabulary_and_tokens(recipe):
    first, second = base_stage(recipe), base_stage(recipe.model_copy(update={"layers": 2}))
    assert first.key != second.key
    assert [one.key for one in first.inputs] == [one.key for one in second.inputs]
    assert {one.kind for one in first.walk()} == {"vocabulary", "base_tokens", "base"}


@pytest.mark.parametrize("change", [{"vocabulary": 100}, {"held_out": 0.4}, {"seed": 1}], ids=str)
def test_other_text_or_words_share_nothing(recipe, change):
    first, second = (
        {one.key for one in base_stage(one).walk()}
        for one in (recipe, recipe.model_copy(update=change))
    )
    assert not first & second


def test_a_recipe_may_start_from_a_base_recipe(recipe, tiny_recipe, shared, tmp_path):
    (tmp_path / "tiny-base.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    plan = lab.pipeline(tiny_recipe.with_(base=str(tmp_path / "tiny-base.yaml"), objective="mlm"))
    assert plan.inputs.base.model.stage.key == base_stage(recipe).key
    kinds = [one.kind for one in plan.end.walk()]
    assert kinds.count("base") == 1 and kinds.index("base") < kinds.index("pretrained")
    record = lab.execute(lab.Run("t", "row", "smoke", plan.inputs.recipe), shared)
    assert (
        record.data["base"] == plan.inputs.base.facts()
        and record.data["base"]["name"] == "tiny-base"
    )
    assert str(tmp_path) not in record.model_dump_json()
    with pytest.raises(
        InputError, match="passage_length: sequences of 49 pieces, but tiny-base reads 48"
    ):
        lab.pipeline(plan.inputs.recipe.with_(passage_length=49))


def test_a_base_model_that_is_replaced_under_a_living_kernel_is_read_anew(
    tiny_recipe, tiny_bert, tiny_tokenizer, tmp_path
):

    keys = set()
    for seed in (1, 2):
        save_masked_lm(tiny_bert(seed=seed), tiny_tokenizer, tmp_path / "mine")
        keys.add(lab.pipeline(tiny_recipe.with_(base=str(tmp_path / "mine"))).end.key)
    assert len(keys) == 2


def test_a_collection_that_is_replaced_under_a_living_kernel_is_read_anew(own_recipe, tmp_path):
    before, corpus = lab.pipeline(own_recipe).end.key, tmp_path / "tiny" / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("vector", "victor"))  # of the same size
    assert lab.pipeline(own_recipe).end.key != before
