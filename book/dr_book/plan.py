"""The runs of book/plan.yaml: what each method gains, where, and what the plan's contrasts say.

A block is judged by its own runs alone, all of one epoch and as many as the plan fixed beforehand,
so `measured`, which counts every run of a configuration, is not asked here. Test and dev questions
are counted together where dev has chosen nothing. How sure a number is: ideas/statistics. Pages:
methods/what_the_bottleneck_buys, methods/how_many_seeds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy
import yaml

from dr_book.measured import aligned
from dr_book.statistics import (
    Estimate,
    SeedVariance,
    cluster_mean,
    combined,
    influence,
    scatter,
    seed_variance,
)
from dr_lib import places
from dr_lib.lab import Record, load_records, recorded_folder

SCALE = "laptop"
FIFTHS = ("lowest", "second", "third", "fourth", "highest")


@dataclass(frozen=True)
class Block:
    """The runs of one study over the queries of one collection.

    Attributes:
        runs: method -> one record a seed, by seed.
        dev: the same trainings on the dev queries, which are counted with the others.
    """

    runs: Mapping[str, Sequence[Record]]
    dev: "Block | None" = None

    @classmethod
    def load(cls, study: str, collection: str = "squad", *, both: bool = False) -> "Block":
        """From the book's records; empty where there are none.

        Args:
            study: its name; one with "-dev" behind it has the dev queries.
            collection: that was searched.
            both: whether to count dev queries with the test's: where dev has chosen nothing.
        """
        runs: dict[str, list[Record]] = {}
        for record in load_records(recorded_folder(SCALE), study):
            if record.data["collection"]["name"] == collection:
                runs.setdefault(record.label, []).append(record)
        return cls(runs, cls.load(f"{study}-dev", collection) if both and runs else None)

    def with_rows(self, other: "Block") -> "Block":
        """These methods beside another block's, over the same queries."""
        dev = self.dev and other.dev and self.dev.with_rows(other.dev)
        return Block({**self.runs, **other.runs}, dev)

    @cached_property
    def first(self) -> Record:
        """The run whose queries, in whose order, all values are of."""
        return next(iter(self.runs.values()))[0]

    @property
    def clusters(self) -> np.ndarray:
        """`[queries]`, a number for each cluster."""
        test = np.asarray(self.first.clusters.of)
        return test if self.dev is None else np.append(test, test.max() + 1 + self.dev.clusters)

    @cached_property
    def _values(self) -> dict[tuple[str, str], np.ndarray]:
        """Values by label and measure: every difference asks for those of all methods."""
        return {}

    def values(self, label: str, measure: str) -> np.ndarray:
        """`[seeds, queries]` in points, not to be written to."""
        if (key := (label, measure)) not in self._values:
            measured = [record.measured for record in self.runs[label]]
            values = 100 * aligned(measured, self.first.measured, measure)
            if self.dev is not None:
                values = np.hstack([values, self.dev.values(label, measure)])
            values.flags.writeable = False
            self._values[key] = values
        return self._values[key]

    def means(self, measure: str) -> dict[str, list[float]]:
        """Method -> the mean of each seed, in points."""
        return {label: self.values(label, measure).mean(axis=1).tolist() for label in self.runs}

    def seeds(self, measure: str) -> SeedVariance:
        """The variance of a run's mean from seed to seed, pooled over the block's methods."""
        return seed_variance([*self.means(measure).values()])

    def differences(self, first: str, second: str, measure: str) -> np.ndarray:
        """`[queries]`: first minus second, each the mean over its own seeds, in points."""
        return self.values(first, measure).mean(axis=0) - self.values(second, measure).mean(axis=0)

    def difference(self, first: str, second: str, measure: str) -> Estimate:
        """First minus second: clusters of queries and seeds are both counted, and what a training
        draws in each cluster once.
        """
        pooled, added = self.seeds(measure), 0.0
        for label in (first, second):
            runs = self.values(label, measure)
            drawn = scatter([influence(run, self.clusters) for run in runs])
            added += max(pooled.variance / len(runs) - drawn, 0.0)
        estimate = cluster_mean(self.differences(first, second, measure), self.clusters)
        return estimate.with_seeds((added, pooled.freedom))

    def by_group(self, first: str, second: str, measure: str, groups: np.ndarray) -> list[Estimate]:
        """The difference in each group of queries; seeds, which move all groups, are left out.

        Args:
            groups: `[queries]` int, as of `fifths`.
        """
        gaps = self.differences(first, second, measure)
        chosen = (groups == group for group in range(groups.max() + 1))
        return [cluster_mean(gaps[rows], self.clusters[rows]) for rows in chosen]

    def between_groups(self, first: str, second: str, measure: str, groups: np.ndarray) -> Estimate:
        """The difference in the last group minus that in the first."""
        gaps = self.differences(first, second, measure)
        parts = []
        for weight, group in ((1.0, groups.max()), (-1.0, 0)):
            rows = groups == group
            moves = influence(gaps[rows], self.clusters[rows])
            parts.append((weight, float(gaps[rows].mean()), moves))
        return combined(parts)


