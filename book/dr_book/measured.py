"""From records to the numbers on a page: means with intervals, paired differences, and which runs a
page may show.

The only place where records become numbers. A configuration is a recipe without its seed: all its
recorded runs count, whichever study they were made for, so a row has the same number on every page.
How uncertainty is computed: ideas/statistics.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from dr_book.statistics import (
    Estimate,
    Influence,
    Interval,
    SeedVariance,
    Trained,
    effective_clusters,
    holm,
    influence,
    of_seeds,
    seed_variance,
    weighted_sum,
)
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores
from dr_lib.evaluation.nlu import MEASURES as OF_A_SET
from dr_lib.files import json_digest
from dr_lib.lab import Record, load_records, recorded_folder
from dr_lib.objectives import parameters

AMOUNTS = {"gigabytes": "GB", "CPU ms": "ms", "GPU ms": "ms", "words": "words"}
"""Measures with their own units; all others are shares, shown in percent and points."""
SCALES = ("paper", "gpu", "laptop")
"""Largest first; smoke runs only check that everything works, so they decide nothing."""
UNUSED = {
    "pretrained": ("finetuning", "finetuning2", "negatives", "mining", "distillation", "reranking"),
    "retriever1": ("finetuning2", "mining", "distillation", "reranking"),
    "retriever2": ("distillation", "reranking"),
    "reranker": ("distillation",),
}
"""Final stage of a pipeline -> sections of its recipe that it never reads."""
MADE_BY = {
    "questions": {"question_generator"},
    "paq_pairs": {"generated_pairs", "given_labels", "file_pairs"},
    "pseudo_labels": {"pseudo_labels"},
    "cross_encoder": {"cross_encoder"},
    "continuations": {"continuations"},
    "negatives": {"negatives"},
}
"""Section of a recipe -> the stages that it configures: a run with one of these stages has read the
section, whatever `UNUSED` says, and a run without any has not.
"""

Runs = Mapping[str, Sequence[Record]]
"""Label -> records, one per seed."""
Pair = tuple[str, str]
"""(first, second) labels; a difference is first minus second."""
Result, Item = TypeVar("Result"), TypeVar("Item")


def recorded(study: str) -> dict[str, list[Record]]:
    """The book's own records of a study's configurations on the collection with most records, in
    its newest state: label -> records, one a run, including runs made for other studies.

    Args:
        study: name of the study, e.g. "simlm/table08".
    """
    by_collection = recorded_by_collection(study)
    return max(by_collection.values(), key=lambda runs: sum(map(len, runs.values())), default={})


def recorded_by_collection(study: str) -> dict[str, dict[str, list[Record]]]:
    """The book's own records of a study's configurations on each collection, in its newest state:
    collection -> label -> records, one a run.
    """
    scales = (load_records(recorded_folder(scale), study) for scale in SCALES)
    records = next(filter(None, scales), [])
    return {
        name: {label: all_runs(records) for label, records in runs.items()}
        for name, runs in by_collection((record.label, record) for record in records).items()
    }


def by_collection(named: Iterable[tuple[str, Record]]) -> dict[str, dict[str, list[Record]]]:
    """Collection -> name -> records on the newest state of the collection."""
    named = [*named]
    newest = newest_states([record for _, record in named])
    runs: dict[str, dict[str, list[Record]]] = {place: {} for place in newest}
    for name, record in named:
        facts = record.searched_on
        if facts["digest"] == newest[facts["name"]]:
            runs[facts["name"]].setdefault(name, []).append(record)
    return runs


def all_recorded() -> list[Record]:
    """Every record of the book, scale by scale."""
    return [record for scale in SCALES for record in load_records(recorded_folder(scale))]


def recorded_collections() -> list[dict[str, Any]]:
    """The collections that the book's own records searched: name, digest, sizes, and the set of
    `studies`.

    Each digest once. A record may lack some sizes, so they are gathered from all records of a
    collection.
    """
    collections: dict[str, dict[str, Any]] = {}
    for record in all_recorded():
        data = record.searched_on
        facts = collections.setdefault(data["digest"], {"studies": set()})
        facts |= {name: value for name, value in data.items() if value is not None}
        facts["studies"].add(record.study)
    return [*collections.values()]


def is_trained(recipe: Mapping[str, Any]) -> bool:
    """Whether a run trains anything: BM25 and ready-made models do not."""
    untrained = (recipe.get("evaluation") or {}).get("kind") == "bm25" or recipe.get("retriever")
    return "base" in recipe and not untrained


def on_processors(runs: Runs) -> Runs:
    """The runs on machines without a GPU: times in a table of costs must be comparable."""
    timed = {
        label: [record for record in records if not record.machine.get("gpus")]
        for label, records in runs.items()
    }
    return {label: records for label, records in timed.items() if records}


def presentable(runs: Runs) -> Runs:
    """The runs that a page may show: all but smoke runs, which only check that everything works."""
    return {
        label: records for label, records in runs.items() if records and records[0].scale != "smoke"
    }


# Configurations -----------------------------------------------------------------------------------


def configuration(record: Record) -> Hashable:
    """Identifies what was trained and measured: equal for runs that differ only in seed, code and
    machine.

    Runs that a recipe does not identify (sizes, times, groups of queries that a notebook made
    itself) are identified by study and label.
    """
    place = record.scale, record.searched_on["digest"]
    if not _identified_by_recipe(record):
        return record.study, record.label, *place
    recipe = _sections(record.recipe) | {"seed": None}
    final = recipe.get("final") or "retriever1"
    stages = {name.removeprefix("earlier ").rstrip(" 23") for name in record.keys}
    read = {section for section, makers in MADE_BY.items() if stages & makers}
    for section in {"label", *UNUSED.get(final, ())} - read:
        recipe.pop(section, None)
    auxiliary = recipe.get("auxiliary") or {}
    recipe["auxiliary"] = {
        section: settings
        for section, settings in _sections(auxiliary).items()
        if section in read or (section not in MADE_BY and settings)
    }
    recipe["evaluation"].pop("measures", None)
    if isinstance(recipe.get("collection"), dict):  # it only refuses data; the digest is compared
        recipe["collection"].pop("allow_duplicates", None)
    for section in (recipe, recipe["auxiliary"]):  # how it was computed, like the device
        for training in section.values():
            if isinstance(training, dict):
                training.pop("compile", None)
    method = recipe.get("objective") or {}
    with suppress(InputError, KeyError):  # a parameter that no longer exists
        settings = parameters(method["name"], **method.get("params", {}))
        method["params"] = settings.model_dump(mode="json")
    if "params" in method:
        method["params"] = {**method["params"], "init_seed": None}
    # not `record.query_ids`, which unpacks the scores of all queries of all records of the book
    return json_digest(recipe), *place, hash(tuple(record.scores["queries"]))


def _sections(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy whose sections may be changed."""
    return {name: {**one} if isinstance(one, dict) else one for name, one in settings.items()}


