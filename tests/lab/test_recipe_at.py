"""A scale's recipe with a few keys changed: what is not named stays the scale's."""

import pytest
import yaml

from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.lab import recipe_at, recipe_for

SCALES = places.project_root() / "notebooks" / "scales"


@pytest.mark.parametrize("scale", ["smoke", "laptop", "gpu", "paper"])
def test_nothing_given_is_the_scale_file_and_so_is_all_of_it(scale):
    whole = yaml.safe_load((SCALES / f"{scale}.yaml").read_text())["recipe"]
    assert recipe_at(scale, {}, "x") == recipe_at(scale, whole, "x") == recipe_for(whole, "x")


def test_one_key_changes_alone():
    changed, plain = recipe_at("laptop", {"finetuning": {"steps": 5}, "final": "distilled"}), recipe_at("laptop")
    assert changed == plain.with_(finetuning__steps=5, final="distilled")


def test_an_unknown_scale_names_the_known_ones():
    with pytest.raises(InputError, match="Known: gpu, laptop, paper, smoke"):
        recipe_at("large")
    assert recipe_at("large", {"seed": 3}).seed == 3