def together(blocks: Sequence[Block], first: str, second: str, measure: str) -> Estimate:
    """The mean difference over several collections, each with the same weight.

    Collections share no cluster, and one training moves all of them, so the variance of seeds is
    that of a run's mean over the collections.
    """
    parts = []
    for number, block in enumerate(blocks):
        gaps = block.differences(first, second, measure)
        moves = influence(gaps, [f"{number} {cluster}" for cluster in block.clusters])
        parts.append((1 / len(blocks), float(gaps.mean()), moves))
    means = [block.means(measure) for block in blocks]
    shared = [name for name in means[0] if len({len(own.get(name, ())) for own in means}) == 1]
    pooled = seed_variance([np.mean([own[name] for own in means], axis=0) for name in shared])
    runs = sum(1 / len(blocks[0].runs[label]) for label in (first, second))
    return combined(parts).with_seeds((pooled.variance * runs, pooled.freedom))


def fifths(block: Block, overlaps: Sequence[Record]) -> np.ndarray:
    """`[queries]` in 0 to 4: the fifth of a query's overlap with its passage, the lowest first.

    Args:
        overlaps: the records of kind "overlap" of its splits.
    """
    known = {}
    for record in overlaps:
        known |= dict(zip(record.query_ids, record.per_query("overlap"), strict=True))
    asked = [*block.first.query_ids, *(block.dev.first.query_ids if block.dev else ())]
    values = np.array([known[query] for query in asked])
    return np.searchsorted(np.quantile(values, [0.2, 0.4, 0.6, 0.8]), values, side="right")


def coverage(collection: str = "squad") -> dict[str, float]:
    """Method -> share of a passage's pieces that its vector foretells, mean over seeds."""
    runs = Block.load("plan/coverage", collection).runs
    return {
        label: float(np.mean([record.means["coverage"] for record in records]))
        for label, records in runs.items()
    }


# Contrasts ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What a contrast of the plan says so far.

    Attributes:
        contrast: as the plan has it: `id`, `block`, `compare`, `on`, `says`.
        shown: the estimate, in points, or the rank correlation, on each of its collections whose
            runs are there; of all together where the contrast is of their mean.
        word: "supported", "contradicted" or "open" once all its runs are there; before it "waits",
            and "not run" where one of its rows has none.
        lacks: what the plan asked for and is not there.
        looks: days on which runs of it came in: each time somebody may have looked.
    """

    contrast: Mapping[str, Any]
    shown: Mapping[str, Estimate | float] = field(default_factory=dict)
    word: str = "not run"
    lacks: str = ""
    looks: int = 0


@cache
def planned() -> dict[str, Any]:
    """book/plan.yaml."""
    return yaml.safe_load((places.project_root() / "book" / "plan.yaml").read_text())


@cache
def seeds_of(block: int) -> int:
    """How many seeds the plan gives each row of a block."""
    return next(own["k"] for own in planned()["blocks"] if own["number"] == block)


def sign(estimate: Estimate) -> str:
    """ "supported" where the interval lies above 0, "contradicted" where it lies below."""
    interval = estimate.interval()
    if interval.low <= 0 <= interval.high:
        return "open"
    return "supported" if estimate.value > 0 else "contradicted"


def recorded() -> tuple[dict[str, Block], list[Record]]:
    """The book's runs of the plan as `verdicts` takes them."""
    core, squad, reddit = "plan/core", "squad", "reddit-retrieval"
    both = Block.load(core, both=True)
    blocks = {
        squad: both,
        f"{squad}, decoder": both.with_rows(Block.load("plan/decoder", both=True)),
        reddit: Block.load(core, reddit, both=True),
        "re-ranker, dev": Block.load("plan/re-ranker-dev"),
    }
    for name in planned()["searched"]:
        blocks[f"elsewhere {name}"] = Block.load(f"{core}-elsewhere", name)
    return blocks, [Block.load(study).first for study in ("plan/overlap", "plan/overlap-dev")]


def verdicts(blocks: Mapping[str, Block], overlaps: Sequence[Record]) -> list[Verdict]:
    """What the plan's contrasts say, in its order; one is judged when each of its rows has the
    seeds that the plan gives it, on each of its collections.

    Args:
        blocks: "squad", "reddit-retrieval", "squad, decoder" with the rows of blocks 1 and 2,
            "re-ranker, dev", and each collection that was searched without training on it, under
            its name with "elsewhere " before it.
        overlaps: of SQuAD's questions.
    """
    return [_judged(contrast, blocks, overlaps) for contrast in planned()["contrasts"]]