def _identified_by_recipe(record: Record) -> bool:
    kind = record.evaluation.get("kind")
    return kind == "nlu" or (kind in ("search", "bm25", "dialogue") and len(record.keys) > 1)


def of_records(make: Callable[..., Result]) -> Callable[..., Result]:
    """Cache the result of a function of the book's records until one of their folders changes."""
    cached = lru_cache(maxsize=64)(lambda state, *arguments: make(*arguments))

    @wraps(make)
    def current(*arguments: Any) -> Result:
        # missing folders count too: two empty books are different
        folders = list(map(recorded_folder, SCALES))
        state = tuple(
            (str(folder), folder.stat().st_mtime_ns if folder.is_dir() else 0) for folder in folders
        )
        return cached(state, *arguments)

    current.kept = cached
    return current


def of_record(make: Callable[..., Result]) -> Callable[..., Result]:
    """Cache the result of a function of a record, and keep the record alive, so that its `id` is
    not reused.
    """
    results: dict[tuple[Any, ...], tuple[Record, Result]] = {}

    @wraps(make)
    def current(record: Record, *arguments: Any) -> Result:
        key = id(record), *arguments
        if key not in results:
            results[key] = record, make(record, *arguments)
        return results[key][1]

    return current


def grouped(items: Iterable[Item], key: Callable[[Item], Hashable]) -> dict[Any, list[Item]]:
    """Key -> the items with that key, in their order."""
    groups = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


@of_records
def by_configuration() -> dict[Hashable, list[Record]]:
    """All records of the book by their configuration."""
    return grouped(all_recorded(), configuration)


