"""Every material by its name, and the stages that a method's settings ask for.

A material is a stage: a function of `Means` and the parameters that the method decides. Page of the book:
practice/adding-an-objective.
"""

from collections.abc import Callable
from typing import Any

from dr_lib import objectives
from dr_lib.errors import InputError
from dr_lib.lab.material_pairs import paq_pairs, reddit_pairs
from dr_lib.lab.material_pseudo_labels import pseudo_labels
from dr_lib.lab.material_statistics import importances, keyword_weights
from dr_lib.lab.material_texts import continuations, questions
from dr_lib.lab.means import Means
from dr_lib.lab.stage import Stage

MATERIALS: dict[str, Callable[..., Stage]] = {
    "importances": importances,
    "keyword_weights": keyword_weights,
    "questions": questions,
    "continuations": continuations,
    "pseudo_labels": pseudo_labels,
    "paq_pairs": paq_pairs,
    "reddit_pairs": reddit_pairs,
}


def material(name: str, means: Means, **params: Any) -> Stage:
    """The stage of one material; an unknown name raises `InputError` with the list."""
    if name not in MATERIALS:
        raise InputError(f"no material {name!r}", where="materials", fix=f"Known: {', '.join(MATERIALS) or 'none'}.")
    return MATERIALS[name](means, **params)


def needed(means: Means) -> dict[str, Stage]:
    """The materials that the recipe's method needs, by name."""
    chosen = means.recipe.objective
    wanted = objectives.parameters(chosen.name, **chosen.params).materials()
    return {name: material(name, means, **params) for name, params in wanted.items()}
