"""The missing runs of book/plan.yaml (notebooks/scales/queue.yaml), and a worker that makes them.

    python benchmarks/plan_queue.py                                prints the queue
    python benchmarks/plan_queue.py --tidy                         removes runs that the book has
    python benchmarks/plan_queue.py --work CLAIMS --seconds 300    one worker; start several
    python benchmarks/plan_queue.py --work CLAIMS --changed        ... also with uncommitted changes
    python benchmarks/plan_queue.py --work CLAIMS --without-gpu    ... also runs meant for a GPU
    python benchmarks/plan_queue.py --prepare --seconds 300        builds inputs that need no GPU

Workers share the cache of stages and a folder of claims. A worker takes the first free task that
fits the remaining time and whose next stage no other worker is building. For a task that was begun
only the remaining work counts. Tasks whose collection is not here, or whose scale is meant for a
GPU if there is none, stay in the queue, and what is missing is named; a row that its collection
does not allow is refused with a message. Queue and plan are read again for each task, so that a
worker also takes rows added by a later commit. Records are written where every study writes them,
for `dr-lib publish`. They name a commit, which reproduces them only if `dr_lib` is unchanged: no
run of the plan starts with uncommitted code.
"""

import argparse
import functools
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from filelock import FileLock, Timeout
from pydantic import Field

from dr_lib import lab, places
from dr_lib.errors import InputError
from dr_lib.files import json_digest, parse_yaml, state_of, write_text
from dr_lib.lab.records import save_records, slug
from dr_lib.lab.study import how_far, rest_of, seconds_here
from dr_lib.settings import Settings
from dr_lib.stages import Cache, Data, Part, Stage, TimeIsUpError
from dr_lib.training import machine

QUEUE = places.project_root() / "notebooks" / "scales" / "queue.yaml"
ELSEWHERE = ("nDCG@10", "MRR@10", "R@100")  # measures of zero-shot search
FIRST = 16  # tasks that are prepared: as many as start together
GRADES = {"trecdl-mini": 2}  # lowest grade that counts as relevant
FOR_PROCESSORS = ("smoke", "laptop")  # scales that run on machines without a GPU


class Entry(Settings):
    """One row of the plan that lacks seeds.

    Args:
        block: its number in book/plan.yaml.
        label: the row's name in records.
        collection: trained and searched on.
        scale: of the recipe and the records.
        recipe: the row's changes to the scale's recipe.
        seeds: the missing ones.
        seconds: of one seed on an H100 shared with one worker per core.
        once: further seconds for stages shared by all rows of the block, if they are missing.
        decides: contrasts of the plan that need this row.
        measured: the evaluations of each run: on test and dev, zero-shot on other collections, by
            token coverage.
    """

    block: int
    label: str
    collection: str = "squad"
    scale: str = "laptop"
    recipe: dict[str, Any]
    seeds: list[int] = Field(min_length=1)
    seconds: int = Field(gt=0)
    once: int = 0
    decides: tuple[str, ...] = ()
    measured: tuple[Literal["test", "dev", "elsewhere", "coverage"], ...] = ("test", "dev")