def all_runs(records: Sequence[Record]) -> list[Record]:
    """The given records of a configuration and the book's other records of it: each run once,
    sorted by seed.

    A run that several studies show has a record in each; the one with most measures represents it,
    preferably a given one. Two trainings with the same seed, by different code or on different
    machines, are two runs of that seed.
    """
    others = (
        other
        for name in {configuration(record): None for record in records}
        for other in by_configuration().get(name, ())
    )
    return sorted(_distinct([*records, *others]), key=lambda record: record.seed)


def _distinct(records: Iterable[Record]) -> list[Record]:
    """Each run once, represented by its record with most measures."""
    runs: list[Record] = []
    for record in records:
        same = next((place for place, run in enumerate(runs) if _same_run(run, record)), None)
        if same is None:
            runs.append(record)
        elif len(record.means) > len(runs[same].means):
            runs[same] = record
    return runs


def _same_run(run: Record, other: Record) -> bool:
    if run is other:
        return True
    if run.seed != other.seed or (run.study, run.label) == (other.study, other.label):
        return False
    shared = run.means.keys() & other.means
    return bool(shared) and all(
        np.array_equal(run.per_query(name), other.per_query(name)) for name in shared
    )


# Numbers ------------------------------------------------------------------------------------------


def check_same_queries(runs: Sequence[Scores | Record]) -> None:
    """Refuse runs that scored different queries; their order may differ."""
    for run in runs[1:]:
        same = run.query_ids == runs[0].query_ids
        if odd := not same and {*run.query_ids} ^ {*runs[0].query_ids}:
            problem = f"query {min(odd)!r} was scored in one run only"
            fix = "Measure both on the same split of the same collection."
            raise InputError(problem, where="scores", fix=fix)


def aligned(runs: Sequence[Scores], first: Scores, measure: str) -> np.ndarray:
    """Values `[runs, queries]` float64 in the order of another run's queries; `InputError` if that
    run scored different queries.
    """
    check_same_queries([first, *runs])
    wanted, columns = first.query_ids, []
    for run in runs:
        values = run.per_query(measure).astype(np.float64)
        if run.query_ids != wanted:
            values = pd.Series(values, run.query_ids)[wanted].to_numpy()
        columns.append(values)
    return np.stack(columns)


def clusters_of(record: Record) -> list[Hashable]:
    """The cluster of each query of a record: a document, a question template, a dialogue, or the
    query itself.
    """
    clusters = record.clusters
    if not clusters.names:
        return [*record.query_ids]
    return [clusters.names[place] for place in clusters.of]


def _numbered(record: Record) -> tuple[np.ndarray, list[Hashable]]:
    """The cluster of each query as a number, and their names by number, sorted: found once for all
    records that share their clusters, as grouping thousands of names takes milliseconds.
    """
    shared = record.clusters if record.clusters.names else record.query_ids
    if id(shared) not in _NUMBERED:  # it keeps them alive, so that nothing else gets their `id`
        names, numbers = np.unique(np.asarray(clusters_of(record)), return_inverse=True)
        _NUMBERED[id(shared)] = shared, (numbers, names.tolist())
    return _NUMBERED[id(shared)][1]


_NUMBERED: dict[int, tuple[object, tuple[np.ndarray, list[Hashable]]]] = {}


@dataclass(frozen=True, eq=False)
class Side:
    """Runs of one configuration, and a measure of them.

    Attributes:
        records: one a run, several for a seed that was trained again; those without the measure are
            ignored.
        measure: e.g. "MRR@10".
        fixed: whether the number does not depend on a training, whatever the recipe says (sizes,
            times).
    """

    records: Sequence[Record]
    measure: str
    fixed: bool = False

    @property
    def runs(self) -> list[Record]:
        """The records that have the measure."""
        return [record for record in self.records if has_measure(record, self.measure)]

    @property
    def trained(self) -> bool:
        """Whether another seed would change the number."""
        runs = self.runs
        return bool(runs) and not self.fixed and is_trained(runs[0].recipe)

    @property
    def seeds(self) -> dict[int, list[Record]]:
        """Seed -> its runs. Repeating a seed on another machine or by other code gives a result
        closer to the first than another seed would, so it does not count as a further seed.
        """
        return grouped(self.runs, lambda record: record.seed)

    def means(self) -> list[float]:
        """Mean of each seed over its runs, in the displayed unit."""
        return [
            float(np.mean([_mean(record, self.measure) for record in runs]))
            for runs in self.seeds.values()
        ]

    def parts(self) -> list[tuple[float, Influence]]:
        """Mean of each seed over its runs, in the displayed unit, and each cluster's influence on
        it.
        """
        return [
            _averaged([_mean_and_influence(record, self.measure) for record in runs])
            for runs in self.seeds.values()
        ]


