"""A study: labelled recipes times seeds, run one after the other or side by side, within a time
budget.

Page of the book: practice/own-corpus. A run that has left its record is not run again; a run that
fails does not lose the others. When the time is up, what is under way is stopped and what is left
is listed: the next call goes on.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation import KINDS, Clusters, Scores, clusters_of, documents_of
from dr_lib.files import json_digest
from dr_lib.lab.checks import processes_of, steps_of
from dr_lib.lab.cluster import TURNS, Cluster
from dr_lib.lab.pipeline import Plan, pipeline
from dr_lib.lab.recipe import Recipe, open_sample
from dr_lib.lab.records import (
    TRAINED,
    Record,
    commit,
    epoch,
    live_folder,
    load_records,
    training_log,
)
from dr_lib.models import Prompts
from dr_lib.settings import check_parameters
from dr_lib.stages import Cache, Data, Stage, TimeIsUpError, check_alone, now, spell_seconds
from dr_lib.training import TrainLog, machine

STARTING = 0.03
"""Seconds in which a processor starts the kernels of one micro-batch on a GPU, which is the least
that it takes: 22 to 51 milliseconds for models of 2 x 128 on an H200, sixteen beside each other.
"""
SPEEDS = {"a data-centre GPU": (2e14, STARTING), "two processor cores": (1.6e11, 0.0)}
"""Operations a second that training has reached, and the least seconds of a micro-batch."""
UTILISED = 0.3
"""Share of a GPU's measured peak that training reaches, about."""
GPUS = (1, 2, 4, 8)
BM25 = "BM25"
WORK = {
    "pretrained": "pre-training",
    "retriever": "fine-tuning",
    "vectors": "encoding",
    "given_vectors": "encoding",
    "passage_tokens": "tokens",
    "bm25_index": "BM25",
    "weighted_bm25_index": "BM25",
    "bm25_run": "BM25",
    "dense_run": "search and mining",
}
"""What kinds of stages do, in words."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a study: a recipe (seed included), the names its record will carry, and where it
    searches, if it is named.
    """

    study: str
    label: str
    scale: str
    recipe: Recipe
    searched: str = ""

    @property
    def name(self) -> str:
        """Label and seed, as shown in the progress bar and in messages."""
        return f"{self.label}{self.searched and f' on {self.searched}'} (seed {self.recipe.seed})"


def execute(run: Run, cache: Cache) -> Record:
    """Build whatever a run ends with and is not there yet, and describe the stages that this end
    rests on.

    Threads of one process take turns, so that each run has the numbers that it has alone.
    """
    with TURNS:
        plan = pipeline(run.recipe)
        scores = Scores.load(cache.get(plan.end) / "scores.json")
    stages = plan.stages()
    manifests = {name: cache.manifest(stage) for name, stage in stages.items()}
    trainings, seconds = {}, {name: manifest["seconds"] for name, manifest in manifests.items()}
    for name, stage in stages.items():
        if stage.kind in TRAINED and "log.json" in (files := manifests[name]["files"]):
            # unread so far if what rests on it was there already
            cache.check(folder := cache.folder(stage))
            log = training_log(folder / "log.json")
            # a manifest has those of the last part, if it was resumed
            seconds[name] = log["wall_seconds"]
            if name in TRAINED:
                weights = {
                    file: facts["sha256"]
                    for file, facts in files.items()
                    if file.endswith(".safetensors")
                }
                # of the last part, if it was resumed
                spent = {"processor_seconds": manifests[name].get("processor_seconds")}
                trainings[name] = log | spent | {"weights": weights}
    code = {stage.kind: stage.code for stage in stages.values()}
    earlier = [
        stage.parameters["method"]
        for name, stage in stages.items()
        if stage.kind == "pretrained" != name
    ]
    code |= {method["code"]: method["digest"] for method in earlier}
    for name, argument in (("pretrained", "method"), ("retriever", "distil")):
        if name in stages and (identity := stages[name].parameters.get(argument)):
            code[argument] = identity["digest"]
    return _record(
        run,
        scores,
        clusters=clusters(plan, scores.query_ids),
        keys={name: stage.key for name, stage in stages.items()},
        code=code,
        data=data_facts(plan),
        training=trainings,
        seconds=seconds,
        versions=versions_of(manifests.values()),
    )