class Task(NamedTuple):
    """One seed of an entry, at its own scale or, for a trial, at the smallest."""

    entry: Entry
    seed: int
    smoke: bool = False

    @property
    def name(self) -> str:
        """The name on display and of its claim."""
        return f"{self.entry.block} {self.entry.label}, {self.entry.collection}, seed {self.seed}"

    @property
    def scale(self) -> str:
        """The scale of its records."""
        return "smoke" if self.smoke else self.entry.scale

    @property
    def recipe(self) -> lab.Recipe:
        """The recipe of the search on test."""
        changes, collection = self.entry.recipe, self.entry.collection
        if self.smoke:
            changes, collection = without(changes, ("steps", "collection", "base")), "primer"
        return lab.recipe_at(self.scale, changes).with_(collection__name=collection, seed=self.seed)

    def studies(self) -> dict[str, tuple[str, lab.Recipe]]:
        """Evaluation -> name of its study, and recipe."""
        study = f"plan/{slug(blocks()[self.entry.block]['name'])}"
        trained = "" if self.entry.collection == "squad" else f"-{self.entry.collection}"
        names = {
            "test": (study, {}),
            "dev": (f"{study}-dev", {"evaluation__split": "dev"}),
            "elsewhere": (f"{study}{trained}-elsewhere", {}),
            "coverage": ("plan/coverage", {"evaluation__kind": "coverage"}),
        }
        return {
            kind: (names[kind][0], self.recipe.with_(**names[kind][1]))
            for kind in self.entry.measured
        }

    def run(self, cache: Cache, seconds: float) -> None:
        """Make the records of the task, as far as the time allows.

        Raises:
            TimeIsUpError: there was not enough time; the next call continues.
            StudyError: a run failed.
        """
        end = time.monotonic() + seconds
        for kind, (study, recipe) in self.studies().items():
            options = {"scale": self.scale, "cache": cache}
            options["minutes"] = max(0.0, (end - time.monotonic()) / 60)
            if kind == "elsewhere":
                options |= {"measures": ELSEWHERE, "grades": GRADES, "bm25": False}
                others = ["primer"] if self.smoke else searched(self.entry.collection)
                rows = {self.entry.label: recipe}
                result = lab.zero_shot(rows, others, name=study, seeds=[self.seed], **options)
            else:
                rows = {self.entry.label: recipe}
                result = lab.Study(study, rows, [self.seed], **options).run()
            if result.pending:
                raise TimeIsUpError(f"{self.name}: {', '.join(result.pending.values())}")

    def records(self) -> list[lab.Record]:
        """The task's records made on this machine."""
        return [
            record
            for study, _ in self.studies().values()
            for record in lab.load_records(lab.live_folder(self.scale), study)
            if (record.label, record.seed) == (self.entry.label, self.seed)
        ]

    def reads(self) -> list[str]:
        """The collections that its trainings read: its own, and those of a base model to be trained
        first.
        """
        if self.smoke:
            return ["primer"]
        return list(dict.fromkeys([self.entry.collection, *texts_of_base(self.recipe.base)]))

    def lacks(self) -> list[str]:
        """The collections in `reads` that are not here."""
        return [name for name in self.reads() if not is_here(name)]

    def lacks_gpu(self) -> bool:
        """Whether its scale is meant for a GPU, and none is here."""
        return self.scale not in FOR_PROCESSORS and machine.device().type == "cpu"

    def seconds(self, cache: Cache) -> float:
        """Expected seconds of the remaining work: those of the row, and those of its block's shared
        stages if given, each times the share of operations left. The row's are for a GPU: without
        one the estimate is at least that of a study for its stages here.
        """
        plan = lab.pipeline(self.recipe)
        rests = plan.retriever2 if plan.reranker else plan.inputs.base.model
        shared = {stage.key for stage in stages_of(rests)} if self.entry.once else set()
        rest = {stage.key: rest_of(stage, cache) for stage in cache.missing([plan.end])}
        expected = 0.0
        for seconds, resting in ((self.entry.seconds, False), (self.entry.once, True)):
            stages = [stage for stage in plan.end.walk() if (stage.key in shared) == resting]
            whole = sum(stage.cost for stage in stages)
            left = sum(rest[stage.key].cost for stage in stages if stage.key in rest)
            expected += seconds * left / whole if whole else 0
        if machine.device().type == "cuda":
            return expected
        return max(expected, seconds_here(rest.values()))

    def begun(self, cache: Cache) -> bool:
        """Whether one of its stages was interrupted."""
        return bool(how_far(lab.pipeline(self.recipe).end, cache))


def stages_of(model: Stage | Part | Data) -> list[Stage]:
    """The stages that train a model; none if it is a folder."""
    made = model.stage if isinstance(model, Part) else model
    return made.walk() if isinstance(made, Stage) else []


