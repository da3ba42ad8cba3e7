"""Recipes: frozen, validated, unchanged by YAML, without paths in records; scales."""

import inspect
from pathlib import Path

import pytest
import yaml
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from pydantic import ValidationError

from dr_lib import places
from dr_lib.collections import squad
from dr_lib.errors import InputError
from dr_lib.files import read_yaml
from dr_lib.lab import BaseRecipe, Recipe, load_records, recipe_at, recorded_folder

SCALE_FILES = places.project_root() / "notebooks" / "scales"
SCALES = ("smoke", "laptop", "gpu", "paper", "paper-24gb")


def test_yaml_gives_the_same_recipe_back(tmp_path):
    recipe = Recipe(collection="squad", objective={"name": "simlm", "decoder_rate": 0.6}, seed=2)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    again = Recipe.load(tmp_path / "recipe.yaml")
    assert again == recipe and again.digest == recipe.digest


def test_a_recipe_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Recipe().seed = 3


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"finetunning": {}}, r"finetunning: unknown key.*finetuning"),
        ({"collection": {"pasages": 3}}, r"collection\.pasages: unknown key.*passages"),
        ({"pretraining.step": 3}, r"unknown key\. A key below another is pretraining: {step: ..."),
        ({"pretraining__step": 3}, r"unknown key\. .*, or pretraining__step in -p\. Valid keys"),
        ({"pretraining": {"step": 3}}, r"pretraining\.step: unknown key.*steps"),
        ({"finetuning": {"validation": {"evry": 3}}}, r"finetuning\.validation\.evry"),
        (
            {"objective": {"name": "simlm", "encoder_rat": 0.3}},
            r"objective.*encoder_rat.*encoder_rate",
        ),
        ({"objective": "similm"}, r"similm.*simlm"),
        ({"objective": {"name": "simlm", "encoder_rate": 1.5}}, r"encoder_rate"),
        ({"pretraining": {"steps": 0}}, r"pretraining\.steps.*greater than 0"),
        ({"pretraining": {"seed": 3}}, r"pretraining\.seed: unknown key"),
        ({"collection": {"passages": 0}}, r"collection\.passages"),
        ({"evaluation": {"measures": []}}, r"evaluation\.measures.*at least 1"),
        ({"title": "both"}, r"title.*pair"),
        ({"query_side": None}, r"query_side.*left"),
        ({"pretraining": {"tokens_per_batch": 100}}, r"tokens_per_batch"),
        ({"final": "retriever3"}, r"final.*retriever1"),
        ({"few_shot": 0}, r"few_shot"),
        (
            {
                "few_shot": 0.1,
                "finetuning": {"pseudo_labels": True},
                "auxiliary": {"pseudo_labels": {"labels": "given"}},
            },
            r"few_shot leaves .*auxiliary\.pseudo_labels\..* would give fine-tuning all",
        ),
        *(
            (
                {"few_shot": 0.1, "objective": name, "auxiliary": {pairs: {"labels": "given"}}},
                rf"few_shot leaves .*auxiliary\.{pairs}\..* would give pre-training all",
            )
            for name, pairs in (("paq", "paq_pairs"), ("pair", "pseudo_labels"))
        ),
        ({"reranking": {"weighted": True}}, r'needs final="reranker"'),
        ({"few_shot": 1.5}, r"few_shot"),
        ({"distillation": {"pseudo_labels": True}}, r"teacher"),
        (
            {"auxiliary": {"cross_encoder": {"start": "retriever", "model": "embedded"}}},
            r"either model or start",
        ),
        ({"auxiliary": {"pseudo_labels": {"pool": "dev"}}}, r"auxiliary\.pseudo_labels\.pool"),
        ({"auxiliary": {"pseudo_labels": {"first": "splade"}}}, r"auxiliary\.pseudo_labels\.first"),
        (
            {"auxiliary": {"pseudo_labels": {"probability": "rank"}}},
            r"auxiliary\.pseudo_labels\.probability",
        ),
        (
            {"auxiliary": {"pseudo_labels": {"s_pos": 0.05}}},
            r"auxiliary\.pseudo_labels: s_neg 0\.1 is not below",
        ),
        ({"auxiliary": {"pseudo_labels": {"pool": "file"}}}, r"go together"),
        (
            {"objective": {"name": "pair", "candidates": "paper", "negatives": 0}},
            r"hard negatives alone, and negatives is 0",
        ),
        ({"auxiliary": {"pseudo_labels": {"file": "log"}}}, r"go together"),
    ],
)
def test_a_wrong_key_or_value_is_refused_by_name(values, said):
    with pytest.raises(InputError, match=said):
        Recipe(**values)