def _averaged(parts: Sequence[tuple[float, Influence]]) -> tuple[float, Influence]:
    if len(parts) == 1:
        return parts[0]
    moves: dict[Hashable, float] = defaultdict(float)
    for _, moved in parts:
        for cluster, move in moved.items():
            moves[cluster] += move / len(parts)
    return float(np.mean([mean for mean, _ in parts])), dict(moves)


def has_measure(record: Record, measure: str) -> bool:
    """Whether a record has a measure, or the values that it can be computed from."""
    values = record.measured.values
    return (
        measure in values
        or _is_of_a_set(record, measure)
        or bool(_cut(measure) and "MRR@10" in values)
    )


def _cut(measure: str) -> int:
    """k of Success@k, up to 10, which can be read off a reciprocal rank; 0 for other measures."""
    kind, _, cut = measure.partition("@")
    return int(cut) if kind == "Success" and cut.isdigit() and int(cut) <= 10 else 0


def _mean(record: Record, measure: str) -> float:
    """The mean of `_mean_and_influence`; the influence takes a hundred times as long."""
    if _is_of_a_set(record, measure):
        predicted, actual = map(record.measured.per_query, ("predicted", "actual"))
        return unit_of(measure)[0] * OF_A_SET[measure](predicted, actual)
    return float(_shown(record, measure).mean())


def _is_of_a_set(record: Record, measure: str) -> bool:
    return measure in OF_A_SET and "predicted" in record.measured.values


def _shown(record: Record, measure: str) -> np.ndarray:
    """`[queries]` float64 in the displayed unit."""
    return unit_of(measure)[0] * _values(record, measure).astype(np.float64)


def _values(record: Record, measure: str) -> np.ndarray:
    """`[queries]` as in the record."""
    if measure not in record.measured.values and (cut := _cut(measure)):
        # whether the first relevant passage is among the first `cut`
        return record.per_query("MRR@10") > 1 / (cut + 0.5)
    return record.per_query(measure)


@of_record
def _mean_and_influence(record: Record, measure: str) -> tuple[float, Influence]:
    if _is_of_a_set(record, measure):
        factor = unit_of(measure)[0]
        whole, moves = set_influence(record.measured, measure)
        return factor * whole, {row: factor * move for row, move in moves.items()}
    values = _shown(record, measure)
    place = record.searched_on["digest"]
    numbers, names = _numbered(record)
    moves = influence(values, numbers)
    return float(values.mean()), {(place, names[number]): move for number, move in moves.items()}


def set_influence(run: Scores, name: str) -> tuple[float, dict[object, float]]:
    """A measure of a whole set, and the influence of each row by leaving it out (jackknife)."""
    predicted, actual = run.per_query("predicted"), run.per_query("actual")
    measure = OF_A_SET[name]
    rows, whole = len(actual), measure(predicted, actual)
    left = np.array(
        [measure(np.delete(predicted, row), np.delete(actual, row)) for row in range(rows)]
    )
    moves = left.mean() - left
    return whole, dict(enumerate(moves.tolist()))


def pools_of(sides: Sequence[Side]) -> dict[Hashable, SeedVariance]:
    """The variance between seeds, pooled over the book's records with the same collection, measure
    and final stage as the sides; for a collection without records, from these runs themselves.
    """
    return {
        kind: _pools(kind[1]).get(kind[0]) or seed_variance([side.means() for side in alike])
        for kind, alike in grouped(sides, _kind_of).items()
    }


def _kind_of(side: Side) -> tuple[Hashable, str]:
    return _kind(side.runs[0]), side.measure


@of_record
def _kind(record: Record) -> Hashable:
    """Key of the runs whose means have the same variance between seeds."""
    place = record.scale, record.searched_on["digest"]
    if not _identified_by_recipe(record):
        return record.study, *place
    stage = record.recipe.get("final") or "retriever1"
    # trained on another collection, or on few labels, the variance may differ
    elsewhere = record.data.get("trained_on", {}).get("digest")
    labels = record.recipe.get("few_shot")
    return stage, elsewhere, labels, hash(tuple(record.query_ids)), *place