def without(changes: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """A nested mapping without some keys, at any depth."""
    return {
        key: without(value, keys) if isinstance(value, dict) else value
        for key, value in changes.items()
        if key not in keys
    }


def plan() -> dict[str, Any]:
    """book/plan.yaml as it is now: a running worker also meets rows of blocks added later."""
    return parsed((places.project_root() / "book" / "plan.yaml").read_bytes())


parsed = functools.lru_cache(maxsize=1)(functools.partial(parse_yaml, where="book/plan.yaml"))


def blocks() -> dict[int, dict[str, Any]]:
    """The blocks of the plan by their numbers."""
    return {block["number"]: block for block in plan()["blocks"]}


@functools.cache
def texts_of_base(base: str) -> tuple[str, ...]:
    """The collections that a recipe's base model is trained on; none if it exists."""
    if not base.endswith(".yaml"):
        return ()
    recipe = lab.BaseRecipe.load(places.project_root() / base)
    return tuple(source.name for source in recipe.sources)


def is_here(name: str) -> bool:
    """Whether a collection is in the package, comes from the network, or is under `DR_DATA`."""
    return name in ("primer", "squad") or places.find_data(name) is not None


def to_search(trained_on: str) -> list[str]:
    """The collections that the plan searches zero-shot."""
    return [name for name in plan()["searched"] if name != trained_on]


def searched(trained_on: str) -> list[str]:
    """The collections of `to_search` that are here."""
    return [name for name in to_search(trained_on) if places.find_data(name)]


def missing(queue: Sequence[Task]) -> Iterator[str]:
    """A line for each missing collection, and for a missing GPU: how many runs wait for it, or are
    not measured on it.
    """
    waiting = Counter(name for task in queue for name in task.lacks())
    unsearched = Counter(
        name
        for task in queue
        if "elsewhere" in task.entry.measured and not (task.smoke or task.lacks())
        for name in set(to_search(task.entry.collection)) - set(searched(task.entry.collection))
    )
    for name, count in sorted(waiting.items()):
        yield f"lacks {name}: {count} runs that are trained on it stay in the queue"
    for name, count in sorted(unsearched.items()):
        yield f"lacks {name}: {count} runs are not measured on it"
    for scale, count in sorted(Counter(task.scale for task in queue if task.lacks_gpu()).items()):
        yield f"lacks a GPU: {count} runs of scale {scale} stay in the queue without --without-gpu"


def entries(path: Path = QUEUE) -> list[Entry]:
    """The queue in the order of the file."""
    return [Entry(**values) for values in yaml.safe_load(path.read_text(encoding="utf-8"))]


def decisions_a_minute(queue: Sequence[Entry]) -> list[float]:
    """For each entry the contrasts that it decides, each divided among all runs that it still
    needs, per minute of its runs.
    """
    lacking = Counter(name for entry in queue for name in entry.decides for _ in entry.seeds)
    return [
        60 * sum(1 / lacking[name] for name in entry.decides) / entry.seconds for entry in queue
    ]


def recorded(task: Task) -> bool:
    """Whether the book has the task's record."""
    study = next(iter(task.studies().values()))[0]
    where = task.entry.label, task.seed, task.entry.collection
    return where in {
        (record.label, record.seed, record.data["collection"]["name"])
        for record in lab.load_records(lab.recorded_folder(task.scale), study)
    }


def tidy(text: str) -> str:
    """The file of the queue without the seeds that the book has, sorted by value."""
    head, *rows = re.split(r"^(?=- )", text, flags=re.MULTILINE)
    left = []
    for row in rows:
        entry = Entry(**yaml.safe_load(row)[0])
        seeds = [seed for seed in entry.seeds if not recorded(Task(entry, seed))]
        if seeds:
            row = re.sub(r"(?<=\n  seeds: ).*", f"[{', '.join(map(str, seeds))}]", row)
            left.append((Entry(**yaml.safe_load(row)[0]), row))
    values = decisions_a_minute([entry for entry, _ in left])
    order = sorted(range(len(left)), key=lambda at: -values[at])
    return head + "".join(left[at][1] for at in order)


def tasks(smoke: bool = False) -> list[Task]:
    """All runs of the queue, in its order; for a trial, the first of every block."""
    queue = entries()
    if smoke:
        first = {entry.block: entry for entry in reversed(queue)}
        quick = {"seconds": 5, "once": 0}
        return [
            Task(first[block].model_copy(update=quick), first[block].seeds[0], True)
            for block in sorted(first)[:2]
        ]
    return [Task(entry, seed) for entry in queue for seed in entry.seeds]


def possible(smoke: bool, without_gpu: bool = False) -> list[Task]:
    """The runs of the queue that this machine can make.

    Args:
        smoke: as for `tasks`.
        without_gpu: also those meant for a GPU, even if there is none.
    """
    return [
        task for task in tasks(smoke) if not task.lacks() and (without_gpu or not task.lacks_gpu())
    ]


# A worker -----------------------------------------------------------------------------------------


class Claim(NamedTuple):
    """A task taken by this worker, until it notes how the task ended."""

    task: Task
    lock: FileLock
    place: Path

    def end(self, how: str) -> None:
        """Note the end, and release the claim."""
        write_text(self.place, f"{how}\n")
        self.lock.release()


def end_of(task: Task, claims: Path) -> Path:
    """The file that says how a task ended."""
    return claims / f"{slug(task.name)}-{json_digest(task.entry.recipe)[:8]}.end"


def is_free(task: Task, claims: Path) -> bool:
    """Whether a task has neither ended nor been taken."""
    place = end_of(task, claims)
    try:
        with FileLock(place.with_suffix(".lock"), timeout=0):
            return not place.exists()
    except Timeout:
        return False


def take(
    claims: Path, cache: Cache, seconds: float, smoke: bool, without_gpu: bool = False
) -> Claim | None:
    """The first free, unfinished task that fits this many seconds or was begun, and so continues
    where it was stopped.

    A task whose next stage another worker is building is taken only if there is no other. A task
    whose recipe cannot be run is refused, which ends it.
    """
    second = None
    for task in possible(smoke, without_gpu):
        place = end_of(task, claims)
        claim = Claim(task, FileLock(place.with_suffix(".lock")), place)
        try:
            claim.lock.acquire(timeout=0)
        except Timeout:
            continue
        try:
            fits = not place.exists() and (task.seconds(cache) < seconds or task.begun(cache))
        except InputError as error:
            claim.end(f"refused: {error}")
            print(f"refused {task.name}: {error}", flush=True)
            continue
        if fits:
            if not under_way(task, cache):
                if second:
                    second.lock.release()
                return claim
            if second is None:
                second = claim
                continue
        claim.lock.release()
    return second


def under_way(task: Task, cache: Cache) -> bool:
    """Whether another worker is building a stage that the task waits for."""
    for stage in cache.missing([lab.pipeline(task.recipe).end]):
        try:
            with cache.lock(stage.name).acquire(timeout=0):
                pass
        except Timeout:
            return True
    return False


def keep(path: Path, claims: Path, smoke: bool) -> None:
    """Write all of the queue's records made on this machine into one file, in the book's format, if
    a task has ended since it was written.
    """
    with FileLock(claims / "keep.lock"):
        ended, noted = state_of(claims, ".end"), claims / "kept"
        if path.is_file() and noted.is_file() and noted.read_text(encoding="utf-8") == ended:
            return
        made = [record for task in tasks(smoke) for record in task.records()]
        if made:
            save_records(made, path)
            write_text(noted, ended)
        print(f"kept {len(made)} records", flush=True)


def work(
    claims: Path, seconds: float, smoke: bool, kept: Path | None = None, without_gpu: bool = False
) -> None:
    """Take tasks until none fits the remaining time; after each, write the records to `kept`."""
    claims.mkdir(parents=True, exist_ok=True)
    end, cache = time.monotonic() + seconds, Cache()
    for line in missing(tasks(smoke)):
        print(line, flush=True)
    while claim := take(claims, cache, end - time.monotonic(), smoke, without_gpu):
        began = time.monotonic()
        print(f"begin {claim.task.name}", flush=True)
        try:
            claim.task.run(cache, end - began)
            claim.end(f"done in {time.monotonic() - began:.0f} s")
            print(f"done {claim.task.name} in {time.monotonic() - began:.0f} s", flush=True)
            if kept:
                keep(kept, claims, smoke)
        except TimeIsUpError as late:
            claim.lock.release()
            print(f"stopped {late}", flush=True)
        except Exception as error:  # the queue continues; a later call tries again
            traceback.print_exc()
            claim.end(f"failed: {type(error).__name__}: {error}"[:2000])
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"failed {claim.task.name}: {reason}", flush=True)

    left = [task for task in possible(smoke, without_gpu) if is_free(task, claims)]
    if left:
        print(f"left {len(left)} tasks, of which the first is {left[0].name}", flush=True)


