"""BM25, ready-made encoders, retrievers trained here, and fusions with BM25, compared on your own
collection.

Page of the book: your_corpus. Systems are tested on people's judgements if there are any; missing
training questions are generated first. `dr-lib try` and the notebook make the same call, and
`own_corpus.compare` adds the presentation.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any, Self

from dr_book.generated_queries import (
    GeneratedQueries,
    generate_queries,
    question_stages,
    relevant_ids,
    tested_first,
)
from dr_book.systems import BM25, sort_systems, study_name
from dr_lib import objectives
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.lab import trainings
from dr_lib.lab.inputs import TUNING, Inputs
from dr_lib.lab.recipe import Recipe, open_sample, recipe_at
from dr_lib.lab.records import Record, live_folder
from dr_lib.lab.study import Study, how_far, rest_of, seconds_here
from dr_lib.models import open_encoder
from dr_lib.stages import Cache, Stage, TimeIsUpError

SAMPLE = {"passages": 20_000, "train_queries": 5_000, "dev_queries": 500, "test_queries": 1_000}
"""The sample of a larger collection on which systems are compared if time is limited."""
WEIGHTS = 1.5, 0.75
SECOND = "BM25, k1 1.5, b 0.75"
"""The BM25 setting of most search engines, as a row beside the usual 0.9 and 0.4."""
MANY_RELEVANT = 2
"""With more relevant passages per query than this, nDCG@10 decides."""
MANY_PASSAGES = 5_000  # above this, one question a passage is enough to train on
# least queries in a batch, least steps of a fine-tuning, most epochs over the queries
FEWEST_QUERIES, FEWEST_STEPS, EPOCHS = 4, 100, 8
# reserved for export, answers and page: a share of the time, and the most minutes
FOR_THE_PAGE = 0.1, 2.0
# or this many times as long as the first page took, if that is longer
PAGES_AT_THE_END = 3
MEASURED = 60.0
"""Seconds of work after which the pace of this machine is known."""
TESTING = 1 / 3
"""Share of the time for writing test questions, if people have judged none."""


@dataclass(eq=False)
class Compared:
    """Systems compared on one collection.

    Attributes:
        collection: as given, whole.
        recipe: what all rows share, on the collection with generated questions if test questions
            were missing.
        generated: the questions written; None if people's queries were enough.
        given: label -> name of each ready-made encoder.
        trained: labels of the retrievers trained here.
        runs: label -> records, one a seed; "BM25" first.
        pending: labels that did not fit into the time -> their progress: "1,250 of 2,000 steps of
            pre-training", or "".
        untrainable: why nothing could be trained, as a sentence; "" if training was possible.
        needed: estimated minutes for what is pending, on this machine's GPU or on two processor
            cores; 0 if unknown.
        minutes: the time limit; 0 without one.
        further: whether repeating the call makes progress: a stage was finished, or a checkpoint
            written.
        pace: how many times as long as on two idle cores the work of this call took; 1 if it was
            not slower, or too short to tell.
    """

    collection: Collection
    recipe: Recipe
    generated: "GeneratedQueries | None"
    given: dict[str, str]
    trained: list[str]
    runs: dict[str, list[Record]]
    pending: dict[str, str]
    untrainable: str = ""
    needed: float = 0.0
    minutes: float = 0.0
    further: bool = True
    pace: float = 1.0

    def __repr__(self) -> str:
        means = ", ".join(f"{label} {100 * self.mean(label):.1f}" for label in self.runs)
        return f"Compared({self.collection.name}, {self.measure} on {self.tested_on}: {means})"

    @classmethod
    def run(
        cls,
        collection: Collection | str | Path,
        systems: Sequence[str | Path] = (),
        *,
        scale: str = "laptop",
        recipe: Mapping[str, Any] | None = None,
        judgements: bool = True,
        questions_from: str | None = None,
        per_passage: int | None = None,
        seeds: Sequence[int] = (0,),
        minutes: float | None = None,
        gone: float = 0.0,
        prompts: Mapping[str, Mapping[str, str]] | None = None,
        show: Callable[[Self], Any] | None = None,
    ) -> Self:
        """Generate the missing queries, and run BM25 and every system, alone and fused with BM25.

        Args:
            collection: a collection, or its name or path.
            systems: pre-training methods (`objectives.names()`), and ready-made encoders: folders,
                names on the Hugging Face hub, "all-MiniLM-L6-v2" if its package is installed.
                "bm25" is always included. Empty: the installed encoders, no pre-training, and
                SimLM.
            scale: a file in notebooks/scales.
            recipe: keys that override those of the scale's recipe.
            judgements: whether to use the collection's judgements; False ignores them.
            questions_from: the collection whose queries a question generator first learns to write;
                None: the generator that comes with the book, trained on SQuAD, needs no training.
            per_passage: questions written about a passage; None: three, or one in a large
                collection.
            seeds: of the trainings.
            minutes: time limit, with a reserve for the page: what does not fit is stopped and
                pending, and the same call continues it. Of a large collection a sample is compared.
                What a verdict needs comes first: test questions if people have judged none, BM25,
                encoders and fusions; then the training questions, and the trainings.
            gone: minutes of that time used before this call.
            prompts: an encoder, as `systems` names it -> `{"query": ..., "passage": ...}`: prefixes
                of texts, in place of those in its folder. Its label says so; an encoder that
                `systems` names twice is compared without them too.
            show: called with the results so far, before anything is trained.

        Raises:
            InputError: something cannot be opened or run; raised before anything is trained.
        """
        started, (share, most) = time.monotonic(), FOR_THE_PAGE
        left = max(0.0, minutes - gone) if minutes and gone else minutes
        bound = None if left is None else left - min(share * left, most)
        cache = Cache().within(bound)  # refuses an invalid time
        live_folder(scale)  # refuses an invalid name of a scale now, not after the questions
        given, trained, prompts = sort_systems(systems, prompts)
        start = recipe_at(scale, recipe, place_of(collection))
        whole = open_sample(
            type(start.collection)(
                name=start.collection.name, allow_duplicates=start.collection.allow_duplicates
            )
        )
        if minutes is not None and len(whole) > SAMPLE["passages"]:
            sizes = {
                name: min(size, getattr(start.collection, name) or size)
                for name, size in SAMPLE.items()
            }
            start = start.with_(**{f"collection__{name}": size for name, size in sizes.items()})
        sample = open_sample(start.collection)
        start = start.with_(
            evaluation__split=tested_split(sample if judgements else None, start.evaluation.split)
        )
        for row in rows(start, given, [], (), prompts=prompts).values():
            if row.retriever:  # an unreadable encoder is reported now, not after the trainings
                open_encoder(row.retriever, prompts=row.prompts)
        options = {
            "learn_from": questions_from,
            "use_judgements": judgements,
            "per_passage": per_passage or (1 if len(sample) > MANY_PASSAGES else 3),
        }
        study = partial(Study, study_name(whole), seeds=seeds, scale=scale)
        self = cls(whole, start, None, given, trained, {}, {}, minutes=minutes or 0.0)

        # Questions to test on.
        judged = sample.splits if judgements else ()
        held = relevant_ids(sample, judged)
        if start.evaluation.split not in judged:
            parts, rest = tested_first(sample, held)
            once = options | {"parts": parts, "splits": ["test"]}
            try:
                try:  # in part of the time, if that is enough for any
                    part = cache.within(bound and TESTING * bound)
                    tests = generate_queries(start, cache=part, **once)
                except TimeIsUpError:
                    tests = generate_queries(start, cache=cache, **once)
                self.generated, self.recipe = tests, tests.recipe
            except TimeIsUpError:
                self.pending = {"questions to test on": ""} | dict.fromkeys(
                    rows(start, given, trained, judged, prompts=prompts), ""
                )
                self.further = bool(cache.built)
                return self
            except InputError as error:
                if questions_from or "train" not in judged:
                    raise
                # all judgements are for training: systems that need none are tested on them
                self.recipe = start.with_(evaluation__split="train")
                self.untrainable = error.problem
        else:
            rest = [row for row, name in enumerate(sample.passages["id"][:]) if name not in held]
        self.recipe = tested = self.recipe.with_(evaluation__measures=measures_of(self.recipe))

        # What needs no training.
        first = rows(tested, given, [], judged, prompts=prompts)
        words = {label: first[label] for label in (BM25, SECOND)}
        self._add(study(words, cache=cache.within(None)))
        self._add(study(first, cache=cache))
        self.trained = []
        if trained and show:
            waiting = replace(self, pending=self.pending | dict.fromkeys(trained, ""))
            begun = time.monotonic()
            show(waiting)
            if left is not None:  # the last page shows at least as much, and there is the export
                last = PAGES_AT_THE_END * (time.monotonic() - begun)
                cache.stop_at = min(cache.stop_at, started + 60 * left - last)

        # Questions to train on.
        learned = tested
        if trained and not self.untrainable and "train" not in judged:
            try:
                # the test questions written before count as judged
                judged_too = {"use_judgements": judgements or bool(self.generated)}
                training = options | judged_too | {"parts": [rest]}
                further = generate_queries(tested, cache=cache, **training)
                self.generated = self.generated.and_also(further) if self.generated else further
                learned = further.recipe.with_(
                    evaluation=tested.evaluation.model_dump(mode="json")
                    | {"on": tested.collection.model_dump(mode="json")}
                )
            except TimeIsUpError:
                about = [open_sample(tested.collection).part(rest)]
                drawn = {name: options[name] for name in ("learn_from", "per_passage")}
                (writing,), _ = question_stages(tested, about, **drawn)
                far = how_far(writing, cache)
                self.pending |= {"questions to train on": far} | dict.fromkeys(trained, "")
                share = 1.0
                if self.generated:  # expect the share that the filter kept of the test questions
                    counts = self.generated.counts
                    share = counts["found_again"] / counts["written"]
                queries = round(share * options["per_passage"] * len(rest))
                to_train = fitting(tested, queries)
                seconds = training_seconds(to_train, trained, writing, cache)
                self.needed = self.needed + seconds / 60 if seconds else 0.0  # 0: not known
                self.further = bool(cache.built) or bool(far)
                return self
            except InputError as error:
                if questions_from:
                    raise
                self.untrainable = error.problem
        if self.untrainable:
            named = ", ".join(objectives.NAMES.get(name, name) for name in trained)
            self.untrainable = (
                f"Not trained ({named}): {self.untrainable}. What needs no training was compared."
            ) * bool(trained)
            return self

        # The trainings.
        self.trained = trained
        if trained:
            every = rows(tested, given, trained, judged, fitting(learned), prompts)
            others = {label: every[label] for label in every if label not in first}
            self._add(study(others, cache=cache))
            self.runs = {label: self.runs[label] for label in every if label in self.runs}
        return self

    def _add(self, study: Study) -> None:
        """Run some rows; add their records, what is pending, and the pace."""
        begun = time.monotonic()
        result = study.run()
        taken = time.monotonic() - begun
        if taken >= MEASURED and result.done > 0:
            self.pace = max(1.0, taken / result.done)
        self.runs |= result.runs()
        self.pending |= {run.label: far for run, far in result.pending.items()}
        self.needed += result.needed / 60
        self.further = bool(study.cache.built) or any(self.pending.values())

    @property
    def study(self) -> str:
        """The name of the study of its records."""
        return study_name(self.collection)

    @property
    def measure(self) -> str:
        """The measure that systems are compared by: the recipe's first."""
        return self.recipe.evaluation.measures[0]

    @property
    def enough(self) -> int:
        """About how many minutes would be enough: those needed at the pace of this call plus a
        third, but at least the given ones, and one for the start; if the need is unknown, twice the
        given ones, and at least half an hour.
        """
        if not self.needed:
            return ceil(max(30, 2 * self.minutes))
        return ceil(1 + max(4 / 3 * self.pace * self.needed, self.minutes))

    @property
    def written(self) -> Mapping[str, int]:
        """Split -> number of its queries written by a generator."""
        return self.generated.counts["queries"] if self.generated else {}

    @property
    def on_generated(self) -> bool:
        """Whether the test queries were written by a generator."""
        return self.recipe.evaluation.split in self.written

    @property
    def tested_on(self) -> str:
        """Whose queries the systems were tested on, in words."""
        return "generated questions" if self.on_generated else "people's queries"

    @property
    def chosen_by(self) -> str:
        """Why this measure decides, in a sentence."""
        if not self.runs:
            return ""
        options = self.recipe.evaluation
        passages, grades = relevance(self.searched.qrels(options.split), options.grade)
        graded, number = f", in {grades} grades" if grades > 1 else "", f"{passages:.3g}"
        return (
            f"{self.measure} decides, chosen before anything was measured: a query has"
            f" {number} relevant passage{'s' * (number != '1')} on average{graded}."
        )

    @cached_property
    def searched(self) -> Collection:
        """The collection as searched: perhaps a sample, perhaps with generated questions."""
        return open_sample(self.recipe.collection)

    def mean(self, label: str) -> float:
        """Mean of the measure over queries and seeds, as a fraction."""
        return sum(record.means[self.measure] for record in self.runs[label]) / len(
            self.runs[label]
        )

    def best_of(self, labels: Sequence[str]) -> str | None:
        """The label with the highest mean among those that were run; None if none was."""
        return max((label for label in labels if label in self.runs), key=self.mean, default=None)

    @property
    def best(self) -> str:
        """The label with the highest mean, whether or not it is established; `findings.advice` says
        which one to use.
        """
        return self.best_of(list(self.runs))