@of_records
def _pools(measure: str) -> dict[Hashable, SeedVariance]:
    kinds = grouped(repeated(measure), lambda side: _kind(side.records[0]))
    return {kind: seed_variance([side.means() for side in sides]) for kind, sides in kinds.items()}


def repeated(measure: str) -> list[Side]:
    """The configurations with at least two seeds under the same code number."""
    sides = []
    for records in by_configuration().values():
        runs = [record for record in _distinct(records) if has_measure(record, measure)]
        for epoch in dict.fromkeys(record.epoch for record in runs):
            side = Side([record for record in runs if record.epoch == epoch], measure)
            if side.trained and len(side.seeds) > 1:
                sides.append(side)
    return sides


def seed_variances(measure: str) -> list[tuple[str, str, str, SeedVariance]]:
    """Scale, collection, stage and variance between seeds, pooled over the book's records, the best
    known first.
    """
    first = {_kind(side.records[0]): side.records[0] for side in reversed(repeated(measure))}
    pools = [
        (
            record.scale,
            searched(record),
            record.recipe.get("final") or "retriever1",
            _pools(measure)[kind],
        )
        for kind, record in first.items()
        if _identified_by_recipe(record)
    ]
    return sorted(pools, key=lambda row: -row[-1].freedom)


def searched(record: Record) -> str:
    """The collection of a record, with its split if that is not "test", and what its retriever was
    trained on if that is not the whole collection.
    """
    facts = [record.searched_on["name"]]
    if (split := record.evaluation.get("split")) not in (None, "test"):
        facts.append(split)
    if labelled := record.recipe["collection"].get("train_queries"):
        facts.append(f"{labelled:,} training queries")
    if share := record.recipe.get("few_shot"):
        facts.append(f"{100 * share:g}% of the labels")
    if trained_on := record.data.get("trained_on"):
        facts.append(f"trained on {trained_on['name']}")
    return ", ".join(facts)


@dataclass(frozen=True)
class Compared:
    """A weighted sum of means, its uncertainty, and whether it may decide anything.

    Attributes:
        estimate: in the displayed unit (percent, points, GB, ...).
        floor: standard error from clusters alone, as with infinitely many seeds; None if a row has
            only one seed.
        seeds: number of seeds of each configuration.
        clusters: number of clusters of queries.
        effective: equivalent number of equally large ones (`statistics.effective_clusters`).
        why_open: why it decides nothing; "" if it may.
    """

    estimate: Estimate
    floor: float | None
    seeds: tuple[int, ...]
    clusters: int
    effective: float
    why_open: str = ""

    @property
    def certain(self) -> bool:
        """Whether its 95 % interval lies on one side of zero and may decide."""
        return not self.why_open and bool(self.estimate.side())

    @property
    def agree(self) -> bool:
        """Whether all clusters have the same value, so that there is no standard error."""
        return self.estimate.error <= 1e-7

    def detectable(self, level: float = 0.05) -> float:
        """The difference that a test at this level detects with power 0.8; if all queries agree,
        the upper limit of a share that is zero in all clusters (Clopper and Pearson 1934).
        """
        if not self.agree:
            return self.estimate.detectable(level)
        return 100 * (1 - level ** (1 / self.clusters))


FEWEST = 10
"""With fewer equally large clusters than this nothing is decided: a rare effect may be in none of
them. For an effect that one cluster in ten has, 57 % of simulated 95 % intervals contain the mean
with eight clusters, 65 % with ten, 91 % with thirty.
"""


