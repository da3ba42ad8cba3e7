"""A study: labelled recipes times seeds, run one after the other or side by side, within a time budget.

Page of the book: practice/own-corpus. A run that has left its record is not run again; a run that fails does not
lose the others; what a budget did not allow is said, and the next call continues with it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tqdm import tqdm

from dr_lib.errors import InputError
from dr_lib.lab.budget import Estimates
from dr_lib.lab.cache import Cache
from dr_lib.lab.cost import spell_cost
from dr_lib.lab.job import Job, run_job
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.records import Record, live_folder, load_records
from dr_lib.lab.spelling import spell_seconds
from dr_lib.lab.stage import Stage
from dr_lib.lab.way import Way, unfold


@dataclass
class StudyResult:
    """What a study has so far.

    Attributes:
        records: label -> seed -> record.
        pending: labels and seeds that the time budget did not allow.
        failures: labels and seeds with the error that ended them.
    """

    records: dict[str, dict[int, Record]] = field(default_factory=dict)
    pending: list[tuple[str, int]] = field(default_factory=list)
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


class InOrder(Executor):
    """Runs each call at once, in this process: the executor of a study that was given none."""

    def submit(self, fn: Callable, /, *args: object, **kwargs: object) -> Future:
        """Call `fn` now; the future returned is done. Ctrl-C and the like are not caught."""
        future: Future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Study:
    """A notebook's sweep.

    Args:
        name: paper and table, e.g. "simlm/table08".
        recipes: label -> recipe; the labels are the paper's names of the rows.
        seeds: seeds to run each recipe with; the first seed of all recipes comes before the second of any.
        scale: name of the scale, for the records.
        minutes: time budget of one call of `run`; None for no limit.
        executor: any `concurrent.futures` executor; None runs one after the other in this process.
        at_once: how many runs may be under way with an executor; default its number of workers, else one.
        cache: where stages are kept.
        records: folder of the records; default `live_folder(scale)`.
        unfold: gives the way of a recipe, whose `evaluation` is what a run ends with (importable where the executor's
            workers are); `lab.unfold_bm25` and the like end elsewhere than in a search by the recipe's retriever.
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
        at_once: int | None = None,
        cache: Cache | None = None,
        records: Path | None = None,
        unfold: Callable[[Recipe], Way] = unfold,
        progress: bool = True,
    ):
        if not recipes or not seeds:
            raise InputError("nothing to run", where=name, fix="Give at least one recipe and one seed.")
        self.name, self.scale, self.minutes, self.progress = name, scale, minutes, progress
        self.executor = executor or InOrder()
        self.at_once = at_once or getattr(executor, "_max_workers", None) or 1
        self.cache, self.folder = cache or Cache(announce=tqdm.write), records or live_folder(scale)
        self._unfold = unfold
        self.jobs = [
            Job(name, label, scale, recipe.with_(seed=seed)) for seed in seeds for label, recipe in recipes.items()
        ]

    def run(self) -> StudyResult:
        """Run what is not there yet and fits the budget.

        Raises:
            InputError: a recipe cannot be run (before anything has started).
            StudyError: a run failed; its `result` has the others.
        """
        deadline = time.monotonic() + 60 * self.minutes if self.minutes is not None else None
        result, ends = StudyResult(), {job: self._unfold(job.recipe).evaluation for job in self.jobs}
        waiting = [job for job in self.jobs if not self._found(job, ends[job], result)]
        if waiting:
            self._announce([ends[job] for job in waiting])
        under_way: dict[Future, Job] = {}
        with tqdm(total=len(waiting), desc=self.name, unit="run", disable=not self.progress or not waiting) as bar:
            while True:
                while len(under_way) < self.at_once and (job := self._next(waiting, ends, deadline, bool(under_way))):
                    waiting.remove(job)
                    self._show(bar, job, [ends[job], *(ends[other] for other in waiting)])
                    under_way[self.executor.submit(run_job, job, self.cache, self._unfold)] = job
                if not under_way:
                    break
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    self._collect(under_way.pop(future), future, result)
                    bar.update()
        result.pending = [(job.label, job.recipe.seed) for job in waiting]
        self._report(result, [ends[job] for job in waiting])
        return result

    def _found(self, job: Job, end: Stage, result: StudyResult) -> bool:
        """Take an earlier run's record, if one was made from exactly the same stages."""
        for record in self._earlier:
            same = (record.label, record.seed, record.keys["evaluation"]) == (job.label, job.recipe.seed, end.key)
            if same and record.recipe_digest == job.recipe.digest:
                result.records.setdefault(job.label, {})[record.seed] = record
                return True
        return False

    @cached_property
    def _earlier(self) -> list[Record]:
        return load_records(self.folder, self.name)

    def _next(self, waiting: list[Job], ends: dict[Job, Stage], deadline: float | None, busy: bool) -> Job | None:
        """The first job that fits what is left of the budget; while durations are unknown, one job at a time."""
        if not waiting or deadline is None:
            return waiting[0] if waiting else None
        left, estimates = deadline - time.monotonic(), Estimates(self.cache.manifests())
        for job in waiting:
            expected = estimates.remaining(ends[job], self.cache)
            if (left > 0 and not busy) if expected is None else expected <= left:
                return job
        return None

    def _show(self, bar: tqdm, job: Job, ends: Sequence[Stage]) -> None:
        expected = self._expect(ends)
        left = f"about {spell_seconds(expected)} left" if expected is not None else "time unknown yet"
        bar.set_postfix_str(f"{job.name}, {left}")

    def _announce(self, ends: Sequence[Stage]) -> None:
        expected = self._expect(ends)
        here = f"; about {spell_seconds(expected)} here, judging by earlier stages" if expected is not None else ""
        tqdm.write(f"{self.name}: {len(ends)} runs to do, {spell_cost(self._missing(ends).values())}{here}")

    def _missing(self, ends: Sequence[Stage]) -> dict[str, Stage]:
        """The stages that some runs still need, each once."""
        return {stage.key: stage for end in ends for stage in end.walk() if not self.cache.finished(stage)}

    def _expect(self, ends: Sequence[Stage]) -> float | None:
        """Seconds that some runs will take together; None if unknown."""
        estimates = Estimates(self.cache.manifests())
        expected = {stage: estimates.seconds(stage) for stage in self._missing(ends).values()}
        if any(seconds is None and stage.cost > 0 for stage, seconds in expected.items()):
            return None
        return sum(seconds or 0.0 for seconds in expected.values()) / self.at_once

    def _collect(self, job: Job, future: Future, result: StudyResult) -> None:
        seed = job.recipe.seed
        try:
            record = future.result()
        except Exception as error:
            result.failures[job.label, seed] = f"{type(error).__name__}: {error}"
        else:
            record.save(self.folder)
            result.records.setdefault(job.label, {})[seed] = record

    def _report(self, result: StudyResult, ends: Sequence[Stage]) -> None:
        if result.pending:
            names = ", ".join(f"{label} (seed {seed})" for label, seed in result.pending)
            expected = self._expect(ends)
            need = f"; they need about {spell_seconds(expected)}" if expected is not None else ""
            tqdm.write(f"{self.name}: {len(result.pending)} runs pending for lack of time{need}: {names}")
        if result.failures:
            raise StudyError(result)