def measured(
    study: str,
    label: str,
    recipe: Recipe,
    scores: Scores,
    collection: Mapping[str, Any],
    *,
    scale: str,
    clusters: Clusters | None = None,
) -> Record:
    """Save the record of numbers that a notebook computes by itself: sizes, times, statistics of
    masks.

    Args:
        study, label, scale: as of `Run`.
        recipe: the settings that the numbers hold for.
        scores: the values, and names of what was counted or timed.
        collection: name of the text, and its digest and sizes where it has some.
        clusters: which of the values stand together; None where each stands for itself.
    """
    made_from = {
        "study": study,
        "label": label,
        "recipe": recipe.portable(),
        "collection": dict(collection),
    }
    record = _record(
        Run(study, label, scale, recipe),
        scores,
        **{"clusters": clusters} if clusters else {},
        keys={"evaluation": json_digest(made_from)},
        data={"collection": {"digest": json_digest(dict(collection)), **collection}},
    )
    record.save(live_folder(scale))
    return record


def _record(run: Run, scores: Scores, **facts: Any) -> Record:
    """The record of some scores: who made them, when, with what and on which machine."""
    here = machine.machine_facts()
    made = {"versions": here.pop("versions"), "machine": here, "commit": commit(), "created": now()}
    made["epoch"] = epoch()
    recipe = run.recipe.portable()
    return Record(
        study=run.study,
        label=run.label,
        scale=run.scale,
        seed=run.recipe.seed,
        recipe=recipe,
        recipe_digest=json_digest(recipe),
        scores=scores.to_dict(),
        means={name: scores.mean(name) for name in scores.values},
        **made | facts,
    )


def versions_of(manifests: Any) -> dict[str, str]:
    """Versions that the stages were built with; "a and b" where some stages were built with another
    one.
    """
    merged = defaultdict(set)
    for manifest in manifests:
        for name, version in manifest["versions"].items():
            merged[name].add(version)
    return {name: " and ".join(sorted(known)) for name, known in sorted(merged.items())}


def clusters(plan: Plan, query_ids: Sequence[str]) -> Clusters:
    """The cluster of every query that a run was measured on."""
    inputs, options = plan.inputs, plan.inputs.recipe.evaluation
    if options.task:
        return options.task.clusters(len(query_ids))
    if KINDS[options.kind].scored == "passages":
        return documents_of(inputs.searched, query_ids)
    return clusters_of(inputs.searched, options.split, query_ids, options.grade)


def data_facts(plan: Plan) -> dict[str, Any]:
    """What the run was measured on and made from: names, sizes and digests."""
    inputs, recipe = plan.inputs, plan.inputs.recipe
    options = recipe.evaluation
    if task := options.task:
        files = (
            file
            for file in plan.end.arguments.values()
            if isinstance(file, Data) and Path(file.place).is_file()
        )
        measured_on = {
            "name": Path(task.folder).name,
            "digest": " ".join(file.digest for file in files),
        }
        measured_on |= {"task": task.task} if options.nlu else {}
    else:
        measured_on = _collection_facts(inputs.searched, options.split)
    facts = {"collection": measured_on}
    if name := recipe.portable().get("retriever"):
        prompts = recipe.prompts or Prompts.of(Path(plan.retriever.place))
        read = {"prompts": prompts.model_dump()} if any(prompts.model_dump().values()) else {}
        return facts | {"retriever": {"name": name, "digest": plan.retriever.digest, **read}}
    facts |= (
        {"trained_on": _collection_facts(inputs.collection, "train")} if task or options.on else {}
    )
    if inputs.corpus is not inputs.collection:
        facts["pretrained_on"] = {"name": inputs.corpus.name, "digest": inputs.corpus.digest}
    if first := recipe.pretraining.first:
        facts["pretrained_first_on"] = {
            "name": open_sample(first).name,
            "digest": open_sample(first).digest,
        }
    facts["base"] = inputs.base.facts()
    return facts | ({"generator": inputs.generator.facts()} if inputs.generator else {})


