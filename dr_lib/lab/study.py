"""A study: labelled recipes times seeds, run one after the other or side by side, within a time budget.

Page of the book: practice/own-corpus. A run that has left its record is not run again; a run that fails does not
lose the others. When the time is up, what is under way is stopped and what is left is listed: the next call goes on.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores
from dr_lib.files import json_digest
from dr_lib.lab.base import open_sample
from dr_lib.lab.cluster import COUNTED, TURNS, cluster_of_environment
from dr_lib.lab.pipeline import Pipeline
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.records import TRAINED, Record, commit, live_folder, load_records, training_log
from dr_lib.stages import Cache, Data, Estimates, Stage, TimeIsUpError, now, spell_seconds
from dr_lib.training import TrainLog, machine

SPEEDS = {"a data-centre GPU": 2e14, "two processor cores": 1.6e11}  # operations a second that training has reached
# Kind -> units of its cost a second, to plan by until this machine has finished one of the kind
RATES = dict.fromkeys(COUNTED, SPEEDS["two processor cores"]) | {"given_vectors": 30.0}
BM25 = "BM25"
WORK = {"pretrained": "pre-training", "retriever": "fine-tuning", "vectors": "encoding", "given_vectors": "encoding"}
"""What kinds of stages do, in words."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a study: a recipe (seed included) and the names its record will carry."""

    study: str
    label: str
    scale: str
    recipe: Recipe

    @property
    def name(self) -> str:
        """Label and seed, as shown in the progress bar and in messages."""
        return f"{self.label} (seed {self.recipe.seed})"


def execute(run: Run, cache: Cache) -> Record:
    """Build whatever a run ends with and is not there yet, and describe the stages that this end rests on.

    Threads of one process take turns, so that each run has the numbers that it has alone.
    """
    with TURNS:
        pipeline = Pipeline(run.recipe)
        scores = Scores.load(cache.get(pipeline.evaluation) / "scores.json")
    stages = pipeline.stages()
    manifests = {name: cache.manifest(one) for name, one in stages.items()}
    trainings, seconds = {}, {name: manifest["seconds"] for name, manifest in manifests.items()}
    for name, one in stages.items():
        if one.kind in TRAINED and "log.json" in (files := manifests[name]["files"]):
            cache.check(folder := cache.folder(one))  # unread so far if what rests on it was there already
            log = training_log(folder / "log.json")
            seconds[name] = log["wall_seconds"]  # a manifest has those of the last part, if it was resumed
            if name in TRAINED:
                weights = {file: facts["sha256"] for file, facts in files.items() if file.endswith(".safetensors")}
                spent = {"processor_seconds": manifests[name].get("processor_seconds")}  # of the last part, likewise
                trainings[name] = log | spent | {"weights": weights}
    code = {one.kind: one.code for one in stages.values()}
    earlier = [one.parameters["method"] for name, one in stages.items() if one.kind == "pretrained" != name]
    code |= {method["code"]: method["digest"] for method in earlier}
    for name, argument in (("pretrained", "method"), ("retriever", "distil")):
        if name in stages and (given := stages[name].parameters.get(argument)):
            code[argument] = given["digest"]
    return _record(
        run,
        scores,
        keys={name: one.key for name, one in stages.items()},
        code=code,
        data=data_facts(pipeline),
        training=trainings,
        seconds=seconds,
        versions=versions_of(manifests.values()),
    )


def measured(study: str, label: str, recipe: Recipe, scores: Scores, collection: Mapping[str, Any], *, scale: str) -> Record:
    """Save the record of numbers that a notebook computes by itself: sizes, times, statistics of masks.

    Args:
        study, label, scale: as of `Run`.
        recipe: the settings that the numbers hold for.
        scores: the values, and names of what was counted or timed.
        collection: name of the text, and its digest and sizes where it has some.
    """
    made_from = {"study": study, "label": label, "recipe": recipe.portable(), "collection": dict(collection)}
    record = _record(
        Run(study, label, scale, recipe),
        scores,
        keys={"evaluation": json_digest(made_from)},
        data={"collection": {"digest": json_digest(dict(collection)), **collection}},
    )
    record.save(live_folder(scale))
    return record


def _record(run: Run, scores: Scores, **facts: Any) -> Record:
    """The record of some scores: who made them, when, with what and on which machine."""
    here = machine.machine_facts()
    made = {"versions": here.pop("versions"), "machine": here, "commit": commit(), "created": now()}
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
    """Versions that the stages were built with; "a and b" where some stages were built with another one."""
    merged = defaultdict(set)
    for manifest in manifests:
        for name, version in manifest["versions"].items():
            merged[name].add(version)
    return {name: " and ".join(sorted(found)) for name, found in sorted(merged.items())}


