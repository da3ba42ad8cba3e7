"""Scale files as defaults: what a notebook is not given comes from `notebooks/scales/<scale>.yaml`.

Page of the book: practice/own-corpus. `recipe_for` takes a scale file's recipe as it is handed over; here a person may
hand over one key, or nothing, and still get a run of the scale's size.
"""

from collections.abc import Mapping
from typing import Any

from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.files import read_yaml
from dr_lib.lab.recipe import Recipe, recipe_for


def recipe_at(scale: str, overrides: Mapping[str, Any] | None = None, collection: str | None = None) -> Recipe:
    """The recipe of a scale, with overrides laid over it level by level.

    Args:
        scale: the name of a file in notebooks/scales; one that is none there must come with overrides.
        overrides: nested mapping; a whole scale file's recipe changes nothing.
        collection: name or path; None keeps that of the recipe.

    Raises:
        InputError: an unknown scale, key or value.

    Example:
        >>> recipe = recipe_at("smoke", {"pretraining": {"steps": 7}})
        >>> recipe.pretraining.steps, recipe.finetuning.steps
        (7, 12)
    """
    path = places.scale_file(scale)
    if not path.is_file() and not overrides:
        raise InputError(f"no scale {scale!r}", where="scale", fix=f"Known: {', '.join(places.known_scales())}.")
    start = read_yaml(path)["recipe"] if path.is_file() else {}
    return recipe_for(laid_over(start, overrides or {}), collection)


def laid_over(start: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A nested mapping with another one laid over it; what is no mapping is replaced.

    Example:
        >>> laid_over({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 5}, "d": {"e": 0}})
        {'a': {'b': 5, 'c': 2}, 'd': {'e': 0}}
    """
    merged = dict(start)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = laid_over(merged[key], value) if both else value
    return merged