def compared(terms: Sequence[tuple[float, Side]], beside: Sequence[Side] = ()) -> Compared:
    """A weighted sum of the means of some configurations.

    Sides on one collection share its clusters; collections are independent, except for trainings
    that searched several of them (`_of_shared_trainings`), of which only seeds that searched all
    count. Seeds add the pooled variance of their collection, measure and stage if enough runs
    determine it, else each row adds its own (`statistics.of_seeds`).

    Args:
        terms: (weight, side); one side gives its mean, two with weights 1 and -1 their difference,
            those on several collections an average of these.
        beside: all sides with the same variance between seeds, those of `terms` among them; used
            if the book's records have no pooled variance, and over several collections.

    Raises:
        InputError: a side has no run with its measure.
    """
    for _, side in terms:
        if not side.runs:
            raise InputError(
                "no run has this measure",
                where=side.measure,
                fix="Measure the rows of this comparison.",
            )
    terms = _of_common_seeds(terms)
    places = grouped(terms, lambda term: _place(term[1])[0])
    trained = [(weight, side) for weight, side in terms if side.trained]
    pools = pools_of(beside or [side for _, side in trained])
    single = [side for _, side in trained if len(side.seeds) == 1]
    shared = _of_shared_trainings(trained, beside) if len(places) > 1 else None
    each = (shared[0] / len(places), shared[1]) if shared else None
    value, clustered, of_trainings = 0.0, [], [shared] if shared else []
    for sides in places.values():
        estimate, added = _on_one_collection(sides, pools, each)
        value += estimate.value
        clustered += estimate.parts
        of_trainings += [] if shared else added
    why = ""
    if not all(pools[_kind_of(side)].known for side in single):
        why = "a row has one seed, and how far another would move it is not known well enough"
    clusters = min(
        len(frozenset().union(*(_names(side.runs[0]) for _, side in sides)))
        for sides in places.values()
    )
    effective = min(_effective(side) for _, side in terms)
    if effective < FEWEST:
        uneven = f", which count as {effective:.0f} of one size," * (clusters >= FEWEST)
        why = f"{clusters} clusters of queries{uneven} are too few to decide anything"
    return Compared(
        # too few clusters take precedence: a second seed would not help
        Estimate(value, (*clustered, *of_trainings), once=bool(single) and effective >= FEWEST),
        None if single else Estimate(0.0, tuple(clustered)).error,
        tuple(len(side.seeds) for _, side in terms),
        clusters,
        effective,
        why,
    )


def _of_common_seeds(terms: Sequence[tuple[float, Side]]) -> list[tuple[float, Side]]:
    """The terms, each training restricted to the seeds that searched all of its collections; if
    none did, the trainings on each collection are separate, and all are kept.
    """
    searched_by: dict[Hashable, dict[Hashable, set[int]]] = defaultdict(lambda: defaultdict(set))
    for _, side in terms:
        if side.trained:
            searched_by[_training(side.runs[0])][_place(side)[0]] |= side.seeds.keys()
    common = {
        training: set.intersection(*places.values()) for training, places in searched_by.items()
    }

    def alike(side: Side) -> Side:
        seeds = common.get(_training(side.runs[0])) if side.trained else None
        runs = [run for run in side.runs if run.seed in seeds] if seeds else side.records
        return replace(side, records=runs)

    return [(weight, alike(side)) for weight, side in terms]


def _of_shared_trainings(
    terms: Sequence[tuple[float, Side]], beside: Sequence[Side]
) -> tuple[float, float] | None:
    """The variance that seeds add to a weighted sum over collections searched by the same
    trainings.

    A training affects the means on all of them, so this is the variance of a run's weighted sum; a
    seed counts if it searched all. None if the trainings of the collections are separate, or none
    searched all.
    """
    weights: dict[Hashable, dict[Hashable, float]] = defaultdict(lambda: defaultdict(float))
    for weight, side in terms:
        weights[_training(side.runs[0])][_place(side)] += weight
    if not any(len({digest for digest, _ in by_place}) > 1 for by_place in weights.values()):
        return None
    known: dict[Hashable, dict[Hashable, Side]] = defaultdict(dict)
    for side in (*beside, *(side for _, side in terms)):
        if side.trained:
            known[_training(side.runs[0])][_place(side)] = side
    sides: list[Trained] = []
    for training, by_place in weights.items():
        sums = {
            other: _sums_of_seeds([(weight, there[place]) for place, weight in by_place.items()])
            for other, there in known.items()
            if by_place.keys() <= there.keys()
        }
        if not sums[training]:
            return None
        runs = [(total, {}) for total in sums[training]]
        sides.append((1.0, runs, seed_variance([*sums.values()])))
    return of_seeds(sides)


@of_record
def _training(record: Record) -> Hashable:
    """Identifies what was trained, without the seed and what was searched."""
    recipe = {**record.recipe, "seed": None, "evaluation": None, "label": None}
    return json_digest(recipe), record.scale


def _place(side: Side) -> tuple[str, str]:
    return side.runs[0].searched_on["digest"], side.measure


def _sums_of_seeds(terms: Sequence[tuple[float, Side]]) -> list[float]:
    """A weighted sum of means for each seed that all sides have."""
    each = [dict(zip(side.seeds, side.means(), strict=True)) for _, side in terms]
    common = [seed for seed in each[0] if all(seed in means for means in each)]
    return [
        sum(weight * means[seed] for (weight, _), means in zip(terms, each, strict=True))
        for seed in common
    ]