def data_facts(pipeline: Pipeline) -> dict[str, Any]:
    """What the run was measured on and made from: names, sizes and digests."""
    options = pipeline.recipe.evaluation
    if task := options.nlu or options.dialogue:
        given = (one for one in pipeline.evaluation.arguments.values() if isinstance(one, Data) and Path(one.place).is_file())
        measured_on = {"name": Path(task.folder).name, "digest": " ".join(one.digest for one in given)}
        measured_on |= {"task": task.task} if options.nlu else {}
    else:
        measured_on = _collection_facts(pipeline.searched, options.split)
    facts = {"collection": measured_on}
    if name := pipeline.recipe.portable().get("retriever"):
        return facts | {"retriever": {"name": name, "digest": pipeline.retriever.digest}}
    facts |= {"trained_on": _collection_facts(pipeline.collection, "train")} if task or options.on else {}
    if pipeline.corpus is not pipeline.collection:
        facts["pretrained_on"] = {"name": pipeline.corpus.name, "digest": pipeline.corpus.digest}
    if first := pipeline.recipe.pretraining.first:
        facts["pretrained_first_on"] = {"name": open_sample(first).name, "digest": open_sample(first).digest}
    facts["base"] = pipeline.base.facts()
    return facts | ({"generator": pipeline.generator.facts()} if pipeline.generator else {})


def _collection_facts(collection: Collection, split: str) -> dict[str, Any]:
    train = len(collection.qrels("train")) if "train" in collection.splits else 0
    sizes = {"passages": len(collection.passages), "train_queries": train, f"{split}_queries": len(collection.qrels(split))}
    return {"name": collection.name, "digest": collection.digest} | sizes


@dataclass
class StudyResult:
    """The results of a study so far.

    Attributes:
        records: label -> seed -> record.
        pending: labels and seeds that the time budget did not allow.
        stopped: of those, what is begun, with how far it is: "1,250 of 2,000 steps of pre-training".
        failures: labels and seeds with the error that ended them.
    """

    records: dict[str, dict[int, Record]] = field(default_factory=dict)
    pending: list[tuple[str, int]] = field(default_factory=list)
    stopped: dict[tuple[str, int], str] = field(default_factory=dict)
    failures: dict[tuple[str, int], str] = field(default_factory=dict)

    def runs(self) -> dict[str, list[Record]]:
        """Label -> records in the order of their seeds, as tables and figures take them."""
        return {label: [record for _, record in sorted(by_seed.items())] for label, by_seed in self.records.items()}


class StudyError(RuntimeError):
    """Some runs of a study failed; the others have left their records.

    Attributes:
        result: everything that did finish, and the failures by label and seed.
    """

    def __init__(self, result: StudyResult):
        lines = [f"{label} (seed {seed}): {error}" for (label, seed), error in result.failures.items()]
        super().__init__("runs failed:\n" + "\n".join(lines))
        self.result = result


class InThisProcess(Executor):
    """Runs each call at once: the executor of a study that was given none."""

    def submit(self, fn: Any, /, *args: object, **kwargs: object) -> Future:
        """Call `fn` now; the future returned is done."""
        future: Future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except TimeIsUpError as error:
            future.set_exception(error)
        return future


