"""A study: labelled recipes times seeds, run sequentially or in parallel, within a time budget.

Page of the book: practice/own-corpus. A run with a record is not run again; a failing run does not
affect the others. When time is up, running work is stopped and pending runs are listed: the next
call continues.
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
"""Seconds to launch the kernels of one micro-batch on a GPU, a lower bound on its time: 22 to 51
milliseconds for 2 x 128 models on an H200, sixteen in parallel.
"""
SPEEDS = {"a data-centre GPU": (2e14, STARTING), "two processor cores": (1.6e11, 0.0)}
"""Operations per second reached in training, and the minimum seconds of a micro-batch."""
UTILISED = 0.3
"""Approximate share of a GPU's measured peak that training reaches."""
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
"""Kinds of stages in words."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a study: a recipe (seed included), the names for its record, and the name of the
    searched collection, if there are several.
    """

    study: str
    label: str
    scale: str
    recipe: Recipe
    searched: str = ""

    @property
    def name(self) -> str:
        """Label and seed, for the progress bar and messages."""
        return f"{self.label}{self.searched and f' on {self.searched}'} (seed {self.recipe.seed})"


def execute(run: Run, cache: Cache) -> Record:
    """Build the end of a run, if it is not finished yet, and make a record of it and the stages
    behind it.

    Threads of one process take turns, so that results do not depend on other runs.
    """
    with TURNS:
        plan = pipeline(run.recipe)
        scores = Scores.load(cache.get(plan.end) / "scores.json")
    stages = plan.stages()
    manifests = {name: cache.manifest(stage) for name, stage in stages.items()}
    trainings, seconds = {}, {name: manifest["seconds"] for name, manifest in manifests.items()}
    for name, stage in stages.items():
        if stage.kind in TRAINED and "log.json" in (files := manifests[name]["files"]):
            # not yet checked if the stages that depend on it were finished
            cache.check(folder := cache.folder(stage))
            log = training_log(folder / "log.json")
            # the manifest has only the last part of a resumed build
            seconds[name] = log["wall_seconds"]
            if name in TRAINED:
                weights = {
                    file: facts["sha256"]
                    for file, facts in files.items()
                    if file.endswith(".safetensors")
                }
                # only the last part of a resumed build
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
    """Save a record of numbers that a notebook computed itself: sizes, times, statistics of masks.

    Args:
        study, label, scale: as for `Run`.
        recipe: the settings behind the numbers.
        scores: the values, with names of what was counted or timed.
        collection: name of the text, with its digest and sizes if it has any.
        clusters: clusters of the values; None if they are independent.
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
    """The record of some scores, with time, versions, machine and commit."""
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
    """Versions that the stages were built with; "a and b" if they differ."""
    merged = defaultdict(set)
    for manifest in manifests:
        for name, version in manifest["versions"].items():
            merged[name].add(version)
    return {name: " and ".join(sorted(known)) for name, known in sorted(merged.items())}


def clusters(plan: Plan, query_ids: Sequence[str]) -> Clusters:
    """The cluster of every query of a run."""
    inputs, options = plan.inputs, plan.inputs.recipe.evaluation
    if options.task:
        return options.task.clusters(len(query_ids))
    if KINDS[options.kind].scored == "passages":
        return documents_of(inputs.searched, query_ids)
    return clusters_of(inputs.searched, options.split, query_ids, options.grade)


def data_facts(plan: Plan) -> dict[str, Any]:
    """What a run was trained and measured on: names, sizes and digests."""
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
        pending: runs beyond the time budget -> their progress, such as "1,250 of 2,000 steps of
            pre-training"; "" if not begun.
        failures: runs -> the error that ended them.
        needed: estimated seconds for the pending runs on this machine; without a GPU, on two CPU
            cores.
        done: estimated seconds of the work done by this call, by the same measure.
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
        """Label -> records by seed, for tables and figures; of one searched collection if given."""
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
    """Some runs of a study failed; the others have records.

    Attributes:
        result: everything that finished, and the failures.
    """

    def __init__(self, result: StudyResult):
        lines = [f"{run.name}: {error}" for run, error in result.failures.items()]
        super().__init__("runs failed:\n" + "\n".join(lines))
        self.result = result


class Study:
    """A notebook's sweep.

    Args:
        name: paper and table, e.g. "simlm/table08".
        recipes: label -> recipe; labels are the row names of the paper's table.
        seeds: seeds for each recipe; all recipes run with the first seed before any with the
            second.
        scale: name of the recipes' scale, for the records; required, since recipes do not contain
            it.
        minutes: time budget of one call of `run`; None: that of the cache. When time is up,
            trainings stop with a checkpoint, encoding and generation with their progress; other
            stages are finished first.
        executor: any `concurrent.futures` process executor (threads would take turns), or
            `lab.Cluster`; None takes the cluster in `DR_CLUSTER`, else runs sequentially in this
            process.
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
        # set by `run_notebooks.py --cluster`
        where = os.environ.get("DR_CLUSTER")
        self.executor = executor or (Cluster(where) if where else None)
        # Dask's own executor does not tell its size: then all runs are submitted at once.
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
        """Run what is missing, within the time budget.

        Raises:
            InputError: a recipe cannot be run (raised before anything starts).
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
        # in the order of the runs
        result.failures = {run: result.failures[run] for run in ends if run in result.failures}
        if result.failures:
            raise StudyError(result)
        return result

    def _seconds_left(self, ends: Iterable[Stage]) -> float:
        """Estimated seconds of unfinished work behind some stages, as by `seconds_here`."""
        rest = [rest_of(stage, self.cache) for stage in self.cache.missing(ends)]
        return seconds_here(rest)

    def _recorded(self, plans: Mapping[Run, Plan]) -> dict[Run, Record]:
        """The records made from exactly the same stages and data."""
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
        """Announce what is to be done, and how long it takes."""
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
        """Run as many at once as the executor takes, until time is up; add outcomes to the result.
        `whole`: estimated seconds of all runs, as by `seconds_here`.
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
                    if left < whole:  # extrapolated from the work done so far
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
        """The future of a run, already done without an executor. A run that cannot be submitted has
        failed, without affecting others.
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
    """What is to be trained, encoded, searched and generated for some stages, and how long it
    takes, on this GPU or, without one, on either kind of device; empty if nothing is left.
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
    """The work of a stage.

    Attributes:
        cost, core_seconds: as for `Stage`.
        batches: micro-batches of a training.
    """

    cost: float
    core_seconds: float
    batches: float


