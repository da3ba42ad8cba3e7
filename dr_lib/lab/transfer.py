"""Zero-shot: trained retrievers over many collections in one call, each run with a record of its own.

CDMAE Table 3 and MASTER Table 4 (BEIR, nDCG@10). A recipe's retriever is trained once, on its own collection, and found
in the cache from then on; every other collection costs its vectors and a search. Page of the book: ideas/evaluation.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dr_lib.errors import InputError
from dr_lib.lab.opening import open_sample
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.records import Record
from dr_lib.lab.specs import CollectionSpec
from dr_lib.lab.study import Study, StudyError, StudyResult
from dr_lib.lab.way import unfold, unfold_bm25

BM25 = "BM25"


@dataclass
class ZeroShot:
    """What a comparison over collections has so far.

    Attributes:
        results: collection -> what its study gave; label -> seed -> record inside.
    """

    results: dict[str, StudyResult] = field(default_factory=dict)

    def runs(self) -> dict[str, dict[str, list[Record]]]:
        """Collection -> label -> records in the order of their seeds, as tables take them."""
        return {name: result.runs() for name, result in self.results.items()}

    @property
    def pending(self) -> list[tuple[str, str, int]]:
        """Collection, label and seed of what the time budget did not allow."""
        return [(name, *job) for name, result in self.results.items() for job in result.pending]


def zero_shot(
    recipes: Recipe | Mapping[str, Recipe],
    collections: Sequence[str | Path] | Mapping[str, Any],
    *,
    name: str = "evaluation/zero-shot",
    seeds: Sequence[int] = (0,),
    measures: Sequence[str] = ("nDCG@10", "R@100"),
    depth: int = 100,
    bm25: bool = True,
    minutes: float | None = None,
    **options: Any,
) -> ZeroShot:
    """Evaluate retrievers on collections that they were not trained on.

    Args:
        recipes: label -> recipe, or one recipe, which is called by its method's name.
        collections: names or paths as `collections.load` takes them; or shown name -> name, path or `CollectionSpec`,
            for samples. Passages that occur twice are allowed unless a spec says otherwise.
        name: of the study, for the records.
        seeds: seeds of the trainings.
        measures: as `evaluation.evaluate` takes them.
        depth: passages searched for each query.
        bm25: measure BM25 on each collection too, under the label "BM25".
        minutes: time budget of the whole call; None for no limit.
        options: further arguments of `Study`: scale, cache, records, executor, progress.

    Returns:
        Records by collection. A run that has left its record is not run again.

    Raises:
        InputError: something cannot be run (before anything has started).
        StudyError: a run failed; what did finish has left its records.

    Example: ``lab.zero_shot(recipe, ["scifact", "cacm", "ir_datasets:beir/nfcorpus/test"]).runs()``
    """
    recipes = {recipes.objective.name: recipes} if isinstance(recipes, Recipe) else dict(recipes)
    specs = {shown: _spec(one) for shown, one in _named(collections).items()}
    if not recipes or not specs:
        raise InputError("nothing to run", where=name, fix="Give at least one recipe and one collection.")
    asked = {"evaluation__measures": list(measures), "evaluation__depth": depth}
    there = {
        shown: {label: elsewhere(recipe, spec).with_(**asked) for label, recipe in recipes.items()}
        for shown, spec in specs.items()
    }
    for recipe in (recipe for labelled in there.values() for recipe in labelled.values()):
        unfold(recipe)
    found = ZeroShot()
    deadline = time.monotonic() + 60 * minutes if minutes is not None else None
    for shown, labelled in there.items():
        studies = [({BM25: next(iter(labelled.values()))}, seeds[:1], unfold_bm25)] if bm25 else []
        for chosen, drawn, way in [*studies, (labelled, seeds, unfold)]:
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) / 60
            result = _run(Study(name, chosen, drawn, minutes=left, unfold=way, **options))
            _join(found.results.setdefault(shown, StudyResult()), result)
    failures = {(f"{label} on {shown}", seed): error
                for shown, result in found.results.items()
                for (label, seed), error in result.failures.items()}  # fmt: skip
    if failures:
        raise StudyError(StudyResult(failures=failures))
    return found


def elsewhere(recipe: Recipe, spec: CollectionSpec) -> Recipe:
    """The recipe evaluated on another collection: on its own split of queries, or on the only one that there is."""
    splits = open_sample(spec).splits
    split = recipe.evaluation.split if recipe.evaluation.split in splits or len(splits) != 1 else splits[0]
    return recipe.with_(evaluation__on=spec.model_dump(mode="json"), evaluation__split=split)


def _named(collections: Sequence[str | Path] | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(collections, Mapping):
        return dict(collections)
    if isinstance(collections, str | Path):
        raise InputError("one name where a list is expected", where="collections", fix="Give a list of names.")
    return {Path(one).name: str(one) for one in collections}


def _spec(one: Any) -> CollectionSpec:
    if isinstance(one, CollectionSpec):
        return one
    return CollectionSpec(**{"allow_duplicates": True, **({"name": str(one)} if isinstance(one, str | Path) else one)})


def _run(study: Study) -> StudyResult:
    """What a study gave, with its failures told inside."""
    try:
        return study.run()
    except StudyError as error:
        return error.result


def _join(into: StudyResult, more: StudyResult) -> None:
    into.records |= more.records
    into.pending += more.pending
    into.failures |= more.failures