def _collection_facts(collection: Collection, split: str) -> dict[str, Any]:
    sizes = {
        f"{name}_queries": len(collection.qrels(name)) if name in collection.splits else 0
        for name in ("train", split)
    }
    facts = {"name": collection.name, "digest": collection.digest}
    return facts | {"passages": len(collection.passages)} | sizes


@dataclass
class StudyResult:
    """The results of a study so far.

    Attributes:
        records: run -> its record.
        pending: runs that the time budget did not allow -> how far they are, such as "1,250 of
            2,000 steps of pre-training"; "" where nothing is begun.
        failures: runs -> the error that ended them.
        needed: seconds that the pending runs take on this machine, about; without a GPU on two
            processor cores.
        done: seconds that what this call did takes, by the same measure.
    """

    records: dict[Run, Record] = field(default_factory=dict)
    pending: dict[Run, str] = field(default_factory=dict)
    failures: dict[Run, str] = field(default_factory=dict)
    needed: float = 0.0
    done: float = 0.0

    def __repr__(self) -> str:
        waiting = {run.name: far or "not begun" for run, far in self.pending.items()}
        failed = {run.name: error for run, error in self.failures.items()}
        others = [f"{name}: {state}" for name, state in (waiting | failed).items()]
        return "\n".join([*map(repr, self.records.values()), *others]) or "no runs"

    def runs(self, searched: str | None = None) -> dict[str, list[Record]]:
        """Label -> records in the order of their seeds, as tables and figures take them; of one
        searched collection, if named.
        """
        runs: dict[str, list[Record]] = defaultdict(list)
        for run in sorted(self.records, key=lambda run: run.recipe.seed):
            if searched in (None, run.searched):
                runs[run.label].append(self.records[run])
        return dict(runs)

    def by_collection(self) -> dict[str, dict[str, list[Record]]]:
        """Collection -> label -> records, of `zero_shot`."""
        return {
            name: self.runs(name) for name in dict.fromkeys(run.searched for run in self.records)
        }


class StudyError(RuntimeError):
    """Some runs of a study failed; the others have left their records.

    Attributes:
        result: everything that did finish, and the failures.
    """

    def __init__(self, result: StudyResult):
        lines = [f"{run.name}: {error}" for run, error in result.failures.items()]
        super().__init__("runs failed:\n" + "\n".join(lines))
        self.result = result