TASK, TALK = {"task": "cola", "folder": "glue-cola"}, {"folder": "topical-chat"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"kind": "splade"}, r"evaluation\.kind"),
        ({"kind": "nlu"}, r'kind "nlu" and settings of that name go together'),
        ({"kind": "bm25", "dialogue": TALK}, r'kind "dialogue" and settings'),
        ({"nlu": TASK, "dialogue": TALK}, r"go together"),
        ({"nlu": TASK, "on": "squad"}, r"searches no other collection"),
        ({"nlu": TASK | {"lenght": 3}}, r"evaluation\.nlu\.lenght"),
        ({"kind": "similarity", "fusion": "rank"}, r'it is for kind "search"'),
        ({"kind": "bm25", "fusion": "weight"}, r'it is for kind "search"'),
    ],
)
def test_what_is_measured_fits_together(values, said):
    with pytest.raises(InputError, match=said):
        Recipe(evaluation=values)


def test_a_task_says_what_kind_of_evaluation_it_is():
    assert Recipe(evaluation={"nlu": TASK}).evaluation.kind == "nlu"
    assert Recipe(evaluation={"dialogue": TALK}).evaluation.kind == "dialogue"


def test_a_re_ranker_of_dialogues_is_a_cross_encoder_that_learns_pairs_and_has_room_for_responses():
    recipe = Recipe(
        objective="reddit",
        evaluation={"dialogue": TALK},
        auxiliary={"cross_encoder": {"length": 258}},
    )
    assert recipe.with_(final="reranker").final == "reranker"
    for change, said in (
        ({"objective": "simlm"}, "learns the pairs"),
        ({"auxiliary__cross_encoder__start": "retriever"}, "without model or start"),
        ({"auxiliary__cross_encoder__model": "embedded"}, "without model or start"),
        ({"reranking__by": "late_interaction"}, "without reranking.by"),
        (
            {"auxiliary__cross_encoder__length": 257},
            "no room for a response behind contexts of 256",
        ),
    ):
        with pytest.raises(InputError, match=said):
            recipe.with_(final="reranker", **change)
    with pytest.raises(InputError, match="needs a retriever at the end"):
        Recipe(evaluation={"kind": "similarity"}, final="reranker")


def test_what_is_measured_is_part_of_the_digest():
    kinds = [
        Recipe(final="distilled").with_(evaluation__kind=kind)
        for kind in ("search", "bm25", "similarity")
    ]
    assert len({recipe.digest for recipe in kinds}) == 3


def test_with_changes_keys_at_every_depth():
    recipe = Recipe(collection={"name": "primer", "passages": 300})
    changed = recipe.with_(collection="squad", objective="mlm", pretraining__steps=7, seed=4)
    assert (changed.collection.name, changed.collection.passages) == ("squad", 300)
    assert (changed.objective.name, changed.pretraining.steps, changed.seed) == ("mlm", 7, 4)
    assert recipe.objective.name == "simlm"


def test_with_sets_parameters_of_the_method_by_name():
    recipe = Recipe().with_(objective__encoder_rate=0.15, objective__decoder_rate=0.3)
    assert recipe.objective.params["encoder_rate"] == 0.15
    same_method = recipe.with_(objective="simlm", objective__decoder_rate=1.0).objective.params
    assert (same_method["encoder_rate"], same_method["decoder_rate"]) == (0.15, 1.0)
    assert "encoder_rate" not in recipe.with_(objective="mlm").objective.params