def rest_of(stage: Stage, cache: Cache) -> Work:
    """The remaining work of a stage, which may be a partly finished training."""
    log, share = cache.draft(stage) / "log.json", 1.0
    if log.is_file():
        steps = TrainLog.load(log)
        share -= steps.step / steps.steps
    training = stage.arguments.get("training") if stage.cost else None
    batches = training.last * training.accumulation if training else 0
    return Work(stage.cost * share, stage.core_seconds, batches * share)


def seconds_needed(works: Iterable[Work], further: float = 0.0) -> dict[str, float]:
    """Device -> estimated seconds of stages: on this GPU or, without one, on either kind, CPU cores
    last; `further` are operations of work that is not a stage yet.
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
    """`seconds_needed` for this machine: without a GPU, two CPU cores."""
    return [*seconds_needed(works, further).values()][-1]


def memory_needed(plans: Iterable[Plan]) -> str:
    """The GPU memory that the trainings of some recipes need, and on how many GPUs all can run;
    empty if there is no training.
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
    """Progress of the first unfinished work behind a stage: "1,250 of 2,000 steps of pre-training";
    empty if not begun.
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
    """Evaluate retrievers on collections that they were not trained on, with a record for each run.

    A recipe's retriever is trained once, on its own collection; other collections only need
    encoding and search.

    Args:
        recipes: label -> recipe, or one recipe, labelled by its method's name.
        collections: names or paths as for `collections.load`; or display name -> name, path or
            `CollectionSettings`, for samples.
        name: of the study, for the records.
        seeds: seeds of the trainings.
        measures: as for `evaluation.evaluate`.
        depth: passages searched per query.
        grades: display name -> lowest grade that counts as relevant, if not 1 (TREC DL: 2).
        bm25: measure BM25 on each collection too, under the label "BM25".
        options: further arguments of `Study`: scale, minutes, cache, records and executor.

    Returns:
        The result of a study that searches several collections, see `by_collection`.

    Raises:
        InputError: something cannot be run (before anything has started).
        StudyError: a run failed; finished runs have records.

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
        if bm25:  # BM25 has no seed
            rows = [(BM25, rows[0][1].with_(objective="none", evaluation__kind="bm25")), *rows]
        study.planned += [Run(name, label, study.scale, recipe, shown) for label, recipe in rows]
    return study.run()


def _on_its_split(recipe: Recipe) -> Recipe:
    """The recipe, evaluated on the collection's only split if there is just one."""
    splits = open_sample(recipe.evaluation.on).splits
    return recipe.with_(evaluation__split=splits[0]) if len(splits) == 1 else recipe