class Study:
    """A notebook's sweep.

    Args:
        name: paper and table, e.g. "simlm/table08".
        recipes: label -> recipe; the labels are the paper's names of the rows.
        seeds: seeds to run each recipe with; the first seed of all recipes comes before the second
            of any.
        scale: name of the scale that the recipes are of, for the records; it has no default, since
            a recipe does not tell it.
        minutes: time budget of one call of `run`; None: that of the cache. What is under way when
            the time is up is stopped, a training with a checkpoint of its last step, encoding and
            writing with what they have; other stages are finished first.
        executor: any `concurrent.futures` executor of processes (threads would take turns), or
            `lab.Cluster` for machines; None takes the cluster that `DR_CLUSTER` names, else runs
            one after the other in this process.
        cache: where stages are kept.
        records: folder of the records; default `live_folder(scale)`.
    """

    def __init__(
        self,
        name: str,
        recipes: Mapping[str, Recipe],
        seeds: Sequence[int] = (0,),
        *,
        scale: str,
        minutes: float | None = None,
        executor: Executor | None = None,
        cache: Cache | None = None,
        records: Path | None = None,
    ):
        check_parameters(seeds=(seeds if isinstance(seeds, int | str) else [*seeds], [int]))
        if not recipes or not seeds:
            raise InputError(
                "nothing to run", where=name, fix="Give at least one recipe and one seed."
            )
        self.name, self.scale, self.minutes = name, scale, minutes
        # as the runner of notebooks sets it (`run_notebooks.py --cluster`)
        where = os.environ.get("DR_CLUSTER")
        self.executor = executor or (Cluster(where) if where else None)
        # Dask's own executor does not say how many it takes: then all runs are handed over at once.
        self.at_once = getattr(
            self.executor, "_max_workers", len(seeds) * len(recipes) if self.executor else 1
        )
        self.cache, self.folder = cache or Cache(announce=tqdm.write), records or live_folder(scale)
        self.planned = [
            Run(name, label, scale, recipe.with_(seed=seed))
            for seed in seeds
            for label, recipe in recipes.items()
        ]

    def run(self) -> StudyResult:
        """Run what is missing and fits the budget.

        Raises:
            InputError: a recipe cannot be run (before anything has started).
            StudyError: a run failed; its `result` has the others.
        """
        check_alone()
        cache = self.cache if self.minutes is None else self.cache.within(self.minutes)
        plans = {run: pipeline(run.recipe) for run in self.planned}
        ends = {run: plan.end for run, plan in plans.items()}
        result = StudyResult(self._recorded(plans))
        waiting = [run for run in plans if run not in result.records]
        at_first = self._seconds_left(ends[run] for run in waiting)
        if waiting:
            self._announce([plans[run] for run in waiting])
            self._run(waiting, ends, cache, result, at_first)
        left = [run for run in waiting if run not in result.records and run not in result.failures]
        result.pending = {run: how_far(ends[run], self.cache) for run in left}
        result.needed = self._seconds_left(ends[run] for run in left)
        result.done = at_first - result.needed
        if left:
            names = ", ".join(
                f"{run.name}{far and f', stopped after {far}'}"
                for run, far in result.pending.items()
            )
            tqdm.write(f"{self.name}: {len(left)} runs pending for lack of time: {names}")
        # not as they came in
        result.failures = {run: result.failures[run] for run in ends if run in result.failures}
        if result.failures:
            raise StudyError(result)
        return result

    def _seconds_left(self, ends: Iterable[Stage]) -> float:
        """What is not finished below some stages, in seconds as `seconds_here` has them."""
        rest = [rest_of(stage, self.cache) for stage in self.cache.missing(ends)]
        return seconds_here(rest)

    def _recorded(self, plans: Mapping[Run, Plan]) -> dict[Run, Record]:
        """The records that were made from exactly the same stages and of the same data."""
        earlier = {
            (record.label, record.seed, record.keys["evaluation"], record.recipe_digest): record
            for record in load_records(self.folder, self.name)
        }
        matching = {}
        for run, plan in plans.items():
            record = earlier.get((run.label, run.recipe.seed, plan.end.key, run.recipe.digest))
            if record and record.data == data_facts(plan):
                matching[run] = record
        return matching

    def _announce(self, plans: Sequence[Plan]) -> None:
        """Say what is to do, and what it takes."""
        work = outlook([plan.end for plan in plans], self.cache) or "without training"
        needed = memory_needed(plans)
        runs = f"{len(plans)} run{'s' * (len(plans) > 1)} to do"
        tqdm.write(f"{self.name}: {runs}, {work}{needed and f'; {needed}'}")

    def _run(
        self,
        runs: Sequence[Run],
        ends: Mapping[Run, Stage],
        cache: Cache,
        result: StudyResult,
        whole: float,
    ) -> None:
        """Run as many at once as the executor takes while there is time; what becomes of them goes
        into the result. `whole`: seconds of all of them, as `seconds_here` has them.
        """
        waiting, under_way, begun = [*runs], {}, time.monotonic()
        with tqdm(total=len(runs), desc=self.name, unit="run") as bar:
            while True:
                while (
                    waiting
                    and len(under_way) < self.at_once
                    and not (cache.stop_at and time.monotonic() >= cache.stop_at)
                ):
                    run = waiting.pop(0)
                    rest = (run, *waiting, *under_way.values())
                    left, still = self._seconds_left(ends[other] for other in rest), ""
                    if left < whole:  # at the pace of what was done
                        seconds = (time.monotonic() - begun) * left / (whole - left)
                        still = f", {spell_seconds(seconds)} left"
                    bar.set_postfix_str(run.name + still)
                    under_way[self._submit(run, cache)] = run
                if not under_way:
                    return
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    run = under_way.pop(future)
                    try:
                        record = future.result()
                    except TimeIsUpError:
                        continue
                    except Exception as error:
                        result.failures[run] = f"{type(error).__name__}: {error}"
                    else:
                        record.save(self.folder)
                        result.records[run] = record
                    bar.update()

    def _submit(self, run: Run, cache: Cache) -> Future:
        """The future of a run; without an executor it is done. What cannot even be begun has
        failed, and loses no other.
        """
        done: Future = Future()
        try:
            if self.executor:
                return self.executor.submit(execute, run, cache)
            done.set_result(execute(run, cache))
        except (Exception, TimeIsUpError) as error:
            done.set_exception(error)
        return done