@pytest.mark.parametrize(
    "path", ["stepz", "pretraining__step", "pretrain__steps", "seed__value", "objective__ratee"]
)
def test_with_refuses_an_unknown_key(path):
    with pytest.raises(InputError):
        Recipe().with_(**{path: 3})


def test_defaults_spelled_out_do_not_change_the_digest():
    assert (
        Recipe(objective={"name": "simlm", "encoder_rate": 0.3}).digest
        == Recipe(objective="simlm").digest
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("few_shot", 0.5),
        ("dropout", 0.2),
        ("finetuning2", {}),
        ("finetuning__chunk", 8),
        ("finetuning__validation", {}),
        ("finetuning__alpha", 0.1),
        ("finetuning__pseudo_labels", True),
        ("auxiliary__questions__model", "doc2query"),
        ("auxiliary__paq_pairs__labels", "given"),
        ("auxiliary__paq_pairs__file", "PAQ.dpr.train.neg1.jsonl"),
        ("auxiliary__pseudo_labels__labels", "given"),
        ("pretraining__collection", "squad"),
        ("pretraining__without_documents_of", ["dev"]),
    ],
)
def test_a_key_that_is_not_used_is_in_no_digest(path, value):
    changed, part = Recipe().with_(**{path: value}), Recipe().portable()
    *above, last = path.split("__")
    for name in above:
        part = part[name]
    assert last not in part and changed.digest != Recipe().digest
    assert Recipe(**changed.portable()) == changed


def test_what_a_record_keeps_has_no_path(tmp_path):
    folder = tmp_path / "squad"
    folder.mkdir()
    recipe = Recipe(collection=str(folder), base=str(tmp_path))
    assert recipe.portable()["collection"]["name"] == "squad"
    assert str(tmp_path) not in str(recipe.portable())
    assert recipe.with_(base="embedded").digest == Recipe(collection="squad").digest