class Study:
    """A notebook's sweep.

    Args:
        name: paper and table, e.g. "simlm/table08".
        recipes: label -> recipe; the labels are the paper's names of the rows.
        seeds: seeds to run each recipe with; the first seed of all recipes comes before the second of any.
        scale: name of the scale, for the records.
        minutes: time budget of one call of `run`; None for no limit. Runs that fit by earlier durations come first; what
            then is under way when the time is up is stopped, a training with a checkpoint of its last step, encoding
            and writing with what they have; other stages begin anew. On Dask's workers and on Windows a stage other
            than a training is finished first.
        executor: any `concurrent.futures` executor of processes (threads would take turns), or `lab.Cluster` for machines;
            None takes the cluster that `DR_CLUSTER` names, else runs one after the other in this process.
        cache: where stages are kept.
        records: folder of the records; default `live_folder(scale)`.
        progress: whether to show a progress bar.
    """

    def __init__(
        self,
        name: str,
        recipes: Mapping[str, Recipe],
        seeds: Sequence[int] = (0,),
        *,
        scale: str = "laptop",
        minutes: float | None = None,
        executor: Executor | None = None,
        cache: Cache | None = None,
        records: Path | None = None,
        progress: bool = True,
    ):
        if not recipes or not seeds:
            raise InputError("nothing to run", where=name, fix="Give at least one recipe and one seed.")
        self.name, self.scale, self.minutes, self.progress = name, scale, minutes, progress
        self.executor = executor or cluster_of_environment() or InThisProcess()
        client = getattr(self.executor, "_client", None)  # Dask's own executor does not say how many calls it takes at a time
        self.at_once = max(1, len(client.nthreads())) if client else getattr(self.executor, "_max_workers", None) or 1
        self.cache, self.folder = cache or Cache(announce=tqdm.write), records or live_folder(scale)
        self.planned = [Run(name, label, scale, recipe.with_(seed=seed)) for seed in seeds for label, recipe in recipes.items()]

    def run(self) -> StudyResult:
        """Run what is missing and fits the budget.

        Raises:
            InputError: a recipe cannot be run (before anything has started).
            StudyError: a run failed; its `result` has the others.
        """
        cache = self.cache.within(self.minutes)
        records = load_records(self.folder, self.name)
        earlier = {(one.label, one.seed, one.keys["evaluation"], one.recipe_digest): one for one in records}
        result, waiting = StudyResult(), {run: Pipeline(run.recipe).evaluation for run in self.planned}
        for run, end in tuple(waiting.items()):  # a record made from exactly the same stages is taken as it is
            if record := earlier.get((run.label, run.recipe.seed, end.key, run.recipe.digest)):
                result.records.setdefault(run.label, {})[record.seed] = record
                del waiting[run]
        if waiting:
            told = outlook(waiting.values(), self.cache) or "nothing is left to train"
            tqdm.write(f"{self.name}: {len(waiting)} runs to do, {told}")
        under_way: dict[Future, Run] = {}
        interrupted: list[Run] = []
        with tqdm(total=len(waiting), desc=self.name, unit="run", disable=not self.progress or not waiting) as bar:
            while True:
                while len(under_way) < self.at_once and (run := self._next(waiting, cache.stop_at, bool(under_way))):
                    left = self._expect([*waiting.values()])
                    bar.set_postfix_str(f"{run.name}, {f'{left} left' if left else 'time unknown yet'}")
                    del waiting[run]
                    under_way[self._submit(run, cache)] = run
                if not under_way:
                    break
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    run = under_way.pop(future)
                    try:
                        record = future.result()
                    except TimeIsUpError:
                        interrupted.append(run)
                        continue
                    except Exception as error:
                        result.failures[run.label, run.recipe.seed] = f"{type(error).__name__}: {error}"
                    else:
                        record.save(self.folder)
                        result.records.setdefault(run.label, {})[record.seed] = record
                    bar.update()
        left = {run: Pipeline(run.recipe).evaluation for run in self.planned if run in waiting or run in interrupted}
        result.pending = [(run.label, run.recipe.seed) for run in left]
        begun = {run: how_far(end, self.cache) for run, end in left.items()}
        result.stopped = {(run.label, run.recipe.seed): far for run, far in begun.items() if far}
        if left:
            need = self._expect([*left.values()])
            names = ", ".join(f"{run.name}{far and f', stopped after {far}'}" for run, far in begun.items())
            told = f"{len(left)} runs pending for lack of time{f'; they need {need}' if need else ''}"
            tqdm.write(f"{self.name}: {told}: {names}")
        if result.failures:
            raise StudyError(result)
        return result

    def _next(self, waiting: Mapping[Run, Stage], stop_at: float | None, busy: bool) -> Run | None:
        """The first run that fits what is left of the budget; where none does and none is under way, the first of all."""
        if not waiting or stop_at is None:
            return next(iter(waiting), None)
        left, estimates = stop_at - time.time(), Estimates(self.cache.manifests(), RATES)
        for run, end in waiting.items():
            expected = estimates.remaining([end], self.cache)
            if left > 0 and expected is not None and expected <= left:
                return run
        # One that will be stopped is nearer its end the next time: left alone, what takes longer than a budget were never done.
        return next(iter(waiting)) if left > 0 and not busy else None

    def _expect(self, ends: Sequence[Stage]) -> str:
        """How long some runs will take together, in words; empty if unknown."""
        expected = Estimates(self.cache.manifests()).remaining(ends, self.cache)
        return "" if expected is None else f"about {spell_seconds(expected / self.at_once)}"

    def _submit(self, run: Run, cache: Cache) -> Future:
        """The future of a run; one that has failed where it cannot even be begun, so that what the others leave is kept."""
        try:
            return self.executor.submit(execute, run, cache)
        except Exception as error:
            failed: Future = Future()
            failed.set_exception(error)
            return failed