def outlook(ends: Iterable[Stage], cache: Cache) -> str:
    """What is to be trained, encoded, searched and written for some stages, and how long it takes:
    on the GPU that is there, else on either device; empty where nothing of this is left.
    """
    missing = [stage for stage in cache.missing(ends) if stage.cost or stage.core_seconds >= 1]
    work = dict.fromkeys(WORK.get(stage.kind, stage.kind.replace("_", " ")) for stage in missing)
    left = [rest_of(stage, cache) for stage in missing]
    operations, core = sum(rest.cost for rest in left), sum(rest.core_seconds for rest in left)
    times = ", ".join(
        f"{spell_seconds(seconds)} on {name}" for name, seconds in seconds_needed(left).items()
    )
    beside = f", {spell_seconds(core)} of them on a processor" if core >= 60 else ""
    return f"{', '.join(work)}: {operations:.1e} operations ({times}{beside})" if missing else ""


class Work(NamedTuple):
    """What a stage takes.

    Attributes:
        cost, core_seconds: as of `Stage`.
        batches: micro-batches of a training.
    """

    cost: float
    core_seconds: float
    batches: float


def rest_of(stage: Stage, cache: Cache) -> Work:
    """What is left of a stage, some of whose steps a training may have behind it."""
    log, share = cache.draft(stage) / "log.json", 1.0
    if log.is_file():
        steps = TrainLog.load(log)
        share -= steps.step / steps.steps
    training = stage.arguments.get("training") if stage.cost else None
    batches = training.last * training.accumulation if training else 0
    return Work(stage.cost * share, stage.core_seconds, batches * share)


def seconds_needed(works: Iterable[Work], further: float = 0.0) -> dict[str, float]:
    """Device -> seconds that stages take on it, about: on the GPU that is there, else on either
    kind, processor cores last; `further` are operations of work that is not a stage yet.
    """
    works, device, speeds = [*works], machine.device(), SPEEDS
    if device.type == "cuda":
        most = machine.most_operations(device, machine.precision("auto", device))
        speeds = {machine.device_name(device): (UTILISED * most, STARTING)}
    core = sum(work.core_seconds for work in works)
    return {
        name: core
        + further / speed
        + sum(max(work.cost / speed, least * work.batches) for work in works)
        for name, (speed, least) in speeds.items()
    }


def seconds_here(works: Iterable[Work], further: float = 0.0) -> float:
    """Those of `seconds_needed` on this machine: without a GPU, on two processor cores."""
    return [*seconds_needed(works, further).values()][-1]


def memory_needed(plans: Iterable[Plan]) -> str:
    """What the trainings of some recipes take of a GPU at most, and on how many of them all can
    run; empty where there is no training.
    """
    steps, numbers = {}, set(GPUS)
    for plan in plans:
        steps_needed = steps_of(plan.inputs)
        numbers &= set(processes_of(plan.inputs, steps_needed, GPUS))
        steps |= {step.bytes(): name for name, step in steps_needed.items()}
    if not steps:
        return ""
    count = " or ".join(map(str, sorted(numbers)))
    most = max(steps)
    return f"at most {most / 2**30:.0f} GiB of a GPU ({steps[most]}), on {count} of them"