def place_of(collection: Collection | str | Path) -> str:
    """What a recipe calls a collection."""
    if isinstance(collection, Collection):
        if collection.place is None:
            problem = "a sample, or a collection that was not loaded by its name"
            fix = "Give the path or name; sizes go into `recipe`."
            raise InputError(problem, where=collection.name, fix=fix)
        return collection.place
    return str(collection)


def tested_split(collection: Collection | None, wanted: str) -> str:
    """The split to test on: the wanted one, else another judged split that is not for training.

    Raises:
        InputError: it contains no relevant passage.
    """
    splits = collection.splits if collection else ()
    tested = (
        wanted
        if wanted in splits
        else next((split for split in splits if split != "train"), wanted)
    )
    if tested in splits and not any(
        grade > 0 for grades in collection.qrels(tested).values() for grade in grades.values()
    ):
        fix = (
            f"Give relevant passages a grade from 1 in qrels/{tested}.tsv, or remove the file: then"
            " questions are generated."
        )
        raise InputError(
            "no passage is judged relevant to any query",
            where=f"{collection.name}, split {tested}",
            fix=fix,
        )
    return tested


def measures_of(recipe: Recipe) -> list[str]:
    """The measures of a recipe, the deciding one first. It is chosen from the judgements alone.

    With more than two relevant passages per query, or with grades, MRR@10 discards most of the
    judgements, so nDCG@10 decides; otherwise MRR@10 does, which is easier to interpret. A recipe
    that has only one of the two keeps its order.
    """
    measures = list(recipe.evaluation.measures)
    passages, grades = relevance(
        open_sample(recipe.collection).qrels(recipe.evaluation.split), recipe.evaluation.grade
    )
    first = "nDCG@10" if passages > MANY_RELEVANT or grades > 1 else "MRR@10"
    if not {"nDCG@10", "MRR@10"} <= {*measures}:
        return measures
    return [first, *(name for name in measures if name != first)]


