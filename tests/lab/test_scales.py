"""Every scale file is a valid recipe and says what it costs; every base recipe is valid."""

from pathlib import Path

import pytest

from dr_lib import places
from dr_lib.files import read_yaml
from dr_lib.lab.base_recipe import BaseRecipe
from dr_lib.lab.recipe import recipe_for

FOLDER = places.project_root() / "notebooks" / "scales"
SCALES = ("smoke", "laptop", "gpu", "paper")


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_file_holds_the_keys_that_notebooks_share(scale):
    values = read_yaml(FOLDER / f"{scale}.yaml")
    assert set(values) == {"scale", "collection", "seeds", "minutes", "recipe"}
    assert values["scale"] == scale
    recipe = recipe_for(values["recipe"], values["collection"])
    assert recipe.collection.name == values["collection"]


def test_there_is_no_other_scale_file():
    assert {path.stem for path in FOLDER.glob("*.yaml") if not path.stem.startswith("base-")} == set(SCALES)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("base-*.yaml")), ids=lambda path: path.stem)
def test_a_base_recipe_is_valid_and_never_reads_test_articles(path: Path):
    recipe = BaseRecipe.load(path)
    assert recipe.name == path.stem
    left_out = {source.name: source.without_documents_of for source in recipe.sources}
    assert left_out["squad"] == ("dev", "test")


def test_the_paper_scale_has_the_papers_settings():
    recipe = recipe_for(read_yaml(FOLDER / "paper.yaml")["recipe"])
    tuning = recipe.finetuning
    assert (recipe.pretraining.steps, recipe.pretraining.learning_rate) == (80_000, 3e-4)
    assert recipe.pretraining.warmup_steps == 4000
    assert (tuning.learning_rate, tuning.batch_queries, tuning.negatives, tuning.temperature) == (2e-5, 64, 15, 0.02)
    assert (recipe.passage_length, recipe.query_length, recipe.negatives.depth) == (144, 32, 200)
    assert tuning.warmup_steps == 1000