def test_broken_yaml_is_refused_with_its_line(tmp_path):
    (tmp_path / "broken.yaml").write_text("seed: 1\nbase: [\n")
    with pytest.raises(InputError, match=r"broken\.yaml line"):
        Recipe.load(tmp_path / "broken.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(InputError, match="mapping"):
        Recipe.load(tmp_path / "list.yaml")
    with pytest.raises(InputError, match="no such file"):
        Recipe.load(tmp_path / "missing.yaml")


# Scales -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_file_holds_the_keys_that_notebooks_share(scale):
    values = read_yaml(SCALE_FILES / f"{scale}.yaml")
    assert set(values) == {"scale", "collection", "seeds", "minutes", "recipe"}
    assert values["scale"] == scale
    assert Recipe(**values["recipe"]) == recipe_at(scale)


def test_there_is_no_other_scale_file():
    assert set(places.known_scales()) == set(SCALES)


def test_the_paper_scale_has_the_papers_settings():
    recipe = recipe_at("paper")
    tuning = recipe.finetuning
    assert (recipe.pretraining.steps, recipe.pretraining.learning_rate) == (80_000, 3e-4)
    assert recipe.pretraining.warmup_steps == 4000
    assert (tuning.learning_rate, tuning.batch_queries, tuning.negatives, tuning.temperature) == (
        2e-5,
        64,
        15,
        0.02,
    )
    assert (recipe.passage_length, recipe.query_length, recipe.negatives.depth) == (144, 32, 200)
    assert tuning.warmup_steps == 1000


def test_a_scale_gives_overrides_and_the_notebook_the_collection():
    recipe = recipe_at(
        "unnamed", {"collection": {"passages": 300}, "pretraining": {"steps": 9}}, "squad"
    )
    assert (recipe.collection.name, recipe.collection.passages, recipe.pretraining.steps) == (
        "squad",
        300,
        9,
    )


def test_the_laptop_file_alone_addresses_the_recorded_table():
    # what papermill hands to notebooks/simlm/table08_replace_rates.ipynb
    laptop = read_yaml(SCALE_FILES / "laptop.yaml")
    start = recipe_at(laptop["scale"], laptop["recipe"], laptop["collection"])
    recipes = {
        "no pre-training": start.with_(objective="none"),
        "masked LM": start.with_(objective="mlm", objective__rate=0.3),
    }
    for encoder, decoder in [(15, 15), (15, 30), (30, 30), (30, 50), (40, 60), (30, 100)]:
        rates = {"objective__encoder_rate": encoder / 100, "objective__decoder_rate": decoder / 100}
        recipes[f"{encoder}% / {decoder}%"] = start.with_(objective="simlm", **rates)
    records = load_records(recorded_folder("laptop"), "simlm/table08")
    recorded = {
        record.label: record
        for record in records
        if record.seed in laptop["seeds"] and record.label in recipes
    }
    assert {label: recipe.digest for label, recipe in recipes.items()} == {
        label: record.recipe_digest for label, record in recorded.items()
    }
    assert {record.data["collection"]["digest"] for record in recorded.values()} == {
        squad.EXPECTED.digest
    }


@pytest.mark.parametrize("scale", SCALES)
def test_nothing_given_is_the_scale_file_and_so_is_all_of_it(scale):
    whole = read_yaml(SCALE_FILES / f"{scale}.yaml")["recipe"]
    assert (
        recipe_at(scale, {}, "x")
        == recipe_at(scale, whole, "x")
        == Recipe(**whole).with_(collection="x")
    )


def test_one_key_changes_alone():
    changed, plain = (
        recipe_at("laptop", {"finetuning": {"steps": 5}, "final": "distilled"}),
        recipe_at("laptop"),
    )
    assert changed == plain.with_(finetuning__steps=5, final="distilled")


def test_a_notebook_completes_the_keys_of_a_recipe():
    shell = InteractiveShell(user_ns={"recipe": recipe_at("smoke")})

    def completed(text: str) -> list[str]:
        with provisionalcompleter():
            return [one.text for one in shell.Completer.completions(text, len(text))]

    assert completed("recipe.with_(finetuning__st") == [
        "finetuning__steps=",
        "finetuning__stop_at=",
    ]
    assert "objective=" in completed("recipe.with_(ob")
    for key in inspect.signature(Recipe().with_).parameters:
        if key == "changes":
            continue
        part, (*above, last) = Recipe().model_dump(), key.split("__")
        for name in above:
            part = part.get(name) or {}
        assert not part or last in part, key
    assert Recipe().with_(finetuning__steps=7).finetuning.steps == 7, "and it takes them as before"


def test_an_unknown_scale_names_the_known_ones():
    with pytest.raises(InputError, match="Choose one of gpu, laptop, paper, paper-24gb, smoke"):
        recipe_at("large")
    assert recipe_at("large", {"seed": 3}).seed == 3


@pytest.mark.parametrize(
    "path", sorted(SCALE_FILES.glob("base-*.yaml")), ids=lambda path: path.stem
)
def test_a_base_recipe_is_valid_and_never_reads_test_articles(path: Path):
    recipe = BaseRecipe.load(path)
    assert recipe.name == path.stem
    left_out = {source.name: source.without_documents_of for source in recipe.sources}
    assert left_out["squad"] == ("dev", "test")


def test_a_base_recipe_refuses_unknown_keys_too():
    with pytest.raises(InputError, match=r"sources\.documents.*without_documents_of"):
        BaseRecipe(name="tiny", sources=[{"name": "squad", "documents": "train"}])
    with pytest.raises(InputError, match="sources"):
        BaseRecipe(name="tiny", sources=[])


def test_a_notebook_may_name_the_splits_of_its_collection():
    named = {"name": "ir_datasets:dpr-w100", "splits": {"train": "natural-questions/train"}}
    found = recipe_at("paper", {}, named).collection
    assert (found.name, found.splits) == (named["name"], named["splits"])