def _judged(
    contrast: Mapping[str, Any], blocks: Mapping[str, Block], overlaps: Sequence[Record]
) -> Verdict:
    """A contrast, as far as its runs are there."""
    k, rows = contrast.get("k", seeds_of(contrast["block"])), contrast.get("rows", ())
    names = contrast["on"] if isinstance(contrast["on"], list) else [contrast["on"]]
    if names == ["searched"]:
        names = [f"elsewhere {name}" for name in planned()["searched"] if name != "squad"]
    complete, there, lacks, days = {}, {}, [], set()
    for name in names:
        block, collection = blocks.get(name, Block({})), name.removeprefix("elsewhere ")
        days |= {record.created[:10] for row in rows for record in block.runs.get(row, ())}
        counts = {row: len(block.runs.get(row, ())) for row in rows}
        if block.runs:
            there[collection] = block
        if short := ", ".join(f"{row} {runs} of {k}" for row, runs in counts.items() if runs < k):
            lacks.append(f"{collection}: {short}")
        else:
            complete[collection] = block
    told = {"lacks": "; ".join(lacks), "looks": len(days)}
    judge = JUDGES.get(contrast.get("rule"))
    # what is there is shown, but decides nothing
    judged = complete or dict(list(there.items())[:1])
    if not (judge and judged):
        return Verdict(contrast, **told)
    try:
        shown, word = judge(rows, judged, overlaps)
    except LookupError:  # a row of it is not there
        return Verdict(contrast, **told)
    return Verdict(contrast, shown, "waits" if lacks else word, **told)


ENOUGH = 0.6
"""Rank correlation above which the plan calls the order explained."""


Judge = Callable[
    [Sequence[str], Mapping[str, Block], Sequence[Record]], tuple[dict[str, Estimate | float], str]
]
"""Rows, blocks by collection, overlaps -> what each collection shows, and the word for all."""


def _all_of(words: Iterable[str]) -> str:
    """One word where all collections agree, "contradicted" where one contradicts."""
    words = set(words)
    if len(words) > 1:
        return "contradicted" if "contradicted" in words else "open"
    return words.pop()


def _above(
    rows: Sequence[str], blocks: Mapping[str, Block], _: Sequence[Record]
) -> tuple[dict[str, Estimate], str]:
    """The first row above the second on every collection."""
    shown = {name: block.difference(*rows, planned()["measure"]) for name, block in blocks.items()}
    return shown, _all_of(map(sign, shown.values()))


def _below(
    rows: Sequence[str], blocks: Mapping[str, Block], _: Sequence[Record]
) -> tuple[dict[str, Estimate], str]:
    """The first row below the second; contradicted where it is above, or level within a point."""
    ((name, block),) = blocks.items()
    estimate = block.difference(*rows, planned()["measure"])
    word = {"contradicted": "supported", "supported": "contradicted"}.get(sign(estimate), "open")
    if word == "open" and estimate.p_within(1.0) < 0.05:
        word = "contradicted"
    return {name: estimate}, word


def _level(
    rows: Sequence[str], blocks: Mapping[str, Block], _: Sequence[Record]
) -> tuple[dict[str, Estimate], str]:
    """Equal within a point; contradicted where the first is below by more."""
    ((name, block),) = blocks.items()
    estimate = block.difference(*rows, planned()["measure"])
    if estimate.p_within(1.0) < 0.05:
        return {name: estimate}, "supported"
    return {name: estimate}, "contradicted" if estimate.interval().high < -1.0 else "open"


def _mean(
    rows: Sequence[str], blocks: Mapping[str, Block], _: Sequence[Record]
) -> tuple[dict[str, Estimate], str]:
    """The first row above the second on the mean of the collections."""
    estimate = together([*blocks.values()], *rows, "nDCG@10")
    return {"": estimate}, sign(estimate)


def _overlap(
    rows: Sequence[str], blocks: Mapping[str, Block], overlaps: Sequence[Record]
) -> tuple[dict[str, Estimate], str]:
    """More of a difference in the highest fifth of overlap than in the lowest."""
    ((name, block),) = blocks.items()
    groups = fifths(block, overlaps)
    estimate = block.between_groups(*rows, planned()["measure"], groups)
    return {name: estimate}, sign(estimate)