def how_far(end: Stage, cache: Cache) -> str:
    """What below a stage is begun and not finished: "1,250 of 2,000 steps of pre-training"; empty
    where nothing is.
    """
    for stage in cache.missing([end]):
        work, draft = WORK.get(stage.kind, stage.kind.replace("_", " ")), cache.draft(stage)
        if (draft / "log.json").is_file():
            log = TrainLog.load(draft / "log.json")
            return f"{log.step:,} of {log.steps:,} steps of {work}"
        if stage.resumable and draft.is_dir():
            return f"part of the {work}"
    return ""


# Zero-shot: CDMAE Table 3 and MASTER Table 4 (BEIR) -----------------------------------------------


def zero_shot(
    recipes: Recipe | Mapping[str, Recipe],
    collections: Sequence[str | Path] | Mapping[str, Any],
    *,
    name: str = "evaluation/zero-shot",
    seeds: Sequence[int] = (0,),
    measures: Sequence[str] = ("nDCG@10", "R@100"),
    depth: int = 100,
    grades: Mapping[str, int] | None = None,
    bm25: bool = True,
    **options: Any,
) -> StudyResult:
    """Evaluate retrievers on collections that they were not trained on, each run with a record of
    its own.

    A recipe's retriever is trained once, on its own collection; every other collection costs its
    vectors and a search.

    Args:
        recipes: label -> recipe, or one recipe, which is called by its method's name.
        collections: names or paths as `collections.load` takes them; or shown name -> name, path or
            `CollectionSettings`, for samples.
        name: of the study, for the records.
        seeds: seeds of the trainings.
        measures: as `evaluation.evaluate` takes them.
        depth: passages searched for each query.
        grades: shown name -> lowest grade that counts as relevant, where that is not 1 (TREC DL:
            2).
        bm25: measure BM25 on each collection too, under the label "BM25".
        options: further arguments of `Study`: scale, minutes, cache, records and executor.

    Returns:
        The result of a study that searches several collections, see `by_collection`.

    Raises:
        InputError: something cannot be run (before anything has started).
        StudyError: a run failed; what did finish has left its records.

    Example: ``lab.zero_shot(recipe, ["scifact", "cacm"], scale="laptop")``
    """
    recipes = {recipes.objective.name: recipes} if isinstance(recipes, Recipe) else dict(recipes)
    if isinstance(collections, str | Path):
        raise InputError(
            "one name where a list is expected", where="collections", fix="Give a list of names."
        )
    searched = (
        collections
        if isinstance(collections, Mapping)
        else {Path(name).name: str(name) for name in collections}
    )
    if not recipes or not searched:
        raise InputError(
            "nothing to run", where=name, fix="Give at least one recipe and one collection."
        )
    study = Study(name, recipes, seeds, **options)
    study.planned = []
    for shown, where in searched.items():
        changes = {
            "measures": list(measures),
            "depth": depth,
            "grade": (grades or {}).get(shown, 1),
            "on": where,
        }
        changes = {f"evaluation__{key}": value for key, value in changes.items()}
        labelled = {
            label: _on_its_split(recipe.with_(**changes)) for label, recipe in recipes.items()
        }
        rows = [
            (label, recipe.with_(seed=seed)) for seed in seeds for label, recipe in labelled.items()
        ]
        if bm25:  # another seed changes nothing
            rows = [(BM25, rows[0][1].with_(objective="none", evaluation__kind="bm25")), *rows]
        study.planned += [Run(name, label, study.scale, recipe, shown) for label, recipe in rows]
    return study.run()


def _on_its_split(recipe: Recipe) -> Recipe:
    """The recipe on the only split of judged queries that its collection has, where it lacks the
    recipe's own.
    """
    splits = open_sample(recipe.evaluation.on).splits
    return recipe.with_(evaluation__split=splits[0]) if len(splits) == 1 else recipe