def _on_one_collection(
    sides: Sequence[tuple[float, Side]],
    pools: Mapping[Hashable, SeedVariance],
    shared: tuple[float, float] | None = None,
) -> tuple[Estimate, list[tuple[float, float]]]:
    """A weighted sum of the means of some sides, with the variance from clusters only; and the
    variance that seeds add, as far as records determine it.

    Args:
        shared: this collection's part of the variance from trainings that searched several.
    """
    kinds = [_kind_of(side) if side.trained else None for _, side in sides]
    taken = [
        (kind, (weight, side.parts(), pools.get(kind)))
        for kind, (weight, side) in zip(kinds, sides, strict=True)
    ]
    estimate, seeds = weighted_sum(taken, min(_effective(side) for _, side in sides), shared)
    return estimate, [added for added in seeds if added[1]]


def _effective(side: Side) -> float:
    """Equivalent number of equally large clusters; for a measure of a whole set, its rows."""
    record = side.runs[0]
    if _is_of_a_set(record, side.measure):
        return float(len(record.query_ids))
    return _counts_as(record)


@of_record
def _counts_as(record: Record) -> float:
    return effective_clusters(_numbered(record)[0])


@of_record
def _names(record: Record) -> frozenset[Hashable]:
    return frozenset(_numbered(record)[1])


def run_interval(record: Record, measure: str) -> Interval:
    """The value of one run with its 95 % interval, over clusters of queries only."""
    within = possible(measure, difference=False)
    estimate, _ = _on_one_collection([(1.0, Side([record], measure, fixed=True))], {})
    return estimate.interval(within=within)


def value(records: Sequence[Record], measure: str) -> Compared:
    """The value of a configuration over all given runs, in percent or in its own unit."""
    return compared([(1.0, Side(records, measure))])


def difference(
    first: Sequence[Record], second: Sequence[Record], measure: str, *, beside: Sequence[Side] = ()
) -> Compared:
    """First minus second, in points or in the measure's own unit; `beside` as for `compared`.

    Raises:
        InputError: the two were measured on different queries.
    """
    sides = Side(first, measure), Side(second, measure)
    check_same_queries([*sides[0].runs, *sides[1].runs])
    return compared([(1.0, sides[0]), (-1.0, sides[1])], beside)


def possible(measure: str, *, difference: bool) -> tuple[float, float]:
    """The range of possible means, or of differences of two."""
    if unit_of(measure)[1] != "points":
        return (-np.inf, np.inf) if difference else (0.0, np.inf)
    signed = measure.startswith("s(") or measure in ("Matthews", "Pearson", "Spearman")
    low, high = (-100.0 if signed else 0.0), 100.0
    return (low - high, high - low) if difference else (low, high)


def made_by(record: Record) -> str:
    """Code number (a record's `epoch`), precision and device of a run's training, as pages show
    them; "" if nothing was trained.

    Example:
        "code 5, bf16, H100"
    """
    logs = list(record.training.values())
    if not logs:
        return ""
    facts = record.machine
    device = (facts.get("gpus") or [str(facts.get("cpu"))])[0]
    chip = re.search(r"[A-Z]\d{2,3}\b|AMD|Intel|Apple \w+|ARM", device)
    code = record.epoch
    parts = ["" if code is None else f"code {code}", logs[-1].get("precision")]
    return ", ".join(map(str, filter(None, [*parts, chip[0] if chip else device])))


def per_query(records: Sequence[Record], measure: str, like: Record | None = None) -> np.ndarray:
    """Scores of one configuration, one row per run: a seed that was trained again has several
    (`per_seed` has one).

    Args:
        records: the same recipe with different seeds, measured on the same queries. Those without
            the measure are left out.
        measure: e.g. "MRR@10".
        like: the record that determines the order of queries; None takes the first.

    Returns:
        `[runs, queries]` float64 in the displayed unit (percent, GB, ...).

    Raises:
        InputError: the records were measured on different queries.
    """
    runs = Side(records, measure).runs
    scores = [Scores(run.query_ids, {measure: _values(run, measure)}) for run in runs]
    return unit_of(measure)[0] * aligned(scores, (like or runs[0]).measured, measure)