def relevance(qrels: Mapping[str, Mapping[str, int]], grade: int = 1) -> tuple[float, int]:
    """Mean number of relevant passages of a query that has any, and the number of distinct relevant
    grades.

    Example:
        >>> relevance({"a": {"p": 1, "q": 1, "r": 0}, "b": {"p": 2}, "c": {"p": 0}})
        (1.5, 2)
    """
    by_query = [[level for level in grades.values() if level >= grade] for grades in qrels.values()]
    counts = [len(levels) for levels in by_query if levels]
    return sum(counts) / max(len(counts), 1), len({*chain.from_iterable(by_query)})


def fitting(recipe: Recipe, queries: int | None = None) -> Recipe:
    """A recipe with batches and steps reduced to the number of training queries, so that batches
    are full and epochs few; `queries` is the expected number if they are not written yet.
    """
    if queries is None:
        queries = len(open_sample(recipe.collection).qrels("train"))
    options = recipe.finetuning
    batch = min(options.batch_queries, max(FEWEST_QUERIES, queries // 2))
    steps = min(options.steps, max(FEWEST_STEPS, EPOCHS * queries // batch))
    if (batch, steps) == (options.batch_queries, options.steps):
        return recipe
    return recipe.with_(finetuning__batch_queries=batch, finetuning__steps=steps)


def training_seconds(
    recipe: Recipe, trained: Sequence[str], questions: Stage, cache: Cache
) -> float:
    """About how many seconds trainings take here (without a GPU on two processor cores) if the
    training questions are not written yet. 0 if more follows the first fine-tuning: its duration
    depends on the questions.
    """
    if recipe.final != "retriever1":
        return 0.0
    ends, further = [questions], 0.0
    for name in trained:
        inputs = Inputs(recipe.with_(objective=name))
        ends += filter(None, [trainings.pretrained(inputs)])
        each = inputs.base.shape.encoding(recipe.passage_length)
        further += len(inputs.collection) * each
        further += trainings.finetuning_work(inputs, recipe.finetuning)
    left = [rest_of(stage, cache) for stage in cache.missing(ends)]
    return seconds_here(left, further)


def rows(
    start: Recipe,
    given: Mapping[str, str],
    trained: Sequence[str],
    judged: Sequence[str],
    learned: Recipe | None = None,
    prompts: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Recipe]:
    """Label -> recipe: BM25 with two settings, each system, and BM25 fused with the encoders, else
    with the last trained retriever.

    Retrievers are trained by the recipe `learned`, whose training questions may be on another
    collection than the one that `start` searches.

    A fusion weight is chosen only on people's queries: BM25 has found the passage of every
    generated question, and would get all the weight.
    """
    encoders = {
        label: start.with_(retriever=name, prompts=(prompts or {}).get(label))
        for label, name in given.items()
    }
    others = {name: (learned or start).with_(objective=name) for name in trained}
    collection, split = open_sample(start.collection), start.evaluation.split
    tuned = TUNING in judged and collection.qrels(TUNING).keys().isdisjoint(collection.qrels(split))
    fused = {
        f"{BM25} + {label}, by {way}": (encoders | others)[label].with_(evaluation__fusion=way)
        for label in [*given] or trained[-1:]  # chosen before anything is measured
        for way in ("rank", *(["weight"] if tuned else []))
    }
    plain = start.with_(objective="none", evaluation__kind="bm25")
    bm25 = {BM25: plain, SECOND: plain.with_(evaluation__weights=list(WEIGHTS))}
    return bm25 | encoders | fused | others if given else bm25 | others | fused
