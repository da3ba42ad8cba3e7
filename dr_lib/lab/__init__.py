"""The lab: recipes unfold into stages, stages are kept, runs leave records, studies sweep, notebooks run in batches.

Names are looked up when they are first used, because some bring in torch and a command line should answer at once.
"""

from importlib import import_module
from typing import Any

HOMES = {
    "Answer": "searcher",
    "Asked": "asked",
    "BaseRecipe": "base_recipe",
    "Cache": "cache",
    "Estimates": "budget",
    "Hit": "searcher",
    "Job": "job",
    "Recipe": "recipe",
    "Record": "records",
    "Searcher": "searcher",
    "Stage": "stage",
    "Study": "study",
    "StudyError": "study",
    "StudyResult": "study",
    "TextSource": "base_recipe",
    "Way": "way",
    "ZeroShot": "transfer",
    "ask": "asked",
    "build_base": "base",
    "find_record": "finished",
    "few_shot_sweep": "sweeps",
    "hard_negative_sweep": "sweeps",
    "live_folder": "records",
    "load_record": "records",
    "load_records": "records",
    "material": "materials",
    "models_of": "finished",
    "open_means": "way",
    "open_sample": "opening",
    "open_searcher": "searcher",
    "publish": "records",
    "recipe_at": "scales",
    "recipe_for": "recipe",
    "recorded_folder": "records",
    "run_job": "job",
    "scores_by_label": "verdicts",
    "unfold": "way",
    "unfold_bm25": "way",
    "unfold_checks": "stage_checks",
    "unfold_similarities": "similarities",
    "zero_shot": "transfer",
}

__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    """Import the module behind a public name at its first use."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Public names, for completion."""
    return sorted([*globals(), *HOMES])