def prepare(seconds: float, smoke: bool) -> None:
    """Build the first tasks' shared inputs that need no GPU: tokens, BM25's rankings, negatives."""
    cache = Cache().within(seconds / 60)
    for task in possible(smoke)[:FIRST]:
        try:
            ends = [lab.pipeline(recipe).end for _, recipe in task.studies().values()]
        except InputError:  # reported by the worker that takes the task
            continue
        for stage in cache.missing(ends):
            if not any(upstream.gpu for upstream in stage.walk()):
                cache.get(stage)


def main() -> None:
    """Print the queue, or work on it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tidy", action="store_true", help="rewrite the file of the queue")
    parser.add_argument("--smoke", action="store_true", help="two runs at the smallest size")
    parser.add_argument("--work", type=Path, metavar="CLAIMS", help="folder of the claims")
    parser.add_argument("--prepare", action="store_true", help="build what needs no GPU")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--keep", type=Path, help="file for the records of the queue")
    parser.add_argument("--changed", action="store_true", help="with uncommitted changes, too")
    parser.add_argument("--without-gpu", action="store_true", help="runs meant for a GPU, too")
    chosen = parser.parse_args()
    if chosen.work:
        if lab.records.commit()["changed"] and not (chosen.smoke or chosen.changed):
            sys.exit("failed: dr_lib has uncommitted changes. Commit them, or give --changed.")
        return work(chosen.work, chosen.seconds, chosen.smoke, chosen.keep, chosen.without_gpu)
    if chosen.prepare:
        with suppress(TimeIsUpError):
            prepare(chosen.seconds, chosen.smoke)
        return None
    if chosen.tidy:
        write_text(QUEUE, tidy(QUEUE.read_text(encoding="utf-8")))
    queue = entries()
    for value, entry in zip(decisions_a_minute(queue), queue, strict=True):
        seeds = ", ".join(map(str, entry.seeds))
        row = f"{entry.block} {entry.label} ({entry.collection}, seeds {seeds})"
        print(f"{row:64} {entry.seconds:5} s {value:6.3f}  {' '.join(entry.decides)}")
    return None


if __name__ == "__main__":
    main()