def outlook(ends: Iterable[Stage], cache: Cache) -> str:
    """What is to be trained, encoded and written for some stages, and how long it takes; empty where nothing of this is left."""
    missing = [one for one in cache.missing(ends) if one.kind in COUNTED]
    work = dict.fromkeys(WORK.get(one.kind, one.kind.replace("_", " ")) for one in missing)
    operations = sum(one.cost for one in missing)
    times = ", ".join(f"{spell_seconds(operations / speed)} on {name}" for name, speed in SPEEDS.items())
    expected = Estimates(cache.manifests()).remaining(ends, cache)
    here = "" if expected is None else f"; about {spell_seconds(expected)} here, judging by earlier stages"
    return f"{', '.join(work)}: {operations:.1e} operations ({times}){here}" if missing else ""


def how_far(end: Stage, cache: Cache) -> str:
    """What below a stage is begun and not finished: "1,250 of 2,000 steps of pre-training"; empty where nothing is."""
    for one in cache.missing([end]):
        work, draft = WORK.get(one.kind, one.kind.replace("_", " ")), cache.draft(one)
        if (draft / "log.json").is_file():
            log = TrainLog.load(draft / "log.json")
            return f"{log.step:,} of {log.steps:,} steps of {work}"
        if one.resumable and draft.is_dir():
            return f"part of the {work}"
    return ""


# Zero-shot: CDMAE Table 3 and MASTER Table 4 (BEIR) ------------------------------------------------------------------


@dataclass
class ZeroShot:
    """The results of a comparison over collections so far.

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
        return [(name, *one) for name, result in self.results.items() for one in result.pending]


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
    minutes: float | None = None,
    **options: Any,
) -> ZeroShot:
    """Evaluate retrievers on collections that they were not trained on, each run with a record of its own.

    A recipe's retriever is trained once, on its own collection; every other collection costs its vectors and a search.

    Args:
        recipes: label -> recipe, or one recipe, which is called by its method's name.
        collections: names or paths as `collections.load` takes them; or shown name -> name, path or
            `CollectionSettings`, for samples.
        name: of the study, for the records.
        seeds: seeds of the trainings.
        measures: as `evaluation.evaluate` takes them.
        depth: passages searched for each query.
        grades: shown name -> lowest grade that counts as relevant, where that is not 1 (TREC DL: 2).
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
    if isinstance(collections, str | Path):
        raise InputError("one name where a list is expected", where="collections", fix="Give a list of names.")
    searched = collections if isinstance(collections, Mapping) else {Path(one).name: str(one) for one in collections}
    if not recipes or not searched:
        raise InputError("nothing to run", where=name, fix="Give at least one recipe and one collection.")
    found, studies = ZeroShot(), {}
    for shown, where in searched.items():
        changes = {"measures": list(measures), "depth": depth, "grade": (grades or {}).get(shown, 1), "on": where}
        changes = {f"evaluation__{key}": value for key, value in changes.items()}
        labelled = {label: _on_its_split(recipe.with_(**changes)) for label, recipe in recipes.items()}
        baseline = {BM25: next(iter(labelled.values())).with_(objective="none", evaluation__kind="bm25")} if bm25 else {}
        studies[shown] = study = Study(name, baseline | labelled, seeds, **options)
        study.planned = [run for run in study.planned if run.label not in baseline or run.recipe.seed == seeds[0]]
        for recipe in (baseline | labelled).values():
            Pipeline(recipe)  # refuses now what cannot be run
    deadline = time.monotonic() + 60 * minutes if minutes is not None else None
    failures = {}
    for shown, study in studies.items():
        study.minutes = None if deadline is None else max(0.0, deadline - time.monotonic()) / 60
        try:
            found.results[shown] = study.run()
        except StudyError as error:
            failures |= {(f"{label} on {shown}", seed): said for (label, seed), said in error.result.failures.items()}
    if failures:
        raise StudyError(StudyResult(failures=failures))
    return found


def _on_its_split(recipe: Recipe) -> Recipe:
    """The recipe on the only split of judged queries that its collection has, where it lacks the recipe's own."""
    splits = open_sample(recipe.evaluation.on).splits
    return recipe.with_(evaluation__split=splits[0]) if len(splits) == 1 else recipe
