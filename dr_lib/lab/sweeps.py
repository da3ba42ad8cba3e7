"""Sweeps that papers draw as a curve, each as labelled recipes for a study.

Few-shot shares (MASTER, Figure 3) and hard negatives at a fixed total (CDMAE, Figure 4). Page: ideas/pipeline.
"""

from collections.abc import Sequence
from typing import Literal

from dr_lib.errors import InputError
from dr_lib.lab.recipe import Recipe

SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""MASTER, Figure 3."""


def few_shot_sweep(recipe: Recipe, shares: Sequence[float] = SHARES) -> dict[str, Recipe]:
    """The same recipe with fewer and fewer training queries, a smaller share lying inside each larger one.

    Args:
        recipe: its pre-training is shared by all.
        shares: of the training queries, in (0, 1].

    Returns:
        "5%", "10%", ... -> recipe; the whole set stays the plain recipe, so that its stages are found.

    Example:
        >>> sweep = few_shot_sweep(Recipe())
        >>> list(sweep), sweep["5%"].few_shot, sweep["100%"] == Recipe()
        (['5%', '10%', '20%', '50%', '100%'], 0.05, True)
    """
    return {f"{share:.3%}".replace(".000", ""): recipe.with_(few_shot=share if share < 1 else None) for share in shares}


def hard_negative_sweep(
    recipe: Recipe, negatives: Sequence[int], *, hold: Literal["epochs", "steps"] = "epochs"
) -> dict[str, Recipe]:
    """More hard negatives a query, smaller batches, and the same number of negatives a query in all.

    With a batch of `B` queries and `N` passages for each (one of them relevant), a query has `B * N - 1` negatives,
    of which `N - 1` are hard ones of its own. `N` grows, `B` shrinks, and `B * N` stays that of `recipe`. The count
    is exact for the loss over queries and passages alone, so the recipes have `finetuning.blocks` "query_passage".

    Args:
        recipe: its `finetuning.batch_queries` and `finetuning.negatives` give `B * N`.
        negatives: the values of `N - 1`; each `N` must divide `B * N`, and leave two queries or more.
        hold: what else stays equal. "epochs": all see the queries as often (the paper trains three epochs), so a small
            batch makes more steps, and more passages are read in all. "steps": the same steps, the same cost.

    Returns:
        "1 hard, batch 64", ... -> recipe, in the order given.

    Raises:
        InputError: a number that does not divide the total.

    Example:
        >>> start = Recipe(finetuning={"steps": 100, "batch_queries": 64, "negatives": 1})
        >>> {label: one.finetuning.steps for label, one in hard_negative_sweep(start, [1, 3, 7]).items()}
        {'1 hard, batch 64': 100, '3 hard, batch 32': 200, '7 hard, batch 16': 400}
    """
    options = recipe.finetuning
    total, found = options.batch_queries * (options.negatives + 1), {}
    for number in negatives:
        batch, left = divmod(total, number + 1)
        if left or batch < 2 or number < 0:
            fix = f"Give numbers that are one less than a divisor of {total}, up to {total // 2 - 1}."
            raise InputError(f"{number} hard negatives do not share out {total} passages", where="negatives", fix=fix)
        steps = round(options.steps * options.batch_queries / batch) if hold == "epochs" else options.steps
        found[f"{number} hard, batch {batch}"] = recipe.with_(
            finetuning__negatives=number, finetuning__batch_queries=batch, finetuning__steps=steps,
            finetuning__blocks="query_passage",
        )  # fmt: skip
    return found