def _coverage(
    rows: Sequence[str], blocks: Mapping[str, Block], _: Sequence[Record]
) -> tuple[dict[str, float], str]:
    """The rank correlation of coverage and gain on each collection; the lowest decides."""
    shown = {}
    for name, block in blocks.items():
        shares = coverage(block.first.data["collection"]["name"])
        means = block.means(planned()["measure"])
        pairs = [
            (shares[row], np.mean(means[row])) for row in rows if row in means and row in shares
        ]
        shown[name] = float(scipy.stats.spearmanr(pairs).statistic)
    return shown, "supported" if min(shown.values()) > ENOUGH else "contradicted"


def _teacher(
    rows: Sequence[str], blocks: Mapping[str, Block], _: Sequence[Record]
) -> tuple[dict[str, Estimate], str]:
    """A re-ranker above its retriever on dev, and no more than a point above its shorter
    training.
    """
    ((name, block),) = blocks.items()
    retriever, shorter, longer = rows
    gaps = block.differences(longer, retriever, planned()["measure"])
    gain = cluster_mean(gaps, block.clusters)  # one seed: dev chooses, and test will judge
    rise = block.differences(longer, shorter, planned()["measure"]).mean()
    return {name: gain}, "supported" if sign(gain) == "supported" and rise <= 1 else "open"


JUDGES: dict[str, Judge] = {
    "above": _above,
    "below": _below,
    "level": _level,
    "mean": _mean,
    "overlap": _overlap,
    "coverage": _coverage,
    "teacher": _teacher,
}
"""Rule of a contrast in the plan -> what applies it."""


# What a difference's error is made of -------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """Variances behind a difference of two methods' means, in points squared.

    Attributes:
        article: of an article's own difference.
        question: of a question's own difference within its article, the same for all trainings.
        draw: of a question from training to training, of one method.
        seed: of a training's mean beyond what its questions' draws make, of one method.
        articles: how many equally large articles the collection's count as.
        questions: in an article, the mean.
    """

    article: float
    question: float
    draw: float
    seed: float
    articles: float
    questions: float

    def shares(self, seeds: int, articles: float | None = None) -> dict[str, float]:
        """What each source adds to the variance of a difference of means over `seeds` trainings
        each.
        """
        articles = articles or self.articles
        asked = articles * self.questions
        return {
            "articles": self.article / articles,
            "questions": self.question / asked,
            "draws of a training": 2 * self.draw / asked / seeds,
            "trainings as a whole": 2 * self.seed / seeds,
        }

    def error(self, seeds: int, articles: float | None = None) -> float:
        """Standard error of a difference."""
        return float(np.sqrt(sum(self.shares(seeds, articles).values())))

    def detectable(self, seeds: int, articles: float | None = None) -> float:
        """True difference that a two-sided test of level 0.05 finds four times in five."""
        return Estimate(0, self.error(seeds, articles), (articles or self.articles) - 1).detectable

    def by_chance(self, gap: float, seeds: int, articles: float | None = None) -> float:
        """How often two equal methods differ by `gap` or more."""
        return Estimate(gap, self.error(seeds, articles), (articles or self.articles) - 1).p()


def parts(block: Block, pairs: Sequence[tuple[str, str]], measure: str) -> Parts:
    """Estimate the parts by moments, means over pairs of methods.

    A question's draw is its variance over the trainings of one method; what articles add beyond
    their questions is the between-groups component of one-way analysis of variance with groups of
    unequal size (Searle, Casella and McCulloch 1992, section 3.6). An estimate below 0 counts as 0.

    Args:
        block: methods with several seeds each.
        pairs: (first, second).
        measure: of the differences.
    """
    repeated = [label for label, records in block.runs.items() if len(records) > 1]
    draw = float(
        np.mean([block.values(label, measure).var(axis=0, ddof=1).mean() for label in repeated])
    )
    rows = np.unique(block.clusters, return_inverse=True)[1]
    sizes = np.bincount(rows)
    asked, articles = len(rows), len(sizes)
    typical = (asked - (sizes**2).sum() / asked) / (articles - 1)
    within, between = [], []
    for first, second in pairs:
        gaps = block.differences(first, second, measure)
        means = np.bincount(rows, gaps) / sizes
        inside = ((gaps - means[rows]) ** 2).sum() / (asked - articles)
        outside = (sizes * (means - gaps.mean()) ** 2).sum() / (articles - 1)
        noise = draw * sum(1 / len(block.runs[label]) for label in (first, second))
        within.append(inside - noise)
        between.append((outside - inside) / typical)
    return Parts(
        article=max(float(np.mean(between)), 0.0),
        question=max(float(np.mean(within)), 0.0),
        draw=draw,
        seed=max(block.seeds(measure).variance - draw / asked, 0.0),
        articles=asked**2 / (sizes**2).sum(),
        questions=asked / (asked**2 / (sizes**2).sum()),
    )