def per_seed(records: Sequence[Record], measure: str, like: Record | None = None) -> np.ndarray:
    """Scores of one configuration, one row per seed: the mean over its runs, as in `Side.means`.
    Their mean is that of `value`.

    Args:
        records: as for `per_query`.
        measure: as for `per_query`.
        like: as for `per_query`.

    Returns:
        `[seeds, queries]` float64 in the displayed unit (percent, GB, ...).

    Raises:
        InputError: the records were measured on different queries.
    """
    side = Side(records, measure)
    like = like or side.runs[0]
    return np.stack([per_query(runs, measure, like).mean(axis=0) for runs in side.seeds.values()])


def mean_intervals(runs: Runs, measure: str) -> dict[str, Interval]:
    """Label -> mean over queries and seeds in percent, with its 95 % interval, clipped to 0 and
    100, which decides nothing with fewer clusters than `FEWEST`. If all queries have the best or
    the worst value, it reaches to the limit of a share that none of them shows.

    Raises:
        InputError: two configurations were measured on different queries.
    """
    sides = {label: Side(records, measure) for label, records in runs.items()}
    filled = {label: side for label, side in sides.items() if side.runs}
    if unit_of(measure)[1] == "points":
        check_same_queries([record for side in filled.values() for record in side.runs])
    within = possible(measure, difference=False)
    means = {label: compared([(1.0, side)]) for label, side in filled.items()}
    intervals = {}
    for label, mean in means.items():
        found = mean.estimate.interval(within=within)
        if mean.agree and np.isfinite(within).all() and np.isclose(found.mean, within).any():
            reach = mean.detectable()
            low, high = np.clip([found.mean - reach, found.mean + reach], *within)
            found = replace(found, low=float(low), high=float(high))
        intervals[label] = replace(found, decides=mean.effective >= FEWEST)
    return intervals


def _differences(pairs: Sequence[Pair], runs: Runs, measure: str) -> dict[Pair, Compared]:
    return {
        (a, b): difference(runs[a], runs[b], measure)
        for a, b in pairs
        if all(Side(runs.get(label, ()), measure).runs for label in (a, b))
    }


def differences(pairs: Sequence[Pair], runs: Runs, measure: str) -> dict[Pair, Interval]:
    """First minus second for each pair that was run: difference of the means in points, with its
    interval.
    """
    within = possible(measure, difference=True)
    gaps = _differences(pairs, runs, measure)
    return {
        pair: replace(gap.estimate.interval(within=within), decides=not gap.why_open)
        for pair, gap in gaps.items()
    }


def corrected_tests(
    pairs: Sequence[Pair], runs: Runs, measure: str, *, as_trained: bool = False
) -> dict[Pair, float]:
    """p-value of each pair that was run, with Holm's correction; NaN, without a test, if the pair
    may decide nothing (`Compared.why_open`).

    Args:
        as_trained: test rows with one seed too: the result is about the given weights, which are
            the ones that are used, and not about other trainings.
    """
    gaps = _differences(pairs, runs, measure)
    tested = [
        pair
        for pair, gap in gaps.items()
        if gap.effective >= FEWEST and (as_trained or not gap.why_open)
    ]
    p_values = holm([gaps[pair].estimate.p() for pair in tested])
    return dict.fromkeys(gaps, np.nan) | dict(zip(tested, map(float, p_values), strict=True))


def detectable(
    pairs: Sequence[Pair], runs: Runs, measure: str, level: float = 0.05
) -> dict[Pair, float]:
    """The smallest difference in points that is detectable with the queries and seeds of each pair,
    with power 0.8 at this level.
    """
    return {pair: gap.detectable(level) for pair, gap in _differences(pairs, runs, measure).items()}


def newest_states(records: Sequence[Record]) -> dict[str, str]:
    """Collection -> digest of its newest state, since collections change over time; in the order of
    the records.
    """
    newest: dict[str, Record] = {}
    for record in records:
        other = newest.setdefault(record.searched_on["name"], record)
        if record.created > other.created:
            newest[record.searched_on["name"]] = record
    return {name: record.searched_on["digest"] for name, record in newest.items()}


def unit_of(measure: str) -> tuple[int, str]:
    """The factor from a value to the displayed one, and the unit of a difference.

    Example:
        >>> unit_of("MRR@10"), unit_of("gigabytes")
        ((100, 'points'), (1, 'GB'))
    """
    return (1, AMOUNTS[measure]) if measure in AMOUNTS else (100, "points")
